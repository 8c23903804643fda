"""A run's directory: where it lies, what is in it, and whether a process works in it.

A process that works in a directory holds a lock on `lock`, which the system lets go of however that
process ends; `worker.json` says which process it is, and how it ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.runs import disk
from engine.runs.metrics import last_row

STARTING, RUNNING, PAUSED, STOPPING = ALIVE = ("starting", "running", "paused", "stopping")
FINISHED, STOPPED, FAILED, DIED = ENDED = ("finished", "stopped", "failed", "died")
ELSEWHERE = "elsewhere"  # on another host, from which nothing can be seen here
FULL = "the disk is full: the run goes on when there is room"  # why it is paused meanwhile
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
PATIENCE = 1.0  # seconds in which somebody who only looks lets go of a lock again


def runs_folder() -> Path:
    """Where the runs are that were given a name and no directory of their own."""
    from platformdirs import user_state_path

    return user_state_path("tensorstep") / "runs"


@dataclass(frozen=True)
class Worker:
    """The process that works in a directory, or worked there last.

    started     seconds since 1970
    socket      where it listens
    state       what it said it was doing; `why` it stands still, or ended
    first_step  the first step that it makes, once that is known
    """

    host: str
    pid: int
    started: float
    socket: str
    state: str
    why: str | None
    version: str
    first_step: int | None = None


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path):
        self.path = path.absolute()
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.cut = self.path / "metrics.cut.jsonl"
        self.samples = self.path / "samples.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.worker = self.path / "worker.json"
        self.log = self.path / "worker.log"
        self.lock = self.path / "lock"

    @property
    def exists(self) -> bool:
        return self.config.is_file()

    def create(self, config: dict[str, Any]) -> None:
        """Make the directory, with its config. Raises UsageError where there is something else."""
        try:
            if self.exists:
                raise UsageError(f"there is a run in {str(self.path)!r}: go on with --resume")
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise UsageError(
                    f"{str(self.path)!r} has files that are no run's: give an empty directory"
                )
            self.write_json(self.config, config)
            self.checkpoints.mkdir()
        except OSError as error:
            raise TensorstepError(
                f"no run can be kept in {str(self.path)!r} ({error.strerror}): give another folder"
            ) from None

    def write_json(self, path: Path, value: dict[str, Any]) -> None:
        disk.write_whole(path, (json.dumps(value, indent=1) + "\n").encode())

    def read_config(self) -> dict[str, Any]:
        """Raises TensorstepError where there is none, or none that can be read."""
        try:
            config = json.loads(self.config.read_bytes())
        except OSError:
            raise TensorstepError(
                f"there is no run in {str(self.path)!r}: `tensorstep runs` lists those there are"
            ) from None
        except ValueError:
            config = None
        whole = isinstance(config, dict) and isinstance(config.get("kind"), str)
        if not whole or not isinstance(config.get("steps"), int | None):
            raise TensorstepError(
                f"{str(self.config)!r} is damaged, or not a run's: put back what it was"
            )
        return dict(config)

    def read_worker(self) -> Worker | None:
        """What the last process to work here said, where there was one."""
        try:
            fields = json.loads(self.worker.read_bytes())
            return Worker(**fields)
        except (OSError, ValueError, TypeError):
            return None

    def write_worker(self, worker: Worker) -> None:
        self.write_json(self.worker, asdict(worker))

    @property
    def name(self) -> str:
        """What the run is called: as its directory, where it does not say."""
        try:
            return str(self.read_config().get("name") or self.path.name)
        except TensorstepError:
            return self.path.name

    @property
    def handle(self) -> str:
        """How the run is called in a command, quoted for a shell: by its name, or, where that leads
        elsewhere, by its directory."""
        return shlex.quote(self.path.name if self.path.parent == runs_folder() else str(self.path))

    # --- the lock -----------------------------------------------------------------------------

    def take(self) -> int:
        """Lock the directory for this process, for as long as it lives or until the number that is
        returned is closed. Raises TensorstepError where another works in it."""
        number = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() < until:
                    time.sleep(0.02)
                    continue
                os.close(number)
                worker = self.read_worker()
                who = f" (process {worker.pid} on {worker.host})" if worker else ""
                raise TensorstepError(
                    f"another process{who} works in {str(self.path)!r}: attach to it, or stop it"
                ) from None
            return number

    def is_held(self) -> bool:
        """Whether a process works in it."""
        try:
            number = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(number)
        return False

    def state(self) -> str:
        """What the run is doing: see `ALIVE`, `ENDED` and `ELSEWHERE`."""
        worker = self.read_worker()
        if worker is None:
            return STARTING if self.is_held() else DIED
        if worker.state in ENDED:
            return STARTING if self.is_held() else worker.state
        if worker.host != socket.gethostname():
            return ELSEWHERE
        return worker.state if self.is_held() else DIED

    def standing(self) -> dict[str, Any]:
        """The run in a line: `name`, `dir`, `host`, `pid`, `state`, `step`, `loss`, and its `age`
        in seconds since it was made."""
        config, worker, row = self.read_config(), self.read_worker(), last_row(self.metrics)
        return {
            "name": self.name,
            "dir": str(self.path),
            "host": worker.host if worker else None,
            "pid": worker.pid if worker else None,
            "state": self.state(),
            "step": row["step"] if row else 0,
            "loss": row["loss"] if row else None,
            "age": max(0.0, time.time() - float(config.get("created") or time.time())),
        }


def run_named(text: str) -> RunDirectory:
    """The run of that name, or in that directory. Raises TensorstepError where there is none."""
    path = Path(text).expanduser()
    if (path / "config.json").is_file():
        return RunDirectory(path)
    if NAME.fullmatch(text) and RunDirectory(runs_folder() / text).exists:
        return RunDirectory(runs_folder() / text)
    where = "there" if os.sep in text else f"here or in {str(runs_folder())!r}"
    raise TensorstepError(f"no run is called {text!r} {where}: `tensorstep runs` lists them")


def new_run(name: str | None, stem: str) -> RunDirectory:
    """Where a run of that name will be, or of the first name that is free: stem-1, stem-2, ...

    Raises UsageError for a name that is taken, or that no folder can have.
    """
    if name is None:
        numbers = range(1, 1_000_000)
        return next(run for n in numbers if not (run := named_run(f"{stem}-{n}")).path.exists())
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name[:70]!r} is no name: use up to 64 letters, digits, - and _, or give --run-dir"
        )
    if named_run(name).exists:
        raise UsageError(f"there is a run called {name!r}: give another --name, or --resume {name}")
    return named_run(name)


def named_run(name: str) -> RunDirectory:
    return RunDirectory(runs_folder() / name)


def runs_in(folder: Path) -> Iterator[RunDirectory]:
    """The runs in a folder, or the one that it is, newest first."""
    if (folder / "config.json").is_file():
        yield RunDirectory(folder)
        return
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            run = RunDirectory(path)
            with contextlib.suppress(TensorstepError, ValueError, TypeError):
                found.append((float(run.read_config().get("created") or 0), run.path.name, run))
    yield from (run for _, _, run in sorted(found, key=lambda each: each[:2], reverse=True))
