"""Reading a table off the screen, and what `tensorstep states --json` says should stand there."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, NamedTuple

from tests.terminal.terminal import COMMAND, Terminal
from tui.cells import exact, written
from tui.heading import ROLES

State = dict[str, Any]


def states(what: str, *arguments: str) -> list[State]:
    """Every state that the command prints, as JSON."""
    done = subprocess.run(
        [COMMAND, "states", what, "--json", *arguments], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class Table(NamedTuple):
    """What the table pane shows: labels, the written cells, and the line about the cursor's."""

    rows: list[str]
    columns: list[str]
    cells: list[list[str]]
    cursor: tuple[int, ...]  # the index of the cell under the cursor
    value: str  # and its value with all digits

    @property
    def size(self) -> int:
        return sum(map(len, self.cells))


SUMMARY = re.compile(
    r" ?(\d+ not finite|min \S|all \d+ not finite)"
)  # of all cells, below the rows


def table_of(terminal: Terminal, state: State) -> Table | None:
    """The table of `state`, or None as long as the screen shows another one, or no cells yet."""
    name, lines = state["name"], terminal.lines
    title = re.compile(rf"(?:^ ?|  ){re.escape(name)}(?=  |$)")
    titles = [(y, found) for y in range(4) if (found := title.search(lines[y])) is not None]
    if not titles or f"step {state['step']} " not in lines[0]:
        return None
    top, found = titles[0]
    left, right = found.end() - len(name), lines[top].find("EXPLANATION")
    beside = slice(left, right if right > 0 else None)
    pane = [line[beside].rstrip() for line in lines[top:]]
    if ROLES[state["role"]] not in pane[0] + pane[1]:
        return None
    about = re.compile(rf"(?:{re.escape(name)}|…|\.\.)(?:\[([\d,]*)\])? = (.*)")
    for y, line in enumerate(pane):
        if y > 2 and (said := about.match(line)) is not None:
            cursor = tuple(int(i) for i in (said[1] or "").split(",") if i)
            if len(cursor) != len(state["shape"]):
                return None  # half of it is still another table
            try:
                return parsed(pane[2:y], state, cursor, said[2].split("   ")[0])
            except ValueError:  # half of it is still another table
                return None
    return None


def parsed(lines: list[str], state: State, cursor: tuple[int, ...], value: str) -> Table:
    """A caption (of one example's table), column labels (where there are columns), then rows: a
    label (where the state has axes) and cells. Blank lines separate as they like.

    Raises ValueError for lines that are no table of this state."""
    body = [line for line in lines if line.strip() and SUMMARY.match(line) is None]
    rank = len(state["shape"])
    if rank > 2 and state["axes"][0] == "B":
        del body[:1]
    columns = body.pop(0).split() if rank > 1 and body else []
    if not body:
        raise ValueError("no rows yet")
    rows, cells = [], []
    for line in body:
        if state["kind"] == "text":
            label, _, text = line.strip().partition("  ") if state["shape"] else ("", "", line)
            rows.append(label.strip())
            cells.append([text.strip()])
            continue
        label, *words = line.split() if state["shape"] else ["", *line.split()]
        rows.append(label)
        if has_tokens(state):  # each cell is a token and its ID
            words = [" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)]
        cells.append(words)
    return Table(rows, columns, cells, cursor, value)


def has_tokens(state: State) -> bool:
    return state["dtype"] == "int64"


class Expected:
    """The tables that the states of one walk should give, told by nothing but their JSON."""

    def __init__(self, states: list[State], vocabulary: list[str]):
        self.vocabulary = vocabulary
        self.values = {(each["step"], each["name"]): each["values"] for each in states}

    def labels(self, state: State, axis: int, fixed: tuple[int, ...]) -> list[str]:
        letter, size = state["axes"][axis], state["shape"][axis]
        if letter == "C" and state["kind"] != "text":
            return self.vocabulary
        if state["axes"][0] == "B" and len(state["axes"]) > 2 and letter in ("w", "S", "1"):
            name = "batch.X" if state["map"] == "training" else "context"
            ids = self.values[state["step"], name][fixed[0]]
            tokens = [self.vocabulary[i] for i in ids]
            return tokens if letter != "1" else tokens[-1:]
        return [str(i) for i in range(size)]

    def text(self, state: State, value: Any) -> str:
        """A cell as the table writes it."""
        number = float(value) if state["dtype"].startswith("float") else value
        return f"{self.vocabulary[value]} {value}" if has_tokens(state) else written(number)

    def grid(
        self, state: State, cursor: tuple[int, ...]
    ) -> tuple[list[str], list[str], list[list[str]]]:
        """Row labels, column labels and all cells of the part of the state that has the cursor."""
        values, rank = state["values"], len(state["shape"])
        if rank == 0:
            return [""], [], [[self.text(state, values)]]
        if rank == 1:
            rows = self.labels(state, 0, ())
            return rows, [], [[self.text(state, value)] for value in values]
        fixed = cursor[:-2]
        for i in fixed:
            values = values[i]
        rows, columns = (self.labels(state, axis, fixed) for axis in (rank - 2, rank - 1))
        cells = [[self.text(state, value) for value in row] for row in values]
        if state["axes"][-1] in ("C", "S") and state["axes"][-2] in ("B", "1"):  # tokens run down
            return columns, rows, [list(row) for row in zip(*cells, strict=True)]
        return rows, columns, cells

    def check(self, state: State, table: Table) -> None:
        """Every visible cell stands beside its label, and is what the JSON says; the cursor's cell
        to the last digit."""
        rows, columns, cells = self.grid(state, table.cursor)
        height, width = len(table.rows), max(map(len, table.cells))
        assert height
        assert width
        fits = [
            (y, x)
            for y in range(len(rows) - height + 1)
            for x in range(len(cells[0]) - width + 1)
            if rows[y : y + height] == table.rows
            and (not columns or columns[x : x + width] == table.columns)
        ]
        assert fits, f"{state['name']}: {table} has other labels than {rows}, {columns}"
        parts = [[row[x : x + width] for row in cells[y : y + height]] for y, x in fits]
        assert table.cells in parts, f"{state['name']}: {table} shows other cells than {cells}"
        value = state["values"]
        for i in table.cursor:
            value = value[i]
        whole = f"{value}  {self.vocabulary[value]}" if has_tokens(state) else exact(value)
        assert table.value == whole, f"{state['name']}: {table} should have {whole}"
