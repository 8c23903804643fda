"""Places in a walk, as a user writes them: STEP:STATE:CELL, such as 1:weights:0,0,2."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UsageError


@dataclass(frozen=True)
class Place:
    step: int
    name: str | None = None
    cell: tuple[int, ...] | None = None


@dataclass(frozen=True)
class WrittenEdit:
    """A cell set to another value, as it is written: 1:weights:0,0,2=0.5."""

    place: Place
    value: str


def edit_of(text: str) -> WrittenEdit:
    """The edit written as STEP:STATE:CELL=VALUE, or STATE:CELL=VALUE for step 1.

    Raises UsageError, in one sentence, for anything else.
    """
    where, sign, value = text.rpartition("=")
    if not sign or not where.strip() or not value.strip():
        raise UsageError(f"{text!r} is no edit: write STATE:CELL=VALUE, such as weights:0,0,2=0.5")
    step = 0 if where.strip().startswith("parameters.") else 1  # so that step 1 is with it
    place = place_of(where if where.strip()[:1].isdigit() else f"{step}:{where}")
    if place.name is None:
        raise UsageError(
            f"{text!r} names no state: write STATE:CELL=VALUE, such as weights:0,0,2=0.5"
        )
    return WrittenEdit(place, value.strip())


def place_of(text: str) -> Place:
    """The place written as STEP, STEP:STATE or STEP:STATE:CELL.

    Raises UsageError, in one sentence, for anything else.
    """
    step, _, rest = text.strip().partition(":")
    name, _, cell = rest.partition(":")
    if not step.isascii() or not step.isdigit() or len(step) > 9:
        raise UsageError(f"{text!r} is no place: write STEP:STATE:CELL, such as 1:weights:0,0,2")
    if not cell:
        return Place(int(step), name or None)
    parts = [part.strip() for part in cell.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"{cell!r} is no cell: write one number a dimension, such as 0,0,2")
    return Place(int(step), name or None, tuple(map(int, parts)))
