"""What can be written after `tensorstep learned`."""

from __future__ import annotations

import argparse
from typing import Any

from engine.errors import UsageError

WHAT = "checkpoint:NAME|FOLDER|RUN"


def add_learned(commands: Any) -> None:
    made = commands.add_parser(
        "learned",
        help="what checkpoints have learned: near words, attention, what one word changes",
        description="What checkpoints have learned, side by side, and before training: the words"
        " nearest to a word by cosine, a word that two sentences share, where each head looks in a"
        " sentence, what one token changes, and words in one plane (PCA). Of a run it reads the"
        " checkpoints that were kept.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("what", metavar=WHAT, nargs="+", help="one or several of one vocabulary")
    add("--word", action="append", metavar="W", help="what lies near it; can be given again")
    add(
        "--sentence",
        action="append",
        metavar="TEXT",
        help="where each head looks in it; of two, what becomes of a word that both have",
    )
    add(
        "--instead",
        type=instead_of,
        metavar="N=W",
        help="token N of the first sentence, from 0, replaced by W",
    )
    add("--plane", metavar="FILE", help="draw the plane of words: .svg or .png")
    add("--report", metavar="FILE", help="write all of it to .html or .md")
    add("--json", action="store_true", help="one JSON object: sections, and places in the plane")


def instead_of(text: str) -> tuple[int, str]:
    """A token's number and what takes its place, written as N=W. Raises UsageError for anything
    else."""
    number, equals, word = text.partition("=")
    if not equals or not word or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(f"--instead {text!r} is no token and its place: write them as 3=dog")
    return int(number), word
