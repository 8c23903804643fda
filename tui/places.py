"""Places in a walk, as a user writes them: STEP:STATE:CELL, such as 1:weights:0,0,2."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UsageError


@dataclass(frozen=True)
class Place:
    step: int
    name: str | None = None
    cell: tuple[int, ...] | None = None


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
