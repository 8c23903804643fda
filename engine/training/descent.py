"""What comes after backward, whoever computed the loss: gradients, updates, and what stands after
a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.ops import GradientOf, clipped, given, total_norm
from engine.ops.core import Cell, Explanation, Operands, Operation
from engine.ops.gradients import GradientLeft
from engine.processes import Snapshot
from engine.states import Axes, State, States
from engine.training.optimizers import Update, UpdateRule, explain_copy


class Descent:
    """Parameters that a rule updates, step by step.

    clip       the largest norm of all gradients together; larger ones are made smaller
    schedule   by what the learning rate is multiplied, as a function of the step
    explained  whether the states are there of which a gradient was made
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        axes: dict[str, Axes],
        rule: UpdateRule,
        clip: float | None = None,
        schedule: Callable[[int], float] | None = None,
        explained: bool = True,
    ):
        self.parameters = parameters
        self.axes = axes
        self.rule = rule
        self.clip = clip
        self.schedule = schedule
        kind = GradientOf if explained else GradientLeft
        self._gradients = {name: kind(name) for name in parameters}
        self.optimizer = rule.build(list(parameters.values()))

    def rule_at(self, step: int) -> UpdateRule:
        """The rule of a step, with the learning rate that the schedule gives it."""
        factor = 1.0 if self.schedule is None else self.schedule(step)
        return self.rule if factor == 1.0 else replace(self.rule, lr=self.rule.lr * factor)

    def descend(self, step: int) -> States:
        """`gradients.*` as backward left them, then `update.*`, which is then made."""
        gradients = []
        for name, parameter in self.parameters.items():
            gradient = yield self._gradient(name, parameter)
            if parameter.grad is not None and gradient.value is not parameter.grad:
                parameter.grad = gradient.value  # a patched gradient is the one that counts
            gradients.append(gradient)
        norm = yield total_norm("gradients.norm", gradients)
        if self.clip is not None:
            gradients = yield from self._clipped(gradients, norm, self.clip)
        updates: list[State] = []
        rule = self.rule_at(step)
        operation = Update(rule, step)
        for gradient, (name, parameter) in zip(gradients, self.parameters.items(), strict=True):
            memory = self._memory(name, parameter, step) if self.rule.memory else ()
            made = UNTOUCHED if parameter.grad is None else operation
            inputs = (gradient, *memory)
            update = State(
                f"update.{name}", made, inputs, gradient.axes, (parameter,), "optimizer", True
            )
            updates.append((yield update))
        for update in updates:
            update.expire()
        for group in self.optimizer.param_groups:
            group["lr"] = rule.lr
        self.optimizer.step()
        for update, parameter in zip(updates, self.parameters.values(), strict=True):
            if update.replaced:  # a patched update is the one that counts
                parameter.data.copy_(update.value)

    def _clipped(self, gradients: list[State], norm: State, limit: float) -> States:
        """What the optimizer gets in place of the gradients, which stay as they are."""
        made = []
        for gradient, parameter in zip(gradients, self.parameters.values(), strict=True):
            state = yield clipped(gradient, norm, limit)
            if parameter.grad is not None:
                parameter.grad = state.value
            made.append(state)
        return made

    def _gradient(self, name: str, parameter: Tensor) -> State:
        """`gradients.<parameter>`: what the optimizer will use."""
        operation, axes = self._gradients[name], self.axes[name]
        return State(f"gradients.{name}", operation, (), axes, (parameter,), "gradient")

    def _memory(self, name: str, parameter: Tensor, step: int) -> list[State]:
        """What the optimizer has kept of a parameter before this step."""
        kept = self.optimizer.state.get(parameter, {})
        memory = []
        for part, torch_name in self.rule.kept.items():
            value = kept.get(torch_name)
            value = torch.zeros_like(parameter) if value is None else value
            memory.append(given(f"update.{name}.{part}", value, (), "kept", step=step - 1))
        return memory

    def snapshot(self, step: int) -> Snapshot:
        """A copy of the parameters and of what the optimizer keeps, after `step` steps."""
        tensors = {}
        for name, parameter in self.parameters.items():
            tensors[f"parameters.{name}"] = parameter.detach().clone()
            for part, kept in zip(
                self.rule.memory, self._memory(name, parameter, step), strict=True
            ):
                tensors[f"update.{name}.{part}"] = kept.value.detach().clone()
        return Snapshot(step, tensors)

    def restore(self, snapshot: Snapshot) -> None:
        """Stand where the snapshot stood."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(snapshot.tensors[f"parameters.{name}"])
                memory = [snapshot.tensors[f"update.{name}.{part}"] for part in self.rule.memory]
                if memory:
                    self.rule.load(self.optimizer, parameter, memory, snapshot.step)

    def parameter_names(self) -> dict[int, str]:
        """Name of each parameter by the identity of its tensor."""
        return {id(parameter): name for name, parameter in self.parameters.items()}


class Untouched(Operation):
    """A parameter that nothing of the loss was computed with: the optimizer leaves it alone."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return ("old", "grad", "new")

    def describe(self, names: list[str]) -> str:
        return "old: the loss does not depend on it"

    def compute(self, *operands: Any) -> Tensor:
        old: Tensor = operands[-1]
        return old.detach()

    def take_apart(self, *operands: Any) -> dict[str, Any]:
        gradient, *_, old = operands
        return {"old": old.detach(), "grad": gradient, "new": old.detach()}

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        explain_copy(operands.cell(len(operands.sources) - 1, cell), to)

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        last = len(operands.sources) - 1
        explain_copy(operands.cell(0 if part == "grad" else last, cell), to)


UNTOUCHED = Untouched()
