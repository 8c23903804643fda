"""One parameter followed, and all of them at a glance: what a plain loop has at those places."""

from __future__ import annotations

import math

import pytest
import torch

from engine import SGD, UsageError, Walk
from engine.edits import Edit
from engine.follow import COLUMNS, Follower, norms
from engine.service.desk import Desk
from engine.whatif import EditedProcess
from tests.engine.plain import plain
from tests.engine.test_clipping import EVERY_RULE, LIMIT, clipping
from tests.engine.test_walk import BUDGETS, position
from tests.engine.test_whatif import Seen, reference, session
from tests.engine.worked import MODELS, generation, training

EACH_MODEL = pytest.mark.parametrize("name", MODELS)
EACH_RULE = pytest.mark.parametrize("kind", EVERY_RULE)
PLACES = [
    ("hidden_layer.weight", (3, 2)),
    ("vocab_head.bias", (5,)),
    ("token_embedding.weight", (7, 1)),
]


def rows_of(
    seen: Seen, rule, key: str, cell: tuple[int, ...], steps: int, clip=False
) -> list[dict]:
    """The rows, put together from what a plain loop had."""
    got = "gradients.clipped" if clip else "gradients"
    rows = []
    for step in range(1, steps + 1):
        old = seen[step - 1, f"parameters.{key}"][cell].item()
        row = {
            "step": step,
            "value": old,
            "gradient": seen[step, f"{got}.{key}"][cell].item(),
            "update": seen[step, f"update.{key}"][cell].item() - old,
            "loss": seen[step, "loss"].item(),
        }
        row |= {part: seen[step, f"update.{key}.{part}"][cell].item() for part in rule.kept}
        rows.append(row)
    return rows


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("limit", [None, LIMIT])
@EACH_RULE
@EACH_MODEL
def test_rows_are_those_of_a_plain_loop(name: str, kind: str, limit: float | None):
    """Value, gradient, m, v, update and loss of six steps, exactly."""
    rule = EVERY_RULE[kind]
    seen = reference(name, rule, 6, clip=limit)
    walk = Walk(clipping(name, kind, limit))
    for key, cell in PLACES:
        rows = Follower(walk, key, cell).up_to(6)
        assert rows == rows_of(seen, rule, key, cell, 6, limit is not None)
        assert {"step", *rows[0]} <= {"step", *COLUMNS}
    assert position(walk) == (0, "stories")
    assert walk.losses == []


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@EACH_RULE
def test_going_on_later(kind: str, budget: int):
    """Rows that are there stay; new ones are what they would have been; the walk is left alone."""
    rule, (key, cell) = EVERY_RULE[kind], PLACES[0]
    expected = rows_of(reference("attention", rule, 7), rule, key, cell, 7)
    walk = Walk(training("attention", rule), budget)
    walk.seek(4, "weights")
    follower = Follower(walk, key, cell)
    assert follower.up_to(0) == []
    assert follower.up_to(3) == expected[:3]
    assert position(walk) == (4, "weights")
    walk.seek(7)
    walk.seek(2, "q")
    assert follower.up_to(7) == expected
    assert follower.up_to(2) == expected[:2]
    assert Follower(walk, key, cell).up_to(7) == expected
    assert position(walk) == (2, "q")
    assert walk.losses == [row["loss"] for row in expected[:6]]


def test_it_tells_how_far_it_has_come():
    told = []
    Follower(Walk(training("mlp")), *PLACES[0]).up_to(400, lambda *what: told.append(what))
    assert all("hidden_layer.weight" in str(what) for what in told)


EDITS = {
    "state": Edit(2, "hidden", (0, 3), 0.75),
    "gradient": Edit(2, "gradients.hidden_layer.weight", (3, 2), -1.5),
    "parameter": Edit(2, "parameters.hidden_layer.weight", (3, 2), 0.5),
    "first": Edit(0, "parameters.hidden_layer.weight", (3, 2), 0.5),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@EACH_RULE
def test_an_edited_walk(kind: str, edit: Edit):
    """All steps, those before the edit too; an edited parameter is the value of the step after."""
    rule, (key, cell) = EVERY_RULE[kind], PLACES[0]
    made = session(rule)

    def follower() -> Follower:
        return made.follower("training", "attention", key, cell)

    was = rows_of(reference("attention", rule, 3), rule, key, cell, 3)
    assert follower().up_to(3) == was
    assert follower() is follower()
    made.edit("training", "attention", edit)
    expected = rows_of(reference("attention", rule, 5, [edit]), rule, key, cell, 5)
    assert follower().up_to(5) == expected
    if edit.name.startswith("parameters."):
        assert expected[edit.step]["value"] == 0.5
    made.undo("training", "attention")
    assert follower().up_to(3) == was


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_an_edited_walk_whatever_the_budget(budget: int):
    rule, (key, cell), edit = EVERY_RULE["adam"], PLACES[0], EDITS["state"]
    original = Walk(training("mlp", rule), budget)
    original.seek(4)
    walk = original.branch(EditedProcess(original.process.replica(), (edit,)), 2)
    walk.seek(6)
    expected = rows_of(reference("mlp", rule, 5, [edit]), rule, key, cell, 5)
    assert Follower(walk, key, cell).up_to(5) == expected


@pytest.mark.parametrize("key", ["hidden", "parameters.W_Q.weight", "W_X.weight", "", "loss"])
def test_what_is_no_parameter_is_not_followed(key: str):
    with pytest.raises(UsageError, match="no parameter is called"):
        Follower(Walk(training("attention")), key, (0, 0))


@pytest.mark.parametrize("cell", [(3, 0), (0, 4), (0,), (), (0, 0, 0), (-1, 0)])
def test_a_cell_that_is_not_there_is_not_followed(cell: tuple[int, ...]):
    """One sentence, not an error of torch."""
    walk = Walk(training("attention"))
    with pytest.raises(UsageError):
        Follower(walk, "W_Q.weight", cell).up_to(1)


def test_generating_follows_nothing():
    with pytest.raises(UsageError, match="generating changes no parameter"):
        Follower(Walk(generation("mlp")), "vocab_head.bias", (0,))


def test_the_desk_follows_the_steps_that_have_ended():
    desk = Desk()
    desk.answer("open", {"options": {}})
    where = {"map": "training", "model": "attention"}
    asked = {**where, "name": "W_Q.weight", "cell": [1, 2]}
    expected = rows_of(reference("attention", SGD(0.1), 4), SGD(0.1), "W_Q.weight", (1, 2), 4)
    for step, ended in ((0, 0), (1, 0), (3, 2), (5, 4), (2, 4)):
        desk.answer("move", {**where, "how": "seek", "step": step})
        assert desk.answer("follow", asked)["rows"] == expected[:ended]


# --- at a glance -----------------------------------------------------------------------------


def size(*tensors: torch.Tensor) -> float:
    return math.sqrt(math.fsum(x * x for t in tensors for x in t.double().flatten().tolist()))


@pytest.mark.parametrize("edits", [(), (EDITS["state"],)], ids=["plain", "edited"])
@EACH_RULE
@EACH_MODEL
def test_norms_by_hand(name: str, kind: str, edits: tuple[Edit, ...]):
    """In float64, of the numbers of a plain loop, at each of four steps."""
    rule = EVERY_RULE[kind]
    seen = reference(name, rule, 4, edits)
    original = Walk(training(name, rule))
    original.seek(5)
    walk = (
        original.branch(EditedProcess(original.process.replica(), edits), 2) if edits else original
    )
    walk.seek(5)
    for step in range(1, 5):
        told = norms(walk, step)
        assert told["step"] == step
        assert [row["name"] for row in told["rows"]] == list(walk.process.parameters)
        for row in told["rows"]:
            key = row["name"]
            old, new = (seen[s, f"parameters.{key}"].double() for s in (step - 1, step))
            wanted = {"value": size(old), "update": size(new - old)}
            wanted["gradient"] = size(seen[step, f"gradients.{key}"])
            wanted["ratio"] = wanted["update"] / wanted["value"]
            for column, value in wanted.items():
                assert row[column] == pytest.approx(value, rel=1e-12, abs=1e-300), (key, column)
        dead = sum(
            all(h[b, u] == 0 for b in range(2)) for h in [seen[step, "hidden"]] for u in range(8)
        )
        assert told["dead"] == dead / 8


def test_a_parameter_of_nothing_but_0_has_no_ratio():
    process = training("mlp")
    with torch.no_grad():
        process.model.vocab_head.bias.zero_()
    walk = Walk(process)
    walk.seek(2)
    (row,) = (row for row in norms(walk, 1)["rows"] if row["name"] == "vocab_head.bias")
    assert row["value"] == 0
    assert row["update"] > 0
    assert math.isnan(row["ratio"])


@EACH_MODEL
def test_dead_units(name: str):
    """Units 1, 4 and 6 closed for all seven windows; unit 2 for all but some: three of eight."""
    windows = training(name, rows=list(range(7)))
    with torch.no_grad():
        windows.model.hidden_layer.bias[[1, 4, 6]] = -100.0
        windows.model.hidden_layer.bias[[0, 2, 3, 5, 7]] = 1.0
    model = plain(name)
    model.load_state_dict(windows.model.state_dict())
    kept = {}
    model(windows.data.contexts.value[torch.arange(7)], lambda n, t: kept.setdefault(n, t))
    closed = [u for u in range(8) if all(kept["hidden.pre"][b, u] <= 0 for b in range(7))]
    assert set(closed) >= {1, 4, 6}
    walk = Walk(windows)
    walk.seek(2)
    assert norms(walk, 1)["dead"] == len(closed) / 8


def test_norms_are_of_steps_that_have_ended():
    walk = Walk(training("mlp"))
    walk.seek(2, "hidden")
    for step in (-1, 0, 2, 3):
        with pytest.raises(UsageError, match="a training step that has ended"):
            norms(walk, step)
    assert norms(walk, 1)["step"] == 1
    other = Walk(generation("mlp"))
    other.seek(2)
    with pytest.raises(UsageError):
        norms(other, 1)
