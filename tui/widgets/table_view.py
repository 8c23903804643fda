"""What part of a state is to be seen in a table, in which order and form, and where the cursor is.

Knows nothing of drawing. When the view needs other cells than it has, it posts `Wanted`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from textual.message import Message

from tui.cells import FORMATS, WIDTHS, Slice
from tui.glyphs import UNICODE, Glyphs
from tui.plain import shown
from tui.widgets.lines import Pane

HEAD = 4  # lines above the rows: name, shape, example, column labels
FOOT = 2  # lines below: blank, the cell under the cursor
LABEL = 14  # cells a row label takes where it is a token
VIEWS = ("after", "before", "difference")  # what is shown of a walk with edits
INDEX = 6  # and where it is a number
TOKEN = 14  # cells an ID with its token takes


class View(NamedTuple):
    """Which cells are visible: indices of the leading axes, half-open ranges of the last two."""

    fixed: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]
    order: tuple[int, bool] | None  # rows sorted by a column, falling or rising
    shows: str  # after, before or difference, where cells were edited


class TableView(Pane):
    """Which cells of a state are seen and how, and where the cursor is; drawn by `TensorTable`."""

    class Wanted(Message):
        """The view or the cursor moved: cells or an explanation are to be fetched."""

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.state: dict[str, Any] | None = None
        self.slice: Slice | None = None
        self.of: tuple[Any, ...] = ()  # walk, name, step: which state it is
        self.have: tuple[Any, ...] = ()  # which state, and the view of it, `slice` is
        self.fixed: list[int] = []
        self.chosen = 0  # which of the leading axes < and > move along
        self.row = self.column = self.first_row = self.first_column = 0
        self.order: tuple[int, bool] | None = None
        self.shows = VIEWS[0]
        self.format = FORMATS[0]
        self.heated = False
        self.summary: dict[str, Any] | None = None
        self.summary_of: tuple[Any, ...] = ()  # which state the summary is of

    # --- what is shown ------------------------------------------------------------------------

    def open(self, state: dict[str, Any], walk: tuple[str, ...]) -> None:
        """Show another state of a walk (what is opened, map, model, edits); in a state of the same
        shape the cursor stays where it was."""
        before, self.state = self.state, state
        self.of = (*walk, state["name"], state["step"])
        if before is None or before["name"] != state["name"] or before["shape"] != state["shape"]:
            self.order = None
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
        return View(tuple(self.fixed), rows, columns, self.order, self.shows)

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
    def has_tokens(self) -> bool:
        """Whether there is a row for every token of the vocabulary."""
        axes = self.state["axes"] if self.state else []
        return bool(axes) and (axes[-1] if len(axes) == 1 or self.turned else axes[-2]) == "C"

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
        if self.state and self.state["dtype"] == "int64":
            return TOKEN
        bar = (2 if self.glyphs.ascii else 1) if self.heated else 0
        return WIDTHS[self.format] + bar

    @property
    def columns_seen(self) -> int:
        return max(1, (self.size.width - self.label_width - 2) // (self.cell_width + 1))

    @property
    def cell(self) -> list[int]:
        """The index of the cell under the cursor, in the state's own shape."""
        rank = len(self.state["shape"]) if self.state else 0
        if rank < 2:
            return [self.number_of_row][:rank]
        row = self.number_of_row
        last = [self.column, row] if self.turned else [row, self.column]
        return [*self.fixed, *last]

    @property
    def number_of_row(self) -> int:
        """Which row of the state the cursor is on: another than it seems where they are sorted."""
        cells = self.current
        if self.order is None or cells is None or cells.index is None:
            return self.row
        at = self.row - self.seen.rows[0]
        return cells.index[at] if 0 <= at < len(cells.index) else self.row

    # --- moving -------------------------------------------------------------------------------

    def put(self, cell: list[int]) -> bool:
        """The cursor on a cell. False where the state has no such cell."""
        shape = self.state["shape"] if self.state else []
        if len(cell) != len(shape) or not all(0 <= i < n for i, n in zip(cell, shape, strict=True)):
            return False
        self.order = None
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
        if self.key == self.have:  # else it is drawn when its cells are there
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

    def sort(self) -> None:
        """Rows by the column under the cursor: largest first, smallest first, as they are."""
        if self.state is None or not self.state["shape"] or self.is_text:
            return
        ways = [None, (self.column, True), (self.column, False)]
        at = ways.index(self.order) if self.order in ways else 0
        self.order = ways[(at + 1) % len(ways)]
        self.row = 0
        self.moved()

    def change_format(self) -> None:
        """Four decimals, scientific, or all digits."""
        self.format = FORMATS[(FORMATS.index(self.format) + 1) % len(FORMATS)]
        self.moved()

    def change_view(self) -> str:
        """After the edits, before them, the difference. Returns what is shown now."""
        self.shows = VIEWS[(VIEWS.index(self.shows) + 1) % len(VIEWS)]
        self.moved()
        return self.shows

    def change_heat(self) -> None:
        self.heated = not self.heated
        self.moved()

    @property
    def summary_key(self) -> tuple[Any, ...]:
        """What a summary has to be of: the state, and which view of it."""
        return (*self.of, self.shows)

    def summarize(self, summary: dict[str, Any], of: tuple[Any, ...]) -> None:
        """How the cells of a state are spread."""
        self.summary, self.summary_of = summary, of

    def rows_as_text(self, whole: str) -> str:
        """The cell under the cursor, its row as far as it is seen, or all that is seen; a tab
        between cells, all digits."""
        cells = self.current
        if cells is None:
            return ""
        at = self.row - self.seen.rows[0]
        rows = cells.cells if whole == "all" else cells.cells[at : at + 1]
        if whole == "cell":
            rows = [row[self.column - self.seen.columns[0] :][:1] for row in rows]
        return "\n".join("\t".join(self.whole_cell(each) for each in row) for row in rows)

    def theirs(self, text: str) -> str:
        """A text from outside, as data."""
        return shown(text, self.glyphs.ascii)

    def whole_cell(self, value: Any) -> str:
        return self.theirs(value) if isinstance(value, str) else repr(value)
