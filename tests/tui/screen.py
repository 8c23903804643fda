"""A screen under test: keys go in, the lines that a terminal would show come out."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.pilot import Pilot
from textual.strip import Strip
from wcwidth import wcswidth

from engine.service.options import Options
from tests.tui.desk import DeskClient
from tui.app import Tensorstep
from tui.glyphs import UNICODE

SMALL, LARGE = (80, 24), (120, 40)
PATIENCE = 60.0  # seconds until a test that waits has failed
WORKED = Options()
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # categories of characters that could be


class Screen:
    """A running app, by what is seen of it."""

    def __init__(self, app: Tensorstep, pilot: Pilot[int]):
        self.app = app
        self.pilot = pilot
        self.strips: list[Strip] = []  # the lines as they were when all had settled

    # --- keys ---------------------------------------------------------------------------------

    async def press(self, *keys: str) -> None:
        """Type keys, as Textual names them or as characters, and wait until all is done."""
        for key in keys:
            self.app.post_message(key_event(key))
            await self.settle()

    def post(self, key: str) -> None:
        """Type a key and wait for nothing."""
        self.app.post_message(key_event(key))

    async def press_at_once(self, *keys: str) -> None:
        """Type keys faster than they can be answered."""
        for key in keys:
            self.app.post_message(key_event(key))
        await self.settle()

    async def type(self, text: str) -> None:
        await self.press_at_once(*text)

    async def to_pane(self, id: str) -> None:
        """With tab, however many times it takes."""
        for _ in range(3):
            if self.focus == id:
                return
            await self.press("tab")
        assert self.focus == id

    async def goto(self, place: str) -> None:
        await self.press(";")
        await self.press_at_once(*place, "enter")

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.settle()

    async def settle(self) -> None:
        """Until nobody in this process has anything left to do but wait for a key."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await all_is_quiet()
                top = self.app.screen
                drawn = not (top._layout_required or top._dirty_widgets or top._repaint_required)
                top._on_timer_update()  # what Textual does 60 times a second: lay out, repaint
                if drawn:
                    break
        self.strips = self.app.screen._compositor.render_strips()

    async def ready(self) -> None:
        """Until the walk has begun, or cannot begin."""
        async with asyncio.timeout(PATIENCE):
            await all_is_quiet()
            while not self.app.walker.ready and self.app.failure is None:
                self.app.screen._on_timer_update()
                await all_is_quiet()
        if self.app.failure is None:
            await self.settle()

    async def ended(self) -> int | None:
        """The exit code, once the app has closed."""
        task = self.app._task
        assert task is not None
        await asyncio.wait_for(asyncio.shield(task), PATIENCE)
        return self.app.return_code

    # --- what is seen -------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        return [strip.text for strip in self.strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def segments(self) -> list[Segment]:
        return [segment for strip in self.strips for segment in strip]

    def pane(self, id: str) -> list[str]:
        """The lines of one pane, as far as they are on the screen; none where it is hidden."""
        widget = self.app.screen.query_one(f"#{id}")
        if not widget.is_on_screen or not widget.region:
            return []
        x, y, width, height = widget.content_region
        return [strip.crop(x, x + width).text for strip in self.strips[y : y + height]]

    def table(self) -> str:
        return "\n".join(self.pane("table"))

    @property
    def explanation(self) -> str:
        """The explanation as one run of words, wherever it was wrapped."""
        return " ".join(" ".join(self.pane("explain")).split())

    @property
    def said(self) -> str:
        """The sentence above the footer, as one run of words."""
        return " ".join(" ".join(self.pane("say")).split())

    @property
    def state(self) -> str:
        """The name of the state that is shown: the first word of the table."""
        return self.pane("table")[0].split()[0]

    @property
    def step(self) -> int:
        found = re.search(r"step (\d+)", self.lines[0])
        assert found is not None
        return int(found[1])

    @property
    def place(self) -> tuple[int, str]:
        return self.step, self.state

    @property
    def cursor(self) -> tuple[tuple[int, ...], str]:
        """The cell under the cursor: its index, and what stands there with all its digits."""
        for line in self.pane("table")[1:]:
            found = re.match(r"(\S+?)(?:\[([\d,]+)\])? = (.*)", line)
            if found is not None and found[1] in (self.state, "…", ".."):
                index = tuple(map(int, found[2].split(","))) if found[2] else ()
                return index, found[3].split("   ")[0].strip()
        raise AssertionError(f"no cell under the cursor:\n{self.table()}")

    @property
    def number(self) -> float:
        """The number under the cursor."""
        return float(self.cursor[1].split()[0])

    @property
    def focus(self) -> str | None:
        return self.app.pane.id

    def check(self) -> None:
        """Every line fills the screen exactly, counted by rich and as a terminal counts; nothing
        on it could be obeyed."""
        width, height = self.app.size
        lines = self.lines
        assert len(lines) == height
        for line in lines:
            assert cell_len(line) == width, line
            assert wcswidth(line) == width, line
            assert not {unicodedata.category(each) for each in line} & {
                "Cc",
                "Cf",
                "Cs",
                "Zl",
                "Zp",
            }


async def all_is_quiet() -> None:
    """Until the event loop has nothing to run any more: what is left waits for a clock."""
    loop = asyncio.get_running_loop()
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0)
        quiet = 0 if loop._ready else quiet + 1


def key_event(key: str) -> events.Key:
    """A key by its name (`pageup`, `shift+tab`) or by its character."""
    if len(key) > 1:
        return events.Key(key, "\r" if key == "enter" else None)
    if key.isalnum() and key.isascii():
        return events.Key(key, key)
    name = unicodedata.name(key).lower().replace("-", "_").replace(" ", "_")
    return events.Key({"low_line": "underscore", "hyphen_minus": "minus"}.get(name, name), key)


@asynccontextmanager
async def opened(
    options: Options = WORKED, size: tuple[int, int] = SMALL, **more: Any
) -> AsyncIterator[Screen]:
    """The screen on a desk in this process, settled on its first state.

    more   further arguments of the app; `client` and `glyphs` have defaults of their own
    """
    more = {"client": DeskClient(), "glyphs": UNICODE, **more}
    client = more["client"]
    app = Tensorstep(options, **more)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        if client.gate is None or client.gate.is_set():
            await screen.ready()
        yield screen
