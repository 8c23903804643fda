"""How long work tells how far it is. Whoever wants to know passes a `Tell`; nothing here draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
Tell = Callable[[str, int, int | None], None]  # what is done, how many of them, of how many
OFTEN = 0.25  # seconds between two tellings


def tracked(
    items: Iterable[Item], what: str, total: int | None, tell: Tell | None
) -> Iterator[Item]:
    """The same items, told of a few times a second."""
    if tell is None:
        yield from items
        return
    told = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - told > OFTEN:
            told = time.monotonic()
            tell(what, done, total)
        yield item


@dataclass(frozen=True)
class Progress:
    """How far work has come: what is done, how many of them, of how many (None: not known)."""

    what: str
    done: int
    total: int | None
