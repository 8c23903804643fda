"""A corpus in plain data: its audit, one story with its tokens and windows, a search, and the same
text under several tokenizers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from engine.data.preparation import Prepared
from engine.data.split import DUPLICATE, SIDES, TRAIN
from engine.errors import UsageError
from engine.progress import Tell, tracked
from engine.text.compare import compare
from engine.text.loading import at_hand, is_cut, open_tokenizer
from engine.text.places import Places
from engine.text.tokenizer import Tokenizer, bounded, readable
from engine.text.vocabulary import PAD

AROUND = 400  # tokens told of on either side of the one that is looked at
TEXT = 20_000  # characters of a story told of
MANY = 200_000  # tokens of a story that is not cut again, so that unknown ones are not spelt out
LISTED = 2000  # pieces of a comparison told of


class Reader:
    """Reads one prepared corpus."""

    def __init__(self, prepared: Prepared, tell: Tell | None = None):
        self.prepared = prepared
        self._tell = tell
        self._found_in: tuple[int, Places] | None = None  # the story searched last
        self._cut: tuple[int, list[int], list[str]] | None = None  # the story cut last

    def audit(self) -> dict[str, Any]:
        """The audit, with the corpus's name, how it was split and what cut it."""
        prepared = self.prepared
        told = {
            "corpus": prepared.corpus.name,
            "split": prepared.split.how,
            "tokenizer": prepared.tokenizer.name,
            "context": prepared.context_len,
        }
        return {**told, **prepared.audit}

    @cached_property
    def _places(self) -> dict[int, tuple[str, int]]:
        """Side and place in its stream of each document by number."""
        documents = self.prepared.split.documents
        return {n: (side, at) for side in SIDES for at, n in enumerate(documents[side])}

    def story(self, number: int, at: int = 1, before: int = AROUND) -> dict[str, Any]:
        """One document: `text`, `side`, and around token `at` the `pieces` and `ids` from number
        `first` on, `before` of them before it, boundaries included; `count` is how many there are.
        Its windows predict tokens 1 to `count` - 1.

        Raises UsageError where there is no such document.
        """
        texts = self.prepared.corpus.texts
        if not 0 <= number < len(texts):
            raise UsageError(f"there is no story {number}: they are 0 to {len(texts) - 1}")
        text = texts[number]
        ids, pieces = self._tokens(number)
        at = max(1, min(at, len(ids) - 1))
        first = max(0, at - before)
        return {
            "number": number,
            "stories": len(texts),
            "side": self.prepared.split.sides[number],
            "text": text[:TEXT],
            "cut": len(text) > TEXT,
            "at": at,
            "first": first,
            "count": len(ids),
            "pieces": pieces[first : at + AROUND],
            "ids": ids[first : at + AROUND],
            "unknown": self.prepared.tokenizer.unk_id,
            "pad": PAD,
        }

    def _tokens(self, number: int) -> tuple[list[int], list[str]]:
        """IDs and pieces of a document, boundaries included."""
        if self._cut is None or self._cut[0] != number:
            self._cut = number, *self._cut_anew(number)
        return self._cut[1], self._cut[2]

    def _cut_anew(self, number: int) -> tuple[list[int], list[str]]:
        tokenizer, text = self.prepared.tokenizer, self.prepared.corpus.texts[number]
        side, at = self._places.get(number, (DUPLICATE, 0))
        if side == DUPLICATE:
            ids = bounded(tokenizer, tokenizer.encode(text))
        else:
            ids = self.prepared.streams[side].document(at).tolist()
        if len(ids) > MANY:  # cutting a document of megabytes again would take seconds
            return ids, [tokenizer.itos[i] for i in ids]
        inner = [readable(piece) for piece in tokenizer.pieces(text)]
        before = tokenizer.bos_id is not None
        return ids, [
            *(tokenizer.itos[i] for i in ids[:before]),
            *inner,
            *(tokenizer.itos[i] for i in ids[before + len(inner) :]),
        ]

    def find(self, text: str, number: int, at: int, back: bool = False) -> dict[str, Any] | None:
        """The next place of a text after token `at` of a story (or before it), round and round:
        `number` and `at`; None where it is nowhere. Case does not count. #12 is story 12.

        Raises UsageError for a story that there is not.
        """
        if named := re.fullmatch(r"#(\d+)", text.strip()):
            return {"number": self.story(int(named[1]))["number"], "at": 1}
        texts = self.prepared.corpus.texts
        wanted = re.compile(re.escape(text), re.IGNORECASE)
        way = -1 if back else 1
        for step in tracked(range(len(texts) + 1), "looking for it", len(texts) + 1, self._tell):
            n = (number + way * step) % len(texts)
            offsets = [found.start() for found in wanted.finditer(texts[n])]

            def place(offset: int, n: int = n) -> int:
                return self._token_at(n, offset)

            if step == 0:  # those beyond where we are; tokens come in the order of characters
                offsets = (
                    offsets[: bisect_left(offsets, at, key=place)]
                    if back
                    else offsets[bisect_right(offsets, at, key=place) :]
                )
            if offsets:
                return {"number": n, "at": place(offsets[-1 if back else 0])}
        return None

    def _token_at(self, number: int, offset: int) -> int:
        """The number of the token that begins at, or holds, a character of a story."""
        if self._found_in is None or self._found_in[0] != number:
            text = self.prepared.corpus.texts[number]
            self._found_in = number, Places(self.prepared.tokenizer, text)
        return self._found_in[1].token_at(offset) + (self.prepared.tokenizer.bos_id is not None)

    def tokenize(
        self, text: str | int, names: list[str] | None = None, most: int | None = LISTED
    ) -> list[dict[str, Any]]:
        """A text, or a story by its number, under several tokenizers; those that are fitted are
        fitted on the documents that train."""
        if isinstance(text, int):
            text = self.prepared.corpus.texts[text]
        return compare(text, self.tokenizers(names), most)

    def tokenizers(self, names: list[str] | None) -> Iterable[Tokenizer]:
        own = self.prepared.tokenizer
        for name in dict.fromkeys(names or [own.name, *at_hand()]):
            yield own if name == own.name else self._opened(name)

    def _opened(self, name: str) -> Tokenizer:
        if is_cut(name):  # by the same rule as the corpus's own
            from engine.data.encoding import encode_counted

            corpus, split = self.prepared.corpus, self.prepared.split
            return encode_counted(corpus, split, name, None).tokenizer
        texts, training = self.prepared.corpus.texts, self.prepared.split.documents[TRAIN]
        told = tracked(training, f"training {name}", len(training), self._tell)
        return open_tokenizer(name, lambda: (texts[n] for n in told))


def tokenize_alone(
    text: str, names: list[str] | None = None, most: int | None = None
) -> list[dict[str, Any]]:
    """A text under several tokenizers; those that are fitted are fitted on the text itself."""
    opened = (open_tokenizer(name, lambda: [text]) for name in names or at_hand())
    return compare(text, opened, most)
