"""The audit of a corpus: how much of it is where, and whether anything leaked from one side of the
split to another."""

from __future__ import annotations

from statistics import median
from typing import Any

from engine.data.corpus import Corpus
from engine.data.encoding import Encoded
from engine.data.split import SIDES, Split, normalized
from engine.data.windows import Stream
from engine.text.tokenizer import Tokenizer

Audit = dict[str, Any]


def audit_of(corpus: Corpus, split: Split, encoded: Encoded) -> Audit:
    """`documents`, `tokens` (boundaries not counted), `unknown` and `windows` by side,
    `duplicates_dropped`, `overlap` (texts, normalized, that are on two sides), `vocabulary_size`,
    and `length_tokens`: min, median and max by side, None where it has no documents."""
    tokenizer = encoded.tokenizer
    streams = [encoded.streams[side] for side in SIDES]
    return {
        "documents": by_side(len(stream) for stream in streams),
        "tokens": by_side(int(lengths(stream, tokenizer).sum()) for stream in streams),
        "unknown": by_side(unknown(stream, tokenizer) for stream in streams),
        "windows": by_side(int((stream.lengths - 1).clamp(min=0).sum()) for stream in streams),
        "duplicates_dropped": split.duplicates_dropped,
        "overlap": overlap(corpus, split),
        "vocabulary_size": len(tokenizer),
        "length_tokens": by_side(spread(lengths(stream, tokenizer).tolist()) for stream in streams),
    }


def by_side(figures: Any) -> dict[str, Any]:
    return dict(zip(SIDES, figures, strict=True))


def lengths(stream: Stream, tokenizer: Tokenizer) -> Any:
    """[D] tokens of each document, boundaries not counted."""
    return stream.lengths - sum(i is not None for i in (tokenizer.bos_id, tokenizer.eos_id))


def unknown(stream: Stream, tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.unk_id is None else int((stream.ids == tokenizer.unk_id).sum())


def overlap(corpus: Corpus, split: Split) -> int:
    """Counted from the texts themselves, not from how they were split."""
    texts = {side: {normalized(corpus.texts[n]) for n in split.documents[side]} for side in SIDES}
    everywhere = set().union(*texts.values())
    return sum(map(len, texts.values())) - len(everywhere)


def spread(counts: list[int]) -> dict[str, float | int | None]:
    if not counts:
        return dict.fromkeys(("min", "median", "max"))
    middle = median(counts)
    return {
        "min": min(counts),
        "median": int(middle) if middle == int(middle) else middle,
        "max": max(counts),
    }
