"""The screen: a client of a worker. It knows a walk's states as plain data, and no model.

Keys are answered at once; what needs the worker is queued and done in order by one task, and the
screen is drawn when the queue is empty, so that a held key does not pile up drawings.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from engine.errors import TensorstepError, UsageError
from engine.maps import GENERATION, MODEL_STAGES, MODEL_TITLES, STAGES, TRAINING, map_of
from engine.service.client import Client, WorkerDied, WorkerError
from engine.service.options import Options
from tui.actions import BINDINGS, footer
from tui.cells import Slice
from tui.glyphs import Glyphs, folded, glyphs_for
from tui.limits import SMALLEST
from tui.places import Place, place_of
from tui.plain import shown
from tui.widgets.curve import LossCurve
from tui.widgets.explain import ExplainPane
from tui.widgets.lines import DIM, HERE, STRONG, WARN, Lines, line
from tui.widgets.map import MapPane
from tui.widgets.table import TensorTable

WIDE = 110  # columns from which the explanation stands beside the table
TALL = 34  # lines from which the loss curve is always there
TERMS = 200  # terms of an explanation worth fetching

Job = Callable[[], Awaitable[None]]


class Tensorstep(App[int], inherit_bindings=False):
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
        client: Client | None = None,
        debug: bool = False,
    ):
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.options = options
        self.goto = goto
        self.kind = kind
        self.model = options.model
        self.glyphs = glyphs or glyphs_for()
        self.client = client or Client()
        self.tracing = debug
        self.failure: str | None = None  # what is told after the screen has closed
        self.state: dict[str, Any] | None = None
        self.standing: dict[str, Any] = {"step": 0, "stages": [], "loss": None, "losses": 0}
        self.detour: tuple[list[str], int, int] | None = None  # parameters: names, step, which
        self.jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.busy = True
        self.top, self.saying, self.bottom = Lines(id="top"), Lines(id="say"), Lines(id="bottom")
        self.small = Lines(id="small")  # all there is on a terminal that is too small
        self.map_pane = MapPane(self.glyphs, id="map")
        self.table = TensorTable(self.glyphs, id="table")
        self.curve = LossCurve(self.glyphs, id="curve")
        self.explain_pane = ExplainPane(self.glyphs, id="explain")
        self._losses: dict[str, Any] = {"losses": [], "first": 1}
        self._curve_of: tuple[str, int] = ("", 0)  # model and number of steps `_losses` is for
        self._explained: tuple[Any, ...] | None = None
        self._driving: asyncio.Task[None] | None = None

    # --- the frame --------------------------------------------------------------------------

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

    def on_mount(self) -> None:
        self.table.focus()
        self.lay_out()
        self.draw_frame()
        self.say("loading the model ...")
        for name in ("SIGTERM", "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(
                getattr(signal, name), self.leave_on_signal, getattr(signal, name)
            )
        self.call_after_refresh(self.start_driver)

    def start_driver(self) -> None:
        self._driving = asyncio.create_task(self.drive())

    def on_resize(self) -> None:
        if self.small.is_attached:  # the first size comes before the panes
            self.lay_out()
            self.draw_frame()

    def lay_out(self) -> None:
        """Panes beside each other where there is room, else one under the other."""
        width, height = self.size
        narrow = width < WIDE
        self.screen.set_class(narrow, "narrow")
        self.screen.set_class(height >= TALL, "tall")
        self.screen.set_class(width < SMALLEST[0] or height < SMALLEST[1], "small")
        self.map_pane.narrow = narrow
        on_loss = self.state is not None and self.state["stage"] in ("loss", "validation")
        single = self.state is not None and self.state["kind"] == "number"
        with_curve = self.kind == TRAINING and (height >= TALL or (on_loss and single))
        self.curve.set_class(not with_curve, "hidden")

    def draw_frame(self) -> None:
        """Top line, footer, and what a terminal too small shows."""
        keys: list[Any] = []
        for key, word in footer():
            keys += [(key, HERE), (f" {word}  ", DIM)]
        self.bottom.show([line(*keys)])
        width, height = self.size
        small = (
            f"tensorstep needs {SMALLEST[0]}x{SMALLEST[1]}, this is {width}x{height}: enlarge it"
        )
        self.small.show([line(small)])
        self.top.show([self.top_line()])
        if self.state is not None:
            self.map_pane.show_map(self.walk_map, self.state["stage"], self.standing)

    @property
    def walk_map(self) -> Any:
        return map_of(self.kind, self.model)

    def top_line(self) -> Any:
        parts = [self.source_name(), MODEL_TITLES[self.model], f"{self.kind} map"]
        if self.kind == GENERATION:
            steps = self.options.train_steps
            parts.append(f"after {steps} training step{'' if steps == 1 else 's'}")
        if self.state is not None:
            parts += [f"step {self.state['step']}", self.state["stage"]]
        loss = self.standing["loss"]
        loss_text = loss if isinstance(loss, str) else "" if loss is None else f"{loss:.4f}"
        right = f"loss {loss_text}  cpu" if loss_text else "cpu"
        dot = f" {'-' if self.glyphs.ascii else '·'} "
        room = self.size.width - len("tensorstep  ") - len(right) - 2
        left = shown(dot.join(parts), self.glyphs.ascii)
        while cell_len(left) > room and len(parts) > 1:
            parts.pop(0)  # what is said first is known best
            left = shown(dot.join(parts), self.glyphs.ascii)
        gap = max(1, room - cell_len(left) + 1)
        return line(("tensorstep  ", HERE), (left, STRONG), " " * gap, (right, DIM))

    def source_name(self) -> str:
        if self.options.text is not None:
            return self.options.text.rsplit("/", 1)[-1][:24]
        return "lily" if self.options.worked else "your sentence"

    def say(self, text: str, warn: bool = False) -> None:
        """One line above the footer, until the next key that moves."""
        plain = folded(text) if self.glyphs.ascii else text
        self.saying.show([line((shown(plain), WARN if warn else DIM))])

    # --- the worker -------------------------------------------------------------------------

    async def drive(self) -> None:
        """Start the worker, then do jobs in order, and draw when none is left."""
        try:
            await self.client.start()
            await self.client.ask("open", options=self.options.to_json())
            await self.arrive()
            self.busy = False
            while True:
                job = await self.jobs.get()
                try:
                    await job()
                    if self.jobs.empty():
                        await self.show_state()
                except (WorkerDied, WorkerError):
                    raise
                except TensorstepError as error:
                    self.say(str(error), warn=True)
        except WorkerError as error:
            self.fail(error, error.trace)
        except TensorstepError as error:
            self.fail(error)
        except Exception as error:  # told after the terminal is restored
            self._handle_exception(error)

    async def arrive(self) -> None:
        """The first state, or the place that was asked for."""
        answer = await self.ask("look")
        if self.goto is not None:
            answer = await self.ask("move", how="seek", step=self.goto.step, name=self.goto.name)
        self.take(answer)
        self.say("")
        if self.goto is not None and self.goto.cell is not None:
            self.put_cursor(self.goto.cell)
        await self.show_state()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.client.ask(method, map=self.kind, model=self.model, **params)

    def take(self, answer: dict[str, Any]) -> None:
        """A state the worker told of is the one shown from now on."""
        self.state, self.standing = answer["state"], answer["standing"]
        self.table.open(self.state)

    async def show_state(self) -> None:
        """Fetch the visible cells and the explanation of the one under the cursor; draw."""
        self.lay_out()
        await self.show_curve()
        self.draw_frame()
        key = self.table.key
        if key is None or self.state is None:
            return
        name, step, view = key
        turned = self.table.turned
        where = {"map": self.kind, "model": self.model, "name": name, "step": step}
        if key != self.table.have:
            header, payload = await self.client.ask_bytes(
                "table",
                **where,
                fixed=list(view.fixed),
                rows=list(view.columns if turned else view.rows),
                columns=list(view.rows if turned else view.columns),
            )
            self.table.fill(Slice.of(header, payload, turned), key)
        self.table.draw()
        cell = self.table.cell
        asked = (self.kind, self.model, name, step, *cell)
        if asked != self._explained and self.explain_pane.display:
            found = await self.client.ask("explain", **where, cell=cell, most=TERMS)
            self._explained = asked
            self.explain_pane.explain(STAGES[self.state["stage"]], found)

    async def show_curve(self) -> None:
        """Fetch the losses where there are new ones; mark the step of the cursor."""
        if self.kind != TRAINING:
            return
        made = (self.model, self.standing["losses"])
        if made != self._curve_of:
            self._losses, self._curve_of = await self.ask("losses"), made
        self.curve.show_losses(self._losses["losses"], self._losses["first"], self.standing["step"])

    def put_cursor(self, cell: tuple[int, ...]) -> None:
        if not self.table.put(list(cell)):
            shape = self.state["shape"] if self.state else []
            raise UsageError(f"there is no cell {list(cell)}: the shape is {shape}")

    def later(self, job: Job) -> None:
        """Queue what needs the worker; before it is ready there is nothing to walk."""
        if self.busy:
            self.say("still loading the model ...")
        else:
            self.jobs.put_nowait(job)

    async def nothing(self) -> None:
        """The job that only draws."""

    def on_tensor_table_wanted(self) -> None:
        if not self.busy:
            self.jobs.put_nowait(self.nothing)

    def fail(self, error: TensorstepError, trace: str = "") -> None:
        """Close, and tell why afterwards."""
        self.failure = f"{trace}\n{error}" if trace and self.tracing else str(error)
        self.exit(return_code=error.exit_code)

    def leave_on_signal(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """A mistake of ours: restore the terminal, then one sentence (or, with --debug, all)."""
        if self.tracing or self.is_headless:
            super()._handle_exception(error)
            return
        self.failure = f"failed: {type(error).__name__}: {error} (--debug tells where)"
        self._return_code = 1
        self._close_messages_no_wait()

    async def on_unmount(self) -> None:
        if self._driving is not None:
            self._driving.cancel()
        await self.client.close()

    # --- moving through the walk --------------------------------------------------------------

    def move(self, how: str, **params: Any) -> None:
        self.later(lambda: self._move(how, **params))

    async def _move(self, how: str, **params: Any) -> None:
        if self.detour is not None and how in ("forward", "back"):
            await self._along_parameters(1 if how == "forward" else -1)
            return
        self.detour = None
        answer = await self.ask("move", how=how, **params)
        self.take(answer)
        self.say("" if answer["moved"] else self.why_not(how, answer["ended"]))

    def why_not(self, how: str, ended: str | None) -> str:
        if how in ("back", "back_stage", "back_step"):
            return "this is the beginning"
        return f"generation has ended ({ended})" if ended else "this is the end"

    def action_next(self) -> None:
        self.move("forward")

    def action_previous(self) -> None:
        self.move("back")

    def action_next_stage(self) -> None:
        self.move("next_stage")

    def action_back_stage(self) -> None:
        self.move("back_stage")

    def action_next_step(self) -> None:
        self.move("next_step")

    def action_back_step(self) -> None:
        self.move("back_step")

    def action_start(self) -> None:
        self.move("seek", step=0)

    def action_goto(self) -> None:
        from tui.screens.sheets import Question

        title = "go to STEP:STATE:CELL"
        self.push_screen(Question(title, "such as 1:weights:0,0,2, or 3:loss, or 2"), self.go)

    def go(self, text: str | None) -> None:
        if text is None:
            return
        try:
            place = place_of(text)
        except UsageError as error:
            self.say(str(error), warn=True)
            return
        self.later(lambda: self._go(place))

    async def _go(self, place: Place) -> None:
        await self._move("seek", step=place.step, name=place.name)
        if place.cell is not None:
            self.put_cursor(place.cell)

    def on_map_pane_chosen(self, event: MapPane.Chosen) -> None:
        self.later(lambda: self._open_stage(event.stage))

    async def _open_stage(self, stage: str) -> None:
        """To the first state of a stage: in this step where it has one, else in the next."""
        self.table.focus()
        if stage in ("parameters", "checkpoint"):
            await self._look_at_parameters()
            return
        self.detour = None
        answer = await self.ask("move", how="to_stage", name=stage)
        self.take(answer)
        self.say("" if answer["moved"] else f"this walk has no state in {stage} yet")

    async def _look_at_parameters(self) -> None:
        """The stored parameters, which are no states of the walk, beside where it stands."""
        answer = await self.ask("parameters")
        self.detour = (answer["names"], answer["step"], -1)
        await self._along_parameters(1)

    async def _along_parameters(self, by: int) -> None:
        """To the next or previous parameter; past the last or first, back to the walk."""
        names, step, at = self.detour or ([], 0, 0)
        at += by
        if 0 <= at < len(names):
            self.detour = (names, step, at)
            self.take(await self.ask("look", name=names[at], step=step))
            self.say(f"parameter {at + 1} of {len(names)}, beside the walk: escape goes back to it")
        else:
            await self._return()

    async def _return(self) -> None:
        self.detour = None
        self.take(await self.ask("look"))
        self.say("")

    # --- other maps and models ----------------------------------------------------------------

    def action_other_map(self) -> None:
        self.later(
            lambda: self._open(GENERATION if self.kind == TRAINING else TRAINING, self.model)
        )

    def action_other_model(self) -> None:
        from tui.screens.sheets import Choice

        choices = [(key, MODEL_TITLES[key]) for key in MODEL_STAGES]
        self.push_screen(Choice("open another model", choices, self.model), self.open_model)

    def open_model(self, model: str | None) -> None:
        if model is not None and model != self.model:
            self.later(lambda: self._open(self.kind, model))

    async def _open(self, kind: str, model: str) -> None:
        """The walk on another map or of another model, where it was left."""
        answer = await self.client.ask("look", map=kind, model=model)
        self.kind, self.model = kind, model
        self.detour = None
        self.take(answer)
        self.say("")

    # --- panes and cells ----------------------------------------------------------------------

    def action_pane_next(self) -> None:
        self.screen.focus_next()

    def action_pane_back(self) -> None:
        self.screen.focus_previous()

    def action_close(self) -> None:
        self.table.focus()
        self.say("")
        if self.detour is not None:
            self.later(self._return)

    def action_explanation(self) -> None:
        self.explain_pane.toggle_class("hidden")
        if self.focused is self.explain_pane:
            self.table.focus()
        if not self.busy:
            self.jobs.put_nowait(self.nothing)

    def vertical(self, by: int) -> None:
        """Up or down in whichever pane has the keys."""
        if self.focused is self.map_pane:
            self.map_pane.move(by)
        elif self.focused is self.explain_pane:
            self.explain_pane.turn(by)
        else:
            self.table.move(down=by)

    def horizontal(self, by: int) -> None:
        if self.focused is self.map_pane:
            self.map_pane.move(by)
        else:
            self.table.move(right=by)

    def action_up(self) -> None:
        self.vertical(-1)

    def action_down(self) -> None:
        self.vertical(1)

    def action_left(self) -> None:
        self.horizontal(-1)

    def action_right(self) -> None:
        self.horizontal(1)

    def action_page_up(self) -> None:
        self.vertical(-self.page)

    def action_page_down(self) -> None:
        self.vertical(self.page)

    @property
    def page(self) -> int:
        on_explanation = self.focused is self.explain_pane
        return max(1, self.explain_pane.size.height - 1 if on_explanation else self.table.rows_seen)

    def action_row_start(self) -> None:
        self.table.move(right=-self.table.width)

    def action_row_end(self) -> None:
        self.table.move(right=self.table.width)

    def action_top(self) -> None:
        self.table.move(down=-self.table.height)

    def action_bottom(self) -> None:
        self.table.move(down=self.table.height)

    def action_slice_axis(self) -> None:
        self.table.choose_axis()

    def action_slice_back(self) -> None:
        self.table.move_slice(-1)

    def action_slice_next(self) -> None:
        self.table.move_slice(1)

    def action_enter(self) -> None:
        if self.focused is self.map_pane:
            self.map_pane.choose()

    # --- help, leaving ------------------------------------------------------------------------

    def action_help(self) -> None:
        from tui.screens.help import help_lines
        from tui.screens.sheets import Pages

        stage = STAGES[self.state["stage"]] if self.state else None
        self.push_screen(Pages("help", help_lines(stage, self.state, self.glyphs)))

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_leave(self) -> None:
        self.exit(return_code=0)
