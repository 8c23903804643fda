"""A worker in this process: the same desk, asked through the same frames, but no process to start
and no waiting, so that a test of the screen takes milliseconds."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from engine.errors import TensorstepError
from engine.service.client import Client
from engine.service.connection import WorkerError
from engine.service.desk import Desk
from engine.service.line import reply_to
from engine.service.protocol import encode, read_frame


class DeskClient(Client):
    """A client whose requests are answered here.

    gate    where given, `start` waits for it: the time in which a real worker loads
    asked   the methods asked so far
    """

    def __init__(self, gate: asyncio.Event | None = None):
        super().__init__()
        self.desk = Desk()
        self.gate = gate
        self.asked: list[str] = []

    async def start(self) -> None:
        if self.gate is not None:
            await self.gate.wait()

    async def ask_bytes(self, method: str, **params: Any) -> tuple[dict[str, Any], bytes]:
        self.asked.append(method)
        request = through_a_pipe({"id": 1, "method": method, "params": params})[0]
        header, payload = through_a_pipe(*reply_to(self.desk.answer, request))
        if "error" in header:
            error = header["error"]
            if "trace" in error:
                raise WorkerError(error["sentence"], error["trace"])
            refused = TensorstepError(error["sentence"], error["exit_code"])
            refused.trace = error.get("theirs", "")
            raise refused
        return header["result"], payload


def through_a_pipe(header: dict[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """What arrives at the other side."""
    frame = read_frame(io.BytesIO(encode(header, payload)))
    assert frame is not None
    return frame
