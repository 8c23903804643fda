"""The words tokenizer: NFKC, lower case; words, numbers and single marks."""

from __future__ import annotations

import re
import unicodedata

# an ASCII word with at most one inner apostrophe part | digits | any other mark
TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|\S")
CLOSING = frozenset(".,!?;:")


def normalize(text: str) -> str:
    """NFKC and lower case, repeated until nothing changes (lower case can undo NFKC)."""
    while (changed := unicodedata.normalize("NFKC", text).lower()) != text:
        text = changed
    return text


def tokenize(text: str) -> list[str]:
    """The tokens of a text: "Lily can't find 12 balls!" -> lily can't find 12 balls !"""
    return TOKEN.findall(normalize(text))


def detokenize(tokens: list[str]) -> str:
    """A text with these tokens: spaces between them, but none before . , ! ? ; :

    `tokenize(detokenize(tokens)) == tokens` for whatever `tokenize` returns.
    """
    text = ""
    for token in tokens:
        if text and token not in CLOSING:
            text += " "
        text += token
    return text
