"""Answers the screens of a training run: how it stands, what it is to do, and, while it stands
still, about the walk of the step that comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import UsageError
from engine.maps import TRAINING
from engine.runs.conditions import condition_of
from engine.service.control import Control
from engine.service.desk import Desk
from engine.service.line import Answer
from engine.service.reception import Visitor
from engine.service.training_run import TrainingRun
from engine.walk import Position, Walk

CHANGING = ("pause", "resume", "stop", "breakpoints", "edit", "undo")


class RunDesk:
    """Answers for a run, in the threads of its screens; the loop's thread does what needs tensors.

    run  None while it is still being prepared
    """

    def __init__(self, control: Control, facts: dict[str, Any], screens: Callable[[], int]):
        self.control = control
        self.facts = facts
        self.screens = screens
        self.run: TrainingRun | None = None
        self.preparing: dict[str, Any] | None = None  # how far that is: what, done, total
        self._desk: Desk | None = None

    def take(self, run: TrainingRun) -> None:
        """The run is prepared."""
        self._desk = Desk.over(run.session)
        self.run = run

    def answer(self, visitor: Visitor, method: str, params: dict[str, Any]) -> Answer:
        """The answer to one request. Raises TensorstepError for one that cannot be answered."""
        if method == "attach":
            visitor.read_only = bool(params.get("read_only"))
            return {**self.facts, **self.status()}
        if visitor.read_only and method in CHANGING:
            raise UsageError("this screen only reads: attach without --read-only to change the run")
        control = self.control
        plain: dict[str, Callable[[], None]] = {
            "status": lambda: None,
            "pause": control.pause,
            "resume": control.resume,
            "stop": control.stop,
            "breakpoints": lambda: self._breakpoints(**params),
        }
        if method in plain:
            plain[method]()
            return self.status()
        return control.do(lambda: self._walked(visitor, method, params))

    def status(self) -> dict[str, Any]:
        if self.run is None:
            return {**self.control.status(), "step": 0, "preparing": self.preparing}
        self.run.screens = self.screens()
        return self.run.status()

    def tell(self, what: str, done: int, total: int | None) -> None:
        """How far preparing is."""
        self.preparing = {"what": what, "done": done, "total": total}

    def _breakpoints(self, add: str | None = None, remove: int | None = None) -> None:
        if add is not None:
            told = self.run.unknown([condition_of(add)]) if self.run is not None else None
            if told is not None:
                raise UsageError(told)
            self.control.add_breakpoint(add)
        if remove is not None:
            self.control.remove_breakpoint(remove)

    def _walked(self, visitor: Visitor, method: str, params: dict[str, Any]) -> Answer:
        """What is asked about a walk, in the loop's thread. Each screen has a cursor of its own."""
        run, desk = self.run, self._desk
        if run is None or desk is None:
            raise UsageError("the run is still being prepared")
        if method == "open":
            raise UsageError("a run is opened already: attach to it")
        live = run.open_walk()
        kind = params.get("map", TRAINING)
        walk = run.session.walk(kind, params.get("model"))
        walk.cursor = place_of(visitor, kind, walk, run)
        before = (live.frontier, len(live.records(live.frontier)))
        desk.tell = visitor.line.tell
        run.session.tell = visitor.line.tell
        walk.may_go_on = live.may_go_on = not visitor.read_only
        try:
            return desk.answer(method, params)
        finally:
            walk.may_go_on = live.may_go_on = True
            visitor.cursors[kind] = (live, run.session.walk(kind, params.get("model")).cursor)
            run.moves += (live.frontier, len(live.records(live.frontier))) != before


def place_of(visitor: Visitor, kind: str, walk: Walk, run: TrainingRun) -> Position:
    """Where a screen stands in a walk: where it left it, or, new to it, where everybody begins."""
    live, place = visitor.cursors.get(kind, (None, Position(0, 0)))
    if live is not run.walk and kind == TRAINING:
        place = run.entrance
    begun = place.step <= walk.frontier and place.index < len(walk.records(place.step))
    return place if begun else walk.cursor
