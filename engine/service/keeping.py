"""What a run keeps on its disk: metrics, checkpoints, samples. What the disk does not take for lack
of room waits, in order, and nothing after it is written before it."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import TensorstepError
from engine.processes import Snapshot
from engine.runs import disk
from engine.runs.checkpoints import retain, save_checkpoint
from engine.runs.directory import RunDirectory
from engine.runs.metrics import MetricsFile


class Keeping:
    """Writes into a run's directory, which its process has locked."""

    def __init__(self, run: RunDirectory, keep_every: int):
        self.run = run
        self.keep_every = keep_every
        self.saved = 0  # the step of the last checkpoint
        run.checkpoints.mkdir(exist_ok=True)
        self._metrics = MetricsFile(run.metrics)
        self._samples = os.open(run.samples, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._waiting: deque[Callable[[], None]] = deque()

    def row(self, row: Mapping[str, float | None]) -> None:
        """A step's line of metrics."""
        self._waiting.append(lambda: self._metrics.add(row))

    def sample(self, sample: dict[str, Any]) -> None:
        """A text that was sampled."""
        line = (json.dumps(sample) + "\n").encode()
        self._waiting.append(lambda: disk.append(self._samples, line))

    def checkpoint(self, snapshot: Snapshot, facts: dict[str, Any]) -> None:
        """What stands after a step. Its line of metrics is on the disk before."""

        def save() -> None:
            self._metrics.sync()
            disk.sync(self._samples)
            save_checkpoint(self.run.checkpoints, snapshot, facts)
            retain(self.run.checkpoints, self.keep_every)

        self.saved = snapshot.step
        self._waiting.append(save)

    def write(self) -> bool:
        """Write what waits. False where there is no room for it.

        Raises TensorstepError where the disk does not take it for another reason.
        """
        while self._waiting:
            try:
                self._waiting[0]()
            except OSError as error:
                if disk.is_full(error):
                    return False
                raise TensorstepError(
                    f"{str(self.run.path)!r} cannot be written to ({error.strerror}): mend that,"
                    " then --resume"
                ) from None
            self._waiting.popleft()
        return True
