"""How the next token is chosen from the probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import TensorstepError, UsageError
from engine.ops import scale
from engine.ops.data import top_k, top_p
from engine.states import State, States

# a temperature: logits divided by less may be larger than float32 can hold, by more they are alike
COLDEST, HOTTEST = 1e-6, 1e6


@dataclass(frozen=True)
class Filters:
    """What happens to the logits before one is chosen; None: nothing.

    temperature  they are divided by it: below 1 the likely become likelier
    top_k        only the k highest are kept
    top_p        only the fewest are kept whose probabilities add up to p

    Raises UsageError for settings that leave nothing to choose from.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        t, k, p = self.temperature, self.top_k, self.top_p
        if t is not None and not (t > 0 and math.isfinite(t)):
            raise UsageError(f"a temperature of {t:g} divides nothing: give a number above 0")
        if t is not None and t < COLDEST:
            raise UsageError(
                f"a temperature of {t:g} makes the logits infinite: give {COLDEST:g} or more, or"
                " leave it out for the most probable token"
            )
        if t is not None and t > HOTTEST:
            raise UsageError(
                f"a temperature of {t:g} makes all tokens alike: give {HOTTEST:g} or less"
            )
        if k is not None and k < 1:
            raise UsageError(f"--top-k {k} keeps no token: give 1 or more")
        if p is not None and not 0 < p <= 1:
            raise UsageError(f"--top-p {p:g} is no share: give a number above 0, up to 1")

    def states(self, logits: State) -> States:
        """The logits that are left."""
        if self.temperature is not None:
            logits = yield scale("logits.temperature", logits, 1 / self.temperature)
        if self.top_k is not None:
            logits = yield top_k("logits.top_k", logits, self.top_k)
        if self.top_p is not None:
            logits = yield top_p("logits.top_p", logits, self.top_p)
        return logits


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


def choose(probabilities: Tensor, cumulative: Tensor | None, draw: float | None) -> int:
    """The chosen ID: probabilities and their float64 cumulative sum, both [C], and the draw.

    Greedy where there is no draw, nor need of the sum. Otherwise the first ID whose cumulative
    probability is at least the draw: a draw of 0 takes the first ID of positive probability, one
    beyond the last sum the last such ID. An ID of probability 0 is never chosen.

    Raises TensorstepError where no ID has a positive probability (logits that are NaN).
    """
    highest = int(probabilities.argmax())
    if not probabilities[highest] > 0:
        raise TensorstepError(
            "no token has a probability above 0, the logits are not finite:"
            " train with a smaller learning rate, or look for bad parameters"
        )
    if draw is None:
        return highest
    if cumulative is None:
        raise ValueError("a draw is looked up in the running sums: give them")
    allowed = (probabilities > 0).nonzero().flatten().to(cumulative.device)
    found = int(torch.searchsorted(cumulative[allowed].contiguous(), draw))
    return int(allowed[min(found, len(allowed) - 1)])
