"""Options: what can be seen to be wrong before anything is made."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import UsageError
from engine.service.options import Options

WORKED = Options()


def test_the_default_is_the_worked_sentence():
    assert WORKED.worked
    assert WORKED.open().texts == ["Lily found a red ball."]
    assert (WORKED.seed, WORKED.context, WORKED.optimizer, WORKED.lr) == (11, 4, "sgd", 0.1)
    assert (WORKED.heads, WORKED.train_steps) == (2, 1)
    assert WORKED.check() is WORKED


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model": "rnn"},
            "no model is called 'rnn': use bigram, mlp, attention, multihead, transformer",
        ),
        ({"sentence": "a", "text": "b"}, "--sentence and --text are both given"),
        ({"lines": True}, "--lines goes with --text FILE"),
        ({"rows": (1,), "batch": 2}, "--rows and --batch are both given"),
        ({"rows": ()}, "--rows names no window"),
        ({"draw": 0.5, "draw_seed": 3}, "a draw and a seed for draws are both given"),
        ({"context": 0}, "--context 0 is too small: give 1 or more"),
        ({"batch": -1}, "--batch -1 is too small"),
        ({"width": 0}, "--width 0 is too small"),
        ({"hidden": 0}, "--hidden 0 is too small"),
        ({"heads": 0}, "--heads 0 is too small"),
        ({"tokens": 0}, "--max-new-tokens 0 is too small"),
        ({"train_steps": -1}, "--train-steps -1 is too small: give 0 or more"),
        ({"draw": 1.5}, "--draw 1.5 is no share: give a number from 0 to 1"),
        ({"draw": -0.1}, "--draw -0.1 is no share"),
        ({"draw": math.nan}, "--draw nan is no share"),
        ({"lr": 0.0}, "--lr 0 does not train"),
        ({"lr": math.nan}, "--lr nan does not train"),
        ({"lr": math.inf}, "--lr inf does not train"),
        ({"optimizer": "rmsprop"}, "no optimizer is called 'rmsprop': use sgd, adam, adamw"),
        ({"seed": -1}, "-1 is no seed"),
        ({"draw_seed": 2**63}, f"{2**63} is no seed"),
        ({"sentence": " \n"}, "the sentence holds no token"),
        ({"text": "/nowhere/at/all"}, "there is no file '/nowhere/at/all'"),
    ],
)
def test_wrong_options_are_told(changes: dict, sentence: str):
    with pytest.raises(UsageError, match=sentence) as told:
        replace(WORKED, **changes).check()
    assert told.value.exit_code == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"sentence": "one"},
        {"draw": 0.0},
        {"draw": 1.0},
        {"train_steps": 0},
        {"rows": (0, 0)},
        {"seed": 2**63 - 1},
        {"seed": 0},
        {"lr": 1e-9},
    ],
)
def test_the_edges_of_what_is_right(changes: dict):
    assert replace(WORKED, **changes).check()


numbers = st.none() | st.integers(1, 9)
options = st.builds(
    Options,
    model=st.sampled_from(["mlp", "attention", "multihead"]),
    sentence=st.none() | st.text(),
    rows=st.none() | st.lists(st.integers(0, 9)).map(tuple),
    batch=numbers,
    width=numbers,
    lr=st.floats(0.001, 1),
    draw=st.none() | st.floats(0, 1),
)


@given(options)
def test_options_survive_json(made: Options):
    assert Options.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_unknown_fields_of_json_are_left_out():
    """A newer screen may send more than this worker knows."""
    sent = WORKED.to_json() | {"colour": "red"}
    assert Options.from_json(sent) == WORKED
    assert set(WORKED.to_json()) == {field.name for field in fields(Options)}
