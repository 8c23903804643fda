"""The corpus browser of the installed command in a real terminal: through it and out again, and
what a key costs there."""

from __future__ import annotations

import re

import pytest

from engine.data.storybook import write_stories
from tests.terminal.terminal import DOWN, ESCAPE, TAB, Terminal, wait_until_gone
from tests.terminal.test_leaving import afterwards, assert_clean
from tests.tui.browser import windows_of, words_of

pytestmark = pytest.mark.terminal
STORY = words_of(write_stories(1, 1)[0])
MOST = 2500  # bytes that one more pair may cost over SSH


def windows_shown(terminal: Terminal) -> list[tuple[int, str, str]]:
    """Number, context and target of each window on the screen."""
    lines = terminal.lines
    first = next(y for y, each in enumerate(lines) if each.startswith("WINDOWS  ")) + 1
    last = next(y for y, each in enumerate(lines) if each.startswith("THE SAME TARGET"))
    found = [re.fullmatch(r" *(\d+)  (.*) → (\S+)", each) for each in lines[first:last] if each]
    assert all(found), terminal.text
    return [(int(each[1]), each[2], each[3]) for each in found if each]


def test_through_the_browser_and_out() -> None:
    expected = windows_of(STORY, 8)
    costs = []
    with Terminal(["--corpus", "storybook", "--context", "8"]) as terminal:
        terminal.wait_for("[0] =")
        worker = terminal.worker
        terminal.settle()
        walk = terminal.text
        terminal.press("C", "story 0, of 0 to 5,999: ")
        terminal.wait_for("WINDOWS  1 of")
        terminal.settle()
        for at in (2, 3, 4):
            before = len(terminal.raw)
            terminal.press(DOWN, f"WINDOWS  {at} of {len(STORY) - 1}, context 8")
            terminal.settle()
            costs.append(len(terminal.raw) - before)
            assert windows_shown(terminal) == [
                (number, " ".join(expected[number - 1][0]), expected[number - 1][1])
                for number in range(1, at + 1)
            ]
        terminal.press(TAB, "duplicates dropped")
        terminal.wait_for("no document is on two sides")
        terminal.press(ESCAPE, lambda t: t.text == walk)
        terminal.press("T", "the same text, side by side")
        terminal.wait_for(f"words  {len(STORY) - 2} tokens")
        terminal.press(ESCAPE, lambda t: t.text == walk)
        terminal.send("q")
        assert terminal.wait() == 0
        wait_until_gone(worker)
        assert_clean(terminal)
        assert afterwards(terminal) == ""
    assert min(costs) > 0
    assert max(costs) < MOST


def test_what_is_typed_at_once_is_typed() -> None:
    """As from a paste: no key of it moves, closes or quits anything."""
    with Terminal(["--corpus", "storybook:12", "--context", "8"], size=(80, 24)) as terminal:
        terminal.wait_for("[0] =")
        terminal.settle()
        terminal.send("/quick jaguars\r")
        terminal.wait_for("'quick jaguars' is nowhere in this corpus", patience=8)
        terminal.press(ESCAPE, "tab audit")
        terminal.send("/crow\r")
        terminal.wait_for("next, previous 'crow'")
        terminal.press(ESCAPE, "tab audit")
        terminal.press(ESCAPE, "[0] =")
        terminal.send("q")
        assert terminal.wait() == 0
        assert_clean(terminal)
