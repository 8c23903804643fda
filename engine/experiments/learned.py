"""What a word model has learned, read off before and after training: which words lie near each
other, what becomes of a word in two sentences, what attention looks at, and what one word changes.

Every reading leaves the model as it is: no gradients, no draws, no parameter touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.errors import TensorstepError, UsageError
from engine.experiments.lines import aligned
from engine.experiments.words import Neighbour as Neighbour
from engine.experiments.words import cosine, embedding_of, history_of, known, seen, values_of
from engine.experiments.words import neighbours as neighbours
from engine.models import (
    BigramLM,
    CausalAttentionLM,
    DecoderLM,
    FixedWindowMLP,
    MultiHeadAttentionLM,
    StatesModel,
)
from engine.text.tokenizer import Tokenizer

TOP = 5  # next tokens that an intervention shows
WEIGHTS = re.compile(r"(?:blocks\.(\d+)\.attention\.)?weights")

# --- a word in two sentences -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contexts:
    """One word in two sentences.

    state          which state of the model stands for the word: see `context_state`
    first, second  that state there, in float64
    cosine         of the two; None where one of them is zero
    plain          of the word's embedding with itself, which no sentence changes: 1, or None
    """

    word: str
    state: str
    first: Tensor
    second: Tensor
    cosine: float | None
    plain: float | None


def context_state(model: StatesModel) -> str:
    """The state that stands for a word where it is, having read what comes before it.

    decoder         the stream after the last block, at the word's position
    one, more heads `residual`, of the window that ends with the word
    window MLP      `hidden`, of the window that ends with the word: it has no state of one slot.
                    No number of it is below 0, so no cosine is either
    bigram          `logits`, the word's row of the table: the same in every sentence

    Raises UsageError for another model.
    """
    if isinstance(model, DecoderLM):
        return f"blocks.{len(model.blocks) - 1}.residual2" if len(model.blocks) else "embedding"
    if isinstance(model, CausalAttentionLM | MultiHeadAttentionLM):
        return "residual"
    if isinstance(model, FixedWindowMLP):
        return "hidden"
    if isinstance(model, BigramLM):
        return "logits"
    raise UsageError(f"a {type(model).__name__} has no state of a word: open a word model")


@torch.no_grad()
def in_two_contexts(
    model: StatesModel, tokenizer: Tokenizer, first: str, second: str, word: str
) -> Contexts:
    """What a word is in two sentences; of several in a sentence the last.

    Raises TensorstepError where the vocabulary or a sentence does not have the word.
    """
    name, wanted = context_state(model), known(tokenizer, word)
    vectors = []
    for sentence in (first, second):
        ids = history_of(tokenizer, sentence)
        if wanted not in ids:
            raise TensorstepError(f"{word!r} is not in {sentence!r}: give a sentence that has it")
        end = len(ids) - ids[::-1].index(wanted)
        value = values_of(model, seen(model, tokenizer, ids[:end]), re.compile(re.escape(name)))
        vectors.append(value[name].reshape(-1, value[name].shape[-1])[-1].double().cpu())
    row = embedding_of(model)[wanted].double().cpu()
    return Contexts(word, name, vectors[0], vectors[1], cosine(*vectors), cosine(row, row))


# --- attention -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """What one head looks at from one position.

    query     the token that asks, the last one read
    keys      each token that is there to be seen, in order, and its weight
    position  which token of those the model reads asks, the first is 0
    """

    block: int
    head: int
    query: str
    keys: list[tuple[str, float]]
    position: int


@torch.no_grad()
def attention_of(model: StatesModel, tokenizer: Tokenizer, sentence: str) -> list[Attention]:
    """Where every head looks from every position that predicts, by block, head and position.

    A decoder predicts at each position, of itself and those before; a window only at its last
    slot, and its <PAD>s weigh 0. Of a longer sentence the last tokens are read.

    Raises UsageError for a model without attention.
    """
    X = seen(model, tokenizer, history_of(tokenizer, sentence))
    tokens = [tokenizer.itos[i] for i in X[0].tolist()]
    found = []
    for name, weights in values_of(model, X, WEIGHTS).items():
        by_head = weights[0] if weights.dim() == 4 else weights  # [H, T, S]
        block = int(WEIGHTS.sub(r"\1", name) or 0)
        hidden = len(tokens) - by_head.shape[1]  # slots that are keys and never ask
        for head, rows in enumerate(by_head.tolist()):
            for position, row in enumerate(rows, start=hidden):
                keys = list(zip(tokens, row, strict=True))[: position + 1]
                found.append(Attention(block, head, tokens[position], keys, position))
    if not found:
        raise UsageError(f"a {type(model).__name__} has no attention: open a model that has heads")
    return found


# --- one token replaced ----------------------------------------------------------------------


@dataclass(frozen=True)
class Likely:
    """A next token and its probability."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Change:
    """What became of the probability of a next token."""

    token: str
    id: int
    before: float
    after: float


@dataclass(frozen=True)
class Intervention:
    """The next token, before and after one token of a sentence is another.

    before, after  the five most probable next tokens, of all that the model gives a probability to
    changes        of those in either, the largest change first
    divergence     KL(before ‖ after) over the whole vocabulary, in nats
    was, instead   the token and what took its place
    is_seen        whether it lies in the model's context; where it does not, nothing changes
    """

    before: list[Likely]
    after: list[Likely]
    changes: list[Change]
    divergence: float
    was: str
    instead: str
    is_seen: bool


@torch.no_grad()
def intervene(
    model: StatesModel, tokenizer: Tokenizer, sentence: str, position: int, instead: str
) -> Intervention:
    """One token of a sentence replaced, 0 its first (what documents begin with not counted).

    Raises UsageError for a position that the sentence does not have, TensorstepError for a token
    that the vocabulary does not have.
    """
    ids, new = history_of(tokenizer, sentence), known(tokenizer, instead)
    length = len(tokenizer.encode(sentence))
    if not 0 <= position < length:
        raise UsageError(
            f"{sentence!r} has no token {position}: it has {length}, the first of them is 0"
        )
    at = len(ids) - length + position
    changed = [*ids[:at], new, *ids[at + 1 :]]
    p, q = (next_of(model, seen(model, tokenizer, read)) for read in (ids, changed))
    before, after = likeliest(p, tokenizer.itos), likeliest(q, tokenizer.itos)
    either = sorted({likely.id for likely in (*before, *after)})
    moved = [Change(tokenizer.itos[i], i, float(p[i].exp()), float(q[i].exp())) for i in either]
    moved.sort(key=lambda change: -abs(change.after - change.before))
    is_seen = len(ids) - at <= (1 if isinstance(model, BigramLM) else model.context_len)
    was = tokenizer.itos[ids[at]]
    return Intervention(before, after, moved, divergence(p, q), was, tokenizer.itos[new], is_seen)


def next_of(model: StatesModel, X: Tensor) -> Tensor:
    """The logarithms of the probabilities of the next token, [C] in float64."""
    logits: Tensor = model(X)
    last = logits[0, -1] if logits.dim() == 3 else logits[0]
    return last.double().cpu().log_softmax(-1)


def likeliest(logarithms: Tensor, itos: Sequence[str]) -> list[Likely]:
    """The most probable tokens, of equals the lower ID first."""
    found = logarithms[: len(itos)].sort(descending=True, stable=True).indices[:TOP].tolist()
    return [Likely(itos[i], i, float(logarithms[i].exp())) for i in found]


def divergence(p: Tensor, q: Tensor) -> float:
    """KL(p ‖ q) in nats, of logarithms of probabilities: Σ exp(p) (p - q), where exp(p) is not
    0."""
    there = p > -torch.inf
    return max(0.0, float((p[there].exp() * (p[there] - q[there])).sum()))


# --- side by side ----------------------------------------------------------------------------

Reading = Sequence[Neighbour] | Sequence[Attention] | Contexts | Intervention
KEYS = 4  # of a head that are told: those that weigh the most


def compared(readings: Mapping[str, Reading]) -> list[str]:
    """Readings of one kind of several models, by the model's name, as aligned lines of at most 100
    columns. Raises UsageError for readings of different kinds."""
    kinds = {type(each) for reading in readings.values() for each in listed(reading)}
    if len(kinds) > 1:
        raise UsageError("readings of different kinds do not compare: give one kind at a time")
    kind = kinds.pop() if kinds else Neighbour
    if kind is Contexts:
        return aligned(
            ["model", "state", "cosine in the two sentences", "of the embedding"],
            [
                [name, each.state, figure(each.cosine), figure(each.plain)]
                for name, reading in readings.items()
                for each in listed(reading)
            ],
        )
    told = LINES[kind]
    columns = {name: dict(told(listed(reading))) for name, reading in readings.items()}
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = [[label, *(column.get(label, "") for column in columns.values())] for label in labels]
    return aligned(["", *columns], rows)


def listed(reading: Reading) -> Sequence[Any]:
    return reading if isinstance(reading, Sequence) else [reading]


def figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


Lines = Iterator[tuple[str, str]]  # what a line begins with, and what a model has there


def near(reading: Sequence[Neighbour]) -> Lines:
    for rank, each in enumerate(reading, start=1):
        yield str(rank), f"{each.cosine:+.3f} {each.token}"


def looking(reading: Sequence[Attention]) -> Lines:
    """The keys that weigh the most from the last position, of equals the earlier first; none that
    weighs 0. Each has its place, counted from that position: -1 is the token before it."""
    last = max((each.position for each in reading), default=0)
    for each in (one for one in reading if one.position == last):
        placed = [(key - last, *found) for key, found in enumerate(each.keys) if found[1] > 0]
        placed.sort(key=lambda key: -key[2])
        at = f"block {each.block} head {each.head}"
        for rank, (place, token, weight) in enumerate(placed[:KEYS], start=1):
            yield f"{at}  {rank}", f"{weight:.3f} {place:>3} {token}"


def replaced(reading: Sequence[Intervention]) -> Lines:
    for each in reading:
        yield "token", f"{each.was} by {each.instead}"
        for when, likely in (("as it is", each.before), ("replaced", each.after)):
            for rank, one in enumerate(likely, start=1):
                yield f"{when} {rank}", f"{one.probability:.3f} {one.token}"
        yield "KL (nats)", f"{each.divergence:.4f}" if each.is_seen else "outside its context"


LINES: dict[type, Callable[[Sequence[Any]], Lines]] = {
    Neighbour: near,
    Attention: looking,
    Intervention: replaced,
}
