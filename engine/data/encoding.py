"""Documents to IDs: each side of a split as one flat stream. The tokenizer is fitted here."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.data.corpus import Corpus, VocabularyRule
from engine.data.split import SIDES, TRAIN, Split
from engine.data.windows import Stream
from engine.errors import UsageError
from engine.progress import Meter, Tell, tracked
from engine.text.cutting import BY_COUNT, SORTED, Counted, CutTokenizer
from engine.text.loading import is_cut, open_tokenizer
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import SPECIAL_TOKENS, Vocabulary


@dataclass(frozen=True)
class Encoded:
    """A tokenizer, and what it made of each side of a split."""

    tokenizer: Tokenizer
    streams: dict[str, Stream]


def encode_corpus(
    corpus: Corpus, split: Split, spec: str = "words", tell: Tell | None = None
) -> Encoded:
    """Tokenize and number the documents of each side; whatever is fitted sees training ones only.

    Raises UsageError for a tokenizer that there is not, or that the texts do not give.
    """
    if is_cut(spec):
        return encode_counted(corpus, split, spec, tell)

    def training() -> Iterator[str]:
        documents = split.documents[TRAIN]
        told = tracked(documents, "training the tokenizer", len(documents), tell)
        return (corpus.texts[n] for n in told)

    tokenizer = open_tokenizer(spec, training)
    numbers = [n for side in SIDES for n in split.documents[side]]
    arrays = {
        n: np.array(tokenizer.encode(corpus.texts[n]), dtype=np.int64)
        for n in tracked(numbers, "tokenizing documents", len(numbers), tell)
    }
    streams = {
        side: stream_of([arrays[n] for n in documents], tokenizer)
        for side, documents in split.documents.items()
    }
    return Encoded(tokenizer, streams)


def encode_counted(corpus: Corpus, split: Split, kind: str, tell: Tell | None) -> Encoded:
    """Words or characters: each document is cut once, for counting and numbering alike."""
    numbers = [n for side in SIDES for n in split.documents[side]]
    characters = sum(len(corpus.texts[n]) for n in numbers)
    counted = Counted(kind, Meter("tokenizing characters", characters, tell))
    arrays: dict[int, array[int]] = {n: counted.encode(corpus.texts[n]) for n in numbers}
    tokens = counted.tokens
    training = joined([np.frombuffer(arrays[n], np.int32) for n in split.documents[TRAIN]])
    counts = np.bincount(training, minlength=len(tokens)).tolist()
    found = {token: count for token, count in zip(tokens, counts, strict=True) if count}
    tokenizer = fitted(kind, found, corpus.rule)
    vocabulary = tokenizer.vocabulary
    ids = np.array([vocabulary.stoi.get(token, vocabulary.unk_id) for token in tokens], np.int64)
    streams = {
        side: stream_of([ids[np.frombuffer(arrays[n], np.int32)] for n in documents], tokenizer)
        for side, documents in split.documents.items()
    }
    return Encoded(tokenizer, streams)


def fitted(kind: str, counts: dict[str, int], rule: VocabularyRule) -> CutTokenizer:
    """The tokenizer of counted tokens. Raises UsageError where a size is asked for that they do
    not give."""
    vocabulary = Vocabulary.of_counts(counts, rule.max_vocab, rule.min_freq, rule.by_count)
    if rule.exact and rule.max_vocab is not None and len(vocabulary) < rule.max_vocab:
        raise UsageError(
            f"--max-vocab {rule.max_vocab} is more than the corpus has: {len(vocabulary)} with the"
            f" special tokens, of those that train {rule.min_freq} times or more; ask for"
            f" {len(vocabulary)} or fewer"
        )
    if len(vocabulary) == len(SPECIAL_TOKENS):
        raise UsageError(
            f"no token trains {rule.min_freq} times or more, so the vocabulary is empty:"
            " give --min-freq 1, or more text"
        )
    return CutTokenizer(kind, vocabulary, BY_COUNT if rule.by_count else SORTED)


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def stream_of(arrays: list[np.ndarray], tokenizer: Tokenizer) -> Stream:
    """The IDs of documents, one after another, with the boundaries that the tokenizer has."""
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    boundaries = (bos is not None) + (eos is not None)
    lengths = np.array([len(ids) + boundaries for ids in arrays], np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    inner = np.ones(int(starts[-1]), bool)
    ids = np.empty(len(inner), np.int64)
    if bos is not None:
        inner[starts[:-1]] = False
        ids[starts[:-1]] = bos
    if eos is not None:
        inner[starts[1:] - 1] = False
        ids[starts[1:] - 1] = eos
    ids[inner] = joined(arrays)
    return Stream(torch.from_numpy(ids), torch.from_numpy(starts))
