"""Bad input: one clear sentence on standard error, exit code 1 or 2, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.service.client import Client
from tests.tui.conftest import Command
from tests.tui.desk import DeskClient
from tui import cli, headless

Refused = Callable[..., str]


@pytest.fixture
def refused(command: Command) -> Refused:
    """Runs the command; returns the one sentence it ends with, after checking its manners."""

    def run(*arguments: Any, code: int = 2) -> str:
        ended, out, err = command(*arguments)
        assert (ended, out) == (code, "")
        assert err.startswith("tensorstep: ")
        assert err.endswith("\n")
        sentence = err.removeprefix("tensorstep: ").removesuffix("\n")
        assert sentence.isprintable()
        assert "Traceback" not in sentence
        return sentence

    return run


# --- texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty: give --text a file with text in it"),
        (b"  \n\t \r\n", "holds no token: give a text with at least one word or mark"),
        (b"\xef\xbb\xbf", "holds no token"),
        (b"caf\xe9 au lait", "is not UTF-8 (byte 3 is 0xe9): convert it"),
        (b"fine until \xff", "is not UTF-8 (byte 11 is 0xff): convert it"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "holds NUL bytes, so it is not text"),
        ("words".encode("utf-16"), "so it is not text"),
        (b"\x7fELF\x02\x01\x01\0", "so it is not text"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--lines",)], ids=["whole", "lines"])
def test_files_that_are_no_text(
    refused: Refused, tmp_path: Path, raw: bytes, words: str, more: tuple[str, ...]
):
    file = tmp_path / "file.txt"
    file.write_bytes(raw)
    for what in ("train", "generate"):
        sentence = refused("states", what, "--text", file, *more)
        assert sentence.startswith(repr(str(file)))
        assert words in sentence
    assert words in refused("--text", file, *more)


def test_files_that_are_not_there(refused: Refused, tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_text("words")
    missing = tmp_path / "missing.txt"
    assert refused("states", "train", "--text", missing) == (
        f"there is no file {str(missing)!r}: check the path given to --text"
    )
    assert refused("states", "train", "--text", tmp_path) == (
        f"{str(tmp_path)!r} is a directory: give --text a UTF-8 text file"
    )
    assert "cannot be read (Not a directory)" in refused("states", "train", "--text", file / "b")
    assert "cannot be read (File name too long)" in refused("states", "train", "--text", "a" * 300)


def test_hostile_names_of_files(refused: Refused, tmp_path: Path):
    """Escape sequences, line ends and bidi overrides in a name are shown, whatever is wrong."""
    missing = tmp_path / "\x1b[31mred\x07\nevil\u202etxt.[bold]"
    sentence = refused("states", "train", "--text", missing)
    assert "[31mred" in sentence
    assert "[bold]" in sentence
    for raw in ("\x1b", "\x07", "\n", "\u202e"):
        assert raw not in sentence
    missing.write_text("")
    assert "is empty" in refused("states", "train", "--text", missing)
    missing.unlink()
    missing.mkdir()
    assert "is a directory" in refused("--text", missing)


@pytest.mark.parametrize("sentence", ["", " ", "\n", "\u3000\u00a0"])
def test_a_sentence_without_a_token(refused: Refused, sentence: str):
    assert refused("states", "train", "--sentence", sentence) == (
        "the sentence holds no token: give a text with at least one word or mark"
    )


@pytest.mark.parametrize("prompt", ["blue", "blue green", "!?", "\x1b[31m"])
def test_a_prompt_of_unknown_words(refused: Refused, prompt: str):
    """It names some that are known."""
    found = refused("states", "generate", "--prompt", prompt)
    assert "has no token of the vocabulary: use one of its words, such as ., a, ball" in found
    assert found.startswith("the prompt ")


# --- options ---------------------------------------------------------------------------------

EXCLUDED = "--draw, --draw-seed (or --seed) and --greedy exclude each other"
TRAIN, GENERATE = ("states", "train"), ("states", "generate")
MISTAKES: list[tuple[tuple[str, ...], tuple[Any, ...], str]] = [
    (TRAIN, ("--steps", 0), "--steps 0 makes nothing: give 1 or more"),
    (TRAIN, ("--steps", -3), "--steps -3 makes nothing"),
    (GENERATE, ("--steps", 0), "--steps 0 makes nothing: give 1 or more"),
    (TRAIN, ("--steps", "many"), "--steps"),
    (TRAIN, ("--steps", "1.5"), "--steps"),
    (TRAIN, ("--model", "rnn"), "no model is called 'rnn': use bigram, mlp, attention"),
    (GENERATE, ("--model", ""), "no model is called ''"),
    (TRAIN, ("--model", "\x1b[31m"), "no model is called '\\x1b[31m'"),
    (TRAIN, ("--rows", "7"), "--rows 7: there is no window 7, the text gives windows 0 to 6"),
    (TRAIN, ("--rows", "2,99"), "there is no window 99"),
    (TRAIN, ("--rows", "-1"), "--rows"),
    (TRAIN, ("--rows", "two"), "--rows 'two' are no windows: write their numbers as 2,3"),
    (TRAIN, ("--rows", ""), "--rows ''"),
    (TRAIN, ("--rows", "1,,2"), "--rows '1,,2'"),
    (TRAIN, ("--rows", "²"), "--rows"),
    (TRAIN, ("--rows", "1", "--batch", 2), "--rows and --batch are both given"),
    (TRAIN, ("--batch", 0), "--batch 0 is too small: give 1 or more"),
    (TRAIN, ("--width", 0), "--width 0 is too small"),
    (TRAIN, ("--hidden", -1), "--hidden -1 is too small"),
    (TRAIN, ("--heads", 0), "--heads 0 is too small"),
    (TRAIN, ("--context", 0), "--context 0 is too small"),
    (TRAIN, ("--lr", 0), "--lr 0 does not train"),
    (TRAIN, ("--lr", "nan"), "--lr nan does not train"),
    (TRAIN, ("--lr", "inf"), "--lr inf does not train"),
    (TRAIN, ("--lr", "fast"), "--lr"),
    (TRAIN, ("--optimizer", "rmsprop"), "no optimizer is called 'rmsprop': use sgd, adam, adamw"),
    (TRAIN, ("--seed", -1), "-1 is no seed"),
    (GENERATE, ("--seed", 2**63), f"{2**63} is no seed"),
    (GENERATE, ("--train-steps", -1), "--train-steps -1 is too small: give 0 or more"),
    (GENERATE, ("--draw", 1.01), "--draw 1.01 is no share: give a number from 0 to 1"),
    (GENERATE, ("--draw", "nan"), "--draw nan is no share"),
    (
        GENERATE,
        ("--draw", 0.5, "--seed", 1),
        EXCLUDED,
    ),
    (
        GENERATE,
        ("--draw", 0.5, "--greedy"),
        EXCLUDED,
    ),
    (
        GENERATE,
        ("--greedy", "--seed", 1),
        EXCLUDED,
    ),
    (TRAIN, ("--lines",), "--lines goes with --text FILE"),
    (TRAIN, ("--text", "x", "--sentence", "y"), "--sentence and --text are both given"),
    (TRAIN, ("--colour",), "--colour"),
    (TRAIN, ("--sentence",), "--sentence"),
    (("states", "both"), (), "there are no 'both' states: use train or generate"),
    (("states",), (), "train|generate"),
    (TRAIN, ("more",), "more"),
    (("fly",), (), "fly"),
    ((), ("--map", "city"), "there is no 'city' map: use training or generation"),
    ((), ("--model", "rnn"), "no model is called 'rnn'"),
    ((), ("--rows", "x"), "--rows 'x' are no windows"),
]


@pytest.mark.parametrize(("what", "options", "words"), MISTAKES, ids=lambda each: str(each)[:40])
def test_options_that_cannot_be_used(
    refused: Refused, what: tuple[str, ...], options: tuple[Any, ...], words: str
):
    assert words in refused(*what, *options)


def test_heads_that_do_not_share_the_width(refused: Refused):
    sentence = refused("states", "train", "--model", "multihead", "--heads", 3)
    assert sentence == "3 heads do not share a width of 4 evenly: give a multiple"


@pytest.mark.parametrize("more", [(), ("--draw", 0.5)])
def test_training_that_has_blown_up(command: Command, more: tuple[Any, ...]):
    """With logits that are NaN there is no token to choose: the states before are printed."""
    steps = ("--model", "mlp", "--lr", "1e30", "--train-steps", 5)
    code, out, err = command("states", "generate", *steps, *more)
    assert code == 1
    assert "logits.blocked" in out
    assert "choice" not in out
    assert err.startswith("tensorstep: no token has a probability above 0")
    assert err.count("\n") == 1


# --- no terminal -----------------------------------------------------------------------------


def terminal(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] | None) -> None:
    """Standard streams that are a terminal of that size, or none."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        monkeypatch.setattr(stream, "isatty", lambda: size is not None)
        monkeypatch.setattr(stream, "fileno", lambda: 0)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size(size or (0, 0)))


def no_screen(*_: Any, **__: Any) -> None:
    raise AssertionError("a screen was opened")


@pytest.fixture
def without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    from tui import app

    monkeypatch.setattr(app.Tensorstep, "run", no_screen)


@pytest.mark.usefixtures("without_a_screen")
class TestNoTerminal:
    def test_output_that_is_no_terminal(
        self, command: Command, refused: Refused, monkeypatch: pytest.MonkeyPatch
    ):
        terminal(monkeypatch, None)
        assert refused() == (
            "there is no terminal to draw on: use `tensorstep states train --json` instead"
        )
        assert "no terminal" in refused("--sentence", "one two", "--goto", "1:loss")

    def test_a_dumb_one(self, refused: Refused, monkeypatch: pytest.MonkeyPatch):
        terminal(monkeypatch, (120, 40))
        monkeypatch.setenv("TERM", "dumb")
        assert "there is no terminal to draw on" in refused()

    @pytest.mark.parametrize("size", [(79, 24), (80, 23), (20, 5), (1, 1)])
    def test_one_that_is_too_small(
        self, refused: Refused, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
    ):
        terminal(monkeypatch, size)
        sentence = refused()
        assert sentence.startswith(f"the terminal is {size[0]}x{size[1]}, tensorstep needs 80x24:")
        assert "tensorstep states train --json" in sentence

    @pytest.mark.parametrize("name", ["stdin", "stdout"])
    def test_streams_that_are_closed(
        self, refused: Refused, monkeypatch: pytest.MonkeyPatch, name: str
    ):
        """`tensorstep <&-`: Python has None for such a stream."""
        terminal(monkeypatch, (120, 40))
        monkeypatch.setattr(sys, name, None)
        with pytest.raises(cli.UsageError, match="there is no terminal to draw on"):
            cli.check_terminal()

    @pytest.mark.parametrize("place", ["", "loss", "1:loss:x", "-1"])
    def test_a_place_that_is_none(
        self, refused: Refused, monkeypatch: pytest.MonkeyPatch, place: str
    ):
        terminal(monkeypatch, (120, 40))
        assert "is no " in refused(f"--goto={place}")

    def test_mistakes_are_told_before_the_screen_opens(
        self, refused: Refused, monkeypatch: pytest.MonkeyPatch
    ):
        terminal(monkeypatch, (120, 40))
        assert "there is no file" in refused("--text", "/nowhere.txt")
        assert "no model is called" in refused("--model", "gpt")


# --- a worker that dies ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import sys; print('CUDA \\x1b[31merror', file=sys.stderr); sys.exit(7)", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("print('Downloading: 100%')", "cannot be meant"),
    ],
)
def test_a_worker_that_dies(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, body: str, words: str
):
    monkeypatch.setattr(headless, "Client", lambda: Client((sys.executable, "-c", body)))
    sentence = refused("states", "train", code=1)
    assert sentence.startswith("the worker died")
    assert words in sentence
    if "CUDA" in body:
        assert "its last words: CUDA \\e[31merror" in sentence


def test_a_worker_that_cannot_be_started(refused: Refused, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(headless, "Client", lambda: Client(("/nowhere",)))
    assert "the worker could not be started" in refused("states", "train", code=1)


class Failing(DeskClient):
    """Its desk has a bug."""

    async def start(self) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError("by\nnothing")

        self.desk.answer = fail  # type: ignore[assignment]


def test_a_bug_of_ours_is_one_sentence(refused: Refused, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(headless, "Client", Failing)
    sentence = refused("states", "train", code=1)
    assert sentence == "the worker failed: ZeroDivisionError: by nothing"

    def broken(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(headless, "print_json", broken)
    monkeypatch.setattr(headless, "Client", DeskClient)
    sentence = refused("states", "train", "--json", code=1)
    assert sentence == "failed: KeyError: 'x' (--debug tells where)"


def test_debug_tells_where(command: Command, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(headless, "print_json", broken)
    code, out, err = command("--debug", "states", "train", "--json")
    assert (code, out) == (1, "")
    assert "Traceback" in err
    assert "in broken" in err
    assert err.splitlines()[-1].startswith("tensorstep: failed: KeyError")
    monkeypatch.setattr(headless, "Client", Failing)
    code, out, err = command("--debug", "states", "train")
    assert (code, out) == (1, "")
    assert 'raise ZeroDivisionError("by\\nnothing")' in err  # the worker's own traceback
    code, _, err = command("states", "train", "--rows", "x", "--debug")
    assert code == 2
    assert "Traceback" in err


def test_interrupted(command: Command, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(headless, "print_json", interrupted)
    code, out, err = command("states", "train", "--json")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


# --- what is no mistake ----------------------------------------------------------------------


def test_help_and_version(command: Command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert "--sentence" in out
    assert "--goto" in out
    code, out, err = command("states", "--help")
    assert (code, err) == (0, "")
    for option in ("--model", "--rows", "--draw", "--greedy", "--max-values", "--json"):
        assert option in out
    code, out, err = command("--version")
    assert (code, err) == (0, "")
    assert out.startswith("tensorstep ")
