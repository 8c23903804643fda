"""The worker: a process that owns tensors, models and walks, and answers requests for them.

Started as `python -P -m engine.service.worker`; frames come in on its standard input and go out on
its standard output. It ends when its input does, whatever it is doing then.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO

from engine.errors import TensorstepError, UsageError
from engine.service.desk import Desk
from engine.service.protocol import BrokenFrame, encode, read_frame

Request = tuple[dict[str, Any], bytes]


class Line:
    """The pipes to a client: requests in, answers and progress out."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO):
        self.incoming = incoming
        self.outgoing = outgoing
        self.requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self.in_hand: Any = None  # the id of the request that is being answered
        self.given_up: Any = None  # the id of the one that is not wanted any more

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self.outgoing.write(encode(header, payload))
        self.outgoing.flush()

    def tell(self, what: str, done: int, total: int | None) -> None:
        """How far the request in hand has come. Raises UsageError where it was given up."""
        if self.given_up == self.in_hand:
            raise UsageError(f"stopped while {what}")
        progress = {"what": what, "done": done, "total": total}
        self.send({"id": self.in_hand, "progress": progress})


def serve(incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Answer requests until the input ends."""
    line = Line(incoming, outgoing)
    desk = Desk(line.tell)
    threading.Thread(target=listen, args=(line,), daemon=True).start()
    while True:
        header, _ = line.requests.get()
        line.in_hand = header.get("id")
        line.send(*reply_to(desk, header))


def listen(line: Line) -> None:
    """Queue requests; at the end of input leave at once, even from the middle of a computation."""
    try:
        while (frame := read_frame(line.incoming)) is not None:
            if frame[0].get("method") == "cancel":
                line.given_up = frame[0].get("id")
            else:
                line.requests.put(frame)
    except BrokenFrame as error:
        print(f"tensorstep's worker was sent a broken frame: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def reply_to(desk: Desk, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    reply: dict[str, Any] = {"id": header.get("id")}
    payload = b""
    try:
        answer = desk.answer(header.get("method", ""), header.get("params", {}))
        reply["result"], payload = answer if isinstance(answer, tuple) else (answer, b"")
    except TensorstepError as error:
        reply["error"] = {"sentence": str(error), "exit_code": error.exit_code}
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


def main() -> None:
    """Take the pipes for frames alone: what anything else prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl+c is the screen's to answer
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        serve(incoming, outgoing)
    except BrokenPipeError:  # the screen is gone
        os._exit(0)


if __name__ == "__main__":
    main()
