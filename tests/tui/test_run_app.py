"""The screen of a run: what it shows live and walked, what it asks when it is left.

The training is a real one, in a thread of this process, asked through its socket; it stands still
where a breakpoint tells it to."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tui.run_app
from engine.runs.directory import ALIVE, RunDirectory
from engine.service import run_client
from engine.service.run_client import RunClient
from engine.service.run_options import RunOptions
from engine.service.run_worker import RunWorker
from tests.tui.screen import LARGE, SMALL, Screen
from tui.glyphs import UNICODE, Glyphs
from tui.run_app import RunScreen
from tui.screens.live import LiveScreen

PATIENCE = 10.0  # seconds until a test that waits has failed
CSS = str(Path(tui.run_app.__file__).with_name("theme.tcss"))
TINY = {
    "corpus": "storybook:40",
    "context": 8,
    "batch": 4,
    "width": 8,
    "hidden": 16,
}
BREAK = "step == 3"
FIRST = "batch.X"  # the first state of a step


class Training:
    """A run that is trained in a thread of this process."""

    def __init__(self, directory: Path, steps: int = 1_000_000, breaks: tuple[str, ...] = (BREAK,)):
        self.run = RunDirectory(directory)
        options = RunOptions.by_protocol(
            dict(TINY), steps=steps, breaks=breaks, eval_every=0, sample_every=0, device="cpu"
        )
        config = {"kind": "training", "name": "ada", "created": 0.0, "steps": steps}
        self.run.create({**config, "run": options.to_json()})
        self.worker = RunWorker(self.run)
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()
        if breaks:
            self.wait_until("paused")

    def _train(self) -> None:
        self.worker.control.end(self.worker._train())

    @property
    def state(self) -> str:
        """As it is told, and written."""
        worker = self.run.read_worker()
        return worker.state if worker is not None else ""

    def wait_until(self, *states: str) -> None:
        until = time.monotonic() + PATIENCE
        while self.state not in states:
            assert time.monotonic() < until, f"it is {self.state}"
            time.sleep(0.005)

    def end(self) -> None:
        """Stop it, and let go of its directory."""
        if not self.thread.is_alive():
            return
        self.worker.control.stop()
        self.thread.join(PATIENCE)
        self.worker.close()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    """A run that stands still after step 3."""
    made = Training(tmp_path / "ada")
    yield made
    made.end()


class RingingScreen(RunScreen, inherit_bindings=False):
    """Counts how often it rings."""

    CSS_PATH = CSS
    BINDINGS = RunScreen.BINDINGS
    rung = 0

    def bell(self) -> None:
        self.rung += 1


class Seen(Screen):
    """A run's screen under test; its clocks stand still: what a clock does is done by `tick`."""

    app: RingingScreen

    @property
    def rung(self) -> int:
        return self.app.rung

    async def until(self, wanted: str | Callable[[], object]) -> None:
        """Until a text is seen, or something is so: the run has answered."""
        until = time.monotonic() + PATIENCE
        while True:
            await self.settle()
            if wanted in self.text if isinstance(wanted, str) else wanted():
                return
            assert time.monotonic() < until, f"waited in vain for {wanted!r} on\n{self.text}"
            await asyncio.sleep(0.005)

    async def press(self, *keys: str, wanted: str = "") -> None:
        """Type keys; wait for what is answered to the last."""
        await super().press(*keys)
        if wanted:
            await self.until(wanted)

    async def tick(self) -> None:
        """What is done a few times a second."""
        if self.app.live is not None:
            await self.app.live.tick()
        await self.app.look_after()
        await self.settle()

    async def tick_until(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while wanted not in self.text:
                await self.tick()
                await asyncio.sleep(0.005)

    @property
    def is_live(self) -> bool:
        return isinstance(self.app.screen, LiveScreen)

    @property
    def status(self) -> dict[str, Any]:
        assert self.app.live is not None
        return self.app.live.status or {}


@asynccontextmanager
async def opened(
    run: RunDirectory,
    size: tuple[int, int] = SMALL,
    read_only: bool = False,
    glyphs: Glyphs = UNICODE,
) -> AsyncIterator[Seen]:
    app = RingingScreen(run, read_only, glyphs)
    async with app.run_test(size=size) as pilot:
        seen = Seen(app, pilot)
        if run.state() in ALIVE:
            await seen.until(lambda: seen.app.walker.ready)
            await seen.until(lambda: seen.status)
        await seen.settle()
        yield seen


class Other(RunClient):
    """Another screen of the run, without one."""

    async def walk(self, *moves: str) -> None:
        for how in moves:
            await self.ask("move", map="training", model="attention", how=how)


@asynccontextmanager
async def attached(run: RunDirectory) -> AsyncIterator[Other]:
    client = Other(run)
    await client.start()
    await client.open()
    yield client
    await client.close()


async def walked(seen: Seen) -> None:
    """From the live screen to the walk."""
    await seen.press("enter")
    await seen.until("space lets it go on")
    await seen.until(lambda: seen.pane("table") and seen.table().strip())


@pytest.fixture(autouse=True)
def no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveScreen, "EVERY", 3600)
    monkeypatch.setattr(tui.run_app, "EVERY", 3600)


def left_files(directory: Path, state: str, why: str | None = None, **more: Any) -> RunDirectory:
    """A run that has no process here, of three steps."""
    run = RunDirectory(directory)
    options = RunOptions.by_protocol(dict(TINY)).to_json()
    run.create({"kind": "training", "name": "ada", "created": 0.0, "steps": 9, "run": options})
    worker = {"host": os.uname().nodename, "pid": 1, "started": 0.0, "socket": "", "version": "0"}
    run.worker.write_text(json.dumps({**worker, "state": state, "why": why, **more}))
    row = {"lr": 0.1, "grad_norm": 1.5, "targets_per_second": 9.0}
    run.metrics.write_text(
        "".join(
            json.dumps({"step": step, "loss": 7.5 - step, **row, "time": 9.0 + step}) + "\n"
            for step in (1, 2, 3)
        )
    )
    return run


# --- live and walked --------------------------------------------------------------------------


async def test_the_step_that_comes_next_is_walked(training: Training):
    async with opened(training.run) as seen:
        assert seen.is_live
        assert seen.lines[0].startswith("run ada · step 3 of 1,000,000 · paused ")
        assert "step == 3 at step 3" in seen.lines[1]
        await walked(seen)
        await seen.until("batch.X[0,0] =")
        assert "paused: step == 3 at step 3" in seen.said
        await seen.press("n", wanted="batch.y[0] =")
        await seen.press("L")
        assert seen.is_live
        await seen.tick()
        assert seen.is_live  # though it is paused
        await walked(seen)
        assert seen.place == (4, "batch.y")  # where it was
        assert seen.app.walker.standing["loss"] is not None


async def test_a_run_that_pauses_opens_its_step(training: Training):
    async with opened(training.run) as seen:
        await seen.press("space")
        await seen.until(lambda: training.state == "running")
        await seen.tick_until(" running ")
        await seen.press("space")
        await seen.until(lambda: training.state == "paused")
        await seen.tick()
        await seen.until("space lets it go on")
        await seen.until("batch.X[0,0] =")
        assert seen.step == training.worker.run.standing()["step"] + 1


@pytest.mark.parametrize("key", ["space", "c"])
async def test_letting_it_go_on_from_the_walk(training: Training, key: str):
    async with opened(training.run) as seen:
        await walked(seen)
        await seen.press("n", "n")
        await seen.press(key)
        await seen.until(lambda: training.state == "running")
        await seen.until(lambda: seen.is_live)
        await seen.tick_until(" running ")
        assert seen.is_live


async def test_finishing_the_step(training: Training):
    async with opened(training.run) as seen:
        await walked(seen)
        await seen.press("N", "N", "f")
        await seen.until(lambda: seen.place == (5, FIRST))
        await seen.press("L")
        await seen.tick_until("step 4 of 1,000,000 · paused")  # what was walked is done, and kept
        assert len(training.run.metrics.read_text().splitlines()) == 4


async def test_a_walk_forward_and_back_by_state_stage_and_step(training: Training):
    async with opened(training.run, LARGE) as seen:
        await walked(seen)
        places = [seen.place]
        for key in ("n", "N", "N", "."):
            await seen.press(key)
            await seen.until(lambda: seen.place != places[-1])
            places.append(seen.place)
        assert [step for step, _ in places] == [4, 4, 4, 4, 5]
        await seen.press("comma")
        await seen.until(lambda: seen.step == 4)
        await seen.goto("2:loss")
        await seen.until(lambda: "2" in seen.said)
        assert seen.step == 4  # what the run did before it paused is not held


async def test_another_screen_lets_it_go_on(training: Training):
    """Each walks with a cursor of its own; then this one is live again, too."""
    async with opened(training.run) as seen, attached(training.run) as other:
        await walked(seen)
        await other.walk("forward", "forward", "forward")
        await seen.press("n", wanted="batch.y[0] =")
        assert (await other.ask("look", map="training", model="attention"))["state"]["name"] == (
            "embedding.positions"
        )
        await seen.tick()
        assert not seen.is_live  # it is paused still
        await other.ask("resume")
        await seen.tick()
        assert seen.is_live
        await seen.tick_until(" running ")


async def test_from_hit_to_hit(tmp_path: Path):
    """However soon the next one is: it rings each time, and the step that comes next is walked."""
    training = Training(tmp_path / "ada", breaks=("step > 2",))
    try:
        async with opened(training.run) as seen:
            await walked(seen)
            for step in (5, 6, 7):
                rung = seen.rung
                await seen.press("c")
                await seen.tick_until(f"step > 2 at step {step - 1}")
                await seen.until(lambda step=step: not seen.is_live and seen.step == step)
                assert seen.rung == rung + 1
    finally:
        training.end()


async def test_breakpoints_from_the_walk(training: Training):
    async with opened(training.run) as seen:
        await walked(seen)
        await seen.press("b")
        assert seen.said.startswith("pause when")
        await seen.press_at_once(*"grad_norm", ">", "1", "enter")
        await seen.until("2 breakpoints: the live screen")
        assert [each.text for each in training.worker.control.breakpoints][1] == "grad_norm>1"
        await seen.press("b")
        await seen.press_at_once(*"los", ">", "1", "enter")
        await seen.until("los")
        assert len(training.worker.control.breakpoints) == 2
        await seen.press("b")
        await seen.press("escape")
        assert "pause when" not in seen.text


async def test_keys_before_the_run_has_answered(training: Training):
    """What is not known yet is not told, and nothing else is asked for than what was meant."""
    async with opened(training.run) as seen:
        await walked(seen)
        for key in "LB":
            seen.post(key)
        await seen.settle()
        assert "there are no breakpoints" not in seen.text
        seen.post("escape")
        await seen.until(lambda: seen.is_live)
        await walked(seen)
        for key in ("L", "space"):
            seen.post(key)
        await seen.until(lambda: training.state == "running" or "not answered" in seen.text)


async def test_the_generation_map_and_other_models(training: Training):
    """Generation is with the parameters as they stand."""
    async with opened(training.run) as seen:
        await walked(seen)
        await seen.press("m", wanted="after 3 training steps")
        assert "generation map" in seen.lines[0]
        await seen.press("o")
        assert "a run has one model" in seen.said
        await seen.press("m", wanted="training map")
        await seen.until(lambda: seen.place == (4, FIRST))


async def test_help_has_the_keys_of_the_walk(training: Training):
    async with opened(training.run, (100, 90)) as seen:
        await walked(seen)
        await seen.press("?")
        for told in ("let the run go on", "the live screen of the run", "what if this cell"):
            assert told in seen.text
        await seen.press("escape")
        assert "let the run go on" not in seen.text


async def test_an_edit_of_the_paused_step(training: Training):
    """It is tried out beside the run, whose numbers stay as they are."""
    async with opened(training.run) as seen:
        await walked(seen)
        await seen.press("n", "n")
        await seen.until(lambda: seen.state == "embedding.tokens")
        before = seen.number
        await seen.press("w")
        await seen.press_at_once(*"9.5", "enter")
        await seen.until(lambda: "what if: 1 edit" in seen.lines[0] and seen.number == 9.5)
        await seen.press("u")
        await seen.until(lambda: "what if" not in seen.lines[0] and seen.number == before)


async def test_the_last_step(tmp_path: Path):
    """After it there is none to walk: the screen stays, says why, and the run can end."""
    training = Training(tmp_path / "ada", steps=3)
    try:
        async with opened(training.run) as seen:
            assert " paused " in seen.lines[0]
            await seen.press("enter")
            await seen.until("all 3 steps are done")
            assert seen.is_live
            await seen.press("space")
            await seen.until(lambda: training.state == "finished")
            await seen.tick()
            await seen.tick_until(" finished ")
    finally:
        training.end()


# --- only reading -----------------------------------------------------------------------------


async def test_read_only(training: Training):
    """It sees all there is, and makes nothing new."""
    async with opened(training.run, read_only=True) as reader, attached(training.run) as other:
        await walked(reader)
        assert reader.place == (4, FIRST)
        for key in ("n", "N", "f", "full_stop"):
            await reader.press(key, wanted="only reads")
            assert reader.place == (4, FIRST)
            await reader.press("escape")
        await other.walk("forward", "forward")
        await reader.press("n")
        await reader.until(lambda: reader.state == "batch.y")  # the other has made it
        for key in ("space", "c", "u"):
            await reader.press(key, wanted="only reads")
            await reader.press("escape")
        assert training.state == "paused"
        assert [each.text for each in training.worker.control.breakpoints] == [BREAK]
        reader.post("q")
        assert await reader.ended() == 0  # nothing to ask


# --- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("downs", "state"), [(0, "paused"), (1, "running"), (2, "stopped"), (3, "stays")]
)
@pytest.mark.parametrize("walks", [False, True], ids=["live", "walked"])
async def test_what_becomes_of_a_paused_run(
    training: Training, walks: bool, downs: int, state: str
):
    async with opened(training.run) as seen:
        if walks:
            await walked(seen)
        await seen.press("q")
        assert "quit: the run ada?" in seen.text
        choices = [line[2:].strip() for line in seen.lines if line.startswith(" │ ")]
        told = ["> leave it paused", "let it go on, and leave", "stop it: it saves first", "stay"]
        assert [each.rstrip(" │") for each in choices][2:6] == told
        await seen.press(*["down"] * downs)
        seen.post("enter")
        if state == "stays":
            await seen.settle()
            assert "quit: the run" not in seen.text
            assert training.state == "paused"
            return
        assert await seen.ended() == 0
    assert seen.app.failure is None
    training.wait_until(state)


async def test_what_becomes_of_a_run_that_goes_on(training: Training):
    training.worker.control.resume()
    async with opened(training.run) as seen:
        for key in ("q", "ctrl+c"):
            await seen.press(key)
            assert "> leave it running" in seen.text, seen.text
            assert "let it go on" not in seen.text
            await seen.press("escape")
        seen.post("D")
        assert await seen.ended() == 0
    assert training.state == "running"


async def test_detaching_from_the_walk(training: Training):
    async with opened(training.run) as seen:
        await walked(seen)
        seen.post("D")
        assert await seen.ended() == 0
    assert training.state == "paused"


# --- runs without a process -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "told"),
    [("finished", "finished"), ("stopped", "stopped"), ("failed", "failed"), ("paused", "died")],
)
async def test_a_run_that_has_ended_is_read(tmp_path: Path, state: str, told: str):
    run = left_files(tmp_path / "ada", state, "out of memory" if state == "failed" else None)
    async with opened(run) as seen:
        assert seen.lines[0].startswith(f"run ada · step 3 of 9 · {told} ")
        assert seen.lines[0].endswith("loss 4.5000")
        assert ("out of memory" in seen.lines[1]) == (state == "failed")
        for key in ("enter", "space"):
            await seen.press(key)
            assert "the run has no process here" in seen.text
        assert seen.is_live
        seen.post("q")
        assert await seen.ended() == 0  # nothing to ask
    assert seen.app.failure is None


async def test_a_loop_of_your_own_that_was_watched(tmp_path: Path):
    run = RunDirectory(tmp_path / "own")
    run.create({"kind": "watched", "name": "own", "created": 0.0, "steps": None})
    worker = {"host": os.uname().nodename, "pid": 1, "started": 0.0, "socket": "", "version": "0"}
    run.worker.write_text(json.dumps({**worker, "state": "finished", "why": None}))
    row = {"step": 1, "loss": 2.5, "lr": None, "grad_norm": None, "targets_per_second": None}
    run.metrics.write_text(json.dumps({**row, "time": 1.0}) + "\n")
    async with opened(run) as seen:
        assert seen.lines[0].startswith("run own · step 1 · finished ")
        assert "not known" in seen.text or "learning rate          -" in seen.text
        seen.post("ctrl+c")
        assert await seen.ended() == 0


async def test_a_process_that_goes_while_it_is_walked(training: Training):
    """The screen goes back to what is in the files, and says how to go on."""
    async with opened(training.run) as seen:
        await walked(seen)
        os.close(training.worker._lock)  # as when it is killed: the system lets go of the lock
        training.worker._lock = os.open(os.devnull, os.O_RDONLY)
        connection = seen.app.client._outgoing
        assert connection is not None
        connection.transport.abort()
        await seen.until(lambda: seen.is_live)
        await seen.until(" died ")
        assert "--resume" in seen.text
        await seen.press("n")
        await seen.press("enter")
        assert "the run has no process here" in seen.text
        seen.post("q")
        assert await seen.ended() == 0
    assert seen.app.failure is None


async def test_a_process_that_has_gone_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It listens no more, and its lock is held by something else."""
    run = left_files(tmp_path / "ada", "running", socket=str(tmp_path / "nobody"))
    lock = run.take()
    try:
        monkeypatch.setattr(run_client, "PATIENCE", 0.1)
        app = RingingScreen(run, False, UNICODE)
        async with app.run_test(size=SMALL) as pilot:
            seen = Seen(app, pilot)
            await seen.until("does not answer at ")
            seen.post("q")
    finally:
        os.close(lock)
