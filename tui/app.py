"""The screen: panes and keys. What is walked it knows as plain data from a worker, and no model.

Keys are answered at once; what needs the worker is queued (see `tui.walker`).
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.worker import WorkerFailed

from engine.errors import TensorstepError, UsageError
from engine.maps import MODULE, TRAINING, map_of, stage_named
from engine.service.client import Client
from engine.service.connection import Connection
from engine.service.options import Options
from tui.actions import BINDINGS, footer
from tui.glyphs import Glyphs, glyphs_for
from tui.keys import Keys
from tui.limits import SMALLEST, TALL, WIDE
from tui.names import source_name
from tui.places import Place
from tui.plain import shown
from tui.prompt import Typing
from tui.top_line import top_line
from tui.walker import Walker
from tui.widgets.curve import LossCurve
from tui.widgets.explain import ExplainPane
from tui.widgets.lines import DIM, HERE, WARN, Lines, Pane, line, wrapped
from tui.widgets.map import MapPane
from tui.widgets.table import TensorTable
from tui.widgets.table_view import VIEWS

SHORTLY = 0.005  # seconds: less than a frame
SAID = 4  # lines of a sentence above the footer


class Ground(Screen[None], inherit_bindings=False):
    """The screen under all sheets, without Textual's own keys (tab is ours)."""


class Tensorstep(Keys, inherit_bindings=False):
    """The walk on the screen."""

    CSS_PATH = "theme.tcss"
    TITLE = "tensorstep"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*BINDINGS]  # and none of Textual's own

    def __init__(
        self,
        options: Options,
        goto: Place | None = None,
        kind: str = TRAINING,
        glyphs: Glyphs | None = None,
        client: Connection | None = None,
        debug: bool = False,
    ):
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.goto = goto
        self.glyphs = glyphs or glyphs_for()
        self.set_class(self.glyphs.ascii, "ascii")
        self.tracing = debug
        self.typing = Typing()
        self.failure: str | None = None  # what is told after the screen has closed
        self.walker = self.walker_for(client or Client(), options, kind)
        self.top, self.saying, self.bottom = Lines(id="top"), Lines(id="say"), Lines(id="bottom")
        self.small = Lines(id="small")  # all there is on a terminal that is too small
        self.map_pane = MapPane(self.glyphs, id="map")
        self.table = TensorTable(self.glyphs, id="table")
        self.curve = LossCurve(self.glyphs, id="curve")
        self.explain_pane = ExplainPane(self.glyphs, id="explain")
        self.pane: Pane = self.table  # the one that has the keys
        self.trail = []
        self._explained: tuple[Any, ...] | None = None  # the cell that the explanation is of
        self._walking: asyncio.Task[None] | None = None

    def walker_for(self, client: Connection, options: Options, kind: str) -> Walker:
        """The screen's side of the walk, of a worker of its own."""
        return Walker(client, options, kind, self.glyphs, self.say, self.show_state)

    # --- starting and ending ------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        return Ground(id="_default")

    def compose(self) -> ComposeResult:
        yield self.top
        with Container(id="body"):
            yield self.map_pane
            with Container(id="middle"):
                yield self.table
                yield self.curve
            yield self.explain_pane
        yield self.saying
        yield self.bottom
        yield self.small

    def on_load(self) -> None:  # before the terminal is changed
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self.leave_on_signal, number)

    def on_mount(self) -> None:
        self.give_keys(self.table)
        self.lay_out()
        self.draw_frame()
        self.set_out()

    def set_out(self) -> None:
        """The screen stands: begin to walk."""
        own = self.walker.options.corpus or self.walker.options.text
        self.say("reading the texts ..." if own else "loading the model ...")
        self.call_after_refresh(self.start_walking)

    def start_walking(self) -> None:
        self._walking = asyncio.create_task(self.walk())

    async def walk(self) -> None:
        """Walk until the screen closes; close it where the walk cannot go on."""
        try:
            await self.walker.run(self.arrive)
        except TensorstepError as error:
            self.give_up(error)
        except Exception as error:  # told after the terminal is restored
            self._handle_exception(error)

    def give_up(self, error: TensorstepError) -> None:
        """The walk cannot go on: close, and say why."""
        trace = error.trace if self.tracing else ""
        self.failure = f"{trace}{error}"
        self.exit(return_code=error.exit_code)

    async def arrive(self) -> None:
        """To the place that was asked for."""
        self.say(self.walker.note)
        if self.goto is not None:
            await self.go(self.goto)

    async def go(self, place: Place) -> None:
        """To a state, and there to a cell. Raises UsageError where there is none."""
        await self.walker.seek(place)
        if place.cell is not None and self.walker.state is not None:
            self.table.open(self.walker.state, self.walk_of)
            if not self.table.put(list(place.cell)):
                shape = self.walker.state["shape"]
                raise UsageError(f"there is no cell {list(place.cell)}: the shape is {shape}")

    @property
    def walk_of(self) -> tuple[str, ...]:
        """Which walk is shown: cells and explanations of another are not its own."""
        walker = self.walker
        return (walker.options.opened or "", *walker.walk, *walker.standing["edits"])

    def leave_on_signal(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """A mistake of ours: restore the terminal, then one sentence (or, with --debug, all)."""
        if self.tracing or self.is_headless:
            super()._handle_exception(error)
            return
        if isinstance(error, WorkerFailed):  # Textual's, of a job of ours
            error = error.error if isinstance(error.error, Exception) else error
        self.failure = f"failed: {type(error).__name__}: {error} (--debug tells where)"
        self._return_code = 1
        self._close_messages_no_wait()

    async def on_unmount(self) -> None:
        if self._walking is not None:
            self._walking.cancel()
        await self.walker.client.close()

    # --- drawing ------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self.call_next(self.fit)  # Textual takes over the new size after this

    def fit(self) -> None:
        """Draw for another size of the terminal."""
        if self.small.is_attached:  # the first size comes before the panes
            self.lay_out()
            self.draw_frame()

    def lay_out(self) -> None:
        """Panes beside each other where there is room, else one under the other."""
        width, height = self.size
        narrow, tall = width < WIDE, height >= TALL
        ground = self.screen_stack[0]  # whatever lies over it now
        ground.set_class(narrow, "narrow")
        ground.set_class(tall, "tall")
        ground.set_class(width < SMALLEST[0] or height < SMALLEST[1], "small")
        self.map_pane.narrow = narrow
        state = self.walker.state
        is_loss = state is not None and state["name"] in ("loss", "validation")
        with_curve = self.walker.kind == TRAINING and (tall or is_loss)
        self.curve.set_class(not with_curve, "hidden")

    def draw_frame(self) -> None:
        """Top line, map, footer, and what a terminal too small shows."""
        width, height = self.size
        keys: list[Any] = []
        for key, word in self.footer(width):
            keys += [(key, HERE), (f" {word}  ", DIM)]
        self.bottom.show([line(*keys)])
        least = f"{SMALLEST[0]}x{SMALLEST[1]}"
        self.small.show(
            wrapped(f"tensorstep needs {least}, this is {width}x{height}: enlarge it", width)
        )
        walker = self.walker
        self.top.show([
            top_line(walker, self.source, self.trained, self.device, self.glyphs, width)
        ])  # fmt: skip
        stage = walker.state["stage"] if walker.state else ""
        self.map_pane.show_map(map_of(walker.kind, walker.model), stage, walker.standing)

    def footer(self, width: int) -> list[tuple[str, str]]:
        """The keys at the foot."""
        return footer(width)

    @property
    def source(self) -> str:
        """What is walked, in a word or two."""
        return source_name(self.walker.options, self.walker.corpus)

    @property
    def trained(self) -> int | None:
        """After how many steps of training a text is generated, if that is known."""
        return self.walker.trained

    device = "cpu"  # where the worker computes

    def say(self, text: str, warn: bool = False) -> None:
        """A sentence above the footer, until the next key that moves; what is typed stays."""
        if self.typing.open:
            return
        style = WARN if warn else DIM
        lines = wrapped(shown(text, self.glyphs.ascii), self.size.width, style)
        if len(lines) > SAID:
            lines = [*lines[: SAID - 1], line((self.glyphs.dots, style))]
        self.tell(lines)

    def tell(self, lines: list[Text]) -> None:
        """These lines above the footer, which makes room for them."""
        if self.saying.size.height != len(lines):
            self.saying.styles.height = len(lines)
        self.saying.show(lines)

    def show_prompt(self) -> None:
        typed = self.typing.line(self.glyphs, self.size.width)
        if typed is not None:
            self.tell([typed])

    async def show_state(self) -> None:
        """Fetch the visible cells and the explanation of the one under the cursor; draw."""
        walker, table = self.walker, self.table
        if walker.state is None:
            return
        if not walker.standing["edits"]:
            table.shows = VIEWS[0]
        if table.state is not walker.state:
            table.open(walker.state, self.walk_of)
        self.lay_out()
        if walker.kind == TRAINING:
            losses = await walker.losses()
            step, own = walker.standing["step"], walker.model == MODULE
            self.curve.show_losses(losses["losses"], losses["first"], step, own)
        self.draw_frame()
        asked = asyncio.create_task(self.explain()) if table.order is None else None
        try:
            await self.fill_table(asked)
            await (asked or self.explain())  # where rows are sorted, of the cell that came there
        finally:
            if asked is not None:
                asked.cancel()

    async def fill_table(self, asked: asyncio.Task[None] | None) -> None:
        """Fetch the cells that are to be seen, and how all of them are spread; draw, together with
        what else was asked for, where that is nearly there: each drawing waits for a frame."""
        table = self.table
        key = table.key
        if key != table.have:
            cells = await self.walker.cells(*table.view, table.turned)
            if asked is not None:
                await asyncio.wait({asked}, timeout=SHORTLY)
            table.fill(cells, key)
        wanted = table.summary_key
        if table.summary_of != wanted:
            table.summarize(await self.walker.summary(table.shows), wanted)
            table.draw()

    async def explain(self) -> None:
        """Fetch and show the explanation of the cell under the cursor, where it is another."""
        walker, table, state = self.walker, self.table, self.walker.state
        cell = (*table.of, *table.cell)
        if state is None or cell == self._explained or not self.explain_pane.display:
            return
        some = 0 not in state["shape"]  # the tokens of an empty prompt are none
        found = await walker.explanation(table.cell) if some else None
        self._explained = cell
        self.explain_pane.training = walker.kind == TRAINING
        self.explain_pane.explain(stage_named(state["stage"], walker.model), found)

    def on_table_view_wanted(self) -> None:
        self.walker.look_again()
