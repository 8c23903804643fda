"""The tensor table: the visible cells of any state, with labels, a cursor and slice selection.

It formats only what is seen. The cells come from the worker: when the view needs others, it posts
`Wanted`, and keeps showing what it has until they are there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual.message import Message

from tui.cells import Slice, axes_of, exact, written
from tui.corpora import last_tokens, token
from tui.glyphs import UNICODE, Glyphs, folded
from tui.plain import shown
from tui.widgets.lines import CURSOR, DIM, FOCUS, HERE, PLAIN, STRONG, Pane, line

HEAD = 4  # lines above the rows: name, shape, example, column labels
FOOT = 2  # lines below: blank, the cell under the cursor
LABEL = 14  # cells a row label takes where it is a token
INDEX = 6  # and where it is a number
NUMBER = 9  # cells a number takes
TOKEN = 14  # cells an ID with its token takes

ROLES = {
    "data": "data",
    "parameter": "stored parameter",
    "activation": "activation, temporary",
    "gradient": "gradient",
    "optimizer": "optimizer's update",
}


class View(NamedTuple):
    """Which cells are visible: indices of the leading axes, half-open ranges of the last two."""

    fixed: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]


class TensorTable(Pane):
    """One state: heading, labels, cells, cursor."""

    class Wanted(Message):
        """The view or the cursor moved: cells or an explanation are to be fetched."""

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.state: dict[str, Any] | None = None
        self.slice: Slice | None = None
        self.of: tuple[Any, ...] = ()  # map, model, name, step: which state it is
        self.have: tuple[Any, ...] = ()  # which state, and the view of it, `slice` is
        self.fixed: list[int] = []
        self.chosen = 0  # which of the leading axes < and > move along
        self.row = self.column = self.first_row = self.first_column = 0

    # --- what is shown ------------------------------------------------------------------------

    def open(self, state: dict[str, Any], walk: tuple[str, str]) -> None:
        """Show another state of a walk (its map and model); in a state of the same shape the
        cursor stays where it was."""
        before, self.state = self.state, state
        self.of = (*walk, state["name"], state["step"])
        if before is None or before["shape"] != state["shape"]:
            self.fixed = [0] * max(0, len(state["shape"]) - 2)
            self.chosen = self.row = self.column = self.first_row = self.first_column = 0
        self.keep_in_view()

    def fill(self, cells: Slice, key: tuple[Any, ...]) -> None:
        """Show these cells; `key` says of what they are, and ends with the view."""
        self.slice, self.have = cells, key
        self.draw()

    @property
    def current(self) -> Slice | None:
        """The cells, where they are of the state that is shown."""
        return self.slice if self.have[:-1] == self.of else None

    @property
    def seen(self) -> View:
        """The view that the cells are of."""
        view: View = self.have[-1]
        return view

    @property
    def view(self) -> View:
        """Which cells are to be seen now."""
        rows = (self.first_row, min(self.height, self.first_row + self.rows_seen))
        columns = (self.first_column, min(self.width, self.first_column + self.columns_seen))
        return View(tuple(self.fixed), rows, columns)

    @property
    def key(self) -> tuple[Any, ...]:
        """The state and the view that are wanted now."""
        return (*self.of, self.view)

    @property
    def turned(self) -> bool:
        """Whether the last axis runs down: where it is tokens, and the other one is no row of them
        (logits [B, C], weights [B, 1, S]). A list of tokens is read downwards, however long."""
        axes = self.state["axes"] if self.state else []
        return len(axes) > 1 and axes[-1] in ("C", "S") and axes[-2] in ("B", "1")

    @property
    def size_of_table(self) -> tuple[int, int]:
        """Rows and columns of the state as a table."""
        shape = self.state["shape"] if self.state else []
        if len(shape) < 2:
            return (shape[0] if shape else 1), 1
        return (shape[-1], shape[-2]) if self.turned else (shape[-2], shape[-1])

    @property
    def height(self) -> int:
        return self.size_of_table[0]

    @property
    def width(self) -> int:
        return self.size_of_table[1]

    @property
    def rows_seen(self) -> int:
        return max(1, self.size.height - HEAD - FOOT)

    @property
    def is_text(self) -> bool:
        return self.state is not None and self.state["kind"] == "text"

    @property
    def label_width(self) -> int:
        """Cells a row label takes: more where rows are tokens."""
        axes = self.state["axes"] if self.state else []
        down = axes[-1] if len(axes) == 1 or self.turned else axes[-2] if axes else ""
        if self.is_text:
            return INDEX
        if self.state is not None and self.state["name"].startswith("audit."):
            return LABEL
        tokens = down in ("C", "S", "1") or (down == "w" and len(axes) > 2)
        return LABEL if tokens else INDEX

    @property
    def cell_width(self) -> int:
        if self.is_text:
            return max(1, self.size.width - self.label_width - 3)
        return TOKEN if self.state and self.state["dtype"] == "int64" else NUMBER

    @property
    def columns_seen(self) -> int:
        return max(1, (self.size.width - self.label_width - 2) // (self.cell_width + 1))

    @property
    def cell(self) -> list[int]:
        """The index of the cell under the cursor, in the state's own shape."""
        rank = len(self.state["shape"]) if self.state else 0
        if rank < 2:
            return [self.row][:rank]
        last = [self.column, self.row] if self.turned else [self.row, self.column]
        return [*self.fixed, *last]

    # --- moving -------------------------------------------------------------------------------

    def put(self, cell: list[int]) -> bool:
        """The cursor on a cell. False where the state has no such cell."""
        shape = self.state["shape"] if self.state else []
        if len(cell) != len(shape) or not all(0 <= i < n for i, n in zip(cell, shape, strict=True)):
            return False
        if len(cell) > 1:
            *self.fixed, self.row, self.column = cell
            if self.turned:
                self.row, self.column = self.column, self.row
        elif cell:
            self.row = cell[0]
        self.moved()
        return True

    def moved(self) -> None:
        self.keep_in_view()
        self.draw()
        self.post_message(self.Wanted())

    def keep_in_view(self) -> None:
        self.row = min(max(self.row, 0), max(0, self.height - 1))
        self.column = min(max(self.column, 0), max(0, self.width - 1))
        rows, columns = self.rows_seen, self.columns_seen
        self.first_row = min(max(self.first_row, self.row - rows + 1), self.row)
        self.first_column = min(max(self.first_column, self.column - columns + 1), self.column)
        self.first_row = max(0, min(self.first_row, self.height - rows))
        self.first_column = max(0, min(self.first_column, self.width - columns))

    def move(self, down: int = 0, right: int = 0) -> None:
        self.row += down
        self.column += right
        self.moved()

    def move_slice(self, by: int) -> None:
        """Along the chosen leading axis."""
        if self.state is None or not self.fixed:
            return
        size = self.state["shape"][self.chosen]
        self.fixed[self.chosen] = min(max(self.fixed[self.chosen] + by, 0), size - 1)
        self.moved()

    def choose_axis(self) -> None:
        if self.fixed:
            self.chosen = (self.chosen + 1) % len(self.fixed)
            self.draw()

    def on_resize(self) -> None:
        if self.state is not None:
            self.moved()

    # --- drawing ------------------------------------------------------------------------------

    def draw(self) -> None:
        if self.state is None:
            return
        labelled = bool(self.state["shape"])  # one number or text has nothing above it
        lines = [self.title(), self.shape_line(), *([self.caption_line()] if labelled else [])]
        current = self.current
        if current is not None:
            lines += [self.column_labels(current)] if labelled else []
            lines += self.row_lines(current)
            lines += [line(), self.cursor_line(current)]
        self.show(lines)

    def ours(self, text: str) -> str:
        """Our own words, in the terminal's alphabet."""
        return folded(text) if self.glyphs.ascii else text

    def theirs(self, text: str) -> str:
        """A text from outside, as data."""
        return shown(text, self.glyphs.ascii)

    @property
    def role_below(self) -> bool:
        """Whether the role goes to the second line, because a long name leaves it no room."""
        state = self.state or {}
        return (
            cell_len(self.theirs(state["name"])) + len(ROLES[state["role"]]) + 2 > self.size.width
        )

    def title(self) -> Text:
        state = self.state or {}
        role = "" if self.role_below else ROLES[state["role"]]
        formula = self.theirs(self.ours(state["formula"]))
        name = self.theirs(state["name"])
        room = self.size.width - cell_len(name) - len(role) - 4
        formula = formula if cell_len(formula) <= room else ""
        gap = max(1, self.size.width - cell_len(name) - cell_len(formula) - len(role) - 2)
        style = FOCUS if self.active else STRONG
        return line((name, style), "  ", (formula, DIM), " " * gap, (role, DIM))

    def shape_line(self) -> Text:
        state = self.state or {}
        parts: list[tuple[str, Style] | str] = [("[", DIM)]
        parts += [self.ours(axes_of(state["axes"], state["shape"])), ("]", DIM)]
        if not state["shape"]:
            parts = [("one text" if self.is_text else "one number", DIM)]
        for k, index in enumerate(self.fixed):
            axis, size = self.ours(state["axes"][k]), state["shape"][k]
            style = HERE if k == self.chosen and len(self.fixed) > 1 else PLAIN
            parts += ["   ", (f"{axis} {index + 1} of {size}", style)]
        if self.fixed:
            parts.append(("  < >", DIM))
        if not self.is_text and state["dtype"] != "float32":
            parts.append((f"   {state['dtype']}", DIM))
        if self.role_below:
            parts.append((f"   {ROLES[state['role']]}", DIM))
        return line(*parts)

    def caption_line(self) -> Text:
        """The example: its context, as much of its end as there is room for, and its target."""
        current = self.current
        if current is None or not current.caption:
            return line()
        target = ""
        if current.target is not None:
            target = f" {self.glyphs.arrow} {token(current.target, self.glyphs)}"
        tokens = [token(each, self.glyphs) for each in current.caption]
        context = last_tokens(tokens, self.size.width - cell_len(target), self.glyphs)
        return line((context + target, DIM))

    def column_labels(self, cells: Slice) -> Text:
        parts: list[tuple[str, Style] | str] = [" " * (self.label_width + 2)]
        for k, label in enumerate(cells.columns):
            here = self.seen.columns[0] + k == self.column
            text = right(token(label, self.glyphs), self.cell_width)
            parts += [(text, STRONG if here else DIM), " "]
        return line(*parts)

    def row_lines(self, cells: Slice) -> list[Text]:
        first_row, first_column = self.seen.rows[0], self.seen.columns[0]
        lines = []
        for y, row in enumerate(cells.cells):
            here = first_row + y == self.row
            label = cells.rows[y] if y < len(cells.rows) else ""
            text = right(token(label, self.glyphs), self.label_width)
            parts: list[tuple[str, Style] | str] = [(text, STRONG if here else DIM), "  "]
            for x, value in enumerate(row):
                under = here and first_column + x == self.column
                parts.append((self.cell_text(cells, y, x, value), CURSOR if under else PLAIN))
                parts.append(" ")
            lines.append(line(*parts))
        return lines

    def cell_text(self, cells: Slice, y: int, x: int, value: Any) -> str:
        if isinstance(value, str):
            return set_cell_size(self.theirs(value), self.cell_width)
        if cells.tokens:
            return right(f"{token(cells.tokens[y][x], self.glyphs)} {value}", self.cell_width)
        return right(written(value), self.cell_width)

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
        whole, where = self.theirs(self.state["name"]), "   " + self.where()
        for name, after in ((whole, where), (self.glyphs.dots, where), (self.glyphs.dots, "")):
            about = f"{name}{index} = "
            if cell_len(about + text + after.rstrip()) <= self.size.width:
                break  # a number that is cut off would be another number
        return line((about, DIM), (text, STRONG), (after, DIM))

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
