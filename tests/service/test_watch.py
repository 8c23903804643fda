"""Watching a loop that is not ours: what is written, what is seen while it stands still, and that
the loop never notices, whatever goes wrong."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import math
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import engine
from engine.errors import TensorstepError
from engine.maps import MODULE, TRAINING, map_of, stage_of, title_of
from engine.runs.directory import RunDirectory, runs_in
from engine.service import recording, watched_loop, watched_rows
from engine.service.connection import WorkerDied
from engine.service.recording import bare_model, bare_optimizer, first_tensor
from engine.service.run_client import RunClient
from engine.service.watched_loop import Watching
from engine.service.watching import Watched

WALK = {"map": TRAINING, "model": MODULE}
MOST = 20_000  # steps in which a visit is over
Visit = Callable[[RunClient], Awaitable[None]]


class Loop:
    """A plain training loop over two layers, of which everything is known."""

    def __init__(self, optimizer: str = "AdamW"):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.01)
        self.batches = torch.Generator().manual_seed(5)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.x = torch.empty(0)
        self.before: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}

    def step(self) -> Tensor:
        self.x = torch.randn(5, 4, generator=self.batches)
        y = torch.randint(3, (5,), generator=self.batches)
        loss = F.cross_entropy(self.model(self.x), y)
        loss.backward()
        named = dict(self.model.named_parameters())
        self.before = {name: value.detach().clone() for name, value in named.items()}
        self.gradients = {name: value.grad.clone() for name, value in named.items()}
        self.norms.append(nn.utils.get_total_norm(list(self.gradients.values())).item())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())
        return loss


def rows_of(run: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def visited(run: Watched, folder: Path, visit: Visit, step: Callable[[], Any]) -> int:
    """Step a loop as long as a screen visits it. Returns how many steps there were."""
    failed: list[BaseException] = []

    async def attach() -> None:
        client = RunClient(RunDirectory(folder))
        await client.start()
        try:
            await visit(client)
        finally:
            await client.close()

    def work() -> None:
        try:
            asyncio.run(asyncio.wait_for(attach(), 150))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    steps = 0
    while thread.is_alive() and steps < MOST:
        run.step(step())
        steps += 1
        time.sleep(0.001)
    thread.join()
    if failed:
        raise failed[0]
    return steps


async def paused(client: RunClient) -> dict[str, Any]:
    """Pause it. Returns how it stands then."""
    await client.ask("pause")
    return await until(client, "paused")


async def until(client: RunClient, state: str) -> dict[str, Any]:
    while (status := await client.ask("status"))["state"] != state:
        await asyncio.sleep(0.01)
    return status


async def names_of(client: RunClient) -> list[str]:
    names, told = [], await client.ask("look", **WALK)
    while told["moved"]:
        names.append(told["state"]["name"])
        told = await client.ask("move", how="forward", **WALK)
    return names


async def cells(client: RunClient, name: str, step: int, *size: int) -> Tensor:
    """A table's cells, of at most two axes."""
    rows, columns = (*size, 1)[:2]
    asked = {"name": name, "step": step, "fixed": [], "rows": [0, rows], "columns": [0, columns]}
    header, raw = await client.ask_bytes("table", **asked, **WALK)
    numbers = struct.unpack(f"{rows * columns}{header['code']}", raw)
    return torch.tensor(numbers).reshape(size)


# --- what is written ------------------------------------------------------------------------------


def test_the_metrics_are_the_loops_own(tmp_path: Path):
    """Every step has a line: loss, learning rate and time to the last digit; the norm of the
    gradients where it was measured."""
    loop, began = Loop(), time.time()
    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "mine", steps=40) as run:
        for k in range(40):
            loss = loop.step()
            loop.optimizer.param_groups[0]["lr"] = 0.01 / (k + 2)  # of the next step
            run.step(loss, targets=5)
    directory = RunDirectory(tmp_path / "mine")
    rows = rows_of(directory)
    assert [row["step"] for row in rows] == list(range(1, 41))
    assert [row["loss"] for row in rows] == loop.losses
    assert [row["lr"] for row in rows] == [0.01 / (k + 1) for k in range(40)]
    assert all(began - 1 <= row["time"] <= time.time() for row in rows)
    norms = {k: row["grad_norm"] for k, row in enumerate(rows) if row["grad_norm"] is not None}
    assert 0 in norms
    assert norms == {k: loop.norms[k] for k in norms}
    assert rows[0]["targets_per_second"] is None
    assert all(row["targets_per_second"] > 0 for row in rows[1:] if row["time"] > began + 1)
    assert list(rows[0]) == ["step", "loss", "lr", "grad_norm", "targets_per_second", "time"]
    assert directory.state() == "finished"
    assert directory.standing()["step"] == 40
    assert directory.read_config()["kind"] == "watched"
    assert directory.read_config()["model"] == "Sequential"
    assert not Path(directory.read_worker().socket).exists()


@pytest.mark.parametrize(
    ("loss", "written"),
    [
        (1.5, 1.5),
        (2, 2.0),
        (None, None),
        (math.nan, "nan"),
        (torch.tensor(math.inf), "inf"),
        (torch.tensor([-math.inf]), "-inf"),
        (torch.tensor([1.0, 2.0]), 1.5),
        (torch.tensor(0.1, dtype=torch.bfloat16), 0.10009765625),
        (torch.tensor(3), 3),
    ],
)
def test_any_loss(tmp_path: Path, loss: Any, written: Any):
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        run.step(loss)
    (row,) = rows_of(RunDirectory(tmp_path / "run"))
    assert row["loss"] == written
    assert row["lr"] is None
    assert row["grad_norm"] is None


def test_a_loss_that_is_changed_in_place_afterwards(tmp_path: Path):
    total = torch.zeros(())
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        for k in range(5):
            total += k
            run.step(total)
            total.zero_()
    assert [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))] == [0, 1, 2, 3, 4]


def test_a_norm_that_the_loop_knows(tmp_path: Path):
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        run.step(1.0, grad_norm=torch.tensor(0.25))
    assert rows_of(RunDirectory(tmp_path / "run"))[0]["grad_norm"] == 0.25


def test_names_that_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A training does not fail for a name: another is taken, in the folder of runs or beside."""
    monkeypatch.setattr("engine.service.watched_files.runs_folder", lambda: tmp_path / "runs")
    for _ in range(3):
        with engine.watch(nn.Linear(1, 1), name="my run!") as run:
            run.step(1.0)
        with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "own") as run:
            run.step(1.0)
    names = {run.name for run in runs_in(tmp_path / "runs")}
    assert names == {"my-run", "my-run-2", "my-run-3"}
    assert {path.name for path in tmp_path.glob("own*")} == {"own", "own-2", "own-3"}


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (ValueError("the data is gone"), "failed", "ValueError: the data is gone"),
        (RuntimeError(), "failed", "RuntimeError"),
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt"),
        (SystemExit(0), "finished", None),
        (SystemExit(3), "failed", "SystemExit: 3"),
    ],
)
def test_a_loop_that_raises(tmp_path: Path, error: BaseException, state: str, why: str | None):
    """The exception goes on its way, and is told of."""

    def fails() -> None:
        with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
            run.step(1.0)
            raise error

    with pytest.raises(type(error)) as raised:
        fails()
    assert raised.value is error
    worker = RunDirectory(tmp_path / "run").read_worker()
    assert (worker.state, worker.why) == (state, why)
    assert len(rows_of(RunDirectory(tmp_path / "run"))) == 1


ENDS = """
import sys, engine
from torch import nn
run = engine.watch(nn.Linear(1, 1), run_dir=sys.argv[1])
for k in range(1000):
    run.step(float(k))
{}
"""


@pytest.mark.parametrize(
    ("last", "state"), [("", "finished"), ("raise ValueError('no')", "failed")]
)
def test_a_process_that_ends_without_closing(tmp_path: Path, last: str, state: str):
    command = [sys.executable, "-c", ENDS.format(last), str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, timeout=120)
    assert (ended.returncode == 0) == (state == "finished")
    run = RunDirectory(tmp_path / "run")
    assert run.state() == state
    assert [row["loss"] for row in rows_of(run)] == [float(k) for k in range(1000)]


# --- nothing reaches the loop ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1, 2],), "the model is of type list"),
        ((nn.Linear(1, 1), "adam"), "the optimizer is of type str"),
        ((None,), "the model is of type NoneType"),
    ],
)
def test_mistakes_are_said_and_raise_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: Any, said: str
):
    with engine.watch(*arguments, run_dir=tmp_path / "run") as run:
        run.step(torch.tensor(1.0))
    assert not run.stopping
    told = capsys.readouterr().err
    assert told.startswith("tensorstep: this loop is not watched: ")
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("in the way")
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "file" / "run") as run:
        run.step(1.0)
    assert "not watched: no run can be kept in" in capsys.readouterr().err


@pytest.mark.parametrize("rank", ["1", "7"])
def test_other_ranks_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str):
    monkeypatch.setenv("RANK", rank)
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        run.step(1.0)
    assert not (tmp_path / "run").exists()


def broken(*_: Any, **__: Any) -> Any:
    raise ValueError("broken on purpose")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (watched_loop, "taken"),
        (watched_loop.GradientNorm, "measure"),
        (watched_rows.Rows, "_made"),
        (watched_loop.Watching, "_attend"),
    ],
)
def test_what_goes_wrong_here_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str
):
    """The loop goes on, its numbers the same; the log has why it is not watched any more."""
    plain, loop = Loop(), Loop()
    monkeypatch.setattr(where, what, broken)
    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        for k in range(20):
            plain.step()
            loss = loop.step()
            run.step(loss if k < 5 else 1)
            time.sleep(0.03)
    run.step(1.0)
    assert loop.losses == plain.losses
    directory = RunDirectory(tmp_path / "run")
    worker = directory.read_worker()
    assert worker.state == "failed"
    assert "watching was given up" in worker.why
    assert "broken on purpose" in directory.log.read_text()
    assert directory.log.read_text().count("Traceback") == 1
    assert not loop.optimizer._optimizer_step_pre_hooks
    assert not Path(worker.socket).exists()


@pytest.mark.parametrize("what", ["_keep", "take", "close", "__init__"])
def test_what_goes_wrong_while_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    plain, loop = Loop(), Loop()
    monkeypatch.setattr(recording.Recording, what, broken)

    async def visit(client: RunClient) -> None:
        with pytest.raises(WorkerDied):
            await paused(client)

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        steps = visited(run, tmp_path / "run", visit, loop.step)
    for _ in range(steps):
        plain.step()
    assert loop.losses == plain.losses
    assert RunDirectory(tmp_path / "run").read_worker().state == "failed"


def test_a_full_disk_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lines that the disk does not take are written, in order, when there is room."""
    full = [True]
    append = watched_rows.disk.append

    def maybe(number: int, content: bytes) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        append(number, content)

    monkeypatch.setattr(watched_rows.disk, "append", maybe)
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        for k in range(10):
            run.step(float(k))
            time.sleep(0.05)
        full[0] = False
        run.step(10.0)
    assert [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))] == list(range(11))


def test_data_loaders_with_workers(tmp_path: Path):
    """Forked children neither write nor answer, nor keep the run's lock."""
    data = TensorDataset(torch.arange(12.0).reshape(12, 1))
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        loader = DataLoader(data, batch_size=3, num_workers=2, persistent_workers=True)
        for _ in range(2):
            for (batch,) in loader:
                run.step(batch.sum())
        assert RunDirectory(tmp_path / "run").is_held()
        run.close()
        assert RunDirectory(tmp_path / "run").state() == "finished"  # the workers are still there
    losses = [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))]
    assert losses == [3.0, 12.0, 21.0, 30.0] * 2


def test_a_child_that_steps_writes_nothing(tmp_path: Path):
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "run") as run:
        run.step(1.0)
        child = os.fork()
        if child == 0:
            try:
                run.step(2.0)
                run.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert RunDirectory(tmp_path / "run").state() == "running"
        run.step(3.0)
    assert [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))] == [1.0, 3.0]


# --- standing still -------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_a_paused_step(tmp_path: Path, optimizer: str):
    """Activations, gradients, parameters and optimizer state are those of the step, and the losses
    are the same as without a pause, bit for bit."""
    loop, plain = Loop(optimizer), Loop(optimizer)

    async def visit(client: RunClient) -> None:
        facts = await client.open()
        assert (facts["kind"], facts["model"], facts["class"]) == ("watched", MODULE, "Sequential")
        for _ in range(2):
            status = await paused(client)
            await look_into(client, loop, status["step"])
            await client.ask("resume")
            await until(client, "running")

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        steps = visited(run, tmp_path / "run", visit, loop.step)
        assert not any(module._forward_hooks for module in loop.model.modules())
        assert loop.optimizer._optimizer_step_pre_hooks
    assert not loop.optimizer._optimizer_step_pre_hooks
    for _ in range(steps):
        plain.step()
    assert loop.losses == plain.losses
    assert [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))] == plain.losses


async def look_into(client: RunClient, loop: Loop, step: int) -> None:
    """What is told of a paused step, against the loop's own copies and arithmetic."""
    assert step == len(loop.losses)
    adam = isinstance(loop.optimizer, torch.optim.AdamW)
    names = list(loop.before)
    kept = [f"optimizer.{n}.{k}" for n in names for k in ("exp_avg", "exp_avg_sq")] if adam else []
    assert await names_of(client) == [
        *("modules.0", "modules.1", "modules.2", "modules.Sequential", "loss"),
        *(f"gradients.{name}" for name in names),
        "gradients.norm",
        *kept,
    ]
    hidden = F.linear(loop.x, loop.before["0.weight"], loop.before["0.bias"])
    passed = hidden.relu()
    logits = F.linear(passed, loop.before["2.weight"], loop.before["2.bias"])
    assert torch.equal(await cells(client, "modules.0", step, 5, 6), hidden)
    assert torch.equal(await cells(client, "modules.1", step, 5, 6), passed)
    assert torch.equal(await cells(client, "modules.2", step, 5, 3), logits)
    assert torch.equal(await cells(client, "modules.Sequential", step, 5, 3), logits)
    assert (await cells(client, "loss", step, 1)).item() == loop.losses[-1]
    norm = await cells(client, "gradients.norm", step, 1)
    assert norm.item() == loop.norms[-1]
    for name, parameter in loop.model.named_parameters():
        size = tuple(parameter.shape)
        gradient = await cells(client, f"gradients.{name}", step, *size)
        assert torch.equal(gradient, loop.gradients[name])
        assert torch.equal(await cells(client, f"parameters.{name}", step, *size), parameter)
        if step > 1:
            before = await cells(client, f"parameters.{name}", step - 1, *size)
            assert torch.equal(before, loop.before[name])
        if adam:
            own = loop.optimizer.state[parameter]["exp_avg"]
            assert torch.equal(await cells(client, f"optimizer.{name}.exp_avg", step, *size), own)
    await look_around(client, loop, step)


async def look_around(client: RunClient, loop: Loop, step: int) -> None:
    """Explanations, spreads, norms; and what is refused."""
    told = await client.ask("explain", name="modules.0", step=step, cell=[0, 0], **WALK)
    assert "Linear" in told["note"]
    assert "code that is not ours" in told["note"]
    told = await client.ask("explain", name="gradients.norm", step=step, cell=[], **WALK)
    assert told["count"] == 4
    spread = await client.ask("summary", name="gradients.0.bias", step=step, **WALK)
    assert spread["max"] == loop.gradients["0.bias"].max().item()
    norms = await client.ask("norms", step=step, **WALK)
    assert [row["name"] for row in norms["rows"]] == list(loop.before)
    row = norms["rows"][0]
    assert row["gradient"] == pytest.approx(loop.gradients["0.weight"].double().norm().item())
    change = loop.model[0].weight.detach().double() - loop.before["0.weight"].double()
    assert row["update"] == pytest.approx(change.norm().item())
    listed = await client.ask("parameters", **WALK)
    assert listed["names"] == [f"parameters.{name}" for name in loop.before]
    losses = await client.ask("losses", **WALK)
    assert losses["losses"][-5:] == loop.losses[-5:]
    for method, asked, said in (
        ("edit", {"name": "loss", "step": step, "cell": [], "value": "1"}, "only looked at"),
        ("undo", {}, "only looked at"),
        ("follow", {"name": "0.weight", "cell": [0, 0]}, "only looked at"),
        ("look", {"map": "generation"}, "no other map or model"),
        ("look", {"model": "mlp"}, "no other map or model"),
    ):
        with pytest.raises(TensorstepError, match=said):
            await client.ask(method, **{**WALK, **asked})
    with pytest.raises(TensorstepError, match="not known"):
        await client.ask("audit")


def test_while_it_goes_on(tmp_path: Path):
    """Walks wait for a pause; who only reads changes nothing; stop sets a flag."""
    loop = Loop()

    async def visit(client: RunClient) -> None:
        with pytest.raises(TensorstepError, match="pause it first"):
            await client.ask("look", **WALK)
        with pytest.raises(TensorstepError, match="states"):
            await client.ask("breakpoints", add='norm("gradients.0.bias") > 1')
        with pytest.raises(TensorstepError, match="a loop of your own"):
            await client.ask("stop")
        status = await client.ask("status")
        assert (status["state"], status["steps"], status["walk"]) == ("running", 9, False)
        assert status["memory"] > 0
        reader = RunClient(client.run, read_only=True)
        await reader.start()
        await reader.open()
        for method in ("pause", "resume", "stop", "breakpoints"):
            with pytest.raises(TensorstepError, match="only reads"):
                await reader.ask(method)
        await reader.close()

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run", steps=9) as run:
        assert not run.stopping
        visited(run, tmp_path / "run", visit, loop.step)
        assert run.stopping
    assert RunDirectory(tmp_path / "run").state() == "stopped"


def test_a_breakpoint(tmp_path: Path):
    """It stands still at the very step, which was recorded."""
    loop = Loop()

    async def visit(client: RunClient) -> None:
        at = (await client.ask("status"))["step"] + 2000
        await client.ask("breakpoints", add=f"step >= {at} and loss > 0")
        status = await until(client, "paused")
        assert status["why"] == f"step >= {at} and loss > 0 at step {at}"
        assert status["step"] == len(loop.losses) == at
        bias = await cells(client, "gradients.2.bias", at, 3)
        assert torch.equal(bias, loop.gradients["2.bias"])

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        visited(run, tmp_path / "run", visit, loop.step)


def test_a_loss_that_is_not_finite(tmp_path: Path):
    """It is told; the loop stands still only where a screen is attached."""
    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "alone") as run:
        run.step(1.0)
        for _ in range(4):
            run.step(math.nan)
            time.sleep(0.2)
        run.step(1.0)
    assert "loss is nan at step 2" in RunDirectory(tmp_path / "alone").log.read_text()
    gone = threading.Event()

    async def visit(client: RunClient) -> None:
        await client.open()
        await asyncio.sleep(0.6)
        gone.set()
        status = await until(client, "paused")
        assert "loss is nan at step" in status["why"]

    with engine.watch(nn.Linear(1, 1), run_dir=tmp_path / "seen") as run:
        visited(run, tmp_path / "seen", visit, lambda: math.nan if gone.is_set() else 1.0)


def test_the_last_screen_that_leaves(tmp_path: Path):
    """A loop that nobody looks at goes on."""
    loop = Loop()

    async def visit(client: RunClient) -> None:
        await paused(client)

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        steps = visited(run, tmp_path / "run", visit, loop.step)
        for _ in range(3):
            run.step(loop.step())
    assert len(rows_of(RunDirectory(tmp_path / "run"))) == steps + 3


def test_giving_up_while_it_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another thread's mistake does not leave the loop standing."""
    loop = Loop()

    async def visit(client: RunClient) -> None:
        await paused(client)
        monkeypatch.setattr(Watching, "_attend", broken)
        with pytest.raises(WorkerDied):
            await until(client, "never")

    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        visited(run, tmp_path / "run", visit, loop.step)
        run.step(loop.step())


# --- recording ------------------------------------------------------------------------------------


class Shared(nn.Module):
    """Calls a layer twice, changes an output in place, returns things packed up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        first = self.layer(x)
        kept = first.detach().clone()
        first.mul_(0.0).add_(1.0)
        return {"name": "it", "out": (None, self.layer(first)), "kept": kept}


def test_a_layer_that_is_called_twice_and_written_over():
    model, x = Shared(), torch.randn(2, 3)
    made = recording.Recording(model, lambda error: pytest.fail(str(error)))
    out = model(x)
    model.eval()
    with torch.no_grad():
        model(x)  # an evaluation is no part of the step
    made.close()
    model(x)
    assert [each.name for each in made.activations] == ["layer", "layer#2", "Shared"]
    assert torch.equal(made.activations[0].value, out["kept"])
    assert torch.equal(made.activations[2].value, out["out"][1])


def test_what_is_computed_again_in_backward_is_not_recorded():
    layer = nn.Linear(3, 3)
    made = recording.Recording(layer, lambda error: pytest.fail(str(error)))
    x = torch.randn(2, 3, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    made.close()
    assert [each.name for each in made.activations] == ["Linear"]


def test_a_model_that_is_copied_or_saved_while_it_is_recorded():
    """Nothing of the recording goes along, and the copy works without it."""
    model, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3)
    made = recording.Recording(model, lambda error: pytest.fail(str(error)))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x), F.linear(x, model[0].weight, model[0].bias))
    made.close()
    assert made.activations == []


def test_a_model_that_does_not_fit(monkeypatch: pytest.MonkeyPatch):
    """What there is no room for is left out, and named."""
    monkeypatch.setattr(recording, "SHARE", 0.0)
    model = nn.Linear(3, 3)
    made = recording.Recording(model, lambda error: pytest.fail(str(error)))
    model(torch.randn(2, 3))
    made.take()
    made.close()
    assert made.activations == []
    assert made.left_out == ["Linear"]


def test_a_forward_that_raises_while_it_is_recorded():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    made = recording.Recording(model, lambda error: pytest.fail(str(error)))
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.randn(2, 3))
    made.close()
    assert [each.name for each in made.activations] == ["0"]
    assert not any(module._forward_hooks for module in model.modules())


def test_what_is_put_around_models_and_optimizers():
    model = nn.Linear(2, 2)
    assert bare_model(torch.compile(nn.DataParallel(model), backend="eager")) is model
    optimizer = torch.optim.SGD(model.parameters())

    class Wrapper:
        def __init__(self, optimizer: Any):
            self.optimizer = optimizer

    assert bare_optimizer(Wrapper(Wrapper(optimizer))) is optimizer
    own = nn.Sequential()
    own.module = model  # a part that is merely called so
    assert bare_model(own) is own
    assert first_tensor([None, {"a": 1}]) is None


def test_a_fused_optimizer_under_a_scaler(tmp_path: Path):
    """It gets scaled gradients and the scale: both are told without it."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    norms = []
    with engine.watch(model, optimizer, run_dir=tmp_path / "run") as run:
        loss = model(torch.ones(3, 2)).pow(2).mean()
        scaler.scale(loss).backward()
        norms.append(nn.utils.get_total_norm([p.grad for p in model.parameters()]).item() / 1024)
        scaler.step(optimizer)
        scaler.update()
        run.step(loss)
    assert rows_of(RunDirectory(tmp_path / "run"))[0]["grad_norm"] == norms[0]


def test_the_map_of_a_module():
    drawn = map_of(TRAINING, MODULE)
    keys = [stage.key for stage in drawn.stages]
    assert keys == ["modules", "loss", "backward", "optimizer", "parameters"]
    assert [(edge.source, edge.target) for edge in drawn.edges] == [("parameters", "modules")]
    names = ("modules.a.b", "loss", "gradients.x", "optimizer.a.exp_avg", "parameters.a")
    assert [stage_of(TRAINING, name, 1) for name in names] == keys
    assert (title_of(MODULE), title_of("mlp")) == ("your model", "window MLP")
    with pytest.raises(KeyError):
        map_of("generation", MODULE)
