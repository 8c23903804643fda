"""Generation with a cache beside the uncached one: equal logits, states that say what is new and
what is reused, going back, and what both cost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import engine
from engine import FixedDraw, Generation, SeededDraws, UsageError, Walk, drain, each, generate
from engine.generation.cache import Cache
from engine.generation.costs import costs
from engine.models.transformer import DecoderConfig, DecoderLM
from engine.ops import Rotary
from engine.text.listed import ListedTokenizer
from tests.engine.worked import build, by_name, copied, prepared, same, trace

WORDS = tuple(f"w{i}" for i in range(11))
CONTEXT, PROMPT = 12, "w3 w1 w4 w1 w5"
LLAMA = {
    "norm": "rms",
    "gated": True,
    "qkv_bias": False,
    "out_bias": False,
    "feedforward_bias": False,
    "tied": False,
    "rotary": Rotary(),
}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"heads": 4, "approximate": "tanh"},
    "gpt2, grouped": {"heads": 4, "groups": 2},
    "gpt2, one group": {"heads": 4, "groups": 1},
    "llama": {**LLAMA, "heads": 4},
    "llama, grouped": {**LLAMA, "heads": 4, "groups": 2, "head_width": 6},
    "llama, one group": {**LLAMA, "heads": 4, "groups": 1, "qkv_bias": True},
}
EACH = pytest.mark.parametrize("kind", KINDS)


def build_decoder(kind: str, dtype: torch.dtype = torch.float64) -> DecoderLM:
    """Two blocks, with numbers drawn large enough for every part to matter."""
    torch.manual_seed(5)
    model = DecoderLM(DecoderConfig(len(WORDS), CONTEXT, 8, blocks=2, hidden=10, **KINDS[kind]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model.to(dtype)


def generation(
    kind: str = "gpt2, grouped",
    cache: bool = True,
    prompt: str = PROMPT,
    budget: int = 5,
    dtype: torch.dtype = torch.float64,
    chooser: Any = None,
) -> Generation:
    tokenizer = ListedTokenizer("words", WORDS)
    model = build_decoder(kind, dtype)
    return Generation(model, tokenizer, prompt, budget, chooser, cache=cache)


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


# --- the same numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@EACH
def test_logits_are_equal(kind: str, dtype: torch.dtype, tolerance: float):
    """At every step, of the token that comes next; and so are the tokens."""
    cached, anew = (
        generation(kind, cache, dtype=dtype, budget=8, chooser=SeededDraws(3))
        for cache in (True, False)
    )
    with_cache, without = trace(cached, 8), trace(anew, 8)
    assert cached.ids == anew.ids
    assert len(cached.ids) == 5 + 8
    for step in range(1, 9):
        found, expected = with_cache[step, "logits"], without[step, "logits"]
        assert expected.shape == (1, 4 + step, len(WORDS))
        assert found.shape == (1, 5 if step == 1 else 1, len(WORDS))
        assert far(found, expected[:, -found.shape[1] :]) <= tolerance
        assert far(found[:, -1], cached.model(with_cache[step, "context"])[:, -1]) <= tolerance


@given(
    ids=st.lists(st.integers(0, len(WORDS) - 1), min_size=2, max_size=CONTEXT),
    cut=st.data(),
    kind=st.sampled_from(list(KINDS)),
)
@settings(max_examples=60)
def test_any_cut_of_a_text_gives_the_same_logits(ids: list[int], cut: st.DataObject, kind: str):
    """Not only one token at a time: pieces of any length."""
    model = build_decoder(kind)
    cuts = sorted(cut.draw(st.sets(st.integers(1, len(ids) - 1), max_size=4)))
    ends = [*cuts, len(ids)]
    whole, cache, found = model(torch.tensor([ids])), Cache(), []
    for step, end in enumerate(ends, 1):
        cache.begin(step)
        found.append(drain(model.states(torch.tensor([ids[:end]]), cache)).value)
        cache.end(end)
    assert far(torch.cat(found, 1), whole) <= 1e-12


@EACH
def test_a_batch_and_padding(kind: str):
    """Left-padded rows keep their own positions."""
    torch.manual_seed(6)
    settings_of = {**KINDS[kind], "pad_id": 0}
    model = DecoderLM(DecoderConfig(11, CONTEXT, 8, blocks=2, hidden=10, **settings_of)).double()
    ids = torch.tensor([[0, 0, 3, 1, 4, 7], [5, 2, 9, 6, 1, 8]])
    cache, found = Cache(), []
    for step, end in enumerate((4, 5, 6), 1):
        cache.begin(step)
        found.append(drain(model.states(ids[:, :end], cache)).value)
        cache.end(end)
    assert far(torch.cat(found, 1), model(ids)) <= 1e-12


# --- the states ------------------------------------------------------------------------------


@EACH
def test_names_and_shapes(kind: str):
    """The cache's two states stand where the keys are compared, and grow by a position a step."""
    config = build_decoder(kind).config
    groups, width = config.groups or config.heads, config.head_width or 2
    process = generation(kind)
    made = trace(process, 3)
    plain = [state.name for state in each(generation(kind, cache=False).states(1))]
    for step in (1, 2, 3):
        names = [name for at, name in made if at == step]
        assert [name for name in names if ".cache." not in name] == plain
        for block in (0, 1):
            at = f"blocks.{block}.attention."
            before = f"{at}k.rotated" if "llama" in kind else f"{at}v"
            place = names.index(f"{at}cache.k")
            assert names[place + 1] == f"{at}cache.v"
            assert names[place + 2] == f"{at}scores.raw"
            assert names[place - 1] == before
            new, seen = (5, 5) if step == 1 else (1, 4 + step)
            for part in "kv":
                assert made[step, f"{at}cache.{part}"].shape == (1, groups, seen, width)
            assert made[step, f"{at}weights"].shape == (1, config.heads, new, seen)
            assert made[step, f"{at}q"].shape[1] == new


@EACH
def test_what_is_kept_is_what_is_computed_anew(kind: str):
    """Keys and values of all positions, as a pass over the whole context has them."""
    process = generation(kind)
    made = trace(process, 3)
    anew = by_name(process.model.states(made[3, "context"]))
    config = process.model.config
    groups = config.groups or config.heads
    for block in (0, 1):
        at = f"blocks.{block}.attention."
        keys = anew.get(f"{at}k.rotated")
        if keys is None:
            keys = anew[f"{at}k"].unflatten(-1, (groups, -1)).transpose(1, 2)
        values = anew[f"{at}v"].unflatten(-1, (groups, -1)).transpose(1, 2)
        assert far(made[3, f"{at}cache.k"], keys) <= 1e-12
        assert far(made[3, f"{at}cache.v"], values) <= 1e-12


@EACH
def test_explanations_of_the_cache(kind: str):
    """Each cell is one cell: reused of the step before, or new of this one."""
    walk = Walk(generation(kind))
    walk.seek(3)
    walk.finish_step()
    source = "k.rotated" if "llama" in kind else "k"
    for block, part in itertools.product((0, 1), "kv"):
        at = f"blocks.{block}.attention."
        for step, known in ((1, 0), (2, 5), (3, 6)):
            record = walk.record(f"{at}cache.{part}", step)
            formula = f"{at}cache.{part} of {known} positions, then the new" if known else "all new"
            assert record.formula == formula
            for cell in itertools.product(*map(range, record.shape)):
                found = record.explain(cell)
                (term,) = found.terms
                assert found.total == found.value == term.cited.value
                bytes_kept = record.value.numel() * 8
                assert found.note == (
                    f"positions reused: {known}, new: {record.shape[2] - known};"
                    f" kept for the next step: {bytes_kept:,} bytes"
                )
                if cell[2] < known:
                    assert term.note == "reused"
                    cited = (term.cited.source, term.cited.step, term.cited.index)
                    assert cited == (f"{at}cache.{part}", step - 1, cell)
                else:
                    assert term.note == "new in this step"
                    name = source if part == "k" else "v"
                    assert (term.cited.source, term.cited.step) == (f"{at}{name}", step)
                assert (
                    found.value == walk.fetch(term.cited.source, term.cited.step)[term.cited.index]
                )


@EACH
def test_every_cell_of_a_cached_step_explains_itself(kind: str):
    walk = Walk(generation(kind))
    walk.seek(2)
    walk.finish_step()
    records = [record for record in walk.records(2) if record.role == "activation"]
    assert len(records) > 30
    for record in records:
        for cell in itertools.product(*map(range, record.shape)):
            found = record.explain(cell)
            own = {(c.source, c.step) for t in found.terms for c in (t.cited, *t.times)}
            assert (record.name, 2) not in own
            close = abs(found.total - found.value) <= 1e-6 * found.size + 1e-15
            assert close or found.total == found.value, (record.name, cell)


# --- back and forth --------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [2**28, 2_000])
@EACH
def test_going_back(kind: str, budget: int):
    """Every value of every step, read again in any order, is bit for bit what it was: held, or
    (a small budget) made again from a snapshot."""
    expected = trace(generation(kind, chooser=FixedDraw(0.4)), 5)
    walk = Walk(generation(kind, chooser=FixedDraw(0.4)), budget)
    walk.seek(5)
    walk.finish_step()
    for step in (2, 5, 1, 4, 3):
        names = [name for at, name in expected if at == step]
        assert [record.name for record in walk.records(step)] == names
        for name in names:
            assert same(walk.fetch(name, step), expected[step, name]), (step, name)
    walk.seek(3, "logits")
    assert same(walk.current.value, expected[3, "logits"])


def test_a_walk_goes_on_after_it_went_back():
    """Reading earlier steps leaves the generation where it is."""
    plain = generation()
    drain(generate(plain))
    walk = Walk(generation(), 2_000)
    for step in range(1, 6):
        walk.seek(step, "choice")
        for earlier in range(1, step):
            walk.fetch("blocks.1.attention.cache.k", earlier)
            walk.fetch("logits", earlier)
    walk.finish_step()
    assert walk.process.ids == plain.ids


@EACH
def test_a_snapshot_is_gone_on_from(kind: str):
    """On another generation: the same states from there, bit for bit."""
    process = generation(kind)
    expected = trace(process, 2)
    snapshot = process.snapshot(2)
    kept = {name: copied(value) for name, value in snapshot.tensors.items()}
    for step in (3, 4):
        for state in each(process.states(step)):
            expected[step, state.name] = copied(state.value)
    assert all(same(snapshot.tensors[name], value) for name, value in kept.items())
    other = generation(kind)
    other.restore(snapshot)
    for step in (3, 4):
        for state in each(other.states(step)):
            assert same(state.value, expected[step, state.name]), (step, state.name)
    assert other.ids == process.ids


def test_a_snapshot_of_the_beginning_has_an_empty_cache():
    process = generation()
    drain(process.states(0))
    start = process.snapshot(0)
    first = by_name(process.states(1))
    process.restore(start)
    assert process.cache is not None
    assert (process.cache.length, process.cache.nbytes) == (0, 0)
    again = by_name(process.states(1))
    assert all(same(again[name], value) for name, value in first.items())


def test_a_replica_is_apart():
    """Going on with one leaves the other where it was."""
    process = generation()
    trace(process, 2)
    twin = process.replica()
    expected = by_name(twin.states(3))
    drain(twin.states(4))
    found = by_name(process.states(3))
    assert all(same(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_made_again_starts_from_its_own_cache(step: int):
    """As it starts from its own history."""
    process = generation(budget=4)
    first = trace(process, 4)
    again = {state.name: copied(state.value) for state in each(process.states(step))}
    for name, value in again.items():
        assert same(value, first[step, name]), name


def test_a_patched_key_is_what_is_kept():
    """What is put in at one step is reused in the next."""
    process = generation()
    drain(process.states(0))
    name = "blocks.0.attention.cache.k"
    plain = by_name(generation().states(1))[name]
    wanted = plain.clone()
    wanted[0, 0, 2, 1] = 9.0
    drain(engine.patched(process.states(1), {name: wanted}))
    made = by_name(process.states(2))
    assert torch.equal(made[name][:, :, :5], wanted)


def test_a_patched_history_is_what_is_gone_on_with():
    """Other IDs have other keys: the logits of the next step are those of the whole new context."""
    process = generation()
    drain(process.states(0))
    wanted = torch.tensor([3, 7, 4, 1, 5, 2])
    drain(engine.patched(process.states(1), {"history": wanted}))
    made = by_name(process.states(2))
    assert made["context"].tolist() == [wanted.tolist()]
    expected = process.model(wanted[None])[:, -1]
    assert far(made["logits"][:, -1], expected) <= 1e-12


# --- where it ends ---------------------------------------------------------------------------


def test_a_prompt_longer_than_the_context():
    prompt = " ".join(["w2"] * (CONTEXT + 1))
    with pytest.raises(UsageError) as told:
        generation(prompt=prompt)
    assert str(told.value) == (
        "the prompt has 13 tokens, the model's context 12: shorten it, or leave the cache out"
    )
    assert len(generation(cache=False, prompt=prompt).ids) == CONTEXT + 1


@pytest.mark.parametrize("length", [5, 11, 12])
def test_generation_ends_when_the_context_is_full(length: int):
    """Every position has been computed, and the last token is chosen from the last of them."""
    process = generation(prompt=" ".join(WORDS[i % 11] for i in range(length)), budget=50)
    reason = drain(generate(process))
    assert reason == f"yes: the context of {CONTEXT} tokens is full"
    assert len(process.ids) == CONTEXT + 1
    assert process.cache is not None
    assert process.cache.length == CONTEXT


def test_a_budget_that_just_fits():
    process = generation(budget=CONTEXT - 5 + 1)
    drain(generate(process))
    assert len(process.ids) == CONTEXT + 1
    assert process.cache is not None
    assert process.cache.length == CONTEXT


def test_without_a_cache_the_context_moves_on():
    """The last 12 IDs, from position 0 again."""
    process = generation(cache=False, budget=10)
    made = trace(process, 10)
    assert len(process.ids) == 15
    assert made[10, "context"].tolist() == [process.ids[2:14]]
    assert made[7, "context"].shape == (1, 11)
    assert made[8, "context"].shape == made[9, "context"].shape == (1, CONTEXT)
    expected = process.model(torch.tensor([process.ids[2:14]])).detach()
    assert torch.equal(made[10, "logits"], expected)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_a_window_that_moves_keeps_nothing(name: str):
    with pytest.raises(UsageError) as told:
        Generation(build(name), prepared().tokenizer, "lily", cache=True)
    assert str(told.value) == (
        "this model sees a window that moves on, so that nothing can be kept: leave the cache out"
    )


# --- what it costs ---------------------------------------------------------------------------


class Multiplications(TorchFunctionMode):
    """Counts the multiplications of every product of matrices that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("linear", "matmul", "__matmul__"):
            self.count += made.numel() * args[0].shape[-1]
        return made


@pytest.mark.parametrize(("length", "made"), [(1, 1), (5, 1), (5, 4), (1, 12), (12, 1)])
@EACH
def test_multiplications_are_those_that_are_made(kind: str, length: int, made: int):
    """Counted call by call, and by torch's own counter of operations (a product is two of them)."""
    found = costs(build_decoder(kind).config, length, made, 8)
    for cache in (True, False):
        prompt = " ".join(["w4"] * length)
        process = generation(kind, cache, prompt, budget=made)
        with Multiplications() as mine, FlopCounterMode(display=False) as peer:
            drain(generate(process))
        assert len(process.ids) == length + made
        told = found["with_cache" if cache else "without_cache"]
        assert told == mine.count == peer.get_total_flops() // 2


@EACH
def test_multiplications_of_a_context_that_moves_on(kind: str):
    """Without a cache no step computes more than the context."""
    process = generation(kind, cache=False, budget=12)
    with Multiplications() as mine:
        drain(generate(process))
    assert len(process.ids) == 17
    assert costs(process.model.config, 5, 12, 8)["without_cache"] == mine.count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@EACH
def test_bytes_of_the_cache_are_those_it_has(kind: str, dtype: torch.dtype):
    process = generation(kind, dtype=dtype, budget=4)
    drain(generate(process))
    assert process.cache is not None
    size = dtype.itemsize
    assert costs(process.model.config, 5, 4, size)["cache_bytes"] == process.cache.nbytes
    assert process.cache.nbytes == sum(t.numel() * size for t in process.cache.tensors.values())
    assert len(process.cache.tensors) == 4


def test_a_cache_saves_most_of_the_work():
    found = costs(build_decoder("gpt2").config, 2, 10, 8)
    assert found["with_cache"] * 3 < found["without_cache"]
