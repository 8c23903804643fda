"""However the command ends, the terminal is as it was before, and no process stays behind."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.terminal.terminal import CTRL_C, CTRL_Q, POINTER, Terminal, alive, wait_until_gone

pytestmark = pytest.mark.terminal
LOADING = "loading the model"  # the first frame
READY = "stories[0] ="  # the cell under the cursor of the first state

MOUSE = {9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016}
OFF = {
    1: "application cursor keys",
    1004: "focus reports",
    1049: "alternate screen",
    2004: "bracketed paste",
    2026: "synchronized output",
    2048: "resizes in the input",
}


def assert_clean(terminal: Terminal) -> None:
    """Every mode is off that was on, the cursor is seen, lines are edited and echoed again."""
    modes = terminal.modes
    assert not [name for number, name in OFF.items() if modes.get(number)]
    assert 1049 in modes, "it never drew anything"
    assert modes.get(25, True), "the cursor is hidden"
    assert modes.get(7, True), "long lines are not wrapped"
    assert not terminal.switched_on & MOUSE
    assert terminal.keyboard_modes == 0
    assert terminal.settings_now == terminal.settings


def afterwards(terminal: Terminal) -> str:
    """What is written after the alternate screen was left: what a user then reads."""
    _, left, rest = bytes(terminal.raw).rpartition(b"\x1b[?1049l")
    assert left
    return POINTER.sub(b"", rest.replace(b"\x1b[?25h", b"").replace(b"\x1b[?1004l", b"")).decode()


@pytest.mark.parametrize(
    ("key", "when", "modern"), [("q", READY, False), (CTRL_C, READY, True), ("q", LOADING, True)]
)
def test_a_key_quits(key: str, when: str, modern: bool) -> None:
    with Terminal(modern=modern) as terminal:
        terminal.wait_for(when)
        worker = terminal.worker
        terminal.send(key)
        assert terminal.wait() == 0
        wait_until_gone(worker)
        assert_clean(terminal)
        assert afterwards(terminal) == ""


@pytest.mark.parametrize(
    ("number", "when", "code"),
    [
        (signal.SIGTERM, READY, 143),
        (signal.SIGTERM, LOADING, 143),
        (signal.SIGHUP, LOADING, 129),
        (signal.SIGINT, LOADING, 130),
        (signal.SIGQUIT, READY, 131),
    ],
)
def test_a_signal_ends_both_processes(number: signal.Signals, when: str, code: int) -> None:
    with Terminal() as terminal:
        terminal.wait_for(when)
        worker = terminal.worker
        terminal.signal(number)
        assert terminal.wait() == code
        wait_until_gone(worker)
        assert_clean(terminal)


def test_a_signal_before_the_first_frame() -> None:
    with Terminal() as terminal:
        terminal.wait_for(lambda t: b"\x1b[?1049h" in t.raw)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 143
        assert_clean(terminal)


@pytest.mark.parametrize("when", [READY, LOADING])
def test_a_hang_up_ends_both_processes(when: str) -> None:
    """The terminal is closed, as when an SSH connection breaks."""
    with Terminal() as terminal:
        terminal.wait_for(when)
        worker = terminal.worker
        terminal.hang_up()
        assert terminal.wait(15) == 129
        wait_until_gone(worker)


@pytest.mark.parametrize(("when", "asked"), [(LOADING, False), (READY, False), (READY, True)])
def test_a_worker_that_is_killed(when: str, asked: bool) -> None:
    """While it loads, while nobody asks it anything, while it owes an answer."""
    with Terminal() as terminal:
        terminal.wait_for(when)
        worker = terminal.worker
        if asked:
            os.kill(worker, signal.SIGSTOP)
            terminal.send("n")
            terminal.settle(0.1)
        os.kill(worker, signal.SIGKILL)
        assert terminal.wait(15) == 1
        assert not alive(worker)
        assert_clean(terminal)
        said = "tensorstep: the worker died, killed by SIGKILL; it said nothing\r\n"
        assert afterwards(terminal) == said


def test_the_last_words_of_a_worker() -> None:
    """What it wrote last is told; control characters in it are shown, not obeyed."""
    last = r"print('line 1\nline 2\nout of \x1b[31mmemory', file=sys.stderr); os._exit(3)"
    code = (
        "import sys; from engine.service import client; import tui.cli;"
        f'client.COMMAND = (sys.executable, "-c", "import os, sys; " + {last!r});'
        "client.Client.__init__.__defaults__ = (client.COMMAND,); tui.cli.main([])"
    )
    with Terminal(command=(sys.executable, "-c", code)) as terminal:
        assert terminal.wait(15) == 1
        assert_clean(terminal)
        said = (
            "the worker died, exit code 3; its last words: line 1 / line 2 / out of \\e[31mmemory"
        )
        assert afterwards(terminal) == f"tensorstep: {said}\r\n"


BROKEN = {
    "an action": ("Tensorstep.action_help = broken", LOADING, "?"),
    "a job": ("Walker.move = broken", READY, "n"),
    "drawing": ("TensorTable.render_line = broken", "", ""),
    "mounting": ("Tensorstep.on_mount = broken", "", ""),
    "resizing": ("Tensorstep.on_resize = broken", "", ""),
    "composing": ("Tensorstep.compose = broken", "", ""),
}


@pytest.mark.parametrize("where", BROKEN)
def test_a_mistake_of_ours_is_one_sentence(where: str) -> None:
    broken, when, key = BROKEN[where]
    code = f"""
import tui.cli, os
os.environ["TEXTUAL_SMOOTH_SCROLL"] = "0"
from tui.app import Tensorstep
from tui.walker import Walker
from tui.widgets.table import TensorTable
def broken(*_, **__):
    raise LookupError("thrown \\x1b[31min")
{broken}
tui.cli.main(["open", "example:lily"])
"""
    with Terminal(command=(sys.executable, "-c", code), modern=True) as terminal:
        if key:
            terminal.wait_for(when)
            terminal.send(key)
        assert terminal.wait(15) == 1
        assert_clean(terminal)
        said = "tensorstep: failed: LookupError: thrown \\e[31min (--debug tells where)"
        assert afterwards(terminal) == said + "\r\n"


def test_debug_tells_where() -> None:
    code = "import tui.app\ntui.app.Tensorstep.action_help = lambda _: 1 / 0\n"
    code += "from tui.cli import main\nmain(['open', 'example:lily', '--debug'])"
    with Terminal(command=(sys.executable, "-c", code)) as terminal:
        terminal.wait_for(LOADING)
        terminal.send("?")
        assert terminal.wait(15) == 1
        assert_clean(terminal)
        assert "ZeroDivisionError" in afterwards(terminal)


@pytest.mark.parametrize("how", ["key", "signal"])
def test_suspended_and_continued(how: str) -> None:
    """ctrl+z or `kill -TSTP`, and later `fg`: the shell in between has a clean terminal."""
    with Terminal() as terminal:
        terminal.wait_for(LOADING)
        terminal.settle()  # Textual may hang where this comes while it writes
        if how == "key":
            terminal.send("\x1a")
        else:
            terminal.signal(signal.SIGTSTP)
        seen = os.WUNTRACED | os.WNOHANG
        terminal.wait_for(lambda t: os.WIFSTOPPED(os.waitpid(t.pid, seen)[1]))
        terminal.settle(0.05)
        assert_clean(terminal)
        terminal.signal(signal.SIGCONT)
        terminal.wait_for(lambda t: t.modes[1049])
        terminal.press("?", "escape: close")
        terminal.send("qq")
        assert terminal.wait() == 0
        assert_clean(terminal)


def test_no_key_that_a_multiplexer_eats_is_needed() -> None:
    """ctrl+q, Textual's own key, does nothing: it is not bound."""
    with Terminal() as terminal:
        terminal.wait_for(LOADING)
        terminal.send(CTRL_Q + "\x01\x02\x13\x10")  # and ctrl+a, b, s, p
        terminal.press("?", "escape: close")
        terminal.send("qq")
        assert terminal.wait() == 0
        assert_clean(terminal)
