"""Where numbers went bad: the first state of a step that is not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.ops.attention import Mask
from engine.ops.core import Cell, Wrapped
from engine.walk import Walk


@dataclass(frozen=True)
class Bad:
    """The first cell of a state that is not a finite number, and how many of them there are."""

    name: str
    cell: Cell
    value: float
    count: int
    size: int

    def __str__(self) -> str:
        where = f"[{','.join(map(str, self.cell))}]" if self.cell else ""
        of = f"; {self.count:,} of {self.size:,} cells are not finite" if self.size > 1 else ""
        return f"{self.name}{where} is {self.value}{of}"


def first_bad(walk: Walk) -> Bad | None:
    """Walk the step on which the cursor stands from there on, up to the first state that is not
    finite, where the cursor then stands; or a parameter that was not before. None where all are."""
    step = walk.cursor.step
    for name in walk.process.parameters:
        found = bad_cells(f"parameters.{name}", walk.fetch(f"parameters.{name}", step - 1))
        if found is not None:
            return found
    while walk.cursor.step == step:
        record = walk.current
        operation = record.operation
        while isinstance(operation, Wrapped):
            operation = operation.inner
        if not record.aside:
            found = bad_cells(record.name, record.value, isinstance(operation, Mask))
            if found is not None:
                return found
        if not walk.forward_in_step():
            return None
    return None


def bad_cells(name: str, value: Any, masks: bool = False) -> Bad | None:
    """What is not finite in a value; None where all is. `masks`: -inf is meant, it hides."""
    if not isinstance(value, Tensor) or not value.dtype.is_floating_point:
        return None
    wrong = ~value.detach().isfinite()
    if masks:
        wrong &= value.detach() != -math.inf
    count = int(wrong.sum())
    if not count:
        return None
    cell = tuple(torch.nonzero(wrong)[0].tolist())
    return Bad(name, cell, float(value[cell].item()), count, value.numel())
