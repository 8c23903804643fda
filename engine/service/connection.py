"""The client's side of any worker: asks it, hears how far it is, notices when it is gone. Knows no
tensors."""

from __future__ import annotations

import asyncio
import contextlib
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

LIMIT = 2**20  # bytes read ahead


class WorkerDied(TensorstepError):
    """The worker is gone; the sentence has its last words."""


class WorkerError(TensorstepError):
    """The worker could not answer, through no fault of the user's. `trace` is its traceback."""

    def __init__(self, sentence: str, trace: str):
        super().__init__(sentence)
        self.trace = trace


class Connection:
    """A worker: `start`, then `ask` as often as wanted, then `close`.

    Requests may be asked without waiting for earlier answers; they are answered in order.
    `on_death` is called when the worker is gone, also where nobody waits for an answer;
    `on_progress` when it tells how far an answer is that takes long.
    """

    def __init__(self) -> None:
        self._incoming: asyncio.StreamReader | None = None
        self._outgoing: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._next = 0
        self._reader: asyncio.Task[None] | None = None
        self._dead: WorkerDied | None = None
        self.on_death: Callable[[], None] = lambda: None
        self.on_progress: Callable[[Progress], None] = lambda progress: None

    # --- what each kind of worker has of its own ----------------------------------------------

    async def start(self) -> None:
        """Reach the worker. Raises WorkerDied where it cannot be reached."""
        raise NotImplementedError

    async def _how_it_ended(self) -> str:
        """What is told of a worker whose frames have ended."""
        raise NotImplementedError

    async def _break_off(self) -> None:
        """What it sends cannot be read: have nothing more to do with it."""

    async def close(self) -> None:
        """Leave the worker."""
        raise NotImplementedError

    # --- asking -------------------------------------------------------------------------------

    def _listen_to(self, incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._reader = asyncio.create_task(self._listen(incoming))

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one request. Raises TensorstepError with the worker's sentence, WorkerError
        where it failed, WorkerDied where it is gone."""
        return (await self.ask_bytes(method, **params))[0]

    async def ask_bytes(self, method: str, **params: Any) -> tuple[dict[str, Any], bytes]:
        """The answer and the bytes that came with it."""
        if self._dead is not None:
            raise self._dead
        if self._outgoing is None:
            raise WorkerDied("the worker was not started")
        self._next += 1
        number = self._next
        future: asyncio.Future[tuple[dict[str, Any], bytes]]
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._outgoing.write(encode({"id": number, "method": method, "params": params}))
            with contextlib.suppress(ConnectionError):  # `_listen` tells of a worker that is gone
                await self._outgoing.drain()
            header, payload = await future
        finally:
            self._waiting.pop(number, None)
        if "error" in header:
            error = header["error"]
            if "trace" in error:
                raise WorkerError(error["sentence"], error["trace"])
            refused = TensorstepError(error["sentence"], error.get("exit_code", 1))
            refused.trace = error.get("theirs", "")
            raise refused
        return header["result"], payload

    def cancel(self) -> None:
        """Ask the worker to give up what it is doing, where it does anything: whoever waits for it
        is told that it was stopped."""
        if self._waiting and self._outgoing is not None:
            self._outgoing.write(encode({"id": min(self._waiting), "method": "cancel"}))

    async def _listen(self, incoming: asyncio.StreamReader) -> None:
        """Hand answers to those who wait for them, until the worker is gone."""
        sentence = "the worker cannot be heard any more"
        try:
            sentence = await self._heard(incoming)
        finally:  # whatever happened: nobody is to wait for ever
            self._is_gone(WorkerDied(sentence))

    async def _heard(self, incoming: asyncio.StreamReader) -> str:
        """Hand answers on. Returns, at the end, how it ended."""
        try:
            while True:
                lengths = await incoming.readexactly(LENGTHS.size)
                header_size, payload_size = decode_lengths(lengths)
                header = decode_header(await incoming.readexactly(header_size))
                payload = await incoming.readexactly(payload_size)
                if "progress" in header:
                    self.on_progress(progress_of(header["progress"]))
                    continue
                future = self._waiting.get(number_of(header))
                if future is not None and not future.done():
                    future.set_result((header, payload))
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._how_it_ended()
        except BrokenFrame as error:
            await self._break_off()
            return f"the worker died: {error}, so it was ended{self._last_words()}"

    def _last_words(self) -> str:
        return ""

    def _is_gone(self, dead: WorkerDied) -> None:
        """Whoever waits, or asks from now on, is told."""
        self._dead = self._dead or dead
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._dead)
        self.on_death()

    async def _stop_listening(self, sentence: str) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        self._is_gone(WorkerDied(sentence))


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
