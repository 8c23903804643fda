"""Answers to requests about walks and corpora, in plain data."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from engine.errors import UsageError
from engine.progress import Tell
from engine.service.corpus_desk import CorpusDesk
from engine.service.line import Answer
from engine.service.work_desk import WorkDesk

AFTER, BEFORE, DIFFERENCE = VIEWS = ("after", "before", "difference")


class Desk(CorpusDesk, WorkDesk):
    """Answers requests. Importing tensors waits for the first one, so that starting is quick.

    tell  is told how far a request that takes long has come; it may raise, to give it up
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self._session: Any = None
        self._writing: Any = None
        self.tell = tell

    @classmethod
    def over(cls, session: Any) -> Desk:
        """A desk over a session that there is already."""
        desk = cls(session.tell)
        desk._session = session
        desk._reader = session.reader()
        return desk

    def answer(self, method: str, params: dict[str, Any]) -> Answer:
        """The answer to one request. Raises TensorstepError for one that cannot be answered."""
        methods: dict[str, Callable[..., Answer]] = {
            "open": self.open,
            "look": self.look,
            "move": self.move,
            "parameters": self.parameters,
            "table": self.table,
            "follow": self.follow,
            "norms": self.norms,
            "lens": self.lens,
            "edit": self.edit,
            "undo": self.undo,
            "summary": self.summary,
            "find_token": self.find_token,
            "explain": self.explain,
            "dump": self.dump,
            "losses": self.losses,
            "write": self.write,
            "audit": self.audit,
            "story": self.story,
            "find": self.find,
            "tokenize": self.tokenize,
            "export": self.export,
            "reproduce": self.reproduce,
            "learned": self.learned,
        }
        if method not in methods:
            raise UsageError(f"the worker does not know how to {method!r}")
        return methods[method](**params)

    def open(self, options: dict[str, Any]) -> Answer:
        """Make a session. Tells what is open: the size of its vocabulary, versions, notes."""
        import torch

        from engine.service.opened import open_session
        from engine.service.options import Options

        self._session = open_session(Options.from_json(options), self.tell)
        prepared = self._session.prepared
        self._reader = self._session.reader()
        return {
            "corpus": self._session.corpus_name,
            "vocabulary": len(prepared.tokenizer),
            "note": self._session.note,
            "trained": self._session.trained,
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
        return self._look(map, model, name, step)

    def _look(self, map: str, model: str, name: str | None = None, step: int = 0) -> dict[str, Any]:
        from engine.service.describe import describe, standing

        walk = self._walk(map, model)
        record = walk.current if name is None else self._record(walk, name, step)
        told = standing(walk) | {"edits": self._edits(map, model)}
        return {"state": describe(walk, record), "standing": told, "moved": True}

    def _edits(self, map: str, model: str) -> list[str]:
        """The edits of a walk, as they are written."""
        return [edit.written for edit in self._session.edits(map, model)]

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
            record = seek(walk, step, name, self.tell)
        elif how == "to_stage":
            moved = walk.seek_stage(name)
        elif how in ways:
            moved = getattr(walk, how)()
        else:
            raise UsageError(f"there is no way {how!r} to move")
        return {
            "state": describe(walk, record or walk.current),
            "standing": standing(walk) | {"edits": self._edits(map, model)},
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
        order: list[Any] | None = None,
        view: str = AFTER,
    ) -> Answer:
        """The visible cells of a state: see `describe.table`."""
        from engine.service.describe import table

        walk = self._walk(map, model)
        record = self._record(walk, name, step)
        tokens = self._session.prepared.tokenizer.itos
        first, end = rows
        left, right = columns
        ordered = None if order is None else (int(order[0]), int(order[1]), bool(order[2]))
        value = self._seen(map, model, record, view)
        seen = table(walk, record, tokens, fixed, (first, end), (left, right), ordered, value)
        if view == DIFFERENCE:  # of two IDs it is none
            seen[0].pop("tokens", None)
        return seen

    def _seen(self, map: str, model: str, record: Any, view: str) -> Any:
        """What is shown of an edited walk: its own values, those without the edits, or how much
        they differ."""
        if view == AFTER:
            return record.value
        walk = self._session.walk(map, model, original=True)
        before = seek(walk, record.step, record.name) or walk.current
        if view == BEFORE or record.kind == "text" or before.shape != record.shape:
            return before.value
        if record.value.dtype.is_floating_point:
            same = record.value == before.value  # infinities too, whose difference is no number
            return (record.value - before.value).masked_fill(same, 0.0)
        return record.value[:] - before.value[:] if record.shape else record.value - before.value

    def edit(
        self, map: str, model: str, name: str, step: int, cell: list[int], value: str
    ) -> Answer:
        """Another value in one cell: everything after it is computed again. A cell that holds an ID
        takes a token, too."""
        from engine.edits import Edit

        number = self._number(map, model, name, step, value)
        self._session.edit(map, model, Edit(step, name, tuple(cell), number))
        return self.look(map, model)

    def _number(self, map: str, model: str, name: str, step: int, value: str) -> float:
        from engine.service.describe import ID_STATES

        tokens = self._session.prepared.tokenizer.itos
        try:
            number = float(value)
        except ValueError:
            if name not in ID_STATES or value not in tokens:
                what = "a number, or a token of the vocabulary" if name in ID_STATES else "a number"
                raise UsageError(f"{value!r} is no value of {name}: give {what}") from None
            number = float(tokens.index(value))
        if name in ID_STATES and not 0 <= number < len(tokens):
            raise UsageError(f"ID {value} is not in a vocabulary of {len(tokens)}")
        return number

    def undo(self, map: str, model: str) -> Answer:
        """The last edit taken back."""
        undone = self._session.undo(map, model)
        return {**self._look(map, model), "undone": undone is not None}

    def follow(self, map: str, model: str, name: str, cell: list[int]) -> Answer:
        """What a cell of a parameter did in every step that has ended."""
        walk = self._walk(map, model)
        follower = self._session.follower(map, model, name, tuple(cell))
        return {"rows": follower.up_to(walk.ended_step, self.tell)}

    def norms(self, map: str, model: str, step: int) -> Answer:
        """All parameters at a glance, in a step that has ended (the last one, where it has not)."""
        from engine.follow import norms

        walk = self._walk(map, model)
        return norms(walk, min(step, walk.ended_step))

    def lens(self, map: str, model: str, step: int, page: str, **look: Any) -> Answer:
        """A page of the inside of a decoder: see `engine.service.inside`."""
        from engine.service.inside import Look, inside

        walk = self._walk(map, model)
        tokens = self._session.prepared.tokenizer.itos
        return inside(walk, step, tokens, page, Look(**look))

    def summary(self, map: str, model: str, name: str, step: int, view: str = AFTER) -> Answer:
        """How a state's cells are spread: see `engine.service.spread`."""
        from engine.service.spread import summary

        record = self._record(self._walk(map, model), name, step)
        return summary(self._seen(map, model, record, view))

    def find_token(self, text: str, after: int) -> Answer:
        """The next ID after one whose token holds a text, round and round; None where none does."""
        tokens = self._session.prepared.tokenizer.itos
        wanted = text.casefold()
        order = [*range(after + 1, len(tokens)), *range(after + 1)]
        return {"found": next((i for i in order if wanted in tokens[i].casefold()), None)}

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
        walk = self._walk(map, model)
        first = max(0, len(walk.losses) - most)
        return {"first": first + walk.first_loss, "losses": walk.losses[first:]}

    def write(self, cache: bool) -> Answer:
        """The next token of a text that is generated without a walk, from its beginning on: see
        `engine.service.writing`."""
        from engine.service.writing import Writing

        if self._session is None:
            raise UsageError("nothing is open yet")
        if self._writing is None:
            self._writing = Writing(self._session, cache)
        told: dict[str, Any] = self._writing.next()
        return told


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
