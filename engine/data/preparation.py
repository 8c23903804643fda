"""From documents to windows: the states of step 0 of the training map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.data.split import TRAIN, VALIDATION, split_documents
from engine.data.windows import Windows
from engine.ops import Rule, by_rule, given
from engine.states import State
from engine.text.vocabulary import Vocabulary
from engine.text.words import tokenize

HELD_OUT_WINDOWS = 1000  # validation reads the first of them, so that a step stays quick


@dataclass(frozen=True)
class TrainingData:
    """What training reads: the states of step 0, the windows among them, and what is held out.

    preparation  states `stories` to `windows.targets`, in order
    contexts     the state `windows.contexts` [N, w]
    targets      the state `windows.targets` [N]
    held_out     contexts and targets that never train, or None
    """

    preparation: tuple[State, ...]
    contexts: State
    targets: State
    held_out: tuple[Any, Tensor] | None = None

    @classmethod
    def of(cls, contexts: Any, targets: Tensor) -> TrainingData:
        """Data that is only windows: contexts [N, w] and targets [N]."""
        x = given("windows.contexts", contexts, ("N", "w"), "the contexts given", step=0)
        y = given("windows.targets", targets, ("N",), "the targets given", step=0)
        return cls((x, y), x, y)


@dataclass(frozen=True)
class Prepared:
    """Documents made ready: the vocabulary, the windows that train, and what training reads."""

    vocabulary: Vocabulary
    windows: Windows
    data: TrainingData


def prepare(documents: list[str], context_len: int) -> Prepared:
    """Split, tokenize, number and window the documents; the vocabulary is of training ones only."""
    splits, how = split_documents(documents)
    by_split: dict[str, list[list[str]]] = {}
    for document, side in zip(documents, splits, strict=True):
        by_split.setdefault(side, []).append(tokenize(document))
    training = by_split[TRAIN]
    vocabulary = Vocabulary.fit(training)
    windows = windows_of(training, vocabulary, context_len)
    held_out = by_split.get(VALIDATION)
    stories = given("stories", documents, ("N",), "the documents, as they were given", step=0)
    split = by_rule("split", Rule(how, lambda _: splits, same_cell), (stories,), ("N",), step=0)
    flat = [token for tokens in training for token in tokens]
    cut = Rule("words, numbers and single marks of the training documents", lambda _: flat)
    tokens = by_rule("tokens", cut, (stories,), ("N",), step=0)
    order = Rule("the special tokens, then the sorted distinct tokens", lambda _: vocabulary.itos)
    entries = by_rule("vocabulary", order, (tokens,), ("C",), step=0)
    number = Rule("the ID of each token, <BOS> before and <EOS> after", lambda *_: windows.ids)
    ids = by_rule("ids", number, (tokens, entries), ("N",), step=0)
    x, y = window_states(windows, ids)
    data = TrainingData(
        (stories, split, tokens, entries, ids, x, y),
        x,
        y,
        held_out_of(windows_of(held_out, vocabulary, context_len)) if held_out else None,
    )
    return Prepared(vocabulary, windows, data)


def windows_of(tokens: list[list[str]], vocabulary: Vocabulary, context_len: int) -> Windows:
    encoded = [vocabulary.encode_tokens(document) for document in tokens]
    return Windows(encoded, context_len, vocabulary.pad_id)


def window_states(windows: Windows, ids: State) -> tuple[State, State]:
    """`windows.contexts` and `windows.targets`, each cell citing the ID it is."""
    contexts = windows.contexts

    def in_context(cell: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        row, slot = cell
        at = int(contexts.ends[row]) + slot - contexts.shape[1]
        return [(0, (at,))] if at >= int(contexts.begins[row]) else []

    w = contexts.shape[1]
    left = Rule(f"the {w} IDs before the target, <PAD> before", lambda _: contexts, in_context)
    right = Rule(
        "every ID but the first of its document",
        lambda _: windows.targets,
        lambda cell: [(0, (int(contexts.ends[cell[0]]),))],
    )
    x = by_rule("windows.contexts", left, (ids,), ("N", "w"), step=0)
    y = by_rule("windows.targets", right, (ids,), ("N",), step=0)
    return x, y


def held_out_of(windows: Windows) -> tuple[Tensor, Tensor]:
    count = min(len(windows), HELD_OUT_WINDOWS)
    return windows.contexts[:count], windows.targets[:count]


def same_cell(cell: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    return [(0, cell)]
