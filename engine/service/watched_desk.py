"""Answers the screens of a loop that is not ours: how it stands, what it is to do, and, while it
stands still, about the step that has just ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import UsageError
from engine.maps import MODULE, TRAINING
from engine.runs.conditions import condition_of
from engine.service.control import Control
from engine.service.line import Answer
from engine.service.reception import Visitor
from engine.service.watched import WatchedDesk
from engine.walk import Position, Walk

CHANGING = ("pause", "resume", "stop", "breakpoints", "edit", "undo")
ITS_OWN = (
    "this run is a loop of your own: it ends where it runs, or where it looks at run.stopping,"
    " which is set now"
)


class Answers:
    """Answers in the threads of screens; the loop's thread does what needs tensors.

    standing   what is told beside the state: step, memory, ...
    noticed    is called when the loop is to look at the control
    stopping   whether somebody has asked it to end
    """

    def __init__(
        self,
        control: Control,
        facts: dict[str, Any],
        standing: Callable[[], dict[str, Any]],
        noticed: Callable[[], None],
    ):
        self.control = control
        self.facts = facts
        self.stopping = False
        self._standing = standing
        self._noticed = noticed
        self._desk = WatchedDesk()

    def show(self, walk: Walk | None) -> None:
        """What is walked while the loop stands still."""
        self._desk.session.stands = walk

    def answer(self, visitor: Visitor, method: str, params: dict[str, Any]) -> Answer:
        """The answer to one request. Raises TensorstepError for one that cannot be answered."""
        if method == "attach":
            visitor.read_only = bool(params.get("read_only"))
            return {**self.facts, **self.status()}
        if visitor.read_only and method in CHANGING:
            raise UsageError("this screen only reads: attach without --read-only to change the run")
        plain: dict[str, Callable[[], None]] = {
            "status": lambda: None,
            "pause": self.control.pause,
            "resume": self.control.resume,
            "stop": self._stop,
            "breakpoints": lambda: self._breakpoints(**params),
        }
        if method in plain:
            plain[method]()
            if method != "status":
                self._noticed()
            return self.status()
        return self.control.do(lambda: self._walked(visitor, method, params))

    def status(self) -> dict[str, Any]:
        told = self.control.status(self._standing)
        trouble = told.pop("trouble")
        return {**told, "why": told["why"] or trouble, "ratios": None}

    def _stop(self) -> None:
        self.stopping = True
        self.control.resume()
        raise UsageError(ITS_OWN)

    def _breakpoints(self, add: str | None = None, remove: int | None = None) -> None:
        if add is not None:
            if condition_of(add).wanted:
                raise UsageError(
                    f"{add!r} reads states, which a loop of your own shows only while it stands"
                    " still: give a condition on its metrics, such as loss > 8"
                )
            self.control.add_breakpoint(add)
        if remove is not None:
            self.control.remove_breakpoint(remove)

    def _walked(self, visitor: Visitor, method: str, params: dict[str, Any]) -> Answer:
        """In the loop's thread. Each screen has a cursor of its own."""
        desk = self._desk
        walk = desk.session.walk(params.get("map", TRAINING), params.get("model", MODULE))
        stood, place = visitor.cursors.get(TRAINING, (None, None))
        walk.cursor = place if stood is walk else Position(walk.frontier, 0)
        desk.tell = visitor.line.tell
        try:
            return desk.answer(method, params)
        finally:
            visitor.cursors[TRAINING] = (walk, walk.cursor)
