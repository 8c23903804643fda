"""What if: edits that cannot be made say why in a sentence; and what the desk shows of an edit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine import SGD, UsageError
from engine.edits import Edit
from engine.service.desk import Desk
from engine.service.options import Options
from engine.service.session import Session
from tests.engine.test_whatif import compare, reference, session
from tests.engine.worked import same

# --- refused ---------------------------------------------------------------------------------

REFUSED = [
    ("training", "stories", 0, [0], "ball", "no value"),
    ("training", "stories", 0, [0], "1", "text|step 0"),
    ("training", "ids", 0, [2], "5", "step 0"),
    ("training", "windows.contexts", 0, [2, 1], "5", "step 0"),
    ("training", "probabilities", 1, [0, 1], "0.5", "nothing follows"),
    ("training", "loss.per_target", 1, [0], "0.5", "nothing follows"),
    ("training", "gradients.q", 1, [0, 0, 0], "0.5", "nothing follows"),
    ("training", "gradients.norm", 1, [], "0.5", "nothing follows"),
    ("training", "update.W_Q.weight.step", 1, [0, 0], "0.5", "nothing follows|part"),
    ("training", "update.W_Q.weight.new", 1, [0, 0], "0.5", "nothing follows|part"),
    ("training", "weights", 1, [0, 0, 4], "0.5", r"no cell weights\[0, 0, 4\].* \[2, 1, 4\]"),
    ("training", "weights", 1, [0, 0, -1], "0.5", "no cell"),
    ("training", "weights", 1, [0, 0], "0.5", "no cell"),
    ("training", "weights", 1, [], "0.5", "no cell"),
    ("training", "loss", 1, [0], "0.5", "no cell"),
    ("training", "parameters.W_Q.weight", 1, [3, 0], "0.5", "no cell"),
    ("training", "parameters.W_Q.weight", 1, [0], "0.5", "no cell"),
    ("training", "parameters.W_X.weight", 1, [0, 0], "0.5", "no state of step 1"),
    ("training", "wights", 1, [0], "0.5", "no state of step 1"),
    ("training", "weights", 9, [0, 0, 1], "0.5", "no state of step 9"),
    ("training", "weights", -1, [0, 0, 1], "0.5", "no state of step -1"),
    ("training", "choice", 1, [], "5", "no state of step 1"),
    ("training", "weights", 1, [0, 0, 1], "zebra", "'zebra' is no value of weights: give a number"),
    ("training", "weights", 1, [0, 0, 1], "ball", "give a number"),
    ("training", "weights", 1, [0, 0, 1], "", "give a number"),
    ("training", "weights", 1, [0, 0, 1], "1e39", "1e.?39|float32|large"),
    ("training", "weights", 1, [0, 0, 1], "-1e39", "1e.?39|float32|large"),
    ("training", "batch.X", 1, [0, 1], "zebra", "a token of the vocabulary"),
    ("training", "batch.X", 1, [0, 1], "1.5", "whole numbers"),
    ("training", "batch.y", 1, [0], "1.5", "whole numbers"),
    ("training", "batch.X", 1, [0, 1], "10", "ID 10 is not in a vocabulary of 10"),
    ("training", "batch.X", 1, [0, 1], "-1", "ID -1 is not in a vocabulary of 10"),
    ("training", "batch.X", 1, [0, 1], "nan", "not in a vocabulary"),
    ("training", "batch.y", 1, [0], "inf", "not in a vocabulary"),
    ("generation", "prompt", 0, [], "5", "text|step 0"),
    ("generation", "tokens", 0, [0], "5", "text|step 0"),
    ("generation", "history", 0, [0], "5", "step 0"),
    ("generation", "stop", 1, [], "5", "text"),
    ("generation", "cdf", 1, [0, 4], "0.5", "nothing follows"),
    ("generation", "choice", 1, [0], "5", "no cell"),
    ("generation", "choice", 1, [], "zebra", "a token of the vocabulary"),
    ("generation", "context", 1, [0, 3], "4.5", "whole numbers"),
]


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.answer("open", {"options": {"tokens": 6}})
    for kind in ("training", "generation"):
        made.answer("move", {"map": kind, "model": "attention", "how": "seek", "step": 3})
    return made


@pytest.mark.parametrize(
    ("kind", "name", "step", "cell", "value", "told"),
    REFUSED,
    ids=[f"{name}{step}{cell}={value}" for _, name, step, cell, value, _ in REFUSED],
)
def test_what_cannot_be_edited(
    desk: Desk, kind: str, name: str, step: int, cell: list[int], value: str, told: str
):
    """One sentence says why, and nothing is changed."""
    where = {"map": kind, "model": "attention"}
    with pytest.raises(UsageError, match=told) as refused:
        desk.answer("edit", {**where, "name": name, "step": step, "cell": cell, "value": value})
    assert "\n" not in str(refused.value)
    assert desk.answer("look", where)["standing"]["edits"] == []
    assert desk.answer("undo", where)["undone"] is False


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, -1.0, 10.0])
@pytest.mark.parametrize(("state", "cell"), [("batch.X", (0, 1)), ("batch.y", (0,))])
def test_a_session_refuses_what_is_no_id(state: str, cell: tuple[int, ...], value: float):
    made = session()
    with pytest.raises(UsageError):
        made.edit("training", "mlp", Edit(1, state, cell, value))
    assert made.edits("training", "mlp") == []
    compare(made.walk("training", "mlp"), reference("mlp", SGD(0.1), 3))


def test_parts_of_an_edited_state_cannot_be_edited():
    made = session()
    made.edit("training", "mlp", Edit(1, "hidden", (0, 1), 0.5))
    with pytest.raises(UsageError):
        made.edit("training", "mlp", Edit(1, "hidden.computed", (0, 1), 0.5))
    assert len(made.edits("training", "mlp")) == 1


def test_what_nothing_follows_from_cannot_be_edited(tmp_path):
    """`validation` changes nothing."""
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"a cat has {i} hats.\n" for i in range(40)))
    made = Session(Options(text=str(lines), lines=True))
    made.walk("training", "mlp").seek(2)
    assert made.walk("training", "mlp").record("validation", 1) is not None
    with pytest.raises(UsageError, match="nothing follows from validation"):
        made.edit("training", "mlp", Edit(1, "validation", (), 0.5))


# --- shown -----------------------------------------------------------------------------------


def cells(desk: Desk, name: str, view: str, fixed: list[int] | None = None) -> tuple[dict, Tensor]:
    """What a table shows of a training state of step 2, in a view."""
    asked = {"map": "training", "model": "attention", "name": name, "step": 2, "view": view}
    spans = {"fixed": fixed or [], "rows": [0, 99], "columns": [0, 99]}
    header, payload = desk.answer("table", {**asked, **spans})
    dtype = {"f": torch.float32, "q": torch.int64}[header["code"]]
    return header, torch.frombuffer(bytearray(payload), dtype=dtype).view(header["size"])


def test_after_before_and_difference():
    """Of a state that follows from an edit, of masked scores, and of IDs."""
    desk = Desk()
    desk.answer("open", {"options": {}})
    where = {"map": "training", "model": "attention"}
    desk.answer("move", {**where, "how": "seek", "step": 3})
    set_to = {"name": "batch.X", "step": 2, "cell": [0, 1], "value": "ball"}
    told = desk.answer("edit", {**where, **set_to})
    assert told["standing"]["edits"] == ["2:batch.X:0,1=6"]
    before = reference("attention", SGD(0.1), 2)
    after = reference("attention", SGD(0.1), 2, [Edit(2, "batch.X", (0, 1), 6.0)])
    for name, fixed in (("logits", []), ("scores.masked", [0]), ("batch.X", [])):
        was, now = before[2, name], after[2, name]
        was, now = (was[0], now[0]) if fixed else (was, now)
        assert same(cells(desk, name, "after", fixed)[1], now)
        assert same(cells(desk, name, "before", fixed)[1], was)
        difference = torch.where(now == was, torch.zeros_like(now), now - was)
        assert same(cells(desk, name, "difference", fixed)[1], difference), name
    header, _ = cells(desk, "batch.X", "before")
    assert header["tokens"][0][1] == "<BOS>"
    header, _ = cells(desk, "batch.X", "difference")
    assert not header.get("tokens"), "a difference of IDs is no token"
    assert desk.answer("undo", where)["undone"]
    assert same(cells(desk, "logits", "after")[1], before[2, "logits"])
