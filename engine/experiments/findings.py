"""What trained models have learned, read side by side: before and after training, MLP against one
head against four heads. A section each, for the report of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from engine.experiments.learned import (
    attention_of,
    compared,
    in_two_contexts,
    intervene,
    neighbours,
)
from engine.experiments.plane import Plane, plot_lines, table_lines
from engine.experiments.words import embedding_of, known
from engine.models import StatesModel
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import SPECIAL_TOKENS

Section = tuple[str, list[str]]
NEAR = 5  # neighbours of a word
PLOTTED = 24  # words in the plane
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Questions:
    """What is asked of a model.

    words      whose neighbours are looked for; they lie in the plane, too
    sentences  where each head looks in them; a word that the first two share is compared in both
    instead    a token of the first sentence by its number from 0, and what is put there
    """

    words: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    instead: tuple[int, str] | None = None

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Questions:
        words, sentences = tuple(values["words"]), tuple(values["sentences"])
        position = values.get("instead")
        return cls(words, sentences, None if position is None else (position[0], position[1]))

    def fitting(self, tokenizer: Tokenizer) -> Questions:
        """Itself; or, where nothing is asked, what the vocabulary has the words for."""
        if self != Questions():
            return self
        for usual in USUAL:
            asked = [*usual.words, *(word for text in usual.sentences for word in text.split())]
            if all(is_one(tokenizer, word) for word in asked):
                return usual
        words = [word for usual in USUAL for word in usual.words if is_one(tokenizer, word)]
        return Questions(tuple(words[:NEAR] or some_words(tokenizer, 3)))


USUAL = (  # of the stories of the measured experiment, and of the storybook
    Questions(
        ("dog", "happy", "ball", "red", "mother", "ran"),
        ("the dog ran to the ball", "a ball was red", "the little dog was happy and ran"),
        (1, "cat"),
    ),
    Questions(
        ("dog", "red", "grandma", "bread", "ran"),
        ("ben had a red ball and", "kate wanted a ball but"),
        (0, "kate"),
    ),
)


def sections(
    models: Mapping[str, StatesModel], tokenizer: Tokenizer, questions: Questions
) -> list[Section]:
    """Of models by their names, before training and after. Raises TensorstepError for words that
    the vocabulary does not have."""
    found: list[Section] = []
    for word in questions.words:
        i = known(tokenizer, word)
        nearest = {
            name: neighbours(embedding_of(model), tokenizer.itos, i, NEAR)
            for name, model in models.items()
        }
        found.append((f"nearest to {word!r}, by cosine", compared(nearest)))
    found += of_contexts(models, tokenizer, questions.sentences[:2])
    for sentence in questions.sentences:
        found += of_attention(models, tokenizer, sentence)
    if questions.instead is not None and questions.sentences:
        sentence, (position, word) = questions.sentences[0], questions.instead
        changes = {
            name: intervene(model, tokenizer, sentence, position, word)
            for name, model in models.items()
        }
        told = f"{sentence!r} with {word!r} as token {position}: the most likely next tokens"
        found.append((told, compared(changes)))
    return found


def of_contexts(
    models: Mapping[str, StatesModel], tokenizer: Tokenizer, sentences: Sequence[str]
) -> list[Section]:
    """What becomes of a word that two sentences share: of several the longest, which says most."""
    if len(sentences) < 2:
        return []
    first, second = sentences
    shared = {*tokenizer.encode(first)} & {*tokenizer.encode(second)}
    if not shared:
        return []
    word = max((tokenizer.itos[i] for i in sorted(shared)), key=len)
    readings = {
        name: in_two_contexts(model, tokenizer, first, second, word)
        for name, model in models.items()
    }
    return [(f"{word!r} in {first!r} and in {second!r}", compared(readings))]


def of_attention(
    models: Mapping[str, StatesModel], tokenizer: Tokenizer, sentence: str
) -> list[Section]:
    """Where the heads look in a sentence: weight, place from the last token, token."""
    readings = {
        name: attention_of(model, tokenizer, sentence)
        for name, model in models.items()
        if has_heads(model)
    }
    told = f"attention from the last token of {sentence!r}: weight, place from it, token"
    return [(told, compared(readings))] if readings else []


def has_heads(model: StatesModel) -> bool:
    """Whether there is attention to read."""
    return hasattr(model, "W_Q") or model.every_position


@dataclass(frozen=True, eq=False)
class Places:
    """Where words lie in one plane of several checkpoints.

    words   as they are written
    points  [n, 2] of each checkpoint by its name, in order
    """

    plane: Plane
    words: list[str]
    points: dict[str, Tensor]

    @classmethod
    def of(
        cls, models: Mapping[str, StatesModel], tokenizer: Tokenizer, words: Sequence[str] = ()
    ) -> Places:
        """Of these words, and of the first ones of the vocabulary."""
        ids = [known(tokenizer, word) for word in words]
        ids += [tokenizer.encode(word)[0] for word in some_words(tokenizer, PLOTTED)]
        kept = list(dict.fromkeys(ids))[: max(PLOTTED, len(words))]
        tables = {name: embedding_of(model) for name, model in models.items()}
        shared = Plane.of(list(tables.values()), kept)
        points = {name: shared.project(table) for name, table in tables.items()}
        return cls(shared, [tokenizer.itos[i] for i in kept], points)

    def section(self, name: str) -> Section:
        """As a table, and the last checkpoint's as a plot."""
        share = " and ".join(f"{each:.0%}" for each in self.plane.explained)
        lines = [
            f"the two axes have {share} of the variance",
            *table_lines(self.points, self.words),
            "",
            *plot_lines(
                list(self.points.values())[-1],
                self.words,
                around=torch.cat(list(self.points.values())),
            ),
        ]
        names = " and ".join([", ".join(list(self.points)[:-1]), list(self.points)[-1]])
        return f"{name}: words in one plane of {names} (PCA)", lines


def is_one(tokenizer: Tokenizer, word: str) -> bool:
    """Whether a word is one token of the vocabulary."""
    ids = tokenizer.encode(word)
    return len(ids) == 1 and ids[0] != tokenizer.unk_id


def some_words(tokenizer: Tokenizer, count: int) -> Sequence[str]:
    """The first tokens of the vocabulary that are words, or letters where it has those."""
    words = (
        each
        for each in tokenizer.itos
        if each not in SPECIAL_TOKENS and each.isalpha() and is_one(tokenizer, each)
    )
    return list(islice(words, count))
