"""A training that is a run: step after step, kept on disk, open to screens between the steps."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from typing import Any

import psutil
import torch

from engine.edits import edit_written
from engine.errors import TensorstepError, UsageError
from engine.nonfinite import first_bad
from engine.runs import disk
from engine.runs.checkpoints import best_of, checkpoints_in, finite, load_checkpoint
from engine.runs.conditions import Condition
from engine.runs.directory import FINISHED, FULL, PAUSED, RUNNING, STOPPED, RunDirectory
from engine.runs.metrics import cut, cut_samples
from engine.service.control import Control
from engine.service.keeping import Keeping
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.steps import Ended, NotFinite, Steps
from engine.states import drain
from engine.walk import Position, Walk, nearest

SAMPLED = 60  # tokens of a sample
RECENT = 1000  # losses that a walk shows
OFTEN = 2.0  # seconds between two readings of the update ratios, while a screen is attached
RETRY = 1.0  # seconds after which a full disk is tried again


class TrainingRun:
    """The training of a run's directory, which this process has locked.

    done    the last step that has ended
    moves   counts up when the walk of the paused step makes something new
    """

    def __init__(
        self, run: RunDirectory, options: RunOptions, control: Control, session: RunSession
    ):
        self.run = run
        self.options = options
        self.control = control
        self.session = session
        training, process = session.process(tuple(map(edit_written, options.edits)))
        self.steps = Steps(training, process, self.step_ended, options.steps, options.nonfinite)
        session.steps = self.steps
        self.done = 0
        self.moves = 0
        self.screens = 0  # how many are attached
        self.walk: Walk | None = None  # of the step after `done`, while a screen looks at it
        self.entrance = Position(0, 0)  # where screens that are new to it stand in that
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._best = math.inf
        self._why: str | None = None  # what the run is to stand still for
        self._measured = time.monotonic()
        self._is_first_step = True  # whether it is the next to end, after which names are known
        self._facts = {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "device": str(session.device),
            "data_sha256": session.data_sha256(),
        }
        self.keeping: Keeping | None = None

    # --- beginning ----------------------------------------------------------------------------

    def begin(self) -> str | None:
        """Stand where the last checkpoint stands, or at the beginning; cut what was made after it.

        Returns what is to be told of it. Raises TensorstepError where numbers would differ from
        those of a run that never stood still.
        """
        disk.sweep(self.run.path)
        disk.sweep(self.run.checkpoints)
        told = self._stand()
        try:
            cut(self.run.metrics, self.run.cut, self.done)
            cut_samples(self.run.samples, self.done)
            self.keeping = Keeping(self.run, self.options.keep_every)
        except OSError as error:
            raise TensorstepError(
                f"{str(self.run.path)!r} cannot be written to ({error.strerror}): mend that, then"
                " --resume"
            ) from None
        self.keeping.saved = self.done
        return told

    def _stand(self) -> str | None:
        """Stand where the last checkpoint stands. Returns what is to be told of it."""
        found = checkpoints_in(self.run.checkpoints)
        told = None
        if found:
            snapshot, facts = load_checkpoint(found[-1])
            self._check(facts)
            told = self._take_threads(facts["threads"])
            self.steps.restore(snapshot)
            self.done = snapshot.step
            best = best_of(found)
            self._best = best.val_loss if best and best.val_loss is not None else math.inf
        return told

    def _check(self, facts: dict[str, Any]) -> None:
        """Raises TensorstepError where the run would go on with other numbers, silently."""
        if facts.get("data_sha256") != self._facts["data_sha256"]:
            raise TensorstepError(
                "the texts, or how they are cut, are others than when the checkpoint of step"
                f" {facts['step']} was saved: bring back what was, or start a new run"
            )
        for name, what in (("torch", "torch"), ("device", "the device")):
            if facts.get(name) != self._facts[name]:
                was, now = str(facts.get(name))[:40], str(self._facts[name])[:40]
                raise TensorstepError(
                    f"{what} was {was} when the checkpoint of step {facts['step']} was saved and is"
                    f" {now}: the numbers would differ, so start a new run, or bring back what was"
                )

    def _take_threads(self, threads: int) -> str | None:
        """Compute in as many threads as before: sums depend on it."""
        now = torch.get_num_threads()
        if threads == now:
            return None
        torch.set_num_threads(threads)
        self._facts["threads"] = threads
        return f"computing in {threads} threads as before, not {now}: sums depend on it"

    # --- going on -----------------------------------------------------------------------------

    def go(self) -> str:
        """Train to the end, or until the run is stopped. Returns the state it ends in."""
        self.control.start()
        self._between()
        while self.done < self.options.steps and not self.control.stopping:
            self._step()
            self._between()
        self._save_last()
        return FINISHED if self.done >= self.options.steps else STOPPED

    def _step(self) -> None:
        steps = self.steps
        steps.wanted = self.control.wanted
        if self.screens and time.monotonic() - self._measured > OFTEN:
            self._measured, steps.measures = time.monotonic(), True
        try:
            drain(steps.states(self.done + 1))
        except NotFinite as bad:
            walk = self.open_walk()
            found = first_bad(walk)
            self.entrance = walk.cursor
            told = f"; the first state that went bad: {found}" if found else ""
            self.control.hold(f"{bad}: the update is withheld{told}")

    def _between(self) -> None:
        """Stand still as long as the run is paused; then nothing is walked any more."""
        while True:
            self._write()
            self._hold()
            self.control.between(self._keep)
            if self.walk is None:
                return
            self.walk = None
            self.steps.wanted = self.control.wanted
            self.session.close_walk(finish=not self.control.stopping)

    def _keep(self) -> None:
        """Write what a walked step has left, where there is room."""
        if self.keeping is not None and self.keeping.write():
            self._hold()

    def _hold(self) -> None:
        """Stand still for what the step has come to, once its line is written."""
        if self._why is not None:
            self.control.hold(self._why)
            self._why = None

    def _write(self) -> None:
        """Write what the step has left; stand still as long as there is no room for it, then be as
        before: going, or paused for another reason."""
        control = self.control
        before: tuple[str, str | None] = (RUNNING, None)
        while self.keeping is not None and not self.keeping.write():
            if control.stopping:
                raise TensorstepError("the disk is full: make room, then --resume")
            if control.why != FULL:
                before = (control.state, control.why)
            control.hold(FULL)
            control.serve(RETRY)
        if control.why == FULL:
            control.be_again(*before)

    def _save_last(self) -> None:
        if self.keeping is not None and self.keeping.saved < self.done:
            self._save(None)
        self._write()

    # --- a step has ended ---------------------------------------------------------------------

    def step_ended(self, ended: Ended) -> None:
        """Keep what is kept of a step, and see whether the run is to be paused."""
        row = ended.row
        self.done = int(row["step"] or 0)
        self._recent.append(row["loss"] or 0.0)
        if self.keeping is None:
            return
        self.keeping.row(row)
        self._sample()
        self._break(ended)
        val_loss = finite(row.get("val_loss"))
        better = val_loss is not None and val_loss < self._best
        if better:
            self._best = val_loss or 0.0
        if better or self.done % self.options.checkpoint_every == 0:
            self._save(val_loss)

    def _save(self, val_loss: float | None) -> None:
        facts = {"val_loss": val_loss, **self._facts, "time": time.time()}
        if self.keeping is not None:
            self.keeping.checkpoint(self.steps.snapshot(self.done), facts)

    def _sample(self) -> None:
        every = self.options.sample_every
        if self.keeping is None or not every or self.done % every:
            return
        with contextlib.suppress(TensorstepError):  # logits that are not finite choose no token
            self.keeping.sample({"step": self.done, **self.session.sample(SAMPLED)})

    def _break(self, ended: Ended) -> None:
        best = None if math.isinf(self._best) else self._best
        hit = self.control.broken({**ended.row, "best": best}, ended.figures)
        if hit is not None:
            self._why = f"{hit.text} at step {self.done}"
        elif self._is_first_step and (told := self.unknown(self.control.breakpoints)):
            self._why = told
        elif self.walk is not None and self.options.nonfinite:
            norm = ended.row["grad_norm"]
            if norm is not None and not math.isfinite(norm):
                self._why = f"step {self.done} is not finite: its update is withheld"
        self._is_first_step = False

    def unknown(self, conditions: list[Condition]) -> str | None:
        """What is told of conditions that name a state which no step has; None where all do, or
        where no step has been made yet."""
        names = self.steps.names
        if names and self.options.eval_every:
            names = (*names, "validation")  # of some steps only
        for condition in conditions:
            for name in sorted(condition.names_of_states - set(names)) if names else ():
                return (
                    f"the breakpoint {condition.text!r} never holds: no state of a step is called"
                    f" {name!r}, {nearest(name, names)}"
                )
        return None

    # --- screens ------------------------------------------------------------------------------

    def open_walk(self) -> Walk:
        """The walk of the step that comes next, while the run stands still. Raises UsageError where
        there is none."""
        self.steps.wanted = self.control.wanted  # those of breakpoints that are new
        if self.walk is None:
            if self.done >= self.options.steps:
                raise UsageError(f"all {self.done} steps are done: there is no next one to walk")
            self.walk = self.session.open_walk(self.done + 1, list(self._recent))
            self.entrance = self.walk.cursor
        return self.walk

    def status(self) -> dict[str, Any]:
        """How the run stands: see `control.status`, and more."""
        return self.control.status(self._standing)

    def _standing(self) -> dict[str, Any]:
        return {
            "step": self.done,
            "steps": self.options.steps,
            "device": str(self.session.device),
            "memory": memory_of(self.session.device),
            "screens": self.screens,
            "moves": self.moves,
            "walk": self.control.state == PAUSED
            and (self.done < self.options.steps or self.walk is not None),
            "ratios": self.steps.ratios,
        }


def memory_of(device: torch.device) -> int:
    """Bytes that the device, or this process where it is the CPU, uses."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    if device.type == "mps":
        return int(torch.mps.current_allocated_memory())
    return int(psutil.Process().memory_info().rss)
