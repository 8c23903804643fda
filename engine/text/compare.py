"""The same text under several tokenizers, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.text.tokenizer import Tokenizer, readable


def compare(
    text: str, tokenizers: Iterable[Tokenizer], most: int | None = None
) -> list[dict[str, Any]]:
    """What each tokenizer makes of a text: `tokenizer` (its name), `pieces` (as text; bytes that
    are only part of a character by their number), `bytes` (of each piece, in hexadecimal) and
    `ids`, the first `most` of them where that is given; `count` of all, and how many of these are
    `unknown` (their ID is `unk_id`).
    """
    rows = []
    for tokenizer in tokenizers:
        ids, pieces = tokenizer.encode(text), tokenizer.pieces(text)
        rows.append(
            {
                "tokenizer": tokenizer.name,
                "pieces": [readable(piece) for piece in pieces[:most]],
                "bytes": [piece.hex() for piece in pieces[:most]],
                "ids": ids[:most],
                "count": len(ids),
                "unknown": 0 if tokenizer.unk_id is None else ids.count(tokenizer.unk_id),
                "unk_id": tokenizer.unk_id,
            }
        )
    return rows
