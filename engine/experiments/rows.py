"""What an experiment comes to: a row for each figure that was published, beside what came out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

EXACT, WITHIN, DIFFERS, MADE = "exact", "within one published standard deviation", "differs", "new"


@dataclass(frozen=True)
class Row:
    """One figure: its name, as it was published, as it is here.

    verdict  exact; within one published standard deviation; `differs: why`; or new, where nothing
             was published to compare with
    """

    name: str
    published: Any
    here: Any
    difference: float | None
    verdict: str


@dataclass(frozen=True)
class Curve:
    """Losses over steps or epochs: `points` are (x, y), in order."""

    name: str
    points: list[tuple[float, float]]
    x: str = "step"
    y: str = "loss (nats)"


@dataclass
class Result:
    """Everything that a reproduction found.

    history   one object a step or epoch that was measured, as JSON has it
    curves    what a report draws
    sections  more to read: a title, and lines of plain text
    notes     what to know before comparing, a sentence each
    """

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    sections: list[tuple[str, list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)  # versions, device, threads, seconds

    @property
    def holds(self) -> bool:
        """Whether no row differs."""
        return not any(row.verdict.startswith(DIFFERS) for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """All of it; numbers that are not finite as "nan", "inf" and "-inf"."""
        told: dict[str, Any] = plain(asdict(self))
        return told


def plain(value: Any) -> Any:
    """The same as JSON has it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def exact(name: str, published: Any, here: Any, why: str, within: float = 0.0) -> Row:
    """A row of a figure that has to come out as it was published: numbers to `within`, anything
    else equal. `why` is said where it does not."""
    if isinstance(published, bool) or not isinstance(published, int | float):
        return Row(name, published, here, None, EXACT if here == published else f"{DIFFERS}: {why}")
    difference = float(here) - float(published)
    fits = math.isfinite(difference) and abs(difference) <= within
    return Row(name, published, here, difference, EXACT if fits else f"{DIFFERS}: {why}")


def printed(name: str, published: float, here: float, digits: int, why: str) -> Row:
    """A row of a figure that was published rounded to so many decimals."""
    return exact(name, published, here, why, within=0.5 * 10**-digits + 1e-12)


def measured(name: str, mean: float, deviation: float, here: float, why: str) -> Row:
    """A row of a mean over seeds, compared within one published standard deviation."""
    difference = here - mean
    fits = math.isfinite(difference) and abs(difference) <= deviation
    return Row(name, mean, here, difference, WITHIN if fits else f"{DIFFERS}: {why}")


def made(name: str, here: Any) -> Row:
    """A row of a figure that nobody published."""
    return Row(name, None, here, None, MADE)
