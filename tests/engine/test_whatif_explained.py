"""What if: edited walks explained and walked; an edited cell is a constant, and says so."""

from __future__ import annotations

import math
import random

import pytest
import torch

from engine import SGD, Walk
from engine.edits import Edit
from engine.records import Record
from engine.whatif import EditedProcess
from tests.engine.test_explanations import ByHand, check, random_cells
from tests.engine.test_walk import BUDGETS, check_same, position, walked_forward, wander
from tests.engine.test_whatif import ROW, WORD, compare, generated, generating, reference, session
from tests.engine.worked import MODELS, RULES, generation, same, trace, training

EACH_MODEL = pytest.mark.parametrize("name", MODELS)
HEAD = {"attention": (1, 0), "multihead": (1, 1, 0)}  # the row of `weights` that is edited


# --- explained -------------------------------------------------------------------------------


class EditedByHand(ByHand):
    """The rules once more; an edited cell cites what it would have been."""

    def __init__(self, walk: Walk, model: str, edits: list[Edit], was: Walk):
        super().__init__(walk, model, SGD(0.1))
        self.was = was
        self.set = {(edit.step, edit.name, edit.cell): edit.value for edit in edits}

    def cell(self, record: Record, cell: tuple[int, ...]) -> tuple[float, float]:
        value = self.set.get((record.step, record.name, cell))
        if value is None:
            return super().cell(record, cell)
        found = record.explain(cell)
        assert found.note.startswith("set by you")
        assert found.value == torch.tensor(value).item()
        (term,) = found.terms
        assert (term.cited.source, term.cited.index) == (f"{record.name}.computed", cell)
        assert term.cited.value == self.was.fetch(record.name, record.step)[cell].item()
        part = self.walk.record(f"{record.name}.computed", record.step)
        check(self, part, cell)
        return found.value, abs(found.value)

    def forward(self, name: str, cell: tuple[int, ...], terms: list) -> tuple[float, float]:
        return super().forward(name.removesuffix(".computed"), cell, terms)

    def received(self, cited, times: tuple, cell: tuple[int, ...]) -> float:
        """Through edited `weights` the softmax passes back what it had computed."""
        for other in times:
            other.source = other.source.removesuffix(".computed")
        return super().received(cited, times, cell)


def check_edited(hand: EditedByHand, record: Record, cell: tuple[int, ...]) -> None:
    if (record.step, record.name, cell) in hand.set:
        hand.cell(record, cell)
    else:
        check(hand, record, cell)


def edited_walks(name: str, edits: list[Edit]) -> tuple[Walk, Walk]:
    """A walk with edits of step 2, and the one without, both three steps on."""
    made = session()
    original = made.walk("training", name)
    for edit in edits:
        made.edit("training", name, edit)
    walk = made.walk("training", name)
    walk.seek(4)
    return walk, original


@EACH_MODEL
@pytest.mark.parametrize("state", ["weights", "hidden", "logits", "embedding"])
def test_random_cells_of_an_edited_walk(name: str, state: str):
    """100 cells of step 1 to 3, all cells of the edited state and of its gradient."""
    if state == "weights" and name == "mlp":
        state = "flatten"
    cell = {"weights": (*HEAD.get(name, ()), 2), "hidden": (0, 3), "logits": (1, 4)}.get(state)
    edits = [Edit(2, state, cell or ((0, 3, 1) if state == "embedding" else (1, 6)), 0.75)]
    walk, original = edited_walks(name, edits)
    hand = EditedByHand(walk, name, edits, original)
    for record, at in random_cells(walk, 3, 100, seed=37):
        check_edited(hand, record, at)
    for record in walk.records(2):
        if record.role in ("activation", "gradient") and math.prod(record.shape) <= 40:
            for at in torch.ones(record.shape).nonzero().tolist():
                check_edited(hand, record, tuple(at))


@pytest.mark.parametrize("state", [f"gradients.{ROW}", f"update.{ROW}", "loss"])
def test_other_edited_cells_explain_themselves(state: str):
    """An edited gradient cites the one that backward made; after an edited loss all are 0."""
    made = session()
    original = made.walk("training", "mlp")
    cell = (1,) if state.endswith(ROW) else ()
    made.edit("training", "mlp", Edit(2, state, cell, 0.25))
    walk = made.walk("training", "mlp")
    walk.seek(3)
    found = walk.record(state, 2).explain(cell)
    (term,) = found.terms
    assert (found.value, found.note[:10]) == (0.25, "set by you")
    assert term.cited.source == f"{state}.computed"
    assert term.cited.value == original.fetch(state, 2)[cell].item()
    assert same(walk.fetch(f"{state}.computed", 2), original.fetch(state, 2))
    for gradient in ("gradients.logits", "gradients.hidden", f"gradients.{WORD}"):
        record = walk.record(gradient, 2)
        for at in torch.ones(record.shape).nonzero().tolist()[:60]:
            total = record.explain(tuple(at)).total
            assert total == pytest.approx(record.value[tuple(at)].item(), abs=1e-6), (gradient, at)


def test_a_gradient_explained_where_the_value_set_is_the_cell_s_own():
    """Nothing changes, so the gradient passes as it did; its explanation says so, too."""
    made = session()
    hidden = made.walk("training", "mlp").fetch("hidden", 2)
    cell = tuple((hidden > 0).nonzero()[0].tolist())
    made.edit("training", "mlp", Edit(2, "hidden", cell, hidden[cell].item()))
    record = made.walk("training", "mlp").record("gradients.hidden.pre", 2)
    assert record.value[cell].item() != 0
    assert record.explain(cell).total == pytest.approx(record.value[cell].item(), rel=1e-5)


@EACH_MODEL
def test_no_gradient_goes_through_an_edited_cell(name: str):
    """All of `hidden` edited: what is below it gets nothing, what is above it gets its own."""
    made = session()
    for cell in torch.ones(2, 8).nonzero().tolist():
        made.edit("training", name, Edit(1, "hidden", tuple(cell), 0.1 * cell[1] + 0.3))
    walk = made.walk("training", name)
    walk.seek(2)
    for key in walk.process.parameters:
        nothing = not walk.fetch(f"gradients.{key}", 1).any()
        assert nothing == (not key.startswith("vocab_head")), key
    assert not walk.fetch("gradients.embedding", 1).any()
    assert walk.record("gradients.hidden.pre", 1).explain((0, 0)).total == 0
    assert walk.fetch("gradients.hidden", 1).all()


@EACH_MODEL
def test_random_cells_of_an_edited_generation(name: str):
    """100 cells of four steps; an edited ID cites the one that it took the place of."""
    edits = [
        Edit(1, "hidden", (0, 3), 2.5),
        Edit(2, "logits", (0, 4), 1.25),
        Edit(2, "context", (0, 2), 5.0),
        Edit(3, "logits.blocked", (0, 6), 3.0),
    ]
    made = generating()
    for edit in edits:
        made.edit("generation", name, edit)
    walk, was = made.walk("generation", name), made.walk("generation", name, original=True)
    walk.seek(4)
    hand = EditedByHand(walk, name, edits, was)
    for record, at in random_cells(walk, 3, 100, seed=43, roles=("activation",)):
        if record.operation.combine != "rule":
            check_edited(hand, record, at)
    (term,) = walk.record("context", 2).explain((0, 2)).terms
    assert (term.cited.source, term.cited.index) == ("context.computed", (0, 2))
    assert term.cited.value == walk.fetch("history", 1)[2].item()
    for edit in (edits[0], edits[1], edits[3]):
        found = walk.record(edit.name, edit.step).explain(edit.cell)
        assert (found.value, found.note[:10]) == (edit.value, "set by you")


# --- walked ----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@EACH_MODEL
def test_back_and_forth_over_an_edited_walk(name: str, budget: int):
    """Whatever the budget: every number of a walk that branches off is the one of the edited
    process driven from its beginning."""
    rule = RULES["adamw"]
    edits = (Edit(2, "hidden", (1, 2), 0.5), Edit(2, f"parameters.{WORD}", (7, 1), -0.25))
    expected = trace(EditedProcess(training(name, rule), edits), 4)
    original = Walk(training(name, rule), budget)
    original.seek(4)
    walk = original.branch(EditedProcess.of(original.process, edits, original.history.held), 2)
    assert position(walk) == (2, "batch.X")
    wander(walk, expected, 4, 30, seed=3)
    walk.seek(0)
    check_same(walked_forward(walk, 4), expected)
    plainly = reference(name, rule, 4, edits)
    compare(walk, {key: plainly[key] for key in plainly if key not in expected})
    assert all(same(expected[key], plainly[key]) for key in plainly if key in expected)
    compare(original, reference(name, rule, 3))


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@EACH_MODEL
def test_back_and_forth_over_an_edited_generation(name: str, budget: int):
    """A logit and two parameters that change between steps: each step with those it began with,
    also where it is made again; the original keeps its own."""
    edits = (
        Edit(0, "parameters.vocab_head.bias", (5,), 9.0),
        Edit(1, "hidden", (0, 3), 2.5),
        Edit(2, "parameters.vocab_head.bias", (6,), 30.0),
        Edit(2, f"parameters.{WORD}", (8, 1), 3.0),
    )
    expected = generated(name, 4, edits)
    original = Walk(generation(name), budget)
    original.seek(3)
    walk = original.branch(EditedProcess.of(original.process, edits, original.history.held), 1)
    walk.seek(4)
    compare(walk, expected)
    chance = random.Random(9)
    for step, state in chance.sample(list(expected), 60):
        assert same(walk.fetch(state, step), expected[step, state]), (step, state)
    compare(original, {k: v for k, v in generated(name, 4).items() if k[0] < 3})
