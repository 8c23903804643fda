"""A model of the user's own, made by a factory of theirs: found, called and checked."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import TensorstepError, UsageError
from engine.service.recording import bare_model

GIVES = "(model, loss), (model, loss, optimizer) or (model, inputs)"


@dataclass
class Made:
    """What a factory has made.

    loss       runs the model and returns the loss of a step; None where there are only `inputs`
    optimizer  the user's own, where the factory gave one
    """

    model: nn.Module
    loss: Callable[[int], Any] | None = None
    inputs: Any = None
    optimizer: Any = None

    @property
    def bare(self) -> nn.Module:
        """The model itself, out of what may be around it."""
        model: nn.Module = bare_model(self.model)
        return model

    def run(self) -> Any:
        """One forward pass over the inputs."""
        if isinstance(self.inputs, dict):
            return self.model(**self.inputs)
        if isinstance(self.inputs, (tuple, list)):
            return self.model(*self.inputs)
        return self.model(self.inputs)


def make(spec: str, seed: int) -> Made:
    """What the factory `package.module:factory` makes, after this seed. Raises UsageError where
    there is no such factory, TensorstepError where it fails or makes something else."""
    torch.manual_seed(seed)
    factory = factory_of(spec)
    with theirs(f"the factory {spec} failed"):
        found = factory()
    return made_of(spec, found)


def factory_of(spec: str) -> Callable[[], Any]:
    module, _, name = spec.partition(":")
    check_name(spec)
    importlib.invalidate_caches()
    try:
        with theirs(f"importing {module} failed", ModuleNotFoundError):
            found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {module!r} in this folder, nor installed: module: takes"
                " package.module:factory"
            ) from None
        raise mistake(f"importing {module} failed", error) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module} has no {name!r}: name a function that makes the model")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{spec} is no factory: name a function that makes the model")
    factory: Callable[[], Any] = found
    return factory


def check_name(spec: str) -> None:
    """Raises UsageError for what cannot be a factory's name."""
    module, colon, name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise UsageError(f"module:{spec} names no factory: write module:package.module:factory")


def made_of(spec: str, found: Any) -> Made:
    """What a factory returned, checked. Raises TensorstepError for anything else."""
    length = len(found) if isinstance(found, (tuple, list)) else 0
    if length not in (2, 3) or not isinstance(found[0], nn.Module):
        raise TensorstepError(f"the factory {spec} returned {told(found)}: return {GIVES}")
    model, second, *optimizer = found
    if callable(second) and not isinstance(second, Tensor):
        made = Made(model, loss=second, optimizer=optimizer[0] if optimizer else None)
    elif isinstance(second, (Tensor, tuple, list, dict)) and not optimizer:
        made = Made(model, inputs=second)
    else:
        raise TensorstepError(f"the factory {spec} returned {told(found)}: return {GIVES}")
    parameters = list(made.bare.parameters())
    if made.loss is not None and not parameters:
        raise TensorstepError(f"the model of {spec} has no parameters: there is nothing to train")
    if any(isinstance(each, nn.parameter.UninitializedParameter) for each in parameters):
        raise TensorstepError(
            f"the model of {spec} has parameters without a shape: run it once in the factory"
        )
    given = made.optimizer
    if given is not None and not (hasattr(given, "step") and hasattr(given, "param_groups")):
        raise TensorstepError(f"the factory {spec} returned {told(found)}: return {GIVES}")
    return made


def told(found: Any) -> str:
    """What was returned, in a word or a few."""
    if isinstance(found, (tuple, list)):
        inner = ", ".join(type(each).__name__ for each in found[:4])
        return f"({inner}{', ...' if len(found) > 4 else ''})"
    return "nothing" if found is None else f"a {type(found).__name__}"


@contextlib.contextmanager
def theirs(what: str, *but: type[Exception]) -> Iterator[None]:
    """Around code of the user's: it finds the modules of the current folder, and a mistake in it is
    one sentence. Raises TensorstepError, and what is in `but` as it is."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    except TensorstepError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, but):
            raise
        raise mistake(what, error) from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def mistake(what: str, error: BaseException) -> TensorstepError:
    """A mistake in code of the user's as a sentence: what failed, and the last line of its
    traceback, which itself is told with --debug."""
    lines = [each.strip() for each in traceback.format_exception_only(error)]
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if each.filename.startswith(os.getcwd())] or frames
    where = f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    last = " ".join(lines[-1].split()) or type(error).__name__
    found = TensorstepError(f"{what}: {last}{where}")
    found.trace = "".join(traceback.format_exception(error))
    return found
