"""Where a loop that is not ours is kept: its directory, its socket, its log."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.errors import UsageError
from engine.runs.directory import NAME, RunDirectory, Worker, runs_folder
from engine.service.recording import bare_model, bare_optimizer
from engine.service.sockets import listen

TRIED = 1000  # names
UNNAMED = "watched"


class Files:
    """What a process that watches holds of a run's directory: its lock, its socket."""

    def __init__(self, run: RunDirectory):
        self.run = run
        self._lock = run.take()
        try:
            self.listening = listen(run.path)
        except BaseException:
            os.close(self._lock)
            raise
        self._socket = str(self.listening.getsockname())
        self._started = time.time()

    def tell(self, state: str, why: str | None) -> None:
        """Say in worker.json and worker.log what the loop does."""
        self.say(f"{state}{f': {why}' if why else ''}")
        worker = Worker(
            socket.gethostname(),
            os.getpid(),
            self._started,
            self._socket,
            state,
            why,
            version("tensorstep"),
        )
        with contextlib.suppress(OSError):
            self.run.write_worker(worker)

    def say(self, text: str) -> None:
        """A line for worker.log."""
        line = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}\n"
        with contextlib.suppress(OSError), self.run.log.open("a") as log:
            log.write(line)

    def facts(self) -> dict[str, Any]:
        host, path = socket.gethostname(), str(self.run.path)
        return {"run": self.run.name, "dir": path, "host": host, "pid": os.getpid()}

    def close(self) -> None:
        """The directory is anybody's again; nobody finds the socket any more."""
        Path(self._socket).unlink(missing_ok=True)
        os.close(self._lock)

    def forget(self) -> None:
        """In a process that was forked off, which is not to keep the lock from going."""
        os.close(self._lock)
        os.close(self.listening.detach())


def rank() -> int:
    """Which of the processes that train together this is."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    told = os.environ.get("RANK", "")
    return int(told) if told.isdigit() else 0


def checked(model: Any, optimizer: Any) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    """Both, out of what is around them. Raises UsageError for what is neither."""
    bare, inner = bare_model(model), bare_optimizer(optimizer)
    if not isinstance(bare, nn.Module):
        raise UsageError(
            f"the model is {kind_of(bare)}: give the torch.nn.Module that is trained, as"
            " engine.watch(model, optimizer)"
        )
    if inner is not None and not isinstance(inner, torch.optim.Optimizer):
        raise UsageError(
            f"the optimizer is {kind_of(inner)}: give a torch.optim.Optimizer, as"
            " engine.watch(model, optimizer), or none"
        )
    return bare, inner


def kind_of(thing: Any) -> str:
    return f"of type {type(thing).__name__}"


def directory_for(
    model: nn.Module, name: str | None, run_dir: str | os.PathLike[str] | None, steps: int | None
) -> RunDirectory:
    """A new directory, of the first name that is free: a training does not fail for a name.

    Raises TensorstepError where none can be made.
    """
    refused: UsageError | None = None
    for path in paths(name, run_dir):
        run = RunDirectory(path)
        config = {
            "kind": "watched",
            "name": path.name,
            "created": time.time(),
            "steps": steps,
            "command": list(sys.argv),
            "model": type(model).__name__,
        }
        try:
            run.create(config)
        except UsageError as error:  # it is taken
            refused = refused or error
        else:
            return run
    raise refused or UsageError("there is no name left: give another")


def paths(name: str | None, run_dir: str | os.PathLike[str] | None) -> Iterator[Path]:
    if run_dir is not None:
        first = Path(run_dir).expanduser().absolute()
    else:
        first = runs_folder() / folder_name(name)
    yield first
    for number in range(2, TRIED):
        yield first.with_name(f"{first.name}-{number}")


def folder_name(name: str | None) -> str:
    """A name that a folder can have, as near to the one that was given as there is."""
    wanted = name or Path(sys.argv[0] if sys.argv else "").stem or UNNAMED
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip(".-")[:56]
    return made if NAME.fullmatch(made) else UNNAMED
