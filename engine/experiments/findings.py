"""What trained models have learned, read side by side: before and after training, MLP against one
head against four heads. A section each, for the report of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.experiments.learned import (
    attention_of,
    compared,
    in_two_contexts,
    intervene,
    neighbours,
)
from engine.experiments.plane import Plane, plot_lines, table_lines
from engine.experiments.words import embedding_of
from engine.models import StatesModel
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import SPECIAL_TOKENS

Section = tuple[str, list[str]]
NEAR = 5  # neighbours of a word
PLOTTED = 24  # words in the plane
WORDS = ("dog", "happy", "ball", "red", "mother", "ran")
TWICE = ("the dog ran to the ball", "a ball was red", "ball")  # two sentences, and their word
LOOKED_AT = "the little dog was happy and ran"
INSTEAD = ("the dog was very", 1, "cat")  # a sentence, a position, and what is put there


def sections(
    fresh: Mapping[str, StatesModel], trained: Mapping[str, StatesModel], tokenizer: Tokenizer
) -> list[Section]:
    """By the model's name: before training, and after. Sentences with words that the vocabulary
    does not have are left out."""
    words = [word for word in WORDS if knows(tokenizer, word)] or some_words(tokenizer)
    both = {"before": next(iter(fresh.values())), **trained}
    found: list[Section] = []
    for word in words:
        i = tokenizer.encode(word)[0]
        readings = {
            name: neighbours(embedding_of(model), tokenizer.itos, i, NEAR)
            for name, model in both.items()
        }
        found.append((f"nearest to {word!r}, by cosine", compared(readings)))
    first, second, word = TWICE
    if knows(tokenizer, first) and knows(tokenizer, second):
        contexts = {
            name: in_two_contexts(model, tokenizer, first, second, word)
            for name, model in both.items()
        }
        found.append((f"{word!r} in {first!r} and in {second!r}", compared(contexts)))
    found += of_attention(trained, tokenizer)
    sentence, position, instead = INSTEAD
    if knows(tokenizer, sentence) and knows(tokenizer, instead):
        changes = {
            name: intervene(model, tokenizer, sentence, position, instead)
            for name, model in both.items()
        }
        found.append((f"{sentence!r} with {instead!r} at word {position}", compared(changes)))
    return [*found, *plane(fresh, trained, tokenizer)]


def of_attention(trained: Mapping[str, StatesModel], tokenizer: Tokenizer) -> list[Section]:
    """Where the heads look in a sentence."""
    if not knows(tokenizer, LOOKED_AT):
        return []
    readings = {
        name: attention_of(model, tokenizer, LOOKED_AT)
        for name, model in trained.items()
        if hasattr(model, "W_Q") or model.every_position
    }
    return [(f"attention in {LOOKED_AT!r}", compared(readings))] if readings else []


def plane(
    fresh: Mapping[str, StatesModel], trained: Mapping[str, StatesModel], tokenizer: Tokenizer
) -> list[Section]:
    """Words of one model before and after training, in one plane of both."""
    name = next(reversed(list(trained)))
    words = [tokenizer.encode(word)[0] for word in some_words(tokenizer, PLOTTED)]
    tables = [embedding_of(fresh[name]), embedding_of(trained[name])]
    shared = Plane.of(tables, words)
    labels = [tokenizer.itos[i] for i in words]
    points = {
        when: shared.project(table) for when, table in zip(("before", "after"), tables, strict=True)
    }
    share = " and ".join(f"{each:.0%}" for each in shared.explained)
    lines = [f"the two axes have {share} of the variance", *table_lines(points, labels), ""]
    title = f"{name}: words in one plane of both tables (PCA)"
    return [(title, [*lines, *plot_lines(points["after"], labels)])]


def knows(tokenizer: Tokenizer, text: str) -> bool:
    return tokenizer.unk_id not in tokenizer.encode(text)


def some_words(tokenizer: Tokenizer, count: int = 3) -> Sequence[str]:
    """The first tokens of the vocabulary that are words."""
    words = (each for each in tokenizer.itos if each not in SPECIAL_TOKENS and each.isalpha())
    return [word for _, word in zip(range(count), words, strict=False)]
