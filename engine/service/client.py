"""The client's side of a worker: starts it, asks it, notices when it dies. Knows no tensors."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from engine.errors import TensorstepError
from engine.progress import Progress
from engine.service.protocol import (
    LENGTHS,
    BrokenFrame,
    decode_header,
    decode_lengths,
    encode,
)

# -P: a folder called `engine` where the user happens to stand is not the engine
COMMAND = (sys.executable, "-P", "-m", "engine.service.worker")
LAST_WORDS = 3  # lines


class WorkerDied(TensorstepError):
    """The worker is gone; the sentence has its last words."""


class WorkerError(TensorstepError):
    """The worker could not answer, through no fault of the user's. `trace` is its traceback."""

    def __init__(self, sentence: str, trace: str):
        super().__init__(sentence)
        self.trace = trace


class Client:
    """A private worker: `start`, then `ask` as often as wanted, then `close`.

    Requests may be asked without waiting for earlier answers; they are answered in order.
    `on_death` is called when the worker is gone, also where nobody waits for an answer;
    `on_progress` when it tells how far an answer is that takes long.
    """

    def __init__(self, command: tuple[str, ...] = COMMAND):
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._said = tempfile.TemporaryFile()  # what the worker prints, for its last words
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._next = 0
        self._reader: asyncio.Task[None] | None = None
        self._dead: WorkerDied | None = None
        self.on_death: Callable[[], None] = lambda: None
        self.on_progress: Callable[[Progress], None] = lambda progress: None

    async def start(self) -> None:
        """Start the worker. Raises WorkerDied where it cannot be started."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,  # a hang-up or ctrl+c reaches the screen, not the worker
                limit=2**20,
            )
        except OSError as error:
            raise WorkerDied(f"the worker could not be started: {error}") from None
        self._reader = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one request. Raises TensorstepError with the worker's sentence, WorkerError
        where it failed, WorkerDied where it is gone."""
        return (await self.ask_bytes(method, **params))[0]

    async def ask_bytes(self, method: str, **params: Any) -> tuple[dict[str, Any], bytes]:
        """The answer and the bytes that came with it."""
        if self._dead is not None:
            raise self._dead
        process = self._process
        if process is None or process.stdin is None:
            raise WorkerDied("the worker was not started")
        self._next += 1
        number = self._next
        future: asyncio.Future[tuple[dict[str, Any], bytes]]
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            process.stdin.write(encode({"id": number, "method": method, "params": params}))
            with contextlib.suppress(ConnectionError):  # `_listen` tells of a worker that is gone
                await process.stdin.drain()
            header, payload = await future
        finally:
            self._waiting.pop(number, None)
        if "error" in header:
            error = header["error"]
            if "trace" in error:
                raise WorkerError(error["sentence"], error["trace"])
            raise TensorstepError(error["sentence"], error.get("exit_code", 1))
        return header["result"], payload

    def cancel(self) -> None:
        """Ask the worker to give up what it is doing, where it does anything: whoever waits for it
        is told that it was stopped."""
        process = self._process
        if self._waiting and process is not None and process.stdin is not None:
            process.stdin.write(encode({"id": min(self._waiting), "method": "cancel"}))

    async def _listen(self) -> None:
        """Hand answers to those who wait for them, until the worker is gone."""
        process = self._process
        if process is None or process.stdout is None:
            return
        try:
            while True:
                lengths = await process.stdout.readexactly(LENGTHS.size)
                header_size, payload_size = decode_lengths(lengths)
                header = decode_header(await process.stdout.readexactly(header_size))
                payload = await process.stdout.readexactly(payload_size)
                if "progress" in header:
                    self.on_progress(progress_of(header["progress"]))
                    continue
                future = self._waiting.get(number_of(header))
                if future is not None and not future.done():
                    future.set_result((header, payload))
        except (asyncio.IncompleteReadError, ConnectionError):
            how = f"died, {ending(await process.wait())}"
        except BrokenFrame as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # what comes after cannot be read either
            await process.wait()
            how = f"died: {error}, so it was ended"
        self._is_gone(WorkerDied(f"the worker {how}{self._last_words()}"))

    def _is_gone(self, dead: WorkerDied) -> None:
        """Whoever waits, or asks from now on, is told."""
        self._dead = self._dead or dead
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._dead)
        self.on_death()

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
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        self._is_gone(WorkerDied("the worker was closed"))
        self._said.close()


def progress_of(told: Any) -> Progress:
    """How far the worker says it is. Raises BrokenFrame where it says nothing of the kind."""
    fields = told if isinstance(told, dict) else {}
    what, done, total = (fields.get(key) for key in ("what", "done", "total"))
    if not isinstance(what, str) or not isinstance(done, int):
        raise BrokenFrame(f"{told!r} is no progress")
    return Progress(what, done, total if isinstance(total, int) else None)


def number_of(header: dict[str, Any]) -> int:
    """Which request this is the answer to. Raises BrokenFrame where it is no answer."""
    number, result, error = (header.get(key) for key in ("id", "result", "error"))
    told = isinstance(error, dict) and isinstance(error.get("sentence"), str)
    if not isinstance(number, int) or not (told or isinstance(result, dict)):
        raise BrokenFrame(f"a frame with {', '.join(header) or 'nothing'} is no answer")
    return number


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
