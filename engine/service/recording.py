"""One iteration of a loop that is not ours, recorded: what every submodule gave, the gradients that
the optimizer got, and the parameters before its update.

Everything is copied, since a loop may write over it at any time: on the device where there is ample
room, else into the memory of the host; what fits nowhere is left out, and named.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor, nn

Failed = Callable[[Exception], None]
AROUND = (nn.parallel.DistributedDataParallel, nn.DataParallel)
SHARE = 0.5  # of the memory that is free when a recording begins, which it may fill


class Activation(NamedTuple):
    """What a submodule gave: `name` is its own, with #2 where it was called a second time."""

    name: str
    module: str  # its class, and which of several tensors it is
    value: Tensor


class Room:
    """How much of the memory that was free may still be filled, on each device."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}

    def take(self, device: torch.device, size: int) -> bool:
        key = str(device) if device.type == "cuda" else "host"
        if key not in self._left:
            cuda = device.type == "cuda"
            free = torch.cuda.mem_get_info(device)[0] if cuda else psutil.virtual_memory().available
            self._left[key] = SHARE * free
        if size > self._left[key]:
            return False
        self._left[key] -= size
        return True

    def copy(self, tensor: Tensor) -> Tensor | None:
        """A copy of what this process has of a tensor; None where there is no room for it."""
        found = local(tensor)
        for device in dict.fromkeys((found.device, torch.device("cpu"))):
            if self.take(device, found.nbytes):
                return found.clone() if device == found.device else found.to(device)
        return None


class Eager:
    """What torch.compile has made calls no hooks of submodules: while anything is recorded, nothing
    that is compiled is run. Recordings may overlap, and end in any order."""

    def __init__(self) -> None:
        self._count = 0
        self._stance: Any = None
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._stance = torch.compiler.set_stance("force_eager")

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._stance.__exit__(None, None, None)


EAGER = Eager()


class Recording:
    """Records until it is closed. `failed` is told what went wrong here: a hook never raises.

    activations  in the order of the calls
    gradients    by the parameter's name, as the optimizer got them, without a scale
    before       the parameters before the update
    left_out     names for which there was no room
    """

    def __init__(self, model: nn.Module, failed: Failed):
        self.activations: list[Activation] = []
        self.gradients: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}
        self.left_out: list[str] = []
        self._model = model
        self._failed = failed
        self._goes_on = True
        self._room = Room()
        self._calls: Counter[str] = Counter()
        EAGER.enter()
        self.compile_again = weakref.finalize(self, EAGER.leave)  # once, also where this is lost
        self._hooks = [
            module.register_forward_hook(Hook(self, name or type(model).__name__))
            for name, module in model.named_modules()
        ]

    def close(self) -> None:
        """The iteration has ended: the model is as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.compile_again()

    def see(self, name: str, module: nn.Module, output: Any) -> None:
        """A submodule gave something."""
        try:
            if self._goes_on and self._counts():
                self._keep(name, module, output)
        except Exception as error:
            self._goes_on = False
            self._failed(error)

    def _counts(self) -> bool:
        """Not what is computed again for a backward pass, nor an evaluation of the model."""
        in_backward = torch._C._current_graph_task_id() != -1
        return not in_backward and (self._model.training or torch.is_grad_enabled())

    def _keep(self, name: str, module: nn.Module, output: Any) -> None:
        found = first_tensor(output)
        if found is None:
            return
        self._calls[name] += 1
        called = self.called(name)
        kept = self._copied(called, found)
        if kept is not None:
            count = sum(1 for _ in tensors_in(output))
            which = "" if count == 1 else f" (the first of {count} tensors)"
            self.activations.append(Activation(called, f"{type(module).__name__}{which}", kept))

    def called(self, name: str) -> str:
        """What the last call of a submodule is called."""
        return name if self._calls[name] == 1 else f"{name}#{self._calls[name]}"

    def take(self, optimizer: Any = None) -> None:
        """The gradients as they stand now and, where an optimizer is about to change them, the
        parameters. It may have been told to take a scale out of the gradients first."""
        scale = getattr(optimizer, "grad_scale", None)
        for name, parameter in self._model.named_parameters():
            if optimizer is not None:
                self._put(self.before, name, parameter)
            if parameter.grad is None:
                continue
            self._put(self.gradients, name, parameter.grad)
            if scale is not None and name in self.gradients:
                self.gradients[name].div_(scale.to(self.gradients[name].device))

    def _put(self, into: dict[str, Tensor], name: str, tensor: Tensor) -> None:
        kept = self._copied(name, tensor)
        if kept is not None:
            into[name] = kept

    def _copied(self, name: str, tensor: Tensor) -> Tensor | None:
        kept = self._room.copy(tensor)
        if kept is None:
            self.left_out.append(name)
        return kept


class Hook:
    """A submodule's forward hook. A model that is copied or saved in an iteration that is recorded
    takes none of this along: there it is a call of the standard library that does nothing."""

    def __init__(self, recording: Recording, name: str):
        self._recording = recording
        self._name = name

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._recording.see(self._name, module, output)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def first_tensor(output: Any) -> Tensor | None:
    """The first tensor in what a module returned, whatever it is packed in."""
    return next(tensors_in(output), None)


def tensors_in(output: Any) -> Iterator[Tensor]:
    """All of them, in order."""
    if isinstance(output, Tensor):
        yield output
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)):
        for each in output:
            yield from tensors_in(each)


def local(tensor: Tensor) -> Tensor:
    """What this process has of a tensor, as a dense tensor of real numbers without a graph.

    Putting a sharded one together would wait for other processes, which know of nothing.
    """
    found: Any = tensor.detach()
    if hasattr(found, "to_local"):
        found = found.to_local()
    if found.layout != torch.strided:
        found = found.to_dense()
    if found.is_complex():
        found = torch.view_as_real(found)
    plain: Tensor = found
    return plain


def bare_model(model: Any) -> Any:
    """The model itself, out of what torch.compile and data parallelism have put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, (nn.parallel.DistributedDataParallel, nn.DataParallel)
        ):
            inner = model.module
        if inner is None:
            return model
        model = inner


def bare_optimizer(optimizer: Any) -> Any:
    """The optimizer itself, out of wrappers that have it as `.optimizer`."""
    seen: set[int] = set()
    while id(optimizer) not in seen and getattr(optimizer, "optimizer", None) is not None:
        seen.add(id(optimizer))
        optimizer = optimizer.optimizer
    return optimizer
