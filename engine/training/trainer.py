"""The step-wise trainer: every step of training as a generator of states."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from engine.data.preparation import TrainingData
from engine.models.base import StatesModel, evaluate
from engine.ops import (
    Rule,
    by_rule,
    cross_entropy,
    cross_entropy_each,
    gather,
    gradient_of_state,
    softmax,
)
from engine.states import State, States
from engine.training.descent import Descent
from engine.training.optimizers import SGD, UpdateRule


class Rows(Protocol):
    """Which windows make the batch of a step: a function of the step."""

    def rows(self, step: int) -> Tensor: ...


class Training(Descent):
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
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        axes = model.parameter_axes()
        super().__init__(parameters, axes, rule or SGD(0.1), clip, schedule)
        self.model = model
        self.data = data
        self.batches = batches
        self.keep_gradients = keep_gradients
        self.evaluate_every = evaluate_every if data.held_out is not None else 0
        self.device = next(iter(self.parameters.values())).device

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
        yield from self.descend(step)
        if self.evaluate_every and step % self.evaluate_every == 0:
            yield self._validation(step)
        return loss

    def _validation(self, step: int) -> State:
        contexts, targets = self.data.held_out or ([], torch.empty(0))
        sentence = f"mean loss over {len(targets)} held-out windows; updates nothing"
        rule = Rule(sentence, lambda: torch.tensor(evaluate(self.model, contexts, targets)))
        return by_rule("validation", rule, (), (), role="activation")

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
