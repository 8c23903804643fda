"""Gradients as states. Their numbers are autograd's; their explanations are the chain rule, put
together from what each operation says of its own operands."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.ops.core import Cell, Cited, Explanation, Operands, Operation, Term
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


TOTAL_NORM = TotalNorm()


def gradient_of_state(state: State) -> State:
    """`gradients.<state>`: an aside; the value must have been kept (see `Training`)."""
    name = f"gradients.{state.name}"
    operation = GradientOf(state.name)
    return State(name, operation, (state,), state.axes, role="gradient", aside=True)


def total_norm(name: str, gradients: list[State]) -> State:
    inputs: tuple[State | View, ...] = tuple(gradients)
    return State(name, TOTAL_NORM, inputs, (), role="gradient", aside=True)
