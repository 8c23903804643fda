"""From documents to windows: the states of step 0 of the training map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine.data.audit import Audit, audit_of
from engine.data.corpus import Corpus
from engine.data.encoding import Encoded, encode_corpus
from engine.data.pieces import Pieces
from engine.data.split import SIDES, TRAIN, VALIDATION, Split, split_documents
from engine.data.windows import Sequences, Stream, Windows
from engine.errors import UsageError
from engine.ops import Rule, by_rule, given
from engine.ops.core import Cell
from engine.progress import Tell
from engine.states import State
from engine.text.tokenizer import Tokenizer

Measured = tuple[Any, Any]  # inputs and targets, as tensors or tables that are gathered
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
    def of(cls, contexts: Any, targets: Any) -> TrainingData:
        """Data that is only windows: contexts [N, w] and targets [N]."""
        x = given("windows.contexts", contexts, ("N", "w"), "the contexts given", step=0)
        y = given("windows.targets", targets, ("N",), "the targets given", step=0)
        return cls((x, y), x, y)


@dataclass(frozen=True)
class Texts:
    """Documents, which of them train, and their IDs."""

    corpus: Corpus
    split: Split
    encoded: Encoded

    @classmethod
    def of(cls, corpus: Corpus, tokenizer: str, tell: Tell | None = None) -> Texts:
        """Split, tokenize and number documents. Raises as `prepare` does."""
        split = split_documents(corpus.texts, corpus.sides, tell)
        return cls(corpus, split, encode_corpus(corpus, split, tokenizer, tell))


class Prepared:
    """Documents made ready: split, tokenized, numbered and windowed.

    tokenizer  with its vocabulary, fitted on those that train
    texts      the documents; or what reads them, when something of them is first asked for
    corpus     the documents
    split      which of them train
    streams    the IDs of each side: train, validation, test
    windows    those that train
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Texts | Callable[[], Texts],
        context_len: int,
        run_on: bool = False,
    ):
        self.tokenizer = tokenizer
        self._given = texts
        self.context_len = context_len
        self.run_on = run_on

    @cached_property
    def _texts(self) -> Texts:
        return self._given if isinstance(self._given, Texts) else self._given()

    @property
    def corpus(self) -> Corpus:
        return self._texts.corpus

    @property
    def split(self) -> Split:
        return self._texts.split

    @property
    def streams(self) -> dict[str, Stream]:
        return self._texts.encoded.streams

    @property
    def pad_id(self) -> int:
        """Raises UsageError for a tokenizer without padding."""
        if self.tokenizer.pad_id is None:
            raise UsageError(f"windows need <PAD>, which {self.tokenizer.name!r} does not have")
        return self.tokenizer.pad_id

    @cached_property
    def windows(self) -> Windows:
        return self.windows_of(TRAIN)

    def windows_of(self, side: str, context_len: int | None = None) -> Windows:
        """The windows of a side, of any width: they cost nothing until they are read."""
        return Windows(self.streams[side], context_len or self.context_len, self.pad_id)

    @cached_property
    def audit(self) -> Audit:
        """How much is on each side, and whether anything leaked: see `engine.data.audit`."""
        return audit_of(self.corpus, self.split, self._texts.encoded)

    @cached_property
    def data(self) -> TrainingData:
        """What training reads."""
        stories, split = self._split_states()
        tokens, vocabulary, ids = self._token_states(stories)
        x, y = window_states(self.windows, ids)
        states = (stories, split, *self._audit_states(split), tokens, vocabulary, ids, x, y)
        held_out = self.measured_windows(VALIDATION, HELD_OUT_WINDOWS)
        return TrainingData(states, x, y, held_out)

    @cached_property
    def sequences(self) -> Sequences:
        """What trains a model that has logits at every position. Raises UsageError where no
        document is long enough."""
        found = self.sequences_of(TRAIN)
        if not len(found) and self.run_on:
            raise UsageError(
                f"all training documents together have no more than {self.context_len} tokens:"
                " give a smaller --context"
            )
        if not len(found):
            raise UsageError(
                f"no training document has more than {self.context_len} tokens: give a smaller"
                " --context, or --run-on, where sequences run on into the next"
            )
        return found

    def longest(self, side: str) -> int:
        """How many IDs in a row there are on a side, at the most."""
        stream = self.streams[side]
        return len(stream.ids) if self.run_on else max(stream.lengths.tolist(), default=0)

    def sequences_of(self, side: str) -> Sequences:
        return Sequences(self.streams[side], self.context_len, self.run_on)

    @cached_property
    def sequence_data(self) -> TrainingData:
        """What such a model reads: see `data`."""
        *before, ids = self.data.preparation[:-2]
        x, y = sequence_states(self.sequences, ids, self.run_on)
        held_out = self.measured_sequences(VALIDATION, HELD_OUT_WINDOWS)
        return TrainingData((*before, ids, x, y), x, y, held_out)

    def measured_windows(self, side: str, count: int | None = None) -> Measured | None:
        """The windows that a loss is measured on: the first `count` of a side, or all. None: there
        is none."""
        found = self.windows_of(side)
        return first(found.contexts, found.targets, count) if len(found) else None

    def measured_sequences(self, side: str, count: int | None = None) -> Measured | None:
        """As `measured_windows`."""
        found = self.sequences_of(side)
        return first(found.inputs, found.targets, count) if len(found) else None

    def _split_states(self) -> tuple[State, State]:
        stories = given(
            "stories", self.corpus.texts, ("N",), "the documents, as they were given", step=0
        )
        how = Rule(self.split.how, lambda _: self.split.sides, same_cell)
        return stories, by_rule("split", how, (stories,), ("N",), step=0)

    def _audit_states(self, split: State) -> list[State]:
        """The audit, where there is more than one side to compare."""
        if not any(len(self.streams[side]) for side in SIDES if side != TRAIN):
            return []
        return [
            by_rule(f"audit.{name}", Rule(sentence, self._audited(name)), (split,), axes, step=0)
            for name, (sentence, axes) in AUDITED.items()
        ]

    def _audited(self, name: str) -> Callable[..., Tensor]:
        def figures(_: Any) -> Tensor:
            found = self.audit[name]
            if name == "length_tokens":
                rows = [list(found[side].values()) for side in SIDES]
                nan = float("nan")
                return torch.tensor(
                    [[nan if figure is None else figure for figure in row] for row in rows]
                )
            return torch.tensor([found[s] for s in SIDES] if isinstance(found, dict) else found)

        return figures

    def _token_states(self, stories: State) -> tuple[State, State, State]:
        tokenizer, stream = self.tokenizer, self.streams[TRAIN]
        pieces = Pieces(
            [self.corpus.texts[n] for n in self.split.documents[TRAIN]], tokenizer, stream
        )
        cut = Rule(f"{tokenizer.rule} of the training documents", lambda _: pieces)
        tokens = by_rule("tokens", cut, (stories,), ("N",), step=0)
        order = Rule(tokenizer.order, lambda _: tokenizer.itos)
        vocabulary = by_rule("vocabulary", order, (tokens,), ("C",), step=0)

        def cite(cell: Cell) -> list[tuple[int, Cell]]:
            at = pieces.token_of(cell[0])
            return [] if at is None else [(0, (at,)), (1, (int(stream.ids[cell[0]]),))]

        number = Rule(numbering(tokenizer), lambda *_: stream.ids, cite)
        return tokens, vocabulary, by_rule("ids", number, (tokens, vocabulary), ("N",), step=0)


AUDITED: dict[str, tuple[str, tuple[str, ...]]] = {
    "documents": ("documents of train, validation and test", ("N",)),
    "tokens": ("their tokens, boundaries not counted", ("N",)),
    "unknown": ("tokens that the vocabulary does not have", ("N",)),
    "windows": ("their windows, one a target", ("N",)),
    "length_tokens": ("tokens of a document: the fewest, the median, the most", ("N", "N")),
    "duplicates_dropped": ("documents dropped, equal to an earlier one", ()),
    "overlap": ("documents on two sides: more than 0 would be a leak", ()),
    "vocabulary_size": ("entries of the vocabulary, which only training documents make", ()),
}


def prepare(
    documents: Sequence[str] | Corpus,
    context_len: int,
    tokenizer: str = "words",
    tell: Tell | None = None,
    run_on: bool = False,
) -> Prepared:
    """Split, tokenize, number and window documents; whatever is fitted sees training ones only.

    tokenizer  its name or path: see `engine.text.loading`
    run_on     whether sequences run on into the next document

    Raises UsageError for a tokenizer that there is not, or that the texts do not give.
    """
    corpus = documents if isinstance(documents, Corpus) else Corpus("documents", list(documents))
    texts = Texts.of(corpus, tokenizer, tell)
    return Prepared(texts.encoded.tokenizer, texts, context_len, run_on)


def first(inputs: Any, targets: Any, count: int | None) -> Measured:
    return (inputs, targets) if count is None else (inputs[:count], targets[:count])


def numbering(tokenizer: Tokenizer) -> str:
    """How tokens become IDs, in a sentence."""
    names = [
        f"{tokenizer.itos[i]} {where}"
        for i, where in ((tokenizer.bos_id, "before"), (tokenizer.eos_id, "after"))
        if i is not None
    ]
    return ", ".join(["the ID of each token", *([" and ".join(names)] if names else [])])


def window_states(windows: Windows, ids: State) -> tuple[State, State]:
    """`windows.contexts` and `windows.targets`, each cell citing the ID it is."""
    contexts, targets = windows.contexts, windows.targets

    def in_context(cell: Cell) -> list[tuple[int, Cell]]:
        at = contexts.source(*cell)
        return [] if at is None else [(0, (at,))]

    w = contexts.shape[1]
    left = Rule(f"the {w} IDs before the target, <PAD> before", lambda _: contexts, in_context)
    right = Rule(
        "every ID but the first of its document",
        lambda _: targets,
        lambda cell: [(0, (targets.source(*cell),))],
    )
    x = by_rule("windows.contexts", left, (ids,), ("N", "w"), step=0)
    y = by_rule("windows.targets", right, (ids,), ("N",), step=0)
    return x, y


def sequence_states(sequences: Sequences, ids: State, run_on: bool) -> tuple[State, State]:
    """`windows.contexts` and `windows.targets` of a target at every position."""
    inputs, targets = sequences.inputs, sequences.targets
    count = inputs.shape[1]
    how = f"{count} IDs in a row{', on into the next document' if run_on else ''}"
    left = Rule(how, lambda _: inputs, lambda c: [(0, (inputs.source(*c),))])
    right = Rule(
        "the same IDs, moved on by one", lambda _: targets, lambda c: [(0, (targets.source(*c),))]
    )
    x = by_rule("windows.contexts", left, (ids,), ("N", "T"), step=0)
    return x, by_rule("windows.targets", right, (ids,), ("N", "T"), step=0)


def same_cell(cell: Cell) -> list[tuple[int, Cell]]:
    return [(0, cell)]
