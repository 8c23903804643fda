"""Schedules of the learning rate: what it is multiplied by, as a function of the step alone, so
that any step can be made again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import UsageError

CONSTANT, LINEAR, COSINE = KINDS = ("constant", "linear", "cosine")
SETTINGS = {CONSTANT: ("warmup",), LINEAR: ("warmup", "floor"), COSINE: ("warmup", "floor")}


@dataclass(frozen=True)
class Schedule:
    """The factor rises in a line to 1 in `warmup` steps, then stays there, or falls to `floor`.

    kind    constant, or how it falls: linear, in a line, or cosine, along half a period of a cosine
            (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", without
            a restart)
    steps   the step at which it has fallen to the floor, and stays; None where it does not fall
    """

    kind: str = CONSTANT
    warmup: int = 0
    steps: int | None = None
    floor: float = 1.0

    def factor(self, step: int) -> float:
        """What the learning rate of a step is multiplied by; step 1 is the first.

        The last step has the floor, and the last one of the warm-up, or step 1, has 1.
        """
        if step < self.warmup:
            return step / self.warmup
        begin = max(self.warmup, 1)
        if self.steps is None or step <= begin:
            return 1.0
        if step >= self.steps:
            return self.floor
        gone = (step - begin) / (self.steps - begin)
        left = (1 + math.cos(math.pi * gone)) / 2 if self.kind == COSINE else 1 - gone
        return self.floor + (1 - self.floor) * left

    @property
    def written(self) -> str:
        """What `schedule_of` reads, with the same number of steps, as this schedule."""
        settings = []
        if self.warmup:
            settings.append(f"warmup={self.warmup}")
        if self.kind != CONSTANT and self.floor:
            settings.append(f"floor={self.floor!r}")
        return f"{self.kind}:{','.join(settings)}" if settings else self.kind


def schedule_of(text: str, steps: int) -> Schedule:
    """The schedule that is written so, of a training of so many steps.

    constant, linear or cosine, and after a colon warmup=STEPS and floor=SHARE, of which the
    constant one has no floor. Raises UsageError for anything else.
    """
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        raise UsageError(
            f"no schedule is called {kind!r}: use {', '.join(KINDS)}, such as cosine:warmup=100"
        )
    given: dict[str, str] = {}
    for setting in rest.split(",") if colon else ():
        name, _, value = setting.partition("=")
        if name not in SETTINGS[kind] or name in given:
            raise UsageError(
                f"{setting!r} is not what the schedule {text!r} can be given:"
                f" give {' and '.join(SETTINGS[kind])} once, such as {example(kind)}"
            )
        given[name] = value
    warmup = read_warmup(given.get("warmup", "0"), text, steps)
    if kind == CONSTANT:
        return Schedule(kind, warmup)
    return Schedule(kind, warmup, steps, read_floor(given.get("floor", "0"), text))


def read_warmup(value: str, text: str, steps: int) -> int:
    try:
        warmup = int(value)
    except ValueError:
        warmup = -1
    if warmup < 0:
        raise UsageError(
            f"warmup={value} of the schedule {text!r} is no number of steps: give 0 or more"
        )
    if warmup and warmup >= steps:
        raise UsageError(
            f"warmup={value} of the schedule {text!r} leaves none of {steps} steps after it:"
            f" give less than {steps}"
        )
    return warmup


def read_floor(value: str, text: str) -> float:
    try:
        floor = float(value)
    except ValueError:
        floor = math.nan
    if not 0 <= floor <= 1:
        raise UsageError(
            f"floor={value} of the schedule {text!r} is no share of the learning rate:"
            " give a number from 0 to 1"
        )
    return floor


def example(kind: str) -> str:
    return f"{kind}:warmup=100" if kind == CONSTANT else f"{kind}:warmup=100,floor=0.1"
