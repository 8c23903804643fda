"""The curves of a run: many steps in a column, several marks in one plot, a log scale, a cursor;
and which of the steps are seen. Pure functions of what has been read."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import groupby
from operator import itemgetter

from rich.style import Style
from rich.text import Text

from engine.runs.curves import Column, Curves, steps_a_column
from tui.cells import fitting, written
from tui.glyphs import Glyphs
from tui.widgets.curve import AXIS, row_of
from tui.widgets.lines import CURSOR, DIM, PLAIN, STRONG, WARN, line

TITLES = {"grad_norm": "GRADIENT NORM", "lr": "LEARNING RATE"}
VALIDATION = "o"
NOT_FINITE = "!"
CLOSEST = 8  # steps: nearer than that nothing is seen better
SPARSE = 8  # columns
MIDDLE = 7  # lines from which the middle of the scale has a number too
LABEL = AXIS - 1  # cells


class View:
    """Which steps are seen, and the one under the cursor.

    span   how many; None: the whole run
    at     the step under the cursor; None: the newest, whichever it is
    first  the first step that is seen, where the cursor stands still
    """

    def __init__(self) -> None:
        self.span: int | None = None
        self.at: int | None = None
        self.first = 1

    def steps(self, count: int) -> tuple[int, int]:
        """The first and the last step that are seen of so many."""
        if self.span is None or self.span >= count:
            return min(1, count), count
        if self.at is None:
            return count - self.span + 1, count
        first = min(max(self.first, self.at - self.span + 1), self.at, count - self.span + 1)
        return max(1, first), max(1, first) + self.span - 1

    def cursor(self, count: int) -> int:
        """The step under the cursor."""
        return count if self.at is None else min(self.at, count)

    def move(self, by: int, count: int, columns: int) -> None:
        """To the last step of a column before or after this one; at the end with the newest."""
        self.first, last = self.steps(count)
        if last < self.first:
            return
        each = steps_a_column(self.first, last, columns)
        self.put(((self.cursor(count) - 1) // each + 1 + by) * each, count)

    def put(self, step: int, count: int) -> None:
        """To a step; the last one is followed from then on."""
        self.at = None if step >= count else max(1, step)

    def zoom(self, by: int, count: int) -> None:
        """Half as many steps (1), or twice as many (-1), around the cursor."""
        first, last = self.steps(count)
        shown = last - first + 1
        span = max(CLOSEST, shown // 2) if by > 0 else 2 * shown
        self.span = None if span >= count else span
        self.first = self.cursor(count) - span // 2


def loss_curve(
    curves: Curves,
    first: int,
    last: int,
    width: int,
    height: int,
    cursor: int,
    log: bool,
    glyphs: Glyphs,
) -> list[Text]:
    """The loss of steps `first` to `last`: a legend, the plot, the numbers at the cursor."""
    columns = curves.columns("loss", first, last, width - AXIS)
    if not columns:
        return [line(("LOSS", STRONG)), line(("  none yet: the first comes with step 1", DIM))]
    smoothed = [curves.smoothed.at(column.last) for column in columns]
    validation = [newest(curves.val_loss, column.first, column.last) for column in columns]
    others = [value for value in (*smoothed, *validation) if value is not None]
    plot = Plot(columns, others, height - 2, log, glyphs)
    plot.draw_bands()
    plot.draw([column.mean for column in columns], glyphs.point, PLAIN)
    plot.draw(validation, VALIDATION, STRONG)
    plot.draw(smoothed, glyphs.line, STRONG)
    plot.draw(sparse(validation), VALIDATION, STRONG)
    plot.mark(cursor)
    return [
        legend(columns, width, log, glyphs),
        *plot.lines(),
        cursor_line(curves, columns, width, cursor),
    ]


def series_curve(
    curves: Curves,
    name: str,
    first: int,
    last: int,
    width: int,
    height: int,
    cursor: int,
    log: bool,
    glyphs: Glyphs,
) -> list[Text]:
    """One series of the steps `first` to `last`: its name and number at the cursor, the plot."""
    columns = curves.columns(name, first, last, width - AXIS)
    heading = (TITLES.get(name, name), STRONG)
    if all(math.isnan(column.mean) for column in columns):
        return [line(heading), line(("  not known", DIM))]
    plot = Plot(columns, [], height - 1, log, glyphs)
    plot.draw_bands()
    plot.draw([column.mean for column in columns], glyphs.point, PLAIN)
    plot.mark(cursor)
    told = f"  at {cursor:,}: {brief(getattr(curves, name).at(cursor))}"
    return [line(heading, (told + ("  log" if log else ""), DIM)), *plot.lines()]


class Plot:
    """Marks on a grid of columns and rows, a scale at its left; later marks cover earlier ones."""

    def __init__(
        self, columns: list[Column], others: list[float], rows: int, log: bool, glyphs: Glyphs
    ):
        self.columns = columns
        self.rows = max(1, rows)
        self.glyphs = glyphs
        values = [value for column in columns for value in (column.low, column.high)]
        finite = [value for value in (*values, *others) if math.isfinite(value)]
        positive = [value for value in finite if value > 0]
        self.log = log and bool(positive)  # what is not positive lies on the lowest line
        low = min(positive if self.log else finite, default=0.0)
        self.scale = (low, max(finite, default=0.0)) if finite else None
        self.cells = [[(" ", PLAIN)] * len(columns) for _ in range(self.rows)]

    def placed(self, value: float) -> float:
        """Where on the scale a value lies; in quarters, so that no difference overflows."""
        if self.log and self.scale is not None:
            return math.log10(max(value, self.scale[0]))
        return value / 4

    def row(self, value: float) -> int:
        """Which row, from the top, a finite value lies in."""
        low, high = self.scale or (0.0, 0.0)
        return row_of(self.placed(value), self.placed(low), self.placed(high), self.rows)

    def draw_bands(self) -> None:
        """From the lowest to the highest of each column."""
        for x, column in enumerate(self.columns):
            if column.first < column.last and math.isfinite(column.mean):
                for y in range(self.row(column.high), self.row(column.low) + 1):
                    self.cells[y][x] = (self.glyphs.band, DIM)

    def draw(self, values: list[float] | list[float | None], glyph: str, style: Style) -> None:
        """A mark in each column that has a finite value."""
        for x, value in enumerate(values):
            if value is not None and math.isfinite(value):
                self.cells[self.row(value)][x] = (glyph, style)

    def mark(self, cursor: int) -> None:
        """Columns with values that are not finite, at the top; and the step under the cursor."""
        for x, column in enumerate(self.columns):
            if column.nonfinite:
                self.cells[0][x] = (NOT_FINITE, WARN)
            if column.first <= cursor <= column.last:
                y = 0 if column.nonfinite else self.row(column.mean)
                glyph, style = self.cells[y][x]
                keeps = glyph in (NOT_FINITE, VALIDATION)
                self.cells[y][x] = (glyph if keeps else self.glyphs.point, style + CURSOR)

    def labels(self) -> dict[int, str]:
        """The numbers of the scale, by their rows."""
        if self.scale is None:
            return {}
        low, high = self.scale
        if low == high or self.rows == 1:
            return {self.rows // 2: brief(high)}
        labels = {0: brief(high), self.rows - 1: brief(low)}
        if self.rows >= MIDDLE:
            part = (self.rows // 2) / (self.rows - 1)
            between = low * part + high * (1 - part)
            labels[self.rows // 2] = brief(low**part * high ** (1 - part) if self.log else between)
        return labels

    def lines(self) -> list[Text]:
        labels = self.labels()
        lines = []
        for y, cells in enumerate(self.cells):
            runs = groupby(cells, itemgetter(1))
            parts = [("".join(map(itemgetter(0), run)), style) for style, run in runs]
            label = labels.get(y, "").rjust(LABEL)
            lines.append(line((label, DIM), (self.glyphs.bar, DIM), *parts))
        return lines


def newest(series: tuple[list[int], list[float]], first: int, last: int) -> float | None:
    """The last of the values that belong to steps `first` to `last`; None where there is none."""
    steps, values = series
    at = bisect_right(steps, last) - 1
    return values[at] if at >= 0 and steps[at] >= first else None


def sparse(marks: list[float | None]) -> list[float | None]:
    """Marks that are to cover others: one in so many columns, where most columns have one."""
    if 2 * sum(mark is not None for mark in marks) <= len(marks):
        return marks
    last = len(marks) - 1
    return [mark if x % SPARSE == 0 or x == last else None for x, mark in enumerate(marks)]


def legend(columns: list[Column], width: int, log: bool, glyphs: Glyphs) -> Text:
    """What the marks mean, and which steps are seen."""
    marks = [
        (f"{glyphs.point} loss", PLAIN),
        (f"{glyphs.line} smoothed", STRONG),
        (f"{VALIDATION} validation", STRONG),
    ]
    if any(column.nonfinite for column in columns):
        marks.append((f"{NOT_FINITE} nan, inf", WARN))
    parts = [("LOSS", STRONG), (" log" if log else "", DIM)]
    for text, style in marks:
        parts += [("  ", PLAIN), (text, style)]
    room = width - sum(len(text) for text, _ in parts)
    first, last = columns[0].first, columns[-1].last
    each = max(column.last - column.first + 1 for column in columns)
    seen = f"{first:,} to {last:,}" if first < last else f"{first:,}"
    texts = [f"steps {seen}  {each:,} a column"] if each > 1 else []
    texts += [f"steps {seen}" if first < last else f"step {seen}", seen]
    right = next((text for text in texts if len(text) + 2 <= room), "")
    return line(*parts, (right.rjust(room), DIM))


def cursor_line(curves: Curves, columns: list[Column], width: int, cursor: int) -> Text:
    """The numbers of the step under the cursor, as many as there is room for."""
    parts = [f"at {cursor:,}: loss {written(curves.loss.at(cursor))}"]
    parts.append(f"smoothed {written(curves.smoothed.at(cursor))}")
    steps, values = curves.val_loss
    at = bisect_right(steps, cursor) - 1
    if at >= 0:
        parts.append(f"validation {written(values[at])} ({steps[at]:,})")
    for column in columns:
        if column.first <= cursor <= column.last and column.first < column.last:
            parts.append(f"its column {written(column.low)} to {written(column.high)}")
    text = fitting(parts, width - AXIS)
    return line((" " * AXIS + text, DIM))


def brief(value: float) -> str:
    """A number of a scale, in at most 8 cells."""
    if not math.isfinite(value) or 0.01 <= abs(value) < 999:
        return written(value)
    texts = [f"{value:.{digits}g}" for digits in (4, 3, 2, 1)]
    return next((text for text in texts if len(text) <= LABEL), texts[-1])
