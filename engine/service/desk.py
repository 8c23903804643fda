"""Answers to requests about walks and corpora, in plain data."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from engine.errors import UsageError
from engine.progress import Tell

Answer = dict[str, Any] | tuple[dict[str, Any], bytes]


class Desk:
    """Answers requests. Importing tensors waits for the first one, so that starting is quick.

    tell  is told how far a request that takes long has come; it may raise, to give it up
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self._session: Any = None
        self._reader: Any = None
        self._tell = tell

    def answer(self, method: str, params: dict[str, Any]) -> Answer:
        """The answer to one request. Raises TensorstepError for one that cannot be answered."""
        methods: dict[str, Callable[..., Answer]] = {
            "open": self.open,
            "look": self.look,
            "move": self.move,
            "parameters": self.parameters,
            "table": self.table,
            "explain": self.explain,
            "dump": self.dump,
            "losses": self.losses,
            "audit": self.audit,
            "story": self.story,
            "find": self.find,
            "tokenize": self.tokenize,
        }
        if method not in methods:
            raise UsageError(f"the worker does not know how to {method!r}")
        return methods[method](**params)

    def open(self, options: dict[str, Any]) -> Answer:
        """Make a session. Tells the size of the vocabulary, of the data, and the versions."""
        import torch

        from engine.service.options import Options
        from engine.service.reading import Reader
        from engine.service.session import Session

        self._session = Session(Options.from_json(options), self._tell)
        prepared = self._session.prepared
        self._reader = Reader(prepared, self._tell)
        return {
            "corpus": prepared.corpus.name,
            "vocabulary": len(prepared.tokenizer),
            "windows": len(prepared.windows),
            "torch": torch.__version__,
            "device": "cpu",
            "pid": os.getpid(),
        }

    def _walk(self, map: str, model: str) -> Any:
        if self._session is None:
            raise UsageError("nothing is open yet")
        return self._session.walk(map, model)

    def _record(self, walk: Any, name: str, step: int) -> Any:
        record = walk.record(name, step)
        if record is None:
            raise UsageError(f"no state of step {step} of the {walk.process.map} map is {name!r}")
        return record

    def look(self, map: str, model: str, name: str | None = None, step: int = 0) -> Answer:
        """The state under the cursor, or the one of that name."""
        from engine.service.describe import describe, standing

        walk = self._walk(map, model)
        record = walk.current if name is None else self._record(walk, name, step)
        return {"state": describe(walk, record), "standing": standing(walk), "moved": True}

    def move(
        self, map: str, model: str, how: str, step: int = 0, name: str | None = None
    ) -> Answer:
        """Move the cursor: forward, back, next_stage, back_stage, next_step, back_step, to_stage
        (by its key), or seek (by step and name; a parameter or a part is looked at beside it)."""
        from engine.service.describe import describe, standing

        walk = self._walk(map, model)
        ways = ("forward", "back", "next_stage", "back_stage", "next_step", "back_step")
        moved, record = True, None
        if how == "seek":
            record = seek(walk, step, name, self._tell)
        elif how == "to_stage":
            moved = walk.seek_stage(name)
        elif how in ways:
            moved = getattr(walk, how)()
        else:
            raise UsageError(f"there is no way {how!r} to move")
        return {
            "state": describe(walk, record or walk.current),
            "standing": standing(walk),
            "moved": moved,
            "beside": record is not None,
            "ended": None if moved else walk.process.ended(walk.cursor.step),
        }

    def parameters(self, map: str, model: str) -> Answer:
        """The names of the stored parameters, and the step after which they stand as they do."""
        walk = self._walk(map, model)
        names = [f"parameters.{name}" for name in walk.process.axes]
        return {"names": names, "step": walk.ended_step}

    def table(
        self,
        map: str,
        model: str,
        name: str,
        step: int,
        fixed: list[int],
        rows: list[int],
        columns: list[int],
    ) -> Answer:
        """The visible cells of a state: see `describe.table`."""
        from engine.service.describe import table

        walk = self._walk(map, model)
        record = self._record(walk, name, step)
        tokens = self._session.prepared.tokenizer.itos
        first, end = rows
        left, right = columns
        return table(walk, record, tokens, fixed, (first, end), (left, right))

    def explain(
        self,
        map: str,
        model: str,
        name: str,
        step: int,
        cell: list[int],
        most: int | None = None,
    ) -> Answer:
        """Where one cell comes from: see `describe.explanation`."""
        from engine.service.describe import explanation

        walk = self._walk(map, model)
        return explanation(self._record(walk, name, step), tuple(cell), most)

    def dump(self, map: str, model: str, max_values: int) -> Answer:
        """The state under the cursor with its values."""
        from engine.service.describe import dump

        walk = self._walk(map, model)
        return dump(walk, walk.current, max_values)

    def losses(self, map: str, model: str, most: int = 1000) -> Answer:
        """The loss of each step so far: the last `most`, and the step of the first of them."""
        losses = self._walk(map, model).losses
        first = max(0, len(losses) - most)
        return {"first": first + 1, "losses": losses[first:]}

    # --- the corpus -------------------------------------------------------------------------

    @property
    def reader(self) -> Any:
        if self._reader is None:
            raise UsageError("nothing is open yet")
        return self._reader

    def audit(self) -> Answer:
        """The audit of the corpus: see `engine.service.reading`, as for all of these."""
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


def seek(walk: Any, step: int, name: str | None, tell: Tell | None = None) -> Any:
    """Move the cursor to a state; or return the record of a parameter or part, which no cursor
    stands on. Raises UsageError where there is neither."""
    try:
        walk.seek(step, name, tell)
    except UsageError:
        record = walk.record(name, step) if name and 0 <= step <= walk.frontier else None
        if record is None:
            raise
        return record
    return None
