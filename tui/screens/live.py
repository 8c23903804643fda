"""A run's directory, live: curves, figures, what is generated, the log; and the run's few keys.

What is shown is pulled, at most four times a second: the metrics, the log and the samples from
files, the rest from the run's process, as long as there is one. Nothing moves unless something
happened.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.timer import Timer

from engine.errors import TensorstepError
from engine.runs.curves import Curves, fields_of, last_lines
from engine.runs.directory import DIED, ELSEWHERE, ENDED, PAUSED
from engine.service.connection import WorkerDied
from tui.actions import LIVE_ACTIONS, bindings
from tui.glyphs import Glyphs
from tui.limits import SMALLEST, TALL, WIDE
from tui.plain import shown
from tui.prompt import Typing
from tui.screens.live_keys import Control, LiveKeys
from tui.widgets.lines import DIM, WARN, Lines, line, wrapped
from tui.widgets.run_curve import View, loss_curve, series_curve
from tui.widgets.run_figures import (
    GAP,
    SAID,
    beside,
    figure_lines,
    footer,
    log_lines,
    ratio_lines,
    sample_lines,
    top_line,
    why_lines,
)

LOG = 2**13  # bytes
SAMPLE = 2**16  # bytes
SLICE = 0.005  # seconds that keys wait at most while a long file is read
FIGURES = 3  # lines
SMALL_BLOCK = 6  # lines: five ratios


class LiveScreen(LiveKeys, inherit_bindings=False):
    """What a run does now, and did; `control` is None where it has no process any more."""

    DEFAULT_CSS = "LiveScreen { background: ansi_default; layout: vertical; }"
    BINDINGS = [*bindings(LIVE_ACTIONS)]
    EVERY = 0.25  # seconds

    def __init__(
        self,
        directory: Path,
        name: str,
        glyphs: Glyphs,
        control: Control | None,
        read_only: bool,
        typing: Typing,
        status: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.directory = directory
        self.run_name = shown(name, glyphs.ascii)
        self.glyphs = glyphs
        self.control = control
        self.read_only = read_only
        self.typing = typing
        self.view = View()
        self.is_log = False
        self.said = ("", False)  # a sentence above the footer, and whether it is a warning
        self.shown = Lines(id="live")
        self.curves = Curves(directory / "metrics.jsonl")
        self.steps = fields_of(bytes_of(directory / "config.json")).get("steps")
        self.status = status  # as the run told it last
        self.log_lines: list[str] = []
        self.sample: dict[str, Any] = {}
        self.timer: Timer | None = None
        self._reading = self._asking = False

    def compose(self) -> ComposeResult:
        yield self.shown

    def on_mount(self) -> None:
        self.timer = self.set_interval(self.EVERY, self.pull)
        self.pull()

    def on_resize(self) -> None:
        self.draw()

    # --- what is pulled -----------------------------------------------------------------------

    def pull(self) -> None:
        """What is new, without anybody waiting for it."""
        self.run_worker(self.tick())

    async def tick(self) -> None:
        """What is new. While an earlier one still reads or waits, this one does not do it too."""
        self.read_files()
        self.draw()
        await asyncio.gather(self.read_curves(), self.ask_status())
        self.draw()

    def read_files(self) -> None:
        """The ends of the metrics, the log and the samples."""
        self.curves.read(0)
        if self.control is None:
            self.status = {**(self.status or {}), **self.as_left()}
        lines = last_lines(self.directory / "worker.log", LOG)
        texts = (text.decode("utf-8", "replace").rstrip() for text in lines)
        self.log_lines = [shown(text, self.glyphs.ascii) for text in texts if text]
        samples = last_lines(self.directory / "samples.jsonl", SAMPLE)
        self.sample = fields_of(samples[-1]) if samples else {}

    async def read_curves(self) -> None:
        """All of the metrics; keys come between."""
        if self._reading:
            return
        self._reading = True
        drawn = time.monotonic()
        try:
            while not self.curves.read(SLICE):
                await asyncio.sleep(0)
                if time.monotonic() - drawn > self.EVERY:
                    drawn = time.monotonic()
                    self.draw()
        finally:
            self._reading = False

    async def ask_status(self) -> None:
        if self._asking:
            return
        self._asking = True
        try:
            await self.ask("status")
        finally:
            self._asking = False

    async def ask(self, method: str, **params: Any) -> None:
        """Ask the run for something; how it stands then is shown, and so is a mistake."""
        if self.control is None:
            return
        try:
            self.hear(await self.control.ask(method, **params))
        except WorkerDied as error:
            self.lose(error)
        except TensorstepError as error:
            self.said = (str(error), True)
        self.draw()

    def hear(self, status: dict[str, Any]) -> None:
        """How the run stands; it rings once when a breakpoint has paused it."""
        before, self.status = self.status, status
        is_paused = status.get("state") == PAUSED and status.get("why") is not None
        known = ("state", "why", "stops")  # it may have gone on, and have stopped again
        as_before = before and all(before.get(key) == status.get(key) for key in known)
        if is_paused and before and not as_before:
            self.app.bell()
        stands = (
            before and before.get("state") == PAUSED and before.get("stops") == status.get("stops")
        )
        if before and not stands and status.get("walk"):
            self.post_message(self.OpenWalk())

    def lose(self, error: WorkerDied) -> None:
        """The process is gone: told once, then everything is read from files."""
        if self.control is None:
            return
        self.control = None
        self.status = {**(self.status or {}), "memory": None, "screens": None, **self.as_left()}
        died = self.state == DIED
        self.said = (str(error) if died else f"the run has {self.state}", died)

    def as_left(self) -> dict[str, Any]:
        """How a process that cannot be asked left its run, or that it works on another host."""
        worker = fields_of(bytes_of(self.directory / "worker.json"))
        state = worker.get("state")
        if state not in ENDED:
            here = worker.get("host", socket.gethostname()) == socket.gethostname()
            state = DIED if here else ELSEWHERE
        return {"state": state, "why": worker.get("why")}

    # --- drawing ------------------------------------------------------------------------------

    def draw(self) -> None:
        """Make the lines anew; only those that differ are drawn."""
        if not self.is_attached:
            return
        width, height = self.app.size
        if width < SMALLEST[0] or height < SMALLEST[1]:
            least = f"{SMALLEST[0]}x{SMALLEST[1]}"
            text = f"tensorstep needs {least}, this is {width}x{height}: enlarge it"
            self.shown.show([line(text)])
            return
        text, warn = self.said
        told = shown(text, self.glyphs.ascii)
        said = wrapped(told, width, WARN if warn else DIM, SAID) if text else []
        page = self.page(width, height - 1)
        page = [*page, *[line()] * height][: height - 1 - len(said)]
        foot = self.typing.line(self.glyphs, width) or footer(width, self.state, self.can_change)
        self.shown.show([*page, *said, foot])

    def page(self, width: int, height: int) -> list[Text]:
        """Everything but the footer."""
        status, glyphs = self.status or {}, self.glyphs
        done, size = self.curves.progress
        reading = f"reading {100 * done // size}%" if self._reading and done < size else ""
        lines = [
            top_line(self.run_name, self.curves, status, self.steps, reading, width, glyphs),
            *why_lines(status, width, glyphs),
        ]
        rest = height - len(lines) - FIGURES
        is_large = width >= WIDE and height >= TALL - 1
        lines += self.curve_lines(width, rest * 2 // 5 if is_large else rest // 2)
        if is_large:
            lines += self.small_curve_lines(width, rest // 5)
        lines += [*figure_lines(self.curves, status, self.steps, width, glyphs), line()]
        room = height - len(lines)
        ratios = status.get("ratios")
        part = (width * 2 // 5 if is_large else width // 2) if ratios else 0
        block = room if is_large else max(SMALL_BLOCK, room * 2 // 5)
        right = sample_lines(self.sample, width - part, block // 2 if is_large else block, glyphs)
        if is_large:
            right += [line()] if right else []
            right += log_lines(self.log_lines, width - part, room - len(right), glyphs)
        lines += beside(ratio_lines(ratios, part - GAP, block, glyphs), right, part)
        if not is_large:
            lines += log_lines(self.log_lines, width, height - len(lines), glyphs)
        return lines

    def curve_lines(self, width: int, height: int) -> list[Text]:
        """The loss."""
        count = len(self.curves)
        seen, cursor = self.view.steps(count), self.view.cursor(count)
        drawn = loss_curve(self.curves, *seen, width, height, cursor, self.is_log, self.glyphs)
        return [*drawn, *[line()] * height][:height]

    def small_curve_lines(self, width: int, height: int) -> list[Text]:
        """Gradient norm and learning rate, side by side."""
        count, size = len(self.curves), (width // 2 - GAP, height)
        seen, cursor = self.view.steps(count), self.view.cursor(count)
        norms, rates = (
            series_curve(self.curves, name, *seen, *size, cursor, is_log, self.glyphs)
            for name, is_log in (("grad_norm", self.is_log), ("lr", False))
        )
        return [*beside(norms, rates, width // 2), *[line()] * height][:height]


def bytes_of(path: Path) -> bytes:
    """What stands in a small file; nothing where it is not there."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
