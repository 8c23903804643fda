"""With what the figures of the worked examples are compared, and what is told where they differ."""

from __future__ import annotations

import math
import platform
import time
from typing import Any

import torch

from engine.experiments.rows import DIFFERS, EXACT, Row

A_RULE = "no machine changes this, so that it is a fault of tensorstep: report it"


def alike(name: str, published: Any, here: Any, why: str, within: float) -> Row:
    """A row of a number, or of nested lists of them, that have to be the same to `within`; the
    difference is the largest. An infinity is the same as itself only, nan as nothing."""
    a, b = (torch.tensor(value, dtype=torch.float64) for value in (published, here))
    if a.shape != b.shape:
        return Row(name, published, here, None, f"{DIFFERS}: {why}")
    apart = torch.where(a == b, torch.zeros_like(a), (b - a).abs()).flatten().tolist()
    largest = math.nan if any(map(math.isnan, apart)) else max(apart, default=0.0)
    fits = largest <= within
    return Row(name, published, here, largest, EXACT if fits else f"{DIFFERS}: {why}")


def is_pinned() -> bool:
    """Whether published figures come out to the last digit: their processor, their torch."""
    return platform.machine() == "x86_64" and torch.__version__.startswith("2.13.")


def elsewhere() -> str:
    """Why a figure may differ."""
    here = f"here they are of torch {torch.__version__} on {platform.machine()}"
    return f"the published figures are of torch 2.13 on x86-64, {here}"


def circumstances(began: float) -> dict[str, str]:
    """What a result was made with; `began` is when, by `time.perf_counter`."""
    return {
        "torch": torch.__version__,
        "device": f"cpu ({platform.machine()})",
        "threads": str(torch.get_num_threads()),
        "seconds": f"{time.perf_counter() - began:.1f}",
    }
