"""Values of states within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from torch import Tensor

Key = tuple[int, str]  # step, name


class ValueStore:
    """Values by (step, name), the least recently read let go of first when over `budget` bytes."""

    def __init__(self, budget: int):
        self.budget = budget
        self.held = 0
        self._values: OrderedDict[Key, tuple[Any, int]] = OrderedDict()

    def get(self, key: Key) -> Any:
        entry = self._values.get(key)
        if entry is None:
            return None
        self._values.move_to_end(key)
        return entry[0]

    def put(self, key: Key, value: Any) -> None:
        if key in self._values:
            self.drop(key)
        size = nbytes(value)
        self._values[key] = (value, size)
        self.held += size
        if self.held > self.budget:
            self.trim(self.budget)

    def drop(self, key: Key) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self.held -= entry[1]

    def trim(self, budget: int) -> None:
        """Let go of old values until `budget` is met; the newest stays, whatever its size."""
        self.budget = budget
        while self.held > budget and len(self._values) > 1:
            _, (_, size) = self._values.popitem(last=False)
            self.held -= size

    def measure_again(self, keys: Iterable[Key]) -> None:
        """Values grow when backward gives them their gradients."""
        for key in keys:
            if key in self._values:
                value, size = self._values[key]
                if isinstance(value, Tensor) and not value.requires_grad:
                    continue
                now = nbytes(value)
                self._values[key] = (value, now)
                self.held += now - size
        self.trim(self.budget)


OVERHEAD = 1024  # bytes of Python and torch around a tensor, whatever its size (measured)


def nbytes(value: Any) -> int:
    """What holding a value costs, its kept gradient included."""
    if isinstance(value, Tensor):
        if not value.requires_grad:
            return OVERHEAD + value.nbytes
        kept = value.grad if value.is_leaf or value.retains_grad else None
        return OVERHEAD + value.nbytes + (0 if kept is None else OVERHEAD + kept.nbytes)
    return 0  # texts and windows belong to the data, which stays whatever the walk holds
