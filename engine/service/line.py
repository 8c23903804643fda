"""The worker's side of a line to one client: requests in, answers and progress out."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from engine.errors import TensorstepError, UsageError
from engine.service.protocol import encode, read_frame

Answer = dict[str, Any] | tuple[dict[str, Any], bytes]
Request = tuple[dict[str, Any], bytes]


class Line:
    """Requests of one client, in order; None where whoever listens knows that no more will come.

    write  sends all of what it is given
    """

    def __init__(self, incoming: BinaryIO, write: Callable[[bytes], object]):
        self.incoming = incoming
        self.write = write
        self.requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.in_hand: Any = None  # the id of the request that is being answered
        self.given_up: Any = None  # the id of the one that is not wanted any more
        self._sending = threading.Lock()

    def listen(self) -> None:
        """Queue requests until the input ends. Raises BrokenFrame for what is none."""
        while (frame := read_frame(self.incoming)) is not None:
            if frame[0].get("method") == "cancel":
                self.given_up = frame[0].get("id")
            else:
                self.requests.put(frame)

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        with self._sending:
            self.write(encode(header, payload))

    def tell(self, what: str, done: int, total: int | None) -> None:
        """How far the request in hand has come. Raises UsageError where it was given up."""
        if self.given_up == self.in_hand:
            raise UsageError(f"stopped while {what}")
        progress = {"what": what, "done": done, "total": total}
        self.send({"id": self.in_hand, "progress": progress})

    def reply(
        self, header: dict[str, Any], answer: Callable[[str, dict[str, Any]], Answer]
    ) -> None:
        """Answer one request, or say why it cannot be answered."""
        self.in_hand = header.get("id")
        self.send(*reply_to(answer, header))


def reply_to(
    answer: Callable[[str, dict[str, Any]], Answer], header: dict[str, Any]
) -> tuple[dict[str, Any], bytes]:
    reply: dict[str, Any] = {"id": header.get("id")}
    payload = b""
    try:
        found = answer(header.get("method", ""), header.get("params", {}))
        reply["result"], payload = found if isinstance(found, tuple) else (found, b"")
    except TensorstepError as error:
        reply["error"] = {"sentence": str(error), "exit_code": error.exit_code}
        if error.trace:
            reply["error"]["theirs"] = error.trace
    except Exception as error:  # told to the client, which tells the user
        if lacks_memory(error):
            reply["error"] = {"sentence": TOO_LARGE, "exit_code": 1}
            return reply, payload
        sentence = f"the worker failed: {type(error).__name__}: {error}"
        trace = traceback.format_exc()
        reply["error"] = {"sentence": sentence, "exit_code": 1, "trace": trace}
    return reply, payload


TOO_LARGE = (
    "there is not enough memory for this: give a smaller --width, --hidden, --context, --batch or"
    " --max-vocab"
)


def lacks_memory(error: Exception) -> bool:
    """Whether Python or torch, on whichever device, could not get the memory it asked for."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    words = str(error)
    return isinstance(error, RuntimeError) and ("alloc" in words and "memory" in words)
