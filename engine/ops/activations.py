"""The activations between the two layers of a feedforward network."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.ops.core import Cell, Cited, Explanation, Operands, Operation, Term, one
from engine.ops.layers import Operand
from engine.states import State

ROOT_2_OVER_PI, CUBIC = math.sqrt(2 / math.pi), 0.044715  # of the approximation by tanh


class Share(Operation):
    """x times a share of it that grows with x, between 0 and 1: a half, and a part between -1/2 and
    1/2.

    The two are terms of their own: where x is negative they are nearly opposite, and float32 has
    what is left of them with an error of their size.
    """

    __slots__ = ()
    light = True
    formula = "{0} · share of {0}"
    gradient_formula = "gradients.{out} · slope at {in}"

    @abstractmethod
    def beyond_half(self, x: float) -> float:
        """How much more than half of x is passed on."""

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        its = operands.cell(0, cell)
        more = self.beyond_half(float(its.value))
        to.terms = [
            one(its, 0.5, "a half"),
            one(its, more, f"· {more:+.6g}, so that {0.5 + more:.6g} of it is passed on"),
        ]

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        above, its = operands.gradient(cell), operands.cell(0, cell)
        more = self.beyond_half(float(its.value))
        rest = self.slope(its) - (0.5 + more)
        for factor, note in ((0.5, "a half"), (more, "what is passed on"), (rest, "as it grows")):
            yield Term(above, float(above.value) * factor, (its,), f"· {factor:+.6g}, {note}")

    def slope(self, its: Cited) -> float:
        """The derivative, in float64, by autograd."""
        x = torch.tensor(float(its.value), dtype=torch.float64, requires_grad=True)
        self.compute(x).backward()
        return float(x.grad) if x.grad is not None else math.nan


class GELU(Share):
    """x · Φ(x), Φ the normal distribution; or its approximation by tanh.

    Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)".
    """

    __slots__ = ("approximate",)

    def __init__(self, approximate: str):
        self.approximate = approximate

    def describe(self, names: list[str]) -> str:
        return f"{names[0]} · Φ({names[0]})" + (", by tanh" if self.approximate == "tanh" else "")

    def compute(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.approximate)

    def beyond_half(self, x: float) -> float:
        if self.approximate == "tanh":
            return 0.5 * math.tanh(ROOT_2_OVER_PI * (x + CUBIC * x**3))
        return 0.5 * math.erf(x / math.sqrt(2))


class GatedSiLU(Operation):
    """gate · σ(gate) · up: what the gate lets through of another layer.

    Shazeer, "GLU Variants Improve Transformer" (SwiGLU).
    """

    __slots__ = ()
    light = True
    formula = "{0} · σ({0}) · {1}"

    def compute(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        gate, up = operands.cell(0, cell), operands.cell(1, cell)
        share = logistic(float(gate.value))
        passed = float(gate.value) * share * float(up.value)
        to.terms.append(Term(gate, passed, (up,), f"σ(gate) = {share:.6g}"))

    gradient_formula = "gradients.{out} · the other factor"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        above, gate, up = operands.gradient(cell), operands.cell(0, cell), operands.cell(1, cell)
        x, share = float(gate.value), logistic(float(gate.value))
        if k == 0:
            passed = float(above.value) * float(up.value) * share
            yield Term(above, passed, (up, gate), f"σ(gate) = {share:.6g}")
            grows = x * logistic(-x)
            yield Term(above, passed * grows, (up, gate), f"· {grows:.6g}, as the gate opens")
        else:
            yield Term(above, float(above.value) * x * share, (gate,), f"σ(gate) = {share:.6g}")


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


GATED_SILU = GatedSiLU()
gelu_by = lru_cache(GELU)


def gelu(name: str, x: Operand, approximate: str = "none") -> State:
    """x · Φ(x)."""
    return State(name, gelu_by(approximate), (x,), x.axes)


def gated_silu(name: str, gate: Operand, up: Operand) -> State:
    """gate · σ(gate) · up."""
    return State(name, GATED_SILU, (gate, up), up.axes)
