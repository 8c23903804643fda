"""The command `tensorstep`: reads options, then opens the screen or prints states."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Coroutine
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.service.options import Options
from tui.arguments import names_of, options_of, parse
from tui.limits import SMALLEST
from tui.opened_arguments import map_of
from tui.places import Place
from tui.plain import shown

Work = Coroutine[Any, Any, None]
RUN_COMMANDS = ("train", "attach", "runs", "stop", "doctor")
WORKS = ("export", "reproduce", "learned")


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit codes: 0 done, 1 failed, 2 wrong usage; a mistake is one sentence on
    standard error, with a traceback only under --debug."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        code = run(parse([each for each in given if each != "--debug"]), debug)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) and error.filename is None
        said = f"the output cannot be written ({error.strerror}): make room, or write elsewhere"
        code = tell(TensorstepError(said) if full else error, debug)
    except (Exception, KeyboardInterrupt) as error:
        code = tell(error, debug)
    sys.exit(code)


def run(given: argparse.Namespace, debug: bool) -> int:
    """Do what the command line says. Returns the exit code."""
    if given.command is None and given.version:
        print_version()
        return 0
    if given.command in RUN_COMMANDS:
        return on_runs(given, debug)
    if given.command in WORKS:
        return do_whole(given)
    options = options_of(given)
    if given.command not in (None, "open"):
        return print_plainly(options, given)
    return open_screen(options, given, debug)


def on_runs(given: argparse.Namespace, debug: bool) -> int:
    """What is asked of training runs, and of the machine they are on."""
    from tui import run_commands

    def live(run: Any, read_only: bool) -> int:
        return open_live(run, read_only, getattr(given, "ascii", False), debug)

    if given.command == "train":
        if not hasattr(given, "no_screen"):
            check_terminal("tensorstep train --no-screen")
        return run_commands.train(given, live)
    if given.command == "attach":
        check_terminal("tensorstep runs")
        return live(run_commands.chosen_run(given.run), given.read_only)
    if given.command == "runs":
        return run_commands.print_runs(given.run_dir, given.json)
    if given.command == "stop":
        return run_commands.stop(given.run)
    from tui.doctor import print_doctor

    return print_doctor(given.json)


def open_live(run: Any, read_only: bool, ascii_only: bool, debug: bool) -> int:
    """Open the live screen of a run. Raises TensorstepError, afterwards, where it closed by
    itself."""
    set_up_textual()
    from tui.glyphs import ASCII
    from tui.run_app import RunScreen

    screen = RunScreen(run, read_only, ASCII if ascii_only else None, debug=debug)
    screen.run(mouse=False)
    if screen.failure is not None:
        raise TensorstepError(screen.failure, screen.return_code or 1)
    return screen.return_code or 0


def print_version() -> None:
    from importlib.metadata import version

    print(f"tensorstep {version('tensorstep')}")


def print_plainly(options: Options, given: argparse.Namespace) -> int:
    """What needs no screen."""
    import asyncio

    works = {
        "states": states_of,
        "explain": explanation_of,
        "tokenize": tokens_of,
        "corpus": audit_of,
        "generate": text_of,
    }
    asyncio.run(works[given.command](options, given))
    return 0


def states_of(options: Options, given: argparse.Namespace) -> Work:
    from tui.headless import print_states

    last = given.steps if given.what == "generate" else given.steps or 1
    edits = getattr(given, "edits", None)
    return print_states(given.what, options, last, given.json, given.max_values, edits)


def explanation_of(options: Options, given: argparse.Namespace) -> Work:
    from tui.headless import print_explanation

    place = Place(1 if given.step is None else given.step, given.what, given.at)
    either, edits = given.step is None, getattr(given, "edits", None)
    return print_explanation(map_of(given), options, place, either, given.json, edits)


def tokens_of(options: Options, given: argparse.Namespace) -> Work:
    from tui.headless import print_tokens

    text = typed_in() if given.what == "-" else given.what
    names = names_of(given.names)
    fitted_on = None if options.worked else options
    if names is None and fitted_on is None and "tokenizer" in vars(given):
        names = [given.tokenizer]
    return print_tokens(text, names, fitted_on, given.json)


def audit_of(options: Options, given: argparse.Namespace) -> Work:
    from tui.headless import print_audit

    return print_audit(options, given.json)


def text_of(options: Options, given: argparse.Namespace) -> Work:
    from tui.headless import print_text

    return print_text(options, not hasattr(given, "no_cache"), hasattr(given, "json"))


def do_whole(given: argparse.Namespace) -> int:
    """What needs no walk."""
    import asyncio

    from tui.exporting import export
    from tui.learning import learned
    from tui.reproducing import KEPT, reproduce

    works = {"export": export, "reproduce": reproduce, "learned": learned}
    try:
        asyncio.run(works[given.command](given))
    except KeyboardInterrupt:
        if given.command != "reproduce" or given.what not in KEPT:
            raise
        raise TensorstepError(
            "interrupted; its runs are saved: the same command goes on with them", 130
        ) from None
    return 0


def typed_in() -> str:
    """The text on standard input, without a byte order mark. Raises UsageError where it is none."""
    if sys.stdin is None:
        raise UsageError("there is no standard input to read: give the text itself")
    try:
        return sys.stdin.buffer.read().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 (byte {error.start}): convert it, for example with iconv"
        ) from None


def open_screen(options: Options, given: argparse.Namespace, debug: bool) -> int:
    """Open the screen. Raises TensorstepError, afterwards, where it closed by itself."""
    check_terminal()
    from tui.places import place_of

    place = None if given.goto is None else place_of(given.goto)
    set_up_textual()
    from tui.app import Tensorstep
    from tui.glyphs import ASCII

    screen = Tensorstep(options, place, map_of(given), ASCII if given.ascii else None, debug=debug)
    screen.run(mouse=False)
    if screen.failure is not None:
        raise TensorstepError(screen.failure, screen.return_code or 1)
    return screen.return_code or 0


def set_up_textual() -> None:
    """What Textual reads from the environment when it is imported."""
    # its resizes in the input are for mice; switched on late, they would stay on
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # a change waits for the next frame: 8 ms at the most, where Textual's 16 could be felt
    os.environ.setdefault("TEXTUAL_FPS", "120")


def check_terminal(instead: str = "tensorstep states train --json") -> None:
    """Raises UsageError where there is no terminal, or one too small, to draw on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on the last
    on_terminal = all(each is not None and each.isatty() for each in streams)
    if not on_terminal or os.environ.get("TERM") == "dumb":
        raise UsageError(f"there is no terminal to draw on: use `{instead}` instead")
    width, height = os.get_terminal_size(sys.stdout.fileno())
    if width and height and (width < SMALLEST[0] or height < SMALLEST[1]):
        raise UsageError(
            f"the terminal is {width}x{height}, tensorstep needs {SMALLEST[0]}x{SMALLEST[1]}:"
            f" enlarge it, or use `{instead}`"
        )


def tell(error: BaseException, debug: bool) -> int:
    """One sentence on standard error. Returns what the command ends with."""
    if debug:
        import traceback

        print(getattr(error, "trace", ""), end="", file=sys.stderr)  # the worker's
        traceback.print_exception(error)
    if isinstance(error, TensorstepError):
        sentence, code = str(error), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        sentence, code = "interrupted", 130
    else:  # a mistake of ours
        sentence, code = f"failed: {type(error).__name__}: {error} (--debug tells where)", 1
    from engine.service.connection import WorkerError

    # the further lines of a mistake that was foreseen are a table
    ours = isinstance(error, TensorstepError) and not isinstance(error, WorkerError)
    parts = map(shown, sentence.split("\n"))
    told = sentence if debug else ("\n" if ours else " ").join(parts)
    print(f"tensorstep: {told}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
