"""Gradients as states. Their numbers are autograd's; their explanations are the chain rule, put
together from what each operation says of its own operands."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.ops.core import (
    Cell,
    Cited,
    Explanation,
    Operands,
    Operation,
    Term,
    chooses,
    gradient_name,
    one,
)
from engine.states import State, View


class GradientOf(Operation):
    """d loss / d (a state or a parameter), as backward left it."""

    __slots__ = ("target",)

    def __init__(self, target: str):
        self.target = target

    def describe(self, names: list[str]) -> str:
        return f"d loss / d {self.target}"

    def compute(self, value: Tensor) -> Tensor:
        if value.grad is not None:
            return value.grad
        if value.is_leaf or value.retains_grad:  # backward never reached it: nothing depends on it
            return torch.zeros_like(value)
        raise RuntimeError(
            f"no gradient was kept for {self.target}: train with keep_gradients=True"
        )

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        """Σ over the operations that use the target, each by its own rule (the chain rule)."""
        formulas = []
        for user, k in operands.record.users(operands.sources[0].name):
            its = Operands(user, operands.fetch)
            rule = user.operation.gradient_formula
            names = {"out": user.name, "in": user.sources[0].name, "target": user.sources[-1].name}
            formulas.append(rule.format(**names))
            for at in its.cells_at(k, cell):
                to.terms.extend(user.operation.gradient(k, at, its))
        to.formula += " = " + (" + ".join(dict.fromkeys(formulas)) or "0")
        if not to.terms:
            to.note = "nothing in this batch depends on this cell"


class GradientLeft(GradientOf):
    """The same of what was computed by code that is not ours: its terms are not known."""

    __slots__ = ()
    combine = "rule"

    def describe(self, names: list[str]) -> str:
        return f"{super().describe(names)}: through code of your own, which is not taken apart"

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.note = to.formula


class TotalNorm(Operation):
    """√ of the sum of the squares of all parameters' gradients."""

    __slots__ = ()
    combine = "root"

    def describe(self, names: list[str]) -> str:
        return "√ Σ (every cell of every parameter's gradient)²"

    def compute(self, *gradients: Tensor) -> Tensor:
        return nn.utils.get_total_norm(gradients)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        for k, source in enumerate(operands.sources):
            norm = float(operands.value(k).to(torch.float64).norm())
            whole = Cited(source.name, source.step, (), norm)
            to.terms.append(Term(whole, norm**2, note="norm of the whole tensor, squared"))


class Clip(Operation):
    """A gradient made smaller where the norm of all is over a limit: times limit / (norm + 1e-6),
    but never larger (as `torch.nn.utils.clip_grad_norm_` does it)."""

    __slots__ = ("limit",)

    def __init__(self, limit: float):
        self.limit = limit

    def describe(self, names: list[str]) -> str:
        return f"{names[0]} · min(1, {self.limit:.6g} / ({names[1]} + 1e-6))"

    def factor(self, norm: Tensor) -> Tensor:
        return torch.clamp(self.limit / (norm + 1e-6), max=1.0)

    def compute(self, gradient: Tensor, norm: Tensor) -> Tensor:
        return gradient * self.factor(norm)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        factor = float(self.factor(operands.value(1)))
        to.terms = [
            one(operands.cell(0, cell), factor, f"· {factor:.6g}"),
            chooses(operands.cell(1, ()), "the norm that decides the factor"),
        ]


def clipped(gradient: State, norm: State, limit: float) -> State:
    """`gradients.clipped.<parameter>`: what the optimizer gets when clipping."""
    name = gradient.name.replace("gradients.", "gradients.clipped.", 1)
    return State(name, Clip(limit), (gradient, norm), gradient.axes, role="gradient")


TOTAL_NORM = TotalNorm()


def gradient_of_state(state: State) -> State:
    """`gradients.<state>`: an aside; the value must have been kept (see `Training`)."""
    name = gradient_name(state.name)
    operation = GradientOf(state.name)
    return State(name, operation, (state,), state.axes, role="gradient", aside=True)


def total_norm(name: str, gradients: list[State]) -> State:
    inputs: tuple[State | View, ...] = tuple(gradients)
    return State(name, TOTAL_NORM, inputs, (), role="gradient", aside=True)
