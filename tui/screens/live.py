"""A run's directory, live: curves, figures, what is generated, the log; and the run's few keys.

What is shown is pulled, at most four times a second: the metrics, the log and the samples from
files, the rest from the run's process, as long as there is one. Nothing moves unless something
happened.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from rich.cells import cell_len, chop_cells
from rich.text import Text
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer

from engine.errors import TensorstepError
from engine.runs.curves import Curves, fields_of, last_lines, number_of
from engine.runs.directory import DIED, ELSEWHERE, ENDED, FAILED, PAUSED, RUNNING
from engine.service.connection import WorkerDied
from tui.actions import Action, bindings, brief
from tui.cells import written
from tui.glyphs import Glyphs
from tui.limits import SMALLEST, TALL, WIDE
from tui.pace import left
from tui.plain import shown
from tui.prompt import Prompt, Typing
from tui.widgets.curve import AXIS
from tui.widgets.lines import DIM, HERE, STRONG, WARN, Lines, line, wrapped
from tui.widgets.run_curve import View, loss_curve, series_curve

LOG = 2**13  # bytes
SAMPLE = 2**16  # bytes
SLICE = 0.005  # seconds that keys wait at most while a long file is read
SAID = 3  # lines of a sentence
FIGURES = 3  # lines
RATIO = 10  # cells
GAP = 3  # cells between what stands side by side
SMALL_BLOCK = 6  # lines: five ratios
NOT_KNOWN = "-"

LIVE_ACTIONS = (
    Action("live.pause", "space", "space", "pause the run, or let it go on", "", "pause", "pause"),
    Action("live.left", "left", "left right", "the cursor, by a column", "", "", "move(-1)"),
    Action("live.right", "right", "", "right", call="move(1)"),
    Action("live.first", "home", "home end", "first step, newest step", call="first"),
    Action("live.last", "end", "", "newest step", call="newest"),
    Action("live.in", "plus,equals_sign", "+ -", "nearer, farther", "", "zoom", "zoom(1)"),
    Action("live.out", "minus", "", "farther", call="zoom(-1)"),
    Action("live.whole", "0", "0", "the whole run", call="whole"),
    Action("live.log", "l", "l", "logarithmic scale, or not", "", "log", "log_scale", True),
    Action("live.break", "b", "b", "a breakpoint: pause when it holds", "", "break", "break_when"),
    Action("live.breaks", "B", "B", "the breakpoints", "", "breaks", "breaks", True),
    Action("live.walk", "enter,m", "enter m", "the paused step in the map", "", "map", "walk"),
    Action("live.stop", "s", "s", "stop the run", "", "stop", "stop"),
    Action("live.detach", "D", "D", "detach: the run goes on", "", "detach", "detach"),
    Action("live.help", "question_mark", "?", "this help", "", "help", "help"),
    Action("live.redraw", "ctrl+l", "ctrl+l", "draw the screen again", call="redraw"),
    Action("live.leave", "q,ctrl+c", "q ctrl+c", "quit", "", "quit", "leave"),
)


class Control(Protocol):
    """The process of a run."""

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request. Raises TensorstepError; WorkerDied where it is gone."""
        ...


class LiveScreen(ModalScreen[None], inherit_bindings=False):
    """What a run does now, and did; `control` is None where it has no process any more."""

    DEFAULT_CSS = "LiveScreen { background: ansi_default; layout: vertical; }"
    BINDINGS = [*bindings(LIVE_ACTIONS)]
    EVERY = 0.25  # seconds

    class OpenWalk(Message):
        """The paused step is to be looked at in the map."""

    class Detach(Message):
        """The screen is to be left, the run goes on."""

    class Leave(Message):
        """The screen is to be left."""

    def __init__(
        self,
        directory: Path,
        name: str,
        glyphs: Glyphs,
        control: Control | None,
        read_only: bool,
        typing: Typing,
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
        self.status: dict[str, Any] | None = None
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
        as_before = before and all(before.get(key) == status.get(key) for key in ("state", "why"))
        if is_paused and before and not as_before:
            self.app.bell()

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

    @property
    def state(self) -> str:
        return str((self.status or {}).get("state", ""))

    # --- keys: the view -----------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self.view.move(by, len(self.curves), self.app.size.width - AXIS)
        self.draw()

    def action_first(self) -> None:
        self.view.put(1, len(self.curves))
        self.draw()

    def action_newest(self) -> None:
        self.view.at = None
        self.draw()

    def action_zoom(self, by: int) -> None:
        self.view.zoom(by, len(self.curves))
        self.draw()

    def action_whole(self) -> None:
        self.view.span = None
        self.draw()

    def action_log_scale(self) -> None:
        self.is_log = not self.is_log
        self.draw()

    def action_help(self) -> None:
        from tui.screens.help import key_lines
        from tui.screens.sheets import Pages

        self.app.push_screen(Pages("help", key_lines(LIVE_ACTIONS)))

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_leave(self) -> None:
        self.post_message(self.Leave())

    def action_detach(self) -> None:
        self.post_message(self.Detach())

    # --- keys: the run ------------------------------------------------------------------------

    def say(self, text: str, warn: bool = False) -> None:
        """A sentence above the footer, until the next key for the run."""
        self.said = (text, warn)
        self.draw()

    def is_refused(self, changes: bool = True) -> bool:
        """Whether the run takes no such key; then it is told why."""
        self.say("")
        if changes and self.read_only:
            self.say("attached with --read-only: attach without it to pause, stop or change it")
        elif self.control is None:
            self.say("the run has no process here: what it did can be read, and nothing be changed")
        elif self.state in ENDED:
            self.say(f"the run has {self.state}")
        return self.said != ("", False)

    def request(self, method: str, **params: Any) -> None:
        self.run_worker(self.ask(method, **params))
        self.draw()

    def action_pause(self) -> None:
        if not self.is_refused():
            self.request("resume" if self.state == PAUSED else "pause")

    def action_walk(self) -> None:
        if self.is_refused(changes=False):
            return
        if self.state == PAUSED:
            self.post_message(self.OpenWalk())
        else:
            self.say("only a paused step can be walked: space pauses the run")

    def action_break_when(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self.request("breakpoints", add=text)

        if not self.is_refused():
            prompt = Prompt("pause when", "such as loss > 5 or grad_norm > 10", answered)
            self.typing.ask(prompt, self.draw)

    def action_breaks(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(text: str | None) -> None:
            now = (self.status or {}).get("breakpoints", [])
            if text in now:  # another screen may have removed it
                self.request("breakpoints", remove=now.index(text))

        if self.is_refused():
            return
        found: list[str] = (self.status or {}).get("breakpoints", [])
        if not found:
            self.say("there are no breakpoints: b sets one")
            return
        choices = [(text, shown(text, self.glyphs.ascii)) for text in found]
        self.app.push_screen(Choice("breakpoints", choices, found[0], verb="remove"), chosen)

    def action_stop(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(answer: str | None) -> None:
            if answer == "stop":
                self.request("stop")

        if not self.is_refused():
            choices = [("stay", "let it go on"), ("stop", "stop the run")]
            self.app.push_screen(Choice("stop this run?", choices, "stay", verb="choose"), chosen)

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
        foot = self.typing.line(self.glyphs, width) or footer(width)
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


# --- the parts of the page --------------------------------------------------------------------


def top_line(
    name: str,
    curves: Curves,
    status: dict[str, Any],
    steps: Any,
    reading: str,
    width: int,
    glyphs: Glyphs,
) -> Text:
    """Which run, how far it is, how it stands; and the newest loss."""
    last = curves.last
    step = step_of(last) or step_of(status)
    of = f" of {steps:,}" if isinstance(steps, int) else ""
    parts = [f"step {step:,}{of}", str(status.get("state", "")), reading]
    dot = " - " if glyphs.ascii else " · "
    text = "".join(dot + part for part in parts if part)
    right = f"loss {written(number_of(last.get('loss')))}" if last else ""
    room = width - len("run ") - len(text) - len(right) - GAP
    name = cut(name, room, glyphs)
    gap = " " * (room - cell_len(name) + GAP)
    return line(("run ", HERE), (name + text, STRONG), gap, (right, STRONG))


def why_lines(status: dict[str, Any], width: int, glyphs: Glyphs) -> list[Text]:
    """Why it is paused, or ended as it did."""
    why = status.get("why")
    if why is None or status.get("state") not in (PAUSED, FAILED, DIED):
        return []
    return wrapped(shown(str(why), glyphs.ascii), width, WARN, SAID)


def figure_lines(
    curves: Curves, status: dict[str, Any], steps: Any, width: int, glyphs: Glyphs
) -> list[Text]:
    """What the run does now, in numbers."""
    last, values = curves.last, curves.val_loss[1]
    rate = steps_a_second(curves.recent)
    targets = middle([number_of(row.get("targets_per_second")) for row in curves.recent])
    remaining = None
    if rate and status.get("state") == RUNNING and isinstance(steps, int):
        remaining = left(max(0, steps - step_of(last)) / rate)
    device = shown(str(status.get("device") or NOT_KNOWN), glyphs.ascii)
    rows = (
        ("learning rate", figure(last.get("lr"), "{:.4g}"), "steps a second", speed(rate)),
        ("gradient norm", figure(last.get("grad_norm")), "targets a second", speed(targets)),
        ("validation", figure(values[-1] if values else None), "time left", remaining or NOT_KNOWN),
    )
    machine = (
        ("device", device),
        ("memory", size_of(status.get("memory"))),
        ("screens", str(status.get("screens") or NOT_KNOWN)),
    )
    lines = []
    for (a, first, b, second), (c, third) in zip(rows, machine, strict=True):
        text = line((f"{a:<14}", DIM), f"{first:>10}", (f"    {b:<17}", DIM), f"{second:>10}")
        text.append(f"    {c:<9}", DIM)
        lines.append(line(text, cut(third, width - text.cell_len, glyphs)))
    return lines


def footer(width: int) -> Text:
    """The keys, as many as there is room for."""
    pairs = brief(LIVE_ACTIONS)
    for action in (action for action in LIVE_ACTIONS if action.wide):
        if sum(len(key) + len(word) + 3 for key, word in pairs) - 2 > width:
            pairs.remove((action.shown.split()[0], action.brief))
    parts: list[Any] = []
    for key, word in pairs:
        parts += [(key, HERE), (f" {word}  ", DIM)]
    return line(*parts)


def ratio_lines(ratios: dict[str, Any] | None, width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """How far parameters moved, as a share of their size: the largest first."""
    if not ratios:
        return []
    rows = [(shown(str(name), glyphs.ascii), number_of(ratio)) for name, ratio in ratios["rows"]]
    rows.sort(key=lambda row: row[1] if row[1] == row[1] else math.inf, reverse=True)
    lines = [line(("UPDATE RATIOS", STRONG), (f"  of step {ratios['step']:,}", DIM))]
    for name, ratio in rows[: room - 1]:
        text = cut_within(name, width - RATIO, glyphs)
        gap = " " * (width - RATIO - cell_len(text))
        lines.append(line(text + gap + written(ratio).rjust(RATIO)))
    return lines


def sample_lines(sample: dict[str, Any], width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """What the model generated last, as much of it as there is room for."""
    if not sample:
        return []
    of = f"  of step {step_of(sample):,}"
    prompt, text = (str(sample.get(key, "")) for key in ("prompt", "text"))
    told = [
        *wrapped(shown(prompt, glyphs.ascii), width, DIM),
        *wrapped(shown(text, glyphs.ascii), width),
    ]
    lines = [line(("SAMPLE", STRONG), (of, DIM)), *told]
    return [*lines[: room - 1], line((glyphs.dots, DIM))] if len(lines) > room else lines


def log_lines(log: list[str], width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """The end of what the process said."""
    if not log or room < 2:
        return []
    return [line(("LOG", STRONG)), *(line(cut(text, width, glyphs)) for text in log[1 - room :])]


def beside(left_side: list[Text], right: list[Text], at: int) -> list[Text]:
    """Lines next to each other, those at the right from a column on."""
    lines = []
    for y in range(max(len(left_side), len(right))):
        text = left_side[y] if y < len(left_side) else line()
        more = right[y] if y < len(right) else line()
        lines.append(line(text, " " * (at - text.cell_len), more))
    return lines


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """The text in at most so many cells; where it is cut, it says so."""
    if cell_len(text) <= width:
        return text
    return next(iter(chop_cells(text, max(1, width - len(glyphs.dots)))), "") + glyphs.dots


def cut_within(name: str, width: int, glyphs: Glyphs) -> str:
    """A name in at most so many cells: where it is too long, its middle is left out."""
    if cell_len(name) <= width:
        return name
    begins = cut(name, width // 2, glyphs)
    for at in range(len(name) // 2, len(name)):
        if cell_len(begins + name[at:]) <= width:
            return begins + name[at:]
    return begins


def step_of(fields: dict[str, Any]) -> int:
    """The step of a line or of a run's process; 0 where there is none."""
    step = fields.get("step")
    return step if isinstance(step, int) else 0


def middle(values: list[float]) -> float | None:
    """The median of the finite values."""
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else None


def steps_a_second(recent: list[dict[str, Any]]) -> float | None:
    """How fast the last steps were; a pause between them does not count."""
    times = [number_of(row.get("time")) for row in recent]
    took = middle([b - a for a, b in pairwise(times) if b > a])
    return 1 / took if took else None


def speed(rate: float | None) -> str:
    if rate is None:
        return NOT_KNOWN
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def figure(value: Any, how: str = "") -> str:
    """A number of the metrics, as it stands there."""
    if value is None:
        return NOT_KNOWN
    number = number_of(value)
    return how.format(number) if how and math.isfinite(number) else written(number)


def size_of(size: Any) -> str:
    """Bytes, in words."""
    if not isinstance(size, (int, float)):
        return NOT_KNOWN
    for unit, power in (("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size / 1000:.0f} kB"


def bytes_of(path: Path) -> bytes:
    """What stands in a small file; nothing where it is not there."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
