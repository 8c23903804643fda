"""The maps: every state has its box, and the boxes come in the order of the states."""

from __future__ import annotations

import pytest

from engine.maps import (
    GENERATION,
    MODEL_STAGES,
    MODEL_TITLES,
    TRAINING,
    map_of,
    stage_named,
    stage_of,
)
from engine.stages import STAGES
from tests.engine.worked import EVERY_MODEL, generation, trace, training

ATTENTION = [
    *("embedding", "qkv", "scores", "weights", "message", "projection", "residual", "hidden"),
    "logits",
]
MIDDLE = {
    "mlp": ["embedding", "flatten", "hidden", "logits"],
    "attention": ATTENTION,
    "multihead": ATTENTION,
    "bigram": ["logits"],
    "transformer": [
        *("embedding", "norm1", "qkv", "scores", "weights", "message", "projection", "residual1"),
        *("norm2", "feedforward", "residual2", "norm", "logits"),
    ],
}


def stages_walked(kind: str, model: str) -> dict[str, list[str]]:
    """The stages of two steps in the order their states come, with their states."""
    process = training(model) if kind == TRAINING else generation(model)
    found: dict[str, list[str]] = {}
    for step, name in trace(process, 2):
        found.setdefault(stage_of(kind, name, step), []).append(name)
    return found


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_boxes_of_the_maps(name: str):
    keys = {
        kind: [stage.key for stage in map_of(kind, name).stages] for kind in (TRAINING, GENERATION)
    }
    assert keys[TRAINING] == [
        *("stories", "split", "tokenize", "ids", "windows", "batch"),
        *MIDDLE[name],
        *("loss", "backward", "optimizer", "parameters", "validation"),
    ]
    assert keys[GENERATION] == [
        *("prompt", "tokenize", "windows", "checkpoint"),
        *MIDDLE[name],
        *("probabilities", "choose", "stop", "append"),
    ]


@pytest.mark.parametrize("kind", [TRAINING, GENERATION])
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_states_walk_through_the_boxes_in_order(kind: str, name: str):
    """Every state lies in a box of its map, and the boxes come in the map's order. Only the boxes
    of stored parameters (and validation, where nothing is held out) have no state of a step."""
    boxes = [stage.key for stage in map_of(kind, name).stages]
    found = stages_walked(kind, name)
    assert list(found) == [key for key in boxes if key in found]
    assert set(boxes) - set(found) == (
        {"parameters", "validation"} if kind == TRAINING else {"checkpoint"}
    )


@pytest.mark.parametrize(
    ("kind", "name", "step", "stage"),
    [
        (TRAINING, "vocabulary", 0, "ids"),
        (TRAINING, "windows.targets", 0, "windows"),
        (TRAINING, "probabilities", 1, "loss"),
        (GENERATION, "probabilities", 1, "probabilities"),
        (GENERATION, "logits.blocked", 1, "probabilities"),
        (GENERATION, "logits", 1, "logits"),
        (GENERATION, "history", 0, "tokenize"),
        (GENERATION, "history", 1, "append"),
        (TRAINING, "embedding.positions", 1, "embedding"),
        (TRAINING, "K", 1, "qkv"),
        (TRAINING, "hidden.pre", 1, "hidden"),
        (TRAINING, "gradients.hidden.pre", 1, "backward"),
        (TRAINING, "update.W_Q.weight", 1, "optimizer"),
        (TRAINING, "parameters.W_Q.weight", 1, "parameters"),
        (GENERATION, "parameters.W_Q.weight", 1, "checkpoint"),
        (TRAINING, "validation", 1, "validation"),
        (TRAINING, "blocks.0.attention.scores.masked", 1, "scores"),
    ],
)
def test_box_of_a_state(kind: str, name: str, step: int, stage: str):
    assert stage_of(kind, name, step) == stage


@pytest.mark.parametrize("kind", [TRAINING, GENERATION])
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_edges_beside_the_order(kind: str, name: str):
    """Edges join boxes of the map; y skips to the loss, updates and tokens go round."""
    drawn = map_of(kind, name)
    boxes = {stage.key for stage in drawn.stages}
    edges = {(edge.source, edge.target, edge.what) for edge in drawn.edges}
    assert all({source, target} <= boxes for source, target, _ in edges)
    expected = {
        TRAINING: {("batch", "loss", "y"), ("parameters", "batch", "next step")},
        GENERATION: {("append", "windows", "next token")},
    }[kind]
    attention = {("embedding", "residual", "x")}
    more = {"transformer": {("residual2", "norm1", "next block")}, "mlp": set(), "bigram": set()}
    assert edges == expected | more.get(name, attention)


def test_every_box_says_what_it_is():
    """A title and one plain sentence each, under the key it is listed by."""
    for key, stage in STAGES.items():
        assert stage.key == key
        assert stage.title
        assert stage.sentence[-1] in ".?"
    assert set(MODEL_STAGES) == set(EVERY_MODEL)
    assert set(MODEL_TITLES) == {*EVERY_MODEL, "checkpoint"}


@pytest.mark.parametrize(
    ("kind", "model"), [("training", "rnn"), ("backwards", "mlp"), ("Training", "mlp")]
)
def test_a_map_there_is_not(kind: str, model: str):
    with pytest.raises(KeyError):
        map_of(kind, model)


def test_boxes_that_are_otherwise_in_some_models():
    """Nothing is blocked of a checkpoint from elsewhere; a loss of one's own may be anything."""
    assert "<PAD>" in stage_named("probabilities", "transformer").sentence
    for model in ("checkpoint", "checkpoint:cached"):
        (box,) = (each for each in map_of("generation", model).stages if "prob" in each.key)
        assert box == stage_named("probabilities", model)
        assert "none is blocked" in box.sentence
    assert "nats" in stage_named("loss", "checkpoint").sentence
    assert "nats" not in stage_named("loss", "module").sentence


def test_a_state_no_box_has():
    with pytest.raises(KeyError, match="no stage of the training map has a state 'elsewhere'"):
        stage_of(TRAINING, "elsewhere", 1)
