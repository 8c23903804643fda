"""What can be written after `tensorstep`: one list of options for the screen and for `states`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from engine.errors import UsageError
from engine.service.options import SEED, Options
from engine.service.saved import SAVED, SHIPPED
from tui.drawing_arguments import DRAWS, FILTERS, add_draws, drawn
from tui.learned_arguments import add_learned
from tui.opened_arguments import add_open_commands, add_opened, check_map, map_of, opened_values
from tui.places import edit_of
from tui.reproduce_arguments import add_reproduce
from tui.run_arguments import add_run_commands

DESCRIPTION = """\
Step through everything a language model computes, key by key.

Without options it opens a small trained model that writes: n next, p back, ? help, q quit.
"""
BESIDE = {"command", "ascii", "version", "debug"}  # options that say nothing of what is walked
MAX_VALUES = 10_000
DEFAULT_CORPUS = "storybook"
Commands = Any  # argparse's own type of it is private


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one sentence. Raises UsageError where argparse would exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see {self.prog} --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, read. `command` is None for the screen, which without any option of what
    is walked opens on the first checkpoint that ships. Raises UsageError."""
    given = parser().parse_args(arguments)
    named = {key for key, value in vars(given).items() if value is not None} - BESIDE
    named -= {*DRAWS, "prompt"}  # of what is written, by whichever model
    if given.command is None and not named:
        given.opened = f"{SAVED}{SHIPPED[0]}"
    return given


def parser() -> Parser:
    walked = walk_options()
    made = Parser(
        prog="tensorstep",
        description=DESCRIPTION,
        parents=[walked],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--goto", metavar="STEP:STATE:CELL", help="open there: 1:weights:0,0,2")
    made.add_argument("--map", metavar="MAP", help="training or generation")
    made.add_argument("--seed", type=int, metavar="N", help="of parameters and batches (11)")
    made.add_argument("--ascii", action="store_true", help="draw with ASCII alone")
    made.add_argument("--version", action="store_true", help="print the version")
    made.add_argument("--debug", action="store_true", help="tell of a mistake with its traceback")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    listed = commands.add_parser(
        "states",
        help="the same states without a screen",
        description="Print every state of the training or the generation map, asides included.",
        parents=[walk_options()],
        allow_abbrev=False,
    )
    listed.add_argument("what", metavar="train|generate")
    listed.add_argument(
        "--steps", type=int, metavar="N", help="optimizer steps (1), or new tokens at most (16)"
    )
    listed.add_argument(
        "--seed",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="train: of parameters and batches (11); generate: of the draws",
    )
    listed.add_argument("--greedy", action="store_true", help="the most probable token (default)")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    listed.add_argument(
        "--max-values",
        type=int,
        metavar="N",
        default=MAX_VALUES,
        help="leave out the values of larger states (10000)",
    )
    add_opened(listed)
    add_explain(commands)
    add_tokenize(commands)
    add_corpus(commands)
    add_open_commands(commands, [walk_options()])
    add_run_commands(commands, [walk_options()])
    add_reproduce(commands)
    add_learned(commands)
    return made


def add_explain(commands: Commands) -> None:
    made = commands.add_parser(
        "explain",
        help="where one cell comes from, with its numbers",
        description="Print the formula of one cell, and the terms it is made of.",
        parents=[walk_options()],
        allow_abbrev=False,
    )
    made.add_argument(
        "what", metavar="STATE", help="its name, such as weights or gradients.W_Q.weight"
    )
    made.add_argument("--at", type=cell_of, metavar="I,J,...", help="the cell's index", default=())
    made.add_argument("--step", type=int, metavar="N", help="step, or new token (1; else 0)")
    made.add_argument("--map", metavar="MAP", help="training or generation")
    made.add_argument(
        "--seed", type=int, metavar="N", default=argparse.SUPPRESS, help="as for the screen"
    )
    add_opened(made)
    made.add_argument("--json", action="store_true", help="one JSON object")


def cell_of(text: str) -> tuple[int, ...]:
    """A cell written as I,J,... Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"--at {text!r} is no cell: write one number a dimension, such as 0,0,2")
    return tuple(map(int, parts))


def add_tokenize(commands: Commands) -> None:
    made = commands.add_parser(
        "tokenize",
        help="a text under several tokenizers, side by side",
        description="Print the pieces, bytes and IDs of a text under each tokenizer. Words,"
        " characters and bpe have the vocabulary of the corpus that is named, or of TEXT itself.",
        parents=[source_options()],
        allow_abbrev=False,
    )
    made.add_argument("what", metavar="TEXT", help="the text; - reads it from standard input")
    made.add_argument(
        "--with",
        dest="names",
        metavar="NAMES",
        help="comma-separated: words, characters, bpe, bpe:SIZE, cl100k_base, a path",
    )
    made.add_argument("--json", action="store_true", help="one JSON list")


def add_corpus(commands: Commands) -> None:
    made = commands.add_parser(
        "corpus",
        help="what a corpus holds: documents, tokens, windows by split",
        description="Print the audit of a corpus, of the storybook unless another is named.",
        parents=[source_options()],
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="one JSON object")


def source_options() -> Parser:
    """The options of what is read: texts, tokenizer, windows. Those not given are left out:
    `Options` has their defaults."""
    made = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    add = made.add_argument
    add("--sentence", metavar="TEXT", help="walk this sentence")
    add("--text", metavar="FILE", help="walk this UTF-8 file: one document, or with --lines")
    add("--lines", action="store_true", help="every line of FILE is a document")
    add("--corpus", metavar="SPEC", help="storybook, logs, tinystories:full, hub:ID, or a path")
    add("--documents", type=int, metavar="N", help="only the first N documents")
    add("--tokenizer", metavar="T", help="words, characters, bpe:SIZE, an encoding or a path")
    add("--max-vocab", type=int, metavar="N", help="size of the vocabulary, at most")
    add("--min-freq", type=int, metavar="N", help="how often a token has to occur to be in it")
    add("--context", type=int, metavar="W", help="slots of a window (4)")
    return made


def walk_options() -> Parser:
    """The options of what is walked: texts, model, batches, training, choice of tokens."""
    made = Parser(add_help=False, argument_default=argparse.SUPPRESS, parents=[source_options()])
    add = made.add_argument
    add("--model", metavar="M", help="bigram, mlp, attention, multihead or transformer")
    add("--rows", type=rows_of, metavar="I,J", help="the windows of every batch")
    add("--batch", type=int, metavar="N", help="windows of each batch (2)")
    add("--sampling", metavar="HOW", help="replacement (windows are drawn) or epochs")
    add("--drop-last", action="store_true", help="leave out the smaller last batch of an epoch")
    add("--width", type=int, metavar="D", help="width of the embedding")
    add("--hidden", type=int, metavar="H", help="units of the hidden layer")
    add("--heads", type=int, metavar="N", help="heads of multihead and transformer (2)")
    add("--blocks", type=int, metavar="N", help="blocks of transformer (1)")
    add("--run-on", action="store_true", help="a transformer's windows run on into the next text")
    add("--optimizer", metavar="NAME", help="sgd, adam or adamw")
    add("--lr", type=float, metavar="X", help="learning rate (0.1)")
    add("--momentum", type=float, metavar="X", help="of sgd (0)")
    add("--weight-decay", type=float, metavar="X", help="of adamw (0.01)")
    add("--clip", type=float, metavar="X", help="the largest norm of all gradients together")
    add("--train-steps", type=int, metavar="N", help="training steps before generating (1)")
    add("--prompt", metavar="TEXT", help="the text to continue")
    add(
        "--set",
        type=edit_of,
        action="append",
        dest="edits",
        metavar="STATE:CELL=VALUE",
        help="what if a cell were another; STEP:STATE:CELL for a step other than 1",
    )
    add_draws(made)
    return made


def rows_of(text: str) -> tuple[int, ...]:
    """Window numbers written as I,J. Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"--rows {text!r} are no windows: write their numbers as 2,3")
    return tuple(map(int, parts))


def names_of(text: str | None) -> list[str] | None:
    """Tokenizers written as A,B. Raises UsageError for an empty name."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"--with {text!r} names no tokenizer: write words,characters")
    return names


def options_of(given: argparse.Namespace) -> Options:
    """What a session is opened with. Raises UsageError for options that contradict."""
    said = {key: value for key, value in vars(given).items() if value is not None}
    values = said | (opened_values(given) if "opened" in said else {}) | drawn(said)
    if given.command in ("open", "generate"):
        return Options.from_json(values).check()
    if given.command is None:
        check_map(map_of(given))
        return Options.from_json(values).check()
    if given.command == "corpus" and not {"sentence", "text", "corpus"} & set(values):
        values["corpus"] = DEFAULT_CORPUS
    if given.command == "explain":
        check_map(map_of(given))
        if given.step is not None and given.step < 0:
            raise UsageError(f"--step {given.step} is no step: give 0 or more")
    if given.command != "states":
        return Options.from_json(values).check()
    if given.max_values < 0:
        raise UsageError(f"--max-values {given.max_values} is too small: give 0 or more")
    generating = given.what == "generate"
    if not generating and given.what != "train":
        raise UsageError(f"there are no {given.what!r} states: use train or generate")
    if given.steps is not None and given.steps < 1:
        raise UsageError(f"--steps {given.steps} makes nothing: give 1 or more")
    seeded = "draw_seed" in said or (generating and "seed" in said)
    if sum(("draw" in said, given.greedy, seeded)) > 1:
        raise UsageError(
            "--draw, --draw-seed (or --seed) and --greedy exclude each other: give one of them"
        )
    if given.greedy and any(name in said for name in FILTERS):
        raise UsageError(
            "--greedy takes the most probable token: leave out --temperature, --top-k and --top-p"
        )
    if generating:
        if "seed" in said:  # here it is that of the draws
            values |= {"seed": SEED, "draw_seed": said["seed"]}
        values["tokens"] = given.steps or Options.tokens
    return Options.from_json(values).check()
