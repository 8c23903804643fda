"""Sheets over the screen: lines to read, a choice from a list. Escape closes each."""

from __future__ import annotations

from typing import Generic, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import ModalScreen

from tui.widgets.lines import DIM, HERE, PLAIN, STRONG, Lines, line

Answer = TypeVar("Answer")


class Sheet(ModalScreen[Answer], Generic[Answer]):
    """A framed list of lines."""

    BINDINGS = [
        Binding("escape,q,ctrl+c", "close", "close", show=False, id="sheet.close"),
        Binding("up,k", "move(-1)", "up", show=False, id="sheet.up"),
        Binding("down,j", "move(1)", "down", show=False, id="sheet.down"),
        Binding("pageup", "move(-10)", "page up", show=False, id="sheet.page_up"),
        Binding("pagedown,space", "move(10)", "page down", show=False, id="sheet.page_down"),
        Binding("enter", "take", "choose", show=False, id="sheet.take"),
    ]

    def compose(self) -> ComposeResult:
        with Container(id="sheet"):
            yield Lines(id="lines")

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        lines = self.lines()
        pane = self.query_one("#lines", Lines)
        pane.styles.height = len(lines)
        pane.show(lines)

    def lines(self) -> list[Text]:
        return []

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, by: int) -> None:
        """Up or down, where there is something to move through."""

    def action_take(self) -> None:
        self.dismiss(None)


class Pages(Sheet[None]):
    """Lines to read, scrolled where they do not fit."""

    def __init__(self, title: str, lines: list[Text]):
        super().__init__()
        self.heading = title
        self.all = lines
        self.first = 0

    @property
    def room(self) -> int:
        return max(3, self.app.size.height - 6)

    def lines(self) -> list[Text]:
        seen = self.all[self.first : self.first + self.room]
        more = len(self.all) - self.first - len(seen)
        foot = "up, down: scroll   escape: close" if more or self.first else "escape: close"
        return [line((self.heading, HERE)), line(), *seen, line((foot, DIM))]

    def action_move(self, by: int) -> None:
        self.first = max(0, min(self.first + by, len(self.all) - self.room))
        self.draw()


class Choice(Sheet[str]):
    """One of several, by arrows and enter."""

    BINDINGS = [Binding("space", "stay", show=False, id="choice.space")]  # it may be typed text

    def __init__(
        self, title: str, choices: list[tuple[str, str]], current: str, verb: str = "open"
    ):
        super().__init__()
        self.heading = title
        self.verb = verb
        self.choices = choices
        self.at = [key for key, _ in choices].index(current)

    def lines(self) -> list[Text]:
        rows = [
            line(("> " if i == self.at else "  ", HERE), (text, HERE if i == self.at else PLAIN))
            for i, (_, text) in enumerate(self.choices)
        ]
        foot = line((f"up, down, enter: {self.verb}   escape: stay", DIM))
        return [line((self.heading, STRONG)), line(), *rows, line(), foot]

    def action_move(self, by: int) -> None:
        self.at = max(0, min(self.at + by, len(self.choices) - 1))
        self.draw()

    def action_stay(self) -> None:
        """Nothing is chosen."""

    def action_take(self) -> None:
        self.dismiss(self.choices[self.at][0])


class Leaving(Choice):
    """What becomes of what is left: asked once, so that a second ctrl+c is an answer."""

    BINDINGS = [Binding("ctrl+c", "first", show=False, id="leaving.first")]

    def action_first(self) -> None:
        self.dismiss(self.choices[0][0])
