"""The line to type into: every key goes there in the order it was typed, whatever else happens."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events

from tests.tui.desk import DeskClient
from tests.tui.screen import LARGE, opened
from tui.glyphs import ASCII, UNICODE
from tui.places import Place
from tui.prompt import LONGEST, Prompt


def prompt() -> tuple[Prompt, list[str | None]]:
    """A prompt, and where its answer goes."""
    answers: list[str | None] = []
    return Prompt("where", "a hint", answers.append), answers


def typed(made: Prompt, text: str) -> None:
    for character in text:
        made.take("key", character)


def test_enter_answers_once():
    made, answers = prompt()
    typed(made, " 1:loss ")
    assert answers == []
    made.take("enter", "\r")
    assert (answers, made.open) == (["1:loss"], False)


def test_leaving_and_nothing_typed():
    for key in ("escape", "ctrl+c"):
        made, answers = prompt()
        typed(made, "1:loss")
        made.take(key, None)
        assert (answers, made.open) == ([None], False)
    made, answers = prompt()
    typed(made, "  ")
    made.take("enter", "\r")
    assert answers == [None]


def test_mending():
    made, _ = prompt()
    typed(made, "abc")
    made.take("backspace", "\x7f")
    made.take("ctrl+h", "\x08")
    assert made.text == "a"
    made.take("ctrl+u", "\x15")
    assert made.text == ""
    made.take("backspace", "\x7f")
    assert (made.text, made.open) == ("", True)


@given(st.text(st.characters(exclude_categories=())))
def test_only_what_is_printable_is_taken(text: str):
    made, answers = prompt()
    typed(made, text)
    made.take("tab", "\t")
    made.take("f1", None)
    assert made.text == "".join(each for each in text if each.isprintable())[:LONGEST]
    assert (made.open, answers) == (True, [])
    for glyphs in (ASCII, UNICODE):
        line = made.line(glyphs, 40).plain
        assert line.startswith("where ")
        shown_part = line.removesuffix("  enter: go, escape: stay").removesuffix(" a hint")
        assert cell_len(shown_part) <= 40
    assert made.line(ASCII, 40).plain.isascii()


async def test_keys_that_come_at_once():
    """As after a hiccup of the line: moves before, the question, its answer, moves after."""
    async with opened() as screen:
        await screen.press_at_once(*"nn;2:scores", "enter", *"nn")
        assert screen.place == (2, "weights")
        assert screen.said == ""


async def test_it_stays_while_moves_that_were_typed_before_are_made():
    async with opened() as screen:
        await screen.press_at_once("n", "n", ";")
        assert "go to STEP:STATE:CELL" in screen.said
        assert screen.place == (0, "tokens")
        await screen.press_at_once("n", *"p", ";", "escape", ".", ";", "1")
        assert "go to STEP:STATE:CELL" in screen.said


async def test_it_stays_while_the_worker_gets_ready():
    gate = asyncio.Event()
    async with opened(client=DeskClient(gate)) as screen:
        await screen.press(";", *"1:q")
        assert screen.said.startswith("go to STEP:STATE:CELL 1:q")
        gate.set()
        await screen.settle()
        assert screen.place == (0, "stories")
        assert screen.said.startswith("go to STEP:STATE:CELL 1:q")
        await screen.press("enter")
        assert screen.place == (1, "q")


async def test_a_paste():
    """Line ends and control characters of a clipboard are left out; it does not go anywhere."""
    async with opened() as screen:
        screen.app.post_message(events.Paste("2:loss"))  # nowhere to go
        await screen.settle()
        assert screen.place == (0, "stories")
        await screen.press(";")
        screen.app.post_message(events.Paste("1:weights\n:0,\x1b0,2\n"))
        await screen.settle()
        assert screen.place == (0, "stories")
        assert "1:weights:0,0,2" in screen.said
        await screen.press("enter")
        assert (screen.place, screen.cursor[0]) == ((1, "weights"), (0, 0, 2))


async def test_more_than_fits_on_the_line():
    """What is typed last is seen, and the cursor after it."""
    async with opened() as screen:
        await screen.press(";")
        await screen.press_at_once(*"1:", *["a"] * 100, "z")
        screen.check()
        assert "z" in screen.said


async def test_ctrl_c_leaves_the_line_and_then_the_screen():
    async with opened(goto=Place(1, "q"), size=LARGE) as screen:
        await screen.press(";", "2", "ctrl+c")
        assert screen.said == ""
        assert screen.place == (1, "q")
        screen.post("ctrl+c")
        assert await screen.ended() == 0
