"""`tensorstep doctor`: what machine, terminal and system have and lack, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from io import StringIO

from rich.console import Console
from rich.text import Text

from tui.doctor.computing import device, threads, versions
from tui.doctor.logout import detached
from tui.doctor.machine import BAD, Finding, Machine
from tui.doctor.probe import this_machine
from tui.doctor.runs import attaching, run_folder
from tui.doctor.terminals import characters, colours, copying, reset, terminal, tmux
from tui.headless import WIDTH, print_json, takes_only_ascii, write_lines
from tui.plain import shown

TOPIC = 6  # the column at which a topic begins; a verdict stands before it
TEXT = 18  # and the one at which what was found begins
HELD = "\ue000"  # a space at which no line may end; `shown` lets none of it through from outside

CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    *(versions, device, threads, terminal, colours, characters, copying, tmux),
    *(detached, run_folder, attaching, reset),
)


def print_doctor(as_json: bool) -> int:
    """Print what is found. Returns 1 where something stops tensorstep from working, else 0."""
    found = findings(this_machine())
    if as_json:
        print_json({"findings": [asdict(each) for each in found]})
    else:
        write_lines(lines_of(found, takes_only_ascii()), takes_only_ascii())
    return int(any(each.verdict == BAD for each in found))


def findings(machine: Machine) -> list[Finding]:
    """Everything there is to tell, topic by topic. Text from outside is shown, never obeyed."""
    found = [each for check in CHECKS for each in check(machine)]
    return [replace(each, what=shown(each.what), mend=shown(each.mend)) for each in found]


def lines_of(found: list[Finding], ascii_only: bool) -> list[str]:
    """Verdict, topic and text in columns, the mends below; at the end what it comes to."""
    lines, topic = [], ""
    for each in found:
        head = each.verdict.ljust(TOPIC) + (each.topic if each.topic != topic else "")
        topic = each.topic
        text = wrapped(shown(each.what, ascii_only))
        if each.mend:
            text += wrapped("mend: " + shown(each.mend, ascii_only))
        lines += [start.ljust(TEXT) + line for start, line in zip_first(head, text)]
    bad = sum(each.verdict == BAD for each in found)
    things = "one thing stops" if bad == 1 else f"{bad} things stop"
    end = (
        f"{things} tensorstep from working, marked bad"
        if bad
        else "nothing stops tensorstep from working"
    )
    return [*lines, "", end]


def zip_first(head: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(head if k == 0 else "", line) for k, line in enumerate(lines)]


def wrapped(text: str) -> list[str]:
    """In lines of the width that is left, counted in cells; a `command` stays in one of them."""
    held = re.sub("`.*?`", lambda command: command[0].replace(" ", HELD), text)
    lines = Text(held).wrap(Console(file=StringIO()), WIDTH - TEXT)
    return [line.plain.rstrip().replace(HELD, " ") for line in lines]
