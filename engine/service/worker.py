"""The worker: a process that owns tensors, models and walks, and answers requests for them.

Started as `python -P -m engine.service.worker`; frames come in on its standard input and go out on
its standard output. It ends when its input does, whatever it is doing then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import BinaryIO

from engine.service.desk import Desk
from engine.service.leaving import leave
from engine.service.line import Line
from engine.service.protocol import BrokenFrame


def serve(incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Answer requests until the input ends."""

    def write(frame: bytes) -> None:
        outgoing.write(frame)
        outgoing.flush()

    line = Line(incoming, write)
    desk = Desk(line.tell)
    threading.Thread(target=listen, args=(line,), daemon=True).start()
    while (request := line.requests.get()) is not None:
        line.reply(request[0], desk.answer)


def listen(line: Line) -> None:
    """Queue requests; at the end of input leave at once, even from the middle of a computation."""
    try:
        line.listen()
    except BrokenFrame as error:
        print(f"tensorstep's worker was sent a broken frame: {error}", file=sys.stderr, flush=True)
        leave()
        os._exit(1)
    leave()
    os._exit(0)


def main() -> None:
    """Take the pipes for frames alone: what anything else prints goes to standard error."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the screen's to answer: its end ends the input
        signal.signal(number, signal.SIG_IGN)
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
