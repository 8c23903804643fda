"""Loops as people write them, watched: the numbers are theirs, bit for bit, and stay so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import engine
from engine.runs.directory import RunDirectory
from engine.service.run_client import RunClient
from engine.service.watching import Watched
from tests.service.test_watch import cells, names_of, paused, rows_of, until, visited

VOCABULARY, CONTEXT, WIDTH, HEADS = 17, 8, 12, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).view(batch, length, 3, HEADS, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH)))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """As in nanoGPT: tied embeddings, and the loss out of `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block(), Block()])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class NanoGPT:
    """nanoGPT's loop: micro-batches, autocast, a scaler, clipping, a schedule by hand."""

    accumulate = 3

    def __init__(self, compiled: str | None = None):
        torch.manual_seed(7)
        self.raw = GPT()
        self.model: Any = torch.compile(self.raw, backend=compiled) if compiled else self.raw
        self.optimizer = torch.optim.AdamW(self.raw.parameters(), lr=0.01, betas=(0.9, 0.95))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        self.batches = torch.Generator().manual_seed(1)
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.clipped: list[float] = []
        self.gradient = torch.empty(0)
        torch.manual_seed(11)  # what dropout draws

    def batch(self) -> tuple[Tensor, Tensor]:
        ids = torch.randint(VOCABULARY, (4, CONTEXT + 1), generator=self.batches)
        return ids[:, :-1], ids[:, 1:]

    def step(self) -> Tensor:
        rate = 0.01 / (1 + len(self.losses) % 7)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total = torch.zeros(())
        for _ in range(self.accumulate):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _, loss = self.model(*self.batch())
                loss = loss / self.accumulate
            total += loss.detach()
            self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.raw.parameters(), 1.0)
        gradients = [each.grad for each in self.raw.parameters() if each.grad is not None]
        self.clipped.append(nn.utils.get_total_norm(gradients).item())
        self.gradient = self.raw.ln_f.weight.grad.clone()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(total.item())
        self.rates.append(rate)
        return total


def check_rows(folder: Path, loop: Any) -> None:
    """The lines of the metrics are the loop's own records, to the last bit."""
    rows = rows_of(RunDirectory(folder))
    assert [row["step"] for row in rows] == list(range(1, len(loop.losses) + 1))
    assert [row["loss"] for row in rows] == loop.losses
    assert [row["lr"] for row in rows] == loop.rates
    told = {k: row["grad_norm"] for k, row in enumerate(rows) if row["grad_norm"] is not None}
    assert told
    assert told == {k: loop.clipped[k] for k in told}


def test_nanogpts_loop(tmp_path: Path):
    """Watched, paused in the middle and looked into: the same losses as by itself."""
    loop, plain = NanoGPT(), NanoGPT()
    state = torch.get_rng_state()

    async def visit(client: RunClient) -> None:
        step = (await paused(client))["step"]
        names = await names_of(client)
        outputs = [name for name in names if name.startswith("modules.")]
        called = [name for name, part in loop.raw.named_modules() if name != "h"]
        assert len(outputs) == loop.accumulate * len(called)
        assert {"modules.h.0.c_attn", "modules.h.1.mlp.2#3", "modules.GPT#2"} <= set(outputs)
        assert f"optimizer.{'wte.weight'}.exp_avg_sq" in names
        seen = await cells(client, "gradients.ln_f.weight", step, WIDTH)
        assert torch.equal(seen, loop.gradient)
        seen = await cells(client, "parameters.wpe.weight", step, CONTEXT, WIDTH)
        assert torch.equal(seen, loop.raw.wpe.weight)
        moments = loop.optimizer.state[loop.raw.ln_f.weight]
        seen = await cells(client, "optimizer.ln_f.weight.exp_avg", step, WIDTH)
        assert torch.equal(seen, moments["exp_avg"])
        await client.ask("resume")
        await until(client, "running")

    torch.set_rng_state(state)
    with engine.watch(loop.model, loop.optimizer, run_dir=tmp_path / "run") as run:
        steps = visited(run, tmp_path / "run", visit, loop.step)
    torch.set_rng_state(state)
    for _ in range(steps):
        plain.step()
    assert loop.losses == plain.losses
    assert loop.clipped == plain.clipped
    check_rows(tmp_path / "run", loop)


# eager and aot_eager: what is tested is what dynamo and its stance do; inductor adds half a minute
# of compiling, and an iteration that is recorded differs from its kernels in the last bits
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model(tmp_path: Path, backend: str):
    """Its submodules are seen in the iteration that is recorded, which is not compiled; after it
    what was compiled is used again, and nothing is compiled anew."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=backend)
    losses: list[float] = []
    graphs: list[int] = []

    def stepper(part: Callable[..., Tensor], optimizer: torch.optim.Optimizer) -> Tensor:
        draws = torch.Generator().manual_seed(len(losses))
        loss = part(torch.randn(6, 4, generator=draws)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        return loss

    async def visit(client: RunClient) -> None:
        await client.open()
        while len(losses) < 5:
            await until(client, "running")
        for _ in range(2):
            step = (await paused(client))["step"]
            outputs = [name for name in await names_of(client) if name.startswith("modules.")]
            assert outputs == ["modules.0", "modules.1", "modules.2", "modules.Sequential"]
            hidden = await cells(client, "modules.1", step, 6, 8)
            assert hidden.abs().max() <= 1
            await client.ask("resume")
            await until(client, "running")

    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.05)
    with engine.watch(compiled, optimizer, run_dir=tmp_path / "run") as run:
        steps = visited(run, tmp_path / "run", visit, lambda: stepper(compiled, optimizer))
        for _ in range(3):
            run.step(stepper(compiled, optimizer))
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert graphs[0] == graphs[-1]
    watched = list(losses)
    losses.clear()
    other = torch.optim.SGD(twin.parameters(), lr=0.05)
    for _ in range(steps + 3):
        stepper(twin, other)
    assert losses == watched


class Wrapped:
    """An optimizer as libraries hand it out: no torch.optim.Optimizer, but it has one."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


class Callback:
    """What is told of the end of a step."""

    def __init__(self, run: Watched | None):
        self.run = run

    def on_step_end(self, trainer: Trainer) -> None:
        if self.run is not None:
            self.run.step(trainer.running)


class Trainer:
    """A loop as Hugging Face's Trainer runs it: callbacks, a scheduler that has moved on when they
    are told, evaluations in between, a running loss that is set back in place."""

    accumulate = 2

    def __init__(self, steps: int):
        torch.manual_seed(2)
        self.model = GPT()
        inner = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(inner, 1.0, 0.1, total_iters=steps)
        self.optimizer = Wrapped(inner)
        self.batches = torch.Generator().manual_seed(4)
        self.steps = steps
        self.running = torch.zeros(())
        self.callbacks: list[Callback] = []
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.clipped: list[float] = []

    def loss(self) -> Tensor:
        ids = torch.randint(VOCABULARY, (3, CONTEXT + 1), generator=self.batches)
        loss: Tensor = self.model(ids[:, :-1], ids[:, 1:])[1]
        return loss

    def train(self) -> None:
        for step in range(self.steps):
            self.running.zero_()
            for _ in range(self.accumulate):
                loss = self.loss() / self.accumulate
                loss.backward()
                self.running += loss.detach()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
            self.clipped.append(nn.utils.get_total_norm(gradients).item())
            self.rates.append(self.scheduler.get_last_lr()[0])
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.losses.append(self.running.item())
            for callback in self.callbacks:
                callback.on_step_end(self)
            if step % 10 == 9:
                self.evaluate()

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.loss()
        self.model.train()


def test_a_trainer_with_callbacks(tmp_path: Path):
    plain, trainer = Trainer(60), Trainer(60)
    torch.manual_seed(9)
    plain.callbacks.append(Callback(None))
    plain.train()
    torch.manual_seed(9)
    with engine.watch(trainer.model, trainer.optimizer, run_dir=tmp_path / "run", steps=60) as run:
        trainer.callbacks.append(Callback(run))
        trainer.train()
    assert trainer.losses == plain.losses
    check_rows(tmp_path / "run", trainer)


def test_a_scaler_that_skips_a_step(tmp_path: Path):
    """The hook is not called then: the step has its loss, and no norm."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with engine.watch(model, optimizer, run_dir=tmp_path / "run") as run:
        for factor in (1.0, float("inf"), 1.0):
            loss = model(torch.ones(1, 2)).sum()
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step(loss)
    rows = rows_of(RunDirectory(tmp_path / "run"))
    assert rows[0]["grad_norm"] == pytest.approx(3**0.5)
    assert rows[1]["grad_norm"] is None
    assert [row["lr"] for row in rows] == [0.1] * 3


def test_a_model_whose_forward_raises(tmp_path: Path):
    """The loop's own exception arrives as it is, also in an iteration that is recorded."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))

    def step() -> Tensor:
        return model(torch.randn(3, 2)).sum()

    async def visit(client: RunClient) -> None:
        await paused(client)
        await client.ask("resume")

    def fails() -> None:
        with engine.watch(model, run_dir=tmp_path / "run") as run:
            visited(run, tmp_path / "run", visit, step)
            run.control.pause()
            run._notice()
            run.step(step())
            model(torch.randn(3, 5))

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fails()
    assert RunDirectory(tmp_path / "run").read_worker().why.startswith("RuntimeError: mat1")
    assert not any(module._forward_hooks for module in model.modules())


DISTRIBUTED = """
import sys, torch, engine
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 3, generator=torch.Generator().manual_seed(dist.get_rank()))
with engine.watch(model, optimizer, run_dir=sys.argv[1]) as run:
    for _ in range(20):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if dist.get_rank() == 0:
            print(repr(loss.item()), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_under_torchrun(tmp_path: Path):
    """Two processes train together; the first is watched."""
    script = tmp_path / "train.py"
    script.write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", str(script), str(tmp_path / "run")]
    where = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, env=where)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert [path.name for path in tmp_path.glob("run*")] == ["run"]
    losses = [row["loss"] for row in rows_of(RunDirectory(tmp_path / "run"))]
    assert losses == [float(line) for line in ended.stdout.split()]
    assert len(losses) == 20
    assert RunDirectory(tmp_path / "run").state() == "finished"
