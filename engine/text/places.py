"""Which token holds a character of a text."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from engine.text.cutting import CutTokenizer
from engine.text.tokenizer import Tokenizer
from engine.text.words import TOKEN, normalize


class Places:
    """The tokens of one text by the characters they begin at."""

    def __init__(self, tokenizer: Tokenizer, text: str):
        self._text = text
        self._words = isinstance(tokenizer, CutTokenizer) and tokenizer.name == "words"
        if self._words:  # tokens of the normalized text, without the white space between them
            self._starts = [found.start() for found in TOKEN.finditer(normalize(text))]
            return
        sizes = [len(piece) for piece in tokenizer.pieces(text)]
        added = sum(sizes) - len(text.encode())  # a space that some tokenizers put in front
        self._starts = [start - added for start in accumulate(sizes, initial=0)][:-1]

    def token_at(self, offset: int) -> int:
        """The number of the token that begins at, or holds, the character at `offset`; of one that
        lies between two tokens, the one before (0 where there is none)."""
        before = self._text[:offset]
        at = len(normalize(before)) if self._words else len(before.encode())
        return max(0, bisect_right(self._starts, at) - 1)
