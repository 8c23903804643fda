"""How long work tells how far it is. Whoever wants to know passes a `Tell`; nothing here draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Tell = Callable[[str, int, int | None], None]  # what is done, how many of them, of how many
OFTEN = 0.25  # seconds between two tellings


class Meter:
    """Counts work that is done, and tells of it a few times a second."""

    def __init__(self, what: str, total: int | None, tell: Tell | None):
        self._what, self._total, self._tell = what, total, tell
        self._done = 0
        self._told = time.monotonic()

    def add(self, count: int = 1) -> None:
        """So much more is done."""
        self._done += count
        if self._tell is not None and time.monotonic() - self._told > OFTEN:
            self._told = time.monotonic()
            self._tell(self._what, self._done, self._total)


def tracked(
    items: Iterable[Item], what: str, total: int | None, tell: Tell | None
) -> Iterator[Item]:
    """The same items, told of a few times a second."""
    if tell is None:
        yield from items
        return
    meter = Meter(what, total, tell)
    for item in items:
        yield item
        meter.add()


@dataclass(frozen=True)
class Progress:
    """How far work has come: what is done, how many of them, of how many (None: not known)."""

    what: str
    done: int
    total: int | None
