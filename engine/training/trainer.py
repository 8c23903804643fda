"""The step-wise trainer: every step of training as a generator of states."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from engine.data.preparation import TrainingData
from engine.models.base import StatesModel, evaluate
from engine.ops import (
    GradientOf,
    Rule,
    by_rule,
    clipped,
    cross_entropy,
    cross_entropy_each,
    gather,
    given,
    gradient_of_state,
    softmax,
    total_norm,
)
from engine.processes import Snapshot
from engine.states import State, States
from engine.training.optimizers import SGD, Update, UpdateRule


class Rows(Protocol):
    """Which windows make the batch of a step: a function of the step."""

    def rows(self, step: int) -> Tensor: ...


class Training:
    """Training one model on windows, one generator of states a step.

    keep_gradients  keep what `gradients.<state>` reads; off, those asides are not offered and
                    nothing is kept beyond what backward needs
    clip            the largest norm of all gradients together; larger ones are made smaller
    evaluate_every  every how many steps `validation` comes, where something is held out; 0: never
    schedule        by what the learning rate is multiplied, as a function of the step

    It trains where the model's parameters are: batches are moved to their device.
    """

    map = "training"

    def __init__(
        self,
        model: StatesModel,
        data: TrainingData,
        batches: Rows,
        rule: UpdateRule | None = None,
        keep_gradients: bool = False,
        evaluate_every: int = 1,
        clip: float | None = None,
        schedule: Callable[[int], float] | None = None,
    ):
        self.model = model
        self.data = data
        self.batches = batches
        self.rule = rule or SGD(0.1)
        self.clip = clip
        self.schedule = schedule
        self.keep_gradients = keep_gradients
        self.evaluate_every = evaluate_every if data.held_out is not None else 0
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())
        self.axes = model.parameter_axes()
        self._gradients = {name: GradientOf(name) for name in self.parameters}
        self.optimizer = self.rule.build(list(self.parameters.values()))
        self.device = next(iter(self.parameters.values())).device

    def rule_at(self, step: int) -> UpdateRule:
        """The rule of a step, with the learning rate that the schedule gives it."""
        factor = 1.0 if self.schedule is None else self.schedule(step)
        return self.rule if factor == 1.0 else replace(self.rule, lr=self.rule.lr * factor)

    def states(self, step: int) -> States:
        """The states of one step; 0 is the preparation. Steps must be driven in order."""
        if step == 0:
            for prepared in self.data.preparation:
                yield prepared.again()
            return None
        return (yield from self._step(step))

    def _step(self, step: int) -> States:
        rows = self.batches.rows(step)
        X = yield gather("batch.X", self.data.contexts, rows, self.device)
        y = yield gather("batch.y", self.data.targets, rows, self.device)
        self.optimizer.zero_grad()
        made: list[State] = []
        forward = self.model.states(X)
        logits = yield from keeping(forward, made) if self.keep_gradients else forward
        yield softmax("probabilities", logits, aside=True)
        yield cross_entropy_each("loss.per_target", logits, y)
        loss = yield cross_entropy("loss", logits, y)
        loss.value.backward()
        for state in reversed(made):
            yield gradient_of_state(state)
        gradients = []
        for name, parameter in self.parameters.items():
            gradient = yield self._gradient(name, parameter)
            if parameter.grad is not None and gradient.value is not parameter.grad:
                parameter.grad = gradient.value  # a patched gradient is the one that counts
            gradients.append(gradient)
        norm = yield total_norm("gradients.norm", gradients)
        if self.clip is not None:
            gradients = yield from self._clipped(gradients, norm, self.clip)
        updates = []
        rule = self.rule_at(step)
        operation = Update(rule, step)
        for gradient, (name, parameter) in zip(gradients, self.parameters.items(), strict=True):
            memory = self._memory(name, parameter, step) if self.rule.memory else ()
            inputs = (gradient, *memory)
            update = State(
                f"update.{name}", operation, inputs, gradient.axes, (parameter,), "optimizer", True
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
        if self.evaluate_every and step % self.evaluate_every == 0:
            yield self._validation(step)
        return loss

    def _clipped(self, gradients: list[State], norm: State, limit: float) -> States:
        """What the optimizer gets in place of the gradients, which stay as they are."""
        made = []
        for gradient, parameter in zip(gradients, self.parameters.values(), strict=True):
            state = yield clipped(gradient, norm, limit)
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

    def _validation(self, step: int) -> State:
        contexts, targets = self.data.held_out or ([], torch.empty(0))
        sentence = f"mean loss over {len(targets)} held-out windows; updates nothing"
        rule = Rule(sentence, lambda: torch.tensor(evaluate(self.model, contexts, targets)))
        return by_rule("validation", rule, (), (), role="activation")

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

    def replica(self) -> Training:
        """The same training on a copy of the model, to make earlier steps again."""
        return Training(
            copy.deepcopy(self.model),
            self.data,
            self.batches,
            self.rule,
            self.keep_gradients,
            self.evaluate_every,
            self.clip,
            self.schedule,
        )

    def apart(self) -> Training:
        """A replica whose parameters are its own, as those of any are."""
        return self.replica()

    def parameter_names(self) -> dict[int, str]:
        """Name of each parameter by the identity of its tensor."""
        return {id(parameter): name for name, parameter in self.parameters.items()}

    def ended(self, step: int) -> str | None:
        """Why there is no step after this one; None: training goes round and round."""
        return None


def keeping(states: States, made: list[State]) -> States:
    """The same states, each asked to keep its gradient, and listed in `made`."""
    try:
        state = next(states)
        while True:
            state = yield state
            if state.value.requires_grad:
                state.value.retain_grad()
                made.append(state)
            state = states.send(state)
    except StopIteration as stop:
        return stop.value


def train(training: Training, steps: int) -> States:
    """All states of the preparation and of `steps` steps, one after another.

    Drain it and the model is trained; it returns the last loss.
    """
    loss = None
    for step in range(steps + 1):
        loss = yield from training.states(step)
    return loss
