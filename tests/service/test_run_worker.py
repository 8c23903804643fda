"""The process that trains a run: what its screens may do with it, how it ends and goes on, and the
commands that start, follow and stop it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import TensorstepError
from engine.runs.directory import RunDirectory, runs_folder
from engine.service import sockets
from engine.service.connection import WorkerDied
from engine.service.control import Control
from engine.service.protocol import LENGTHS, encode, read_frame
from engine.service.run_client import RunClient
from engine.service.run_options import RunOptions
from tests.service.runs import (
    STEPS,
    TINY,
    Nest,
    Started,
    assert_same,
    attached,
    change,
    lines,
    made,
    metrics,
    said,
    tensors,
    tiny,
    until,
)
from tests.terminal.terminal import COMMAND
from tui import run_commands
from tui.following import follow

MODELS = ("mlp", "attention", "multihead")
ENDLESS = 10**7
WEIGHT = "hidden_layer.weight"


@pytest.fixture(scope="module", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where runs with a name are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield runs_folder()


@pytest.fixture(scope="module")
def nest(state_home: Path) -> Iterator[Nest]:
    with Nest() as found:
        yield found


@pytest.fixture(scope="module")
def whole(nest: Nest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """A run of each model that never stood still."""
    made_runs = {}
    for model in MODELS:
        made_runs[model] = made(tmp_path_factory.mktemp(model) / "whole", tiny({"model": model}))
        assert nest.train(made_runs[model]) == 0
    return made_runs


def standing(run: RunDirectory) -> tuple[str, str | None]:
    """The state that the worker told last, and why."""
    worker = run.read_worker()
    assert worker is not None
    return worker.state, worker.why


@contextlib.asynccontextmanager
async def paused(
    nest: Nest, run: RunDirectory, read_only: bool = False
) -> AsyncIterator[tuple[Started, RunClient]]:
    """A run whose breakpoint has come, and a screen of it."""
    with nest.working(run) as started:
        started.reaches("paused")
        async with attached(run, read_only) as client:
            yield started, client


@contextlib.contextmanager
def refused(*words: str, code: int = 2) -> Iterator[None]:
    with pytest.raises(TensorstepError) as told:
        yield
    for word in words:
        assert word in str(told.value)
    assert told.value.exit_code == code


async def status_when(client: RunClient, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status as soon as it is so."""

    async def ask() -> dict[str, Any]:
        while not fits(status := await client.ask("status")):
            pass
        return status

    return await asyncio.wait_for(ask(), 60)


async def look(client: RunClient, model: str = "mlp", **params: Any) -> dict[str, Any]:
    return await client.ask("look", **{"map": "training", "model": model, **params})


async def move(client: RunClient, how: str, model: str = "mlp", **params: Any) -> dict[str, Any]:
    return await client.ask("move", **{"map": "training", "model": model, "how": how, **params})


def at(reply: dict[str, Any]) -> tuple[int, str]:
    return reply["state"]["step"], reply["state"]["name"]


async def cells(client: RunClient, name: str, step: int, model: str = "mlp") -> bytes:
    """The first 2 x 3 cells of a table."""
    where = {"map": "training", "model": model, "name": name, "step": step}
    corner = {"fixed": [], "rows": [0, 2], "columns": [0, 3]}
    return (await client.ask_bytes("table", **where, **corner))[1]


# --- paused, and going on -------------------------------------------------------------------------


async def test_paused_going_on_and_stopped(nest: Nest, tmp_path: Path):
    """Whenever that comes: no number is another. Nor are they where a screen is attached, to which
    is told how far parameters move."""
    options = tiny(steps=ENDLESS, sample_every=100, checkpoint_every=100)
    run = made(tmp_path / "run", options)
    with nest.working(run) as started:
        started.reaches("running")
        async with attached(run) as client:
            for _ in range(3):
                await client.ask("pause")
                status = await status_when(client, lambda status: status["state"] == "paused")
                assert status["why"] is None
                assert status["screens"] == 1
                assert status["memory"] > 0
                assert status["steps"] == ENDLESS
                rows = [row["step"] for row in lines(run.metrics)]
                assert rows == list(range(1, status["step"] + 1))
                until(lambda: standing(run) == ("paused", None))
                assert at(await look(client)) == (status["step"] + 1, "batch.X")
                assert (await client.ask("pause"))["state"] == "paused"
                assert (await client.ask("resume"))["state"] == "running"
                assert (await client.ask("resume"))["state"] == "running"
                with refused("the run is going: pause it first"):
                    await look(client)
                at_least = status["step"] + 20
                await status_when(client, lambda status: status["step"] > at_least)  # noqa: B023
            ratios = (await status_when(client, lambda status: status["ratios"]))["ratios"]
            assert 0 < ratios["step"] <= lines(run.metrics)[-1]["step"] + 1
            assert {name for name, _ in ratios["rows"]} >= {WEIGHT}
            assert all(0 < ratio < 1 for name, ratio in ratios["rows"] if "bias" not in name)
            status = await client.ask("stop")
            assert status["state"] in ("stopping", "stopped")
        assert started.wait() == 0
    assert standing(run) == ("stopped", None)
    last = lines(run.metrics)[-1]["step"]
    other = made(tmp_path / "other", replace(options, steps=last))
    assert nest.train(other) == 0
    assert_same(run, other, last)


@pytest.mark.parametrize("model", MODELS)
async def test_a_step_that_is_walked_is_the_one_that_is_drained(
    model: str, nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """All of its states, one after another, looked at: the same line of metrics, and after it the
    same numbers, bit for bit. Step 10 has a validation and a sample."""
    run = made(tmp_path / "run", tiny({"model": model}, breaks=("step == 9",)))
    async with paused(nest, run) as (started, client):
        assert standing(run) == ("paused", "step == 9 at step 9")
        reply = await look(client, model)
        names = []
        while at(reply)[0] == 10:
            names.append(at(reply)[1])
            if reply["state"]["kind"] == "tensor":
                cell = [0] * len(reply["state"]["shape"])
                where = {"map": "training", "model": model, "name": names[-1], "step": 10}
                await client.ask("explain", cell=cell, most=3, **where)
                if len(cell) == 2:
                    await cells(client, names[-1], 10, model)
            reply = await move(client, "forward", model)
        assert {"logits", "loss", "gradients.norm", f"update.{WEIGHT}", "validation"} <= {*names}
        assert at(reply) == (11, "batch.X")
        assert (await client.ask("status"))["step"] == 10
        until(lambda: len(metrics(run)) == 10, "the line of step 10")
        assert metrics(run) == metrics(whole[model])[:10]
        assert at(await move(client, "back", model)) == (10, "validation")
        await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole[model])


async def test_many_steps_walked_to_the_last(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """A walk goes from step to step; at the end there is no next one, and it can still be seen."""
    run = made(tmp_path / "run", tiny(breaks=("step == 17",)))
    async with paused(nest, run) as (started, client):
        await move(client, "forward")
        for step in range(19, STEPS + 1):
            assert (await move(client, "next_step"))["state"]["step"] == step
            assert (await client.ask("status"))["step"] == step - 1
        reply = await move(client, "next_step")
        assert reply["moved"] is False
        assert reply["ended"] == f"all {STEPS} steps are done"
        assert (await client.ask("status"))["step"] == STEPS
        assert at(await look(client))[0] == STEPS
        assert at(await move(client, "seek", name="loss", step=20)) == (20, "loss")
        assert len(await cells(client, "hidden", 25)) == 2 * 3 * 4
        await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


async def test_each_screen_has_a_cursor(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 3",)))
    async with paused(nest, run) as (started, one), attached(run) as other:
        names = [at(await look(one))] + [at(await move(one, "forward")) for _ in range(3)]
        assert len(set(names)) == 4
        moves = (await other.ask("status"))["moves"]
        assert (await other.ask("status"))["screens"] == 2
        assert at(await look(other)) == names[0]
        assert at(await move(other, "forward")) == names[1]
        assert (await other.ask("status"))["moves"] == moves  # it was made already
        assert at(await look(one)) == names[3]
        further = at(await move(other, "seek", name="loss", step=4))
        assert (await one.ask("status"))["moves"] > moves
        assert at(await look(one)) == names[3]
        assert at(await move(one, "seek", name="loss", step=4)) == further
        assert at(await move(other, "next_step")) == (5, "loss")
        assert at(await look(one)) == (4, "loss")
        await one.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


async def test_a_screen_that_only_reads(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    """It sees what others have made, and changes nothing."""
    run = made(tmp_path / "run", tiny(breaks=("step == 3",)))
    async with paused(nest, run) as (started, writer), attached(run, read_only=True) as reader:
        made_ones = [at(await look(writer)), at(await move(writer, "forward"))]
        before = await reader.ask("status")
        edit = {"name": "batch.X", "step": 4, "cell": [0, 0], "value": "1"}
        for method, params in (
            *(("pause", {}), ("resume", {}), ("stop", {})),
            *(("breakpoints", {"add": "step == 5"}), ("breakpoints", {"remove": 0})),
            ("edit", {"map": "training", "model": "mlp", **edit}),
            ("undo", {"map": "training", "model": "mlp"}),
        ):
            with refused("this screen only reads"):
                await reader.ask(method, **params)
        assert at(await look(reader)) == made_ones[0]
        assert at(await move(reader, "forward")) == made_ones[1]
        for how in ("forward", "next_stage", "next_step"):
            with refused("this screen only reads: it cannot make the next state"):
                await move(reader, how)
        with refused("this screen only reads"):
            await move(reader, "seek", name="loss", step=4)
        assert at(await look(reader)) == made_ones[1]
        assert len(await cells(reader, "batch.X", 4)) == 2 * 3 * 8
        assert await reader.ask("status") == {**before, "memory": pytest.approx(0, abs=1e12)}
        assert at(await move(writer, "forward"))[0] == 4  # and others still may
        await writer.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


async def test_what_if_leaves_the_run_alone(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """Cells and a parameter edited, generation looked at, all in the walk of the paused step: what
    the run goes on with is untouched."""
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    where = {"map": "training", "model": "mlp"}
    async with paused(nest, run) as (started, client):
        await move(client, "seek", name="loss", step=10)
        plain = await cells(client, "hidden", 10)
        edit = {"name": "hidden", "step": 10, "cell": [0, 0], "value": "5"}
        assert (await client.ask("edit", **where, **edit))["standing"]["edits"]
        assert await cells(client, "hidden", 10) != plain
        parameter = {"name": f"parameters.{WEIGHT}", "step": 9, "cell": [0, 0], "value": "nan"}
        await client.ask("edit", **where, **parameter)
        assert at(await look(client)) == (10, "loss")
        assert (await client.ask("undo", **where))["undone"]
        assert (await client.ask("undo", **where))["undone"]
        assert await cells(client, "hidden", 10) == plain
        await client.ask("edit", **where, **edit)
        await client.ask("move", map="generation", model="mlp", how="next_stage")
        await client.ask("edit", **where, **parameter)
        with refused("this run trains 'mlp': open 'attention' in a walk of its own"):
            await look(client, "attention")
        await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


def test_what_is_told_last_is_how_it_stands():
    """A screen has the run go on, and the loop comes to a breakpoint before that was told."""
    told: list[tuple[str, str | None]] = []
    telling, go_on = threading.Event(), threading.Event()

    def changed(state: str, why: str | None) -> None:
        if told and state == "running":
            telling.set()
            assert go_on.wait(60)
        told.append((state, why))

    control = Control(changed)
    control.start()
    control.hold("one")
    threads = [threading.Thread(target=control.resume)]
    threads.append(threading.Thread(target=control.hold, args=("another",)))
    threads[0].start()
    assert telling.wait(60)
    threads[1].start()
    until(lambda: control.why == "another")
    if threads[1].is_alive():
        threads[1].join(0.1)
    go_on.set()
    for thread in threads:
        thread.join()
    assert told[-1] == (control.state, control.why) == ("paused", "another")


def test_a_status_is_of_one_moment():
    """The loop goes on, and comes to a pause, while a screen's thread reads how it stands."""
    control, steps = Control(), [0]
    control.start()

    def beside() -> dict[str, Any]:
        found = {"step": steps[0]}
        if not steps[0]:
            steps[0] = 2
            control.hold("there")
        return found

    stands = {"state": "paused", "why": "there", "stops": 1, "breakpoints": []}
    assert control.status(beside) == {**stands, "step": 2}


# --- breakpoints ----------------------------------------------------------------------------------


def first_step(rows: list[dict[str, Any]], fits: Callable[..., bool]) -> int:
    """The first step of which it is true, told of the lowest val_loss of those before."""
    best = None
    for row in rows:
        if fits(row, best):
            return int(row["step"])
        seen = [each for each in (best, row.get("val_loss")) if each is not None]
        best = min(seen, default=None)
    raise LookupError


BREAKS: dict[str, Callable[[dict[str, Any], float | None], bool]] = {
    "step == 12": lambda row, best: row["step"] == 12,
    "loss < 5.6 and grad_norm > 0": lambda row, best: row["loss"] < 5.6,
    "lr > 0": lambda row, best: True,
    f'norm("gradients.{WEIGHT}") > 0': lambda row, best: True,
    'nonfinite("logits") == 0 and step >= 3': lambda row, best: row["step"] >= 3,
    "val_loss < best": lambda row, best: bool(best and row.get("val_loss", 9) < best),
    'smallest("validation") > 0': lambda row, best: "val_loss" in row,
    "val_loss > 0": lambda row, best: "val_loss" in row,
}


@pytest.mark.parametrize("condition", BREAKS)
def test_a_breakpoint(condition: str, nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=(condition,)))
    with nest.working(run) as started:
        started.reaches("paused")
        step = first_step(metrics(whole["mlp"]), BREAKS[condition])
        assert standing(run) == ("paused", f"{condition} at step {step}")
        assert metrics(run) == metrics(whole["mlp"])[:step]


async def test_breakpoints_of_screens(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 2",)))
    async with paused(nest, run) as (started, client), attached(run) as other:
        for text in ("step = 5", "", "x > 1", "norm(loss) > 1", "__import__('os')"):
            with refused("the condition"):
                await client.ask("breakpoints", add=text)
        with refused("there is no breakpoint 2"):
            await client.ask("breakpoints", remove=1)
        await client.ask("breakpoints", add="step == 5")
        status = await client.ask("breakpoints", add="step == 7")
        assert status["breakpoints"] == ["step == 2", "step == 5", "step == 7"]
        assert (await other.ask("breakpoints", remove=1))["breakpoints"] == [
            "step == 2",
            "step == 7",
        ]
        await client.ask("resume")
        status = await status_when(other, lambda status: status["state"] == "paused")
        assert (status["why"], status["step"]) == ("step == 7 at step 7", 7)
        await other.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


@pytest.mark.parametrize("walked", [True, False])
async def test_a_new_breakpoint_holds_in_the_step_that_is_looked_at(
    walked: bool, nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """Walked to its end, or begun and then left to the run; it reads a state of that step."""
    run = made(tmp_path / "run", tiny(breaks=("step == 4",)))
    condition = f'norm("gradients.{WEIGHT}") > 0'
    async with paused(nest, run) as (started, client):
        await look(client)
        await client.ask("breakpoints", remove=0)
        await client.ask("breakpoints", add=condition)
        if walked:
            await move(client, "next_step")
        else:
            await client.ask("resume")
        told = f"{condition} at step 5"
        status = await status_when(client, lambda status: status["why"] == told)
        assert (status["state"], status["step"]) == ("paused", 5)
        await client.ask("breakpoints", remove=0)
        await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


def test_the_best_of_before_outlives_a_kill(nest: Nest, tmp_path: Path):
    """`best` is known again when a run resumes."""
    run = made(tmp_path / "run", tiny(breaks=("val_loss < best",)))
    assert nest.train(run, kill_in=[17, "hidden"]) == -9
    with nest.working(run) as started:
        started.reaches("paused")
        assert standing(run) == ("paused", "val_loss < best at step 20")


# --- the socket -----------------------------------------------------------------------------------


def connected(run: RunDirectory) -> socket.socket:
    worker = run.read_worker()
    assert worker is not None
    made_one = socket.socket(socket.AF_UNIX)
    made_one.settimeout(60)
    made_one.connect(worker.socket)
    return made_one


LOOK = {"id": 1, "method": "look", "params": {"map": "training", "model": "mlp"}}
NO_REQUESTS: list[dict[str, Any]] = [
    *({}, {"id": 1}, {"id": 1, "method": None}, {"id": [1], "method": {"a": 1}}),
    *({"id": 1, "method": "look"}, {"id": 1, "method": "status", "params": [1]}),
    *({"id": 1, "method": "breakpoints", "params": {"add": 1}}, {"method": "cancel", "id": 9}),
    *({"id": 1, "method": "breakpoints", "params": {"remove": "x"}}, {"method": "open"}),
    *({"id": 1, "method": "move", "params": None}, {"id": 1, "method": "_walked", "params": {}}),
    {**LOOK, "params": {"map": "nowhere", "model": 1, "name": [1], "step": "x"}},
]


async def test_broken_frames_and_screens_that_die(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """They do no harm, to the run or to another screen."""
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    half = encode(LOOK)[:-3]
    broken = [b"\xff" * 100, LENGTHS.pack(5, 0) + b"{nonsense", half, b"\0", LENGTHS.pack(2, 9)]
    broken += [LENGTHS.pack(2**30, 2**30), LENGTHS.pack(2, 0) + b"[]", b"GET / HTTP/1.1\r\n\r\n"]
    async with paused(nest, run) as (started, client):
        for content in broken:
            with connected(run) as one:
                one.sendall(content)
                one.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b""  # it is let go of
        for request in NO_REQUESTS:
            with connected(run) as one, one.makefile("rb") as incoming:
                one.sendall(encode(request) + encode({"id": 2, "method": "status"}))
                answers = [read_frame(incoming)]
                if request.get("method") != "cancel":
                    answers.append(read_frame(incoming))
                assert answers[-1] is not None
                assert answers[-1][0]["result"]["state"] == "paused"
        for count in range(1, 20):  # asked, and gone before the answer
            with connected(run) as one:
                one.sendall(encode(LOOK) * count)
        assert at(await look(client)) == (10, "batch.X")
        await status_when(client, lambda status: status["screens"] == 1)
        await client.ask("resume")
        assert started.wait() == 0
    assert "Traceback" not in said(run)
    assert_same(run, whole["mlp"])


async def test_a_run_that_ends_tells_its_screens(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    async with paused(nest, run) as (started, client), attached(run) as other:
        await client.ask("stop")
        assert started.wait() == 0
        for each in (client, other):
            with refused("the run 'run' was stopped", code=1):
                while True:
                    await each.ask("status")
    with pytest.raises(WorkerDied, match="the run 'run' was stopped"):
        await RunClient(run).start()
    worker = run.read_worker()
    assert worker is not None
    assert not Path(worker.socket).exists()


async def test_a_run_that_is_killed_tells_its_screens(nest: Nest, tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    async with paused(nest, run) as (started, client):
        started.kill()
        with refused("the run 'run' has died without a word", "--resume", code=1):
            await client.ask("status")


def as_another_user(path: str) -> bytes:
    """What a process of another user is answered by a socket; asked in a child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        found = b"failed"
        try:
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(30)
                one.connect(path)
                with contextlib.suppress(ConnectionError):
                    one.sendall(encode({"id": 1, "method": "stop", "params": {}}))
                    found = b"answered" if one.recv(1) else b"closed"
                found = b"closed" if found == b"failed" else found
        finally:
            os.write(writing, found)
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()


async def test_another_user_is_not_answered(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """Not even where folder and socket would let them in."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
        with nest.working(run, temporary=str(folder)) as started:
            started.reaches("paused")
            worker = run.read_worker()
            assert worker is not None
            path = Path(worker.socket)
            assert path.parent.parent == folder
            assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (
                0o700,
                0o600,
            )
            assert as_another_user(worker.socket) == b"failed"  # cannot even get there
            for each, mode in ((folder, 0o711), (path.parent, 0o711), (path, 0o666)):
                each.chmod(mode)
            assert as_another_user(worker.socket) == b"closed"
            async with attached(run) as client:
                assert (await client.ask("status"))["state"] == "paused"
                await client.ask("resume")
            assert started.wait() == 0
        assert_same(run, whole["mlp"])
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o770])
def test_a_folder_that_others_can_enter(mode: int, nest: Nest, tmp_path: Path):
    folder = tmp_path / f"tensorstep-{os.getuid()}"
    folder.mkdir()
    folder.chmod(mode)
    run = made(tmp_path / "run")
    assert nest.train(run, temporary=str(tmp_path)) == 1
    assert f"others could enter {str(folder)!r}" in said(run)
    assert "chmod 700" in said(run)
    assert not lines(run.metrics)


def test_a_folder_of_sockets_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sockets, "TEMPORARY", tmp_path)
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / f"tensorstep-{os.getuid()}"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)  # which another user could turn elsewhere
    with pytest.raises(TensorstepError, match="others could enter"):
        sockets.socket_folder()
    folder.unlink()
    folder.write_text("x")
    with pytest.raises(TensorstepError, match="there can be no folder for sockets"):
        sockets.socket_folder()
    folder.unlink()
    assert sockets.socket_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


# --- ended, and going on --------------------------------------------------------------------------


def test_a_second_worker_is_refused(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    with nest.working(run) as started:
        started.reaches("paused")
        assert nest.train(run) == 1
        assert f"another process (process {started.pid} on {socket.gethostname()})" in said(run)
        assert standing(run) == ("paused", "step == 9 at step 9")
        started.send(signal.SIGTERM)
        assert started.wait() == 0
    change(run, breaks=())
    assert nest.train(run) == 0
    assert_same(run, whole["mlp"])


async def test_what_a_killed_worker_leaves_is_no_obstacle(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    run = made(tmp_path / "run", tiny(breaks=("step == 9", "step == 12")))
    async with paused(nest, run) as (started, _):
        started.kill()
    worker = run.read_worker()
    assert worker is not None
    assert Path(worker.socket).exists()
    assert run.lock.exists()
    assert run.state() == "died"
    async with paused(nest, run) as (started, client):  # from step 5 on, so at 9 again
        await client.ask("resume")
        await status_when(client, lambda status: status["why"] == "step == 12 at step 12")
        await client.ask("resume")
        assert started.wait() == 0
    assert_same(run, whole["mlp"])


def going(run: RunDirectory, rows: int = 1) -> None:
    """Wait until so many more steps are done."""
    at_least = len(run.metrics.read_bytes().splitlines()) + rows if run.metrics.exists() else rows
    until(lambda: run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= at_least)


def test_sigterm_saves_and_leaves_others_touch_nothing(nest: Nest, tmp_path: Path):
    run = made(tmp_path / "run", tiny(steps=ENDLESS, sample_every=0, checkpoint_every=50))
    with nest.working(run) as started:
        going(run, 60)
        for number in (signal.SIGHUP, signal.SIGINT):
            started.send(number)
            going(run, 30)
            assert standing(run) == ("running", None)
        started.send(signal.SIGTERM)
        assert started.wait() == 0
    assert standing(run) == ("stopped", None)
    last = lines(run.metrics)[-1]["step"]
    assert (run.checkpoints / f"step-{last:08d}").is_dir()
    change(run, steps=last + 10)
    assert nest.train(run) == 0
    assert standing(run) == ("finished", None)
    assert not run.cut.exists()
    other = made(tmp_path / "other", tiny(steps=last + 10, sample_every=0, checkpoint_every=50))
    assert nest.train(other) == 0
    assert_same(run, other, last + 10)


def test_sigterm_while_it_is_paused(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    with nest.working(run) as started:
        started.reaches("paused")
        started.send(signal.SIGTERM)
        assert started.wait() == 0
    assert standing(run) == ("stopped", None)
    assert metrics(run) == metrics(whole["mlp"])[:9]
    assert nest.train(run) == 0
    assert_same(run, whole["mlp"])


def test_sigterm_at_the_worst_moment(nest: Nest, tmp_path: Path):
    """While the loop looks whether it is to pause: it is no deadlock."""
    run = made(tmp_path / "run", tiny(steps=ENDLESS, sample_every=0, eval_every=0))
    with nest.working(run, term_in="between") as started:
        assert started.wait() == 0
    assert standing(run) == ("stopped", None)


def test_a_run_that_is_done_has_nothing_to_do(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(whole["mlp"].path, run.path)
    for _ in range(2):
        assert nest.train(run) == 0
        assert standing(run) == ("finished", None)
        assert_same(run, whole["mlp"])
    change(run, steps=STEPS + 12)
    assert nest.train(run) == 0
    other = made(tmp_path / "other", tiny(steps=STEPS + 12))
    assert nest.train(other) == 0
    assert_same(run, other, STEPS + 12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model", "attention"), ("context", 9), ("batch", 65), ("width", 9), ("hidden", 17)),
        *(("heads", 2), ("seed", 12), ("optimizer", "sgd"), ("lr", 0.5), ("weight_decay", 0.5)),
        *(("clip", 2.0), ("clip", None), ("sampling", "epochs"), ("drop_last", True)),
        *(("corpus", "storybook:41"), ("text", "x"), ("documents", 3), ("tokenizer", "characters")),
        *(("max_vocab", 99), ("min_freq", 3), ("rows", (1, 2)), ("schedule", "linear")),
        *(("device", "cuda"), ("dtype", "float64"), ("edits", ("7:hidden:0,0=1",))),
    ],
)
def test_a_changed_option_is_refused_by_its_name(name: str, value: Any):
    given = (
        "--no-clip" if (name, value) == ("clip", None) else f"--{name.replace('_', '-')} {value}"
    )
    with refused(f"{given} would change the numbers"):
        tiny().resumed_with({name: value})


def test_options_that_change_no_number():
    given = {"steps": 99, "eval_every": 7, "checkpoint_every": 3, "keep_every": 9}
    given |= {"sample_every": 0, "breaks": ("loss > 8",)}
    changed = tiny().resumed_with({**given, "model": "mlp", "seed": 11, "width": 8})
    assert changed == replace(tiny(), **given)
    assert RunOptions.from_json(json.loads(json.dumps(changed.to_json()))) == changed


def test_steps_of_a_schedule_that_falls():
    options = tiny(schedule="cosine:warmup=5")
    with refused(f"--steps 99 would change the numbers: the schedule {options.schedule!r} falls"):
        options.resumed_with({"steps": 99})
    assert options.resumed_with({"steps": STEPS}) == options


def failed(nest: Nest, run: RunDirectory, *words: str) -> None:
    """Resumed, it refuses, and what is there stays as it was."""
    before = run.metrics.read_bytes()
    assert nest.train(run) == 1
    state, why = standing(run)
    assert state == "failed"
    for word in words:
        assert word in str(why)
    assert "Traceback" not in said(run)
    assert run.metrics.read_bytes() == before


def test_other_data(nest: Nest, tmp_path: Path):
    text, walk = tmp_path / "text", {**TINY, "lines": True}
    stories = [f"Lily found {number} balls near the old tree.\n" for number in range(99)]
    text.write_text("".join(stories))
    del walk["corpus"]
    options = RunOptions.by_protocol({**walk, "text": str(text), "model": "mlp"}, steps=10)
    options = replace(options, device="cpu")
    run = made(tmp_path / "run", options)
    assert nest.train(run) == 0
    change(run, steps=20)
    text.write_text("".join(stories).replace("ball", "book"))
    same_ids = nest.train(run)  # another word with the same ID: the same numbers
    text.write_text("".join(stories[:-1]))
    if same_ids == 0:
        change(run, steps=25)
    failed(nest, run, "the texts, or how they are cut, are others than when", "bring back")
    text.write_text("".join(stories))
    assert nest.train(run) == 0


@pytest.mark.parametrize(("name", "told"), [("torch", "torch was 1.0.1"), ("device", "the device")])
def test_another_version_or_device(name: str, told: str, nest: Nest, tmp_path: Path):
    run = made(tmp_path / "run", tiny(steps=10))
    assert nest.train(run) == 0
    change(run, steps=20)
    path = run.checkpoints / "step-00000010" / "state.json"
    content = path.read_bytes()
    path.write_text(json.dumps({**json.loads(content), name: "1.0.1"}))
    failed(nest, run, told, "was 1.0.1 when the checkpoint of step 10 was saved", "new run")
    path.write_bytes(content)
    assert nest.train(run) == 0


def test_a_damaged_checkpoint(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    """It is named; without it the run goes on from the one before."""
    run = made(tmp_path / "run", tiny(keep_every=5))
    assert nest.train(run, kill_in=[28, "hidden"]) == -9
    damaged = run.checkpoints / "step-00000025"
    (damaged / "state.safetensors").write_bytes(b"x")
    failed(nest, run, f"the checkpoint {str(damaged)!r} is damaged: delete it")
    shutil.rmtree(damaged)
    assert nest.train(run) == 0
    assert_same(run, whole["mlp"])


def test_another_number_of_threads(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    """It computes in as many as before, and says so."""
    run = made(tmp_path / "run", tiny({"model": "multihead"}))
    assert nest.train(run, kill_in=[13, "hidden"]) == -9
    assert nest.train(run, threads=2) == 0
    assert "computing in 1 threads as before, not 2: sums depend on it" in said(run)
    assert_same(run, whole["multihead"])


def test_another_corpus_that_is_gone(nest: Nest, tmp_path: Path):
    """A sentence, and no traceback, in worker.json and the log."""
    text = tmp_path / "text"
    text.write_text("Lily found a ball. " * 40)
    walk = {**TINY, "text": str(text), "model": "mlp"}
    del walk["corpus"]
    run = made(tmp_path / "run", replace(RunOptions.by_protocol(walk, steps=5), device="cpu"))
    text.unlink()
    assert nest.train(run) == 1
    assert standing(run)[0] == "failed"
    assert str(text) in str(standing(run)[1])
    assert "Traceback" not in said(run)


# --- numbers that are not finite ------------------------------------------------------------------

INJECTED = {
    "7:hidden:0,0=nan": "loss is nan and gradients.norm is nan at step 7: the update is withheld;"
    " the first state that went bad: hidden[0,0] is nan; 1 of 1,024 cells are not finite",
    f"6:parameters.{WEIGHT}:1,2=nan": f"first state that went bad: parameters.{WEIGHT}[1,2] is nan",
    "7:logits:3,4=inf": "first state that went bad: logits[3,4] is inf",
    f"7:gradients.{WEIGHT}:0,1=-inf": "gradients.norm is inf at step 7: the update is withheld;"
    f" the first state that went bad: gradients.{WEIGHT}[0,1] is -inf",
    "7:loss:=nan": "first state that went bad: loss is nan",
}


@pytest.mark.parametrize("edit", INJECTED)
async def test_where_numbers_went_bad(
    edit: str, nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """The run stands before the update of that step, at the first state that is not finite."""
    run = made(tmp_path / "run", tiny(edits=(edit,)))
    async with paused(nest, run) as (started, client):
        state, why = standing(run)
        assert INJECTED[edit] in str(why)
        assert "at step 7: the update is withheld" in str(why)
        assert metrics(run) == metrics(whole["mlp"])[:6]
        status = await client.ask("status")
        assert (state, status["step"]) == ("paused", 6)
        step, name = at(await look(client))
        assert step == 7
        assert name in (edit.split(":")[1], "batch.X")
        await client.ask("stop")
        assert started.wait() == 0


async def test_going_on_without_the_update(
    nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path
):
    """A step that went bad counts: its line is there, its update is not; killed meanwhile, the run
    pauses there again."""
    options = tiny(edits=("7:hidden:0,0=nan",), checkpoint_every=1, keep_every=1)
    run, other = made(tmp_path / "run", options), made(tmp_path / "other", options)
    async with paused(nest, other) as (started, client):
        started.kill()
    for each in (run, other):
        async with paused(nest, each) as (started, client):
            await client.ask("resume")
            assert started.wait() == 0
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert rows[6] == {"step": 7, "loss": "nan", "lr": 0.001, "grad_norm": "nan"}
    bad = {row["step"] for row in rows if isinstance(row["loss"], str)}
    assert bad == {7}
    assert rows[7] != metrics(whole["mlp"])[7]  # an update fewer
    assert tensors(run, 6) == tensors(run, 7)
    assert tensors(run, 7) != tensors(run, 8)
    assert_same(other, run)


def test_training_on_with_nan(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    run = made(tmp_path / "run", tiny(edits=("7:hidden:0,0=nan",), nonfinite=False))
    assert nest.train(run) == 0
    rows = metrics(run)
    assert rows[:6] == metrics(whole["mlp"])[:6]
    assert {row["loss"] for row in rows[6:]} == {"nan"}
    assert rows[9]["val_loss"] == "nan"
    assert not lines(run.samples)
    assert standing(run) == ("finished", None)


@pytest.mark.parametrize("model", MODELS)
def test_a_learning_rate_that_is_far_too_large(model: str, nest: Nest, tmp_path: Path):
    """No text can be sampled then: that ends no run."""
    given = {"model": model, "lr": 1e30, "optimizer": "sgd", "clip": None}
    run = made(tmp_path / "run", tiny(given, sample_every=1))
    with nest.working(run) as started:
        started.reaches("paused")
        why = standing(run)[1]
        assert "the update is withheld; the first state that went bad: " in str(why)
        assert "batch." not in str(why)


# --- the commands ---------------------------------------------------------------------------------

TRAIN = ["train", "--no-screen", "--model", "mlp", "--device", "cpu"]
TRAIN += [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
TRAIN += ["--eval-every", "10", "--checkpoint-every", "5", "--sample-every", "10"]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=120)


def test_trained_followed_and_resumed(
    whole: dict[str, RunDirectory], state_home: Path, tmp_path: Path
):
    """One object a step, as in metrics.jsonl; then, resumed, a line for each of the new steps."""
    ended = command(*TRAIN, "--steps", str(STEPS), "--name", "one", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    run = RunDirectory(state_home / "one")
    assert ended.stdout == run.metrics.read_text()
    assert_same(run, whole["mlp"])

    for more in (["--name", "one"], ["--run-dir", str(run.path)], ["--resume", "one", "--lr", "9"]):
        again = command(*TRAIN, *more)
        assert again.returncode == 2
        assert again.stderr.startswith("tensorstep: ")
        assert again.stderr.count("\n") == 1
        assert "--resume" in again.stderr or "--lr 9.0 would change" in again.stderr
    (tmp_path / "file").write_text("x")
    again = command(*TRAIN, "--run-dir", str(tmp_path))
    assert again.returncode == 2
    assert "has files that are no run's: give an empty directory" in again.stderr

    ended = command("train", "--no-screen", "--resume", "one", "--steps", str(STEPS + 10))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line.split("  ")[0] for line in ended.stdout.splitlines()] == [
        f"step {step} of {STEPS + 10}" for step in range(STEPS + 1, STEPS + 11)
    ]
    assert "validation" in ended.stdout.splitlines()[-1]


def test_a_breakpoint_ends_the_following_and_stop_the_run(state_home: Path):
    ended = command(*TRAIN, "--name", "held", "--break", "step == 5")
    assert ended.returncode == 1
    assert ended.stderr == (
        "tensorstep: the run 'held' is paused: step == 5 at step 5; `tensorstep attach held` shows"
        " it\n"
    )
    run = RunDirectory(state_home / "held")
    worker = run.read_worker()
    assert worker is not None
    try:
        assert run.state() == "paused"
        assert command("train", "--no-screen", "--resume", "held").returncode == 2
        listed = json.loads(command("runs", "--json").stdout)
        (row,) = (each for each in listed if each["name"] == "held")
        assert {**row, "loss": None, "age": None} == {
            **{"name": "held", "dir": str(run.path), "host": socket.gethostname()},
            **{"pid": worker.pid, "state": "paused", "step": 5, "loss": None, "age": None},
        }
        assert row["loss"] == lines(run.metrics)[-1]["loss"]
        assert row["age"] >= 0
        stopped = command("stop", "held")
        assert (stopped.returncode, stopped.stdout) == (0, "held is stopped at step 5\n")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    again = command("stop", "held")
    assert (again.returncode, "does not go on: it was stopped" in again.stderr) == (2, True)
    table = command("runs").stdout.splitlines()
    assert table[0].split() == ["name", "state", "step", "loss", "age", "host", "pid", "dir"]
    assert any(line.split()[:3] == ["held", "stopped", "5"] for line in table)


def test_ctrl_c_leaves_the_run_going(state_home: Path):
    """And whoever looks no more, as `head`, does not end it either."""
    words = [COMMAND, *TRAIN, "--name", "left", "--steps", str(ENDLESS), "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        run = RunDirectory(state_home / "left")
        try:
            assert json.loads(process.stdout.readline())["step"] == 1
            process.send_signal(signal.SIGINT)
            told = process.stderr.read()
            assert process.wait(60) == 0
            process.stdout.close()
            assert "`tensorstep attach left` comes back, `tensorstep stop left` ends it" in told
            assert "Traceback" not in told
            going(run, 20)
            assert run.state() == "running"
        finally:
            process.kill()
            worker = run.read_worker()
            if worker is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGTERM)
    until(lambda: run.state() == "stopped", "the end of the run")


def test_following_a_run_that_is_killed(nest: Nest, tmp_path: Path):
    run = made(tmp_path / "run", tiny(breaks=("step == 9",)))
    with nest.working(run) as started:
        started.reaches("paused")
    with refused("the run 'run' has died", str(run.log), code=1):
        follow(run, as_json=False)


def test_following_a_run_that_fails(nest: Nest, tmp_path: Path):
    run = made(tmp_path / "run", tiny(steps=10))
    assert nest.train(run) == 0
    path = run.checkpoints / "step-00000010" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "torch": "0"}))
    assert nest.train(run) == 1
    with refused("the run 'run' has failed: torch was 0 when", str(run.log), code=1):
        follow(run, as_json=True)


def test_nobody_reads_what_is_followed(
    whole: dict[str, RunDirectory], monkeypatch: pytest.MonkeyPatch
):
    """`| head` has seen enough: no failure."""
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert follow(whole["mlp"], as_json=True) == 0


def test_names_count_up(state_home: Path):
    values = {**TINY, "model": "mlp", "steps": 3}
    names = [run_commands.started(values).name for _ in range(3)]
    assert names == ["mlp-1", "mlp-2", "mlp-3"]
    assert {RunDirectory(state_home / name).state() for name in names} == {"died"}
    with refused("there is a run called 'mlp-2': give another --name, or --resume mlp-2"):
        run_commands.started({**values, "name": "mlp-2"})


def test_resumed_with_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However its path is written; another one is refused."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("Lily found a ball. " * 40)
    Path("other").write_text("Lily found a ball. " * 40)
    values = {"text": "text", "model": "mlp", "run_dir": "run"}
    run = run_commands.started(values)
    again = {key: value for key, value in values.items() if key != "run_dir"}
    assert run_commands.resumed({**again, "resume": "run"}).path == run.path
    with refused("--text", "would change the numbers"):
        run_commands.resumed({"text": "other", "resume": "run"})


async def test_a_run_on_another_host(nest: Nest, whole: dict[str, RunDirectory], tmp_path: Path):
    """It is told where, by whatever would need its process."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(whole["mlp"].path, run.path)
    worker = run.read_worker()
    assert worker is not None
    run.write_worker(replace(worker, host="gpu-7", state="running"))
    assert asdict(run.read_worker() or worker)["host"] == "gpu-7"
    assert run.state() == run.standing()["state"] == "elsewhere"
    with refused("is on gpu-7, this is", "`ssh gpu-7`", code=1):
        await RunClient(run).start()
    for what in (run_commands.chosen_run, run_commands.stop):
        with refused("is on gpu-7", "`ssh gpu-7`", code=1):
            what(str(run.path))
    listed = command("runs", "--run-dir", str(run.path))
    assert listed.stdout.splitlines()[1].split()[:2] == ["whole", "elsewhere"]


def test_attach_without_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with refused("no run is going: `tensorstep train` starts one"):
        run_commands.chosen_run(None)
    with refused("no run is called 'x'", code=1):
        run_commands.chosen_run("x")


def test_a_worker_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What it said last is told."""
    run = made(tmp_path / "run")
    monkeypatch.setattr(run_commands, "COMMAND", (sys.executable, "-c", "raise SystemExit('no!')"))
    with refused("the run 'run' did not start: no!", code=1):
        run_commands.wait_for(run, run_commands.launch(run))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"json": True}, "--json goes with --no-screen"),
        ({"name": "x", "run_dir": "y"}, "--name and --run-dir are both given"),
        ({"resume": "x", "name": "y"}, "--resume names the run already"),
        ({"resume": "x", "run_dir": "y"}, "--resume names the run already"),
        ({"clip": 1.0, "no_clip": True}, "--clip and --no-clip are both given"),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, Any], told: str):
    with refused(told):
        run_commands.train(argparse.Namespace(**given), open_screen=None)
