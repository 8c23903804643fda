"""The same without a screen: `tensorstep states`, `tokenize` and `corpus`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.maps import GENERATION, TRAINING
from engine.progress import Progress
from engine.service.client import Client
from engine.service.connection import WorkerDied, WorkerError
from engine.service.options import Options
from tui.cells import axes_of
from tui.corpora import audit_lines, columns_of, heading_of
from tui.explanations import explanation_lines
from tui.glyphs import ASCII, UNICODE, folded, glyphs_for
from tui.pace import Pace
from tui.places import Place, WrittenEdit
from tui.plain import shown

WIDTH = 79  # of a line of output
TEXTS = 20  # of a long list of texts, as many are listed for a reader
MARKS = 16  # on one character, at most: accents and the like
SOON = 1.0  # seconds of work before anything is said of it

KINDS = {"train": TRAINING, "generate": GENERATION}


@asynccontextmanager
async def worker() -> AsyncIterator[Client]:
    """A worker that tells how far it is, on standard error where that is a terminal."""
    client = Client()
    with ProgressLine() as line:
        client.on_progress = line.show
        await client.start()
        try:
            yield client
        finally:
            await client.close()


async def open_with(client: Client, options: Options) -> None:
    """Open what the options say; what there is to know about it is told beside what is printed."""
    note_beside((await client.ask("open", options=options.to_json()))["note"])


def note_beside(note: str) -> None:
    for line in note.splitlines():
        print(f"tensorstep: {shown(line)}", file=sys.stderr)


async def print_states(
    what: str,
    options: Options,
    steps: int | None,
    as_json: bool,
    max_values: int,
    edits: list[WrittenEdit] | None = None,
) -> None:
    """Print every state of the steps asked for: one JSON object a line, or a readable listing.

    A generation may end before that many steps. Raises TensorstepError as the worker does.
    """
    check_steps(edits, steps)
    async with worker() as client:
        await open_with(client, options)
        where = {"map": KINDS[what], "model": options.model}
        await apply(client, where, edits)
        write = print_json if as_json else print_readable
        while True:
            state = await client.ask("dump", **where, max_values=max_values)
            if steps is not None and state["step"] > steps:
                break
            write(state)
            if not (await client.ask("move", **where, how="forward"))["moved"]:
                break


async def print_tokens(
    text: str, names: list[str] | None, options: Options | None, as_json: bool
) -> None:
    """Print a text under several tokenizers, fitted on the corpus of `options` where it is given.

    Raises UsageError for a text without a character.
    """
    check_characters(text)
    async with worker() as client:
        if options is not None:
            await open_with(client, options)
        found = (await client.ask("tokenize", text=text, names=names))["tokenizers"]
    if as_json:
        print_json(found)
        return
    ascii_only = takes_only_ascii()
    glyphs = ASCII if ascii_only else UNICODE
    for row in found:
        write_lines([heading_of(row)], ascii_only)
        for lines in columns_of(row, WIDTH, glyphs):
            sys.stdout.write("".join(f"    {line}\n" for line in lines) + "\n")


async def is_there(client: Client, where: dict[str, str], step: int, name: str | None) -> bool:
    """Whether a step has such a state; the walk then stands there."""
    try:
        await client.ask("move", **where, how="seek", step=step, name=name)
    except (WorkerDied, WorkerError):
        raise
    except TensorstepError:
        return False
    return True


def check_steps(edits: list[WrittenEdit] | None, last: int | None) -> None:
    """Raises UsageError for an edit of a step that is not walked."""
    for edit in edits or []:
        if last is not None and edit.place.step > last:
            raise UsageError(
                f"--set {edit.place.step}:{edit.place.name} changes nothing up to step {last}:"
                " give more --steps, or another step"
            )


async def apply(client: Client, where: dict[str, str], edits: list[WrittenEdit] | None) -> None:
    """Make edits, one after the other, and go back to the beginning."""
    for edit in edits or []:
        place = {"step": edit.place.step, "name": edit.place.name}
        await client.ask("move", **where, how="seek", **place)
        cell = list(edit.place.cell or ())
        await client.ask("edit", **where, **place, cell=cell, value=edit.value)
    if edits:
        await client.ask("move", **where, how="seek", step=0)


async def print_explanation(
    kind: str,
    options: Options,
    place: Place,
    either: bool,
    as_json: bool,
    edits: list[WrittenEdit] | None = None,
) -> None:
    """Print where a cell comes from; `either`: in step 1, or in step 0 where that has none such.

    Raises TensorstepError as the worker does.
    """
    check_steps(edits, place.step)
    async with worker() as client:
        await open_with(client, options)
        where = {"map": kind, "model": options.model}
        await apply(client, where, edits)
        name, step = place.name, place.step
        try:
            await client.ask("move", **where, how="seek", step=step, name=name)
        except (WorkerDied, WorkerError):
            raise
        except TensorstepError:
            if not either:
                raise
            step = 0
            if not await is_there(client, where, step, name):
                raise
        cell = list(place.cell or ())
        found = await client.ask("explain", **where, name=name, step=step, cell=cell)
    if as_json:
        print_json(found)
        return
    write_lines(explanation_lines(found), takes_only_ascii())


async def print_audit(options: Options, as_json: bool) -> None:
    """Print the audit of a corpus. Raises TensorstepError as the worker does."""
    async with worker() as client:
        await open_with(client, options)
        audit = await client.ask("audit")
    if as_json:
        print_json(audit)
        return
    write_lines(audit_lines(audit), takes_only_ascii())


async def print_text(options: Options, cache: bool, as_json: bool) -> None:
    """Print how a model continues the prompt, as it comes; or, at the end, all there is to know of
    it. Raises TensorstepError as the worker does."""
    ascii_only = takes_only_ascii()
    async with worker() as client:
        note = (await client.ask("open", options=options.to_json()))["note"]
        before = ""
        while True:
            try:
                told = await client.ask("write", cache=cache)
            except TensorstepError:
                if before:
                    print(flush=True)  # the error is a line of its own
                raise
            note_beside(note)  # once it is clear that it writes
            note = ""
            if not as_json and not told["text"].endswith("\ufffd"):  # half of a character waits
                sys.stdout.write(shown_after(before, told["text"], ascii_only))
                sys.stdout.flush()
                before = told["text"]
            if told["ended"] is not None:
                break
    if as_json:
        print_json(told)
        return
    sys.stdout.write(shown_after(before, told["text"], ascii_only) + "\n")


def shown_after(before: str, text: str, ascii_only: bool) -> str:
    """What a text has more than the part of it that is shown: its first marks belong to the last
    character before them."""
    start = max(0, len(before) - MARKS)
    seen = len(shown_text(text[start : len(before)], ascii_only))
    return shown_text(text[start:], ascii_only)[seen:]


def shown_text(text: str, ascii_only: bool) -> str:
    """A text as data, its lines kept apart."""
    return "\n".join(shown(line, ascii_only) for line in text.split("\n"))


def check_characters(text: str) -> None:
    if not text:
        raise UsageError("an empty text has no token: give one character or more")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the text is not UTF-8: convert it, for example with iconv") from None


def takes_only_ascii() -> bool:
    return "utf" not in (sys.stdout.encoding or "utf-8").lower()


def write_lines(lines: list[str], ascii_only: bool) -> None:
    sys.stdout.write("".join(f"{shown(line, ascii_only)}\n" for line in lines))
    sys.stdout.flush()


class ProgressLine:
    """One line on standard error that says how far work is, where that is a terminal; it goes when
    the work is done, and comes only for work of over a second."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._began = time.monotonic()
        self._drawn = False
        self._on = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *ended: object) -> None:
        self._write("")

    def show(self, progress: Progress) -> None:
        width = min(WIDTH, (self._width() or WIDTH + 1) - 1)
        line = self._pace.line(progress, glyphs_for(), width)
        if time.monotonic() - self._began > SOON:
            self._write(shown(line)[:width])

    def _width(self) -> int:
        return os.get_terminal_size(sys.stderr.fileno()).columns if self._on else 0

    def _write(self, line: str) -> None:
        if self._on and (line or self._drawn):
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
            self._drawn = bool(line)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def print_readable(state: dict[str, Any]) -> None:
    """A heading, then the values: rows of numbers, or texts as data; all of it in ASCII where the
    output takes nothing else."""
    axes = axes_of(state["axes"], state["shape"])
    heading = f"step {state['step']}  {state['stage']}  {state['name']}  [{axes}]  {state['role']}"
    lines = [heading, f"    {state['formula']}"]
    ascii_only = takes_only_ascii()
    if ascii_only:
        lines = [folded(line) for line in lines]
    if "values" in state:
        lines += [f"    {row}" for row in readable_rows(state["values"])]
    write_lines(lines, ascii_only)


def readable_rows(values: Any) -> list[str]:
    """Nested lists as lines: the innermost list is a row."""
    if not isinstance(values, list):
        return [readable(values)]
    if len(values) > TEXTS and all(isinstance(each, str) for each in values):
        return [*values[:TEXTS], f"... and {len(values) - TEXTS:,} more (--json has them all)"]
    if not values or not isinstance(values[0], list):
        return ["  ".join(readable(each) for each in values)]
    return [row for each in values for row in readable_rows(each)]


def readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:10.4f}"
    return value.rjust(10) if value in ("nan", "inf", "-inf") else str(value)
