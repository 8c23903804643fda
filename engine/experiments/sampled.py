"""Stories that a trained model writes, read by the storybook's grammar."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.data.storybook import accepts
from engine.generation.decoding import Filters, SeededDraws
from engine.generation.generator import Generation, generate
from engine.models import StatesModel
from engine.progress import Tell, tracked
from engine.states import drain
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sampled:
    """What was written.

    accepted  how many of the stories the grammar can write
    ended     how many end by <EOS> themselves
    copied    how many stand among the training stories, word by word
    """

    stories: list[str]
    accepted: int
    ended: int
    copied: int


def sample(
    model: StatesModel,
    tokenizer: Tokenizer,
    training: Collection[str],
    count: int,
    temperature: float,
    longest: int,
    seed: int,
    tell: Tell | None = None,
) -> Sampled:
    """So many stories from <BOS> alone: story number i by the seed `seed + i`."""
    known = {canonical(tokenizer, text) for text in training}
    stories, ended = [], 0
    for number in tracked(range(count), "writing stories", count, tell):
        chooser, filters = SeededDraws(seed + number), Filters(temperature)
        made = Generation(model, tokenizer, "", longest, chooser, filters)
        drain(generate(made))
        ended += made.ids[-1] == tokenizer.eos_id
        stories.append(tokenizer.decode(made.ids))
    return Sampled(
        stories,
        sum(accepts(story) for story in stories),
        ended,
        sum(canonical(tokenizer, story) in known for story in stories),
    )


def canonical(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """A text as its tokens: neither case nor white space counts."""
    return tuple(tokenizer.encode(text))
