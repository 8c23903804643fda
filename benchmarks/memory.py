"""Resident memory over drained steps and over walks, and a walk that keeps to its budget.

python -m benchmarks.memory [--json] [--smoke]
"""

from __future__ import annotations

import gc
import time

import torch

import engine
from benchmarks.report import Row, median, resident_bytes, run
from benchmarks.training import CONTEXT, VOCABULARY, documents
from engine.service.options import Options
from engine.service.session import Session

MEGABYTE = 2**20


def large(batch: int, keep: bool) -> engine.Training:
    """One-head attention at the size of the experiment."""
    windows = engine.Windows(documents(40), CONTEXT, 0)
    torch.manual_seed(0)
    model = engine.CausalAttentionLM(VOCABULARY, CONTEXT, 64, 64, 64, 256)
    data = engine.TrainingData.of(windows.contexts, windows.targets)
    batches = engine.SampledRows(len(windows), batch, 11)
    return engine.Training(model, data, batches, engine.SGD(0.1), keep_gradients=keep)


def growth_drained(steps: int) -> float:
    """MB of growth over `steps` drained steps, after as many to warm up as it takes."""
    training = large(64, keep=False)
    warm = max(5, steps // 10)
    for step in range(warm):
        engine.drain(training.states(step))
    before = resident_bytes()
    for step in range(warm, warm + steps):
        engine.drain(training.states(step))
    return (resident_bytes() - before) / MEGABYTE


def growth_walks(walks: int) -> float:
    """MB of growth over `walks` walks of the worked sentence, two steps each."""

    def one() -> None:
        walk = Session(Options()).walk("training")
        walk.seek(2, "update.W_Q.weight")
        walk.current.explain((0, 0))

    for _ in range(max(5, walks // 10)):
        one()
    gc.collect()
    before = resident_bytes()
    for _ in range(walks):
        one()
    gc.collect()
    return (resident_bytes() - before) / MEGABYTE


def budget(steps: int, batch: int) -> list[Row]:
    """The most a walk of 64 MB holds at vocabulary 4,000, and what going back then takes."""
    walk = engine.Walk(large(batch, keep=True), 64 * MEGABYTE)
    most = 0.0
    for step in range(1, steps + 1):
        for name in ("weights", "gradients.K", "update.W_Q.weight"):
            walk.seek(step, name)
            _ = walk.current.value
            most = max(most, walk.held_bytes / MEGABYTE)
    times = []
    for step in (steps // 2, steps // 3, steps - 1, 2):
        start = time.perf_counter()
        walk.fetch("weights", step)
        times.append(time.perf_counter() - start)
        most = max(most, walk.held_bytes / MEGABYTE)
    return [
        Row(f"held by a walk of {steps} steps, batch {batch}", most, "MB", 64),
        Row("going back to a step let go of", median(times), "s", None, f"most {max(times):.2f} s"),
    ]


def measure(smoke: bool) -> list[Row]:
    steps, walks, walked, batch = (30, 10, 6, 64) if smoke else (500, 200, 50, 512)
    return [
        Row(
            f"growth over {steps} drained steps", growth_drained(steps), "MB", None, "flat: near 0"
        ),
        Row(f"growth over {walks} walks", growth_walks(walks), "MB", None, "flat: near 0"),
        *budget(walked, batch),
    ]


if __name__ == "__main__":
    run("memory", measure)
