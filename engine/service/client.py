"""The client's side of a worker of its own: starts it, and ends it. Knows no tensors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile

from engine.service.connection import LIMIT, Connection, WorkerDied

# -P: a folder called `engine` where the user happens to stand is not the engine
COMMAND = (sys.executable, "-P", "-m", "engine.service.worker")
LAST_WORDS = 3  # lines
# What a walk lets go of is kept by the C library for what it holds next, up to 512 MB: to give
# memory back to the system and take it again costs up to a tenth of a forward pass.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**28), "MALLOC_TRIM_THRESHOLD_": str(2**29)}


class Client(Connection):
    """A private worker, which lives as long as whoever asks it."""

    def __init__(self, command: tuple[str, ...] = COMMAND):
        super().__init__()
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._said = tempfile.TemporaryFile()  # what the worker prints, for its last words

    async def start(self) -> None:
        """Start the worker. Raises WorkerDied where it cannot be started."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._said,
                env=MEMORY | os.environ,
                start_new_session=True,  # a hang-up or ctrl+c reaches the screen, not the worker
                limit=LIMIT,
            )
        except OSError as error:
            raise WorkerDied(f"the worker could not be started: {error}") from None
        self._process = process
        if process.stdout is not None and process.stdin is not None:
            self._listen_to(process.stdout, process.stdin)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def _how_it_ended(self) -> str:
        code = await self._process.wait() if self._process is not None else 0
        return f"the worker died, {ending(code)}{self._last_words()}"

    async def _break_off(self) -> None:
        """What comes after cannot be read either: end the worker."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _last_words(self) -> str:
        self._said.seek(0)
        text = self._said.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            return "; it said nothing"
        return "; its last words: " + " / ".join(lines[-LAST_WORDS:])

    async def close(self) -> None:
        """End the worker: its input ends, and it with it."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 2)
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._stop_listening("the worker was closed")
        self._said.close()


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
