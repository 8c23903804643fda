"""The KV cache: keys and values of earlier positions, so that a step computes only what is new."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from engine.models.parts import Heads
from engine.ops import given
from engine.ops.core import Cell, Explanation, Operands, Operation, one
from engine.processes import Snapshot
from engine.states import State, States, View

KEPT = ".attention.cache."  # in the name of each state that is kept


class Join(Operation):
    """What was kept of earlier positions, and what is new after it: [B, G, S, k]."""

    __slots__ = ("known",)

    def __init__(self, known: int):
        self.known = known  # positions that were kept

    def describe(self, names: list[str]) -> str:
        return f"{names[0]} of {self.known} positions, then the new" if self.known else "all new"

    def compute(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 2) if self.known else parts[0].contiguous()

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        b, g, s, i = cell
        whole = operands.output
        to.note = (
            f"positions reused: {self.known}, new: {whole.shape[2] - self.known};"
            f" kept for the next step: {whole.nbytes:,} bytes"
        )
        if s < self.known:
            to.terms.append(one(operands.cell(0, cell), note="reused"))
            return
        new = operands.cell(1 if self.known else 0, (b, g, s - self.known, i))
        to.terms.append(one(new, note="new in this step"))


join_after = lru_cache(Join)


class Cache:
    """Keys and values by the name of their state, of the first `length` positions.

    It is both a `Past` of a model and what a generation keeps between its steps.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.length = 0
        self._step = 0

    def begin(self, step: int) -> None:
        """A step is begun: what it joins was left by the one before."""
        self._step = step

    def unseen(self, X: State) -> State | View:
        """The IDs whose keys are not kept yet, of all [B, S]."""
        known = self.length
        return X.view(lambda ids: ids[:, known:], (X.axes[0], "T")) if known else X

    def joined(self, keys: Heads, values: Heads, at: str) -> States:
        k = yield self._join(f"{at}cache.k", keys)  # [B, G, S, k]
        v = yield self._join(f"{at}cache.v", values)  # [B, G, S, v]
        self.tensors[k.name], self.tensors[v.name] = k.value, v.value
        return k, v

    def _join(self, name: str, new: Heads) -> State:
        axes = ("B", "G", "S", new.axes[-1])
        if not self.length:
            return State(name, join_after(0), (new,), axes)
        before = given(name, self.tensors[name], axes, "what was kept", step=self._step - 1)
        return State(name, join_after(self.length), (before, new), axes)

    def cut(self, length: int) -> None:
        """Forget what is known of positions from `length` on."""
        if length < self.length:
            self.tensors = {name: kept[:, :, :length] for name, kept in self.tensors.items()}
            self.length = length

    def end(self, length: int) -> None:
        """All blocks have joined: so many positions are known now."""
        self.length = length

    def save(self, snapshot: Snapshot) -> None:
        """What is kept goes with a snapshot. It is never changed in place, so not copied."""
        snapshot.tensors.update(self.tensors)

    def restore(self, snapshot: Snapshot) -> None:
        self.tensors = {n: t for n, t in snapshot.tensors.items() if KEPT in n}
        self.length = next(iter(self.tensors.values())).shape[2] if self.tensors else 0

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def copy(self) -> Cache:
        twin = Cache()
        twin.tensors, twin.length = dict(self.tensors), self.length
        return twin
