"""Killed at any moment, or short of room, a run loses nothing: resumed, it makes the same numbers,
bit for bit, as one that never stood still."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.runs.directory import RunDirectory
from engine.service.connection import WorkerDied
from tests.service.runs import (
    ROOT,
    Nest,
    Started,
    assert_same,
    attached,
    change,
    is_at,
    leftovers,
    lines,
    made,
    metrics,
    numbers,
    said,
    tiny,
    until,
)

pytestmark = pytest.mark.slow
FULL = "the disk is full: the run goes on when there is room"
CASES: dict[str, Any] = {
    "mlp": ({"model": "mlp", "sampling": "epochs", "batch": 128}, {"schedule": "cosine:warmup=5"}),
    "attention": ({"model": "attention", "optimizer": "sgd", "momentum": 0.9}, {"keep_every": 10}),
    "multihead": ({"model": "multihead", "clip": 0.5}, {"schedule": "linear", "eval_every": 7}),
}
# in the middle of a step: in the model, before the update, and after it
IN_STEPS = [(1, "batch.X"), (13, "hidden"), (17, "gradients.norm"), (20, "validation")]
WHATS = ("before write", "half-way in write", "after write")
WHATS += ("before sync", "after sync", "before rename", "after rename")
SPREAD = 10  # moments of the cases that are not killed at each kind of moment


@pytest.fixture(scope="module")
def nest() -> Iterator[Nest]:
    with Nest() as found:
        yield found


class Whole:
    """A run that was never killed.

    moments  what it was doing at each moment of its writing
    """

    def __init__(self, nest: Nest, folder: Path, case: str):
        walk, own = CASES[case]
        self.options = tiny(walk, **own)
        self.run = made(folder / "whole", self.options)
        written = folder / "moments"
        assert nest.train(self.run, moments=str(written)) == 0
        self.moments = written.read_text().splitlines()


@pytest.fixture(scope="module")
def whole(nest: Nest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    return {case: Whole(nest, tmp_path_factory.mktemp(case), case) for case in CASES}


def goes_on(nest: Nest, run: RunDirectory, whole: RunDirectory) -> None:
    """Resumed, it is the same as one that was never killed, and nothing of it was thrown away."""
    assert nest.train(run) == 0, said(run)
    assert_same(run, whole)
    expected = {row["step"]: row for row in metrics(whole)}
    for row in lines(run.cut):
        assert numbers(row) == expected[row["step"]]


def killed(nest: Nest, run: RunDirectory, **trouble: Any) -> None:
    assert nest.train(run, **trouble) == -9, said(run)


# --- kill -9 ------------------------------------------------------------------------------------


def test_what_is_written(whole: dict[str, Whole]):
    """The moments of a run are those that are meant: of every kind, in every file."""
    moments = whole["mlp"].moments
    assert len(moments) > 200
    assert {next(what for what in WHATS if each.startswith(what)) for each in moments} == set(WHATS)
    for name in ("metrics.jsonl", "samples.jsonl", "state.safetensors", "state.json"):
        for what in WHATS[:3]:
            assert any(each.startswith(what) and each.endswith(name) for each in moments), name
    assert "before rename .part- to worker.json" in moments
    assert "after rename .part- to step-" in moments
    assert "before rename step- to .part-step-" in moments


def test_killed_at_each_kind_of_moment(nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """Before, half-way in and after each write, sync and rename of each file: of those of a kind,
    one after another is taken, so that they lie in all of the run."""
    of_kind: dict[str, list[int]] = {}
    for number, moment in enumerate(whole["mlp"].moments):
        of_kind.setdefault(moment, []).append(number)
    assert len(of_kind) > 30
    for turn, (moment, numbers_) in enumerate(of_kind.items()):
        run = made(tmp_path / f"{turn}", whole["mlp"].options)
        killed(nest, run, kill_at=numbers_[turn % len(numbers_)])
        try:
            goes_on(nest, run, whole["mlp"].run)
        except AssertionError as error:
            raise AssertionError(f"killed {moment}: {error}") from error


@pytest.mark.parametrize("case", ["attention", "multihead"])
def test_killed_at_moments_of_the_whole_run(
    case: str, nest: Nest, whole: dict[str, Whole], tmp_path: Path
):
    count = len(whole[case].moments)
    for turn in range(SPREAD):
        run = made(tmp_path / f"{turn}", whole[case].options)
        killed(nest, run, kill_at=(2 * turn + 1) * count // (2 * SPREAD))
        goes_on(nest, run, whole[case].run)


@pytest.mark.parametrize(("step", "name"), IN_STEPS)
@pytest.mark.parametrize("case", CASES)
def test_killed_in_a_step(
    case: str, step: int, name: str, nest: Nest, whole: dict[str, Whole], tmp_path: Path
):
    if (case, name) == ("multihead", "validation"):
        step = 21
    run = made(tmp_path / "run", whole[case].options)
    killed(nest, run, kill_in=(step, name))
    assert [row["step"] for row in lines(run.metrics)] == list(range(1, step))
    goes_on(nest, run, whole[case].run)


def test_killed_while_it_resumes(nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """Lines past the checkpoint are moved, one half-written: at each moment of that it is killed
    again. Those that are whole are then in the file of the cut ones, each once."""
    before = made(tmp_path / "before", whole["mlp"].options)
    writes = [n for n, each in enumerate(whole["mlp"].moments) if each.endswith("metrics.jsonl")]
    half = [n for n in writes if whole["mlp"].moments[n].startswith("half-way")]
    killed(nest, before, kill_at=half[13])  # the line of step 14, after the checkpoint of step 10
    assert not before.metrics.read_bytes().endswith(b"\n")
    written = tmp_path / "moments"
    resumed = copied(before, tmp_path / "resumed")
    assert nest.train(resumed, moments=str(written)) == 0
    moments = written.read_text().splitlines()
    begun = moments.index("after write metrics.jsonl")
    assert any("metrics.cut.jsonl" in moment for moment in moments[:begun])
    for number in range(moments.index("after sync run"), begun):  # worker.json is written then
        moment = moments[number]
        run = copied(before, tmp_path / f"{number}")
        killed(nest, run, kill_at=number)
        try:
            goes_on(nest, run, whole["mlp"].run)
            assert [row["step"] for row in lines(run.cut)] == [11, 12, 13]
        except AssertionError as error:
            raise AssertionError(f"killed {moment}: {error}") from error


def copied(run: RunDirectory, path: Path) -> RunDirectory:
    shutil.copytree(run.path, path)
    return RunDirectory(path)


def test_killed_again_and_again(nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """Whenever it has written so much: what is made twice is in the file of the cut lines."""
    run = made(tmp_path / "run", whole["multihead"].options)
    kills = 0
    while nest.train(run, kill_at=90) == -9:
        kills += 1
        assert kills < 10, said(run)
    assert kills > 2
    assert lines(run.cut)
    goes_on(nest, run, whole["multihead"].run)


def test_metrics_that_end_before_the_checkpoint(
    nest: Nest, whole: dict[str, Whole], tmp_path: Path
):
    """Somebody has cut the file: nothing is made up, and nothing is touched."""
    run = copied(whole["mlp"].run, tmp_path / "run")
    content = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(content[:20]))
    assert nest.train(run) == 1
    worker = run.read_worker()
    assert worker is not None
    assert worker.state == "failed"
    assert "ends before step 30, at which the checkpoint stands" in str(worker.why)
    assert lines(run.metrics) == [json.loads(line) for line in content[:20]]


# --- a full disk --------------------------------------------------------------------------------


def is_full(run: RunDirectory, started: Started) -> bool:
    assert started.code is None, said(run)
    return FULL in said(run)


def why(run: RunDirectory) -> str | None:
    worker = run.read_worker()
    assert worker is not None
    return worker.why


@pytest.mark.parametrize("case", CASES)
async def test_a_full_disk(case: str, nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """From a step on it is full: the run stands still and says so, leaves nothing half-written, and
    goes on by itself when there is room."""
    full = tmp_path / "full"
    walk, own = CASES[case]
    run = made(tmp_path / "run", tiny(walk, breaks=("step == 9",), **own))
    with nest.working(run, full=str(full)) as started:
        started.reaches("paused")
        async with attached(run) as client:
            full.touch()
            await client.ask("resume")
            until(lambda: is_full(run, started))
            status = await client.ask("status")
            assert (status["state"], status["why"], status["step"]) == ("paused", FULL, 10)
            assert [row["step"] for row in lines(run.metrics)] == list(range(1, 10))
            assert not leftovers(run)
            full.unlink()
        assert started.wait() == 0
    assert_same(run, whole[case].run)


async def test_a_full_disk_does_not_undo_a_breakpoint(
    nest: Nest, whole: dict[str, Whole], tmp_path: Path
):
    """The step at which it is to pause is the one that cannot be written: when there is room, the
    run still stands there, for its own reason."""
    full = tmp_path / "full"
    walk, own = CASES["mlp"]
    run = made(tmp_path / "run", tiny(walk, breaks=("step == 9", "step == 10"), **own))
    with nest.working(run, full=str(full)) as started:
        started.reaches("paused")
        async with attached(run) as client:
            full.touch()
            await client.ask("resume")
            until(lambda: is_full(run, started))
            full.unlink()
            until(lambda: len(lines(run.metrics)) == 10, "step 10")
            until(lambda: why(run) == "step == 10 at step 10", "a pause")
            assert (await client.ask("status"))["step"] == 10
            await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"].run)


async def test_a_pause_that_is_asked_for_while_the_disk_is_full(
    nest: Nest, whole: dict[str, Whole], tmp_path: Path
):
    """It is not forgotten when there is room."""
    full = tmp_path / "full"
    walk, own = CASES["mlp"]
    run = made(tmp_path / "run", tiny(walk, breaks=("step == 9",), **own))
    with nest.working(run, full=str(full)) as started:
        started.reaches("paused")
        async with attached(run) as client:
            full.touch()
            await client.ask("resume")
            until(lambda: is_full(run, started))
            await client.ask("pause")
            full.unlink()
            until(lambda: len(lines(run.metrics)) == 10, "step 10")
            until(lambda: is_at(run, started.pid, "paused") and why(run) is None, "another reason")
            status = await client.ask("status")
            assert (status["state"], status["step"]) == ("paused", 10)
            await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"].run)


def test_a_disk_that_is_full_when_it_resumes(nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """There are lines to be moved, and no room for them: they stay, and it says so."""
    full = tmp_path / "full"
    run = made(tmp_path / "run", whole["mlp"].options)
    killed(nest, run, kill_in=(14, "hidden"))
    full.touch()
    content = run.metrics.read_bytes()
    assert nest.train(run, full=str(full)) == 1
    assert "cannot be written to (No space left on device)" in said(run)
    assert "Traceback" not in said(run)
    assert run.metrics.read_bytes() == content
    full.unlink()
    goes_on(nest, run, whole["mlp"].run)
    assert [row["step"] for row in lines(run.cut)] == [11, 12, 13]


async def test_stopped_while_the_disk_is_full(nest: Nest, whole: dict[str, Whole], tmp_path: Path):
    """It cannot save: it says so and ends, and resumes without a loss."""
    full = tmp_path / "full"
    walk, own = CASES["mlp"]
    run = made(tmp_path / "run", tiny(walk, breaks=("step == 9",), **own))
    with nest.working(run, full=str(full)) as started:
        started.reaches("paused")
        async with attached(run) as client:
            full.touch()
            await client.ask("resume")
            until(lambda: is_full(run, started))
            with contextlib.suppress(WorkerDied):  # so soon
                await client.ask("stop")
        assert started.wait() == 1
        assert "make room, then --resume" in said(run)
    full.unlink()
    change(run, breaks=())
    goes_on(nest, run, whole["mlp"].run)


SMALL = """
mount -t tmpfs -o size=4m tmpfs "$1" || exit 77
cp -r "$2" "$1/run" && exec "$3" -m tests.service.runs "$1/run"
"""


def test_a_disk_that_is_really_full(whole: dict[str, Whole], tmp_path: Path):
    """A small file system in memory, filled by somebody else, who then makes room."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small file system, and only with unshare")
    walk, own = CASES["mlp"]
    before = made(tmp_path / "before", tiny(walk, breaks=("step == 9",), **own))
    (tmp_path / "small").mkdir()
    command = ["unshare", "-m", "sh", "-c", SMALL, "sh", tmp_path / "small", before.path]
    ended = subprocess.run([*command, sys.executable], capture_output=True, text=True, cwd=ROOT)
    if ended.returncode == 77:
        pytest.skip(f"no file system can be mounted here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["why"] == FULL
    assert told["parts"] == []
    assert [numbers(row) for row in told["metrics"]] == metrics(whole["mlp"].run)
    last = json.loads((whole["mlp"].run.checkpoints / "step-00000030/state.json").read_bytes())
    assert told["sha256"] == last["sha256"]
