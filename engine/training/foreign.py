"""Optimizers that were made elsewhere: one of torch's with plain settings is a rule of ours, any
other does its step, and what it has made is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.ops import given, total_norm
from engine.ops.core import Cell, Explanation, Operands, Operation
from engine.ops.gradients import GradientLeft
from engine.processes import Snapshot
from engine.states import Axes, State, States
from engine.training.optimizers import SGD, Adam, AdamW, UpdateRule, explain_copy

PLAIN: dict[type, dict[str, Any]] = {  # settings with which a rule of ours does the same
    torch.optim.SGD: {"dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False},
    torch.optim.Adam: {"weight_decay": 0, "amsgrad": False, "maximize": False},
    torch.optim.AdamW: {"amsgrad": False, "maximize": False},
}
RULES: dict[type, Callable[[dict[str, Any]], UpdateRule]] = {
    torch.optim.SGD: lambda group: SGD(group["lr"], group["momentum"]),
    torch.optim.Adam: lambda group: Adam(group["lr"], tuple(group["betas"]), group["eps"]),
    torch.optim.AdamW: lambda group: AdamW(
        group["lr"], tuple(group["betas"]), group["eps"], group["weight_decay"]
    ),
}
NUMBER = "#"  # after the name of what an optimizer keeps as a plain number


def rule_of(optimizer: Any, parameters: dict[str, Tensor]) -> UpdateRule | None:
    """The rule that does what an optimizer does, before its first step; None where none does."""
    wanted = PLAIN.get(type(optimizer))
    if wanted is None or optimizer.state or len(optimizer.param_groups) != 1:
        return None
    group = optimizer.param_groups[0]
    its = {id(parameter) for parameter in group["params"]}
    trained = {id(value) for value in parameters.values() if value.requires_grad}
    plain = all(group[key] == value for key, value in wanted.items())
    if not plain or not trained <= its or isinstance(group["lr"], Tensor):
        return None
    return RULES[type(optimizer)](group)


class ForeignDescent:
    """Parameters that an optimizer of somebody's own updates: see `engine.training.descent`."""

    def __init__(self, parameters: dict[str, Tensor], axes: dict[str, Axes], optimizer: Any):
        self.parameters = parameters
        self.axes = axes
        self.optimizer = optimizer
        self._operation = Foreign(type(optimizer).__name__)

    def descend(self, step: int) -> States:
        gradients = []
        for name, parameter in self.parameters.items():
            operation = GradientLeft(name)
            whole, axes = f"gradients.{name}", self.axes[name]
            gradient = yield State(whole, operation, (), axes, (parameter,), "gradient")
            if parameter.grad is not None and gradient.value is not parameter.grad:
                parameter.grad = gradient.value  # a patched gradient is the one that counts
            gradients.append(gradient)
        yield total_norm("gradients.norm", gradients)
        before = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.optimizer.step()
        for gradient, (name, parameter) in zip(gradients, self.parameters.items(), strict=True):
            axes = self.axes[name]
            old = given(f"parameters.{name}", before[name], axes, "before", step=step - 1)
            value, inputs = parameter.detach().clone(), (gradient, old)
            made = State(
                f"update.{name}", self._operation, inputs, axes, (), "optimizer", value=value
            )
            update = yield made
            if update.replaced:  # a patched update is the one that counts
                parameter.data.copy_(update.value)

    def snapshot(self, step: int) -> Snapshot:
        tensors = {f"parameters.{n}": p.detach().clone() for n, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                whole = f"optimizer.{name}:{key}"
                if isinstance(value, Tensor):
                    tensors[whole] = value.detach().clone()
                elif isinstance(value, (int, float)):
                    tensors[whole + NUMBER] = torch.tensor(value)
        for k, group in enumerate(self.optimizer.param_groups):
            tensors[f"rate.{k}"] = torch.as_tensor(group["lr"], dtype=torch.float64).clone()
        return Snapshot(step, tensors)

    def restore(self, snapshot: Snapshot) -> None:
        self.optimizer.state.clear()
        for name, parameter in self.parameters.items():
            with torch.no_grad():
                parameter.copy_(snapshot.tensors[f"parameters.{name}"])
            before, kept = f"optimizer.{name}:", {}
            for whole, value in snapshot.tensors.items():
                if whole.startswith(before):
                    key = whole.removeprefix(before)
                    number = key.endswith(NUMBER)
                    kept[key.removesuffix(NUMBER)] = value.item() if number else value.clone()
            if kept:
                self.optimizer.state[parameter] = kept
        for k, group in enumerate(self.optimizer.param_groups):
            if not isinstance(group["lr"], Tensor):
                group["lr"] = snapshot.tensors[f"rate.{k}"].item()


class Foreign(Operation):
    """A parameter after the step of an optimizer that is not taken apart."""

    __slots__ = ("name",)
    combine = "rule"

    def __init__(self, name: str):
        self.name = name

    @property
    def parts(self) -> tuple[str, ...]:
        return ("old", "grad", "new")

    def describe(self, names: list[str]) -> str:
        return f"what {self.name} made of it: an optimizer that cannot be taken apart"

    def compute(self, *operands: Any) -> Tensor:
        raise TypeError("this value is given, not computed")

    def take_apart(self, *operands: Any) -> dict[str, Any]:
        gradient, old = operands
        return {"grad": gradient, "old": old}

    def part(self, part: str, operands: list[Any], whole: Callable[[], Any]) -> Any:
        return whole() if part == "new" else self.take_apart(*operands)[part]

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        to.note = to.formula

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        if part == "new":
            explain_copy(operands.named(operands.record.name, cell), to)
        else:
            explain_copy(operands.cell(0 if part == "grad" else 1, cell), to)
