"""What the screens of a run may do with a loop that is going: pause it, have it go on, stop it,
break it on a condition, and ask about its tensors. Knows no tensors.

The loop calls `between` after each step, in its own thread, which alone touches tensors: what
screens ask for waits until then. Screens are answered by threads of their own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from engine.errors import UsageError
from engine.runs.conditions import Condition, condition_of
from engine.runs.directory import ENDED, PAUSED, RUNNING, STARTING, STOPPING

Found = TypeVar("Found")
Figures = Mapping[tuple[str, str], float]
OFTEN = 0.5  # seconds after which those who wait look whether the loop is still there
GOING = "the run is going: pause it first (space)"


def nothing() -> None:
    """The job that only wakes the loop."""


class Control:
    """Shared by a loop and the threads of its screens.

    changed  is called with the state and why, when either is another
    """

    def __init__(self, changed: Callable[[str, str | None], None] = lambda state, why: None):
        self.state = STARTING
        self.why: str | None = None
        self.breakpoints: list[Condition] = []
        self._stops = 0  # how often the loop has come to stand still
        self._changed = changed
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._asked = False  # whether a pause was asked for that has not begun
        self._stands = threading.Event()  # set while jobs are done at once

    # --- in the threads of screens ------------------------------------------------------------

    def pause(self) -> None:
        """Ask the loop to stand still when its step has ended."""
        with self._lock:
            self._asked = self.state in (STARTING, RUNNING, PAUSED)  # which may be for a moment

    def resume(self) -> None:
        """Have the loop go on."""
        with self._lock:
            self._asked = False
            if self.state != PAUSED:
                return
        self._set(RUNNING)
        self._jobs.put(nothing)

    def stop(self) -> None:
        """Have the loop end when its step has ended."""
        if self.state not in ENDED:
            self._set(STOPPING)
            self._jobs.put(nothing)

    def do(self, job: Callable[[], Found]) -> Found:
        """Have the loop's thread do something while it stands still; returns what it returned.

        Raises UsageError while the loop is going.
        """
        if not self._stands.is_set() and self.state != PAUSED:  # it stands a moment later
            raise UsageError(GOING)
        done: Future[Found] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():  # nobody waits for it any more
                return
            try:
                if not self._stands.is_set():
                    raise UsageError(GOING)
                done.set_result(job())
            except BaseException as error:  # the one who asked is told
                done.set_exception(error)

        self._jobs.put(work)
        while True:
            try:
                return done.result(timeout=OFTEN)
            except TimeoutError:
                if not done.done() and self.state in ENDED:
                    raise UsageError("the run has ended") from None
                if self.state != PAUSED and done.cancel():  # it went on before it came to it
                    raise UsageError(GOING) from None

    def add_breakpoint(self, text: str) -> None:
        """One more condition. Raises UsageError for one that is none."""
        self.breakpoints = [*self.breakpoints, condition_of(text)]

    def remove_breakpoint(self, number: int) -> None:
        """Raises UsageError where there is no such one."""
        if not 0 <= number < len(self.breakpoints):
            raise UsageError(f"there is no breakpoint {number + 1}: B lists them")
        kept = list(self.breakpoints)
        del kept[number]
        self.breakpoints = kept

    # --- in the loop's thread -----------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.state == STOPPING

    @property
    def asked(self) -> bool:
        """Whether a pause was asked for that has not begun."""
        return self._asked

    @property
    def wanted(self) -> frozenset[tuple[str, str]]:
        """Which figures of which states the breakpoints read: function and state."""
        return frozenset(each for one in self.breakpoints for each in one.wanted)

    def start(self) -> None:
        """The loop begins."""
        if self.state == STARTING:
            self._set(RUNNING)

    def end(self, state: str, why: str | None = None) -> None:
        """The loop has ended; what is still asked for is refused."""
        self._set(state, why)
        self._stands.clear()
        self._serve_waiting()

    def hold(self, why: str | None) -> None:
        """Stand still after this step, for a reason."""
        if not self.stopping:
            self._set(PAUSED, why)

    def be_again(self, state: str, why: str | None) -> None:
        """What held the loop is over: it goes on, or stands still for the reason it had before."""
        self._set(state, why)

    def broken(self, row: Mapping[str, float | None], figures: Figures) -> Condition | None:
        """The first breakpoint that holds in a step."""
        return next((each for each in self.breakpoints if each.holds(row, figures)), None)

    def between(self, after: Callable[[], None] = nothing) -> None:
        """Between two steps: stand still as long as the run is paused, doing what is asked for;
        `after` each thing done."""
        with self._lock:
            begin = self._asked
            self._asked = False
        if begin and self.state == RUNNING:
            self._set(PAUSED)
        while self.state == PAUSED:
            self.serve(None)
            after()
        self._serve_waiting()

    def serve(self, seconds: float | None) -> None:
        """Stand still until something was asked for and done, or so many seconds have passed."""
        self._stands.set()
        try:
            self._jobs.get(timeout=seconds)()
        except queue.Empty:
            pass
        finally:
            self._stands.clear()

    def _serve_waiting(self) -> None:
        while not self._jobs.empty():
            self._jobs.get()()

    def _set(self, state: str, why: str | None = None) -> None:
        with self._lock:
            if (state, why) == (self.state, self.why):
                return
            if self.state in ENDED or (self.state == STOPPING and state not in ENDED):
                return
            self._stops += state == PAUSED != self.state
            self.state, self.why = state, why
        with self._telling:  # in order: what is told last is how it stands
            self._changed(self.state, self.why)

    def status(self, beside: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
        """State, reason and breakpoints, with what is told beside them: all of one moment, for the
        loop goes on while a screen's thread reads."""
        while True:
            stands = self._standing()
            more = beside()
            if self._standing() == stands:
                return {**stands, **more}

    def _standing(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "why": self.why,
            "stops": self._stops,
            "breakpoints": [each.text for each in self.breakpoints],
        }
