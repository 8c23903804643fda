"""How the next token is chosen from the probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import TensorstepError, UsageError


class Chooser(Protocol):
    """Greedy, a fixed draw or seeded draws; `draw(step)` is a function of the step."""

    def draw(self, step: int) -> float | None:
        """The number between 0 and 1 that decides in this step; None: the highest wins."""
        ...


@dataclass(frozen=True)
class Greedy:
    """Always the most probable token; of equals the first."""

    def draw(self, step: int) -> float | None:
        return None


@dataclass(frozen=True)
class FixedDraw:
    """The same draw in every step. Raises UsageError outside 0 to 1."""

    value: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and 0 <= self.value <= 1):
            raise UsageError(f"a draw of {self.value:g} is no share: give a number from 0 to 1")

    def draw(self, step: int) -> float | None:
        return self.value


class SeededDraws:
    """A draw a step from a generator of its own, in float64."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)
        self._draws: list[float] = []

    def draw(self, step: int) -> float | None:
        while len(self._draws) < step:
            drawn = torch.rand((), generator=self._generator, dtype=torch.float64)
            self._draws.append(drawn.item())
        return self._draws[step - 1]


def choose(probabilities: Tensor, cumulative: Tensor, draw: float | None) -> int:
    """The chosen ID: probabilities and their float64 cumulative sum, both [C], and the draw.

    Greedy where there is no draw. Otherwise the first ID whose cumulative probability is at least
    the draw: a draw of 0 takes the first ID of positive probability, one beyond the last sum the
    last such ID. An ID of probability 0 is never chosen.

    Raises TensorstepError where no ID has a positive probability (logits that are NaN).
    """
    allowed = (probabilities > 0).nonzero().flatten().to(cumulative.device)
    if not len(allowed):
        raise TensorstepError(
            "no token has a probability above 0, the logits are not finite:"
            " train with a smaller learning rate"
        )
    if draw is None:
        return int(probabilities.argmax())
    found = int(torch.searchsorted(cumulative[allowed].contiguous(), draw))
    return int(allowed[min(found, len(allowed) - 1)])
