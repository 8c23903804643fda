"""A walk: the states seen so far, a cursor over them, forward and back.

Going forward drives the process one state at a time. Going back reads what is held; what had to
be let go of is made again, by restoring the snapshot of an earlier step on a replica of the
process and driving that: the same numbers, bit for bit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.maps import stage_of
from engine.ops import given
from engine.ops.gradients import GradientOf
from engine.processes import Process, Snapshot
from engine.records import PartRecord, Record, nbytes
from engine.states import State, States, drain

MEGABYTE = 2**20


@dataclass(frozen=True)
class Position:
    """Where the cursor stands: a step, and which of its states."""

    step: int
    index: int


class ValueStore:
    """Values by (step, name), the least recently read let go of first when over `budget` bytes."""

    def __init__(self, budget: int):
        self.budget = budget
        self.held = 0
        self._values: OrderedDict[tuple[int, str], tuple[Any, int]] = OrderedDict()

    def get(self, key: tuple[int, str]) -> Any:
        entry = self._values.get(key)
        if entry is None:
            return None
        self._values.move_to_end(key)
        return entry[0]

    def put(self, key: tuple[int, str], value: Any) -> None:
        self.drop(key)
        size = nbytes(value)
        self._values[key] = (value, size)
        self.held += size
        self.trim(self.budget)

    def drop(self, key: tuple[int, str]) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self.held -= entry[1]

    def trim(self, budget: int) -> None:
        """Let go of old values until `budget` is met; the newest stays, whatever its size."""
        self.budget = budget
        while self.held > budget and len(self._values) > 1:
            _, (_, size) = self._values.popitem(last=False)
            self.held -= size

    def measure_again(self, keys: Iterable[tuple[int, str]]) -> None:
        """Values grow when backward gives them their gradients."""
        for key in keys:
            if key in self._values:
                value, size = self._values[key]
                now = nbytes(value)
                self._values[key] = (value, now)
                self.held += now - size
        self.trim(self.budget)


class Walk:
    """Forward and back through the states of a process.

    budget  bytes the walk may hold beyond what the step in progress needs itself
    """

    STEPS_LISTED = 256  # steps whose records are kept; older ones are listed again by a replay

    def __init__(self, process: Process, budget: int = 256 * MEGABYTE):
        self.process = process
        self.budget = budget
        self.losses: list[float] = []  # loss of step 1, 2, …
        self._values = ValueStore(budget)
        self._listed: OrderedDict[int, list[Record]] = OrderedDict()
        self._snapshots: dict[int, Snapshot] = {0: process.snapshot(0)}
        self._twin: Process | None = None
        self._names = process.parameter_names()
        self.frontier = 0  # the step being made, or the last made
        self._live: States | None = process.states(0)
        self._sent: State | None = None
        self._listed[0] = []
        self._advance()
        self.cursor = Position(0, 0)

    # --- the cursor -------------------------------------------------------------------------

    @property
    def current(self) -> Record:
        """The state under the cursor."""
        return self.records(self.cursor.step)[self.cursor.index]

    def forward(self) -> bool:
        """To the next state, made now if it is new. False where the process has ended."""
        step, index = self.cursor.step, self.cursor.index
        if index + 1 < len(self.records(step)) or (step == self.frontier and self._advance()):
            self.cursor = Position(step, index + 1)
            return True
        if step == self.frontier and not self._begin(step + 1):
            return False
        self.cursor = Position(step + 1, 0)
        return True

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

    def seek(self, step: int, name: str | None = None) -> None:
        """To a state by name (the first of the step, without one), forward or back.

        Raises UsageError where there is no such step or state; the cursor then stays.
        """
        if step < 0:
            raise UsageError(f"there is no step {step}: steps are counted from 0")
        while self.frontier < step:
            if not self._begin(self.frontier + 1):
                raise UsageError(
                    f"there is no step {step}: {self.process.map} ended at step {self.frontier}"
                    f" ({self.process.ended(self.frontier)})"
                )
        index = 0 if name is None else self._find(step, name)
        if index is None:
            raise UsageError(
                f"no state of step {step} of the {self.process.map} map is called {name!r}:"
                f" they are {', '.join(record.name for record in self.records(step))}"
            )
        self.cursor = Position(step, index)

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

    @property
    def ended_step(self) -> int:
        """The last step that has ended: its parameters are the ones that stand now."""
        return self.frontier if self._live is None else max(0, self.frontier - 1)

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
        try:
            state = next(self._live) if self._sent is None else self._live.send(self._sent)
        except StopIteration:
            self._live = self._sent = None
            self._end_step()
            return False
        record = Record(state, self.frontier, self._names, self)
        records = self._listed[self.frontier]
        records.append(record)
        if not state.aside:
            self._keep(record, state)
            if record.name == "loss" and record.step == len(self.losses) + 1:
                self.losses.append(state.value.item())
        self._sent = state
        return True

    def _keep(self, record: Record, state: State) -> None:
        state.finish()
        self._values.put((record.step, record.name), state.value)

    def _end_step(self) -> None:
        step = self.frontier
        self._values.measure_again((step, record.name) for record in self._listed[step])
        self._snapshots[step] = self.process.snapshot(step)
        self._trim_snapshots()
        while len(self._listed) > self.STEPS_LISTED:
            self._listed.popitem(last=False)

    def _begin(self, step: int) -> bool:
        """Finish the step in progress and begin the next. False where the process has ended."""
        while self._advance():
            pass
        if self.process.ended(step - 1) is not None:
            return False
        self.frontier = step
        self._live = self.process.states(step)
        self._listed[step] = []
        return self._advance()

    # --- reading ----------------------------------------------------------------------------

    def records(self, step: int) -> list[Record]:
        """The states of a step, in order, as far as they are made.

        Raises UsageError for a step that is not begun.
        """
        if step not in self._listed:
            self._replay(step, ())
        return self._listed[step]

    def record(self, name: str, step: int) -> Record | None:
        """The state (or part of one) of that name at that step, where there is one."""
        if name.startswith("parameters."):
            return self._parameter(name, step)
        for record in self.records(step):
            if record.name == name:
                return record
        whole, _, part = name.rpartition(".")
        for record in self.records(step):
            if record.name == whole and part in record.operation.parts:
                return PartRecord(record, part)
        return None

    def _parameter(self, name: str, step: int) -> Record | None:
        """A stored parameter after `step` steps; in the step in progress, as it stands now."""
        axes = self.process.axes.get(name.removeprefix("parameters."))
        if axes is None or step > self.frontier:
            return None
        step = min(step, self.ended_step)
        state = given(name, None, axes, "as it stood when the step had ended", role="parameter")
        return Record(state, step, self._names, self)

    def fetch(self, name: str, step: int) -> Any:
        """The value of state `name` at `step`, as it stood then: held, computed from what it was
        made of, or replayed. Raises KeyError where there is none."""
        value = self._values.get((step, name))
        if value is None:
            value = self._from_snapshot(name, step)
        if value is None:
            value = self._compute(name, step)
        if value is None:
            self._replay(step, (name,))
            value = self._values.get((step, name))
        if value is None:
            raise KeyError(f"no value of {name} at step {step}")
        return value

    def _from_snapshot(self, name: str, step: int) -> Any:
        """Parameters, and what an optimizer keeps, after a step that has ended."""
        first = self._snapshots.get(0)
        if first is None or first.get(name) is None:
            return None
        snapshot = self._snapshots.get(step)
        if snapshot is None and step < self.frontier:
            snapshot = self._replay(step, (), to_the_end=True)
        return None if snapshot is None else snapshot.get(name)

    def _compute(self, name: str, step: int) -> Any:
        """An aside, or a part of a state, from the values of its sources."""
        record = self.record(name, step)
        if record is None or not record.aside:
            return None
        if isinstance(record.operation, GradientOf) and not self._gradient_kept(record):
            return None
        values = []
        for source in record.sources:
            value = self.fetch(source.name, source.step)
            values.append(value if source.index_map is None else source.index_map(value))
        with torch.no_grad():  # a graph would hold what its backward needs, uncounted
            if isinstance(record, PartRecord):
                made = record.operation.take_apart(*values)[record.part]
            else:
                made = record.operation.compute(*values)
        self._values.put((step, name), made)
        return made

    def _gradient_kept(self, record: Record) -> bool:
        """Whether the state itself is held with its gradient (else the step is made again)."""
        source = record.sources[0]
        value = self._values.get((source.step, source.name))
        return value is not None and value.retains_grad and value.grad is not None

    # --- snapshots and replay ---------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """What the walk holds: values and snapshots."""
        return self._values.held + sum(each.nbytes for each in self._snapshots.values())

    def _trim_snapshots(self) -> None:
        """Thin out snapshots to half the budget: the first and the newest stay, and those between
        whose neighbours are closest go first."""
        while sum(each.nbytes for each in self._snapshots.values()) > self.budget // 2:
            steps = sorted(self._snapshots)
            if len(steps) <= 2:
                break
            gaps = {b: c - a for a, b, c in zip(steps, steps[1:], steps[2:], strict=False)}
            del self._snapshots[min(gaps, key=lambda step: (gaps[step], step))]
        taken = sum(each.nbytes for each in self._snapshots.values())
        self._values.trim(max(0, self.budget - taken))

    def _replay(
        self, step: int, wanted: tuple[str, ...], to_the_end: bool = False
    ) -> Snapshot | None:
        """Make a step again on a replica: its records, the values of `wanted`, or (to the end)
        the snapshot after it."""
        if not 0 <= step <= self.frontier:
            raise UsageError(f"there is no step {step} yet: steps 0 to {self.frontier} are begun")
        twin = self._stand_before(step)
        names = twin.parameter_names()
        records: list[Record] = []
        missing = set(wanted)
        states = twin.states(step)
        try:
            state = next(states)
            while True:
                record = Record(state, step, names, self)
                records.append(record)
                if not state.aside:
                    state.finish()
                if record.name in missing:
                    missing.discard(record.name)
                    self._values.put((step, record.name), without_graph(state.value))
                    if step in self._listed and not missing and not to_the_end:
                        return None
                state = states.send(state)
        except StopIteration:
            pass
        if step not in self._listed:
            self._listed[step] = records
            self._listed.move_to_end(step, last=False)
        if not to_the_end:
            return None
        snapshot = self._snapshots[step] = twin.snapshot(step)
        self._trim_snapshots()
        return snapshot

    def _stand_before(self, step: int) -> Process:
        """A replica that stands where `step` begins."""
        if self._twin is None:
            self._twin = self.process.replica()
        twin = self._twin
        if step > 0:
            at = max(known for known in self._snapshots if known < step)
            twin.restore(self._snapshots[at])
            for between in range(at + 1, step):
                drain(twin.states(between))
        return twin


def without_graph(value: Any) -> Any:
    """The same numbers, holding nothing that a backward pass would need."""
    return value.detach() if isinstance(value, Tensor) else value
