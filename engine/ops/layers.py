"""The arithmetic a model is made of. Shapes in comments; `...` stands for any leading axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import torch.nn.functional as F
from torch import Tensor, nn

from engine.ops.core import Cell, Explanation, Operands, Operation, Term, chooses, one, product
from engine.states import State, View


class Lookup(Operation):
    """Row ids[...] of a table [C, d] -> [..., d]."""

    __slots__ = ("padding_id",)
    formula = "row {0} of {1}"

    def __init__(self, padding_id: int | None):
        self.padding_id = padding_id

    def compute(self, ids: Tensor, table: Tensor) -> Tensor:
        return F.embedding(ids, table, self.padding_id)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *at, column = cell
        row = operands.cell(0, tuple(at))
        to.terms.append(one(operands.cell(1, (int(row.value), column))))
        to.terms.append(chooses(row, "picks the row"))

    gradient_formula = "Σ gradients.{out} over the uses of the row"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        row, column = cell
        if k != 1 or row == self.padding_id:  # the padding row is never trained
            return
        for at in (operands.value(0) == row).nonzero().tolist():
            yield one(operands.gradient((*at, column)))


class FirstRows(Operation):
    """The first `count` rows of a table [w, d]: one a slot."""

    __slots__ = ("count",)
    formula = "the slots' rows of {0}"

    def __init__(self, count: int):
        self.count = count

    def compute(self, table: Tensor) -> Tensor:
        return table[: self.count].clone()  # never a view: the optimizer writes tables in place

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.terms.append(one(operands.cell(0, cell)))

    gradient_formula = "gradients.{out}"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if cell[0] < self.count:
            yield one(operands.gradient(cell))


class Add(Operation):
    """a + b; where b has fewer axes it is added to every leading one."""

    __slots__ = ()
    formula = "{0} + {1}"

    def compute(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        for k in (0, 1):
            to.terms.append(one(operands.cell(k, aligned(cell, operands.shape(k)))))

    gradient_formula = "gradients.{out}"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        shape = tuple(operands.output.shape)
        lead = len(shape) - len(cell)
        padded = (None,) * lead + cell
        own = (1,) * lead + operands.shape(k)
        ranges = [
            range(full) if i is None or size != full else (i,)
            for i, size, full in zip(padded, own, shape, strict=True)
        ]
        for at in itertools.product(*ranges):
            yield one(operands.gradient(at))


class Linear(Operation):
    """x [..., i] · Wᵀ (+ b), W [o, i] -> [..., o]."""

    __slots__ = ()

    def describe(self, names: list[str]) -> str:
        text = f"{names[0]} · {names[1]}ᵀ"
        return f"{text} + {names[2]}" if len(names) > 2 else text

    def compute(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *at, out = cell
        for i in range(operands.shape(1)[1]):
            to.terms.append(product(operands.cell(0, (*at, i)), operands.cell(1, (out, i))))
        if len(operands.sources) > 2:
            to.terms.append(one(operands.cell(2, (out,))))

    gradient_formula = "Σ gradients.{out} · the other factor"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if k == 0:
            *at, i = cell
            for out in range(operands.shape(1)[0]):
                yield product(operands.gradient((*at, out)), operands.cell(1, (out, i)))
            return
        for lead in itertools.product(*map(range, operands.shape(0)[:-1])):
            above = operands.gradient((*lead, cell[0]))
            yield product(above, operands.cell(0, (*lead, cell[1]))) if k == 1 else one(above)


class MatMul(Operation):
    """a [..., m, n] · b [..., n, p] -> [..., m, p]."""

    __slots__ = ()
    formula = "{0} · {1}"

    def compute(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *lead, row, column = cell
        for n in range(operands.shape(0)[-1]):
            left = operands.cell(0, (*lead, row, n))
            to.terms.append(product(left, operands.cell(1, (*lead, n, column))))

    gradient_formula = "Σ gradients.{out} · the other factor"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        *lead, first, second = cell
        if k == 0:
            for p in range(operands.shape(1)[-1]):
                above = operands.gradient((*lead, first, p))
                yield product(above, operands.cell(1, (*lead, second, p)))
        else:
            for m in range(operands.shape(0)[-2]):
                above = operands.gradient((*lead, m, second))
                yield product(above, operands.cell(0, (*lead, m, first)))


class Scale(Operation):
    """x times one constant."""

    __slots__ = ("factor",)
    light = True

    def __init__(self, factor: float):
        self.factor = factor

    def describe(self, names: list[str]) -> str:
        return f"{names[0]} · {self.factor:.6g}"

    def compute(self, x: Tensor) -> Tensor:
        return x * self.factor

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.terms.append(one(operands.cell(0, cell), self.factor, f"· {self.factor:.6g}"))

    gradient_formula = "gradients.{out} · the same constant"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        yield one(operands.gradient(cell), self.factor, f"· {self.factor:.6g}")


class Relu(Operation):
    """max(0, x): passes what is positive, and the gradient with it."""

    __slots__ = ()
    formula = "max(0, {0})"

    def compute(self, x: Tensor) -> Tensor:
        return F.relu(x)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        cited = operands.cell(0, cell)
        closed = cited.value <= 0
        to.terms.append(
            Term(cited, 0.0 if closed else cited.value, note="closed" if closed else "")
        )

    gradient_formula = "gradients.{out} where {in} > 0, else 0"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        above, gate = operands.gradient(cell), operands.cell(0, cell)
        is_open = not gate.value <= 0  # NaN passes, as torch has it
        note = "gate open" if is_open else "gate closed"
        yield Term(above, above.value if is_open else 0.0, (gate,), note)


class Copy(Operation):
    """The operand's cells as they are (the operand is a view: flattened, joined, sliced)."""

    __slots__ = ()
    formula = "{0}, rearranged"

    def compute(self, x: Tensor) -> Tensor:
        return x

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.terms.append(one(operands.cell(0, cell)))

    gradient_formula = "gradients.{out}"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        yield one(operands.gradient(cell))


def aligned(cell: Cell, shape: tuple[int, ...]) -> Cell:
    """The cell of a broadcast operand that lands on `cell` of the result."""
    at = cell[len(cell) - len(shape) :]
    return tuple(0 if size == 1 else i for i, size in zip(at, shape, strict=True))


ADD, LINEAR, MATMUL, RELU, COPY = Add(), Linear(), MatMul(), Relu(), Copy()
lookup_with = lru_cache(Lookup)  # operations are settings only, so equal ones are shared
scale_by = lru_cache(Scale)
first_rows = lru_cache(FirstRows)

Operand = State | View


def lookup(name: str, ids: Operand, table: nn.Embedding, axis: str = "d") -> State:
    """One row of the table for each ID: [...] -> [..., d]."""
    operation = lookup_with(table.padding_idx)
    return State(name, operation, (ids,), (*ids.axes, axis), (table.weight,))


def slots(name: str, table: nn.Embedding, count: int) -> State:
    """The first `count` rows of a table of positions: [w, d]."""
    return State(name, first_rows(count), (), ("w", "d"), (table.weight,))


def add(name: str, a: Operand, b: Operand) -> State:
    """a + b, b broadcast over leading axes it lacks."""
    return State(name, ADD, (a, b), a.axes)


def linear(name: str, x: Operand, layer: nn.Linear, axis: str) -> State:
    """x · Wᵀ + b; the last axis becomes `axis`."""
    weights = (layer.weight,) if layer.bias is None else (layer.weight, layer.bias)
    return State(name, LINEAR, (x,), (*x.axes[:-1], axis), weights)


def matmul(name: str, a: Operand, b: Operand) -> State:
    """a [..., m, n] · b [..., n, p]."""
    return State(name, MATMUL, (a, b), (*a.axes[:-1], b.axes[-1]))


def scale(name: str, x: Operand, factor: float) -> State:
    """x · factor."""
    return State(name, scale_by(factor), (x,), x.axes)


def relu(name: str, x: Operand) -> State:
    """max(0, x)."""
    return State(name, RELU, (x,), x.axes)


def copy(name: str, x: View) -> State:
    """A rearrangement that is worth a name of its own."""
    return State(name, COPY, (x,), x.axes)
