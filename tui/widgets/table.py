"""The tensor table: the visible cells of any state, with labels, a cursor, heat and a summary.

It formats only what is seen. The cells come from the worker: when the view needs others, it asks
for them, and keeps showing what it has until they are there.
"""

from __future__ import annotations

import math
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from tui.cells import Slice, exact, formatted, summary_line
from tui.corpora import token
from tui.heading import Heading
from tui.heat import Heat
from tui.widgets.lines import CURSOR, DIM, PLAIN, STRONG, WARN, line
from tui.widgets.table_view import VIEWS, TableView


class TensorTable(TableView):
    """One state: heading, labels, cells, cursor."""

    def draw(self) -> None:
        if self.state is None:
            return
        shows = "" if self.shows == VIEWS[0] else f" ({self.shows})"
        heading = Heading(self.state, self.size.width, self.glyphs, self.active, shows)
        labelled = bool(self.state["shape"])  # one number or text has nothing above it
        lines = [heading.title(), heading.shape(self.fixed, self.chosen)]
        current = self.current
        lines += [heading.caption(current)] if labelled else []
        if current is not None:
            lines += [self.column_labels(current)] if labelled else []
            lines += self.row_lines(current)
            lines += [self.summary_line(current), self.cursor_line(current)]
        self.show(lines)

    @property
    def heat(self) -> Heat | None:
        """The scale of the colours, where they are on and the numbers have one."""
        return (
            Heat.of(self.summary) if self.heated and self.summary_of == self.summary_key else None
        )

    def summary_line(self, cells: Slice) -> Text:
        """How all cells are spread, or what the heat means; and in which order the rows are."""
        known = self.summary is not None and self.summary_of == self.summary_key
        counted = bool((self.state or {})["shape"]) and not cells.tokens  # IDs have no mean
        if self.summary is None or not known or not counted:
            return line()
        heat, order = self.heat, ""
        if self.order is not None:
            order = f"{'largest' if self.order[1] else 'smallest'} first  "
        room = self.size.width - len(order)
        text = summary_line(self.summary, room) if heat is None else heat.legend(self.glyphs, room)
        return line((order + text, DIM))

    def column_labels(self, cells: Slice) -> Text:
        parts: list[tuple[str, Style] | str] = [" " * (self.label_width + 2)]
        for k, label in enumerate(cells.columns):
            here = self.seen.columns[0] + k == self.column
            text = right(token(label, self.glyphs), self.cell_width)
            parts += [(text, STRONG if here else DIM), " "]
        return line(*parts)

    def row_lines(self, cells: Slice) -> list[Text]:
        first_row, first_column = self.seen.rows[0], self.seen.columns[0]
        lines, heat = [], self.heat
        for y, row in enumerate(cells.cells):
            here = first_row + y == self.row
            label = cells.rows[y] if y < len(cells.rows) else ""
            text = right(token(label, self.glyphs), self.label_width)
            parts: list[tuple[str, Style] | str] = [(text, STRONG if here else DIM), "  "]
            for x, value in enumerate(row):
                under = here and first_column + x == self.column
                style = CURSOR if under else self.style_of(value, heat)
                parts.append((self.cell_text(cells, y, x, value, heat), style))
                parts.append(" ")
            lines.append(line(*parts))
        return lines

    @staticmethod
    def style_of(value: Any, heat: Heat | None) -> Style:
        """The colour of a cell: heat, a warning for what is no number, dim for what is masked."""
        if isinstance(value, float) and not math.isfinite(value):
            return DIM if value == -math.inf else WARN
        return (heat.style(value) if heat is not None else None) or PLAIN

    def cell_text(self, cells: Slice, y: int, x: int, value: Any, heat: Heat | None) -> str:
        if isinstance(value, str):
            return set_cell_size(self.theirs(value), self.cell_width)
        if cells.tokens:
            return right(f"{token(cells.tokens[y][x], self.glyphs)} {value}", self.cell_width)
        bar = "" if heat is None else heat.bar(value, self.glyphs)
        return right(formatted(value, self.format), self.cell_width - len(bar)) + bar

    def cursor_line(self, cells: Slice) -> Text:
        """The cell under the cursor with all its digits, and where in the table it lies."""
        if self.state is None:
            return line()
        y, x = self.row - self.seen.rows[0], self.column - self.seen.columns[0]
        if not (0 <= y < len(cells.cells) and 0 <= x < len(cells.cells[y])):
            return line()
        value = cells.cells[y][x]
        index = f"[{','.join(map(str, self.cell))}]" if self.cell else ""
        text = self.theirs(value) if isinstance(value, str) else exact(value)
        text += f"  {token(cells.tokens[y][x], self.glyphs)}" if cells.tokens else ""
        places = ", ".join(filter(None, (self.pair(cells, y, x), self.where())))
        whole, where = self.theirs(self.state["name"]), f"   {places}"
        for name, after in ((whole, where), (self.glyphs.dots, where), (self.glyphs.dots, "")):
            about = f"{name}{index} = "
            if cell_len(about + text + after.rstrip()) <= self.size.width:
                break  # a number that is cut off would be another number
        return line((about, DIM), (text, STRONG), (after, DIM))

    def pair(self, cells: Slice, y: int, x: int) -> str:
        """Of attention by position: from which token to which one."""
        if tuple((self.state or {})["axes"][-2:]) != ("T", "S"):
            return ""
        return f"from {token(cells.rows[y], self.glyphs)} to {token(cells.columns[x], self.glyphs)}"

    def where(self) -> str:
        """Which part of a table that is too large to be seen at once is seen."""
        parts = []
        if self.height > self.rows_seen:
            parts.append(f"row {self.row + 1} of {self.height}")
        if self.width > self.columns_seen:
            parts.append(f"column {self.column + 1} of {self.width}")
        return ", ".join(parts)


def right(text: str, width: int) -> str:
    """A text at the right of `width` cells, cut at its end where it is longer."""
    length = cell_len(text)
    return " " * (width - length) + text if length <= width else set_cell_size(text, width)
