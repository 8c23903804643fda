"""What can be walked: a process that makes its states one step at a time, and can stand again
where it stood. Training and generation are processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from engine.states import States
from engine.values import OVERHEAD


@dataclass
class Snapshot:
    """What stood when a step had ended: everything the next step starts from, by name.

    tensors  copies, among them `parameters.<name>` where the process changes them
    shared   tensors that no step changes, not copied
    """

    step: int
    tensors: dict[str, Tensor]
    shared: dict[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """What it holds beyond what the process holds anyway."""
        return sum(OVERHEAD + tensor.nbytes for tensor in self.tensors.values())

    def __iter__(self) -> Iterator[str]:
        """The names of what it holds."""
        return iter((*self.tensors, *self.shared))

    def get(self, name: str) -> Tensor | None:
        found = self.tensors.get(name)
        return self.shared.get(name) if found is None else found


class Process(Protocol):
    """Steps 0, 1, 2, …, each a generator of states; driven in order."""

    map: str  # training or generation

    def states(self, step: int) -> States: ...

    def ended(self, step: int) -> str | None:
        """Why there is no step after this one, or None."""
        ...

    def snapshot(self, step: int) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> None: ...

    def replica(self) -> Process:
        """The same process on tensors of its own, to make earlier steps again."""
        ...

    def apart(self) -> Process:
        """A replica whose parameters, too, are its own: they can be edited."""
        ...

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The stored parameters, as they stand now."""
        ...

    def parameter_names(self) -> dict[int, str]:
        """Name of each parameter by the identity of its tensor."""
        ...

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """Axes of each parameter."""
        ...
