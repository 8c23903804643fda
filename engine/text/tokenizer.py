"""What every tokenizer does, whatever its kind: text to IDs and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Tokenizer(Protocol):
    """Cuts a text into pieces and numbers them.

    name     what it is called: words, characters, bpe, cl100k_base, a path
    rule     one sentence: how a text is cut
    order    one sentence: how the IDs are ordered
    itos     how each ID is shown, as text; `len` is the size of the vocabulary
    pad_id, bos_id, eos_id, unk_id   fills the slots before the beginning of a document; begins a
             document; ends it; stands for an unknown piece. None where the tokenizer has none
    """

    name: str
    rule: str
    order: str
    pad_id: int | None
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None

    @property
    def itos(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def encode(self, text: str, special: bool = False) -> list[int]:
        """IDs of a text, without boundaries. Text that spells a special token is plain text,
        unless `special` asks for the token itself."""
        ...

    def pieces(self, text: str) -> list[bytes]:
        """The bytes of each piece, in parallel with `encode(text)`."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of IDs, special ones left out; bytes that make no character are U+FFFD.

        Raises IndexError for an ID outside the vocabulary.
        """
        ...

    def save(self, path: Path) -> None:
        """Write everything that `engine.text.loading.load_tokenizer` needs into one JSON file."""
        ...


def bounded(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The IDs of a document: with the boundaries that the tokenizer has."""
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    end = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    return [*begin, *ids, *end]


def blocked(tokenizer: Tokenizer) -> dict[int, str]:
    """The IDs that are never generated, and their names: PAD, BOS and UNK, as far as it has them
    (an ID that both begins and ends documents may be generated: it ends the text)."""
    ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id)
    return {i: tokenizer.itos[i] for i in ids if i is not None and i != tokenizer.eos_id}


def readable(piece: bytes) -> str:
    """A piece as text; bytes that make no character are written \\xe2."""
    return piece.decode("utf-8", errors="backslashreplace")


def inside(ids: Iterable[int], size: int) -> list[int]:
    """The IDs as plain numbers. Raises IndexError for one outside a vocabulary of that size."""
    found = [int(i) for i in ids]
    for i in found:
        if not 0 <= i < size:
            raise IndexError(f"ID {i} is not in a vocabulary of {size}")
    return found
