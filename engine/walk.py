"""A walk: a cursor over the states of a process, forward and back.

Going forward drives the process one state at a time; going back reads what was seen (see
`engine.history`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from engine.errors import UsageError
from engine.history import History
from engine.maps import stage_of
from engine.processes import Process
from engine.progress import Tell, tracked
from engine.records import Record
from engine.states import State, States

BUDGET = 2**28  # bytes: 256 MB
FIRST_NAMES = 6  # names told of where none is near


@dataclass(frozen=True)
class Position:
    """Where the cursor stands: a step, and which of its states."""

    step: int
    index: int


class Walk:
    """Forward and back through the states of a process.

    budget      bytes the walk may hold beyond what the step in progress needs itself
    losses      the losses so far, of step `first_loss` and those after it
    may_go_on   whether states may be made that there are not yet
    """

    may_go_on = True

    def __init__(self, process: Process, budget: int = BUDGET):
        self.process = process
        self.history = History(process, budget)
        self.losses: list[float] = []
        self.first_loss = 1
        self._live: States | None = process.states(0)
        self._sent: State | None = None
        self._failure: Exception | None = None  # why the step in progress cannot go on
        self._advance()
        self.cursor = Position(0, 0)

    @classmethod
    def at(
        cls,
        process: Process,
        step: int,
        losses: Sequence[float] = (),
        budget: int = BUDGET,
    ) -> Walk:
        """A walk that begins with `step`, before which the process stands. `losses` are those of
        the steps up to there, as far back as they are known. Earlier steps cannot be seen, but for
        the preparation."""
        walk = object.__new__(cls)
        walk.process = process
        walk.history = History(process, budget, begin=step)
        walk.losses = list(losses)
        walk.first_loss = step - len(walk.losses)
        walk._live = walk._sent = walk._failure = None
        walk._begin(step)
        walk.cursor = Position(step, 0)
        return walk

    def branch(self, process: Process, step: int) -> Walk:
        """A walk that is this one up to a step and goes on with another process from there, which
        then stands where the step begins. The cursor is at the step's first state."""
        process.restore(self.history.stand_before(step).snapshot(step - 1))
        walk = object.__new__(Walk)
        walk.process = process
        walk.history = History(process, self.history.budget, self.history, step)
        walk.first_loss = self.first_loss
        walk.losses = self.losses[: step - self.first_loss]
        walk._live = walk._sent = walk._failure = None
        walk._begin(step)
        walk.cursor = Position(step, 0)
        return walk

    # --- the cursor -------------------------------------------------------------------------

    @property
    def current(self) -> Record:
        """The state under the cursor."""
        return self.records(self.cursor.step)[self.cursor.index]

    def forward(self) -> bool:
        """To the next state, made now if it is new. False where the process has ended."""
        step = self.cursor.step
        if self.forward_in_step():
            return True
        if step == self.frontier and not self._begin(step + 1):
            return False
        self.cursor = Position(step + 1, 0)
        return True

    def forward_in_step(self) -> bool:
        """To the next state of this step, made now if it is new. False where the step has ended."""
        step, index = self.cursor.step, self.cursor.index
        more = index + 1 < len(self.records(step)) or (step == self.frontier and self._advance())
        if more:
            self.cursor = Position(step, index + 1)
        return more

    def back(self) -> bool:
        """To the state before. False at the beginning."""
        step, index = self.cursor.step, self.cursor.index
        if index > 0:
            self.cursor = Position(step, index - 1)
        elif step > 0:
            self.cursor = Position(step - 1, len(self.records(step - 1)) - 1)
        else:
            return False
        return True

    def next_stage(self) -> bool:
        """To the first state of the next stage."""
        here = self._stage()
        while self.forward():
            if self._stage() != here:
                return True
        return False

    def back_stage(self) -> bool:
        """To the first state of this stage or, from there, of the stage before."""
        start = self.cursor
        if not self.back():
            return False
        here = self._stage()
        while self.cursor != Position(0, 0):
            kept = self.cursor
            self.back()
            if self._stage() != here:
                self.cursor = kept
                break
        return self.cursor != start

    def next_step(self) -> bool:
        """To the same state one step later (or the first of that step, where it has none)."""
        return self._same_state(self.cursor.step + 1)

    def back_step(self) -> bool:
        """To the same state one step earlier (or the first of that step, where it has none)."""
        return self.cursor.step > 0 and self._same_state(self.cursor.step - 1)

    def seek(self, step: int, name: str | None = None, tell: Tell | None = None) -> None:
        """To a state by name (the first of the step, without one), forward or back; `tell` hears
        of a way that takes long.

        Raises UsageError where there is no such step or state; the cursor then stays.
        """
        if step < 0:
            raise UsageError(f"there is no step {step}: steps are counted from 0")
        missing = range(self.frontier + 1, step + 1)
        for number in tracked(missing, f"making steps up to {step}", len(missing), tell):
            if not self._begin(number):
                raise UsageError(
                    f"there is no step {step}: {self.process.map} ended at step {self.frontier}"
                    f" ({self.process.ended(self.frontier)})"
                )
        index = 0 if name is None else self._find(step, name)
        if index is None:
            raise UsageError(
                f"no state of step {step} of the {self.process.map} map is called {name!r}:"
                f" {self._hint(str(name), step)}"
            )
        self.cursor = Position(step, index)

    def _hint(self, name: str, step: int) -> str:
        """What may have been meant by a name that a step does not have."""
        if name in self.process.axes:
            return f"did you mean parameters.{name}"
        return nearest(name, [record.name for record in self.records(step)])

    def make(self, step: int, name: str) -> bool:
        """Make a step in progress as far as a state; the cursor stays. False where it has none."""
        return self._find(step, name) is not None

    def seek_stage(self, stage: str) -> bool:
        """To the first state of a stage: in this step where it has one, else in step 0 or 1.
        False, and the cursor stays, where there is none."""
        here = self.cursor.step
        for step in (here, 0 if here else 1):
            if step > self.frontier and not self._begin(step):
                return False
            index = self._first(step, lambda record: self._stage_of(record, record.step) == stage)
            if index is not None:
                self.cursor = Position(step, index)
                return True
        return False

    def _stage_of(self, record: Record, step: int) -> str:
        return stage_of(self.process.map, record.name, step)

    def _stage(self) -> tuple[int, str]:
        step = self.cursor.step
        return step, self._stage_of(self.current, step)

    def _same_state(self, step: int) -> bool:
        name = self.current.name if self.cursor.step and step else None
        if step > self.frontier and not self._begin(step):
            return False
        self.cursor = Position(step, (self._find(step, name) or 0) if name else 0)
        return True

    def _find(self, step: int, name: str) -> int | None:
        return self._first(step, lambda record: record.name == name)

    def _first(self, step: int, fits: Callable[[Record], bool]) -> int | None:
        """Where the first state that fits stands in a step, making the step as far as it takes."""
        index = 0
        while True:
            records = self.records(step)
            while index < len(records):
                if fits(records[index]):
                    return index
                index += 1
            if step != self.frontier or not self._advance():
                return None

    # --- making states ----------------------------------------------------------------------

    def _advance(self) -> bool:
        """Make the next state of the step in progress. False when the step has ended."""
        if self._live is None:
            return False
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        self._check_going_on()
        try:
            state = next(self._live) if self._sent is None else self._live.send(self._sent)
            record = self.history.see(state)
        except StopIteration:
            self._live = self._sent = None
            self.history.end()
            return False
        except Exception as error:  # a generator that failed cannot go on: tell it every time
            self._failure = error
            raise
        if record.name == "loss" and record.step == self.first_loss + len(self.losses):
            self.losses.append(state.value.item())
        self._sent = state
        return True

    def _begin(self, step: int) -> bool:
        """Finish the step in progress and begin the next. False where the process has ended."""
        self.finish_step()
        if self.process.ended(step - 1) is not None:
            return False
        self._check_going_on()
        self.history.begin(step)
        self._live = self.process.states(step)
        return self._advance()

    def finish_step(self) -> None:
        """Make what is left of the step in progress; the cursor stays."""
        while self._advance():
            pass

    def _check_going_on(self) -> None:
        if not self.may_go_on:
            raise UsageError("this screen only reads: it cannot make the next state")

    # --- reading ----------------------------------------------------------------------------

    def loss_at(self, step: int) -> float | None:
        """The loss of a step, or of the last one before it that is known; None without any."""
        known = min(step - self.first_loss, len(self.losses) - 1)
        return self.losses[known] if known >= 0 else None

    @property
    def frontier(self) -> int:
        """The step in progress, or the last one made."""
        return self.history.frontier

    @property
    def ended_step(self) -> int:
        """The last step that has ended."""
        return self.history.ended_step

    @property
    def held_bytes(self) -> int:
        """What the walk holds: values and snapshots."""
        return self.history.held_bytes

    def records(self, step: int) -> list[Record]:
        """The states of a step, in order, as far as they are made. Raises UsageError for a step
        that is not begun."""
        return self.history.records(step)

    def record(self, name: str, step: int) -> Record | None:
        """The state, part of one, or parameter of that name at that step, where there is one."""
        return self.history.record(name, step)

    def fetch(self, name: str, step: int) -> Any:
        """The value of a state as it stood then. Raises KeyError where there is none."""
        return self.history.fetch(name, step)


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant by a name that there is not."""
    alike = get_close_matches(name, names, cutoff=0.5)
    told = (
        f"did you mean {' or '.join(alike)}"
        if alike
        else f"they are {', '.join(names[:FIRST_NAMES])}"
    )
    more = "" if alike or len(names) <= FIRST_NAMES else ", ..."
    return f"{told}{more} (`tensorstep states` lists all {len(names)})"
