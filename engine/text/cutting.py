"""Tokenizers that cut by a rule and number the pieces by a vocabulary: words and characters."""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.progress import Meter
from engine.text.tokenizer import inside
from engine.text.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from engine.text.words import detokenize, tokenize

SORTED = "the special tokens, then the sorted distinct tokens"
BY_COUNT = "the special tokens, then the tokens, most frequent first"
BLOCK = 1 << 20  # characters cut at once, so that a text of any length takes little memory
WHITE = re.compile(r"[ \n]")


@dataclass(frozen=True)
class Cut:
    """One way to cut a text: `pieces` cuts, `join` undoes it, `rule` says how."""

    pieces: Callable[[str], list[str]]
    join: Callable[[list[str]], str]
    rule: str


CUTS = {
    "words": Cut(tokenize, detokenize, "words, numbers and single marks"),
    "characters": Cut(list, "".join, "every character"),
}


class CutTokenizer:
    """Pieces by a rule, IDs by a vocabulary. See `engine.text.tokenizer.Tokenizer`."""

    def __init__(self, kind: str, vocabulary: Vocabulary, order: str = SORTED):
        self.name = kind
        self.vocabulary = vocabulary
        self.order = order
        self._cut = CUTS[kind]
        self.rule = self._cut.rule
        ids = vocabulary.stoi
        self.pad_id, self.bos_id = ids.get(PAD), ids.get(BOS)
        self.eos_id, self.unk_id = ids.get(EOS), ids.get(UNK)

    @classmethod
    def words(cls, vocabulary: Vocabulary) -> CutTokenizer:
        return cls("words", vocabulary)

    @property
    def itos(self) -> Sequence[str]:
        return self.vocabulary.itos

    def __len__(self) -> int:
        return len(self.vocabulary)

    def cut(self, text: str) -> list[str]:
        """The pieces of a text, known or not."""
        return self._cut.pieces(text)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """IDs, <UNK> for pieces that the vocabulary lacks. No text spells a special token here:
        its marks are pieces of their own."""
        ids: list[int] = []
        for block in blocks(text):
            ids += self.vocabulary.encode_tokens(self.cut(block), boundaries=False)
        return ids

    def pieces(self, text: str) -> list[bytes]:
        return [piece.encode("utf-8", "surrogatepass") for piece in self.cut(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return self._cut.join(self.vocabulary.decode_ids(inside(ids, len(self))))

    def save(self, path: Path) -> None:
        fields = {"tensorstep": self.name, "order": self.order, **asdict(self.vocabulary)}
        del fields["stoi"]  # follows from itos
        path.write_text(json.dumps(fields, ensure_ascii=True, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def from_fields(cls, fields: dict[str, object]) -> CutTokenizer:
        """What `save` wrote, read. Raises KeyError, TypeError or ValueError for anything else."""
        values = dict(fields)
        kind, order = str(values.pop("tensorstep")), str(values.pop("order"))
        itos = values["itos"]
        if not isinstance(itos, list) or not all(isinstance(token, str) for token in itos):
            raise ValueError("itos is no list of tokens")
        stoi = {token: i for i, token in enumerate(itos)}
        if len(stoi) != len(itos):
            raise ValueError("itos is no list of different tokens")
        return cls(kind, Vocabulary(stoi=stoi, **values), order)  # type: ignore[arg-type]


class Counted:
    """Documents cut and numbered in the order in which their pieces first come, and counted: what a
    vocabulary is fitted on without cutting twice.

    Pieces of all documents are never held as texts: 1.2 million of them take 60 MB.
    """

    def __init__(self, kind: str, meter: Meter | None = None):
        self._cut = CUTS[kind].pieces
        self._meter = meter or Meter("", None, None)  # told of characters
        self._number: defaultdict[str, int] = defaultdict()
        self._number.default_factory = self._number.__len__

    def encode(self, text: str) -> array[int]:
        """Provisional IDs of one document."""
        ids = array("i")
        for block in blocks(text):
            ids.extend(map(self._number.__getitem__, self._cut(block)))
            self._meter.add(len(block))
        return ids

    @property
    def tokens(self) -> list[str]:
        """The different pieces so far, in the order of their provisional IDs."""
        return list(self._number)


def blocks(text: str) -> Iterator[str]:
    """A text in parts of about BLOCK characters, cut before white space: no piece goes on there,
    and no character is composed across it."""
    begin = 0
    while (found := WHITE.search(text, begin + BLOCK)) is not None:
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]
