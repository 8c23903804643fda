"""Masking and softmax: which slots a query may see, and how much of each it takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.ops.core import (
    Cell,
    Cited,
    Explanation,
    Operands,
    Operation,
    Term,
    chooses,
    one,
    product,
)
from engine.ops.layers import Operand
from engine.states import State

MINUS_INFINITY = -math.inf


class Mask(Operation):
    """Scores with -inf where the key is padding or lies after the query.

    scores [B, ..., T, S], ids [B, S]; the T queries are the last T of the S slots.
    """

    __slots__ = ("pad_id",)
    light = True
    formula = "{0}, and -inf where {1} is <PAD> or lies after the query"

    def __init__(self, pad_id: int):
        self.pad_id = pad_id

    def compute(self, scores: Tensor, ids: Tensor) -> Tensor:
        queries, keys = scores.shape[-2:]
        if self.pad_id < 0:
            if queries == 1:  # the last position sees everything
                return scores
            return scores.masked_fill(later(queries, keys, scores.device), MINUS_INFINITY)
        hidden = (ids == self.pad_id).view(ids.shape[0], *[1] * (scores.dim() - 2), ids.shape[1])
        if queries > 1:
            hidden = hidden | later(queries, keys, scores.device)
        return scores.masked_fill(hidden, MINUS_INFINITY)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        key = operands.cell(1, (cell[0], cell[-1]))
        if key.value == self.pad_id:
            to.terms.append(Term(key, MINUS_INFINITY, note="<PAD>: not to be seen"))
        elif self.hides(cell, operands):
            to.terms.append(Term(key, MINUS_INFINITY, note="lies after the query"))
        else:
            to.terms.append(one(operands.cell(0, cell)))
            to.terms.append(chooses(key, "may be seen"))

    def hides(self, cell: Cell, operands: Operands) -> bool:
        queries, keys = operands.shape(0)[-2:]
        return cell[-1] > cell[-2] + keys - queries

    gradient_formula = "gradients.{out} where the key may be seen, else 0"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if k == 0:
            key = operands.cell(1, (cell[0], cell[-1]))
            if key.value == self.pad_id or self.hides(cell, operands):
                yield chooses(key, "masked: no gradient")
            else:
                yield one(operands.gradient(cell))


@lru_cache(maxsize=1)  # every block of a pass asks for the same
def later(queries: int, keys: int, device: torch.device) -> Tensor:
    """Which keys lie after each query, the last of which is the last key: [T, S]."""
    with torch.inference_mode(False):  # whoever asks first: a later backward pass may keep it
        return torch.ones(queries, keys, dtype=torch.bool, device=device).triu(1 + keys - queries)


class Softmax(Operation):
    """exp(x - max) / Σ exp(x - max) over the last axis; a row of nothing but -inf weighs 0."""

    __slots__ = ()
    light = True
    formula = "softmax({0})"
    combine = "softmax"

    def compute(self, x: Tensor) -> Tensor:
        weights = torch.softmax(x, -1)
        # A row of nothing but -inf comes out as NaN, forward and backward, so it is softened from
        # 0s instead and then filled with 0. Such rows are rare, and asking is cheap on the CPU;
        # elsewhere asking would wait for the device, so there it is always done.
        if x.device.type == "cpu" and not math.isnan(weights.detach()[..., 0].sum().item()):
            return weights
        empty = (x == MINUS_INFINITY).all(-1, keepdim=True)
        return torch.softmax(x.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        row = [operands.cell(0, (*cell[:-1], j)) for j in range(operands.shape(0)[-1])]
        top = highest(row)
        if top == MINUS_INFINITY:
            to.combine = "sum"
            to.note = "no visible key: the row weighs 0 everywhere"
            to.terms = [Term(cited, 0.0, note="masked") for cited in row]
            return
        to.terms = [exponential(cited, top) for cited in row]
        to.own = cell[-1]

    gradient_formula = "Σ_j gradients.{out}[j] · {out}[i] · ([i = j] - {out}[j])"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        *at, i = cell
        mine = operands.named(operands.record.name, cell)
        for j in range(operands.shape(0)[-1]):
            other = operands.named(operands.record.name, (*at, j))
            above = operands.gradient((*at, j))
            if i == j:  # a term of its own: where the weight is near 1 the two are nearly opposite
                yield product(above, mine)
            yield product(above, mine, other, factor=-1.0)


class CrossEntropyEach(Operation):
    """-ln softmax(logits)[target] for each row: logits [..., C], targets [...], in nats."""

    __slots__ = ()
    formula = "-ln softmax({0})[{1}]"
    combine = "cross-entropy"

    def compute(self, logits: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
        return each.view(targets.shape)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        target = operands.cell(1, cell)
        row = [operands.cell(0, (*cell, j)) for j in range(operands.shape(0)[-1])]
        top = highest(row)
        to.terms = [exponential(cited, top) for cited in row]
        to.terms.append(chooses(target, "the target"))
        to.constant = top - row[int(target.value)].value
        to.note = f"ln Σ exp(x - {top:.4f}) + {top:.4f} - {row[int(target.value)].value:.4f}"


class CrossEntropy(Operation):
    """The mean of the per-target losses over the batch, in nats, as torch computes it at once."""

    __slots__ = ()
    formula = "mean of loss.per_target"

    def compute(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        shape = operands.shape(1)
        count = math.prod(shape)
        for at in itertools.product(*map(range, shape)):
            to.terms.append(one(operands.named("loss.per_target", at), 1 / count, f"/ {count}"))

    gradient_formula = "(probabilities - [c = {target}]) / number of targets"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        *row, column = cell
        count = math.prod(operands.shape(1))
        yield one(operands.named("probabilities", cell), 1 / count, f"/ {count}")
        target = operands.cell(1, tuple(row))
        if target.value == column:
            yield Term(target, -1 / count, note=f"is the target: - 1 / {count}")
        else:
            yield chooses(target, "is not the target")


def highest(row: list[Cited]) -> float:
    """The largest of a row; NaN where any is, as torch.max has it."""
    values = [cited.value for cited in row]
    return math.nan if any(value != value for value in values) else max(values)


def exponential(cited: Cited, top: float) -> Term:
    if not math.isfinite(top):
        return Term(cited, math.nan, note="not finite")
    return Term(cited, math.exp(cited.value - top), note=f"exp(x - {top:.4f})")


SOFTMAX, CROSS_ENTROPY_EACH, CROSS_ENTROPY = Softmax(), CrossEntropyEach(), CrossEntropy()
mask_for = lru_cache(Mask)


def mask(name: str, scores: Operand, ids: Operand, pad_id: int) -> State:
    """-inf where a key is padding or lies after the query: scores [B, ..., T, S], ids [B, S]."""
    return State(name, mask_for(pad_id), (scores, ids), scores.axes)


def softmax(name: str, x: Operand, aside: bool = False) -> State:
    """Shares that add up to 1 along the last axis."""
    return State(name, SOFTMAX, (x,), x.axes, aside=aside)


def cross_entropy_each(name: str, logits: Operand, targets: Operand) -> State:
    """The loss of every target by itself: an aside, since training uses the mean."""
    return State(name, CROSS_ENTROPY_EACH, (logits, targets), targets.axes, aside=True)


def cross_entropy(name: str, logits: Operand, targets: Operand) -> State:
    """The mean loss: what training descends."""
    return State(name, CROSS_ENTROPY, (logits, targets), ())
