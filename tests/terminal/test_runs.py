"""A training and its screens, in real terminals: what goes on without them, and what they show."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.runs.directory import ALIVE, RunDirectory
from engine.service.run_client import RunClient
from tests.terminal.terminal import (
    COMMAND,
    CTRL_C,
    DOWN,
    ENTER,
    ESCAPE,
    KITTY,
    POINTER,
    Terminal,
    wait_until_gone,
)
from tests.terminal.test_leaving import afterwards, assert_clean
from tests.terminal.test_screen import NEVER, UNSEEN, colours
from tui.cells import written

pytestmark = pytest.mark.terminal
SMALL, LARGE = (80, 24), (120, 40)
TINY = (
    *("--corpus", "storybook:300", "--context", "8", "--batch", "16"),
    *("--width", "8", "--hidden", "16", "--eval-every", "50", "--sample-every", "50"),
)
ENDLESS = "100000000"  # steps: hours, even of so small a model
TOP = re.compile(r"^run (.+) · step ([\d,]+) of ([\d,]+) · (\w+) +loss (\S+)$")
ANSWERED = re.compile(r"screens +\d")
WALKED = "space lets it go on, L is the live screen"
PLACE = re.compile(r"· step (\d+) ·")
STOPS = DOWN + ENTER  # in the question of a run that goes on
PATIENCE = 60.0  # seconds in which torch is loaded on a machine that has much else to do
CLOCKED = ("time", "targets_per_second")
Metrics = dict[str, Any]


class Runs:
    """The runs of one home, started and looked at as a user does."""

    def __init__(self, home: Path):
        self.folder = home / "tensorstep" / "runs"
        self.env = {"XDG_STATE_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.opened: list[Terminal] = []

    # --- commands -----------------------------------------------------------------------------

    def train(self, name: str, *more: str, size: tuple[int, int] = SMALL) -> Terminal:
        """A new run, and its screen, as soon as it is trained."""
        steps = () if "--steps" in more else ("--steps", ENDLESS)
        terminal = self.terminal("train", *TINY, *steps, "--name", name, *more, size=size)
        terminal.wait_for(lambda t: TOP.match(t.lines[0]) or WALKED in t.text, PATIENCE)
        return terminal

    def attach(self, *more: str, **how: Any) -> Terminal:
        """A screen of a run that goes on, as soon as that has answered it."""
        terminal = self.terminal("attach", *more, **how)
        terminal.wait_for(lambda t: ANSWERED.search(t.text))
        return terminal

    def terminal(self, *arguments: str, **how: Any) -> Terminal:
        how["env"] = {**self.env, **how.get("env", {})}
        self.opened.append(Terminal(arguments, **{"size": SMALL, **how}))
        return self.opened[-1]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **self.env}
        return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, env=env)

    def stop(self, name: str) -> None:
        assert self.command("stop", name).returncode == 0

    # --- what is in the directory of a run ----------------------------------------------------

    def directory(self, name: str) -> RunDirectory:
        return RunDirectory(self.folder / name)

    def state(self, name: str) -> str:
        return self.directory(name).state()

    def pid(self, name: str) -> int:
        worker = self.directory(name).read_worker()
        assert worker is not None
        return worker.pid

    def metrics(self, name: str) -> list[Metrics]:
        whole = self.directory(name).metrics.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def wait_until(self, name: str, state: str) -> None:
        until = time.perf_counter() + PATIENCE
        while self.state(name) != state:
            assert time.perf_counter() < until, f"{name} is {self.state(name)}, not {state}"
            time.sleep(0.02)

    def goes_on(self, name: str, by: int = 20) -> None:
        """Until so many steps have been added. Raises AssertionError where none are."""
        first, until = last_step(self.metrics(name)), time.perf_counter() + PATIENCE
        while last_step(self.metrics(name)) < first + by:
            assert time.perf_counter() < until, f"{name} stands still at step {first}"
            time.sleep(0.02)

    def end(self) -> None:
        """Close what is open, stop what goes on; kill what does not stop."""
        for terminal in self.opened:
            for pid in () if terminal.code is not None else (terminal.pid,):
                os.kill(pid, signal.SIGKILL)  # alone: the run is a child of `train`
                terminal.wait()
            terminal.end()
        for folder in self.folder.iterdir() if self.folder.exists() else ():
            run = RunDirectory(folder)
            if run.state() in ALIVE:
                self.command("stop", folder.name)
            worker = run.read_worker()
            if worker is not None and run.is_held():
                os.kill(worker.pid, signal.SIGKILL)


def last_step(rows: list[Metrics]) -> int:
    return int(rows[-1]["step"]) if rows else 0


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def home_of_lily(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One run for all tests that leave it as it was: it takes seconds to start one."""
    made = Runs(tmp_path_factory.mktemp("lily"))
    try:
        with made.train("lily") as terminal:
            terminal.send("D")
            assert terminal.wait() == 0
        yield made
    finally:
        made.end()


@pytest.fixture
def lily(home_of_lily: Runs) -> Iterator[Runs]:
    """The run `lily`, which goes on before and after each test."""
    assert home_of_lily.state("lily") == "running"
    yield home_of_lily
    for terminal in home_of_lily.opened:
        terminal.end()
    home_of_lily.opened.clear()
    state = home_of_lily.state("lily")
    asyncio.run(let_go_on(home_of_lily.directory("lily")))
    assert state == "running"


async def let_go_on(run: RunDirectory) -> None:
    """As the next test expects it, whatever the last one has left."""
    client = RunClient(run)
    await client.start()
    try:
        while (await client.ask("status"))["breakpoints"]:
            await client.ask("breakpoints", remove=0)
        while (await client.ask("resume"))["state"] != "running":
            pass
    finally:
        await client.close()


def seen_step(terminal: Terminal) -> int:
    found = TOP.match(terminal.lines[0])
    return int(found[2].replace(",", "")) if found else 0


def later_step(terminal: Terminal, patience: float = PATIENCE) -> None:
    """Until the live screen shows a later step."""
    first = seen_step(terminal)
    terminal.wait_for(lambda t: seen_step(t) > first, patience)


def live(terminal: Terminal, state: str) -> None:
    """Until the live screen says so."""
    terminal.wait_for(lambda t: (found := TOP.match(t.lines[0])) and found[4] == state)


def walked_step(terminal: Terminal) -> int:
    """The step whose walk is on the screen; -1 where none is (yet: it is drawn line by line)."""
    found = PLACE.search(terminal.lines[0])
    return -1 if found is None else int(found[1])


def words(terminal: Terminal) -> str:
    """What is on the screen, wherever it was wrapped."""
    return " ".join(terminal.text.split())


def bells(terminal: Terminal) -> int:
    return POINTER.sub(b"", bytes(terminal.raw)).count(b"\x07")


def quiet_for(terminal: Terminal, seconds: float) -> int:
    """How many bytes come in so many seconds."""
    before, until = len(terminal.raw), time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        terminal.read(left)
    return len(terminal.raw) - before


# --- what goes on without a terminal ----------------------------------------------------------


def test_it_trains_in_a_process_of_its_own(runs: Runs) -> None:
    """Quitting asks once; what is left can be attached to again, and stopped."""
    with runs.train("ada", size=LARGE) as terminal:
        pid = runs.pid("ada")
        assert pid != terminal.pid
        assert os.getsid(pid) == pid
        assert os.getpgid(pid) == pid
        told = subprocess.run(["ps", "-o", "tty=", "-p", str(pid)], capture_output=True, text=True)
        assert told.stdout.strip() in ("?", "??", "-")
        if Path("/proc/self/fd").exists():
            ends = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)}
            assert ends == {"/dev/null", str(runs.directory("ada").log)}
        for key, back in (("q", ESCAPE), (CTRL_C, "q"), ("q", DOWN * 2 + ENTER)):
            terminal.press(key, "quit: the run ada?")
            terminal.press(back, lambda t: "quit: the run" not in t.text)
        later_step(terminal)  # it is watched still
        terminal.press("q", "> leave it running")
        terminal.send(ENTER)
        assert terminal.wait() == 0
        assert_clean(terminal)
    runs.goes_on("ada")
    assert runs.pid("ada") == pid
    with runs.attach("ada") as again:
        later_step(again)
        again.press(CTRL_C, "stop it: it saves first")
        again.send(STOPS)
        assert again.wait() == 0
        assert_clean(again)
    runs.wait_until("ada", "stopped")
    wait_until_gone(pid)
    rows = runs.metrics("ada")
    assert [row["step"] for row in rows] == [*range(1, len(rows) + 1)]
    saved = sorted(runs.directory("ada").checkpoints.iterdir())[-1]
    assert saved.name == f"step-{len(rows):08}"


def test_a_hang_up_touches_nothing(runs: Runs) -> None:
    """The line breaks while it is trained, of the terminal that started it and of another."""
    with runs.train("ada") as first, runs.attach("ada") as second:
        pid = runs.pid("ada")
        for terminal in (first, second):
            terminal.hang_up()
            assert terminal.wait(15) == 129
            runs.goes_on("ada")
    assert (runs.pid("ada"), runs.state("ada")) == (pid, "running")
    with runs.attach("ada") as again:
        later_step(again)
        again.wait_for("screens  1")  # those that are gone do not count
        os.kill(pid, signal.SIGTERM)
        live(again, "stopped")
        again.wait_for("the run has stopped")
        again.send("q")
        assert again.wait() == 0
    assert runs.state("ada") == "stopped"


@pytest.mark.parametrize("how", ["D", CTRL_C + ENTER, signal.SIGTERM, signal.SIGINT, "hang up"])
def test_leaving_leaves_the_run(lily: Runs, how: Any) -> None:
    with lily.attach("lily", modern=how == "D") as terminal:
        later_step(terminal)
        if isinstance(how, signal.Signals):
            terminal.signal(how)
        elif how == "hang up":
            terminal.hang_up()
        else:
            for key in how:
                terminal.press(key, "")
                quiet_for(terminal, 0.1)
        code = {signal.SIGTERM: 143, signal.SIGINT: 130, "hang up": 129}.get(how, 0)
        assert terminal.wait() == code
        if how != "hang up":
            assert_clean(terminal)
            assert afterwards(terminal) == ""
    lily.goes_on("lily")


def test_suspended_and_continued(lily: Runs) -> None:
    """ctrl+z, `fg`: the run goes on meanwhile, the screen catches up."""
    with lily.attach("lily") as terminal:
        later_step(terminal)
        terminal.send("\x1a")
        seen = os.WUNTRACED | os.WNOHANG
        terminal.wait_for(lambda t: os.WIFSTOPPED(os.waitpid(t.pid, seen)[1]))
        terminal.settle(0.05)
        assert_clean(terminal)
        lily.goes_on("lily", by=100)
        terminal.signal(signal.SIGCONT)
        terminal.wait_for(lambda t: t.modes[1049])
        later_step(terminal)
        terminal.send("D")
        assert terminal.wait() == 0
        assert_clean(terminal)


# --- the run's process ends -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("walking", [False, True], ids=["live", "walked"])
def test_a_run_that_is_killed_while_it_is_seen(runs: Runs, walking: bool) -> None:
    """The screen says so, and how to go on; everything is still there to be read."""
    with runs.train("ada") as terminal, runs.attach("ada") as other:
        if walking:
            terminal.press(" ", WALKED)
        os.kill(runs.pid("ada"), signal.SIGKILL)
        for each in (terminal, other):
            live(each, "died")
            each.wait_for(lambda t: "the run 'ada' has died" in words(t))
            each.wait_for(
                lambda t: "`tensorstep train --resume ada` goes on from its checkpoint" in words(t)
            )
            each.press(" ", "the run has no process here")
            each.send("q")  # nothing to ask
            assert each.wait() == 0
            assert_clean(each)
    assert runs.state("ada") == "died"
    done = last_step(runs.metrics("ada"))
    with runs.terminal("attach", "ada") as again:
        live(again, "died")
        again.send("q")
        assert again.wait() == 0
    with runs.terminal("train", "--resume", "ada") as resumed:  # as it said
        resumed.wait_for(lambda t: seen_step(t) > done, PATIENCE)
        resumed.press("q", "leave it running")
        resumed.send(STOPS)
        assert resumed.wait() == 0
    runs.wait_until("ada", "stopped")
    rows = runs.metrics("ada")
    assert [row["step"] for row in rows] == [*range(1, len(rows) + 1)]


BROKEN = {
    "drawing": "LiveScreen.page = broken",
    "pulling": "LiveScreen.read_files = broken",
    "a key": "LiveScreen.action_help = broken",
}


@pytest.mark.parametrize("where", BROKEN)
def test_a_mistake_of_ours_ends_the_screen_alone(lily: Runs, where: str) -> None:
    code = f"""
import os, sys
os.environ["TEXTUAL_SMOOTH_SCROLL"] = "0"
import tui.cli
from tui.screens.live import LiveScreen
def broken(*_, **__):
    raise LookupError("thrown \\x1b[31min")
{BROKEN[where]}
tui.cli.main(["attach", "lily"])
"""
    with lily.terminal(command=(sys.executable, "-c", code)) as terminal:
        if where == "a key":
            terminal.wait_for("steps a second")
            terminal.send("?")
        assert terminal.wait(15) == 1
        assert_clean(terminal)
        said = "tensorstep: failed: LookupError: thrown \\e[31min (--debug tells where)"
        assert afterwards(terminal) == said + "\r\n"
    lily.goes_on("lily")


# --- several screens --------------------------------------------------------------------------


def test_two_screens_of_one_run(lily: Runs) -> None:
    """One pauses, both see it; each walks with a cursor of its own; one lets it go on."""
    with lily.attach("lily") as one, lily.attach("lily", size=LARGE) as two:
        for each in (one, two):
            later_step(each)
            each.wait_for("screens  2")
        one.send(" ")
        for each in (one, two):
            each.wait_for(WALKED)
            each.wait_for("batch.X[0,0] =")
        assert lily.state("lily") == "paused"
        done = last_step(lily.metrics("lily"))
        assert walked_step(one) == walked_step(two) == done + 1
        one.press("NN", lambda t: " q[0,0,0] =" in t.text)
        assert "batch.X[0,0] =" in two.text
        two.press("n", "batch.y[0] =")
        two.press("G", "batch.y[15] =")
        one.press("p", "embedding[0,0,0] =")
        two.press("n", "embedding.tokens[0,0,0] =")
        quiet_for(one, 0.6)  # longer than the one that is walked looks after the run
        assert "embedding[0,0,0] =" in one.text
        two.press("L", lambda t: TOP.match(t.lines[0]))
        two.press(ENTER, "embedding.tokens[0,0,0] =")  # where it was
        one.send("c")
        for each in (one, two):
            live(each, "running")
        later_step(two)
        lily.goes_on("lily")


def test_the_one_who_only_reads(lily: Runs) -> None:
    with lily.attach("lily", "--read-only") as reader, lily.attach("lily") as other:
        later_step(reader)
        for key in (" ", "b", "s"):
            reader.press(key, "attached with --read-only")
            reader.press("0", "")
        assert lily.state("lily") == "running"
        other.press(" ", WALKED)
        reader.wait_for("batch.X[0,0] =")
        reader.press("n", "only reads")  # it would compute a new state
        assert "batch.X[0,0] =" in reader.text
        other.press("nn", "embedding.tokens[0,0,0] =")
        reader.press("n", "batch.y[0] =")  # made by the other
        for key in ("c", "f"):
            reader.press(key, "only reads")
        assert lily.state("lily") == "paused"
        other.send(" ")
        live(reader, "running")
        reader.send("q")  # nothing to ask
        assert reader.wait() == 0
        assert_clean(reader)


def test_a_hit_pauses_rings_once_and_says_why(lily: Runs) -> None:
    with lily.attach("lily") as one, lily.attach("lily", size=LARGE) as two:
        later_step(one)
        later_step(two)
        assert bells(one) == bells(two) == 0
        wanted = last_step(lily.metrics("lily")) + 500
        one.press("b", "pause when")
        one.send(f"step >= {wanted}{ENTER}")
        for each in (one, two):
            each.wait_for(f"paused: step >= {wanted} at step {wanted}  space lets it go on")
            each.wait_for("batch.X[0,0] =")
            assert walked_step(each) == wanted + 1
        assert last_step(lily.metrics("lily")) == wanted
        for each in (one, two):
            quiet_for(each, 0.8)
            assert bells(each) == 1
        two.press("L", f"step >= {wanted} at step {wanted}")
        two.wait_for(lambda t: ANSWERED.search(t.text))
        two.press("B", "enter: remove")
        two.press(ENTER, lambda t: "enter: remove" not in t.text)
        two.press("B", "there are no breakpoints")
        two.send(" ")
        for each in (one, two):
            live(each, "running")
            later_step(each)
            assert bells(each) == 1


# --- a paused run -----------------------------------------------------------------------------


@pytest.mark.slow
def test_walking_changes_no_number(runs: Runs) -> None:
    """A run that was paused and walked through, by state, stage and step, has every number that
    the one nobody looked at has."""
    steps = ("--steps", "400")
    with runs.train("walked", *steps, "--break", "step == 60") as terminal:
        terminal.wait_for("paused: step == 60 at step 60  space lets it go on")
        terminal.wait_for("batch.X[0,0] =")
        assert walked_step(terminal) == 61
        terminal.press("n", "batch.y[0] =")
        terminal.press("NNN", "scores.raw[0,0,0] =")
        terminal.press("d", "gradients.scores.raw")
        terminal.press(".", lambda t: walked_step(t) == 62)
        terminal.press("N", "update.token_embedding.weight[0,0] =")
        terminal.press("f", lambda t: walked_step(t) == 63)
        terminal.press(",,", lambda t: walked_step(t) == 61)
        terminal.press("m", "generation map")
        terminal.press("m", "training map")
        terminal.press("L", "step 62 of 400 · paused")
        terminal.press(ENTER, WALKED)
        terminal.send("c")
        live(terminal, "running")
        terminal.press(" ", lambda t: WALKED in t.text and walked_step(t) > 62)
        terminal.settle()
        terminal.send(" ")
        live(terminal, "finished")
        terminal.send("q")
        assert terminal.wait() == 0
    done = runs.command("train", *TINY, *steps, "--name", "plain", "--no-screen", "--json")
    assert done.returncode == 0, done.stderr
    walked, plain = (
        [{key: row[key] for key in row if key not in CLOCKED} for row in runs.metrics(name)]
        for name in ("walked", "plain")
    )
    assert len(plain) == 400
    assert walked == plain
    samples = [runs.directory(name).samples.read_bytes() for name in ("walked", "plain")]
    assert samples[0] == samples[1]
    saved = [
        (runs.directory(name).checkpoints / "step-00000400" / "state.safetensors").read_bytes()
        for name in ("walked", "plain")
    ]
    assert saved[0] == saved[1]


# --- what is shown ----------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_the_loss_on_the_screen_is_in_the_file(lily: Runs, seconds: float) -> None:
    """It is that of the step which is shown, and at most 1 s old. A reading in twenty may be older,
    by a second more: the run, the screen, the terminal and this test share what CPUs there are."""
    rows: dict[int, Metrics] = {}
    ages = []
    with lily.attach("lily") as terminal, lily.directory("lily").metrics.open("rb") as file:
        later_step(terminal)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            terminal.read(0.05)
            while terminal.read(0.01):  # the rest of a drawing
                pass
            rows |= {row["step"]: row for row in map(json.loads, whole_lines(file))}
            found = TOP.match(terminal.lines[0])
            assert found is not None, terminal.text
            step = int(found[2].replace(",", ""))
            assert found[5] == written(rows[step]["loss"])
            ages.append(rows[max(rows)]["time"] - rows[step]["time"])
    assert max(rows) - min(rows) > 20 * seconds  # it was trained all the while
    assert len(ages) > 5 * seconds
    late = [age for age in ages if age > 1]
    assert len(late) <= len(ages) / 20, f"{len(late)} of {len(ages)}"
    assert max(ages) <= 2


def whole_lines(file: Any) -> list[bytes]:
    """The lines of a file that have been ended since it was read last."""
    read: bytes = file.read()
    whole, _, torn = read.rpartition(b"\n")
    file.seek(-len(torn), os.SEEK_CUR)
    return whole.splitlines()


def test_nothing_is_sent_where_nothing_happens(lily: Runs) -> None:
    """Neither by the live screen of a paused run, nor by its walk."""
    with lily.attach("lily") as one, lily.attach("lily", size=LARGE) as two:
        later_step(one)
        one.press(" ", WALKED)
        two.wait_for(WALKED)
        two.press("L", lambda t: TOP.match(t.lines[0]))
        for each in (one, two):
            each.settle(0.6)
        assert quiet_for(one, 1.5) == 0
        assert quiet_for(two, 1.5) == 0
        one.send(" ")
        live(one, "running")


def test_a_tick_costs_few_bytes(lily: Runs) -> None:
    """At 80x24, of a run that makes hundreds of steps a second, so that all of the curve moves."""
    with lily.attach("lily") as terminal:
        later_step(terminal)
        terminal.settle(0.05)
        seconds = [quiet_for(terminal, 1) for _ in range(5)]
    assert min(seconds) > 0
    assert statistics.median(seconds) / 4 < 8192


@pytest.mark.parametrize("modern", [False, True])
def test_resized_while_it_goes_on(lily: Runs, modern: bool) -> None:
    with lily.attach("lily", modern=modern) as terminal:
        later_step(terminal)
        for size in ((120, 40), (60, 15), (200, 60), (80, 24)):
            terminal.resize(size)
            if size < SMALL:
                terminal.wait_for("tensorstep needs 80x24, this is 60x15: enlarge it")
                continue
            terminal.wait_for(lambda t, y=size[1] - 1: "q quit" in t.lines[y])
            terminal.wait_for(lambda t: TOP.match(t.lines[0]))
            assert ("GRADIENT NORM" in terminal.text) == (size >= LARGE)
            later_step(terminal)
        terminal.send("D")
        assert terminal.wait() == 0
        assert_clean(terminal)


def test_no_color_means_no_colour(lily: Runs) -> None:
    with lily.attach("lily", size=LARGE, env={"NO_COLOR": "1"}) as terminal:
        later_step(terminal)
        terminal.press(" ", WALKED)
        terminal.press("N", "embedding.tokens[0,0,0] =")
        terminal.press("q", "> leave it paused")
        terminal.send(DOWN + ENTER)  # let it go on, and leave
        assert terminal.wait() == 0
    assert colours(terminal) <= {39, 49}
    lily.wait_until("lily", "running")


def test_ascii_on_request(lily: Runs) -> None:
    with lily.attach("lily", "--ascii", size=LARGE) as terminal:
        terminal.wait_for("run lily - step ")
        terminal.press(" ", WALKED)
        terminal.press("?", "escape: close")
        terminal.press(ESCAPE, lambda t: "escape: close" not in t.text)
        terminal.press(" ", "run lily - step ")
        quiet_for(terminal, 0.6)
    assert bytes(terminal.raw).isascii()
    lily.wait_until("lily", "running")


# --- which run --------------------------------------------------------------------------------


@pytest.mark.slow
def test_which_run_is_attached_to(runs: Runs) -> None:
    """The newest that goes on, the one that is named, by its directory too; one that has ended is
    read from its files; of one on another host it is told where that is."""
    with runs.terminal("attach") as terminal:
        assert terminal.wait() == 2
        assert "no run is going: `tensorstep train` starts one" in words(terminal)
    for name in ("old", "new"):
        with runs.train(name) as terminal:
            terminal.send("D")
            assert terminal.wait() == 0
    folder = runs.directory("old").path
    for which, name in (((), "new"), (("old",), "old"), ((str(folder),), "old")):
        with runs.attach(*which) as terminal:
            assert terminal.lines[0].startswith(f"run {name} · step ")
    runs.stop("new")
    with runs.attach() as terminal:
        assert terminal.lines[0].startswith("run old · step ")
    with runs.terminal("attach", "new") as terminal:
        live(terminal, "stopped")
        rows = runs.metrics("new")
        assert seen_step(terminal) == len(rows)
        assert f"loss {written(rows[-1]['loss'])}" in terminal.lines[0]
        if len(rows) >= 50:
            terminal.wait_for("SAMPLE")
        terminal.press(ENTER, "the run has no process here")
        assert any(quiet_for(terminal, 1) == 0 for _ in range(3))  # once it is drawn
        terminal.send("q")
        assert terminal.wait() == 0
        assert_clean(terminal)
    worker = runs.directory("old").worker
    told = worker.read_text()
    worker.write_text(told.replace(f'"{socket.gethostname()}"', '"gpu7.example"'))
    try:
        with runs.terminal("attach", "old") as terminal:
            assert terminal.wait() == 1
            said = "the run 'old' is on gpu7.example: attach there, for example by"
            assert f"{said} `ssh gpu7.example`" in words(terminal)
        with runs.terminal("attach") as terminal:
            assert terminal.wait() == 2
    finally:
        worker.write_text(told)
    with runs.terminal("attach", "nobody") as terminal:
        assert terminal.wait() == 1
        assert "no run is called 'nobody'" in terminal.text


EVIL = (
    "a \x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b]52;c;cm0=\x07 [red]x[/] [@click=app.quit]y[/]"
    " \x9b31m \u202er \u2066i \u200bw b\bc d\x7fe \u2028f\vg\fh\ttab 漢字 e\u0301 \U0001f600"
)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("ended", [True, False], ids=["stopped", "failed"])
def test_hostile_names_and_lines(runs: Runs, size: tuple[int, int], ended: bool) -> None:
    run = RunDirectory(runs.folder / "evil\x1b[31m[red]\u202e")
    run.path.mkdir(parents=True)
    walk = {"model": "attention", "corpus": EVIL}
    config = {"kind": "training", "name": EVIL, "created": 1.0, "steps": 9, "run": {"walk": walk}}
    run.config.write_text(json.dumps(config))
    state = {"state": "stopped" if ended else "failed", "why": EVIL, "host": EVIL, "pid": 1}
    more = {"started": 1.0, "socket": EVIL, "version": EVIL}
    run.worker.write_text(json.dumps({**state, **more}))
    fields = ("loss", "lr", "grad_norm", "targets_per_second", "val_loss")
    rows = [
        {"step": 1, "loss": 2.5, "lr": 0.1, "grad_norm": 1, "targets_per_second": 9.5, "time": 1},
        {"step": 2, "time": 2, **dict.fromkeys(fields, EVIL)},
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.samples.write_text(json.dumps({"step": 2, "prompt": EVIL, "text": EVIL * 9}) + "\n")
    run.log.write_bytes(b"\xff\xfe\x00" + (EVIL * 3 + "\n" + EVIL).encode())
    with runs.terminal("attach", str(run.path), size=size) as terminal:
        terminal.wait_for("q quit")
        terminal.wait_for(r"\e[31mred")
        terminal.press("?", "escape: close")
        terminal.press("q", lambda t: "escape: close" not in t.text)
        for key in "l+Bb s":
            terminal.send(key)
            terminal.settle(0.05)
        terminal.send("D")
        assert terminal.wait() == 0
        assert terminal.title == ""
        assert_clean(terminal)
    raw = KITTY.sub(b"", POINTER.sub(b"", bytes(terminal.raw)))
    assert not [each for each in NEVER if each in raw]
    assert not [c for c in raw.decode() if 0x80 <= ord(c) < 0xA0 or c in UNSEEN]
    listed = runs.command("runs")
    assert listed.returncode == 0
    assert all(line.isprintable() for line in listed.stdout.split("\n"))
    assert runs.command("stop", str(run.path)).returncode == 2
