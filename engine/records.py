"""A state as a walk holds it: its name, operation and sources, but no live inputs, so that its
value can be let go of and made again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from weakref import ref

import torch
from torch import Tensor

from engine.ops.core import Cell, Explanation, Operands, Operation, pick
from engine.states import Axes, IndexMap, State, View


class Reader(Protocol):
    """Where records read values from: a history of what was seen."""

    def fetch(self, name: str, step: int) -> Any: ...

    def records(self, step: int) -> list[Record]: ...


class Source(NamedTuple):
    """An operand by name: the state `name` at `step`, through `index_map` where it was a view."""

    name: str
    step: int
    index_map: IndexMap | None = None


class Record:
    """One state of a walk. `value` is fetched from the walk, which computes or replays it."""

    __slots__ = (
        "_history",
        "again",
        "aside",
        "axes",
        "name",
        "operation",
        "role",
        "sources",
        "step",
    )

    def __init__(self, state: State, step: int, parameters: dict[int, str], history: Reader):
        self.name = state.name
        self.step = step if state.step is None else state.step
        self.operation: Operation = state.operation
        self.sources = sources_of(state, step, parameters)
        self.axes: Axes = state.axes
        self.role = state.role
        self.aside = state.aside
        # whether its value can be computed from its sources alone
        self.again = state.aside or (state.operation.light and not state.replaced)
        self._history = ref(history)

    @property
    def history(self) -> Reader:
        history = self._history()
        if history is None:
            raise ReferenceError(f"the walk that saw {self.name} is gone")
        return history

    @property
    def value(self) -> Any:
        """The tensor, text or list of texts that stood at this step."""
        return self.history.fetch(self.name, self.step)

    @property
    def kind(self) -> str:
        """text, number or tensor"""
        value = self.value
        if isinstance(value, Sequence):
            return "text"
        return "tensor" if len(value.shape) else "number"

    @property
    def shape(self) -> tuple[int, ...]:
        value = self.value
        if isinstance(value, str):
            return ()
        return (len(value),) if isinstance(value, Sequence) else tuple(value.shape)

    @property
    def dtype(self) -> str:
        return "str" if self.kind == "text" else str(self.value.dtype).removeprefix("torch.")

    @property
    def formula(self) -> str:
        names = [source.name.removeprefix("parameters.") for source in self.sources]
        return self.operation.describe(names)

    def users(self, name: str) -> list[tuple[Record, int]]:
        """Which states of this step use state `name` on the way to the loss, as which operand."""
        return [
            (record, k)
            for record in self.history.records(self.step)
            if record.role == "activation" and not record.aside
            for k, source in enumerate(record.sources)
            if source.name == name
        ]

    def explain(self, cell: Cell = ()) -> Explanation:
        """Where one cell comes from: the formula and every term with the number that stood there.

        Raises IndexError for a cell that is not there.
        """
        value = self.value
        check_cell(self.name, cell, self.shape)
        to = Explanation(
            self.name, self.step, cell, pick(value, cell), self.formula, self.operation.combine
        )
        to.limit = largest(value)
        self.operation.explain(cell, Operands(self, self.history.fetch), to)
        return to


class PartRecord(Record):
    """A part of a state: `update.W_Q.weight.m`."""

    __slots__ = ("part", "whole")

    def __init__(self, whole: Record, part: str):
        self.whole = whole
        self.part = part
        self.name = f"{whole.name}.{part}"
        self.step = whole.step
        self.operation = whole.operation
        self.sources = whole.sources
        self.axes = whole.axes
        self.role = whole.role
        self.aside = self.again = True
        self._history = whole._history

    def explain(self, cell: Cell = ()) -> Explanation:
        check_cell(self.name, cell, self.shape)
        to = Explanation(self.name, self.step, cell, pick(self.value, cell), self.formula, "sum")
        to.limit = largest(self.value)
        operands = Operands(self.whole, self.history.fetch)
        self.operation.explain_part(self.part, cell, operands, to)
        return to


def largest(value: Any) -> float:
    """The largest number that a value's type holds."""
    floating = isinstance(value, Tensor) and value.dtype.is_floating_point
    return torch.finfo(value.dtype).max if floating else math.inf


def sources_of(state: State, step: int, parameters: dict[int, str]) -> tuple[Source, ...]:
    """The operands of a state by name, before it lets go of them. Parameters are those that stood
    when the step before had ended."""
    sources = []
    for operand in state.inputs or ():
        if isinstance(operand, View):
            at = operand.state.step
            sources.append(
                Source(operand.state.name, step if at is None else at, operand.index_map)
            )
        else:
            at = operand.step
            sources.append(Source(operand.name, step if at is None else at))
    for tensor in state.parameters:
        sources.append(Source(f"parameters.{parameters[id(tensor)]}", max(0, step - 1)))
    return tuple(sources)


def check_cell(name: str, cell: Cell, shape: tuple[int, ...]) -> None:
    fits = len(cell) == len(shape) and all(0 <= i < n for i, n in zip(cell, shape, strict=True))
    if not fits:
        raise IndexError(f"{name} has no cell {list(cell)}: its shape is {list(shape)}")
