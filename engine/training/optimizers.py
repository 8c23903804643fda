"""Optimizers taken apart. The numbers are torch's own: a rule builds the torch optimizer that
trains, and to show one update it lets the same torch optimizer step a copy of that parameter."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.ops.core import Cell, Cited, Explanation, Operands, Operation, Term, one

Parts = dict[str, Tensor]


@dataclass(frozen=True)
class UpdateRule(ABC):
    """One kind of optimizer with its settings. `memory` names what it keeps a parameter."""

    lr: float

    formula: ClassVar[str] = ""
    memory: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ("old", "grad", "step", "new")

    @abstractmethod
    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        """torch's optimizer over these parameters."""

    @abstractmethod
    def take_apart(self, old: Tensor, grad: Tensor, memory: list[Tensor], step: int) -> Parts:
        """All parts of one update, each of the parameter's shape, `new` as torch makes it."""

    @abstractmethod
    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        """Terms of one cell of the update ("new") or of one of its parts."""

    def load(
        self, optimizer: torch.optim.Optimizer, parameter: Tensor, memory: list[Tensor], step: int
    ) -> None:
        """Give the optimizer back what it had kept of a parameter after `step` steps."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    """new = old - lr · gradient"""

    formula = "old - lr · gradient"

    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr)

    def take_apart(self, old: Tensor, grad: Tensor, memory: list[Tensor], step: int) -> Parts:
        new = step_a_copy(self, old, grad, memory, step)[0]
        return {"old": old, "grad": grad, "step": grad * -self.lr, "new": new}

    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        grad, old = operands.cell(0, cell), operands.cell(len(self.memory) + 1, cell)
        learned = f"· -{self.lr:.6g} (learning rate)"
        if part == "new":
            to.formula = f"{old.source} - {self.lr:.6g} · {grad.source}"
            to.terms = [one(old), one(grad, -self.lr, learned)]
        elif part == "step":
            to.formula = f"-{self.lr:.6g} · {grad.source}"
            to.terms = [one(grad, -self.lr, learned)]
        else:
            explain_copy(old if part == "old" else grad, to)


@dataclass(frozen=True)
class AdamW(UpdateRule):
    """new = old - lr·λ·old - lr·m̂ / (√v̂ + ε), with m̂ = m/(1-β1^t), v̂ = v/(1-β2^t).

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization"; defaults are torch's.
    """

    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    formula = "old - lr · weight decay · old - lr · m̂ / (√v̂ + ε)"
    memory = ("m", "v")
    parts = ("old", "grad", "m", "v", "decay", "step", "new")

    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters, self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay
        )

    def take_apart(self, old: Tensor, grad: Tensor, memory: list[Tensor], step: int) -> Parts:
        new, optimizer, copy = step_a_copy(self, old, grad, memory, step)
        kept = optimizer.state[copy]
        decay = old * -(self.lr * self.weight_decay)
        moved = kept["exp_avg"] * -self._rate(step) / self._root(kept["exp_avg_sq"], step)
        m, v = kept["exp_avg"], kept["exp_avg_sq"]
        return {
            "old": old,
            "grad": grad,
            "m": m,
            "v": v,
            "decay": decay,
            "step": moved,
            "new": new,
        }

    def load(
        self, optimizer: torch.optim.Optimizer, parameter: Tensor, memory: list[Tensor], step: int
    ) -> None:
        m, v = memory
        state = {"step": torch.tensor(float(step)), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
        optimizer.state[parameter] = state

    def _rate(self, step: int) -> float:
        """lr / (1 - β1^t): the learning rate with the first bias correction in it."""
        return self.lr / (1 - self.betas[0] ** step)

    def _root(self, v: Tensor, step: int) -> Tensor:
        """√v̂ + ε"""
        return v.sqrt() / math.sqrt(1 - self.betas[1] ** step) + self.eps

    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        grad, old = operands.cell(0, cell), operands.cell(len(self.memory) + 1, cell)
        name, step = operands.record.name, operands.record.step
        beta1, beta2 = self.betas
        if part == "new":
            to.formula = f"{old.source} + {name}.decay + {name}.step"
            decay, moved = (operands.named(f"{name}.{p}", cell) for p in ("decay", "step"))
            to.terms = [one(old), one(decay), one(moved)]
        elif part == "decay":
            factor = -self.lr * self.weight_decay
            to.formula = f"-lr · weight decay · {old.source}"
            to.terms = [one(old, factor, f"· -{self.lr:.6g} · {self.weight_decay:.6g}")]
        elif part == "step":
            m, v = (operands.named(f"{name}.{p}", cell) for p in ("m", "v"))
            root = math.sqrt(v.value) / math.sqrt(1 - beta2**step) + self.eps
            to.formula = (
                f"-lr / (1 - {beta1}^{step}) · m / (√(v / (1 - {beta2}^{step})) + {self.eps:.0e})"
            )
            to.terms = [Term(m, -self._rate(step) * m.value / root, (v,))]
        elif part == "m":
            before = operands.cell(1, cell)
            to.formula = f"{beta1} · m before + {1 - beta1:.6g} · gradient"
            to.terms = [one(before, beta1), one(grad, 1 - beta1)]
        elif part == "v":
            before = operands.cell(2, cell)
            to.formula = f"{beta2} · v before + {1 - beta2:.6g} · gradient²"
            squared = Term(grad, (1 - beta2) * grad.value**2, (grad,))
            to.terms = [one(before, beta2), squared]
        else:
            explain_copy(old if part == "old" else grad, to)


def explain_copy(cited: Cited, to: Explanation) -> None:
    to.formula = cited.source
    to.terms = [one(cited)]


def step_a_copy(
    rule: UpdateRule, old: Tensor, grad: Tensor, memory: list[Tensor], step: int
) -> tuple[Tensor, torch.optim.Optimizer, Tensor]:
    """Let torch's optimizer make step number `step` on a copy of one parameter."""
    copy = old.detach().clone().requires_grad_()
    copy.grad = grad.detach()
    optimizer = rule.build([copy])
    rule.load(optimizer, copy, memory, step - 1)
    optimizer.step()
    return copy.detach(), optimizer, copy


class Update(Operation):
    """A parameter after the optimizer's step: operands gradient, the rule's memory, old."""

    __slots__ = ("rule", "step")

    def __init__(self, rule: UpdateRule, step: int):
        self.rule = rule
        self.step = step

    @property
    def parts(self) -> tuple[str, ...]:
        return self.rule.parts

    def describe(self, names: list[str]) -> str:
        return self.rule.formula

    def compute(self, *operands: Any) -> Tensor:
        return self.take_apart(*operands)["new"]

    def take_apart(self, *operands: Any) -> Parts:
        grad, *memory, old = operands
        return self.rule.take_apart(old.detach(), grad, memory, self.step)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        self.rule.explain("new", cell, operands, to)

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        self.rule.explain(part, cell, operands, to)


RULES: dict[str, type[UpdateRule]] = {"sgd": SGD, "adamw": AdamW}


def rule_named(name: str, lr: float) -> UpdateRule:
    """The update rule of that name. Raises UsageError for one there is not."""
    if name not in RULES:
        raise UsageError(f"no optimizer is called {name!r}: use {' or '.join(RULES)}")
    if not (lr > 0 and math.isfinite(lr)):
        raise UsageError(f"a learning rate of {lr:g} does not train: give a number above 0")
    return RULES[name](lr)
