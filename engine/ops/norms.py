"""Normalisation over the last axis: every row brought to a common size, then scaled.

`mean` and `variance` (or `mean_square`) of a row are parts of the state: NAME.mean, NAME.variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.ops.core import Cell, Explanation, Operands, Operation, Term, one, product
from engine.ops.layers import Operand
from engine.states import State


class LayerNorm(Operation):
    """(x - mean) / √(variance + ε) · scale + shift, over the last axis d.

    Ba, Kiros and Hinton, "Layer Normalization". Operands x [..., d], scale [d] and shift [d] (which
    some models leave out).
    """

    __slots__ = ("eps",)
    light = True

    def __init__(self, eps: float):
        self.eps = eps

    @property
    def parts(self) -> tuple[str, ...]:
        return ("mean", "variance")

    def describe(self, names: list[str]) -> str:
        text = f"({names[0]} - mean) / √(variance + {self.eps:g}) · {names[1]}"
        return f"{text} + {names[2]}" if len(names) > 2 else text

    def compute(self, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], scale, shift, self.eps)

    def take_apart(self, *operands: Any) -> dict[str, Tensor]:
        x = operands[0]
        mean = x.mean(-1, keepdim=True)
        return {"mean": mean, "variance": (x - mean).square().mean(-1, keepdim=True)}

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *at, i = cell
        name = operands.record.name
        mean = operands.named(f"{name}.mean", (*at, 0))
        variance = operands.named(f"{name}.variance", (*at, 0))
        share = 1 / root(self.spread(operands, tuple(at)) + self.eps)
        scale = operands.cell(1, (i,))
        its = operands.cell(0, cell)
        to.terms = [
            product(its, scale, factor=share),
            Term(mean, -float(mean.value) * float(scale.value) * share, (scale,)),
        ]
        if len(operands.sources) > 2:
            to.terms.append(one(operands.cell(2, (i,))))
        to.terms.append(Term(variance, 0.0, note=f"1 / √(variance + {self.eps:g}) = {share:.6g}"))

    def spread(self, operands: Operands, at: Cell) -> float:
        """The variance of a row in float64."""
        row = operands.value(0)[at].detach().double()
        return float(row.var(correction=0))

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        at = cell[:-1]
        count = operands.shape(0)[-1]
        mean = float(operands.value(0)[at].detach().double().mean())
        for i in range(count):
            its = operands.cell(0, (*at, i))
            if part == "mean":
                to.terms.append(one(its, 1 / count, f"/ {count}"))
            else:
                apart = (float(its.value) - mean) ** 2 / count
                to.terms.append(Term(its, apart, note=f"(x - {mean:.6g})² / {count}"))
        to.formula = f"mean of {operands.sources[0].name} over the last axis"
        if part == "variance":
            to.formula = "mean of (x - mean)² over the last axis"

    gradient_formula = "Σ_j gradients.{out}[j] · scale[j] · ([i = j] - 1/d - n[i] · n[j]/d) / √(…)"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        if k:
            yield from self._of_parameter(k, cell, operands)
            return
        *at, i = cell
        row = operands.value(0)[tuple(at)].detach().double()
        share = 1 / root(float(row.var(correction=0)) + self.eps)
        normal = ((row - row.mean()) * share).tolist()
        count = len(normal)
        for j in range(count):
            # two terms: together they may be nearly nothing, and float32 adds them up as they are
            above, scale = operands.gradient((*at, j)), operands.cell(1, (j,))
            yield product(above, scale, factor=((i == j) - 1 / count) * share)
            yield product(above, scale, factor=-normal[i] * normal[j] / count * share)

    def _of_parameter(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        shape, name = operands.shape(0), operands.record.name
        for at in itertools.product(*map(range, shape[:-1])):
            above = operands.gradient((*at, *cell))
            if k == 2:
                yield one(above)
                continue
            share = 1 / root(self.spread(operands, at) + self.eps)
            yield product(above, operands.cell(0, (*at, *cell)), factor=share)
            yield product(above, operands.named(f"{name}.mean", (*at, 0)), factor=-share)


class RMSNorm(Operation):
    """x / √(mean of x² + ε) · scale, over the last axis d.

    Zhang and Sennrich, "Root Mean Square Layer Normalization". Operands x [..., d], scale [d].
    """

    __slots__ = ("eps",)
    light = True

    def __init__(self, eps: float):
        self.eps = eps

    @property
    def parts(self) -> tuple[str, ...]:
        return ("mean_square",)

    def describe(self, names: list[str]) -> str:
        return f"{names[0]} / √(mean of {names[0]}² + {self.eps:g}) · {names[1]}"

    def compute(self, x: Tensor, scale: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], scale, self.eps)

    def take_apart(self, *operands: Any) -> dict[str, Tensor]:
        return {"mean_square": operands[0].square().mean(-1, keepdim=True)}

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        *at, i = cell
        whole = operands.named(f"{operands.record.name}.mean_square", (*at, 0))
        share = 1 / root(mean_square(operands.value(0)[tuple(at)]) + self.eps)
        to.terms = [
            product(operands.cell(0, cell), operands.cell(1, (i,)), factor=share),
            Term(whole, 0.0, note=f"1 / √(mean of x² + {self.eps:g}) = {share:.6g}"),
        ]

    def explain_part(self, part: str, cell: Cell, operands: Operands, to: Explanation) -> None:
        at, count = cell[:-1], operands.shape(0)[-1]
        to.formula = f"mean of {operands.sources[0].name}² over the last axis"
        for i in range(count):
            its = operands.cell(0, (*at, i))
            to.terms.append(Term(its, float(its.value) ** 2 / count, (its,), f"/ {count}"))

    gradient_formula = "Σ_j gradients.{out}[j] · scale[j] · ([i = j] - n[i] · n[j]/d) / √(…)"

    def gradient(self, k: int, cell: Cell, operands: Operands) -> Iterator[Term]:
        x = operands.value(0)
        if k == 0:
            *at, i = cell
            row = x[tuple(at)].double()
            share = 1 / root(mean_square(row) + self.eps)
            normal = (row * share).tolist()
            for j in range(len(normal)):
                above, scale = operands.gradient((*at, j)), operands.cell(1, (j,))
                if i == j:
                    yield product(above, scale, factor=share)
                yield product(above, scale, factor=-normal[i] * normal[j] / len(normal) * share)
            return
        for lead in itertools.product(*map(range, x.shape[:-1])):
            above, its = operands.gradient((*lead, *cell)), operands.cell(0, (*lead, *cell))
            share = 1 / root(mean_square(x[lead]) + self.eps)
            yield product(above, its, factor=share)


def mean_square(row: Tensor) -> float:
    return float(row.detach().double().square().mean())


def root(value: float) -> float:
    """√ of what cannot be negative; NaN stays."""
    return math.sqrt(value) if value > 0 else float(torch.tensor(value).sqrt())


layer_norm_with = lru_cache(LayerNorm)
rms_norm_with = lru_cache(RMSNorm)


def layer_norm(name: str, x: Operand, layer: nn.LayerNorm) -> State:
    """Mean 0 and variance 1 in each row, then scaled and shifted: [..., d]."""
    parameters = (layer.weight,) if layer.bias is None else (layer.weight, layer.bias)
    return State(name, layer_norm_with(layer.eps), (x,), x.axes, parameters)


def rms_norm(name: str, x: Operand, layer: nn.RMSNorm) -> State:
    """Mean square 1 in each row, then scaled: [..., d]."""
    return State(name, rms_norm_with(layer.eps or 0.0), (x,), x.axes, (layer.weight,))
