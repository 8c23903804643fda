"""A tokenizer that is a short list of words: of an example that fits on paper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.errors import UsageError
from engine.text.tokenizer import inside


class ListedTokenizer:
    """Words between spaces, numbered as they are listed. Nothing else is known. See
    `engine.text.tokenizer.Tokenizer`."""

    rule = "words between spaces"
    order = "as they are listed"
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None

    def __init__(self, name: str, words: Sequence[str]):
        self.name = name
        self._words = tuple(words)

    @property
    def itos(self) -> Sequence[str]:
        return self._words

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Raises UsageError for a word that is not listed."""
        words = text.split()
        for word in words:
            if word not in self._words:
                raise UsageError(
                    f"{word!r} is no word of this example: use {', '.join(self._words)}"
                )
        return [self._words.index(word) for word in words]

    def pieces(self, text: str) -> list[bytes]:
        return [word.encode() for word in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self._words[i] for i in inside(ids, len(self)))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"words": self._words}))
