"""Training runs that experiments are made of: each a run's directory of its own, gone on with where
it was left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError
from engine.experiments.sealed import Sealed
from engine.models import StatesModel
from engine.progress import Tell
from engine.runs.checkpoints import best_of, checkpoints_in, load_checkpoint
from engine.runs.directory import ALIVE, FINISHED, PAUSED, RunDirectory
from engine.runs.metrics import last_row
from engine.service.leaving import at_leave
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession

THREADS = "OMP_NUM_THREADS"  # of the environment: torch reads it where it is loaded
OFTEN = 0.25  # seconds between two looks at a run


@dataclass(frozen=True)
class Finished:
    """A run that has done all its steps.

    step, val_loss  of the checkpoint with the lowest validation loss
    session, model  its documents, and the model with that checkpoint's parameters
    rows            its metrics, a step each
    sealed          the test side, which nothing reads until the choice is frozen
    """

    run: RunDirectory
    step: int
    val_loss: float | None
    session: RunSession
    model: StatesModel
    rows: list[dict[str, Any]]
    sealed: Sealed


def train(
    folder: Path, options: RunOptions, what: str, tell: Tell | None, threads: int | None = None
) -> RunDirectory:
    """A run of these options in `folder`, trained to its end: begun, gone on with, or there.

    `threads` are those it computes in, on which sums depend in their last bits; None: torch's own.
    `tell` hears of its steps, and may raise to give up: the run then saves and can be gone on with.
    Raises TensorstepError where it fails, or was made with other options.
    """
    run = RunDirectory(folder)
    if not run.exists:
        config = {"kind": "training", "name": folder.name, "created": time.time()}
        run.create({**config, "steps": options.steps, "sealed": True, "run": options.to_json()})
    elif RunOptions.from_json(run.read_config()["run"]) != options:
        raise TensorstepError(
            f"the run in {str(folder)!r} was made with other options: give another --dir"
        )
    if run.state() == FINISHED:
        return run
    process = None if run.state() in ALIVE else launch(run, threads)
    try:
        with at_leave(lambda: stop(process)):
            watch(run, process, options.steps, what, tell)
    except BaseException:
        stop(process)
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        raise
    return run


def launch(run: RunDirectory, threads: int | None) -> subprocess.Popen[bytes]:
    """A process that trains the run, seen by `tensorstep attach` as any other."""
    told = {} if threads is None else {THREADS: str(threads)}
    with open(run.log, "ab") as log:
        return subprocess.Popen(  # noqa: S603, its command is ours
            [sys.executable, "-P", "-m", "engine.service.run_worker", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **told},
            start_new_session=True,
        )


def watch(
    run: RunDirectory,
    process: subprocess.Popen[bytes] | None,
    steps: int,
    what: str,
    tell: Tell | None,
) -> None:
    """Wait for its end. Raises TensorstepError where it ends before all steps are done, or stands
    still."""
    while True:
        ended = process is not None and process.poll() is not None
        state = run.state()
        if state == FINISHED:
            return
        if ended and state in ALIVE:  # another process had begun it: see that one's end
            process = None
            time.sleep(OFTEN)
            continue
        if ended or (process is None and state not in ALIVE):
            worker = run.read_worker()
            why = f": {worker.why}" if worker and worker.why else ""
            raise TensorstepError(
                f"the run in {str(run.path)!r} has {state}{why}; what it said is in"
                f" {run.log.name!r} there; run this again to go on with it"
            )
        if state == PAUSED:
            worker = run.read_worker()
            raise TensorstepError(
                f"the run in {str(run.path)!r} stands still ({worker.why if worker else ''}):"
                f" `tensorstep attach {run.handle}` shows it; then run this again"
            )
        if tell is not None:
            row = last_row(run.metrics)
            tell(what, int(row["step"]) if row else 0, steps)
        time.sleep(OFTEN)


def stop(process: subprocess.Popen[bytes] | None) -> None:
    """Have a run that was started here save and end."""
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


def finished(run: RunDirectory, tell: Tell | None) -> Finished:
    """A run that has ended, with the parameters that are selected by validation alone. Its test
    side is sealed: see `engine.experiments.sealed`."""
    options = RunOptions.from_json(run.read_config()["run"])
    session = RunSession(options, tell)
    found = checkpoints_in(run.checkpoints)
    chosen = best_of(found) or (found[-1] if found else None)
    if chosen is None:
        raise TensorstepError(
            f"the run in {str(run.path)!r} has no checkpoint: delete that folder, and it is trained"
            " anew"
        )
    snapshot, state = load_checkpoint(chosen)
    choice = {
        "step": chosen.step,
        "options_sha256": hashlib.sha256(json.dumps(options.to_json()).encode()).hexdigest(),
        "data_sha256": state["data_sha256"],
    }
    sealed = Sealed(session, run.name, choice)
    rows = metrics_of(run)
    model = session.restored(snapshot)
    return Finished(run, chosen.step, chosen.val_loss, session, model, rows, sealed)


def metrics_of(run: RunDirectory) -> list[dict[str, Any]]:
    """The metrics of a run, a step each. Raises TensorstepError where a line of them is damaged."""
    rows = []
    for number, line in enumerate(run.metrics.read_bytes().splitlines(), start=1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            raise TensorstepError(
                f"line {number} of {str(run.metrics)!r} is damaged: delete the folder, and the run"
                " is trained anew"
            ) from None
    return rows
