"""Where nothing can be drawn, or what was asked for is not there: one sentence, exit code 1 or 2,
and the terminal is not touched."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.terminal.terminal import COMMAND, Terminal

pytestmark = pytest.mark.terminal
NO_TERMINAL = "tensorstep: there is no terminal to draw on: use `tensorstep states train --json`"


def one_sentence(text: str) -> str:
    """The text, which is to be one line and no traceback."""
    assert text.startswith("tensorstep: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [("tokenize", "a ball"), ("states", "train", "--json")])
def test_no_room_for_the_output(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "the output cannot be written (No space left on device)" in one_sentence(done.stderr)


@pytest.mark.parametrize("size", [(60, 15), (79, 24), (80, 23)])
def test_a_terminal_that_is_too_small(size: tuple[int, int]) -> None:
    with Terminal(size=size) as terminal:
        assert terminal.wait() == 2
        told = one_sentence(terminal.raw.decode())
        assert f"the terminal is {size[0]}x{size[1]}, tensorstep needs 80x24" in told
        assert "\x1b" not in told
        assert terminal.settings_now == terminal.settings


def test_a_terminal_that_does_not_know_its_size() -> None:
    """0x0, as some serial lines say: it is taken to be 80x24."""
    with Terminal(size=(80, 24)) as terminal:
        terminal.wait_for("q quit")
    with Terminal(size=(0, 0), watched=False) as terminal:
        terminal.wait_for(lambda t: b"quit" in t.raw)
        terminal.send("q")
        assert terminal.wait() == 0


def test_a_dumb_terminal() -> None:
    with Terminal(env={"TERM": "dumb"}) as terminal:
        assert terminal.wait() == 2
        assert one_sentence(terminal.raw.decode()).startswith(NO_TERMINAL)


def test_no_terminal_at_all() -> None:
    done = subprocess.run([COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert not done.stdout
    assert one_sentence(done.stderr).startswith(NO_TERMINAL)


@pytest.mark.parametrize(
    "line", ["CMD </dev/null", "CMD <&-", "CMD >/dev/null", "(CMD; exit $?) 2>&1 >/dev/tty | cat"]
)
def test_one_of_the_three_is_no_terminal(line: str) -> None:
    """`tensorstep < file`, `tensorstep | less` and `tensorstep 2> log` (Textual draws there)."""
    line = f"set -o pipefail; {line.replace('CMD', COMMAND)}"
    with Terminal(command=["/bin/bash", "-c", line]) as terminal:
        assert terminal.wait() == 2
        assert one_sentence(terminal.raw.decode().replace("\r", "")).startswith(NO_TERMINAL)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--text", "nowhere.txt"], "there is no file 'nowhere.txt'"),
        (["--text", "evil\x1b[31m\x07\n.txt"], r"evil\x1b[31m\x07\n.txt"),
        (["--text", "."], "is a directory"),
        (["--model", "gpt9"], "no model is called 'gpt9'"),
        (["--sentence", " \n "], "holds no token"),
        (["--goto", "one:two"], "is no place"),
        (["--rows", "99"], "there is no window 99"),
        (["--goto", "1:weights:9,9,9"], "[9, 9, 9]"),
    ],
)
def test_wrong_usage(arguments: list[str], told: str, tmp_path: os.PathLike[str]) -> None:
    """Found before or after the screen has opened: it is told on a terminal that is clean."""
    with Terminal(arguments, cwd=tmp_path) as terminal:
        assert terminal.wait() == 2
        said = bytes(terminal.raw).rpartition(b"\x1b[?1004l")[2].decode().replace("\r", "")
        assert told in one_sentence(said)
        assert "\x1b" not in said
        assert not terminal.modes.get(1049)
        assert terminal.settings_now == terminal.settings
