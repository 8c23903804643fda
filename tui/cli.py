"""The command `tensorstep`: reads options, then opens the screen or prints states."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

from engine.errors import TensorstepError, UsageError
from engine.maps import GENERATION, TRAINING
from engine.service.options import SEED, Options

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[str, typer.Option(help="mlp, attention (one head) or multihead.")]
Sentence = Annotated[str | None, typer.Option(help="Walk this sentence.")]
Text = Annotated[str | None, typer.Option(metavar="FILE", help="Walk this UTF-8 file.")]
LinesFlag = Annotated[bool, typer.Option("--lines", help="Every line of FILE is a document.")]
Context = Annotated[int, typer.Option(help="Slots of a window, w.")]
RowsText = Annotated[
    str | None, typer.Option("--rows", metavar="I,J", help="Windows of every batch.")
]
Batch = Annotated[int | None, typer.Option(help="Windows drawn for each batch.")]
Width = Annotated[int | None, typer.Option(help="Width of the embedding, d.")]
Hidden = Annotated[int | None, typer.Option(help="Units of the hidden layer, h.")]
Heads = Annotated[int, typer.Option(help="Heads of multihead, H.")]
Optimizer = Annotated[str, typer.Option(help="sgd or adamw.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
TrainSteps = Annotated[int, typer.Option(help="Training steps before generating.")]
Prompt = Annotated[str | None, typer.Option(help="Text to continue.")]
Draw = Annotated[float | None, typer.Option(help="The same draw, 0 to 1, for every token.")]
GreedyFlag = Annotated[bool, typer.Option("--greedy", help="The most probable token (default).")]


@app.callback(invoke_without_command=True)
def walk(
    context: typer.Context,
    sentence: Sentence = None,
    text: Text = None,
    lines: LinesFlag = False,
    model: Model = "attention",
    goto: Annotated[str | None, typer.Option(metavar="STEP:STATE:CELL", help="Open there.")] = None,
    map: Annotated[str, typer.Option(help="training or generation.")] = TRAINING,
    context_len: Annotated[int, typer.Option("--context", help="Slots of a window, w.")] = 4,
    rows: RowsText = None,
    batch: Batch = None,
    width: Width = None,
    hidden: Hidden = None,
    heads: Heads = 2,
    seed: Annotated[int, typer.Option(help="Of parameters and batches.")] = SEED,
    optimizer: Optimizer = "sgd",
    lr: Rate = 0.1,
    train_steps: TrainSteps = 1,
    prompt: Prompt = None,
    draw: Draw = None,
    ascii: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII only.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Step through everything a language model computes, key by key.

    Without options it walks the worked sentence: n next, p back, ? help, q quit.
    """
    if context.invoked_subcommand is not None:
        return
    if version:
        print_version()
        return
    options = Options(
        model=model,
        sentence=sentence,
        text=text,
        lines=lines,
        context=context_len,
        rows=rows_of(rows),
        batch=batch,
        width=width,
        hidden=hidden,
        heads=heads,
        seed=seed,
        optimizer=optimizer,
        lr=lr,
        train_steps=train_steps,
        prompt=prompt,
        draw=draw,
    ).check()
    if map not in (TRAINING, GENERATION):
        raise UsageError(f"there is no {map!r} map: use training or generation")
    open_screen(options, goto, map, ascii)


@app.command()
def states(
    what: Annotated[str, typer.Argument(metavar="train|generate")],
    model: Model = "attention",
    sentence: Sentence = None,
    text: Text = None,
    lines: LinesFlag = False,
    context: Context = 4,
    rows: RowsText = None,
    batch: Batch = None,
    width: Width = None,
    hidden: Hidden = None,
    heads: Heads = 2,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps (1), or new tokens at most (16).")
    ] = None,
    train_steps: TrainSteps = 1,
    prompt: Prompt = None,
    draw: Draw = None,
    seed: Annotated[
        int | None,
        typer.Option(help="train: of parameters and batches (11). generate: of the draws."),
    ] = None,
    greedy: GreedyFlag = False,
    optimizer: Optimizer = "sgd",
    lr: Rate = 0.1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    max_values: Annotated[int, typer.Option(help="Leave out values of larger states.")] = 10_000,
) -> None:
    """Print the same states without a screen, asides included."""
    from tui.headless import KINDS, print_states

    if what not in KINDS:
        raise UsageError(f"there are no {what!r} states: use train or generate")
    if steps is not None and steps < 1:
        raise UsageError(f"--steps {steps} makes nothing: give 1 or more")
    if sum((draw is not None, greedy, what == "generate" and seed is not None)) > 1:
        raise UsageError("--draw, --seed and --greedy exclude each other: give one of them")
    generating = what == "generate"
    options = Options(
        model=model,
        sentence=sentence,
        text=text,
        lines=lines,
        context=context,
        rows=rows_of(rows),
        batch=batch,
        width=width,
        hidden=hidden,
        heads=heads,
        seed=SEED if generating or seed is None else seed,
        draw_seed=seed if generating else None,
        optimizer=optimizer,
        lr=lr,
        train_steps=train_steps,
        tokens=steps or Options.tokens,
        prompt=prompt,
        draw=draw,
    ).check()
    last = steps if generating else steps or 1
    try:
        asyncio.run(print_states(what, options, last, as_json, max_values))
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def rows_of(text: str | None) -> tuple[int, ...] | None:
    """Window numbers written as I,J. Raises UsageError for anything else."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"--rows {text!r} are no windows: write their numbers as 2,3")
    return tuple(map(int, parts))


def print_version() -> None:
    from importlib.metadata import version

    print(f"tensorstep {version('tensorstep')}")


def open_screen(options: Options, goto: str | None, kind: str, ascii_only: bool) -> None:
    """Open the screen; afterwards tell why it closed, where it closed by itself."""
    check_terminal()
    from tui.places import place_of

    place = None if goto is None else place_of(goto)
    # Textual's resizes in the input are for mice; switched on late, they would stay on
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    from tui.app import Tensorstep
    from tui.glyphs import ASCII

    screen = Tensorstep(options, place, kind, ASCII if ascii_only else None, debug=DEBUG)
    screen.run(mouse=False)
    if screen.failure is not None:
        raise TensorstepError(screen.failure, screen.return_code or 1)
    if screen.return_code:
        sys.exit(screen.return_code)


def check_terminal() -> None:
    """Raises UsageError where there is no terminal, or one too small, to draw on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on the last
    if (
        not all(each is not None and each.isatty() for each in streams)
        or os.environ.get("TERM") == "dumb"
    ):
        raise UsageError(
            "there is no terminal to draw on: use `tensorstep states train --json` instead"
        )
    from tui.limits import SMALLEST

    width, height = os.get_terminal_size(sys.stdout.fileno())
    if width and height and (width < SMALLEST[0] or height < SMALLEST[1]):
        raise UsageError(
            f"the terminal is {width}x{height}, tensorstep needs {SMALLEST[0]}x{SMALLEST[1]}:"
            " enlarge it, or use `tensorstep states train --json`"
        )


DEBUG = False  # set once by `main`


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit codes: 0 done, 1 failed, 2 wrong usage; a mistake is one sentence on
    standard error, with a traceback only under --debug."""
    global DEBUG
    given = sys.argv[1:] if arguments is None else arguments
    DEBUG = "--debug" in given
    sys.exit(run([each for each in given if each != "--debug"]))


def run(arguments: list[str]) -> int:
    """Run the command; tell a mistake. Returns the exit code."""
    from tui.plain import shown

    try:
        return int(app(arguments, prog_name="tensorstep", standalone_mode=False) or 0)
    except (Exception, KeyboardInterrupt) as error:
        if DEBUG:
            import traceback

            print(getattr(error, "trace", ""), end="", file=sys.stderr)  # the worker's
            traceback.print_exception(error)
        sentence, code = sentence_and_code(error)
    told = " ".join(shown(part) for part in sentence.split("\n")) if not DEBUG else sentence
    print(f"tensorstep: {told}", file=sys.stderr)
    return code


def sentence_and_code(error: BaseException) -> tuple[str, int]:
    """What the user is told, and what the command ends with."""
    if isinstance(error, TensorstepError):
        return str(error), error.exit_code
    if isinstance(error, typer.TyperException):
        return error.format_message(), 2
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return "interrupted", 130
    # a mistake of ours
    return f"failed: {type(error).__name__}: {error} (--debug tells where)", 1


if __name__ == "__main__":
    main()
