"""What if a number were another: a process that makes its steps with edits.

Everything that is computed from an edited cell is computed again; what came before stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.edits import PARAMETERS, Edit, set_cells
from engine.ops.core import Cell
from engine.processes import Process, Snapshot
from engine.states import State, States


class EditedProcess:
    """A process with edits, on tensors of its own; driven and walked as any other.

    held  gives what the unedited walk holds of a state at a step, or None: in the first step that
          is edited, what comes before the first edit is taken from there
    """

    def __init__(
        self,
        process: Process,
        edits: tuple[Edit, ...],
        held: Callable[[str, int], Any] | None = None,
    ):
        self._process = process
        self._edits = edits
        self._held = held
        self.map = process.map

    @classmethod
    def of(
        cls, process: Process, edits: tuple[Edit, ...], held: Callable[[str, int], Any]
    ) -> EditedProcess:
        """The edits of a process, which itself stays as it is."""
        own = any(edit.is_parameter for edit in edits)
        return cls(process.apart() if own else process.replica(), edits, held)

    def states(self, step: int) -> States:
        self.set_parameters(step)
        cells: dict[str, dict[Cell, float]] = {}
        for edit in self._edits:
            if edit.step == step and not edit.is_parameter:
                cells.setdefault(edit.name, {})[edit.cell] = edit.value
        changed = any(e.first_step < step or e.is_parameter for e in self._edits)
        if self._held is None or not cells or changed:
            return edited(self._process.states(step), cells)
        return self._from_held(step, cells, self._held)

    def _from_held(
        self, step: int, cells: dict[str, dict[Cell, float]], held: Callable[[str, int], Any]
    ) -> States:
        """The states of a step without computing those before the first edit again.

        What is taken from elsewhere has no graph for backward: where backward is next, the step is
        made once more as a whole, up to where it is, and goes on from there.
        """
        states = edited(recalled(self._process.states(step), cells, held, step), cells)
        state = next(states)
        while True:
            name = state.name
            state = yield state
            if name == "loss" and self.map == "training":
                states.close()
                states = edited(self._process.states(step), cells)
                state = run_to(states, "loss")
            try:
                state = states.send(state)
            except StopIteration as stop:
                return stop.value

    def set_parameters(self, step: int) -> None:
        """Put the edited parameters in place with which a step begins."""
        for edit in self._edits:
            if edit.is_parameter and edit.first_step == step:
                parameter = self._process.parameters[edit.name.removeprefix(PARAMETERS)]
                with torch.no_grad():
                    parameter[edit.cell] = edit.value

    @property
    def inner(self) -> Process:
        """The process that makes its steps, on tensors of its own."""
        return self._process

    @property
    def model(self) -> Any:
        """The model that it drives, with edited parameters where there are any."""
        return getattr(self._process, "model", None)

    def ended(self, step: int) -> str | None:
        return self._process.ended(step)

    def snapshot(self, step: int) -> Snapshot:
        """What stands after a step, as the next one will begin."""
        self.set_parameters(step + 1)
        snapshot = self._process.snapshot(step)
        for name in {edit.name for edit in self._edits} & set(snapshot.shared):
            snapshot.tensors[name] = snapshot.shared.pop(name).detach().clone()
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        self._process.restore(snapshot)
        for name in {edit.name for edit in self._edits if edit.is_parameter}:
            value = snapshot.get(name)
            if value is not None:
                with torch.no_grad():
                    self.parameters[name.removeprefix(PARAMETERS)].copy_(value)

    def replica(self) -> EditedProcess:
        own = any(edit.is_parameter for edit in self._edits)
        return EditedProcess(self._process.apart() if own else self._process.replica(), self._edits)

    def apart(self) -> EditedProcess:
        return EditedProcess(self._process.apart(), self._edits)

    def parameter_names(self) -> dict[int, str]:
        return self._process.parameter_names()

    @property
    def parameters(self) -> dict[str, Tensor]:
        return self._process.parameters

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return self._process.axes


def recalled(
    states: States,
    cells: dict[str, dict[Cell, float]],
    held: Callable[[str, int], Any],
    step: int,
) -> States:
    """The same states; up to the first that is edited with the values that are held of them."""
    try:
        state = next(states)
        while True:
            if state.name in cells:
                break
            value = held(state.name, step)
            if isinstance(value, Tensor):
                state.recall(value.detach())
            state = yield state
            state = states.send(state)
        while True:
            state = yield state
            state = states.send(state)
    except StopIteration as stop:
        return stop.value


def run_to(states: States, name: str) -> State:
    """Drive up to a state, computing all but asides; returns it."""
    state = next(states)
    while True:
        if not state.aside:
            state.finish()
        if state.name == name:
            return state
        state = states.send(state)


def edited(states: States, cells: dict[str, dict[Cell, float]]) -> States:
    """The same states, those that are named with other values in some cells."""
    try:
        state = next(states)
        while True:
            if state.name in cells:
                set_cells(state, cells[state.name])
            state = yield state
            state = states.send(state)
    except StopIteration as stop:
        return stop.value
