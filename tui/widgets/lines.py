"""A widget that is a list of lines. Setting new lines redraws only those that differ, so that a
key costs few bytes over SSH."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

HERE = Style(color="cyan", bold=True)  # the one accent: where you are
FOCUS = HERE + Style(underline=True)  # the heading of the pane that has the keys, also uncoloured
DIM = Style(dim=True)
STRONG = Style(bold=True)
PLAIN = Style()
CURSOR = Style(reverse=True)
WARN = Style(color="yellow", bold=True)


class Lines(Widget):
    """Lines of text, cut to the widget's width, blank below the last."""

    def __init__(self, id: str | None = None):
        super().__init__(id=id)
        self._lines: list[Text] = []

    def show(self, lines: list[Text]) -> None:
        """Show these lines from now on."""
        before, self._lines = self._lines, lines
        changed = [
            Region(0, y, self.size.width, 1)
            for y in range(max(len(before), len(lines)))
            if before[y : y + 1] != lines[y : y + 1] or not same_styles(before, lines, y)
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        segments = self._lines[y].render(self.app.console)
        strip = Strip(segment for segment in segments if segment.text != "\n")
        return strip.adjust_cell_length(width, self.rich_style).apply_style(self.rich_style)

    @property
    def text(self) -> str:
        """What is shown, as plain text."""
        return "\n".join(line.plain for line in self._lines)


class Pane(Lines):
    """A pane that can have the keys. Not Textual's focus, which draws a widget anew when it comes
    and goes: 13 kB over the line for a change of two words."""

    active = False

    def activate(self, active: bool) -> None:
        """Give the pane the keys, or take them away."""
        self.active = active
        self.draw()

    def draw(self) -> None:
        """Make the lines anew from what the pane shows."""

    def on_resize(self) -> None:
        self.draw()


def same_styles(before: list[Text], after: list[Text], y: int) -> bool:
    if y >= len(before) or y >= len(after):
        return False
    return before[y].spans == after[y].spans and before[y].style == after[y].style


def line(*parts: tuple[str, Style] | str | Text) -> Text:
    """A line from texts, styled or plain. Markup in them is not read: they are data."""
    text = Text(no_wrap=True, end="")
    for part in parts:
        if isinstance(part, (str, Text)):
            text.append(part)
        else:
            text.append(part[0], part[1])
    return text


def wrapped(text: str, width: int, style: Style = PLAIN, most: int | None = None) -> list[Text]:
    """A text as lines of at most `width` cells, broken at spaces, or anywhere in a long word."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        grown = f"{current} {word}" if current else word
        if cell_len(grown) <= width:
            current = grown
            continue
        if current:
            lines.append(current)
        *full, current = chop_cells(word, max(1, width)) or [""]
        lines.extend(full)
    lines.append(current)
    return [line((each, style)) for each in lines[:most]]
