"""The command on a card makes the run that it was written for."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.service.exporting import command_of
from engine.service.run_options import RunOptions
from engine.service.saved import SHIPPED, SHIPPED_IN
from tui.arguments import parse
from tui.run_arguments import check_train
from tui.run_commands import run_options


def parsed(command: str, threads: int) -> RunOptions:
    """What the command starts."""
    first, name, *arguments = shlex.split(command)
    assert (first, name) == (f"OMP_NUM_THREADS={threads}", "tensorstep")
    values = {key: value for key, value in vars(parse(arguments)).items() if value is not None}
    check_train(values)
    return run_options(values)


@pytest.mark.parametrize("name", SHIPPED)
def test_of_what_ships(name: str):
    facts = json.loads((SHIPPED_IN / name / "config.json").read_text())["facts"]
    assert parsed(facts["command"], facts["threads"]) == RunOptions.from_json(facts["run"])


OPTIMIZERS = st.one_of(
    st.fixed_dictionaries({"optimizer": st.just("sgd")}, optional={"momentum": st.just(0.9)}),
    st.fixed_dictionaries({"optimizer": st.just("adam")}),
    st.fixed_dictionaries(
        {"optimizer": st.just("adamw")}, optional={"weight_decay": st.floats(0, 1)}
    ),
)
NUMBERS = st.integers(1, 1000)
SOURCES = st.one_of(
    *(
        st.fixed_dictionaries({name: st.sampled_from(texts)})
        for name, texts in {
            "corpus": ("storybook", "logs", "hub:some body/x's"),
            "sentence": ("Lily found a red ball.", 'it\'s "so" $HOME `ls`'),
            "text": ("a folder/b.txt", "-x.txt"),
        }.items()
    )
)
WALKS = st.fixed_dictionaries(
    {"model": st.sampled_from(["mlp", "attention", "multihead", "transformer", "bigram"])},
    optional={
        **dict.fromkeys(("context", "width", "hidden", "heads", "blocks", "seed"), NUMBERS),
        "lr": st.floats(1e-9, 1),
        "clip": st.none() | st.floats(1e-3, 100),
        "run_on": st.booleans(),
        "lines": st.booleans(),
        "prompt": st.sampled_from(["once", "--x", ""]),
        "tokenizer": st.sampled_from(["characters", "bpe:500"]),
    },
)
BATCHES = st.fixed_dictionaries({}, optional={"batch": NUMBERS}) | st.fixed_dictionaries(
    {"rows": st.tuples(st.integers(0, 9), st.integers(0, 9))}
)
RUNS = st.fixed_dictionaries(
    {},
    optional={
        "steps": NUMBERS,
        "eval_every": st.integers(0, 9),
        "schedule": st.just("cosine:warmup=5,floor=0.1"),
        "device": st.just("cpu"),
        "dtype": st.just("float64"),
        "breaks": st.sampled_from([("loss > 8",), ("loss > 8", "step == 3")]),
        "nonfinite": st.booleans(),
        "edits": st.just(("1:weights:0,0,2=0.5", "0:parameters.W_Q.weight:0,0=1")),
    },
)


@given(WALKS, SOURCES, OPTIMIZERS, BATCHES, RUNS, st.integers(1, 64))
def test_of_any_run(
    walk: dict[str, Any],
    source: dict[str, Any],
    optimizer: dict[str, Any],
    batch: dict[str, Any],
    run: dict[str, Any],
    threads: int,
):
    wanted = RunOptions.by_protocol({**walk, **source, **optimizer, **batch}, **run)
    assert parsed(command_of(wanted, threads), threads) == wanted
