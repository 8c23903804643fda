"""Tokenizers by name or path, fitted on texts where they need it, and as they were saved."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.errors import UsageError
from engine.text.cutting import BY_COUNT, CUTS, SORTED, Counted, CutTokenizer
from engine.text.tiktokens import TiktokenTokenizer, encoding_names, is_at_hand, open_encoding
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary

BPE = re.compile(r"bpe(?::(\d{1,7}))?")
BPE_SIZE = 1000  # of one that is trained here, at most, unless its name says another
PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
KINDS = "words, characters, bpe, bpe:SIZE, the name of a tiktoken encoding, or a path"


def is_cut(spec: str) -> bool:
    """Whether it cuts by a rule, with a vocabulary that is fitted on texts."""
    return spec in CUTS


def needs_texts(spec: str) -> bool:
    """Whether the tokenizer is made from the texts it is to cut."""
    return is_cut(spec) or BPE.fullmatch(spec) is not None


def check_name(spec: str) -> None:
    """Raises UsageError for a name that no tokenizer has; opens nothing."""
    if needs_texts(spec) or os.path.exists(spec) or spec in encoding_names():
        return
    if spec.startswith("bpe:"):
        raise UsageError(f"{spec!r} names no size: write bpe:SIZE, such as bpe:1000")
    if os.sep in spec or spec.endswith(".json"):
        raise UsageError(f"there is no file {spec!r}: check the path of the tokenizer")
    raise UsageError(f"there is no tokenizer {spec!r}: use {KINDS}")


def open_tokenizer(spec: str, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer of a name or path; `texts` gives what one that needs it is fitted on.

    Raises UsageError for a name that no tokenizer has, and for files that are none.
    """
    check_name(spec)
    if is_cut(spec):
        return fit_cut(spec, texts())
    if found := BPE.fullmatch(spec):
        from engine.text.bpe import BPETokenizer

        return BPETokenizer.train(texts(), int(found[1] or BPE_SIZE), at_most=found[1] is None)
    if os.path.exists(spec):
        return load_tokenizer(Path(spec))
    return open_encoding(spec)


def fit_cut(
    kind: str,
    texts: Iterable[str],
    max_vocab: int | None = None,
    min_freq: int = 1,
    by_count: bool = False,
) -> CutTokenizer:
    """Words or characters with the vocabulary of these texts."""
    counted = Counted(kind)
    numbers = [counted.encode(text) for text in texts]
    counts = [0] * len(counted.tokens)
    for ids in numbers:
        for i in ids:
            counts[i] += 1
    found = dict(zip(counted.tokens, counts, strict=True))
    vocabulary = Vocabulary.of_counts(found, max_vocab, min_freq, by_count)
    return CutTokenizer(kind, vocabulary, BY_COUNT if by_count else SORTED)


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from what `save` wrote, from a `tokenizer.json` of the library `tokenizers`, or
    from a folder with one, or with a vocabulary and merges; from either file of such a pair too.

    Raises UsageError, in one sentence, for anything else.
    """
    if path.is_dir():
        return load_folder(path)
    for names in PAIRS:
        if path.name in names:
            return load_pair(path.parent, *names)
    fields = read_json(path)
    kind = fields.get("tensorstep")
    try:
        if kind is None:
            from engine.text.bpe import read_tokenizer_json

            return read_tokenizer_json(path)
        if kind == "tiktoken":
            return TiktokenTokenizer.from_fields(fields)
        return CutTokenizer.from_fields(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{str(path)!r} is no saved tokenizer: {error}") from None


def load_folder(path: Path) -> Tokenizer:
    if (path / "tokenizer.json").is_file():
        return load_tokenizer(path / "tokenizer.json")
    for names in PAIRS:
        if all((path / name).is_file() for name in names):
            return load_pair(path, *names)
    pairs = " or ".join(" and ".join(names) for names in PAIRS)
    raise UsageError(
        f"the folder {str(path)!r} holds no tokenizer: neither tokenizer.json nor {pairs}"
    )


def load_pair(folder: Path, vocab: str, merges: str) -> Tokenizer:
    from engine.text.bpe import read_vocab_and_merges

    for name in (vocab, merges):
        if not (folder / name).is_file():
            raise UsageError(f"the folder {str(folder)!r} lacks {name}: a BPE needs both files")
    return read_vocab_and_merges(folder / vocab, folder / merges)


def read_json(path: Path) -> dict[str, object]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error.strerror}): check it") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{str(path)!r} is no tokenizer: it is not JSON") from None
    if not isinstance(fields, dict):
        raise UsageError(f"{str(path)!r} is no tokenizer: it holds no JSON object")
    return fields


def at_hand() -> list[str]:
    """The tokenizers that can be compared on any text, without files and without a network."""
    return [*CUTS, *(["cl100k_base"] if is_at_hand("cl100k_base") else [])]
