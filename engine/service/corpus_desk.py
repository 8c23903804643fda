"""Answers to requests about the corpus that is open: see `engine.service.reading`."""

from __future__ import annotations

from typing import Any

from engine.errors import UsageError
from engine.service.line import Answer


class CorpusDesk:
    """The part of a desk that reads texts."""

    _reader: Any = None

    @property
    def reader(self) -> Any:
        if self._reader is None:
            raise UsageError("nothing is open yet")
        return self._reader

    def audit(self) -> Answer:
        """The audit of the corpus."""
        told: dict[str, Any] = self.reader.audit()
        return told

    def story(self, number: int, at: int = 1, before: int = 400) -> Answer:
        """One document, with tokens and IDs around token `at`, `before` of them before it."""
        told: dict[str, Any] = self.reader.story(number, at, before)
        return told

    def find(self, text: str, number: int, at: int, back: bool = False) -> Answer:
        """Where a text comes next."""
        return {"found": self.reader.find(text, number, at, back)}

    def tokenize(
        self, text: str | int, names: list[str] | None = None, most: int | None = None
    ) -> Answer:
        """A text (or a story by its number) under several tokenizers; without a corpus they are
        fitted on the text itself."""
        if self._reader is not None:
            return {"tokenizers": self._reader.tokenize(text, names, most)}
        from engine.service.reading import tokenize_alone

        return {"tokenizers": tokenize_alone(str(text), names, most)}
