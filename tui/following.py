"""`tensorstep train --no-screen`: a run followed in the terminal, or into a pipe, to its end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError
from engine.runs.directory import ALIVE, FULL, PAUSED, RunDirectory
from engine.runs.metrics import number
from tui.plain import shown

OFTEN = 0.1  # seconds between two looks
SHARES = 100  # lines of a run into a pipe, beside those of validations


class Rows:
    """The lines of metrics from a step on, as they come."""

    def __init__(self, path: Path, first_step: int):
        self._path = path
        self._first_step = first_step
        self._at = 0

    def read(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._at += len(whole) + len(end)
        for line in whole.splitlines():
            row = json.loads(line)
            if row["step"] >= self._first_step:
                yield row


def follow(run: RunDirectory, as_json: bool) -> int:
    """Tell of every step until the run has ended; ctrl+c leaves it running. Returns the exit code:
    1 where it was paused by a breakpoint, or has failed."""
    config = run.read_config()
    if as_json:
        teller: Teller = JsonLines()
    elif sys.stdout.isatty():
        teller = Bar(run, config["steps"])
    else:
        teller = Lines(config["steps"])
    try:
        with teller:
            return until_end(run, teller)
    except KeyboardInterrupt:
        return leave(run)


def leave(run: RunDirectory) -> int:
    """Say how to come back to a run that goes on. Returns the exit code."""
    name = shown(run.handle)
    print(
        f"\nleft: the run goes on. `tensorstep attach {name}` comes back,"
        f" `tensorstep stop {name}` ends it.",
        file=sys.stderr,
    )
    return 0


def until_end(run: RunDirectory, teller: Teller) -> int:
    rows: Rows | None = None
    is_full = False
    while True:
        state = run.state()  # before the rows: those of a run that has ended are all there
        worker = run.read_worker()
        if rows is None and worker is not None and worker.first_step is not None:
            rows = Rows(run.metrics, worker.first_step)
        for row in rows.read() if rows is not None else ():
            teller.tell(row)
        before, is_full = is_full, worker is not None and worker.why == FULL
        if is_full != before:
            said = FULL if is_full else "there is room again: the run goes on"
            print(f"tensorstep: {said}", file=sys.stderr, flush=True)
        if state == PAUSED and worker is not None and worker.why not in (None, FULL):
            raise TensorstepError(
                f"the run {run.name!r} is paused: {worker.why}; `tensorstep attach {run.handle}`"
                " shows it"
            )
        if state not in ALIVE:
            break
        time.sleep(OFTEN)
    if state in ("failed", "died"):
        why = worker.why if worker is not None and worker.why else "it said nothing"
        raise TensorstepError(f"the run {run.name!r} has {state}: {why}; see {str(run.log)!r}")
    return 0


class Teller:
    """Tells of steps."""

    def __enter__(self) -> Teller:
        return self

    def __exit__(self, *ended: object) -> None:
        pass

    def tell(self, row: dict[str, Any]) -> None:
        raise NotImplementedError


class JsonLines(Teller):
    """One object a step."""

    def tell(self, row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)


class Lines(Teller):
    """A line for every hundredth of the steps, and for every validation."""

    def __init__(self, steps: int):
        self.steps = steps
        self.every = max(1, steps // SHARES)

    def tell(self, row: dict[str, Any]) -> None:
        step = row["step"]
        if step % self.every == 0 or "val_loss" in row or step == self.steps:
            print(f"step {step} of {self.steps}  {figures(row)}", flush=True)


class Bar(Teller):
    """One line that is drawn again and again, in place."""

    def __init__(self, run: RunDirectory, steps: int):
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task(shown(run.name), total=steps, figures="")

    def __enter__(self) -> Teller:
        self._progress.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._progress.stop()

    def tell(self, row: dict[str, Any]) -> None:
        self._progress.update(self._task, completed=row["step"], figures=figures(row))
        if "val_loss" in row:
            self._progress.console.print(f"step {row['step']}  {figures(row)}", markup=False)


def figures(row: dict[str, Any]) -> str:
    """The numbers of a step, for a reader."""
    parts = [f"loss {number(row['loss']):.4f}"]
    if "val_loss" in row:
        parts.append(f"validation {number(row['val_loss']):.4f}")
    if row["targets_per_second"] is not None:
        parts.append(f"{number(row['targets_per_second']):,.0f} targets/s")
    return "  ".join(parts)
