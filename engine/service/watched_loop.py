"""A loop that is not ours, watched: `step` and the optimizer's hook take numbers, a thread writes
them, and the loop stands still in `step` when a screen asks for it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import traceback
import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from engine.maps import MODULE
from engine.runs.directory import FAILED, FINISHED, PAUSED, STOPPED, RunDirectory
from engine.service.control import Control
from engine.service.reception import Reception
from engine.service.recording import Recording
from engine.service.training_run import memory_of
from engine.service.watched import FrozenStep
from engine.service.watched_desk import Answers
from engine.service.watched_files import Files, checked, directory_for, rank
from engine.service.watched_rows import GradientNorm, Rows, taken
from engine.service.watching import Watched

OFTEN = 0.25  # seconds between two looks of the thread that writes


def watched(
    model: Any,
    optimizer: Any,
    name: str | None,
    run_dir: str | os.PathLike[str] | None,
    steps: int | None,
) -> Watched:
    """See `engine.watch`. Raises TensorstepError where a loop cannot be watched."""
    if rank() != 0:
        return Watched()
    bare, inner = checked(model, optimizer)
    return Watching(bare, inner, directory_for(bare, name, run_dir, steps), steps)


class Watching(Watched):
    """A loop that is watched. What `step` and the optimizer's hook do while nobody is attached
    costs microseconds; a thread of its own writes, and looks what is asked for."""

    def __init__(self, model: Any, optimizer: Any, run: RunDirectory, steps: int | None):
        self._model, self._optimizer, self._steps = model, optimizer, steps
        self._off = False
        self._ending = threading.Lock()
        self._attended = False  # whether a screen is attached
        self._busy = False  # whether `step` has more to do than to take the numbers
        self._recording: Recording | None = None
        self._pauses = 0
        self._told: str | None = None  # the trouble that was told last
        self._lr: Any = None  # of the update since the last step
        self._norm: Any = None
        first = next(model.parameters(), None)
        self._device = torch.device("cpu") if first is None else first.device
        self._files = Files(run)
        self._rows = Rows(run.metrics)
        self._add = self._rows.add
        self.control = Control(self._files.tell)
        self._answers = Answers(self.control, self._facts(), self._standing, self._notice)
        self._hook: Any = None
        if optimizer is not None:
            self._gradients = GradientNorm(optimizer)
            self._hook = optimizer.register_step_pre_hook(self._before_update)
        self.control.start()
        self._reception = Reception(self._files.listening, self._answers.answer)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="tensorstep")
        self._thread.start()
        ALL.add(self)
        atexit.register(self._exit)

    # --- in the loop's thread, at every step --------------------------------------------------

    def step(
        self, loss: Any = None, *, targets: float | None = None, grad_norm: Any = None
    ) -> None:
        if self._off:
            self._let_go()
            return
        try:
            if type(loss) is Tensor and loss.is_cpu and loss.numel() == 1:
                loss = loss.item()
            else:
                loss = taken(loss)
            lr, norm = self._lr, self._norm
            if lr is None and self._hook is not None:
                lr = taken(self._optimizer.param_groups[0]["lr"])
            if grad_norm is not None:
                norm = taken(grad_norm)
            self._lr = self._norm = None
            self._add((loss, lr, norm, targets, time.time_ns()))
            if self._busy:
                self._between()
        except Exception as error:
            self._give_up(error)

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        """The optimizer's hook: the gradients are there, and the parameters not yet changed."""
        if self._off:
            return
        try:
            lr = optimizer.param_groups[0]["lr"]
            self._lr = lr if type(lr) is float else taken(lr)
            if self._gradients.due(self._attended):
                self._norm = self._gradients.measure(optimizer)
            if self._recording is not None:
                self._recording.take(optimizer)
        except Exception as error:
            self._give_up(error)

    # --- in the loop's thread, when something is asked for ------------------------------------

    def _between(self) -> None:
        """End the iteration that was recorded, stand still if that is wanted, record the next."""
        self._busy = False  # first: who asks for something sets it after that
        recording, self._recording = self._recording, None
        if recording is not None:
            try:
                recording.close()
            finally:
                recording.compile_again()
            self._see(recording)
        breaks = self._attended and bool(self.control.breakpoints)
        if breaks or self.control.asked:
            self._recording = Recording(self._model, self._give_up)
            self._busy = True

    def _see(self, recording: Recording) -> None:
        """Stand still after an iteration that was recorded, where there is a reason."""
        with torch.no_grad():
            if not recording.gradients:  # no optimizer has told of them
                recording.take()
            self._rows.write()
            hit = self.control.broken(self._rows.last, {})
            if not self._reception.screens:
                self.control.resume()  # whoever asked is gone
            elif hit is not None:
                self._stand(recording, f"{hit.text} at step {self._rows.count}")
            elif self.control.asked:
                self._stand(recording, self._told)

    def _stand(self, recording: Recording, why: str | None) -> None:
        if recording.left_out:
            named = ", ".join(recording.left_out)
            self._files.say(f"there was no memory to copy {named}: they cannot be looked at")
        rows = self._rows
        loss = rows.last["loss"]
        frozen = FrozenStep(rows.count, loss, self._model, self._optimizer, recording)
        self._answers.show(frozen.walk(list(rows.losses)[:-1]))
        self._pauses += 1
        self.control.hold(why)
        try:
            self.control.between()
        finally:
            self.control.resume()  # where it was interrupted
            self._answers.show(None)
            self._add(None)

    def _notice(self) -> None:
        """Have the loop look at the control."""
        self._busy = True

    # --- in a thread of its own ---------------------------------------------------------------

    def _look(self) -> None:
        while not self._ended.wait(OFTEN):
            try:
                self._rows.write()
                self._attend()
            except Exception as error:
                self._give_up(error)

    def _attend(self) -> None:
        """See who is there. Nobody: the loop does not stand still."""
        self._attended = self._reception.screens > 0
        if self._attended and self.control.breakpoints:
            self._notice()
        if not self._attended and self.control.state == PAUSED:
            self.control.resume()
        trouble = self._rows.trouble
        if trouble is not None and self._told is None:
            self._files.say(trouble)
            if self._attended:
                self.control.pause()
                self._notice()
        self._told = trouble

    def _standing(self) -> dict[str, Any]:
        return {
            "step": self._rows.count,
            "steps": self._steps,
            "device": str(self._device),
            "memory": memory_of(self._device),
            "screens": self._reception.screens,
            "moves": self._pauses,
            "walk": self.control.state == PAUSED,
            "trouble": self._rows.trouble,
        }

    def _facts(self) -> dict[str, Any]:
        first = next(self._model.parameters(), None)
        dtype = "" if first is None else str(first.dtype).removeprefix("torch.")
        kind = type(self._model).__name__
        about = {"model": MODULE, "class": kind, "corpus": "your own loop", "dtype": dtype}
        return {**self._files.facts(), "kind": "watched", **about}

    # --- the end ------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._answers.stopping

    def close(self) -> None:
        self._end(STOPPED if self.stopping else FINISHED, None)
        self._let_go()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end_with(error)

    def _end_with(self, error: BaseException) -> None:
        """Left by an exception, which goes on its way."""
        if isinstance(error, SystemExit) and not error.code:
            self.close()
            return
        state = STOPPED if isinstance(error, KeyboardInterrupt) else FAILED
        said = f": {error}" if str(error) else ""
        self._end(state, f"{type(error).__name__}{said}")
        self._let_go()

    def _exit(self) -> None:
        """The process ends, and nobody has closed the run."""
        error = getattr(sys, "last_value", None)  # what it ends with
        if error is None:
            self.close()
        else:
            self._end_with(error)

    def _give_up(self, error: Exception) -> None:
        """Something is wrong here: the loop goes on without being watched."""
        if self._off:
            return
        self._files.say("".join(traceback.format_exception(error)))
        with contextlib.suppress(Exception):
            self._rows.write()
        where = f"after step {self._rows.count}: {type(error).__name__}: {error}"
        self._end(FAILED, f"watching was given up {where}; the loop goes on")

    def _end(self, state: str, why: str | None) -> None:
        """Write what is left and tell how it ended; each as well as it can."""
        with self._ending:
            if self._off:
                return
            self._off = True
        self._ended.set()
        self.control.resume()  # where the loop stands still, and another thread gave up
        tell = functools.partial(self.control.end, state, why)
        for each in (self._write_last, tell, self._files.close, self._reception.close):
            with contextlib.suppress(Exception):
                each()
        atexit.unregister(self._exit)
        ALL.discard(self)

    def _write_last(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * OFTEN)
        self._rows.write()
        self._rows.close()

    def _let_go(self) -> None:
        """Take what is left of this out of the model and the optimizer. In the loop's thread, and
        not in a hook: they are going through their hooks then."""
        hook, recording = self._hook, self._recording
        self._hook = self._recording = None
        with contextlib.suppress(Exception):
            if hook is not None:
                hook.remove()
            if recording is not None:
                recording.close()

    def forget(self) -> None:
        """In a process that was forked off: it watches nothing, and keeps nothing of it open."""
        self._off = True
        self._files.forget()


ALL: weakref.WeakSet[Watching] = weakref.WeakSet()


def forget_all() -> None:
    for each in list(ALL):
        with contextlib.suppress(Exception):
            each.forget()


os.register_at_fork(after_in_child=forget_all)
