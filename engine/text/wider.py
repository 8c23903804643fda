"""A tokenizer beside a model that knows more IDs: published vocabularies are often padded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from engine.text.tokenizer import Tokenizer, inside


class WiderTokenizer:
    """Another tokenizer with as many entries as a model: those beyond it are called #422, and are
    no text. See `engine.text.tokenizer.Tokenizer`.

    own  how many entries are the other's
    """

    def __init__(self, inner: Tokenizer, own: int, size: int):
        self._inner, self._own, self._size = inner, own, size
        self.name, self.rule, self.order = inner.name, inner.rule, inner.order
        self.pad_id = inner.pad_id if inner.pad_id is not None and inner.pad_id < own else None
        self.bos_id, self.eos_id, self.unk_id = inner.bos_id, inner.eos_id, inner.unk_id

    @cached_property
    def itos(self) -> Sequence[str]:
        return [*self._inner.itos[: self._own], *(f"#{i}" for i in range(self._own, self._size))]

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str, special: bool = False) -> list[int]:
        return self._inner.encode(text, special)

    def pieces(self, text: str) -> list[bytes]:
        return self._inner.pieces(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self._inner.decode(i for i in inside(ids, self._size) if i < self._own)

    def save(self, path: Path) -> None:
        self._inner.save(path)
