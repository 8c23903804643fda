"""`tensorstep learned`: what checkpoints have learned, as text or JSON."""

from __future__ import annotations

import argparse
import os

from engine.errors import UsageError
from tui.headless import print_json, worker
from tui.plain import shown
from tui.reproducing import ENDINGS, file_of, sections_of

PICTURES = (".svg", ".png")


async def learned(given: argparse.Namespace) -> None:
    """Read them, and print what is found. Raises TensorstepError for what cannot be read."""
    values = vars(given)
    if "instead" in values and "sentence" not in values:
        raise UsageError("--instead goes with --sentence: it replaces a word of the first")
    if not all(text.strip() for text in values.get("sentence", ())):
        raise UsageError("--sentence is empty: give it words")
    report, plane = file_of(values, "report", ENDINGS), file_of(values, "plane", PICTURES)
    asked = {
        "words": values.get("word", ()),
        "sentences": values.get("sentence", ()),
        "instead": values.get("instead"),
    }
    async with worker() as client:
        told = await client.ask(
            "learned",
            what=[os.path.abspath(each) if os.path.exists(each) else each for each in given.what],
            asked=asked,
            plane=plane,
            report=report,
        )
    if "json" in values:
        print_json(told)
        return
    for line in (shown(told["title"]), *sections_of(told), *map(shown, ("", *told["notes"]))):
        print(line)
    if report is not None:
        print(f"{shown(values['report'])} has all of it.")
