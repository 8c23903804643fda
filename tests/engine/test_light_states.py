"""Large results of light operations are not held: they are made anew, bit for bit, when read."""

from __future__ import annotations

import torch
from torch import Tensor

from engine import Walk, each, patched
from engine.generation.generator import Generation
from engine.models.transformer import DecoderConfig, DecoderLM
from engine.ops import Rotary
from engine.processes import Process
from engine.states import States
from engine.text.listed import ListedTokenizer

LENGTH, HEADS = 64, 4
LIGHT = ("norm1", "norm2", "scores", "scores.masked", "weights", "rotated", "hidden")
TEXT = " ".join(f"w{i % 19}" for i in range(LENGTH))


def model() -> DecoderLM:
    torch.manual_seed(3)
    settings = {"norm": "rms", "gated": True, "rotary": Rotary(), "groups": 2}
    return DecoderLM(DecoderConfig(19, 256, 256, 2, HEADS, 512, **settings)).eval()


def generation(cls: type[Generation] = Generation) -> Generation:
    return cls(model(), ListedTokenizer("words", [f"w{i}" for i in range(19)]), TEXT, 3)


def walked(process: Process) -> Walk:
    walk = Walk(process)
    walk.seek(1)
    walk.finish_step()
    return walk


def plain() -> dict[str, Tensor]:
    made = generation()
    made.ids = made.ids[:LENGTH]
    with torch.no_grad():
        states = each(made.model.states(torch.tensor([made.ids])))
        return {state.name: state.value for state in states}


def test_they_are_not_held_and_read_the_same():
    walk, expected = walked(generation()), plain()
    held = [name for name in expected if walk.history.held(name, 1) is not None]
    let_go = [name for name in expected if name not in held]
    light = [n for n in expected if n.endswith(LIGHT) or n == "norm"]
    assert set(let_go) == {name for name in light if expected[name].nbytes >= 2**16}
    assert len(let_go) == 2 * 7 + 1  # the turned keys are of half as many heads, and held
    for name, value in expected.items():
        assert torch.equal(walk.fetch(name, 1), value), name
    whole = sum(value.nbytes for value in expected.values())
    assert sum(expected[name].nbytes for name in let_go) > whole / 3


class Patched(Generation):
    """Somebody else's attention weights: all slots that are seen alike."""

    def states(self, step: int) -> States:
        if step == 0:
            return (yield from super().states(0))
        alike = torch.ones(LENGTH, LENGTH).tril()
        alike = (alike / alike.sum(-1, keepdim=True)).expand(1, HEADS, -1, -1)
        name = "blocks.0.attention.weights"
        return (yield from patched(super().states(step), {name: alike} if step == 1 else {}))


def test_what_was_replaced_is_held():
    """It cannot be made of its sources."""
    walk = walked(generation(Patched))
    weights = walk.fetch("blocks.0.attention.weights", 1)
    assert torch.equal(weights[0, 0, 3, :5], torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]))
    assert walk.history.held("blocks.0.attention.weights", 1) is not None
    assert walk.history.held("blocks.1.attention.weights", 1) is None


def test_a_cell_of_one_is_explained():
    walk = walked(generation())
    record = walk.record("blocks.1.attention.weights", 1)
    assert record is not None
    found = record.explain((0, 2, 40, 17))
    assert found.total is not None
    assert abs(found.total - found.value) < 1e-6 * found.value


def test_a_pass_of_inference_leaves_nothing_that_training_cannot_use():
    """Which keys lie after a query is computed once; a backward pass may have to keep it."""
    made, ids = model(), torch.randint(19, (1, 37), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = made(ids).clone()
    logits = made(ids)
    assert torch.equal(logits, before)
    logits.sum().backward()
    assert all(each.grad is not None for each in made.parameters())
