"""Corpora: where the documents come from, and by which rule their vocabulary is made.

A corpus is named by a SPEC: `storybook`, `logs`, `tinystories:full`, `hub:ID`, or a path. Knows no
tensors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.data.documents import FIELD, read_documents, read_folder, read_json_lines
from engine.errors import UsageError
from engine.progress import Tell

STORIES = 6000
COUNTED = re.compile(r"(storybook|logs)(?::(\d{1,6})(?::(\d{1,9}))?)?")
SELECTION = re.compile(r"tinystories:(\w+)")
KINDS = "storybook, logs, tinystories:full, hub:ID, or a path"


@dataclass(frozen=True)
class VocabularyRule:
    """How the vocabulary of words or characters is made from the documents that train.

    max_vocab  the largest size, special tokens included; None: no limit
    min_freq   how often a token has to occur
    by_count   the most frequent first, else sorted
    exact      fewer tokens than `max_vocab` are a mistake of whoever asked for so many
    """

    max_vocab: int | None = None
    min_freq: int = 1
    by_count: bool = False
    exact: bool = False


EVERY = VocabularyRule()  # of own texts: each of their tokens
EXPERIMENT = VocabularyRule(4000, 2, True)  # of the measured experiment


@dataclass(frozen=True)
class Corpus:
    """Documents to learn from.

    name   in a word or two
    texts  of the documents, as they were given
    sides  train, validation or test for each, where the corpus says so itself
    """

    name: str
    texts: list[str]
    sides: list[str] | None = None
    rule: VocabularyRule = EVERY


def open_corpus(
    spec: str,
    limit: int | None = None,
    lines: bool = False,
    option: str = "--corpus",
    tell: Tell | None = None,
) -> Corpus:
    """The corpus of a SPEC, its first `limit` documents where that is given.

    lines   a text file holds one document a line
    option  what named it, for the sentence of an error

    Raises UsageError for a SPEC that names none and for files that are no text, TensorstepError
    where the hub cannot be reached.
    """
    reader = reader_of(spec, limit, lines, option, tell)
    corpus = reader()
    return (
        corpus
        if limit is None
        else replace(
            corpus, texts=corpus.texts[:limit], sides=corpus.sides and corpus.sides[:limit]
        )
    )


def check_spec(spec: str, option: str = "--corpus") -> None:
    """Raises UsageError for a SPEC that names no corpus; reads nothing."""
    reader_of(spec, None, False, option, None)


def reader_of(
    spec: str, limit: int | None, lines: bool, option: str, tell: Tell | None
) -> Callable[[], Corpus]:
    """What will read the corpus of a SPEC."""
    if found := COUNTED.fullmatch(spec):
        name, count, seed = found[1], found[2], int(found[3] or 1)
        if count is not None and int(count) == 0:
            raise UsageError(f"{spec!r} has no document: ask for 1 or more")
        return lambda: written_here(name, int(count) if count else None, seed)
    if spec.startswith(("storybook:", "logs:")):
        raise UsageError(
            f"{spec!r} is no corpus: write storybook:N or storybook:N:SEED (logs too), with N of 6"
            " digits at the most"
        )
    if found := SELECTION.fullmatch(spec):
        from engine.data.tinystories import check_profile, read_selection

        profile = check_profile(found[1])
        return lambda: read_selection(profile, tell)
    if spec.startswith("hub:"):
        from engine.data.hub import parse_hub, read_hub

        source = parse_hub(spec)
        return lambda: read_hub(source, limit, tell)
    return files_of(spec, limit, lines, option, tell)


def written_here(name: str, count: int | None, seed: int) -> Corpus:
    """The storybook, or job logs: what this project writes itself."""
    if name == "storybook":
        from engine.data.storybook import write_stories

        return Corpus(name, write_stories(count or STORIES, seed), rule=EXPERIMENT)
    from engine.data.logs import reference_logs, write_logs

    if count is not None:
        try:
            return Corpus(name, write_logs(count, seed))
        except ValueError as error:
            raise UsageError(f"{name}:{count}: {error}") from None
    logs = reference_logs()
    return Corpus(name, [log.text for log in logs], [log.split for log in logs])


def files_of(
    spec: str, limit: int | None, lines: bool, option: str, tell: Tell | None
) -> Callable[[], Corpus]:
    """Documents from a path: a text file, a folder, .jsonl or .parquet, these two with `:FIELD`."""
    path, field = spec, FIELD
    if not os.path.exists(spec) and ":" in spec:
        before, _, after = spec.rpartition(":")
        if before.endswith((".jsonl", ".parquet")):
            path, field = before, after
    if option == "--corpus" and not os.path.exists(path):
        raise UsageError(f"there is no corpus and no file {path!r}: use {KINDS}")
    name = os.path.basename(os.path.abspath(path))
    if path.endswith(".jsonl"):
        return lambda: Corpus(name, read_json_lines(path, field, option, tell), rule=EXPERIMENT)
    if path.endswith(".parquet"):
        from engine.data.hub import read_parquet

        return lambda: Corpus(name, read_parquet(path, field, limit, tell), rule=EXPERIMENT)
    if os.path.isdir(path) and option == "--corpus":
        return lambda: Corpus(name, read_folder(path, option, tell), rule=EXPERIMENT)
    return lambda: Corpus(name, read_documents(path, lines, option))
