"""What `engine.watch` costs a training loop while nobody is attached.

Two loops that compute the same, one of them watched, make a step each in turn. The figure is the
median step of the watched one, and what the writing thread computes for it (as if the loop waited
for all of that), against the median step of the other. Opening and closing a run are not in it.
Beside it stands what one call of `run.step` takes by itself, until its line is written.

    python -m benchmarks.watch [--json] [--smoke]
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import engine
from benchmarks.report import Row, median, run

TARGET = 1.01


class Loop:
    """A plain loop over one model: AdamW, cross-entropy, random batches."""

    def __init__(self, width: int, batch: int):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self._x, self._y = torch.randn(batch, 64), torch.randint(10, (batch,))

    def step(self) -> Tensor:
        loss = F.cross_entropy(self.model(self._x), self._y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def writing() -> float:
    """Seconds of computing that the thread which writes has used."""
    thread = next(each for each in threading.enumerate() if each.name == "tensorstep")
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def compare(size: tuple[int, int], folder: Path, steps: int) -> tuple[float, float]:
    """Ratio watched / not, and milliseconds of a step."""
    plain, ours = Loop(*size), Loop(*size)
    times: dict[bool, list[float]] = {False: [], True: []}

    def one(watched: bool) -> None:
        start = time.perf_counter()
        if watched:
            watching.step(ours.step())
        else:
            plain.step()
        times[watched].append(time.perf_counter() - start)

    with engine.watch(ours.model, ours.optimizer, run_dir=folder / "run") as watching:
        began = writing()
        for step in range(steps):
            for watched in (False, True) if step % 2 else (True, False):
                one(watched)
        time.sleep(0.5)  # until all is written
        written = (writing() - began) / steps
    alone = median(times[False])
    return (median(times[True]) + written) / alone, alone * 1000


def alone(folder: Path, calls: int) -> float:
    """Microseconds of a call of `run.step`, by itself, until its line is written."""
    loop = Loop(16, 4)
    loss = loop.step()
    with engine.watch(loop.model, loop.optimizer, run_dir=folder / "alone") as watching:
        start = time.perf_counter()
        for _ in range(calls):
            watching.step(loss)
        watching.close()
        return (time.perf_counter() - start) / calls * 1e6


def measure(smoke: bool) -> list[Row]:
    sizes = [("0.3 ms", 32, 16, 8000), ("3 ms", 384, 128, 1500), ("30 ms", 1024, 256, 150)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size, width, batch, steps in sizes[: 1 if smoke else None]:
            ratio, step = compare((width, batch), Path(folder), 50 if smoke else steps)
            note = f"plain step {step:.2f} ms"
            rows.append(Row(f"a step of about {size}: watched / not", ratio, "times", TARGET, note))
        calls = 1000 if smoke else 100_000
        rows.append(Row("run.step by itself", alone(Path(folder), calls), "us"))
    return rows


if __name__ == "__main__":
    run("watch", measure)
