"""A module of the user's own as a process: every submodule's output in the order of the calls, then
the loss, the gradients and the updates, which are taken apart as for our own models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import TensorstepError
from engine.maps import TRAINING
from engine.ops import given
from engine.processes import Process, Snapshot
from engine.service.factory import Made, make, mistake, theirs
from engine.service.recording import Failed, Recording, first_tensor, local
from engine.service.watched import axes_of, tensor
from engine.states import States
from engine.training.descent import Descent
from engine.training.foreign import ForeignDescent, rule_of
from engine.training.optimizers import UpdateRule

FORWARD_ALONE = "a forward pass is all there is: the factory gives inputs and no loss"
DICE, BUFFERS = "dice", "buffers."  # what a snapshot holds beside parameters


class LiveRecording(Recording):
    """A recording that hears, too, which gradients backward leaves of what was recorded."""

    def __init__(self, model: nn.Module, failed: Failed):
        self._live: dict[str, Tensor] = {}
        self._back: dict[str, Tensor] = {}
        super().__init__(model, failed)

    def _keep(self, name: str, module: nn.Module, output: Any) -> None:
        super()._keep(name, module, output)
        found = first_tensor(output)
        if found is not None and found.requires_grad and not found.is_leaf:
            called = self.called(name)
            self._live[called] = found
            # a hook, not `retain_grad`: the next module may write over what this one gave
            found.register_hook(partial(self._back.__setitem__, called))

    def left(self) -> Iterator[tuple[str, Tensor]]:
        """What backward left, the last output first."""
        while self._live:
            name, value = self._live.popitem()
            gradient = self._back.pop(name, None)
            yield name, local(torch.zeros_like(value) if gradient is None else gradient)


class ModuleSteps:
    """Steps of a model that a factory made. Step 0 lists its modules; in each step after it the
    loss is computed as a whole, while the outputs are recorded, and shown one by one.

    A replica is made by calling the factory again, and stands where it is told to.
    """

    map = TRAINING

    def __init__(
        self, spec: str, seed: int, rule: UpdateRule, clip: float | None, made: Made | None = None
    ):
        self.spec, self.seed, self.rule, self.clip = spec, seed, rule, clip
        self._dice: list[Tensor] = []  # the state of its random numbers; until it has one, any
        with self._own_dice():
            self.made = made or make(spec, seed)
        self.model = self.made.bare
        self.parameters: dict[str, Tensor] = dict(self.model.named_parameters())
        self.axes = {name: axes_of(value) for name, value in self.parameters.items()}
        self.descent = self._descent()
        self._began = (0, self._outside())  # how it stood when its step began

    def _descent(self) -> Descent | ForeignDescent | None:
        """What updates the parameters; None where nothing does."""
        optimizer = self.made.optimizer
        if self.made.loss is None:
            return None
        rule = self.rule if optimizer is None else rule_of(optimizer, self.parameters)
        if rule is None:
            return ForeignDescent(self.parameters, self.axes, optimizer)
        return Descent(self.parameters, self.axes, rule, self.clip, explained=False)

    # --- one step -----------------------------------------------------------------------------

    def states(self, step: int) -> States:
        if step == 0:
            listed = listed_modules(self.model)
            yield given("modules", listed, ("N",), "the modules of the model, and what they hold")
            return
        self._begin(step)
        self.model.zero_grad()
        recording, found = self._recorded(step)
        for name, module, value in recording.activations:
            said = f"what {module} gave: code of your own, whose cells cannot be taken apart"
            yield tensor(f"modules.{name}", value, said, "activation")
        for name in recording.left_out:
            text = "left out: there was no memory to keep it"
            yield given(f"modules.{name}", text, (), text, role="activation")
        recording.activations.clear()
        if self.made.loss is None or self.descent is None:
            return
        said = "the loss that your factory's function returned"
        yield tensor("loss", found.detach().reshape(()), said, "activation")
        with theirs("the backward pass failed"):
            found.backward()
        del found
        for name, value in recording.left():
            said = f"d loss / d modules.{name}: code of your own, which is not taken apart"
            yield tensor(f"gradients.modules.{name}", value, said, "gradient")
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                parameter.grad = parameter.grad.to_dense()
        yield from self.descent.descend(step)

    def _recorded(self, step: int) -> tuple[LiveRecording, Any]:
        """The forward pass of a step, and its loss. Raises TensorstepError where it fails, or
        gives no loss."""
        failures: list[Exception] = []
        recording = LiveRecording(self.model, failures.append)
        try:
            what = f"the loss of step {step} failed" if self.made.loss else "the model failed"
            with theirs(what), self._own_dice(), torch.enable_grad():
                found = self.made.loss(step) if self.made.loss else self.made.run()
        finally:
            recording.close()
        if failures:
            raise mistake("what the modules gave could not be kept", failures[0])
        if self.made.loss is not None:
            check_loss(found, step)
        return recording, found

    def _begin(self, step: int) -> None:
        """Stand where the step begins: it may have been begun before, and given up."""
        began, outside = self._began
        if began == step:
            self._set_outside(outside)
        else:
            self._began = step, self._outside()

    @contextlib.contextmanager
    def _own_dice(self) -> Iterator[None]:
        """Random numbers of its own, whoever else draws some."""
        before = dice()
        if self._dice:
            set_dice(self._dice)
        try:
            yield
        finally:
            self._dice = dice()
            set_dice(before)

    # --- what is beside the parameters --------------------------------------------------------

    def _outside(self) -> dict[str, Tensor]:
        """The state of the random numbers, and copies of the buffers."""
        found = {f"{DICE}.{k}": state for k, state in enumerate(self._dice)}
        for name, buffer in self.model.named_buffers():
            found[f"{BUFFERS}{name}"] = buffer.detach().clone()
        return found

    def _set_outside(self, found: dict[str, Tensor]) -> None:
        self._dice = [value for name, value in found.items() if name.startswith(f"{DICE}.")]
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if f"{BUFFERS}{name}" in found:
                    buffer.copy_(found[f"{BUFFERS}{name}"])

    def snapshot(self, step: int) -> Snapshot:
        if self.descent is None:
            shared = {f"parameters.{name}": local(p) for name, p in self.parameters.items()}
            snapshot = Snapshot(step, {}, shared)
        else:
            snapshot = self.descent.snapshot(step)
        snapshot.tensors.update(self._outside())
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        if self.descent is not None:
            self.descent.restore(snapshot)
        self._set_outside(snapshot.tensors)
        self._began = (0, {})

    # --- as a process -------------------------------------------------------------------------

    def ended(self, step: int) -> str | None:
        return FORWARD_ALONE if self.made.loss is None and step else None

    def replica(self) -> ModuleSteps:
        twin = ModuleSteps(self.spec, self.seed, self.rule, self.clip)
        its = {name: value.shape for name, value in twin.parameters.items()}
        if its != {name: value.shape for name, value in self.parameters.items()}:
            raise TensorstepError(
                f"the factory {self.spec} makes another model each time: it has to make the same"
            )
        return twin

    def apart(self) -> Process:
        return self.replica()

    def parameter_names(self) -> dict[int, str]:
        return {id(value): name for name, value in self.parameters.items()}


def check_loss(found: Any, step: int) -> None:
    """Raises TensorstepError for what backward cannot begin with."""
    name = f"the loss of step {step}"
    if not isinstance(found, Tensor):
        raise TensorstepError(f"{name} is {type(found).__name__}: return a tensor of one number")
    if found.numel() != 1:
        raise TensorstepError(f"{name} has the shape {list(found.shape)}: return one number")
    if not found.requires_grad:
        raise TensorstepError(
            f"{name} has no graph: compute it from the model's output, with gradients on"
        )


def listed_modules(model: nn.Module) -> list[str]:
    """A line for each module: its name, its class, and how many parameters are its own."""
    lines = []
    for name, module in model.named_modules():
        count = sum(each.numel() for each in module.parameters(recurse=False))
        own = f", {count:,} parameters" if count else ""
        lines.append(f"{name or 'the model'}: {type(module).__name__}{own}")
    return lines


def dice() -> list[Tensor]:
    """The states of torch's random numbers, of every device that is used."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *devices]


def set_dice(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])
