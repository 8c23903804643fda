"""`tensorstep states --set` and `tensorstep explain`: what plain PyTorch computes with the same
numbers put in place, and what the engine's own explanations say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tui.conftest import Command
from tests.tui.test_mistakes import Refused, refused
from tests.tui.test_numbers import cited, walked
from tests.tui.test_what_if_screen import BALL, NAMES, Edits, what_if

__all__ = ["refused"]  # the fixture


def states(command: Command, *arguments: Any) -> dict[tuple[int, str], Any]:
    code, out, err = command("states", *arguments, "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    return {(each["step"], each["name"]): each["values"] for each in found}


SETS: list[tuple[list[str], Edits]] = [
    (["hidden.pre:0,6=2.5"], {(1, "hidden.pre", (0, 6)): 2.5}),
    (["batch.X:0,3=ball"], {(1, "batch.X", (0, 3)): BALL}),
    (
        ["2:logits:0,5=4", "1:residual:1,0,2=-3"],
        {(1, "residual", (1, 0, 2)): -3.0, (2, "logits", (0, 5)): 4.0},
    ),
    (["parameters.W_Q.weight:2,1=1.5"], {(0, "parameters.W_Q.weight", (2, 1)): 1.5}),
    (["1:parameters.W_Q.weight:2,1=1.5"], {(1, "parameters.W_Q.weight", (2, 1)): 1.5}),
]


@pytest.mark.parametrize(("written", "edits"), SETS)
def test_states_with_edits(command: Command, written: list[str], edits: Edits):
    options = [word for each in written for word in ("--set", each)]
    found = states(command, "train", "--steps", 2, *options)
    for step, expected in enumerate(what_if(edits, 2), 1):
        for name in NAMES:
            assert torch.allclose(torch.tensor(found[step, name]), expected[name], atol=1e-6), name


WRONG_SETS = {
    "weights": "'weights' is no edit: write STATE:CELL=VALUE, such as weights:0,0,2=0.5",
    "weights:0,0,2=": "is no edit",
    "=3": "is no edit",
    "1=3": "names no state: write STATE:CELL=VALUE",
    "weights:x=3": "'x' is no cell: write one number a dimension",
    "nothing:0=3": "is called 'nothing'",
    "weights:0,0,9=3": "there is no cell weights[0, 0, 9]: the shape is [2, 1, 4]",
    "weights=3": "there is no cell weights: the shape is [2, 1, 4]",
    "weights:0,0,2=lots": "'lots' is no value of weights: give a number",
    "batch.X:0,0=99": "is not in a vocabulary of 10",
    "0:tokens:1=ball": "tokens",
    "0:ids:1=3": "ids is of step 0, the preparation",
}


def test_wrong_edits(refused: Refused):
    for written, words in WRONG_SETS.items():
        for line in (["states", "train"], ["explain", "loss"]):
            assert words in refused(*line, "--set", written), written


EXPLAINED: list[tuple[str, int | None, tuple[int, ...], str]] = [
    ("logits", None, (0, 9), "training"),
    ("weights", 1, (1, 0, 2), "training"),
    ("loss", 2, (), "training"),
    ("gradients.logits", 2, (0, 5), "training"),
    ("gradients.token_embedding.weight", 1, (1, 2), "training"),
    ("update.W_Q.weight", 2, (2, 1), "training"),
    ("parameters.W_Q.weight", 1, (2, 1), "training"),
    ("ids", None, (3,), "training"),
    ("tokens", 0, (1,), "training"),
    ("batch.X", None, (0, 3), "training"),
    ("logits", 2, (0, 4), "generation"),
    ("probabilities", None, (0, 4), "generation"),
    ("choice", 1, (), "generation"),
    ("prompt", None, (), "generation"),
]


@pytest.mark.parametrize(("name", "step", "cell", "kind"), EXPLAINED)
def test_explain(command: Command, name: str, step: int | None, cell: tuple[int, ...], kind: str):
    """The fields of the issue, each term as the engine has it, the largest first; without --step in
    step 1, or in step 0 where that has no such state."""
    arguments = ["--at", ",".join(map(str, cell))] if cell else []
    arguments += [] if step is None else ["--step", step]
    code, out, err = command("explain", name, *arguments, "--map", kind, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    walk = walked(kind)
    at = step if step is not None else 1 if walk.record(name, 1) else 0
    record = walk.record(name, at)
    assert record is not None
    its = record.explain(cell)
    assert (found["value"], found["formula"]) == (its.value, its.formula)
    assert found["total"] == its.total
    assert len(found["terms"]) == len(its.terms)
    spots = cited(walk, (at, name, cell))
    assert [(t["step"], t["source"], tuple(t["index"])) for t in found["terms"]] == [
        each[0] for each in spots
    ]
    for term in found["terms"]:
        value = walk.fetch(term["source"], term["step"])
        there = value[tuple(term["index"])] if isinstance(value, Tensor) else value
        if isinstance(there, Tensor):
            assert there.item() == pytest.approx(float(term["value"]), nan_ok=True)
        assert {"source", "index", "value", "contribution"} <= set(term)
    if its.combine == "sum" and found["terms"]:
        total = sum(term["contribution"] for term in found["terms"])
        assert total == pytest.approx(found["value"], abs=1e-6)


def test_explain_with_an_edit(command: Command):
    code, out, _ = command(
        "explain", "logits", "--at", "0,9", "--set", "hidden.pre:0,6=2.5", "--json"
    )
    assert code == 0
    expected = what_if({(1, "hidden.pre", (0, 6)): 2.5})[0]
    found = json.loads(out)
    assert found["value"] == pytest.approx(float(expected["logits"][0, 9]), abs=1e-6)
    assert found["total"] == pytest.approx(found["value"], abs=1e-6)
    assert (
        next(t["value"] for t in found["terms"] if t["source"] == "hidden" and t["index"][1] == 6)
        == 2.5
    )
    code, out, _ = command("explain", "hidden.pre", "--at", "0,6", "--set", "hidden.pre:0,6=2.5")
    assert code == 0
    assert "hidden.pre[0,6] = 2.5" in out
    assert "set by you" in out


WRONG = {
    ("weights",): "weights has no cell []: its shape is [2, 1, 4]",
    ("weights", "--at", "0,0"): "weights has no cell [0, 0]: its shape is [2, 1, 4]",
    ("weights", "--at", "0,0,4"): "weights has no cell [0, 0, 4]: its shape is [2, 1, 4]",
    ("weights", "--at", "-1,0,0"): "--at",
    ("weights", "--at", "a,b"): "--at 'a,b' is no cell: write one number a dimension",
    ("loss", "--at", "0"): "loss has no cell [0]: its shape is []",
    ("nothing", "--at", "0"): "is called 'nothing'",
    ("nothing", "--at", "0", "--step", "2"): "no state of step 2 of the training map is called",
    ("weights", "--at", "0,0,0", "--step", "0"): "no state of step 0 of the training map",
    ("weights", "--at", "0,0,0", "--step", "-1"): "--step -1 is no step: give 0 or more",
    ("weights", "--at", "0,0,0", "--map", "moon"): "there is no 'moon' map",
    ("logits", "--at", "0,0", "--map", "generation", "--step", "99"): "there is no step 99",
}


def test_wrong_explanations(refused: Refused):
    for arguments, words in WRONG.items():
        assert words in refused("explain", *arguments), arguments
        assert words in refused("explain", *arguments, "--json"), arguments


def test_an_edit_of_a_step_that_is_not_walked_is_told(command: Command):
    """It would change nothing of what is printed."""
    for arguments in (("states", "train"), ("explain", "weights", "--at", "1,0,2")):
        code, out, told = command(*arguments, "--set", "5:weights:1,0,2=1")
        assert (code, out) == (2, "")
        assert "--set 5:weights changes nothing up to step 1: give more --steps" in told


def test_a_name_that_is_nearly_there(command: Command):
    for name, hint in (
        ("logitz", "of step 1 of the training map is called 'logitz': did you mean logits"),
        ("W_Q.weight", "did you mean parameters.W_Q.weight"),
    ):
        code, _, told = command("explain", name, "--at", "0,1")
        assert code == 2
        assert hint in told
