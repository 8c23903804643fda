"""What a process still does when it has to leave in the middle of something."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

_acts: list[Callable[[], object]] = []


@contextlib.contextmanager
def at_leave(act: Callable[[], object]) -> Iterator[None]:
    """Within, `act` is done where the process leaves; it must be quick, and may come from another
    thread."""
    _acts.append(act)
    try:
        yield
    finally:
        _acts.remove(act)


def leave() -> None:
    """Do what there is to do. Nothing keeps the process from leaving."""
    for act in list(_acts):
        with contextlib.suppress(Exception):
            act()
