"""The decoder explains itself: every cell of every state, and every gradient, in float64.

Values are compared with the totals of their terms, gradients with autograd's and with finite
differences of the loss of a pass that nobody steps.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import engine
from engine import FixedRows, Training, Walk
from engine.models.transformer import DecoderConfig, DecoderLM
from engine.ops import Rotary
from engine.records import Record

TOLERANCE = 1e-6
PAD, VOCAB, WIDTH, POSITIONS = 0, 7, 6, 4
IDS = torch.tensor([[3, 1, 5, 3], [PAD, PAD, 2, 6]])
TARGETS = torch.tensor([[1, 5, 3, 2], [2, 2, 6, 1]])
LLAMA3 = Rotary(50.0, factor=4.0, low=1.0, high=4.0, original=16)
OF_LLAMA = {
    "hidden": 5,
    "norm": "rms",
    "norm_eps": 1e-6,
    "gated": True,
    "qkv_bias": False,
    "out_bias": False,
    "feedforward_bias": False,
    "tied": False,
}
CONFIGS = {
    "gpt2": {"heads": 3, "hidden": 5, "approximate": "tanh"},
    "exact gelu, untied": {"heads": 1, "hidden": 5, "tied": False, "norm_bias": False},
    "llama": {**OF_LLAMA, "heads": 3, "groups": 1, "rotary": Rotary()},
    "llama 3": {**OF_LLAMA, "heads": 3, "groups": 3, "rotary": LLAMA3},
    "mistral": {**OF_LLAMA, "heads": 4, "groups": 2, "head_width": 4, "rotary": Rotary()},
    "qwen2": {**OF_LLAMA, "heads": 3, "groups": 1, "rotary": Rotary(1e6), "qkv_bias": True}
    | {"tied": True},
}
KINDS = list(CONFIGS)


def build(kind: str, pad_id: int | None = PAD) -> DecoderLM:
    """Two blocks, with numbers drawn large enough for every part to matter."""
    torch.manual_seed(4)
    config = DecoderConfig(VOCAB, POSITIONS, WIDTH, blocks=2, pad_id=pad_id, **CONFIGS[kind])
    model = DecoderLM(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.4)
    return model


def training(kind: str, pad_id: int | None = PAD) -> Training:
    data = engine.TrainingData.of(IDS, TARGETS)
    return Training(build(kind, pad_id), data, FixedRows([0, 1]), keep_gradients=True)


def walked(kind: str, pad_id: int | None = PAD) -> Walk:
    walk = Walk(training(kind, pad_id))
    walk.seek(2)
    return walk


def cells(record: Record) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, record.shape)))


def check(record: Record, cell: tuple[int, ...]) -> float:
    """The total is the value; nothing cites itself. Returns the total."""
    found = record.explain(cell)
    where = (record.name, cell, found.value, found.total)
    cited = [c for term in found.terms for c in (term.cited, *term.times)]
    own = [c for c in cited if (c.source, c.step) == (record.name, record.step)]
    assert not own, where
    if math.isfinite(found.value):
        assert abs(found.total - found.value) <= TOLERANCE * found.size + 1e-15, where
    else:
        assert found.total == found.value, where
    return float(found.total)


def states_of(walk: Walk) -> list[Record]:
    return [record for record in walk.records(1) if record.role == "activation"]


@pytest.mark.parametrize("pad_id", [PAD, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_every_state(kind: str, pad_id: int | None):
    walk = walked(kind, pad_id)
    names = [record.name for record in states_of(walk)]
    assert len(names) >= 2 * 14 + 3
    assert names == list(dict.fromkeys(names))
    for record in states_of(walk):
        for cell in cells(record):
            check(record, cell)


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_of_every_normalisation(kind: str):
    walk = walked(kind)
    parts = ("mean_square",) if CONFIGS[kind].get("norm") == "rms" else ("mean", "variance")
    for at, part in itertools.product(("blocks.0.norm1", "blocks.1.norm2", "norm"), parts):
        record = walk.record(f"{at}.{part}", 1)
        for cell in cells(record):
            check(record, cell)


def plain_gradients(kind: str, pad_id: int | None) -> dict[str, Tensor]:
    """Autograd's, of a pass without a trainer: parameters and states by name."""
    model = build(kind, pad_id)
    made = {}
    states = model.states(IDS)
    try:
        state = next(states)
        while True:
            state.value.retain_grad()
            made[state.name] = state.value
            state = states.send(state)
    except StopIteration as stop:
        logits = stop.value.value
    F.cross_entropy(logits.flatten(0, 1), TARGETS.flatten()).backward()
    made |= dict(model.named_parameters())
    return {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in made.items()}


@pytest.mark.parametrize("pad_id", [PAD, None])
@pytest.mark.parametrize("kind", KINDS)
def test_every_gradient(kind: str, pad_id: int | None):
    """They are autograd's, and so are the totals of their explanations."""
    walk, plain = walked(kind, pad_id), plain_gradients(kind, pad_id)
    records = [
        record
        for record in walk.records(1)
        if record.name.startswith("gradients.") and record.name != "gradients.norm"
    ]
    plain["norm.state"] = plain.pop("norm")  # gradients.norm is the norm of all gradients
    assert {record.name.removeprefix("gradients.") for record in records} == set(plain)
    for record in records:
        expected = plain[record.name.removeprefix("gradients.")]
        assert torch.allclose(record.value, expected, rtol=0, atol=1e-12), record.name
        for cell in cells(record):
            check(record, cell)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_slopes(kind: str):
    """Finite differences: d loss / d one weight of every parameter."""
    walk, model, nudge = walked(kind), build(kind), 1e-6

    def loss_with(parameter: Tensor, cell: tuple[int, ...], by: float) -> float:
        with torch.no_grad():
            parameter[cell] += by
            loss = F.cross_entropy(model(IDS).flatten(0, 1), TARGETS.flatten()).item()
            parameter[cell] -= by
        return loss

    for key, parameter in model.named_parameters():
        cell = (1,) * parameter.dim()
        above, below = (loss_with(parameter, cell, by) for by in (nudge, -nudge))
        total = walk.record(f"gradients.{key}", 1).explain(cell).total
        assert total == pytest.approx((above - below) / (2 * nudge), abs=1e-6), key


@pytest.mark.parametrize("kind", KINDS)
def test_updates_and_losses(kind: str):
    walk = walked(kind)
    for record in walk.records(1):
        if record.name in ("probabilities", "loss.per_target", "loss"):
            for cell in cells(record):
                check(record, cell)
        if record.role == "optimizer":
            check(record, (0,) * len(record.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_visible_key(kind: str):
    """A query of padding sees nothing: it weighs 0 everywhere, and says so."""
    walk = walked(kind)
    for block in (0, 1):
        found = walk.record(f"blocks.{block}.attention.weights", 1).explain((1, 0, 1, 1))
        assert found.value == found.total == 0
        assert found.note == "no visible key: the row weighs 0 everywhere"


@pytest.mark.parametrize("kind", KINDS)
def test_formulas_have_no_hole(kind: str):
    walk = walked(kind)  # which has to live as long as its records
    for record in walk.records(1):
        found = record.explain((0,) * len(record.shape))
        for text in (record.formula, found.formula, found.note):
            assert "{" not in text, (record.name, text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_in_float32(kind: str):
    """The promise holds in the type that models have, with numbers that are far apart: saturated
    weights, closed gates. No term hides a difference that float32 has computed with an error."""
    data = engine.TrainingData.of(IDS, TARGETS)
    model = build(kind).float()
    with torch.no_grad():
        model.get_submodule("blocks.0.attention.W_Q").weight.mul_(6)
    walk = Walk(Training(model, data, FixedRows([0, 1]), keep_gradients=True))
    walk.seek(2)
    saturated = walk.fetch("blocks.0.attention.weights", 1)
    assert ((saturated > 0.9) & (saturated < 1)).any()
    for record in walk.records(1):
        if record.role in ("activation", "gradient", "optimizer"):
            for cell in cells(record):
                check(record, cell)
