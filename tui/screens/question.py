"""A sheet with one line to type."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.widgets import Input

from tui.screens.sheets import Sheet
from tui.widgets.lines import DIM, STRONG, Lines, line


class Question(Sheet[str]):
    """One line to type; enter answers."""

    BINDINGS = [Binding("escape", "close", "close", show=False, id="question.close")]

    def __init__(self, title: str, hint: str):
        super().__init__()
        self.heading = title
        self.hint = hint

    def compose(self) -> ComposeResult:
        with Container(id="sheet"):
            yield Lines(id="lines")
            field = Input(select_on_focus=False)
            field.cursor_blink = False  # nothing moves
            yield field

    def on_mount(self) -> None:
        self.draw()
        self.query_one(Input).focus()

    def lines(self) -> list[Text]:
        return [line((self.heading, STRONG)), line((self.hint, DIM)), line()]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
