"""Readings of word models: neighbours, a word in two sentences, attention, one token replaced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import engine
from engine import TensorstepError, UsageError
from engine.experiments.learned import (
    Attention,
    Contexts,
    Intervention,
    Neighbour,
    attention_of,
    compared,
    in_two_contexts,
    intervene,
    neighbours,
)
from engine.experiments.words import cosine, embedding_of
from engine.models import BigramLM, DecoderConfig, DecoderLM, StatesModel
from engine.text.listed import ListedTokenizer
from engine.text.loading import fit_cut

SENTENCES = ["The cat sat by the river bank.", "A dog ran to the bank with money."]
TOKENIZER = fit_cut("words", SENTENCES)
ITOS = TOKENIZER.itos
C, W, D = len(TOKENIZER), 6, 4
FIRST, SECOND = "by the river bank", "a dog ran to the bank with money"
MODELS: dict[str, Callable[[], StatesModel]] = {
    "mlp": lambda: engine.FixedWindowMLP(C, W, D, 8),
    "attention": lambda: engine.CausalAttentionLM(C, W, D, 3, 2, 8),
    "multihead": lambda: engine.models.MultiHeadAttentionLM(C, W, D, 8, 2),
    "transformer": lambda: DecoderLM(DecoderConfig(C, 16, D, 2, 2, 8)),
    "bigram": lambda: BigramLM(C, W),
}
EACH = pytest.mark.parametrize("kind", MODELS)


def build(kind: str) -> StatesModel:
    torch.manual_seed(3)
    return MODELS[kind]()


def window(*tokens: str) -> Tensor:
    """The IDs of a full window, written out."""
    assert len(tokens) == W
    return torch.tensor([[ITOS.index(token) for token in tokens]])


def ids_of(*tokens: str) -> Tensor:
    return torch.tensor([[ITOS.index(token) for token in tokens]])


def states_of(model: StatesModel, X: Tensor) -> dict[str, Tensor]:
    return {state.name: state.value.detach() for state in engine.each(model.states(X))}


# --- neighbours ------------------------------------------------------------------------------

small = st.integers(-3, 3)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(small, min_size=width, max_size=width), min_size=5, max_size=12)
)


def naive(table: list[list[int]], names: list[str], word: int, count: int, among: Any) -> Any:
    """The rule, read aloud."""
    own = table[word]
    found = []
    for i, row in enumerate(table):
        special = names[i] in ("<PAD>", "<BOS>", "<EOS>", "<UNK>")
        if i == word or special or not any(row) or not any(own):
            continue
        if among is not None and i not in among:
            continue
        dot = sum(a * b for a, b in zip(own, row, strict=True))
        sizes = sum(a * a for a in own) * sum(b * b for b in row)
        found.append((-dot / math.sqrt(sizes), i))
    return [(names[i], i, -minus) for minus, i in sorted(found)[:count]]


@given(tables, st.data())
def test_neighbours_are_those_of_a_plain_loop(table: list[list[int]], data: st.DataObject):
    """Small whole numbers, so that many are equally near."""
    names = ["<PAD>", "<BOS>", "<EOS>", "<UNK>", *(f"w{i}" for i in range(4, len(table)))]
    word = data.draw(st.integers(0, len(table) - 1))
    count = data.draw(st.integers(1, 9))
    among = data.draw(st.none() | st.sets(st.integers(0, len(table))))
    found = neighbours(torch.tensor(table).float(), names, word, count, among)
    assert [(n.token, n.id, n.cosine) for n in found] == naive(table, names, word, count, among)


def test_neighbours_by_hand():
    table = torch.tensor([[0.0, 0], [3, 4], [4, 3], [-3, -4], [6, 8], [0, 0]])
    names = ["<PAD>", "a", "b", "c", "d", "e"]
    assert neighbours(table, names, 1) == [
        Neighbour("d", 4, 1.0),
        Neighbour("b", 2, 0.96),
        Neighbour("c", 3, -1.0),
    ]
    assert neighbours(table, names, 1, among={0, 3, 5}) == [Neighbour("c", 3, -1.0)]
    assert neighbours(table, names, 0) == neighbours(table, names, 5) == []


def test_of_many_equals_the_lowest_ids_come_first():
    table = torch.tensor([[1.0, 2], [2, 1]]).repeat(1000, 1)
    names = [f"w{i}" for i in range(2000)]
    found = neighbours(table, names, 1000, 1500)
    assert [n.id for n in found] == [*range(0, 1000, 2), *range(1002, 2000, 2), *range(1, 1002, 2)]


def test_rows_that_are_not_finite_are_no_neighbours():
    table = torch.tensor([[1.0, 0], [math.nan, 1], [math.inf, 1], [1, 1]])
    assert [n.token for n in neighbours(table, list("abcd"), 0)] == ["d"]
    assert neighbours(table, list("abcd"), 1) == []


@pytest.mark.parametrize(
    ("word", "count", "told"), [(4, 8, "ID 4 is not"), (-1, 8, "ID -1"), (0, 0, "count of 1")]
)
def test_wrong_neighbours_are_told(word: int, count: int, told: str):
    with pytest.raises(UsageError, match=told):
        neighbours(torch.ones(4, 2), list("abcd"), word, count)


# --- a word in two sentences -----------------------------------------------------------------

WINDOWS = (
    window("<PAD>", "<BOS>", "by", "the", "river", "bank"),
    window("a", "dog", "ran", "to", "the", "bank"),
)
WHOLE = (
    ids_of("<BOS>", "by", "the", "river", "bank"),
    ids_of("<BOS>", "a", "dog", "ran", "to", "the", "bank", "with", "money"),
)


def stands_for_bank(kind: str, model: StatesModel) -> list[Tensor]:
    """The state of "bank" in both sentences, from the states of the pass over each."""
    if kind == "transformer":  # at its position of the whole sentence: it does not look ahead
        whole = zip(WHOLE, (4, 6), strict=True)
        return [states_of(model, X)["blocks.1.residual2"][0, at] for X, at in whole]
    name = {"mlp": "hidden", "bigram": "logits"}.get(kind, "residual")
    return [states_of(model, X)[name].flatten() for X in WINDOWS]


@EACH
def test_a_word_in_two_contexts(kind: str):
    model = build(kind)
    found = in_two_contexts(model, TOKENIZER, FIRST, SECOND, "Bank")
    first, second = stands_for_bank(kind, model)
    assert found.first.dtype == torch.float64
    assert torch.allclose(found.first, first.double(), atol=1e-6)
    assert torch.allclose(found.second, second.double(), atol=1e-6)
    plain = torch.nn.functional.cosine_similarity(first.double(), second.double(), dim=0)
    assert found.cosine == pytest.approx(plain.item(), abs=1e-6)
    assert found.plain == pytest.approx(1, abs=1e-12)
    same = in_two_contexts(model, TOKENIZER, FIRST, FIRST, "bank")
    assert same.cosine == pytest.approx(1, abs=1e-12)
    if kind == "bigram":  # all it knows of a word is the word
        assert found.cosine == pytest.approx(1, abs=1e-12)
    else:
        assert found.cosine < 0.999


def test_the_last_of_several_is_meant():
    model = build("attention")
    found = in_two_contexts(model, TOKENIZER, "the cat", "the cat sat by the", "the")
    X = window("<BOS>", "the", "cat", "sat", "by", "the")
    assert torch.allclose(found.second.float(), states_of(model, X)["residual"].flatten())
    assert found.cosine != found.plain


@EACH
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("cat", "'cat' is not in 'by the river bank'"),
        ("zebra", "'zebra' is not in the vocabulary"),
        ("the bank", "'the bank' is 2 tokens"),
        ("", "'' is 0 tokens"),
    ],
)
def test_a_word_that_is_not_there_is_told(kind: str, word: str, told: str):
    with pytest.raises(TensorstepError, match=told):
        in_two_contexts(build(kind), TOKENIZER, FIRST, SECOND, word)


def test_a_zero_vector_has_no_cosine():
    assert cosine(torch.zeros(3), torch.ones(3)) is None
    model = build("mlp")
    with torch.no_grad():
        model.hidden_layer.bias.fill_(-100)  # every hidden unit is off
    found = in_two_contexts(model, TOKENIZER, FIRST, SECOND, "bank")
    assert found.cosine is None
    assert compared({"off": found})[1].split() == ["off", "hidden", "none", "1.0000"]


def test_another_model_has_no_state_of_a_word():
    with pytest.raises(UsageError, match="a StatesModel has no state of a word"):
        in_two_contexts(StatesModel(), TOKENIZER, FIRST, SECOND, "bank")


# --- attention -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["attention", "multihead"])
def test_attention_of_a_window(kind: str):
    """One query, the last slot; the weights are the state's, and <PAD> weighs 0."""
    model = build(kind)
    heads = 2 if kind == "multihead" else 1
    weights = states_of(model, WINDOWS[0])["weights"].view(heads, W)
    tokens = ["<PAD>", "<BOS>", "by", "the", "river", "bank"]
    found = attention_of(model, TOKENIZER, FIRST)
    assert found == [
        Attention(0, head, "bank", list(zip(tokens, weights[head].tolist(), strict=True)), W - 1)
        for head in range(heads)
    ]
    for each in found:
        assert each.keys[0] == ("<PAD>", 0.0)
        assert sum(weight for _, weight in each.keys) == pytest.approx(1, abs=1e-6)


def test_attention_of_a_decoder():
    """Every position asks, of itself and what is before it."""
    model = build("transformer")
    made = states_of(model, WHOLE[0])
    tokens = ["<BOS>", "by", "the", "river", "bank"]
    assert attention_of(model, TOKENIZER, FIRST) == [
        Attention(
            block,
            head,
            tokens[t],
            [
                (tokens[s], made[f"blocks.{block}.attention.weights"][0, head, t, s].item())
                for s in range(t + 1)
            ],
            t,
        )
        for block in range(2)
        for head in range(2)
        for t in range(5)
    ]


def test_of_a_long_sentence_the_last_tokens_are_read():
    found = attention_of(build("attention"), TOKENIZER, SECOND)
    assert [token for token, _ in found[0].keys] == ["ran", "to", "the", "bank", "with", "money"]


@pytest.mark.parametrize("kind", ["mlp", "bigram"])
def test_no_attention_is_told(kind: str):
    with pytest.raises(UsageError, match="has no attention"):
        attention_of(build(kind), TOKENIZER, FIRST)


def test_nothing_to_read_is_told():
    listed = ListedTokenizer("listed", ["a", "b"])
    with pytest.raises(UsageError, match="has no token"):
        attention_of(build("transformer"), listed, " ")
    with pytest.raises(UsageError, match="windows need <PAD>"):
        attention_of(build("attention"), listed, "a b")


# --- one token replaced ----------------------------------------------------------------------


def plain_kl(p: list[float], q: list[float]) -> float:
    """From logits, with nothing but math."""
    zp, zq = (math.fsum(math.exp(x) for x in row) for row in (p, q))
    terms = [
        math.exp(a) / zp * ((a - math.log(zp)) - (b - math.log(zq)))
        for a, b in zip(p, q, strict=True)
    ]
    return math.fsum(terms)


REPLACED = (
    window("<PAD>", "<BOS>", "by", "the", "river", "cat"),
    ids_of("<BOS>", "by", "the", "river", "cat"),
)


@EACH
def test_intervention(kind: str):
    model = build(kind)
    before, after = WINDOWS[0], REPLACED[0]
    if kind == "transformer":
        before, after = WHOLE[0], REPLACED[1]
    p, q = (model(X).detach().view(-1, C)[-1] for X in (before, after))
    found = intervene(model, TOKENIZER, FIRST, 3, "cat")
    assert (found.was, found.instead, found.is_seen) == ("bank", "cat", True)
    assert found.divergence == pytest.approx(plain_kl(p.tolist(), q.tolist()), abs=1e-9)
    assert found.divergence > 1e-4
    for logits, likely in ((p, found.before), (q, found.after)):
        shares = logits.double().softmax(-1)
        best = sorted(range(C), key=lambda i: (-shares[i].item(), i))[:5]
        assert [each.id for each in likely] == best
        assert [each.token for each in likely] == [ITOS[i] for i in best]
        assert [each.probability for each in likely] == pytest.approx(shares[best].tolist())
    assert {c.id for c in found.changes} == {each.id for each in (*found.before, *found.after)}
    sizes = [abs(c.after - c.before) for c in found.changes]
    assert sizes == sorted(sizes, reverse=True)
    for change in found.changes:
        assert change.before == pytest.approx(p.double().softmax(-1)[change.id].item())
        assert change.after == pytest.approx(q.double().softmax(-1)[change.id].item())


@EACH
def test_the_same_token_changes_nothing(kind: str):
    found = intervene(build(kind), TOKENIZER, FIRST, 2, "river")
    assert found.divergence == 0
    assert found.before == found.after


def test_a_token_that_is_not_read_changes_nothing():
    """A window of 6 tokens ends with the last of 8; a bigram reads one token."""
    for kind, position in (("attention", 1), ("mlp", 1), ("bigram", 6)):
        found = intervene(build(kind), TOKENIZER, SECOND, position, "cat")
        assert not found.is_seen
        assert found.divergence == 0
        assert intervene(build(kind), TOKENIZER, SECOND, position + 1, "cat").is_seen


def test_impossible_tokens_do_not_spoil_the_divergence():
    model = build("bigram")
    with torch.no_grad():
        model.table.weight[:, 0] = -math.inf
        model.table.weight[ITOS.index("cat"), 4] = -math.inf
    found = intervene(model, TOKENIZER, FIRST, 3, "cat")
    assert found.divergence == math.inf  # what was possible no longer is
    back = intervene(model, TOKENIZER, "by the river cat", 3, "bank")
    assert 0 < back.divergence < math.inf


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_that_is_not_there_is_told(position: int):
    with pytest.raises(UsageError, match=f"has no token {position}: it has 4"):
        intervene(build("mlp"), TOKENIZER, FIRST, position, "cat")


def test_a_token_that_is_not_known_is_told():
    with pytest.raises(TensorstepError, match="'zebra' is not in the vocabulary"):
        intervene(build("mlp"), TOKENIZER, FIRST, 0, "zebra")


# --- all of them -----------------------------------------------------------------------------


@EACH
def test_reading_changes_nothing(kind: str):
    model = build(kind).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    in_two_contexts(model, TOKENIZER, FIRST, SECOND, "bank")
    intervene(model, TOKENIZER, FIRST, 1, "a")
    neighbours(embedding_of(model), ITOS, 5)
    if kind not in ("mlp", "bigram"):
        attention_of(model, TOKENIZER, FIRST)
    assert model.training
    assert torch.equal(torch.get_rng_state(), drawn)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
        assert parameter.requires_grad


# --- side by side ----------------------------------------------------------------------------


def test_neighbours_side_by_side():
    before = [Neighbour("dog", 5, 0.25), Neighbour("\x1b[31m[b]", 6, -0.5)]
    assert compared({"before": before, "after": [Neighbour("cat", 7, 0.875)], "PAD": []}) == [
        "   before              after       PAD",
        "1  +0.250 dog          +0.875 cat",
        "2  -0.500 \\x1b[31m[b]",
    ]


def test_contexts_side_by_side():
    found = {
        name: Contexts("bank", "residual", torch.ones(1), torch.ones(1), cosine, 1.0)
        for name, cosine in (("before", 0.98765), ("after", -0.25))
    }
    assert compared(found) == [
        "model   state     cosine in the two sentences  of the embedding",
        "before  residual  0.9877                       1.0000",
        "after   residual  -0.2500                      1.0000",
    ]


def test_attention_side_by_side():
    """From the last position the four that weigh the most, and where they are; padding, which
    weighs 0, is not told."""
    keys = [("<PAD>", 0.0), ("a", 0.125), ("b", 0.25), ("c", 0.25), ("d", 0.3125), ("e", 0.0625)]
    one = [Attention(0, 0, "d", keys[:5], 4), Attention(0, 0, "e", keys, 5)]
    more = [Attention(1, 1, "e", [("<PAD>", 0.0), ("a", 1.0)], 5)]
    assert compared({"one head": one, "two heads": more}) == [
        "                   one head     two heads",
        "block 0 head 0  1  0.312  -1 d",
        "block 0 head 0  2  0.250  -3 b",
        "block 0 head 0  3  0.250  -2 c",
        "block 0 head 0  4  0.125  -4 a",
        "block 1 head 1  1               1.000  -4 a",
    ]


def test_interventions_side_by_side():
    found = {kind: intervene(build(kind), TOKENIZER, FIRST, 3, "cat") for kind in MODELS}
    lines = compared(found)
    assert lines[0].split() == list(MODELS)
    assert [line[:10].rstrip() for line in lines[2:-1]] == [
        f"{when} {rank}" for when in ("as it is", "replaced") for rank in range(1, 6)
    ]
    assert lines[-1].split()[2:] == [f"{each.divergence:.4f}" for each in found.values()]
    assert isinstance(found["mlp"], Intervention)
    assert max(map(len, lines)) <= 100


def test_many_models_go_on_below():
    reading = [Neighbour("a rather long token", 4, 0.5)]
    lines = compared({f"model {i}": reading for i in range(7)})
    assert max(map(len, lines)) <= 100
    assert lines.count("") == 2
    text = "\n".join(lines)
    assert text.count("a rather long token") == 7
    assert all(f"model {i}" in text for i in range(7))


def test_different_kinds_do_not_compare():
    one, other = [Neighbour("a", 4, 0.5)], [Attention(0, 0, "a", [], 0)]
    with pytest.raises(UsageError, match="different kinds"):
        compared({"before": one, "after": other})
