"""The logit lens, the lengths of the stream, and what each part puts into a logit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import engine
from engine import FixedRows, Generation, Training, UsageError, Walk
from engine.generation.example import Example
from engine.lens import Lens
from engine.models.transformer import DecoderConfig, DecoderLM
from engine.ops import Rotary
from engine.text.listed import ListedTokenizer
from tests.engine.worked import training as worked_training

VOCAB, WIDTH, POSITIONS, HEADS = 7, 6, 4, 3
IDS = torch.tensor([[3, 1, 5, 3], [2, 0, 2, 6]])
TARGETS = torch.tensor([[1, 5, 3, 2], [0, 2, 6, 1]])
RMS = {
    "norm": "rms",
    "gated": True,
    "qkv_bias": False,
    "out_bias": False,
    "feedforward_bias": False,
    "rotary": Rotary(),
}
KINDS: dict[str, dict[str, Any]] = {
    "layer norm, tied": {},
    "layer norm, all biases": {"tied": False, "head_bias": True},
    "layer norm, no bias": {"norm_bias": False, "out_bias": False, "tied": False},
    "rms norm, tied": RMS,
    "rms norm, grouped": {**RMS, "tied": False, "groups": 1, "head_bias": True},
}
EACH = pytest.mark.parametrize("kind", KINDS)


def build(kind: str, dtype: torch.dtype = torch.float32) -> DecoderLM:
    """Two blocks; numbers large enough, scales and shifts far enough from 1 and 0, to matter."""
    torch.manual_seed(4)
    settings = {"heads": HEADS, "hidden": 5, **KINDS[kind]}
    model = DecoderLM(DecoderConfig(VOCAB, POSITIONS, WIDTH, blocks=2, **settings)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.4)
    return model


def walked(kind: str, steps: int = 1, dtype: torch.dtype = torch.float32) -> Walk:
    data = engine.TrainingData.of(IDS, TARGETS)
    walk = Walk(Training(build(kind, dtype), data, FixedRows([0, 1])))
    walk.seek(steps, "logits")
    return walk


def trained(kind: str, steps: int) -> DecoderLM:
    """The same model after so many steps of a loop without a walk."""
    model = build(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(IDS).flatten(0, 1), TARGETS.flatten()).backward()
        optimizer.step()
    return model


def streams_of(model: DecoderLM) -> list[Tensor]:
    """The embedding, and what each block leaves: by hooks on nothing, from the states alone."""
    with torch.no_grad():
        made = {state.name: state.value for state in engine.each(model.states(IDS))}
    return [made["embedding"], made["blocks.0.residual2"], made["blocks.1.residual2"]]


def by_hand(model: DecoderLM, stream: Tensor) -> Tensor:
    """Final norm and head in float64, written out."""
    x = stream.detach().double()
    norm, head = model.norm, model.vocab_head
    if model.config.norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
    x = x * norm.weight.detach().double()
    if getattr(norm, "bias", None) is not None:
        x = x + norm.bias.detach().double()
    logits = x @ head.weight.detach().double().T
    return logits if head.bias is None else logits + head.bias.detach().double()


# --- the lens --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
@EACH
def test_after_the_last_block_they_are_the_logits(kind: str, step: int):
    """Bit for bit, in a step whose parameters have been changed since, too."""
    walk = walked(kind, 3)
    lens = Lens(walk, step)
    assert lens.blocks == 2
    assert torch.equal(lens.logits(2), walk.fetch("logits", step))


@pytest.mark.parametrize("step", [1, 3])
@EACH
def test_after_every_block(kind: str, step: int):
    """Final norm and head of the stream as it is there, with the parameters of that step."""
    lens = Lens(walked(kind, 4), step)
    model = trained(kind, step - 1)
    for after, stream in enumerate(streams_of(model)):
        assert torch.allclose(lens.stream(after), stream, atol=1e-6)
        found = lens.logits(after)
        assert found.shape == (2, POSITIONS, VOCAB)
        assert torch.allclose(found.double(), by_hand(model, lens.stream(after)), atol=2e-6)
        assert torch.allclose(found[:, -1:], lens.logits(after, slice(-1, None)), atol=1e-6)
    assert not torch.allclose(lens.logits(0), lens.logits(1), atol=1e-3)


@EACH
def test_lengths_of_the_stream(kind: str):
    lens = Lens(walked(kind), 1)
    norms = lens.norms()
    assert norms.shape == (3, 2, POSITIONS)
    for after, stream in enumerate(streams_of(build(kind))):
        for b, t in itertools.product(range(2), range(POSITIONS)):
            length = math.sqrt(sum(x * x for x in stream[b, t].tolist()))
            assert norms[after, b, t].item() == pytest.approx(length, rel=1e-6)


def test_reading_changes_nothing():
    """The walk stands where it stood, and goes on as if nobody had looked."""
    walk, other = walked("rms norm, tied", 2), walked("rms norm, tied", 2)
    lens = Lens(walk, 1)
    lens.logits(1), lens.norms(), lens.written(0, 0, 0)
    assert walk.cursor == other.cursor
    walk.seek(4)
    other.seek(4)
    assert walk.losses == other.losses


# --- what each part puts into a logit --------------------------------------------------------


def parts_of(kind: str) -> list[str]:
    """The parts, in the order in which they are written."""
    config = build(kind).config
    parts = ["embedding"]
    for i in range(2):
        at = f"blocks.{i}."
        parts += [f"{at}attention head {head}" for head in range(HEADS)]
        parts += [f"{at}attention bias"] if config.out_bias else []
        parts += [f"{at}feedforward"]
    parts += ["norm shift"] if config.norm == "layer" and config.norm_bias else []
    return [*parts, *(["head bias"] if config.head_bias else [])]


@pytest.mark.parametrize("step", [1, 3])
@EACH
def test_they_add_up_to_every_logit(kind: str, step: int):
    """For every example, position and token, within 1e-6 of the parts' sizes."""
    walk = walked(kind, 4)
    lens, logits = Lens(walk, step), walk.fetch("logits", step)
    for b, t, token in itertools.product(range(2), range(POSITIONS), range(VOCAB)):
        found = lens.written(b, t, token)
        assert [part.part for part in found] == parts_of(kind)
        whole = math.fsum(part.share for part in found)
        size = math.fsum(abs(part.share) for part in found)
        assert abs(whole - logits[b, t, token].item()) <= 1e-6 * size, (b, t, token)


@EACH
def test_in_float64_they_add_up_closer(kind: str):
    walk = walked(kind, dtype=torch.float64)
    found = Lens(walk, 1).written(1, 2, 5)
    logit = walk.fetch("logits", 1)[1, 2, 5].item()
    assert math.fsum(part.share for part in found) == pytest.approx(logit, abs=1e-12)


@EACH
def test_each_part_is_what_the_logit_loses_without_it(kind: str):
    """With the final norm's divisor kept, and one part taken out of the stream."""
    walk = walked(kind, dtype=torch.float64)
    model = build(kind, torch.float64)
    stream = streams_of(model)[-1]
    made = {name: walk.fetch(name, 1) for name in messages()}
    b, t, token = 0, 3, 4
    shares = {part.part: part.share for part in Lens(walk, 1).written(b, t, token)}
    row = stream[b, t]
    kept = row - row.mean() if model.config.norm == "layer" else row
    divisor = (kept.square().mean() + model.config.norm_eps).sqrt()
    for name, part in pieces(model, made, b, t).items():
        if model.config.norm == "layer":
            part = part - part.mean()
        scaled = part / divisor * model.norm.weight.detach()
        expected = float(scaled @ model.vocab_head.weight.detach()[token])
        assert shares[name] == pytest.approx(expected, abs=1e-12), name


def messages() -> list[str]:
    of_blocks = [f"blocks.{i}.{n}" for i in (0, 1) for n in ("attention.message",)]
    return ["embedding", *of_blocks, *(f"blocks.{i}.feedforward.output" for i in (0, 1))]


def pieces(model: DecoderLM, made: dict[str, Tensor], b: int, t: int) -> dict[str, Tensor]:
    """What is added to one row of the stream, by part: each head through its columns of W_O."""
    found = {"embedding": made["embedding"][b, t].detach()}
    for i, block in enumerate(model.blocks):
        layer = block.attention.W_O
        message = made[f"blocks.{i}.attention.message"].detach()
        for head in range(HEADS):
            alone = torch.zeros_like(message[b, :, t])
            alone[head] = message[b, head, t]
            found[f"blocks.{i}.attention head {head}"] = layer.weight.detach() @ alone.flatten()
        if layer.bias is not None:
            found[f"blocks.{i}.attention bias"] = layer.bias.detach()
        output = made[f"blocks.{i}.feedforward.output"]
        found[f"blocks.{i}.feedforward"] = output[b, t].detach()
    return found


def test_a_head_of_a_generation_with_a_cache():
    """Only the new position is there; what is written adds up to its logit all the same."""
    tokenizer = ListedTokenizer("words", tuple("abcdefg"))
    process = Generation(build("rms norm, grouped"), tokenizer, "d b", 2, cache=True)
    walk = Walk(process)
    walk.seek(2)
    walk.finish_step()
    lens, logits = Lens(walk, 2), walk.fetch("logits", 2)
    assert torch.equal(lens.logits(2), logits)
    assert logits.shape == (1, 1, VOCAB)
    for token in range(VOCAB):
        found = lens.written(0, 0, token)
        size = math.fsum(abs(part.share) for part in found)
        whole = math.fsum(part.share for part in found)
        assert abs(whole - logits[0, 0, token].item()) <= 1e-6 * size


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_models_without_a_stream(name: str):
    walk = Walk(worked_training(name))
    walk.seek(1, "logits")
    with pytest.raises(UsageError) as told:
        Lens(walk, 1)
    assert str(told.value) == "the lens reads a stream of blocks: open a transformer"


def test_an_example_has_no_head():
    walk = Walk(Example("money-bank-4"))
    walk.seek(1)
    walk.finish_step()
    with pytest.raises(UsageError, match="open a transformer"):
        Lens(walk, 1)


def test_a_step_that_has_no_logits_yet():
    walk = walked("layer norm, tied")
    walk.seek(2, "blocks.0.residual1")
    with pytest.raises(UsageError, match="step 0 has no logits yet: go on to them first"):
        Lens(walk, 0)
    here = walk.cursor
    logits = Lens(walk, 2).logits(0)  # the step is made as far as it has to be
    assert logits.shape == walk.fetch("logits", 2).shape
    assert walk.cursor == here
    with pytest.raises(UsageError, match="there is no step 3 yet"):
        Lens(walk, 3)


@EACH
def test_of_short_numbers_the_rounding_is_a_part(kind: str):
    """Parts in bfloat16 add up to the logit with what rounding has put in, which is little."""
    walk = walked(kind, dtype=torch.bfloat16)
    lens, logits = Lens(walk, 1), walk.fetch("logits", 1)
    for example, position, token in ((0, 3, 2), (1, 0, 5)):
        parts = lens.written(example, position, token)
        logit = logits[example, position, token].item()
        assert parts[-1].part == "rounding to bfloat16"
        assert math.fsum(part.share for part in parts) == pytest.approx(logit, abs=1e-12)
        size = sum(abs(part.share) for part in parts)
        assert abs(parts[-1].share) < 4 * torch.finfo(torch.bfloat16).eps * size
