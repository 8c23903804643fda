"""Edits: a cell of a state, or of a stored parameter, set to another value.

An edited cell is a constant: no gradient goes through it to what it was computed from. What it was
computed as stays readable as NAME.computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.ops.core import (
    Cell,
    Cited,
    Explanation,
    Operands,
    Operation,
    Term,
    Wrapped,
    gradient_name,
)
from engine.records import PartRecord, Record
from engine.states import State

PARAMETERS = "parameters."
COMPUTED = "computed"  # the part of an edited state that has the numbers before the edit


@dataclass(frozen=True)
class Edit:
    """One cell of a state, or of a stored parameter as it stands after a step, set to a value."""

    step: int
    name: str
    cell: Cell
    value: float

    @property
    def is_parameter(self) -> bool:
        return self.name.startswith(PARAMETERS)

    @property
    def written(self) -> str:
        """As a user writes it, with all its digits: 1:weights:0,0,2=0.5."""
        whole = math.isfinite(self.value) and abs(self.value) < 2**53 and self.value % 1 == 0
        number = str(int(self.value)) if whole else repr(self.value)
        cell = ",".join(map(str, self.cell))
        return f"{self.step}:{self.name}{f':{cell}' if cell else ''}={number}"

    @property
    def first_step(self) -> int:
        """The first step that it changes."""
        return self.step + 1 if self.is_parameter else self.step


def edit_written(text: str) -> Edit:
    """The edit that is written STEP:STATE:I,J=VALUE: see `Edit.written`."""
    where, _, value = text.rpartition("=")
    step, name, *cell = where.split(":")
    cells = tuple(map(int, cell[0].split(","))) if cell and cell[0] else ()
    return Edit(int(step), name, cells, float(value))


class EditedOperands(Operands):
    """What an operation computed itself: where it cites its own cells, those before the edit."""

    def named(self, name: str, index: Cell, step: int | None = None) -> Cited:
        own = name == self.record.name
        return super().named(f"{name}.{COMPUTED}" if own else name, index, step)


class EditedOperation(Wrapped):
    """An operation whose result has other values in some cells."""

    __slots__ = ("cells", "was")

    def __init__(self, inner: Operation, cells: dict[Cell, float], made: Tensor):
        super().__init__(inner)
        self.cells = cells
        self.was = {cell: made[cell].item() for cell in cells}

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.inner.parts, COMPUTED)

    def apply(self, made: Tensor) -> Tensor:
        """The computed values with the edited ones in their places."""
        wanted, changed = made.detach().clone(), torch.zeros_like(made, dtype=torch.bool)
        for cell, value in self.cells.items():
            wanted[cell] = value
            changed[cell] = self.is_set(cell)
        return torch.where(changed, wanted, made)

    def is_set(self, cell: Cell) -> bool:
        """Whether a cell has another value than was computed: its own leaves it as it is."""
        value, was = self.cells.get(cell), self.was.get(cell)
        return value is not None and value != was and not (value != value and was != was)

    def compute(self, *operands: Any) -> Any:
        return self.apply(self.inner.compute(*operands))

    def part(self, part: str, operands: list[Any], whole: Callable[[], Any]) -> Any:
        if part != COMPUTED:
            return self.inner.part(part, operands, whole)
        computed = whole().detach().clone()
        for cell, value in self.was.items():
            computed[cell] = value
        return computed

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        if cell in self.cells:
            name = f"{operands.record.name}.{COMPUTED}"
            before = operands.named(name, cell)
            to.combine = "rule"
            to.note = "set by you; it was computed as"
            to.terms = [Term(before, float(before.value))]
            return
        self.inner.explain(cell, operands, to)

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        if part == COMPUTED:
            to.combine = self.inner.combine
            self.inner.explain(cell, operands, to)
        else:
            self.inner.explain_part(part, cell, operands, to)

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        """What the inner operation passes back, but nothing through the edited cells."""
        above = gradient_name(operands.record.name)
        if self.is_set(()):  # the loss itself is a constant
            return
        its = EditedOperands(operands.record, operands.fetch)
        for term in self.inner.gradient(k, cell, its):
            if not (term.cited.source == above and self.is_set(term.cited.index)):
                yield term


def set_cells(state: State, cells: dict[Cell, float]) -> None:
    """Give a state other values in some cells."""
    made = state.value
    operation = EditedOperation(state.operation, cells, made)
    state.operation = operation
    state.value = operation.apply(made)


def check_edit(edit: Edit, record: Record, vocabulary: int) -> None:
    """Raises UsageError for an edit that cannot be made: of a text, of what nothing follows from,
    of a cell that is not there, or with a value that its type, or a vocabulary, does not hold."""
    value, where = record.value, f"{edit.name}{list(edit.cell) or ''}"
    if edit.step < 1 and not edit.is_parameter:
        raise UsageError(
            f"{edit.name} is of step 0, the preparation: edit batch.X or context instead"
        )
    if not isinstance(value, Tensor):
        raise UsageError(f"{edit.name} is text: edit the IDs that are made of it instead")
    if isinstance(record, PartRecord):
        raise UsageError(f"{edit.name} is a part: edit the whole, or what it is made of")
    if (record.aside and record.role != "optimizer") or edit.name == "validation":
        raise UsageError(f"nothing follows from {edit.name}: edit what it is computed from instead")
    fits = len(edit.cell) == len(value.shape)
    if not fits or not all(0 <= i < n for i, n in zip(edit.cell, value.shape, strict=True)):
        raise UsageError(f"there is no cell {where}: the shape is {list(value.shape)}")
    if value.dtype.is_floating_point:
        if math.isfinite(edit.value) and abs(edit.value) > torch.finfo(value.dtype).max:
            raise UsageError(f"{edit.value:g} is too large for {where}, which is {record.dtype}")
    elif not math.isfinite(edit.value) or edit.value != int(edit.value):
        raise UsageError(f"{where} holds whole numbers: give one of these")
    elif not 0 <= edit.value < vocabulary:
        raise UsageError(f"ID {edit.value:g} is not in a vocabulary of {vocabulary}")
