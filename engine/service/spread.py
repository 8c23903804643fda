"""How the cells of a tensor are spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

PART, SMALL = 2**20, 2**16  # cells summed at once; up to so many as float64


def summary(value: Any) -> dict[str, Any]:
    """How a tensor is spread: `count`, `min`, `max`, `mean` and `std` of its finite cells (None
    where it has none), how many are `zeros` and how many `nonfinite`."""
    if isinstance(value, Sequence):
        return {"count": len(value)}
    cells = (value[:] if value.shape else value).detach()
    cells = cells if cells.dtype.is_floating_point else cells.double()
    zeros = cells.numel() - int(cells.count_nonzero())
    if cells.numel() and not all(edge.isfinite() for edge in cells.aminmax()):
        finite = cells[cells.isfinite()]  # a copy, so only where it has to be
    else:
        finite = cells
    told = {"count": cells.numel(), "zeros": zeros, "nonfinite": cells.numel() - finite.numel()}
    if not finite.numel():
        return {**told, **dict.fromkeys(("min", "max", "mean", "std"))}
    low, high = finite.aminmax()
    mean, std = mean_and_std(finite)
    kind = float if value.dtype.is_floating_point else int
    return {**told, "min": kind(low), "max": kind(high), "mean": mean, "std": std}


def mean_and_std(cells: Tensor) -> tuple[float, float]:
    """Mean and standard deviation, summed up in float64 over parts of a million cells: as quick as
    reading them, and no copy of the whole."""
    parts = [
        part if part.numel() > SMALL else part.double() for part in cells.flatten().split(PART)
    ]
    parts = [part if part.dtype.itemsize > 2 else part.float() for part in parts]
    mean = math.fsum(float(part.sum()) for part in parts) / cells.numel()
    squares = (part - mean for part in parts)
    return mean, math.sqrt(math.fsum(float(each.dot(each)) for each in squares) / cells.numel())


def summable(cells: Tensor) -> Tensor:
    """Numbers in a type in which they can be added up: half precision is none."""
    if cells.numel() <= SMALL:
        return cells.double()
    return cells.float() if cells.dtype in (torch.float16, torch.bfloat16) else cells
