"""A terminal: starts a command in a real pseudo-terminal, types keys, and sees what a user sees.

The emulator is pyte. Everything the command writes is also kept as raw bytes, from which
`modes` tells what it switched on and off. Nothing here sleeps: reading waits on the descriptor.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyte

COMMAND = str(Path(sys.executable).parent / "tensorstep")
PATIENCE = 30.0  # seconds until a screen that does not come is an error
PIECE, FRAME = 0.005, 0.2  # seconds until a frame's next piece; that a frame takes at most
WORKED = ("open", "example:lily")
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
ESCAPE, ENTER, TAB, CTRL_C, CTRL_Q = "\x1b", "\r", "\t", "\x03", "\x11"

PRIVATE_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
POINTER = re.compile(rb"\x1b\]22;[a-z-]*\x07")  # Textual's, the shape of a pointer
KITTY = re.compile(rb"\x1b\[([<>=])([\d;]*)u")
QUERY = re.compile(rb"\x1b\[\?(\d+)\$p")

Screen = Callable[["Terminal"], object]


class Terminal:
    """One command in one pseudo-terminal of `size` (columns, lines).

    arguments  of the command; None: the worked sentence
    env      what is put on top of this process's environment (None takes a name away)
    modern   answer the questions that new terminals answer: synchronized output (2026) and
             resizes told in the input (2048)
    watched  False: bytes are only kept, not drawn, so that a measurement is not slowed down
    """

    def __init__(
        self,
        arguments: Sequence[str] | None = None,
        size: tuple[int, int] = (120, 40),
        env: Mapping[str, str | None] | None = None,
        cwd: str | Path | None = None,
        command: Sequence[str] = (COMMAND,),
        modern: bool = False,
        watched: bool = True,
    ):
        if arguments is None:
            arguments = WORKED if tuple(command) == (COMMAND,) else ()
        self.size = size
        self.raw = bytearray()
        self.modern = modern
        self.watched = watched
        self.last_byte = 0.0  # when the newest bytes came, by `time.perf_counter`
        self.code: int | None = None  # exit code once it has ended, -N for a signal
        self._answered = 0
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        # the other end stays open here: what was written last, and the line settings, outlive
        # the command
        self._fd, self._other = pty.openpty()
        self._set_size(size)
        self.settings = termios.tcgetattr(self._other)
        environment = dict(os.environ, TERM="xterm-256color", LANG="C.UTF-8", COLUMNS="", LINES="")
        environment |= {name: value for name, value in (env or {}).items() if value is not None}
        for name in ("COLUMNS", "LINES", *(n for n, value in (env or {}).items() if value is None)):
            environment.pop(name, None)
        self.started = time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:  # pragma: no cover (the child)
            try:
                os.close(self._fd)
                os.login_tty(self._other)
                signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup takes from the tests
                if cwd is not None:
                    os.chdir(cwd)
                os.execve(command[0], [*command, *arguments], environment)
            finally:
                os._exit(127)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    # --- what it shows --------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The screen, line by line, without the blanks at the right."""
        rows = (self._screen.buffer[y] for y in range(self._screen.lines))  # `display` can fail
        cells = range(self._screen.columns)
        return ["".join(row[x].data for x in cells).rstrip() for row in rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def title(self) -> str:
        """The window's title, if something has set one."""
        title: str = self._screen.title
        return title

    def cells(self, y: int) -> list[Any]:
        """One line as pyte's characters, with their colours and attributes."""
        row = self._screen.buffer[y]
        return [row[x] for x in range(self._screen.columns)]

    def reversed_text(self) -> list[tuple[int, int, str]]:
        """Line, column and text of everything drawn in reverse video."""
        found = []
        for y in range(self._screen.lines):
            x, row = 0, self.cells(y)
            while x < len(row):
                start = x
                while x < len(row) and row[x].reverse:
                    x += 1
                if x > start:
                    found.append((y, start, "".join(cell.data for cell in row[start:x])))
                x += 1
        return found

    # --- typing and waiting ---------------------------------------------------------------

    def send(self, keys: str) -> None:
        """Type: all keys at once, as a fast typist's would arrive."""
        os.write(self._fd, keys.encode())

    def press(self, keys: str, wanted: str | Screen, patience: float = PATIENCE) -> None:
        """Type, then wait for a text or until the screen is as `wanted` says."""
        self.send(keys)
        self.wait_for(wanted, patience)

    def wait_for(self, wanted: str | Screen, patience: float = PATIENCE) -> None:
        """Read until the screen shows a text, or is as `wanted(terminal)` says; then what else has
        come of the same frame, as a large one arrives in several pieces.

        Raises AssertionError, with what is on the screen, when it does not become so in time.
        """
        end = time.perf_counter() + patience
        while not self._shows(wanted):
            left = end - time.perf_counter()
            if left <= 0 or (not self.read(min(left, 0.05)) and self._reap() and not self.read()):
                if self._shows(wanted):
                    return
                ended = "" if self.code is None else f" (it has ended with {self.code})"
                raise AssertionError(f"waited in vain for {wanted!r}{ended} on\n{self.text}")
        end = time.perf_counter() + FRAME
        while self.read(PIECE) and time.perf_counter() < end:
            pass

    def _shows(self, wanted: str | Screen) -> bool:
        return wanted in self.text if isinstance(wanted, str) else bool(wanted(self))

    def settle(self, quiet: float = 0.2, patience: float = PATIENCE) -> float:
        """Read until nothing has come for `quiet` seconds. Returns when the last byte came."""
        end = time.perf_counter() + patience
        while self.read(quiet):
            if time.perf_counter() > end:
                raise AssertionError("it never stops writing")
        return self.last_byte

    def read(self, patience: float = 0.0) -> bool:
        """Take what is there, waiting at most `patience`. False where there was nothing."""
        if self._fd < 0 or not select.select([self._fd], [], [], patience)[0]:
            return False
        try:
            got = os.read(self._fd, 65536)
        except OSError:
            return False
        self.last_byte = time.perf_counter()
        self.raw += got
        if self.watched:
            # pyte takes "ESC [ < u" for text and the pointer's shape for a title
            self._stream.feed(POINTER.sub(b"", KITTY.sub(b"", got)))
        if self.modern:
            self._answer()
        return bool(got)

    def _answer(self) -> None:
        for query in QUERY.finditer(self.raw, self._answered):
            self._answered = query.end()
            if query[1] in (b"2026", b"2048"):
                os.write(self._fd, b"\x1b[?%s;2$y" % query[1])

    # --- the outer world ------------------------------------------------------------------

    def resize(self, size: tuple[int, int]) -> None:
        """Another size, as when a window is dragged: the command is told by SIGWINCH (or, where it
        has asked for that, in its input)."""
        self.size = size
        self._screen.resize(size[1], size[0])
        self._set_size(size)  # the kernel sends SIGWINCH
        if self.modern and self.modes.get(2048):
            self.send(f"\x1b[48;{size[1]};{size[0]};{size[1] * 20};{size[0] * 10}t")

    def _set_size(self, size: tuple[int, int]) -> None:
        packed = struct.pack("HHHH", size[1], size[0], 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, packed)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal, as when the connection breaks."""
        os.close(self._other)
        os.close(self._fd)
        self._fd = self._other = -1

    def wait(self, patience: float = PATIENCE) -> int:
        """Read until the command has ended. Returns its exit code (-N: killed by signal N)."""
        end = time.perf_counter() + patience
        while not self._reap():
            if time.perf_counter() > end:
                raise AssertionError(f"it does not end; the screen is\n{self.text}")
            if not self.read(0.02) and self._fd < 0:
                time.sleep(0.01)  # no descriptor left to wait on
        while self.read():
            pass
        assert self.code is not None
        return self.code

    def _reap(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def end(self) -> None:
        """Kill what is left, and close."""
        if not self._reap():
            for pid in (*children(self.pid), self.pid):
                os.kill(pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self._fd >= 0:
            self.hang_up()

    # --- what it has switched on ------------------------------------------------------------

    @property
    def modes(self) -> dict[int, bool]:
        """Every private mode (ESC [ ? N h or l) that was ever set: whether it is on now."""
        found = {}
        for numbers, letter in PRIVATE_MODE.findall(bytes(self.raw)):
            for number in numbers.split(b";"):
                found[int(number)] = letter == b"h"
        return found

    @property
    def switched_on(self) -> set[int]:
        """Every private mode that was ever switched on."""
        raw = bytes(self.raw)
        return {
            int(number)
            for numbers, letter in PRIVATE_MODE.findall(raw)
            for number in numbers.split(b";")
            if letter == b"h"
        }

    @property
    def keyboard_modes(self) -> int:
        """How many levels of kitty's keyboard protocol are still pushed."""
        letters = [letter for letter, _ in KITTY.findall(bytes(self.raw))]
        return letters.count(b">") - letters.count(b"<")

    @property
    def settings_now(self) -> list[Any]:
        """The line settings of the terminal (termios)."""
        return termios.tcgetattr(self._other)

    @property
    def worker(self) -> int:
        """Process number of the command's worker; it is started just after the first frame."""
        self.wait_for(lambda terminal: children(terminal.pid))
        (found,) = children(self.pid)
        return found


def children(pid: int) -> list[int]:
    """The processes started by one."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def alive(pid: int) -> bool:
    """Whether a process still runs (one that only waits to be reaped does not)."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith(("Z", "X"))


def wait_until_gone(pid: int, patience: float = 15.0) -> None:
    """Raises AssertionError where a process does not end in time."""
    end = time.perf_counter() + patience
    while alive(pid):
        assert time.perf_counter() < end, f"process {pid} still runs"
        time.sleep(0.02)
