"""What a walk has seen, by step and name: held within a budget of bytes, and made again, bit for
bit, where it was let go of.

A value that is no longer held is computed from its sources where nothing else is needed (asides),
or replayed: the snapshot of an earlier step is restored on a replica of the process, and that is
driven up to the state that is wanted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.ops import given
from engine.ops.gradients import GradientOf
from engine.processes import Process, Snapshot
from engine.records import PartRecord, Record
from engine.snapshots import Snapshots
from engine.states import State, drain
from engine.values import ValueStore

LARGE = 2**16  # bytes


class History:
    """The records, values and snapshots of a process that is driven step by step.

    budget    bytes that may be held beyond what the step in progress needs itself
    before    what was seen before step `begin`, where this history branches off another; without
              one, what was before is not known, but for the preparation
    frontier  the step in progress, or the last one made
    """

    STEPS_LISTED = 256  # steps whose records are kept; older ones are listed again by a replay

    def __init__(
        self, process: Process, budget: int, before: History | None = None, begin: int = 0
    ):
        self.process = process
        self.budget = budget
        self.before = before
        self.begins = begin  # the first step that is seen here
        self.frontier = max(0, begin - 1)
        self.in_progress = begin == 0
        self._values = ValueStore(budget)
        self._listed: OrderedDict[int, list[Record]] = OrderedDict()
        if begin == 0:
            self._listed[0] = []
        self._snapshots = Snapshots(process.snapshot(self.frontier))
        self._stored = frozenset(self._snapshots.newest)  # names that snapshots hold
        self._twin: Process | None = None
        self._names = process.parameter_names()

    # --- seeing -----------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """A step is begun."""
        self.frontier = step
        self.in_progress = True
        self._listed[step] = []

    def see(self, state: State) -> Record:
        """Record the next state of the step in progress, computed unless it is an aside."""
        record = Record(state, self.frontier, self._names, self)
        if not state.aside:
            value = state.finish().value
            if not (record.again and is_large(value)):
                self._values.put((record.step, record.name), value)
        self._listed[self.frontier].append(record)
        return record

    def end(self) -> None:
        """The step in progress has ended."""
        step = self.frontier
        self.in_progress = False
        self._values.measure_again((step, record.name) for record in self._listed[step])
        self._snapshots.add(self.process.snapshot(step))
        self._fit()
        while len(self._listed) > self.STEPS_LISTED:
            self._listed.popitem(last=False)

    @property
    def ended_step(self) -> int:
        """The last step that has ended: its parameters are the ones that stand now."""
        return max(0, self.frontier - 1) if self.in_progress else self.frontier

    # --- reading ----------------------------------------------------------------------------

    def records(self, step: int) -> list[Record]:
        """The states of a step, in order, as far as they are made.

        Raises UsageError for a step that is not begun.
        """
        if self.before is not None and step < self.begins:
            return self.before.records(step)
        if step not in self._listed:
            self._replay(step, ())
        return self._listed[step]

    def record(self, name: str, step: int) -> Record | None:
        """The state (or part of one) of that name at that step, where there is one."""
        if self.before is not None and step < self.begins - 1:
            return self.before.record(name, step)
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
        if self._is_before(name, step):
            return self.before.fetch(name, step) if self.before else None
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

    def held(self, name: str, step: int) -> Any:
        """The value of a state where it is held, without computing it; else None."""
        return self._values.get((step, name))

    def _is_before(self, name: str, step: int) -> bool:
        """Whether another history has it; what this one begins with it has itself."""
        if self.before is None or step >= self.begins:
            return False
        return step < self.begins - 1 or name not in self._stored

    def _from_snapshot(self, name: str, step: int) -> Any:
        """Parameters, and what an optimizer keeps, after a step that has ended."""
        if name not in self._stored:
            return None
        snapshot = self._snapshots.get(step)
        if snapshot is not None:
            return snapshot.get(name)
        if step >= self.frontier:
            return None
        value = self.stand_before(step + 1).snapshot(step).get(name)
        if self._snapshots.get(step) is None:  # it was too large to be held whole
            self._values.put((step, name), value)
        return value

    def _compute(self, name: str, step: int) -> Any:
        """An aside, a part of a state or the result of a light operation, from its sources."""
        record = self.record(name, step)
        if record is None or not record.again:
            return None
        if isinstance(record.operation, GradientOf) and not self._gradient_kept(record):
            return None
        values = []
        for source in record.sources:
            value = self.fetch(source.name, source.step)
            values.append(value if source.index_map is None else source.index_map(value))
        with torch.no_grad():  # a graph would hold what its backward needs, uncounted
            if isinstance(record, PartRecord):
                whole = record.whole.name
                made = record.operation.part(record.part, values, lambda: self.fetch(whole, step))
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
        """What is held: values and snapshots."""
        return self._values.held + self._snapshots.held

    def _fit(self) -> None:
        """Keep to the budget: half of it for snapshots, what they leave for values."""
        self._snapshots.thin(self.budget // 2)
        if self._snapshots.held > self.budget:
            self._snapshots.stand_near(None)
        self._values.trim(max(0, self.budget - self._snapshots.held))

    def _replay(self, step: int, wanted: tuple[str, ...]) -> None:
        """Make a step again on a replica: its records, and the values of `wanted`."""
        if not 0 <= step <= self.frontier:
            raise UsageError(f"there is no step {step} yet: steps 0 to {self.frontier} are begun")
        if 0 < step < self.begins:
            raise UsageError(
                f"step {step} was not kept: this walk begins at step {self.begins}, where the run"
                " stood still"
            )
        twin = self.stand_before(step)
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
                    if step in self._listed and not missing:
                        return
                state = states.send(state)
        except StopIteration:
            pass
        if step not in self._listed:
            self._listed[step] = records
            self._listed.move_to_end(step, last=False)

    @property
    def first_step(self) -> int:
        """The first step that is known, the preparation not counted."""
        if self.before is not None and self.begins > 1:
            return self.before.first_step
        return max(1, self.begins)

    def beginning(self) -> Process:
        """A replica of its own that stands where the first step that is known begins."""
        replica = self.process.replica()
        replica.restore(self._first_snapshot())
        return replica

    def _first_snapshot(self) -> Snapshot:
        if self.before is not None and self.begins > 1:
            return self.before._first_snapshot()
        return self._snapshots.before(max(1, self.begins))

    def stand_before(self, step: int) -> Process:
        """A replica that stands where `step` begins."""
        if self._twin is None:
            self._twin = self.process.replica()
        twin = self._twin
        if step == 0:
            return twin
        begin = self._snapshots.before(step)
        twin.restore(begin)
        if begin.step + 1 < step:
            for between in range(begin.step + 1, step):
                drain(twin.states(between))
            self._snapshots.stand_near(twin.snapshot(step - 1))
            self._fit()
        return twin


def is_large(value: Any) -> bool:
    """Whether holding a value costs more than making it anew now and then. One that gradients flow
    through is held by its graph anyhow."""
    if not isinstance(value, Tensor) or value.requires_grad:
        return False
    return value.nbytes >= LARGE


def without_graph(value: Any) -> Any:
    """The same numbers, holding nothing that a backward pass would need."""
    return value.detach() if isinstance(value, Tensor) else value
