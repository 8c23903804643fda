"""What an operation is: it computes a state, and explains any cell of it with the real numbers.

An explanation lists terms. Each cites a cell (`source`, `step`, `index`, `value`), possibly further
cells it is multiplied with (`times`), and what it puts into the result (`contribution`). How the
contributions make the cell is one of a few rules, computed in float64 from the terms alone:

    sum            Σ contribution
    softmax        the contribution of the cell itself / Σ contribution, contribution = exp(x - max)
    cross-entropy  ln Σ exp(x - max) + max - x[target]; contributions as above
    root           √ Σ contribution
    rule           no arithmetic: the sentence says it (texts, IDs, choices)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Cell = tuple[int, ...]


@dataclass(slots=True)
class Cited:
    """One cell of one state at one step, and the number (or text) that stood there."""

    source: str
    step: int
    index: Cell
    value: Any


@dataclass(slots=True)
class Term:
    """One part of an explanation: a cited cell, what it is multiplied with, what it puts in."""

    cited: Cited
    contribution: float
    times: tuple[Cited, ...] = ()
    note: str = ""


@dataclass(slots=True)
class Explanation:
    """Where one cell comes from. `total` is computed from `terms` by `combine`, in float64."""

    name: str
    step: int
    cell: Cell
    value: Any
    formula: str
    combine: str
    terms: list[Term] = field(default_factory=list)
    note: str = ""
    own: int = 0  # softmax: which term is the cell itself
    constant: float = 0.0  # cross-entropy: what is added to the logarithm
    limit: float = math.inf  # the largest number that the cell's own type can hold

    @property
    def total(self) -> float | None:
        """The cell computed again from the terms; infinite where its own type would overflow; None
        where there is no arithmetic to do."""
        total = self._combined()
        if total is not None and abs(total) > self.limit:
            return math.copysign(math.inf, total)
        return total

    def _combined(self) -> float | None:
        parts = [term.contribution for term in self.terms]
        if self.combine == "sum":
            return exact_sum(parts)
        if self.combine == "softmax":
            whole = exact_sum(parts)
            return parts[self.own] / whole if whole else 0.0
        if self.combine == "cross-entropy":
            return math.log(exact_sum(parts)) + self.constant
        if self.combine == "root":
            return math.sqrt(exact_sum(parts))
        return None

    @property
    def size(self) -> float:
        """The sum of the terms' sizes: what an error of the total is measured against."""
        sizes = [abs(term.contribution) for term in self.terms]
        return exact_sum(sizes) + abs(self.constant)


def exact_sum(numbers: list[float]) -> float:
    """The float64 sum; infinities and NaN as IEEE addition has them."""
    try:
        return math.fsum(numbers)
    except (ValueError, OverflowError):
        return float(torch.tensor(numbers, dtype=torch.float64).sum())


class Operands:
    """The operands of one recorded state, fetched by name: what an explanation reads from.

    Operand number k is the k-th input, then the parameters. Cells are given in the operand's own
    arrangement and come back cited in the arrangement of the state they lie in.
    """

    def __init__(self, record: Any, fetch: Callable[[str, int], Any]):
        self.record = record
        self.sources = record.sources
        self.fetch = fetch
        self._viewed: dict[int, tuple[Any, Any]] = {}

    def _operand(self, k: int) -> tuple[Any, Any]:
        if k not in self._viewed:
            source = self.sources[k]
            value = self.fetch(source.name, source.step)
            where = None
            if source.index_map is not None:
                numbers = torch.arange(value.numel(), device=value.device).view(value.shape)
                where = source.index_map(numbers)
                value = source.index_map(value)
            self._viewed[k] = (value, where)
        return self._viewed[k]

    def value(self, k: int) -> Any:
        """The operand whole, as the operation sees it."""
        return self._operand(k)[0]

    def shape(self, k: int) -> tuple[int, ...]:
        return tuple(self._operand(k)[0].shape)

    def cell(self, k: int, index: Cell) -> Cited:
        """Cite one cell of operand k."""
        source = self.sources[k]
        value, where = self._operand(k)
        number = pick(value, index)
        if where is not None:
            whole = self.fetch(source.name, source.step)
            index = unravel(int(where[index]), tuple(whole.shape))
        return Cited(source.name, source.step, index, number)

    def cells_at(self, k: int, index: Cell) -> Iterator[Cell]:
        """The cells of operand k that are cell `index` of the state it is a view of."""
        where = self._operand(k)[1]
        if where is None:
            yield index
            return
        shape = tuple(self.fetch(self.sources[k].name, self.sources[k].step).shape)
        for found in (where == ravel(index, shape)).nonzero().tolist():
            yield tuple(found)

    def named(self, name: str, index: Cell, step: int | None = None) -> Cited:
        """Cite one cell of any state (of this step, unless another is given)."""
        at = self.record.step if step is None else step
        return Cited(name, at, index, pick(self.fetch(name, at), index))

    def gradient(self, index: Cell) -> Cited:
        """Cite one cell of the gradient that reaches the state itself."""
        return self.named(gradient_name(self.record.name), index)

    @property
    def output(self) -> Any:
        return self.fetch(self.record.name, self.record.step)


class Operation(ABC):
    """How one state is computed from its operands, and explained cell by cell.

    Operations hold settings, never tensors. `formula` has one `{}` for each operand's name.
    """

    __slots__ = ()
    formula = ""
    combine = "sum"
    light = False  # takes so little that a walk makes a large value anew rather than hold it
    gradient_formula = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of further values, readable as NAME.part and explained like the state itself."""
        return ()

    @abstractmethod
    def compute(self, *operands: Any) -> Any:
        """The value, from the operands' values."""

    @abstractmethod
    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        """Put the terms of one cell into `to`."""

    def take_apart(self, *operands: Any) -> dict[str, Any]:
        """The values of `parts`, from the operands' values."""
        return {}

    def part(self, part: str, operands: list[Any], whole: Callable[[], Any]) -> Any:
        """The value of one of the `parts`; `whole` gives the state's own value."""
        return self.take_apart(*operands)[part]

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        """Put the terms of one cell of a part into `to`."""

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        """What cell `cell` of operand k receives from the gradient of the result (chain rule)."""
        raise TypeError(f"{type(self).__name__} passes no gradient back")

    def describe(self, names: list[str]) -> str:
        """The formula with the operands' names in it."""
        return self.formula.format(*names)


class Wrapped(Operation):
    """An operation around another one: it does what that does, where it does not say otherwise."""

    __slots__ = ("inner",)

    def __init__(self, inner: Operation):
        self.inner = inner

    @property
    def combine(self) -> str:  # type: ignore[override]
        return self.inner.combine

    @property
    def light(self) -> bool:  # type: ignore[override]
        return self.inner.light

    @property
    def gradient_formula(self) -> str:  # type: ignore[override]
        return self.inner.gradient_formula

    @property
    def parts(self) -> tuple[str, ...]:
        return self.inner.parts

    def describe(self, names: list[str]) -> str:
        return self.inner.describe(names)

    def compute(self, *operands: Any) -> Any:
        return self.inner.compute(*operands)

    def take_apart(self, *operands: Any) -> dict[str, Any]:
        return self.inner.take_apart(*operands)

    def part(self, part: str, operands: list[Any], whole: Callable[[], Any]) -> Any:
        return self.inner.part(part, operands, whole)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        self.inner.explain(cell, operands, to)

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        self.inner.explain_part(part, cell, operands, to)

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        return self.inner.gradient(k, cell, operands)


def gradient_name(state: str) -> str:
    """What the gradient of a state is called. `gradients.norm` is the norm of all gradients, so
    that of a decoder's last state `norm` has another name."""
    return "gradients.norm.state" if state == "norm" else f"gradients.{state}"


def one(cited: Cited, factor: float = 1.0, note: str = "") -> Term:
    """A term that is one cell, times a constant."""
    return Term(cited, float(cited.value) * factor, note=note)


def product(cited: Cited, *times: Cited, factor: float = 1.0) -> Term:
    """A term that is a product of cells, times a constant."""
    contribution = float(cited.value) * factor
    for other in times:
        contribution *= float(other.value)
    return Term(cited, contribution, times)


def chooses(cited: Cited, note: str) -> Term:
    """A cell that decides which cells count without being added itself (an ID picks a row)."""
    return Term(cited, 0.0, note=note)


def pick(value: Any, index: Cell) -> Any:
    """One cell of a value: a Python number of a tensor, a text of a list of texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return value[index[0]]
    return value[index].item()


def ravel(index: Cell, shape: tuple[int, ...]) -> int:
    flat = 0
    for i, size in zip(index, shape, strict=True):
        flat = flat * size + i
    return flat


def unravel(flat: int, shape: tuple[int, ...]) -> Cell:
    index = []
    for size in reversed(shape):
        flat, i = divmod(flat, size)
        index.append(i)
    return tuple(reversed(index))
