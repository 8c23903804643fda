"""Where a token stands: positions counted from the first token that is not padding, and their
rotations.

Su and others, "RoFormer: Enhanced Transformer with Rotary Position Embedding", in the layout of
Hugging Face: component i is turned together with component i + k/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.ops.core import Cell, Explanation, Operands, Operation, Term, chooses, one
from engine.ops.layers import Operand
from engine.states import State


def positions_of(ids: Tensor, pad_id: int | None, queries: int) -> Tensor:
    """[B, S] IDs -> [B or 1, T] positions of the last T of them; padding in front does not count
    (its own position is 0)."""
    if pad_id is None:
        return torch.arange(ids.shape[1], device=ids.device)[None, -queries:]
    counted = (ids != pad_id).long().cumsum(-1) - 1
    return counted.clamp(min=0)[:, -queries:]


class PositionRows(Operation):
    """A row of a table of positions for each of the last T of the IDs [B, S]: [B or 1, T, d]."""

    __slots__ = ("pad_id", "queries")
    formula = "the positions' rows of {1}"

    def __init__(self, pad_id: int | None, queries: int):
        self.pad_id, self.queries = pad_id, queries

    def compute(self, ids: Tensor, table: Tensor) -> Tensor:
        return F.embedding(positions_of(ids, self.pad_id, self.queries), table)

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        b, t, column = cell
        row = int(positions_of(operands.value(0), self.pad_id, self.queries)[b, t])
        to.terms.append(one(operands.cell(1, (row, column)), note=f"position {row}"))

    gradient_formula = "Σ gradients.{out} over the uses of the row"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if k != 1:
            return
        row, column = cell
        found = positions_of(operands.value(0), self.pad_id, self.queries) == row
        for at in found.nonzero().tolist():
            yield one(operands.gradient((*at, column)))


@dataclass(frozen=True)
class Rotary:
    """How fast each pair of components turns.

    theta     the base: pair i turns by theta^(-2i/k) a position
    factor    by how much slow pairs are slowed down further (Llama 3), between the wavelengths
              original / low and original / high; 1: not at all
    """

    theta: float = 10_000.0
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def frequencies(self, width: int) -> Tensor:
        """[k/2] radians a position, in float32 as checkpoints were trained with."""
        exponents = torch.arange(0, width, 2, dtype=torch.int64).float() / width
        found = 1.0 / (self.theta**exponents)
        return found if self.factor == 1.0 else self._slowed(found)

    def _slowed(self, frequencies: Tensor) -> Tensor:
        wavelength = 2 * math.pi / frequencies
        smooth = (self.original / wavelength - self.low) / (self.high - self.low)
        between = (1 - smooth) * frequencies / self.factor + smooth * frequencies
        slowed = torch.where(
            wavelength > self.original / self.low, frequencies / self.factor, frequencies
        )
        is_between = (wavelength <= self.original / self.low) & (
            wavelength >= self.original / self.high
        )
        return torch.where(is_between, between, slowed)


class Rotate(Operation):
    """Each pair of components (i, i + k/2) turned by its position times its frequency.

    x [B, H, T, k], ids [B, S], whose last T are those of x -> [B, H, T, k].
    """

    __slots__ = ("pad_id", "rotary")
    light = True
    formula = "{0}, turned by the position"

    def __init__(self, rotary: Rotary, pad_id: int | None):
        self.rotary, self.pad_id = rotary, pad_id

    def angles(self, x: Tensor, ids: Tensor) -> Tensor:
        """[B or 1, T, k/2]"""
        at = positions_of(ids, self.pad_id, x.shape[-2])
        return at[..., None].float() * self.rotary.frequencies(x.shape[-1]).to(ids.device)

    def compute(self, x: Tensor, ids: Tensor) -> Tensor:
        angles = self.angles(x, ids)
        angles = torch.cat([angles, angles], -1)[:, None]  # [B or 1, 1, T, k]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def _turn(self, cell: Cell, operands: Operands) -> tuple[Cell, float, float, float]:
        """The cell it is turned with, cos, ± sin, and the angle."""
        *at, t, i = cell
        half = operands.shape(0)[-1] // 2
        angles = self.angles(operands.value(0), operands.value(1))
        angle = float(angles[cell[0] if len(angles) > 1 else 0, t, i % half])
        other = (*at, t, i + half if i < half else i - half)
        return other, math.cos(angle), -math.sin(angle) if i < half else math.sin(angle), angle

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        other, cos, sin, angle = self._turn(cell, operands)
        to.terms = [
            one(operands.cell(0, cell), cos, f"· cos({angle:.6g}) = {cos:.6g}"),
            one(operands.cell(0, other), sin, f"· ±sin({angle:.6g}) = {sin:.6g}"),
        ]
        key = operands.cell(1, (cell[0], operands.shape(1)[1] - operands.shape(0)[-2] + cell[-2]))
        to.terms.append(chooses(key, "its place is the position"))

    gradient_formula = "gradients.{out}, turned back"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if k == 0:
            other, cos, sin, _ = self._turn(cell, operands)
            yield one(operands.gradient(cell), cos, f"· {cos:.6g}")
            yield one(operands.gradient(other), -sin, f"· {-sin:.6g}")


position_rows_of = lru_cache(PositionRows)
rotate_by = lru_cache(Rotate)


def position_rows(
    name: str, ids: Operand, table: nn.Embedding, pad_id: int | None, queries: int
) -> State:
    """The rows of a table of positions: [B or 1, T, d]."""
    axes = ("1" if pad_id is None else "B", ids.axes[1], "d")
    return State(name, position_rows_of(pad_id, queries), (ids,), axes, (table.weight,))


def rotate(name: str, x: Operand, ids: Operand, rotary: Rotary, pad_id: int | None) -> State:
    """Queries or keys by head, turned by their positions: [B, H, T, k]."""
    return State(name, rotate_by(rotary, pad_id), (x, ids), x.axes)
