"""The client's side of a run: connects to the process that trains, which goes on without it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from engine.errors import TensorstepError
from engine.runs.directory import ALIVE, DIED, ELSEWHERE, RunDirectory
from engine.service.connection import LIMIT, Connection, WorkerDied

PATIENCE = 60.0  # seconds in which a process that has just been started may begin to listen


class RunClient(Connection):
    """A run's process.

    read_only  it may be looked at, and not changed
    """

    def __init__(self, run: RunDirectory, read_only: bool = False):
        super().__init__()
        self.run = run
        self.read_only = read_only

    async def start(self) -> None:
        """Connect. Raises TensorstepError, in one sentence, where no process can be reached."""
        worker = self.run.read_worker()
        state = self.run.state()
        if state == ELSEWHERE and worker is not None:
            raise TensorstepError(
                f"the run {self.run.name!r} is on {worker.host}, this is {socket.gethostname()}:"
                f" attach there, for example by `ssh {worker.host}`"
            )
        if state not in ALIVE or worker is None:
            raise WorkerDied(f"the run {self.run.name!r} {ended(self.run, state)}")
        try:
            incoming, outgoing = await asyncio.open_unix_connection(worker.socket, limit=LIMIT)
        except OSError as error:
            raise WorkerDied(
                f"the run {self.run.name!r} does not answer at {worker.socket!r}"
                f" ({error.strerror}): look into {str(self.run.log)!r}"
            ) from None
        self._listen_to(incoming, outgoing)

    async def open(self) -> dict[str, Any]:
        """Say how the run is attached to. Returns what it is."""
        return await self.ask("attach", read_only=self.read_only)

    async def _how_it_ended(self) -> str:
        if not self.run.path.is_dir():
            return f"the run's directory {str(self.run.path)!r} is gone"
        for _ in range(100):  # it closes its socket a moment before it has ended
            state = self.run.state()
            if state not in ALIVE:
                return f"the run {self.run.name!r} {ended(self.run, state)}"
            await asyncio.sleep(0.02)
        return f"the run {self.run.name!r} has closed the connection"

    async def close(self) -> None:
        """Leave the run, which goes on."""
        if self._outgoing is not None:
            self._outgoing.close()
            with contextlib.suppress(ConnectionError):
                await self._outgoing.wait_closed()
        await self._stop_listening("the run was left")


def ended(run: RunDirectory, state: str) -> str:
    """How a run has ended, in words."""
    worker = run.read_worker()
    said = {
        DIED: f"has died without a word: `tensorstep train --resume {run.handle}` goes on from its"
        " checkpoint",
        "failed": f"has failed: {worker.why if worker else ''}",
        "stopped": "was stopped",
        "finished": "is finished",
    }
    return said.get(state, f"is {state}")


async def reach(client: RunClient) -> None:
    """Connect to a run whose process has just been started, as soon as it listens.

    Raises TensorstepError where it ends instead, with what it said.
    """
    until = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await client.start()
        except WorkerDied:
            worker = client.run.read_worker()
            late = asyncio.get_running_loop().time() > until
            if late or (worker is not None and worker.state not in ALIVE):
                raise
            await asyncio.sleep(0.02)
        else:
            return
