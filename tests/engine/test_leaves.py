"""From any number to where it begins: followed through what is cited down to IDs and stored
parameters, every number is made again from these alone; and gradients against differences."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engine import Walk, drain
from engine.records import Record
from tests.engine.test_explanations import EVERY_RULE, ByHand, cell_of, random_cells
from tests.engine.worked import MODELS, X, Y, build, training

Place = tuple[str, int, tuple[int, ...]]
DATA = ("batch.X", "batch.y")


class FromLeaves(ByHand):
    """The rules, applied to cited cells that are themselves made from what they cite."""

    def __init__(self, walk: Walk, model: str, rule: Any, first: int):
        super().__init__(walk, model, rule)
        self.first = first  # parameters as they stood before this step are where it begins
        self.made: dict[Place, float] = {}
        self.leaves: set[str] = set()

    def value(self, source: str, step: int, index: tuple[int, ...]) -> float:
        """A cell, made from leaves alone."""
        place = (source, step, index)
        if place not in self.made:
            self.made[place] = self.make(source, step, index)
        return self.made[place]

    def make(self, source: str, step: int, index: tuple[int, ...]) -> float:
        if source in DATA or (source.startswith("parameters.") and step < self.first):
            self.leaves.add(source)
            return cell_of(self.walk.fetch(source, step), index)
        if source.startswith("parameters."):  # what the optimizer wrote
            return self.value(f"update.{source.removeprefix('parameters.')}", step, index)
        if step == 0:  # the optimizer's memory before the first step
            return cell_of(self.walk.fetch(source, step), index)
        record = self.walk.record(source, step)
        assert record is not None, source
        if index == () and record.shape:  # the norm of a whole gradient
            cells = torch.ones(record.shape).nonzero().tolist()
            return math.sqrt(sum(self.value(source, step, tuple(cell)) ** 2 for cell in cells))
        return self.remade(record, index)

    def remade(self, record: Record, cell: tuple[int, ...]) -> float:
        terms = [
            (self.again(term.cited), tuple(self.again(other) for other in term.times))
            for term in record.explain(cell).terms
        ]
        name = record.name
        if name.startswith("gradients.") and name != "gradients.norm":
            return math.fsum(self.received(cited, times, cell) for cited, times in terms)
        if name.startswith("update."):
            return math.fsum(self.moved(record, cited, times) for cited, times in terms)
        return self.forward(name, cell, terms)[0]

    def again(self, cited: Any) -> Any:
        return replace(cited, value=self.value(cited.source, cited.step, cited.index))


@pytest.mark.parametrize("kind", EVERY_RULE)
@pytest.mark.parametrize("name", MODELS)
def test_random_cells_from_their_leaves(name: str, kind: str):
    """200 cells of two steps; nothing but parameters before step 1, IDs and targets is read."""
    rule = EVERY_RULE[kind]
    walk = Walk(training(name, rule))
    walk.seek(3)
    hand = FromLeaves(walk, name, rule, first=1)
    for record, cell in random_cells(walk, 2, 200, seed=29):
        found = cell_of(record.value, cell)
        made = hand.value(record.name, record.step, cell)
        if math.isfinite(found):
            assert made == pytest.approx(found, rel=2e-4, abs=2e-6), (record.name, cell)
        else:
            assert made == found
    assert {"batch.X", "batch.y"} < hand.leaves
    assert all(leaf in DATA or leaf.startswith("parameters.") for leaf in hand.leaves)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_against_differences_in_float64(name: str):
    """(loss(x + e) - loss(x - e)) / 2e for cells of every parameter, and of every activation."""
    model = build(name).double()
    ids, targets = torch.tensor(X), torch.tensor(Y)

    def loss() -> float:
        return F.cross_entropy(model(ids), targets).item()

    F.cross_entropy(model(ids), targets).backward()
    chance, tiny = random.Random(3), 1e-6
    for parameter_name, parameter in model.named_parameters():
        for _ in range(6):
            cell = tuple(chance.randrange(size) for size in parameter.shape)
            if parameter_name == "token_embedding.weight" and cell[0] == 0:
                continue  # <PAD> does not learn
            around = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter[cell] += sign * tiny
                    around.append(loss())
                    parameter[cell] -= sign * tiny
            difference = (around[0] - around[1]) / (2 * tiny)
            assert parameter.grad[cell].item() == pytest.approx(difference, rel=1e-5, abs=1e-8)
    model.zero_grad()


@pytest.mark.parametrize("name", MODELS)
def test_gradient_states_against_differences(name: str):
    """`gradients.<state>` of the walk, by moving one cell of the state and draining the rest."""
    from engine import patched

    walk = Walk(training(name))
    walk.seek(2)
    model = build(name).double()
    ids, targets = torch.tensor(X), torch.tensor(Y)
    chance, tiny = random.Random(7), 1e-6
    states = {state.name: state.value for state in drained(model, ids)}
    for state, value in states.items():
        gradient = walk.fetch(f"gradients.{state}", 1)
        for _ in range(4):
            cell = tuple(chance.randrange(size) for size in value.shape)
            if not math.isfinite(value[cell].item()):
                continue
            around = []
            for sign in (1, -1):
                moved = value.clone()
                moved[cell] += sign * tiny
                logits = drain(patched(model.states(ids), {state: moved})).value
                around.append(F.cross_entropy(logits, targets).item())
            difference = (around[0] - around[1]) / (2 * tiny)
            assert gradient[cell].item() == pytest.approx(difference, rel=2e-3, abs=2e-6), state


def drained(model: Any, ids: torch.Tensor) -> list[Any]:
    """The states of one forward pass, that gradients reach."""
    from engine import each

    with torch.no_grad():
        return [state for state in each(model.states(ids)) if state.value.is_floating_point()]
