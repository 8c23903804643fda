"""Optimizers taken apart. The numbers are torch's own: a rule builds the torch optimizer that
trains, and to show one update it lets the same torch optimizer step a copy of that parameter."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.ops.core import Cell, Cited, Explanation, Operands, Operation, Term, one

Parts = dict[str, Tensor]


@dataclass(frozen=True)
class UpdateRule(ABC):
    """One kind of optimizer with its settings."""

    lr: float

    @property
    @abstractmethod
    def formula(self) -> str:
        """The new value, in the names of the parts."""

    @property
    def kept(self) -> dict[str, str]:
        """What it keeps of each parameter from step to step, and torch's names of it."""
        return {}

    @property
    def memory(self) -> tuple[str, ...]:
        """The names of what it keeps of each parameter."""
        return tuple(self.kept)

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """What an update is taken apart into, `old` first and `new` last."""

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
        optimizer.state.pop(parameter, None)
        if step and memory:  # torch makes its own beginning, in the first step
            names = self.kept.values()
            kept = {name: value.clone() for name, value in zip(names, memory, strict=True)}
            optimizer.state[parameter] = {"step": torch.tensor(float(step)), **kept}


@dataclass(frozen=True)
class SGD(UpdateRule):
    """new = old - lr · gradient, or, with momentum, new = old - lr · m where
    m = momentum · m before + gradient (in the first step the gradient).

    Sutskever and others, "On the importance of initialization and momentum in deep learning", in
    torch's form.
    """

    momentum: float = 0.0

    @property
    def formula(self) -> str:
        if self.momentum:
            return "old - lr · m, where m = momentum · m before + gradient"
        return "old - lr · gradient"

    @property
    def kept(self) -> dict[str, str]:
        return {"m": "momentum_buffer"} if self.momentum else {}

    @property
    def parts(self) -> tuple[str, ...]:
        return ("old", "grad", *self.memory, "step", "new")

    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum)

    def take_apart(self, old: Tensor, grad: Tensor, memory: list[Tensor], step: int) -> Parts:
        new, optimizer, copy = step_a_copy(self, old, grad, memory, step)
        kept = {"m": optimizer.state[copy]["momentum_buffer"]} if self.momentum else {}
        moved = kept.get("m", grad) * -self.lr
        return {"old": old, "grad": grad, **kept, "step": moved, "new": new}

    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        grad, old = operands.cell(0, cell), operands.cell(len(self.memory) + 1, cell)
        if part == "old":
            explain_copy(old, to)
            return
        if part == "grad":
            explain_copy(grad, to)
            return
        if part == "m":
            before = operands.cell(1, cell)
            to.formula = f"{self.momentum:.6g} · m before + gradient"
            to.terms = [one(before, self.momentum), one(grad)]
            return
        moves = operands.named(f"{operands.record.name}.m", cell) if self.momentum else grad
        learned = f"· -{self.lr:.6g} (learning rate)"
        to.formula = f"-{self.lr:.6g} · {moves.source}"
        to.terms = [one(moves, -self.lr, learned)]
        if part == "new":
            to.formula = f"{old.source} - {self.lr:.6g} · {moves.source}"
            to.terms = [one(old), *to.terms]


@dataclass(frozen=True)
class Adam(UpdateRule):
    """new = old - lr · m̂ / (√v̂ + ε), with m̂ = m / (1 - β1^t), v̂ = v / (1 - β2^t).

    Kingma and Ba, "Adam: A Method for Stochastic Optimization"; defaults are torch's.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    @property
    def formula(self) -> str:
        return "old - lr · m̂ / (√v̂ + ε)"

    @property
    def kept(self) -> dict[str, str]:
        return {"m": "exp_avg", "v": "exp_avg_sq"}

    @property
    def parts(self) -> tuple[str, ...]:
        return ("old", "grad", "m", "v", "m_hat", "v_hat", "step", "new")

    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, self.lr, betas=self.betas, eps=self.eps)

    def take_apart(self, old: Tensor, grad: Tensor, memory: list[Tensor], step: int) -> Parts:
        new, optimizer, copy = step_a_copy(self, old, grad, memory, step)
        m, v = (optimizer.state[copy][name] for name in self.kept.values())
        corrected1, corrected2 = self._corrections(step)
        made = {
            "old": old,
            "grad": grad,
            "m": m,
            "v": v,
            "m_hat": m / corrected1,
            "v_hat": v / corrected2,
            "step": m * -(self.lr / corrected1) / (v.sqrt() / math.sqrt(corrected2) + self.eps),
            "new": new,
            **self._decayed(old),
        }
        return {part: made[part] for part in self.parts}

    def _decayed(self, old: Tensor) -> Parts:
        return {}

    def _corrections(self, step: int) -> tuple[float, float]:
        """1 - β1^t and 1 - β2^t: what m and v are divided by, as they start from 0."""
        beta1, beta2 = self.betas
        return 1 - beta1**step, 1 - beta2**step

    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        grad, old = operands.cell(0, cell), operands.cell(len(self.memory) + 1, cell)
        if part in ("old", "grad"):
            explain_copy(old if part == "old" else grad, to)
        elif part == "new":
            self._explain_new(old, cell, operands, to)
        elif part in ("m", "v"):
            self._explain_average(part, grad, cell, operands, to)
        else:
            self._explain_step(part, cell, operands, to)

    def _explain_new(self, old: Cited, cell: Cell, operands: Operands, to: Explanation) -> None:
        name = operands.record.name
        moved = operands.named(f"{name}.step", cell)
        to.formula = f"{old.source} + {name}.step"
        to.terms = [one(old), one(moved)]

    def _explain_average(
        self, part: str, grad: Cited, cell: Cell, operands: Operands, to: Explanation
    ) -> None:
        """The running averages of the gradient and of its square."""
        beta = self.betas["mv".index(part)]
        before = operands.cell(1 + "mv".index(part), cell)
        squared = part == "v"
        to.formula = f"{beta} · {part} before + {1 - beta:.6g} · gradient{'²' if squared else ''}"
        share = Term(grad, (1 - beta) * grad.value**2, (grad,)) if squared else one(grad, 1 - beta)
        to.terms = [one(before, beta), share]

    def _explain_step(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        name, step = operands.record.name, operands.record.step
        m, v = (operands.named(f"{name}.{p}", cell) for p in ("m", "v"))
        corrected1, corrected2 = self._corrections(step)
        beta1, beta2 = self.betas
        if part == "m_hat":
            to.formula = f"m / (1 - {beta1}^{step})"
            to.terms = [one(m, 1 / corrected1, f"/ {corrected1:.6g}")]
        elif part == "v_hat":
            to.formula = f"v / (1 - {beta2}^{step})"
            to.terms = [one(v, 1 / corrected2, f"/ {corrected2:.6g}")]
        else:
            root = math.sqrt(v.value) / math.sqrt(corrected2) + self.eps
            to.formula = (
                f"-lr / (1 - {beta1}^{step}) · m / (√(v / (1 - {beta2}^{step})) + {self.eps:.0e})"
            )
            to.terms = [Term(m, -(self.lr / corrected1) * m.value / root, (v,))]


@dataclass(frozen=True)
class AdamW(Adam):
    """new = old - lr·λ·old - lr·m̂ / (√v̂ + ε): Adam, and every parameter shrinks a little.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization"; defaults are torch's.
    """

    weight_decay: float = 0.01

    @property
    def formula(self) -> str:
        return "old - lr · weight decay · old - lr · m̂ / (√v̂ + ε)"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("old", "grad", "m", "v", "m_hat", "v_hat", "decay", "step", "new")

    def build(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters, self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay
        )

    def _decayed(self, old: Tensor) -> Parts:
        return {"decay": old * -(self.lr * self.weight_decay)}

    def explain(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        if part != "decay":
            super().explain(part, cell, operands, to)
            return
        old = operands.cell(len(self.memory) + 1, cell)
        factor = -self.lr * self.weight_decay
        to.formula = f"-lr · weight decay · {old.source}"
        to.terms = [one(old, factor, f"· -{self.lr:.6g} · {self.weight_decay:.6g}")]

    def _explain_new(self, old: Cited, cell: Cell, operands: Operands, to: Explanation) -> None:
        name = operands.record.name
        decay, moved = (operands.named(f"{name}.{p}", cell) for p in ("decay", "step"))
        to.formula = f"{old.source} + {name}.decay + {name}.step"
        to.terms = [one(old), one(decay), one(moved)]


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


RULES: dict[str, type[UpdateRule]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def rule_named(name: str, lr: float, **settings: float | None) -> UpdateRule:
    """The update rule of that name; a setting that is None has its default.

    Raises UsageError for a rule there is not, and TypeError for a setting it does not have.
    """
    if name not in RULES:
        raise UsageError(f"no optimizer is called {name!r}: use {', '.join(RULES)}")
    if not (lr > 0 and math.isfinite(lr)):
        raise UsageError(f"a learning rate of {lr:g} does not train: give a number above 0")
    given: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    return RULES[name](lr, **given)
