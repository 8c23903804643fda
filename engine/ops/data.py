"""Operations before and after the arithmetic: texts, IDs, batches, the choice of a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.ops.attention import MINUS_INFINITY
from engine.ops.core import Cell, Explanation, Operands, Operation, Term, chooses, one
from engine.states import Axes, State, View


class Rule(Operation):
    """A value made outside the arithmetic, explained by the rule that made it.

    `cite(cell)` names the cells it was read from, as (input number, index) pairs.
    """

    __slots__ = ("cite", "make", "sentence")
    combine = "rule"

    def __init__(
        self,
        sentence: str,
        make: Callable[..., Any] | None = None,
        cite: Callable[[Cell], Iterable[tuple[int, Cell]]] | None = None,
    ):
        self.sentence = sentence
        self.make = make
        self.cite = cite

    def describe(self, names: list[str]) -> str:
        return self.sentence.format(*names)

    def compute(self, *operands: Any) -> Any:
        if self.make is None:
            raise TypeError("this value is given, not computed")
        return self.make(*operands)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.note = to.formula  # the sentence, with the operands' names in it
        if self.cite is not None:
            to.terms = [chooses(operands.cell(k, index), "") for k, index in self.cite(cell)]


class Gather(Operation):
    """The chosen rows of a table: a batch out of all windows, where the model is."""

    __slots__ = ("device", "rows")
    formula = "the chosen rows of {0}"

    def __init__(self, rows: Tensor, device: torch.device | None = None):
        self.rows = rows
        self.device = device

    def compute(self, table: Any) -> Tensor:
        rows: Tensor = table[self.rows]
        return rows if self.device is None else rows.to(self.device)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        row = int(self.rows[cell[0]])
        to.terms.append(one(operands.cell(0, (row, *cell[1:])), note=f"window {row}"))


class Block(Operation):
    """Logits with -inf at the IDs that may never be generated; `names` says what they are."""

    __slots__ = ("ids", "names")

    def __init__(self, ids: tuple[int, ...], names: Sequence[str]):
        self.ids = ids
        self.names = names

    def describe(self, names: list[str]) -> str:
        if not self.names:
            return f"{names[0]}: no ID is blocked"
        *most, last = self.names
        listed = f"{', '.join(most)} and {last}" if most else last
        return f"{names[0]}, and -inf at {listed}"

    def compute(self, logits: Tensor) -> Tensor:
        if not self.ids:
            return logits
        blocked = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        blocked[list(self.ids)] = True
        return logits.masked_fill(blocked, MINUS_INFINITY)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        cited = operands.cell(0, cell)
        if cell[-1] in self.ids:
            to.terms.append(Term(cited, MINUS_INFINITY, note="a blocked ID is never chosen"))
        else:
            to.terms.append(one(cited))


class CumulativeSum(Operation):
    """The running sum along the last axis, in float64."""

    __slots__ = ()
    formula = "running sum of {0} in float64"

    def compute(self, probabilities: Tensor) -> Tensor:
        # float64 does not exist on mps; the sum is short, so it is done on the CPU everywhere
        return probabilities.detach().to("cpu", torch.float64).cumsum(-1)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *at, last = cell
        to.terms = [one(operands.cell(0, (*at, j))) for j in range(last + 1)]


class TopK(Operation):
    """Logits with -inf at all but the k highest, and those equal to the last of them."""

    __slots__ = ("k",)

    def __init__(self, k: int):
        self.k = k

    def describe(self, names: list[str]) -> str:
        return f"the {self.k} highest of {names[0]}, -inf elsewhere"

    def kept(self, logits: Tensor) -> Tensor:
        least = logits.topk(min(self.k, logits.shape[-1])).values[..., -1:]
        return logits >= least

    def compute(self, logits: Tensor) -> Tensor:
        return logits.masked_fill(~self.kept(logits), MINUS_INFINITY)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        cited = operands.cell(0, cell)
        if bool(self.kept(operands.value(0))[cell]):
            to.terms.append(one(cited))
        else:
            to.terms.append(Term(cited, MINUS_INFINITY, note="not among those that are kept"))


class TopP(TopK):
    """Logits with -inf at all but the fewest whose probabilities add up to p or more.

    Holtzman and others, "The Curious Case of Neural Text Degeneration" (nucleus sampling). Of equal
    logits the first comes first.
    """

    __slots__ = ("p",)

    def __init__(self, p: float):
        self.p = p

    def describe(self, names: list[str]) -> str:
        return f"the highest of {names[0]} that together have {self.p:g}, -inf elsewhere"

    def kept(self, logits: Tensor) -> Tensor:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        shares = ordered.double().softmax(-1)
        before = shares.cumsum(-1) - shares  # what those that come first have together
        kept = before < self.p
        return torch.zeros_like(kept).scatter(-1, order, kept)


def top_k(name: str, logits: State, k: int) -> State:
    """The k highest logits; -inf elsewhere."""
    return State(name, TopK(k), (logits,), logits.axes)


def top_p(name: str, logits: State, p: float) -> State:
    """The fewest logits whose probabilities add up to p; -inf elsewhere."""
    return State(name, TopP(p), (logits,), logits.axes)


def given(
    name: str, value: Any, axes: Axes, sentence: str, role: str = "data", step: int | None = None
) -> State:
    """A state that starts a chain: its value is there, and a sentence says what it is."""
    return State(name, Rule(sentence), (), axes, role=role, step=step, value=value)


def by_rule(
    name: str,
    rule: Rule,
    inputs: tuple[State, ...],
    axes: Axes,
    role: str = "data",
    step: int | None = None,
) -> State:
    """A state made by a rule from other states."""
    return State(name, rule, inputs, axes, role=role, step=step)


def gather(name: str, table: State, rows: Tensor, device: torch.device | None = None) -> State:
    """Rows of a table of windows, on a device: [N, ...] -> [B, ...]."""
    return State(name, Gather(rows, device), (table,), ("B", *table.axes[1:]), role="data")


def block(name: str, logits: State | View, ids: dict[int, str]) -> State:
    """Logits with -inf at these IDs, given with their names."""
    return State(name, Block(tuple(ids), list(ids.values())), (logits,), logits.axes)


CUMULATIVE_SUM = CumulativeSum()


def cumulative_sum(name: str, probabilities: State) -> State:
    return State(name, CUMULATIVE_SUM, (probabilities,), probabilities.axes, aside=True)
