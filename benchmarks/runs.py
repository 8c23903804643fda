"""A training run against a plain hand-written loop; with a screen attached against without; what
checkpoints cost; and how soon the screen of a very long run is there.

The loop and the run train the same model on the same batches, in turn within one process, and must
agree in every loss to the last bit. The figure is the median of the ratios, step by step.

    python -m benchmarks.runs [--json] [--smoke]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.report import Row, median, run
from engine.runs.directory import RunDirectory
from engine.service.control import Control
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.training_run import TrainingRun
from engine.training.optimizers import rule_named
from tests.terminal.terminal import COMMAND, Terminal

STORIES = Path(__file__).parents[2] / "shared/data/tinystories"
LONG = 1_000_000  # steps


def options(smoke: bool, steps: int) -> RunOptions:
    """The measured experiment, on its own stories where they are at hand."""
    if smoke:
        given = {"corpus": "storybook:300", "context": 8, "batch": 16, "width": 8, "hidden": 16}
    else:
        stories = next(iter(sorted(STORIES.glob("*.jsonl"))), None)
        given = {"corpus": str(stories)} if stories else {}
    return RunOptions.by_protocol(given, steps=steps, eval_every=0, sample_every=0).check()


def make(path: Path, made: RunOptions) -> RunDirectory:
    directory = RunDirectory(path)
    config = {"kind": "training", "name": path.name, "created": time.time(), "steps": made.steps}
    directory.create({**config, "run": made.to_json()})
    return directory


def against_a_loop(smoke: bool, steps: int) -> tuple[float, float, float]:
    """Median ratio run / loop, the loop's step in milliseconds, and a checkpoint's share of 100
    steps. Raises AssertionError where a loss differs."""
    made = options(smoke, steps)
    with tempfile.TemporaryDirectory() as folder:
        directory = make(Path(folder) / "run", made)
        session = RunSession(made)
        training = TrainingRun(directory, made, Control(), session)
        training.begin()
        training.control.start()
        plain = session.model(made.walk.model)
        walk = made.walk
        rule = rule_named(walk.optimizer, walk.lr, weight_decay=walk.weight_decay)
        optimizer = rule.build(list(plain.parameters()))
        batches, windows = session.batches(), session.prepared.windows
        losses: list[float] = []

        def loop_step(step: int) -> None:
            rows = batches.rows(step)
            x, y = windows.contexts[rows], windows.targets[rows]
            optimizer.zero_grad()
            loss = F.cross_entropy(plain(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), walk.clip or float("inf"))
            optimizer.step()
            losses.append(loss.item())

        def run_step(step: int) -> None:
            training._step()
            training._between()

        ratios, loops, saves = [], [], []
        for step in range(1, steps + 1):
            first, second = (loop_step, run_step) if step % 2 else (run_step, loop_step)
            begin = time.perf_counter()
            first(step)
            middle = time.perf_counter()
            second(step)
            end = time.perf_counter()
            took = {first: middle - begin, second: end - middle}
            saved = step % made.checkpoint_every == 0
            if saved:
                saves.append(took[run_step] - took[loop_step])
            elif step > max(2, steps // 10):
                ratios.append(took[run_step] / took[loop_step])
                loops.append(took[loop_step])
        rows = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
        assert [row["loss"] for row in rows] == losses, "the losses differ"
    share = median(saves) / (100 * median(loops)) if saves else 0.0
    return median(ratios), 1000 * median(loops), share


@contextmanager
def going(path: Path, made: RunOptions) -> Iterator[RunDirectory]:
    """A run in a process of its own."""
    directory = make(path, made)
    command = (sys.executable, "-P", "-m", "engine.service.run_worker", str(path))
    with directory.log.open("ab") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait(lambda: directory.metrics.exists() and directory.metrics.stat().st_size > 0)
        yield directory
    finally:
        worker.terminate()
        worker.wait()


def wait(happened: Callable[[], bool], patience: float = 120) -> None:
    until = time.monotonic() + patience
    while not happened():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.02)


def speed(directory: RunDirectory, seconds: float) -> float:
    """Steps a second over some seconds."""
    before = directory.metrics.stat().st_size
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    with directory.metrics.open("rb") as file:
        file.seek(before)
        return file.read().count(b"\n") / took


def with_a_screen(smoke: bool) -> float:
    """Median ratio of the speed with a screen attached to that without, in turn."""
    seconds, rounds = (1.0, 1) if smoke else (8.0, 6)
    ratios = []
    with (
        tempfile.TemporaryDirectory() as folder,
        going(Path(folder) / "run", options(smoke, 1_000_000)) as directory,
    ):
        for _ in range(rounds):
            alone = speed(directory, seconds)
            command = (COMMAND, "attach", str(directory.path))
            with Terminal(watched=False, command=command) as terminal:
                read_until(terminal, b"running")
                before = directory.metrics.stat().st_size
                began = time.monotonic()
                while time.monotonic() - began < seconds:
                    terminal.read(0.05)
                took = time.monotonic() - began
                with directory.metrics.open("rb") as file:
                    file.seek(before)
                    ratios.append(file.read().count(b"\n") / took / alone)
    return median(ratios)


def read_until(terminal: Terminal, text: bytes) -> None:
    end = time.perf_counter() + 60
    while text not in terminal.raw:
        if time.perf_counter() > end:
            raise TimeoutError(f"not there in 60 s: {bytes(terminal.raw[-300:])!r}")
        terminal.read(0.2)


def first_frame(smoke: bool) -> float:
    """Seconds from `attach` to the frame that has the last step of a run of a million."""
    steps = 10_000 if smoke else LONG
    made = options(True, steps)
    with tempfile.TemporaryDirectory() as folder:
        directory = make(Path(folder) / "long", made)
        with directory.metrics.open("w") as file:
            for step in range(1, steps + 1):
                loss = 2 + 4 / step**0.3 + 0.01 * (step * 7919 % 101) / 101
                file.write(
                    f'{{"step": {step}, "loss": {loss!r}, "lr": 0.003, "grad_norm":'
                    f' {0.5 + loss / 7!r}, "targets_per_second": {5000 + loss!r},'
                    f' "time": {1.7e9 + step / 10!r}}}\n'
                )
        taken = []
        for _ in range(1 if smoke else 7):
            command = (COMMAND, "attach", str(directory.path))
            with Terminal(watched=False, command=command) as terminal:
                read_until(terminal, f"{steps:,}".encode())
                taken.append(terminal.last_byte - terminal.started)
    return median(taken)


def measure(smoke: bool) -> list[Row]:
    os.environ.setdefault("XDG_STATE_HOME", tempfile.gettempdir())
    ratio, loop, share = against_a_loop(smoke, 30 if smoke else 300)
    return [
        Row("a run's step / a plain loop's", ratio, "times", 1.03, f"loop {loop:.1f} ms"),
        Row("a checkpoint / 100 steps", share, "", 0.03),
        Row("speed with a screen / without", with_a_screen(smoke), "times", 0.97),
        Row("attach to first frame, 1,000,000 steps", first_frame(smoke), "s", 0.5),
    ]


if __name__ == "__main__":
    run("runs", measure)
