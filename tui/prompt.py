"""The line above the footer while something is typed into it.

It takes its keys from the app, in the order they were typed: a sheet with a field of its own would
miss those that arrive before it stands, as after a paste or a hiccup of the line.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from rich.text import Text

from tui.glyphs import Glyphs
from tui.plain import shown
from tui.widgets.lines import CURSOR, DIM, STRONG, line

LONGEST = 200  # characters


class Prompt:
    """A question, and what has been typed so far.

    answered  is called once, with what was typed, or None where it was left
    """

    def __init__(self, question: str, hint: str, answered: Callable[[str | None], None]):
        self.question = question
        self.hint = hint
        self.answered = answered
        self.text = ""
        self.open = True

    def take(self, key: str, character: str | None) -> None:
        """One key, by its name and, where it is one, its character."""
        if key in ("escape", "ctrl+c"):
            self.close(None)
        elif key == "enter":
            self.close(self.text.strip() or None)
        elif key in ("backspace", "ctrl+h"):
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.type(character)

    def type(self, text: str) -> None:
        """Text that was typed or pasted; what is not printable is left out."""
        self.text = (self.text + "".join(filter(str.isprintable, text)))[:LONGEST]

    def close(self, answer: str | None) -> None:
        self.open = False
        self.answered(answer)

    def line(self, glyphs: Glyphs, width: int) -> Text:
        """How it is shown in so many cells: the question, the text (its end, where it is long), a
        cursor, and a hint."""
        hint = f" {self.hint}" if not self.text else "  enter: go, escape: stay"
        text = shown(self.text, glyphs.ascii)
        room = width - cell_len(self.question) - 2
        if cell_len(text) > room:
            while cell_len(text) > room - len(glyphs.dots):
                text = text[1:]
            text = glyphs.dots + text
        return line((f"{self.question} ", STRONG), text, (" ", CURSOR), (hint, DIM))


class Typing:
    """Where keys go while something is typed, whichever screen it is typed on.

    The app gives every key here first: a screen gets its own only when it stands.
    """

    def __init__(self) -> None:
        self.prompt: Prompt | None = None
        self._draw: Callable[[], None] = lambda: None

    @property
    def open(self) -> bool:
        return self.prompt is not None and self.prompt.open

    def ask(self, prompt: Prompt, draw: Callable[[], None]) -> None:
        """Keys are for this prompt from now on; `draw` shows it."""
        self.prompt, self._draw = prompt, draw
        draw()

    def take(self, key: str, character: str | None) -> bool:
        """A key. False where nothing is being typed."""
        if self.prompt is None or not self.prompt.open:
            return False
        self.prompt.take(key, character)
        self._draw()
        return True

    def paste(self, text: str) -> bool:
        """A pasted text. False where nothing is being typed."""
        if self.prompt is None or not self.prompt.open:
            return False
        self.prompt.type(text)
        self._draw()
        return True

    def line(self, glyphs: Glyphs, width: int) -> Text | None:
        """The line that is typed, or None."""
        return self.prompt.line(glyphs, width) if self.prompt and self.prompt.open else None
