"""The process that trains a run, detached from any terminal.

Started as `python -P -m engine.service.run_worker DIR`, with its directory's config in place. It
goes on from the last checkpoint there is. SIGTERM has it save and leave; a hang-up and ctrl+c touch
nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError
from engine.runs.directory import FAILED, STARTING, RunDirectory, Worker
from engine.service.control import Control
from engine.service.line import TOO_LARGE, lacks_memory
from engine.service.reception import Reception
from engine.service.run_options import RunOptions
from engine.service.sockets import listen

LAST_WORDS = 2.0  # seconds that the answers in hand have to be sent when a run ends


class RunWorker:
    """This process, at work in a directory."""

    def __init__(self, run: RunDirectory):
        self.run = run
        self._lock = run.take()  # held for as long as this process lives
        self.config = run.read_config()
        self._listening = listen(run.path)
        self._started = time.time()
        self._first_step: int | None = None
        self._reception: Reception | None = None
        self.write(STARTING, None)
        self.control = Control(self.write)
        for text in self.config["run"].get("breaks", ()):
            self.control.add_breakpoint(text)

    def write(self, state: str, why: str | None) -> None:
        """Say in `worker.json` what this process does; a full disk keeps it from that."""
        say(f"{state}{f': {why}' if why else ''}")
        worker = Worker(
            socket.gethostname(),
            os.getpid(),
            self._started,
            str(self._listening.getsockname()),
            state,
            why,
            version("tensorstep"),
            self._first_step,
        )
        with contextlib.suppress(OSError):
            self.run.write_worker(worker)

    def work(self) -> int:
        """Train. Returns the exit code."""
        signal.signal(signal.SIGTERM, self._asked_to_leave)
        try:
            self.control.end(self._train())
        except Exception as error:  # the log has all of it, worker.json a sentence
            if not isinstance(error, TensorstepError):
                traceback.print_exc()
            self.control.end(FAILED, sentence_of(error))
            return 1
        return 0

    def _asked_to_leave(self, *_: object) -> None:
        """In a thread of its own: the one that a signal interrupts may hold the control's locks."""
        threading.Thread(target=self.control.stop, daemon=True).start()

    def _train(self) -> str:
        from engine.service.run_desk import RunDesk

        desk = RunDesk(self.control, self._facts(), self._screens)
        self._reception = Reception(self._listening, desk.answer)
        from engine.service.run_session import RunSession
        from engine.service.training_run import TrainingRun

        options = RunOptions.from_json(self.config["run"])
        session = RunSession(options, desk.tell)
        training = TrainingRun(self.run, options, self.control, session)
        told = training.begin()
        if told:
            say(told)
        self._first_step = training.done + 1
        say(f"training on {session.device} from step {training.done + 1} to {options.steps}")
        desk.take(training)
        try:
            return training.go()
        finally:
            say(f"step {training.done} of {options.steps}")

    def _facts(self) -> dict[str, Any]:
        walk = self.config["run"]["walk"]
        return {
            "run": self.run.name,
            "dir": str(self.run.path),
            "kind": "training",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "model": walk["model"],
            "corpus": walk["corpus"] or walk["text"] or "your sentence",
            "dtype": self.config["run"]["dtype"],
        }

    def _screens(self) -> int:
        return self._reception.screens if self._reception else 0

    def close(self) -> None:
        """Whoever asked is answered, and the directory is anybody's again."""
        if self._reception is not None:
            self._reception.finish(LAST_WORDS)
        Path(self._listening.getsockname()).unlink(missing_ok=True)
        self._listening.close()
        os.close(self._lock)


def say(text: str) -> None:
    """A line for worker.log."""
    with contextlib.suppress(OSError):  # the disk may be full
        print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}", flush=True)


def sentence_of(error: Exception) -> str:
    if isinstance(error, TensorstepError):
        return str(error)
    return TOO_LARGE if lacks_memory(error) else f"{type(error).__name__}: {error}"


def main(arguments: list[str] | None = None) -> int:
    directory = RunDirectory(Path((arguments or sys.argv[1:])[0]))
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        worker = RunWorker(directory)
    except TensorstepError as error:
        say(str(error))
        return 1
    try:
        return worker.work()
    finally:
        worker.close()


if __name__ == "__main__":
    sys.exit(main())
