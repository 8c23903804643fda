"""Clipped gradients: the numbers of `clip_grad_norm_`, and where they come from."""

from __future__ import annotations

import math

import pytest
import torch

import engine
from engine import Walk
from engine.records import Record
from tests.engine.test_explanations import ByHand, check, random_cells
from tests.engine.test_walk import BUDGETS, wander
from tests.engine.test_whatif import compare, reference
from tests.engine.worked import MODELS, MORE_RULES, ROWS, RULES, build, prepared, same, trace

EVERY_RULE = {**RULES, **MORE_RULES}
EACH_MODEL = pytest.mark.parametrize("name", MODELS)
EACH_RULE = pytest.mark.parametrize("kind", EVERY_RULE)
LIMIT = 0.3


def clipping(name: str, kind: str, limit: float | None = LIMIT) -> engine.Training:
    """The worked training, clipped."""
    rows = engine.FixedRows(ROWS)
    return engine.Training(build(name), prepared().data, rows, EVERY_RULE[kind], True, clip=limit)


@EACH_RULE
@EACH_MODEL
def test_five_steps_are_torch_s(name: str, kind: str):
    """Losses, all gradients, clipped ones, memory and parameters: `clip_grad_norm_` and torch's own
    optimizer, bit for bit; and the norm is over the limit, so that something is clipped."""
    expected = reference(name, EVERY_RULE[kind], 5, clip=LIMIT)
    walk = Walk(clipping(name, kind))
    walk.seek(6)
    compare(walk, expected)
    assert walk.losses == [expected[step, "loss"].item() for step in range(1, 6)]
    assert all(expected[step, "gradients.norm"] > 2 * LIMIT for step in (1, 2))
    drained = clipping(name, kind)
    engine.drain(engine.train(drained, 5))
    for key, parameter in drained.parameters.items():
        assert torch.equal(parameter, expected[5, f"parameters.{key}"])


@EACH_RULE
def test_what_the_optimizer_gets_has_the_limit_as_its_norm(kind: str):
    """In float64; the gradients themselves stay as they are."""
    walk, free = Walk(clipping("attention", kind)), Walk(clipping("attention", kind, None))
    for each in (walk, free):
        each.seek(2)
    squares = 0.0
    for key in walk.process.parameters:
        assert same(walk.fetch(f"gradients.{key}", 1), free.fetch(f"gradients.{key}", 1))
        clipped = walk.fetch(f"gradients.clipped.{key}", 1).double()
        squares += math.fsum(x * x for x in clipped.flatten().tolist())
        assert same(walk.fetch(f"update.{key}.grad", 1), clipped.float())
    assert math.sqrt(squares) == pytest.approx(LIMIT, rel=1e-5)
    assert free.record("gradients.clipped.W_Q.weight", 1) is None


@EACH_RULE
@EACH_MODEL
def test_below_the_limit_nothing_changes(name: str, kind: str):
    expected = trace(clipping(name, kind, None), 4)
    walk = Walk(clipping(name, kind, 1e6))
    walk.seek(5)
    compare(walk, expected)
    for step in range(1, 5):
        for key in walk.process.parameters:
            clipped = walk.fetch(f"gradients.clipped.{key}", step)
            assert same(clipped, expected[step, f"gradients.{key}"])


def test_a_norm_near_the_limit():
    """torch adds 1e-6 to the norm: at the limit itself the gradients become a little smaller."""
    norm = reference("mlp", RULES["sgd"], 1, clip=1e9)[1, "gradients.norm"].item()
    for limit in (norm, math.nextafter(norm, 0), norm + 1e-6, norm + 1e-5):
        walk = Walk(clipping("mlp", "sgd", limit))
        walk.seek(2)
        compare(walk, reference("mlp", RULES["sgd"], 1, clip=limit))


class ClippedByHand(ByHand):
    """The rules, where the optimizer gets clipped gradients."""

    limit = LIMIT

    def cell(self, record: Record, cell: tuple[int, ...]) -> tuple[float, float]:
        if not record.name.startswith("gradients.clipped."):
            return super().cell(record, cell)
        whole = record.name.replace("clipped.", "")
        gradient, norm = (term.cited for term in record.explain(cell).terms)
        assert (gradient.source, gradient.step, gradient.index) == (whole, record.step, cell)
        assert gradient.value == self.walk.fetch(whole, record.step)[cell].item()
        assert (norm.source, norm.step, norm.index) == ("gradients.norm", record.step, ())
        assert norm.value == self.walk.fetch("gradients.norm", record.step).item()
        made = gradient.value * min(1.0, self.limit / (norm.value + 1e-6))
        return made, abs(made)

    def moved(self, record: Record, cited, times: tuple) -> float:
        assert not cited.source.startswith("gradients.") or ".clipped." in cited.source
        cited.source = cited.source.replace("gradients.clipped.", "gradients.")
        return super().moved(record, cited, times)


@EACH_RULE
@EACH_MODEL
def test_random_cells(name: str, kind: str):
    """200 cells of three steps, the clipped gradients and all parts of the updates among them."""
    walk = Walk(clipping(name, kind))
    walk.seek(4)
    hand = ClippedByHand(walk, name, EVERY_RULE[kind])
    for record, cell in random_cells(walk, 3, 200, seed=41):
        check(hand, record, cell)


@EACH_RULE
@EACH_MODEL
def test_the_padding_row_stays_zero(name: str, kind: str):
    """Neither trained nor decayed, whatever the rule: its gradient, memory and update are 0."""
    key = "token_embedding.weight"
    walk = Walk(clipping(name, kind))
    walk.seek(6)
    parts = [f"update.{key}.{part}" for part in EVERY_RULE[kind].parts]
    for step in range(1, 6):
        for state in (f"gradients.{key}", f"gradients.clipped.{key}", f"update.{key}", *parts):
            assert not walk.fetch(state, step)[0].any(), (state, step)
        assert not walk.fetch(f"parameters.{key}", step)[0].any()
        assert walk.record(f"update.{key}", step).explain((0, 1)).total == 0


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@EACH_RULE
def test_back_and_forth(kind: str, budget: int):
    expected = trace(clipping("multihead", kind), 4)
    walk = Walk(clipping("multihead", kind), budget)
    wander(walk, expected, 4, 25, seed=7)
    walk.seek(4)
    compare(walk, reference("multihead", EVERY_RULE[kind], 3, clip=LIMIT))
