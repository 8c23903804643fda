"""Answers the screens of a run on its socket, each in threads of its own. Knows no tensors."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from engine.service.line import Answer, Line
from engine.service.protocol import BrokenFrame
from engine.service.sockets import is_own

OFTEN = 0.1  # seconds between two tries to take a screen in


class Visitor:
    """One screen.

    cursors  where it stands: on each map, in which walk of a paused step
    """

    def __init__(self, line: Line):
        self.line = line
        self.read_only = False
        self.cursors: dict[str, tuple[Any, Any]] = {}


Reply = Callable[[Visitor, str, dict[str, Any]], Answer]


class Reception:
    """Takes screens in, and lets go of them."""

    def __init__(self, listening: socket.socket, reply: Reply):
        self._listening = listening
        self._reply = reply
        self._visitors: set[Visitor] = set()
        self._connections: set[socket.socket] = set()
        self._answering = threading.Condition()
        self._in_hand = 0  # requests that are being answered
        threading.Thread(target=self._accept, daemon=True, name="reception").start()

    @property
    def screens(self) -> int:
        """How many are attached."""
        return len(self._visitors)

    def finish(self, seconds: float) -> None:
        """Wait until what is being answered is sent, no longer than so many seconds."""
        with self._answering:
            self._answering.wait_for(lambda: not self._in_hand, seconds)

    def close(self) -> None:
        """Take nobody in any more, and have those leave who are in."""
        for each in (self._listening, *self._connections):
            with contextlib.suppress(OSError):  # wakes who waits for it, which closing does not
                each.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:  # closed, or too many files are open
                if self._listening.fileno() < 0:
                    return
                time.sleep(OFTEN)
                continue
            try:
                own = is_own(connected)
            except OSError:
                own = False
            if not own:  # another user's: not a word to them
                connected.close()
                continue
            threading.Thread(target=self._receive, args=(connected,), daemon=True).start()

    def _receive(self, connected: socket.socket) -> None:
        with connected, connected.makefile("rb") as incoming:
            visitor = Visitor(Line(incoming, connected.sendall))
            threading.Thread(target=listen, args=(visitor.line,), daemon=True).start()
            self._visitors.add(visitor)
            self._connections.add(connected)

            def answer(method: str, params: dict[str, Any]) -> Answer:
                return self._reply(visitor, method, params)

            try:
                while (request := visitor.line.requests.get()) is not None:
                    with self._one_more():
                        visitor.line.reply(request[0], answer)
            except (OSError, ValueError):  # it is gone
                pass
            finally:
                self._visitors.discard(visitor)
                self._connections.discard(connected)

    @contextlib.contextmanager
    def _one_more(self) -> Iterator[None]:
        with self._answering:
            self._in_hand += 1
        try:
            yield
        finally:
            with self._answering:
                self._in_hand -= 1
                self._answering.notify_all()


def listen(line: Line) -> None:
    """Queue requests until the screen is gone, or sends what is none."""
    with contextlib.suppress(BrokenFrame, OSError, ValueError):
        line.listen()
    line.requests.put(None)
