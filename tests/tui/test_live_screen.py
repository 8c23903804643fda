"""A run on the screen: what is shown is what stands in its files and what its process says."""

from __future__ import annotations

import asyncio
import json
import math
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events, on
from textual.app import App

from engine.errors import TensorstepError
from engine.runs.curves import Curves, steps_a_column
from engine.service.connection import WorkerDied
from tests.tui.screen import all_is_quiet, key_event
from tui.glyphs import ASCII, UNICODE, Glyphs
from tui.prompt import Typing
from tui.screens.live import LiveScreen
from tui.widgets.curve import AXIS
from tui.widgets.run_curve import View, brief, loss_curve, series_curve

SMALL, LARGE = (80, 24), (200, 50)
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "200x50"])
BEGUN = 1764495000.0
STATUS = {
    "state": "running",
    "why": None,
    "step": 300,
    "steps": 6000,
    "device": "cpu",
    "memory": 1_234_000_000,
    "screens": 1,
    "moves": 0,
    "breakpoints": [],
    "ratios": {
        "step": 300,
        "rows": [[f"blocks.{i}.attention.W_Q.weight", 0.001 * i] for i in range(8)],
    },
}


def loss_of(step: int) -> float:
    return 3 + 5 / math.sqrt(step) + 0.01 * (step * 37 % 11)


def row_of(step: int, **more: Any) -> dict[str, Any]:
    """A line of the metrics: four steps a second, a validation every 75."""
    row = {
        "step": step,
        "loss": loss_of(step),
        "lr": 0.003,
        "grad_norm": 0.5 + step / 1000,
        "targets_per_second": 5000.0 + step % 2,
        "time": BEGUN + step / 4,
    }
    if step % 75 == 0:
        row["val_loss"] = loss_of(step) + 0.125
    return {**row, **more}


def write(directory: Path, rows: list[dict[str, Any]], mode: str = "w") -> None:
    with (directory / "metrics.jsonl").open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run of 300 steps so far."""
    (tmp_path / "config.json").write_text(json.dumps({"kind": "training", "steps": 6000}))
    write(tmp_path, [row_of(step) for step in range(1, 301)])
    sample = {"step": 300, "prompt": "<BOS> once", "text": "upon a time there was a red ball"}
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    (tmp_path / "worker.log").write_text("".join(f"line {i} of the log\n" for i in range(40)))
    return tmp_path


class Process:
    """A run's process, as far as a screen knows it."""

    def __init__(self, **more: Any):
        self.status: dict[str, Any] = {**STATUS, **more}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fails: TensorstepError | None = None
        self.gate: asyncio.Event | None = None

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        if method != "status":
            self.asked.append((method, params))
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        states = {"pause": "paused", "resume": "running", "stop": "stopping"}
        self.status["state"] = states.get(method, self.status["state"])
        if method == "breakpoints":
            found = list(self.status["breakpoints"])
            self.status["breakpoints"] = found
            found.append(params["add"]) if "add" in params else found.pop(params["remove"])
        return dict(self.status)


class Host(App[None]):
    """As much of an app as a live screen needs."""

    CSS_PATH = str(Path(__file__).parents[2] / "tui" / "theme.tcss")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, live: LiveScreen):
        super().__init__(ansi_color=True)
        self.live = live
        self.rung = 0
        self.heard: list[str] = []

    def on_mount(self) -> None:
        self.push_screen(self.live)

    def on_key(self, event: events.Key) -> None:
        if self.live.typing.take(event.key, event.character):
            event.prevent_default().stop()

    def bell(self) -> None:
        self.rung += 1

    @on(LiveScreen.OpenWalk)
    @on(LiveScreen.Detach)
    @on(LiveScreen.Leave)
    def hear(self, message: Any) -> None:
        self.heard.append(type(message).__name__)


class Seen:
    """A live screen under test; time stands still, so it pulls only when told to."""

    def __init__(self, app: Host):
        self.app = app
        self.live = app.live

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            while True:
                await all_is_quiet()
                top = self.app.screen
                drawn = not (top._layout_required or top._dirty_widgets or top._repaint_required)
                top._on_timer_update()
                if drawn:
                    break
        strips = self.app.screen._compositor.render_strips()
        self.lines = [strip.text for strip in strips]
        width, height = self.app.size
        assert len(self.lines) == height
        assert [cell_len(text) for text in self.lines] == [width] * height

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.app.post_message(key_event(key))
            await self.settle()

    async def pull(self) -> None:
        await self.live.tick()
        await self.settle()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, word: str) -> str:
        """The only line that has this in it."""
        (found,) = [text.rstrip() for text in self.lines if word in text]
        return found


@asynccontextmanager
async def opened(
    run: Path,
    control: Process | None,
    size: tuple[int, int] = SMALL,
    glyphs: Glyphs = UNICODE,
    read_only: bool = False,
    name: str = "lily",
) -> AsyncIterator[Seen]:
    live = LiveScreen(run, name, glyphs, control, read_only, Typing())
    live.EVERY = 3600  # type: ignore[misc]
    app = Host(live)
    async with app.run_test(size=size):
        seen = Seen(app)
        await seen.settle()
        yield seen


# --- what is shown ----------------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
async def test_what_stands_in_the_files_is_shown(run: Path, size: tuple[int, int], glyphs: Glyphs):
    async with opened(run, Process(), size, glyphs) as seen:
        dot = "-" if glyphs.ascii else "·"
        top = seen.lines[0]
        assert top.startswith(f"run lily {dot} step 300 of 6,000 {dot} running ")
        assert top.endswith(f" loss {loss_of(300):.4f}")
        assert f"at 300: loss {loss_of(300):.4f}  smoothed " in seen.text
        assert f"validation {loss_of(300) + 0.125:.4f} (300)" in seen.text
        words = seen.line("learning rate ").split()
        assert " ".join(words) == "learning rate 0.003 steps a second 4 device cpu"
        words = seen.line("gradient norm ").split()
        assert " ".join(words) == "gradient norm 0.8000 targets a second 5,000 memory 1.2 GB"
        assert " ".join(seen.line("time left").split()[2:]) == "time left 24 min screens 1"
        for i in range(3, 8):  # the five largest
            assert f"{0.001 * i:.4f}" in seen.line(f"blocks.{i}.")
        assert ("blocks.0." in seen.text) == (size == LARGE)
        assert "<BOS> once" in seen.text
        assert "upon a time there was a red ball" in seen.text
        assert seen.line("line 39 of the log")
        assert "q quit" in seen.lines[-1]
        assert not glyphs.ascii or seen.text.isascii()
        assert ("LEARNING RATE" in seen.text) == (size == LARGE)


async def test_it_follows_the_files(run: Path):
    async with opened(run, Process()) as seen:
        write(run, [row_of(step) for step in range(301, 400)], "a")
        with (run / "worker.log").open("a") as log:
            log.write("a new line\nhalf a li")
        with (run / "samples.jsonl").open("a") as samples:
            samples.write(json.dumps({"step": 399, "prompt": "", "text": "a cat"}) + "\n{")
        assert "step 300" in seen.lines[0]
        await seen.pull()
        assert "step 399 of 6,000" in seen.lines[0]
        assert seen.lines[0].endswith(f"loss {loss_of(399):.4f}")
        assert f"at 399: loss {loss_of(399):.4f}" in seen.text
        assert seen.line("a new line")
        assert "half" not in seen.text
        assert "SAMPLE  of step 399" in seen.text
        assert "a cat" in seen.text


async def test_only_what_changed_is_drawn(run: Path, monkeypatch: pytest.MonkeyPatch):
    async with opened(run, Process()) as seen:
        drawn: list[Any] = []
        monkeypatch.setattr(seen.live.shown, "refresh", lambda *regions: drawn.extend(regions))
        await seen.live.tick()
        assert drawn == []
        with (run / "worker.log").open("a") as log:
            log.write("a new line\n")
        await seen.live.tick()
        assert [region.y for region in drawn] == [20, 21, 22][-len(drawn) :]


async def test_a_run_that_has_not_begun(tmp_path: Path):
    async with opened(tmp_path, Process(ratios=None, step=0)) as seen:
        assert seen.lines[0].startswith("run lily · step 0 · running")
        assert "none yet: the first comes with step 1" in seen.text
        for key in ("left", "right", "home", "end", "plus", "minus", "0", "l"):
            await seen.press(key)
        write(tmp_path, [row_of(1)])
        await seen.pull()
        assert seen.lines[0].endswith(f"loss {loss_of(1):.4f}")
        assert f"at 1: loss {loss_of(1):.4f}" in seen.text


async def test_what_a_watched_loop_does_not_know(run: Path):
    unknown = {"lr": None, "grad_norm": None, "targets_per_second": None}
    write(run, [row_of(step, **unknown) for step in range(1, 301)])
    (run / "config.json").write_text(json.dumps({"kind": "watched", "steps": None}))
    async with opened(run, Process(steps=None), LARGE) as seen:
        assert " step 300 · running" in seen.lines[0]
        assert seen.line("learning rate ").split()[:3] == ["learning", "rate", "-"]
        assert seen.line("gradient norm ").split()[:3] == ["gradient", "norm", "-"]
        assert seen.line("time left").split()[4] == "-"
        assert seen.text.count("not known") == 2


async def test_lines_that_are_damaged(run: Path):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": "x", "loss": [1], "time": "yesterday"}\n\x00\x00\n')
    (run / "samples.jsonl").write_text('{"step": null, "text": 3}\n')
    (run / "config.json").write_text("{")
    (run / "worker.log").write_bytes(b"caf\xe9\n\n")
    async with opened(run, Process(), LARGE) as seen:
        assert "step 300 · running" in seen.lines[0]
        assert "at 302: loss nan" in seen.text
        assert "! nan, inf" in seen.lines[1]
        assert seen.line("caf\ufffd")


async def test_a_loss_that_is_not_finite(run: Path):
    write(run, [row_of(301, loss="nan", grad_norm="inf")], "a")
    async with opened(run, Process()) as seen:
        assert seen.lines[0].endswith("loss nan")
        assert "! nan, inf" in seen.lines[1]
        assert seen.lines[2].rstrip().endswith("!")
        assert "at 301: loss nan" in seen.text
        assert seen.line("gradient norm ").split()[2] == "inf"


HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] [/] \u202e 漢字 \x07 \t " + "long" * 60


@SIZES
async def test_hostile_text(run: Path, size: tuple[int, int]):
    """In the log, a sample, a name, a reason, a parameter's name, a device."""
    (run / "worker.log").write_text(HOSTILE + "\n")
    sample = {"step": 3, "prompt": HOSTILE, "text": HOSTILE}
    (run / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    ratios = {"step": 3, "rows": [[HOSTILE, "nan"], [HOSTILE[::-1], 1.0]]}
    process = Process(ratios=ratios, why=HOSTILE, state="paused", device=HOSTILE)
    async with opened(run, process, size, name=HOSTILE) as seen:
        assert "\\e[31mred\\e[0m [bold]x[/bold] [/] \\u{202e} 漢字 \\x07 \\t" in seen.text
        assert all(text.isprintable() for text in seen.lines)
        assert seen.lines[0].startswith("run \\e[31mred")
        assert seen.lines[0].endswith(f"loss {loss_of(300):.4f}")
        assert seen.line("UPDATE RATIOS")
        process.fails = TensorstepError(HOSTILE)
        await seen.press("space")
        assert "\\e[31mred" in seen.lines[-4]


@pytest.mark.parametrize("size", [(80, 24), (81, 25), (80, 50), (110, 34), (120, 24), (300, 90)])
async def test_every_size(run: Path, size: tuple[int, int]):
    """Every line fills the screen exactly (see `settle`), and all parts are there."""
    async with opened(run, Process(why="loss > 3 " * 40, state="paused"), size) as seen:
        for word in ("LOSS", "learning rate ", "UPDATE RATIOS", "SAMPLE", "q quit", "loss > 3"):
            assert word in seen.text


async def test_a_terminal_that_is_too_small(run: Path):
    async with opened(run, Process(), (60, 20)) as seen:
        assert seen.lines[0].rstrip() == "tensorstep needs 80x24, this is 60x20: enlarge it"


# --- keys -------------------------------------------------------------------------------------


async def test_the_cursor_reads_the_step(run: Path):
    write(run, [row_of(step) for step in range(1, 61)])
    async with opened(run, Process()) as seen:
        for key, step in (("left", 59), ("left", 58), ("right", 59), ("home", 1), ("left", 1)):
            await seen.press(key)
            assert f"at {step}: loss {loss_of(step):.4f}" in seen.text
        await seen.press("right")
        write(run, [row_of(step) for step in range(61, 71)], "a")
        await seen.pull()
        assert f"at 2: loss {loss_of(2):.4f}" in seen.text  # it stays
        await seen.press("end")
        write(run, [row_of(71)], "a")
        await seen.pull()
        assert f"at 71: loss {loss_of(71):.4f}" in seen.text  # it follows


async def test_zoom(run: Path):
    async with opened(run, Process()) as seen:
        assert "steps 1 to 300" in seen.lines[1]
        await seen.press("plus")
        assert "steps 151 to 300" in seen.lines[1]
        await seen.press("home")
        assert "steps 1 to 150" in seen.lines[1]
        await seen.press("minus")
        assert "steps 1 to 300" in seen.lines[1]
        await seen.press(*["plus"] * 9)
        assert "steps 1 to 8" in seen.lines[1]
        assert sum(text.count("•") for text in seen.lines[2:8]) <= 8
        await seen.press("0")
        assert "steps 1 to 300" in seen.lines[1]


async def test_log_scale(run: Path):
    """Its labels are losses: the lowest, the highest, and their geometric middle."""
    async with opened(run, Process()) as seen:
        labels = [text[: AXIS - 1].strip() for text in seen.lines[2:9]]
        low, high = min(map(loss_of, range(1, 301))), max(map(loss_of, range(1, 301)))
        assert labels == [f"{high:.4f}", "", "", f"{(low + high) / 2:.4f}", "", "", f"{low:.4f}"]
        await seen.press("l")
        labels = [text[: AXIS - 1].strip() for text in seen.lines[2:9]]
        middle = math.sqrt(low * high)
        assert labels == [f"{high:.4f}", "", "", f"{middle:.4f}", "", "", f"{low:.4f}"]
        assert seen.lines[1].startswith("LOSS log ")
        await seen.press("l")
        assert "log" not in seen.lines[1]


async def test_pausing_and_going_on(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        await seen.press("space")
        assert process.asked == [("pause", {})]
        assert " paused " in seen.lines[0]
        assert seen.app.rung == 0  # you did it yourself
        await seen.press("space")
        assert [method for method, _ in process.asked] == ["pause", "resume"]
        assert " running " in seen.lines[0]


async def test_it_rings_once_when_a_breakpoint_pauses(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        process.status |= {"state": "paused", "why": "loss > 3 at step 300"}
        for _ in range(3):
            await seen.pull()
            assert seen.lines[1].rstrip() == "loss > 3 at step 300"
            assert seen.app.rung == 1
        process.status |= {"step": 301, "why": "loss > 3 at step 301"}  # it went on and paused
        await seen.pull()
        assert seen.app.rung == 2
        process.status |= {"state": "running", "why": None}
        await seen.pull()
        assert "loss > 3" not in seen.text
        assert seen.app.rung == 2


async def test_a_run_that_was_paused_before_does_not_ring(run: Path):
    async with opened(run, Process(state="paused", why="loss > 3 at step 300")) as seen:
        await seen.pull()
        assert "loss > 3 at step 300" in seen.text
        assert seen.app.rung == 0


async def test_breakpoints(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        await seen.press("B")
        assert "there are no breakpoints: b sets one" in seen.lines[-2]
        await seen.press("b")
        assert seen.lines[-1].startswith("pause when ")
        await seen.press(*"loss > 5".replace(" ", ""), "enter")
        await seen.press("b", *"lr<1", "enter")
        assert process.asked == [
            ("breakpoints", {"add": "loss>5"}),
            ("breakpoints", {"add": "lr<1"}),
        ]
        await seen.press("b", "q", "escape")
        assert seen.app.heard == []
        await seen.press("B")
        assert "enter: remove" in seen.text
        await seen.press("down", "enter")
        assert process.asked[-1] == ("breakpoints", {"remove": 1})
        assert process.status["breakpoints"] == ["loss>5"]


async def test_stopping_asks(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        await seen.press("s", "escape")
        await seen.press("s", "enter")
        assert process.asked == []
        await seen.press("s", "down", "enter")
        assert process.asked == [("stop", {})]
        assert " stopping " in seen.lines[0]


async def test_the_map_is_of_a_paused_step(run: Path):
    async with opened(run, Process()) as seen:
        await seen.press("enter")
        assert "only a paused step can be walked" in seen.lines[-2]
        await seen.press("space", "m", "enter")
        assert seen.app.heard == ["OpenWalk", "OpenWalk"]
        await seen.press("D", "q", "ctrl+c")
        assert seen.app.heard[2:] == ["Detach", "Leave", "Leave"]


async def test_help(run: Path):
    async with opened(run, Process()) as seen:
        await seen.press("?")
        assert "a breakpoint: pause when it holds" in seen.text
        await seen.press("escape")
        assert seen.app.screen is seen.live


async def test_read_only(run: Path):
    process = Process(breakpoints=["loss > 5"], state="paused")
    async with opened(run, process, read_only=True) as seen:
        for key in ("space", "b", "B", "s"):
            await seen.press(key)
            assert "attached with --read-only" in seen.lines[-2]
            assert seen.app.screen is seen.live
        assert not seen.live.typing.open
        assert process.asked == []
        await seen.press("enter")
        assert seen.app.heard == ["OpenWalk"]
        assert "--read-only" not in seen.text


# --- mistakes and ends ------------------------------------------------------------------------


async def test_a_mistake_is_told(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        process.fails = TensorstepError("there is no metric los: name one of loss, lr")
        await seen.press("b", *"los>1", "enter")
        assert seen.lines[-2].rstrip() == "there is no metric los: name one of loss, lr"
        process.fails = None
        await seen.press("space")
        assert "los:" not in seen.text


async def test_a_process_that_dies(run: Path):
    """Told once; the files are read on."""
    process = Process()
    async with opened(run, process) as seen:
        process.fails = WorkerDied("the worker died, killed by SIGKILL; it said nothing")
        write(run, [row_of(301)], "a")
        await seen.pull()
        assert "killed by SIGKILL" in seen.lines[-2]
        assert "step 301 of 6,000 · died" in seen.lines[0]
        await seen.press("space")
        assert "killed by SIGKILL" not in seen.text
        assert "the run has no process here" in seen.lines[-2]
        await seen.pull()
        assert "killed by SIGKILL" not in seen.text


@pytest.mark.parametrize("state", ["finished", "failed", "running"])
async def test_a_run_without_a_process(run: Path, state: str):
    left = {"state": state, "why": "out of memory" if state == "failed" else None}
    (run / "worker.json").write_text(json.dumps(left))
    async with opened(run, None) as seen:
        told = "died" if state == "running" else state
        assert f" step 300 of 6,000 · {told} " in seen.lines[0]
        assert ("out of memory" in seen.lines[1]) == (state == "failed")
        assert seen.line("time left").split()[4] == "-"
        await seen.press("enter")
        assert "the run has no process here" in seen.lines[-2]


async def test_a_run_on_another_host(run: Path):
    """What is in its files is followed."""
    (run / "worker.json").write_text(json.dumps({"state": "running", "host": "not.this.one"}))
    async with opened(run, None) as seen:
        assert " elsewhere " in seen.lines[0]
        (run / "worker.json").write_text(json.dumps({"state": "stopped", "host": "not.this.one"}))
        write(run, [row_of(301)], "a")
        await seen.pull()
        assert "step 301 of 6,000 · stopped " in seen.lines[0]


async def test_a_run_that_ends_while_it_is_seen(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        (run / "worker.json").write_text(json.dumps({"state": "finished", "why": None}))
        process.fails = WorkerDied("the worker died, exit code 0; it said nothing")
        await seen.pull()
        assert seen.lines[-2].rstrip() == "the run has finished"
        assert " finished " in seen.lines[0]


async def test_an_answer_that_takes_long_holds_up_nothing(run: Path):
    process = Process()
    async with opened(run, process) as seen:
        process.gate = asyncio.Event()
        waiting = asyncio.create_task(seen.live.tick())
        await seen.settle()
        write(run, [row_of(301)], "a")
        await seen.pull()  # not held up by the one that waits
        assert "step 301" in seen.lines[0]
        await seen.press("home")
        assert "at 1: loss 8" in seen.text
        process.gate.set()
        await waiting


async def test_of_a_long_file_the_last_line_is_known_at_once(run: Path):
    write(run, [row_of(step) for step in range(1, 20_001)])
    async with opened(run, None) as seen:
        live = seen.live
        live.curves = Curves(run / "metrics.jsonl")
        live._reading = True  # as while it is read
        live.read_files()
        live.draw()
        await seen.settle()
        assert "step 20,000 of 6,000 · died · reading " in seen.lines[0]
        assert seen.lines[0].endswith(f"loss {loss_of(20_000):.4f}")
        assert len(live.curves) < 20_000
        live._reading = False
        await seen.pull()
        assert "steps 1 to 20,000" in seen.lines[1]


# --- the curve --------------------------------------------------------------------------------


def read(path: Path, rows: list[dict[str, Any]]) -> Curves:
    write(path, rows)
    curves = Curves(path / "metrics.jsonl")
    assert curves.read(None)
    return curves


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("log", [False, True])
def test_a_spike_of_one_step_is_seen(tmp_path: Path, glyphs: Glyphs, log: bool):
    rows = [row_of(step, loss=500.0 if step == 7777 else 3.0) for step in range(1, 20_001)]
    curves = read(tmp_path, rows)
    lines = loss_curve(curves, 1, 20_000, 80, 9, 1, log, glyphs)
    assert lines[1].plain.startswith("500.0000".rjust(8))
    column = (7777 - 1) // 512  # 71 columns of 256 steps would not reach
    assert [text.plain[AXIS + column] for text in lines[1:6]] == [glyphs.band] * 5
    assert lines[1].plain.count(glyphs.band) == 1  # nothing but the spike


def test_marks_are_told_apart_without_colour(tmp_path: Path):
    rows = [row_of(step, loss=8.0 - step * 0.1) for step in range(1, 41)]
    rows[19]["val_loss"] = 9.5
    rows[29]["loss"] = "inf"
    curves = read(tmp_path, rows)
    lines = [text.plain for text in loss_curve(curves, 1, 40, 80, 12, 10, False, UNICODE)]
    assert lines[0].startswith("LOSS  • loss  ─ smoothed  o validation  ! nan, inf")
    assert lines[1][AXIS + 19] == "o"
    assert lines[1][AXIS + 29] == "!"
    plot = "".join(lines[1:-1])
    assert {"•", "─"} <= set(plot)
    assert lines[-1].strip().startswith("at 10: loss 7.0000  smoothed 7.")


values = st.floats() | st.sampled_from([0.0, 3.0, 1e308, -1e308, 5e-324, math.nan, math.inf])


@given(st.lists(values, min_size=1, max_size=200), st.booleans(), st.integers(1, 30))
def test_any_numbers_can_be_drawn(losses: list[float], log: bool, height: int):
    curves = Curves(Path("nowhere"))
    for name in ("loss", "grad_norm", "lr", "smoothed"):
        getattr(curves, name).values.extend(array("d", losses))
    curves.val_loss = ([1], [losses[0]])
    for lines in (
        loss_curve(curves, 1, len(losses), 80, height, 1, log, ASCII),
        series_curve(curves, "grad_norm", 1, len(losses), 80, height, 1, log, ASCII),
    ):
        assert all(text.cell_len <= 80 and text.plain.isascii() for text in lines)
        assert len(lines) <= max(3, height)


@given(st.floats(allow_nan=False))
def test_numbers_of_a_scale(value: float):
    text = brief(value)
    assert len(text) <= AXIS - 1
    if math.isfinite(value):
        assert float(text) == pytest.approx(value, rel=0.5, abs=1e-2) or abs(value) > 1e307


moves = st.sampled_from(["left", "right", "in", "out", "first", "last", "grow"])


@given(st.lists(moves, max_size=40), st.integers(1, 2000), st.integers(1, 100))
def test_the_cursor_is_always_seen(keys: list[str], count: int, columns: int):
    view = View()
    for key in keys:
        if key in ("left", "right"):
            view.move(1 if key == "right" else -1, count, columns)
        elif key in ("in", "out"):
            view.zoom(1 if key == "in" else -1, count)
        elif key == "grow":
            count += 7
        else:
            view.put(1 if key == "first" else count, count)
        first, last = view.steps(count)
        assert 1 <= first <= view.cursor(count) <= last <= count
        assert last - first + 1 == min(count, view.span or count)


@given(st.integers(1, 3000), st.integers(1, 90))
def test_columns_are_walked_one_by_one(count: int, columns: int):
    view, steps = View(), []
    each = steps_a_column(1, count, columns)
    drawn = -(-count // each)
    for _ in range(drawn):
        steps.append(view.cursor(count))
        view.move(-1, count, columns)
    assert steps == [count, *(each * column for column in range(drawn - 1, 0, -1))]
