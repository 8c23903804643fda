"""Edits of a transformer: of any state in training, and in generation with a cache, where what is
edited is kept for the steps that follow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import engine
from engine import drain
from engine.edits import Edit
from engine.service.options import Options
from engine.service.session import Session
from engine.walk import Walk
from tests.engine.worked import build, copied, same

SENTENCE = "the cat saw the dog and the dog saw the red ball and a cat"
ATTENTION = "blocks.0.attention."
STATES = [
    *("embedding.tokens", "embedding.positions", "embedding", "blocks.0.norm1"),
    *(f"{ATTENTION}{name}" for name in ("q", "k", "v", "scores.raw", "scores", "weights")),
    *(f"{ATTENTION}{name}" for name in ("message", "projection")),
    *("blocks.0.residual1", "blocks.0.norm2", "blocks.0.feedforward.pre"),
    *("blocks.0.feedforward.hidden", "blocks.0.feedforward.output", "blocks.0.residual2"),
    *("norm", "logits"),
]


def edited_value(walk: Walk, edit: Edit) -> torch.Tensor:
    value = walk.fetch(edit.name, edit.step).detach().clone()
    value[edit.cell] = edit.value
    return value


def a_cell(walk: Walk, name: str, step: int) -> tuple[int, ...]:
    """The last one, of those that can be seen."""
    return tuple(size - 1 for size in walk.record(name, step).shape)


@pytest.mark.parametrize("name", STATES)
def test_any_state_of_training(name: str):
    """Loss, gradients and update are those of plain autograd with the cell put in."""
    session = Session(Options(model="transformer"))
    original = session.walk("training")
    original.seek(2)
    edit = Edit(1, name, a_cell(original, name, 1), 1.5)
    wanted = edited_value(original, edit)
    session.edit("training", "transformer", edit)
    walk = session.walk("training")
    walk.seek(2)
    model = build("transformer")
    X, y = original.fetch("batch.X", 1), original.fetch("batch.y", 1)
    logits = drain(engine.patched(model.states(X), {name: wanted})).value
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    loss.backward()
    assert torch.equal(walk.fetch("loss", 1), loss)
    assert not torch.equal(walk.fetch("loss", 1), original.fetch("loss", 1))
    for key, parameter in model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.equal(walk.fetch(f"gradients.{key}", 1), gradient), key
        expected = parameter - 0.1 * gradient
        assert torch.allclose(walk.fetch(f"update.{key}", 1), expected, atol=1e-7), key


def generating(model: str) -> Session:
    """Five tokens, of a seed with which none of them ends the text."""
    options = Options(model="transformer", sentence=SENTENCE, context=9, tokens=5, blocks=2, seed=1)
    session = Session(options)
    walk = session.walk("generation", model)
    walk.seek(4)
    walk.finish_step()
    return session


def steps_of(walk: Walk, first: int, last: int) -> dict[tuple[int, str], Any]:
    return {
        (step, record.name): copied(record.value)
        for step in range(first, last + 1)
        for record in walk.records(step)
    }


@pytest.mark.parametrize(
    "name",
    [
        *(f"{ATTENTION}{name}" for name in ("k", "v", "cache.k", "cache.v")),
        *("embedding", "blocks.0.residual2", "blocks.1.attention.cache.v", "logits"),
    ],
)
@pytest.mark.parametrize("step", [1, 2])
def test_what_is_edited_is_kept_for_the_steps_after(name: str, step: int):
    """The walk of an edited generation with a cache is that of a generation that is patched in
    that step and goes on from there, bit for bit; and the original stays as it is."""
    session = generating("transformer:cached")
    original = session.walk("generation", "transformer:cached")
    before = steps_of(original, 1, 4)
    edit = Edit(step, name, a_cell(original, name, step), 3.0)
    wanted = edited_value(original, edit)
    session.edit("generation", "transformer:cached", edit)
    walk = session.walk("generation", "transformer:cached")
    walk.seek(4)
    walk.finish_step()
    plain = session.generation("transformer:cached")
    for at in range(step):
        drain(plain.states(at))
    drain(engine.patched(plain.states(step), {name: wanted}))
    for at in range(step + 1, 5):
        for state in engine.each(plain.states(at)):
            assert same(walk.fetch(state.name, at), state.value), (at, state.name)
    assert all(same(original.fetch(n, at), value) for (at, n), value in before.items())
    if "cache" in name or name.endswith((".k", ".v")):
        kept = name.replace(f"{ATTENTION}k", f"{ATTENTION}cache.k")
        kept = kept.replace(f"{ATTENTION}v", f"{ATTENTION}cache.v")
        assert not same(walk.fetch(kept, step + 1), original.fetch(kept, step + 1))


@pytest.mark.parametrize("place", [0, 1, 3])
def test_an_edited_history_with_and_without_a_cache(place: int):
    """Another ID, wherever it stands: both go on with the same logits, those of the new text."""
    found = {}
    for model in ("transformer", "transformer:cached"):
        session = generating(model)
        ids = session.walk("generation", model).fetch("history", 1).tolist()
        session.edit("generation", model, Edit(1, "history", (place,), float((ids[place] + 1) % 9)))
        walk = session.walk("generation", model)
        walk.seek(3)
        walk.finish_step()
        found[model] = [walk.fetch("logits", step)[:, -1] for step in (2, 3)]
        context = walk.fetch("context", 2)
        assert context[0, place].item() == (ids[place] + 1) % 9
        with torch.no_grad():
            expected = walk.process.model(context)[:, -1]
        assert torch.allclose(found[model][0], expected, atol=1e-6)
    pairs = zip(found["transformer"], found["transformer:cached"], strict=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)
