"""The tokens of many documents as one sequence, cut only where they are read: a million of them as
texts would take more memory than everything that training reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import overload

import torch

from engine.data.windows import Stream, offsets
from engine.text.tokenizer import Tokenizer, readable


class Pieces(Sequence[str]):
    """Token texts of documents, one after another, without boundaries."""

    def __init__(self, texts: list[str], tokenizer: Tokenizer, stream: Stream):
        self._begin = tokenizer.bos_id is not None
        boundaries = self._begin + (tokenizer.eos_id is not None)
        self._stream = stream
        self._firsts = offsets(stream.lengths - boundaries)  # [D + 1]

        @lru_cache(maxsize=4)
        def cut(document: int) -> list[str]:
            return [readable(piece) for piece in tokenizer.pieces(texts[document])]

        self._cut = cut

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no token {index}: there are {len(self)}")
        return self._at(index % len(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _at(self, index: int) -> str:
        document = int(torch.searchsorted(self._firsts, index, right=True)) - 1
        return self._cut(document)[index - int(self._firsts[document])]

    def token_of(self, at: int) -> int | None:
        """Which token the ID at a place of the stream is of; None for a boundary."""
        document = int(torch.searchsorted(self._stream.starts, at, right=True)) - 1
        within = at - int(self._stream.starts[document]) - self._begin
        first, end = self._firsts[document : document + 2].tolist()
        return first + within if 0 <= within < end - first else None
