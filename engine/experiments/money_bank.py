"""The hand-sized examples, "money at bank": every exact figure of them that was published, made
again in float64 by the examples themselves and by the operations of which they are made."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from engine.experiments.comparing import A_RULE, alike, circumstances
from engine.experiments.money_bank_parts import (
    ATTENTION,
    BANK,
    FEEDFORWARD,
    PARTS,
    SHAPES,
    values,
    walked,
)
from engine.experiments.rows import Result, Row, exact
from engine.models.examples import ROUNDED, TOKENS
from engine.progress import Tell

AT = 1  # the other row that is followed
TINY = 1e-12  # of figures that were published in full

HALF_OPEN = (
    "The notes draw half-open intervals to sample from; tensorstep's rule differs from that only"
    " where a draw is equal to a boundary."
)

# model, row -> state -> as it was published, and in how many decimals (None: in full)
Published = tuple[Any, int | None]
STATES: dict[tuple[str, int | None], dict[str, Published]] = {
    ("money-bank-2", None): {
        "embedding": ([[10, 0], [0, 1], [2, 1]], None),
        f"{ATTENTION}q": ([[10, 0], [0, 0], [2, 0]], None),
        f"{ATTENTION}k": ([[1, 0], [0, 1], [0.2, 1]], None),
        f"{ATTENTION}v": ([[10, 10], [0, 0], [2, 2]], None),
    },
    ("money-bank-2", BANK): {
        f"{ATTENTION}scores.raw": ([2, 0, 0.4], None),
        f"{ATTENTION}scores": ([1.414, 0, 0.283], 3),
        f"{ATTENTION}weights": ([0.638689, 0.155276, 0.206035], 6),
        f"{ATTENTION}message": ([6.798959, 6.798959], 6),
        f"{ATTENTION}projection": ([6.798959, 6.798959], 6),
        "blocks.0.residual1": ([8.798959, 7.798959], 6),
    },
    ("money-bank-4", None): {
        "embedding": ([[3, 1, 3, 1], [1, 1, 3, 3], [1, 3, 1, 3]], None),
        "blocks.0.norm1": ([[1, -1, 1, -1], [-1, -1, 1, 1], [-1, 1, -1, 1]], None),
        f"{ATTENTION}v": ([[2, -1, 1, -1], [-2, -1, 1, 1], [-2, 1, -1, 1]], None),
    },
    ("money-bank-4", BANK): {
        f"{ATTENTION}scores.raw": ([-4, 0, 4], None),
        f"{ATTENTION}scores": ([-2, 0, 2], None),
        f"{ATTENTION}weights": ([0.015876, 0.11731, 0.866813], 6),
        f"{ATTENTION}message": ([-1.936495, 0.733627, -0.733627, 0.968248], 6),
        f"{ATTENTION}projection": ([-1.936495, 0.733627, -0.733627, 0.968248], 6),
        "blocks.0.residual1": ([-0.936495, 3.733627, 0.266373, 3.968248], 6),
        "blocks.0.norm2.mean": ([1.758], 3),
        "blocks.0.norm2.variance": ([4.568], 3),
        "blocks.0.norm2": ([-1.260625, 0.924351, -0.697848, 1.034122], 6),
        f"{FEEDFORWARD}pre": (
            [-1.260625, 0.924351, -0.697848, 1.034122, -0.336274, 0.336274],
            6,
        ),
        f"{FEEDFORWARD}hidden": (
            [-0.130755, 0.760139, -0.169323, 0.878445, -0.12386, 0.212413],
            6,
        ),
        f"{FEEDFORWARD}output": ([-0.254615, 0.972552, -0.293184, 1.090859], 6),
        "blocks.0.residual2": ([-1.19111, 4.706179, -0.02681, 5.059106], 6),
    },
    ("money-bank-causal", AT): {
        f"{ATTENTION}scores.raw": ([0, 4, 0], None),
        f"{ATTENTION}scores": ([0, 2, 0], None),
        f"{ATTENTION}scores.masked": ([0, 2, -math.inf], None),
        f"{ATTENTION}weights": ([0.119203, 0.880797, 0.0], 6),
    },
}

# the other figures: as they were published, and in how many decimals
FIGURES: dict[str, Published] = {
    "two positions: raw scores": ([2, 0], None),
    "two positions: scaled": ([1.414, 0], 3),
    "two positions: weights": ([0.80443, 0.19557], 5),
    "two positions: output": ([8.435437, 0.391141], 6),
    "half money, half bank": ([6, 1], None),
    "half river, half bank": ([1, 6], None),
    "a square matrix: product": ([5, 1, 7], None),
    "a square matrix: parameters of width 3 and 6": ([9, 36], None),
    "appending: shapes before and after": ([[3, 3], [4, 3]], None),
    "shapes of one block": (SHAPES, None),
    "choosing: logits": ([-1, 0, -2, 2, 1], None),
    "choosing: probabilities": ([0.031685, 0.086129, 0.011656, 0.636409, 0.234122], 6),
    "choosing: the most probable": (3, None),
    "choosing: history after it": ([0, 1, 2, 3], None),
    "sampling: ends of the intervals": ([0.45, 0.8, 1.0], None),
    "sampling: chosen by a draw of 0.78": ("excellent", None),
    "cross entropy of 0.2": (1.6094379124341003, None),
    "cross entropy of 0.2: gradient of the logits": ([0.1, 0.1, 0.1, -0.8, 0.5], None),
    "cross entropy of 0.8": (0.2231435513142097, None),
    "cross entropy of 0.1": (2.3025850929940455, None),
    "SGD: 0.5, of a gradient of 0.2 and a rate of 0.1": (0.48, None),
    "gradients of 2 and 3: the slot where nothing clears it": (5, None),
    "gradients of 2 and 3: the slot, cleared first": (3, None),
    "layer norm of [2, 1]: mean": ([1.5], None),
    "layer norm of [2, 1]: variance": ([0.25], None),
    "layer norm of [2, 1]: result": ([1, -1], None),
    "layer norm: scale [2, 0.5] and shift [0.1, 0.3]": ([2.1, -0.2], None),
    "relu of -3.5 and of 3.5, added up": (3.5, None),
    "training window: input": ([0, 1, 2, 3], None),
    "training window: target": ([1, 2, 3, 4], None),
    "query-key pairs of 1, 2 and 3 causal positions": ([1, 3, 6], None),
}


def reproduce(tell: Tell | None = None) -> Result:
    """Every figure of the hand-sized examples, in less than a second. Torch's own random numbers go
    on afterwards as if nothing had been drawn."""
    began = time.perf_counter()
    result = Result("money-bank", 'The hand-sized examples: "money at bank"')
    with torch.random.fork_rng(devices=[]):
        for (model, row), states in STATES.items():
            result.rows += rows_of(model, row, states)
        for done, part in enumerate(PARTS, 1):
            result.rows += [row_of(name, *FIGURES[name], here) for name, here in part().items()]
            if tell is not None:
                tell("parts of the hand-sized examples", done, len(PARTS))
        result.notes += [*rounded(), HALF_OPEN]
    result.facts |= circumstances(began)
    return result


def rows_of(model: str, row: int | None, states: dict[str, Published]) -> list[Row]:
    """A row for each state of an example's pass over its own prompt."""
    walk = walked(model)
    where = "" if row is None else f' of "{TOKENS[row]}"'
    rows = slice(None) if row is None else row
    return [
        row_of(f"{model}: {name}{where}", *published, values(walk, name)[rows].tolist())
        for name, published in states.items()
    ]


def row_of(name: str, published: Any, digits: int | None, here: Any) -> Row:
    """A row of numbers that were published in so many decimals or in full; or of anything else."""
    if isinstance(published, str | dict):
        return exact(name, published, here, A_RULE)
    within = TINY if digits is None else 0.5 * 10**-digits + TINY
    return alike(name, published, here, A_RULE, within)


def rounded() -> list[str]:
    """Where the notes show other figures than come out, a sentence each."""
    notes = []
    for model, states in ROUNDED.items():
        walk = walked(model)
        for name, shown in states.items():
            own = values(walk, name)[BANK]
            theirs = ", ".join(f"{number:g}" for number in shown.values())
            ours = ", ".join(f"{own[i].item():.6f}" for i in shown)
            notes.append(
                f'{model}: for the row "bank" of {name} the notes show {theirs}; {ours} comes out,'
                " as they carry rounded figures on."
            )
    return notes
