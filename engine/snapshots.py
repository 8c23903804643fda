"""Snapshots of a process, kept at evenly spaced steps and thinned out as they become many."""

from __future__ import annotations

from engine.processes import Snapshot


class Snapshots:
    """The first snapshot, the newest, and those between that are a multiple of `stride` steps on.

    near  one more, wherever the last replay stood: who reads one state of a step will read its
          neighbours
    held  bytes of all of them
    """

    def __init__(self, first: Snapshot):
        self.stride = 1
        self.first = first.step
        self.newest = first
        self.near: Snapshot | None = None
        self.held = first.nbytes
        self._by_step = {first.step: first}

    def __len__(self) -> int:
        return len(self._by_step)

    def add(self, snapshot: Snapshot) -> None:
        """The snapshot of the step that has just ended."""
        if (self.newest.step - self.first) % self.stride:
            self._drop(self.newest.step)
        self._drop(snapshot.step)
        self.newest = self._by_step[snapshot.step] = snapshot
        self.held += snapshot.nbytes

    def thin(self, limit: int) -> None:
        """Double the stride until at most `limit` bytes are held, `near` not counted; the first and
        the newest stay, whatever their size."""
        while self.held - self._near_bytes > limit and len(self._by_step) > 2:
            self.stride *= 2
            for step in [step for step in self._by_step if (step - self.first) % self.stride]:
                if step != self.newest.step:
                    self._drop(step)

    def stand_near(self, snapshot: Snapshot | None) -> None:
        """Where a replay stands from now on; None: let go of it."""
        self.held -= self._near_bytes
        self.near = snapshot
        self.held += self._near_bytes

    @property
    def _near_bytes(self) -> int:
        return 0 if self.near is None else self.near.nbytes

    def _drop(self, step: int) -> None:
        dropped = self._by_step.pop(step, None)
        if dropped is not None:
            self.held -= dropped.nbytes

    def get(self, step: int) -> Snapshot | None:
        """The snapshot after a step, where there is one."""
        if self.near is not None and self.near.step == step:
            return self.near
        return self._by_step.get(step)

    def before(self, step: int) -> Snapshot:
        """The last snapshot from which `step` can be made again."""
        begin = max(known for known in self._by_step if known < step)
        if self.near is not None and begin < self.near.step < step:
            return self.near
        return self._by_step[begin]
