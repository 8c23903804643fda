"""What can be written after `tensorstep reproduce`."""

from __future__ import annotations

import argparse
from typing import Any

from engine.experiments.names import EXPERIMENTS


def add_reproduce(commands: Any) -> None:
    listed = "\n".join(f"  {name:<15} {what}" for name, what in EXPERIMENTS.items())
    made = commands.add_parser(
        "reproduce",
        help="a measured experiment, run whole and compared with what was published",
        description=f"Run an experiment and compare it with what was published:\n\n{listed}\n\n"
        "What takes long is kept, and gone on with when it is asked for again.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("what", metavar="NAME", help=", ".join(EXPERIMENTS))
    add("--dir", metavar="DIR", help="where its runs are kept")
    add("--corpus", metavar="SPEC", help="tinystories: other stories")
    add("--text", metavar="FILE", help="tinystories: other stories, from a file")
    add("--lines", action="store_true", help="tinystories: every line of FILE is a story")
    add("--documents", type=int, metavar="N", help="tinystories: only the first N of them")
    add("--seeds", metavar="N,N", help="tinystories: of the runs (11,29,47)")
    add("--steps", type=int, metavar="N", help="tinystories: of each run (6000)")
    add("--sweep", action="store_true", help="tinystories: one setting at a time instead")
    add("--shipped", action="store_true", help="storybook: what ships as it is, and no training")
    add("--report", metavar="FILE", help="write a report too: .html or .md")
    add("--json", action="store_true", help="one JSON object: rows, history and more")
