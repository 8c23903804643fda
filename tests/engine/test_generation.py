"""The generator: prompt, context, choice, stop, append, against a plain loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import engine
from engine import (
    CutTokenizer,
    FixedDraw,
    Generation,
    Greedy,
    SeededDraws,
    TensorstepError,
    UsageError,
    drain,
    each,
    generate,
)
from tests.engine.test_decoding import naive
from tests.engine.test_models import NAMES
from tests.engine.worked import MODELS, build, by_name, copied, generation, prepared, trace

TOKENIZER = prepared().tokenizer
WORDS = TOKENIZER.vocabulary
BLOCKED = [0, 1, 3]
AFTER = ["logits.blocked", "probabilities", "cdf", "choice", "stop", "history"]
EACH_MODEL = pytest.mark.parametrize("name", MODELS)


def plain_continuation(model: nn.Module, ids: list[int], budget: int, draws) -> list[int]:
    """The loop everybody writes: `draws` gives a number a step, or None for the most probable."""
    ids = list(ids)
    for step in range(1, budget + 1):
        context = ([0] * 4 + ids)[-4:]
        with torch.no_grad():
            logits = model(torch.tensor([context]))[0]
        logits[BLOCKED] = -torch.inf
        shares = torch.softmax(logits, -1)
        draw = draws(step)
        ids.append(int(shares.argmax()) if draw is None else naive(shares.tolist(), draw))
        if ids[-1] == WORDS.eos_id:
            break
    return ids


def run(process: Generation) -> tuple[list[int], str]:
    """The history in the end, and why it ended."""
    reason = drain(generate(process))
    return list(process.ids), reason


@EACH_MODEL
@given(
    seed=st.integers(0, 2**32),
    budget=st.integers(1, 8),
    prompt=st.lists(st.sampled_from(["lily", "found", "a", "red", "blue"]), max_size=6),
)
def test_continuation_is_the_plain_loop_s(name: str, seed: int, budget: int, prompt: list[str]):
    if prompt and set(prompt) == {"blue"}:
        prompt.append("red")
    model = build(name)
    ids = [1, *(WORDS.stoi.get(token, 3) for token in prompt)]
    drawn, replayed = SeededDraws(seed), SeededDraws(seed)
    found, reason = run(Generation(model, TOKENIZER, " ".join(prompt), budget, drawn))
    assert found == plain_continuation(model, ids, budget, replayed.draw)
    if found[-1] == WORDS.eos_id:
        assert reason == "yes: <EOS> was chosen"
    else:
        assert len(found) == len(ids) + budget
        assert reason == f"yes: the budget of {budget} new tokens is used up"
    assert not set(found[len(ids) :]) & set(BLOCKED)


@EACH_MODEL
def test_names_in_order(name: str):
    process = generation(name)
    assert [state.name for state in each(process.states(0))] == ["prompt", "tokens", "history"]
    expected = ["context", *NAMES[name], *AFTER]
    assert [state.name for state in each(process.states(1))] == expected
    assert [state.name for state in each(process.states(2))] == expected


@EACH_MODEL
def test_values_of_a_step(name: str):
    """Context, blocked logits, shares, running sums and choice, from the model's own logits."""
    process = generation(name, prompt="Lily found a red ball", chooser=FixedDraw(0.8))
    made = trace(process, 2)
    assert made[0, "prompt"] == "Lily found a red ball"
    assert made[0, "tokens"] == ["lily", "found", "a", "red", "ball"]
    ids = [1, 8, 7, 5, 9, 6]
    assert made[0, "history"].tolist() == ids
    for step in (1, 2):
        context = made[step, "context"]
        assert context.tolist() == [ids[-4:]]
        logits = process.model(context)
        assert torch.equal(made[step, "logits"], logits.detach())
        blocked = made[step, "logits.blocked"][0]
        assert blocked[BLOCKED].tolist() == [-torch.inf] * 3
        assert torch.equal(blocked[[2, *range(4, 10)]], logits[0, [2, *range(4, 10)]].detach())
        shares = made[step, "probabilities"][0]
        assert torch.equal(shares, torch.softmax(blocked, -1))
        assert torch.equal(made[step, "cdf"][0], shares.double().cumsum(0))
        chosen = made[step, "choice"].item()
        assert chosen == naive(shares.tolist(), 0.8)
        ids.append(chosen)
        assert made[step, "history"].tolist() == ids


def test_no_graph_is_built():
    """Nothing of generation asks for gradients, and gradients stay on for whoever drives it."""
    for state in each(generate(generation("attention"))):
        assert torch.is_grad_enabled()
        if isinstance(state.value, torch.Tensor):
            assert not state.value.requires_grad


def test_eos_stops():
    """A model that can only say <EOS> says it once."""
    model = build("mlp")
    with torch.no_grad():
        model.vocab_head.bias[WORDS.eos_id] = 1e6
    found, reason = run(Generation(model, TOKENIZER, "lily", 9))
    assert found == [1, 8, 2]
    assert reason == "yes: <EOS> was chosen"


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_the_budget_stops(budget: int):
    model = build("mlp")
    with torch.no_grad():
        model.vocab_head.bias[9] = 1e6
    process = Generation(model, TOKENIZER, "lily", budget)
    stops = [copied(s.value) for s in each(generate(process)) if s.name == "stop"]
    assert process.ids == [1, 8] + [9] * budget
    assert stops == ["no"] * (budget - 1) + [f"yes: the budget of {budget} new tokens is used up"]


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_is_1_or_more(budget: int):
    with pytest.raises(UsageError, match=f"a budget of {budget} .* give 1 or more"):
        Generation(build("mlp"), TOKENIZER, "lily", budget)


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_starts_at_the_beginning(prompt: str):
    process = Generation(build("mlp"), TOKENIZER, prompt, 1)
    made = trace(process, 1)
    assert made[0, "history"].tolist() == [1]
    assert made[1, "context"].tolist() == [[0, 0, 0, 1]]


def test_an_unknown_word_among_known_ones_is_unk():
    made = trace(Generation(build("mlp"), TOKENIZER, "blue lily", 1), 1)
    assert made[0, "history"].tolist() == [1, 3, 8]
    assert made[1, "context"].tolist() == [[0, 1, 3, 8]]


@pytest.mark.parametrize("prompt", ["blue", "Purple elephants, dancing"])
def test_a_prompt_of_only_unknown_words_is_told(prompt: str):
    words = engine.Vocabulary.fit([["lily", "found"]])
    with pytest.raises(UsageError, match=f"{prompt!r} has no token of the vocabulary.*found, lily"):
        Generation(build("mlp"), CutTokenizer.words(words), prompt)


def test_seeded_draws_are_reproducible():
    """The same seed the same text; and not every seed the same."""

    def text(seed: int) -> list[int]:
        return run(generation("mlp", budget=12, chooser=SeededDraws(seed)))[0]

    assert text(3) == text(3)
    assert len({tuple(text(seed)) for seed in range(8)}) > 1


def test_the_draw_is_shown():
    process = generation("mlp", chooser=FixedDraw(0.45))
    rules = [
        state.operation.describe([]) for state in each(generate(process)) if state.name == "choice"
    ]
    assert rules == ["the first ID whose cdf reaches the draw 0.45"] * 4
    greedy = [s for s in each(generate(generation("mlp"))) if s.name == "choice"]
    assert greedy[0].operation.describe([]) == "the most probable ID (greedy)"


@EACH_MODEL
def test_a_patch_changes_the_choice(name: str):
    """Logits put in are what is blocked, softened and chosen from."""
    process = generation(name, chooser=Greedy())
    drain(process.states(0))
    wanted = torch.zeros(1, 10)
    wanted[0, 6] = 3.0
    wanted[0, 1] = 9.0  # blocked all the same
    made = by_name(engine.patched(process.states(1), {"logits": wanted}))
    assert made["choice"].item() == 6
    assert process.ids[-1] == 6
    shares = torch.softmax(wanted[0, [2, *range(4, 10)]], -1)
    assert torch.allclose(made["probabilities"][0, [2, *range(4, 10)]], shares)


def test_a_step_made_again_starts_from_its_own_history():
    process = generation("mlp", budget=3)
    first = trace(process, 3)
    again = {state.name: copied(state.value) for state in each(process.states(2))}
    assert torch.equal(again["context"], first[2, "context"])
    assert torch.equal(again["history"], first[2, "history"])


def test_a_model_that_is_broken_is_told():
    """Logits that are no numbers give no shares to choose from: one sentence, no traceback."""
    model = build("mlp")
    with torch.no_grad():
        model.vocab_head.bias.fill_(torch.nan)
    with pytest.raises(TensorstepError, match="probability"):
        run(Generation(model, TOKENIZER, "lily"))
