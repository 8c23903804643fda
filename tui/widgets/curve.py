"""The loss so far, drawn as a curve of characters."""

from __future__ import annotations

import math
from itertools import pairwise

from rich.text import Text

from tui.glyphs import UNICODE, Glyphs
from tui.widgets.lines import DIM, HERE, PLAIN, STRONG, Lines, line

AXIS = 9  # cells for the numbers at the left


class LossCurve(Lines):
    """One column a step (or several steps a column), the step under the cursor marked."""

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.losses: list[float] = []
        self.first = 1
        self.step = 0
        self.own = False

    def show_losses(self, losses: list[float], first: int, step: int, own: bool = False) -> None:
        """Losses of the steps from `first` on, the cursor at `step`; `own`: as code of the user's
        gives them."""
        self.losses, self.first, self.step, self.own = losses, first, step, own
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        width, height = self.size.width, self.size.height
        if width < AXIS + 4 or height < 3:
            return
        unit = "as your code gives it" if self.own else "mean over the batch, in nats"
        title = line(("LOSS", STRONG), (f"  {unit}", DIM))
        if not self.losses:
            self.show([title, line(("  none yet: the first comes with step 1", DIM))])
            return
        self.show(
            [title, *self.plot(width - AXIS - 1, height - 2), self.steps_line(width - AXIS - 1)]
        )

    def plot(self, columns: int, rows: int) -> list[Text]:
        """The curve in `rows` lines."""
        return plotted(self.losses, columns, rows, self.step - self.first, self.glyphs)

    def steps_line(self, columns: int) -> Text:
        """Which steps are drawn, and the loss of the one under the cursor."""
        last = self.first + len(self.losses) - 1
        text = f"step {self.first}" if last == self.first else f"steps {self.first} to {last}"
        each = -(-len(self.losses) // max(1, columns))
        if each > 1:
            text += f", a point the mean of about {each}"
        if self.first <= self.step <= last:
            text += f"   at {self.step}: {self.losses[self.step - self.first]:.6f}"
        return line((" " * AXIS + text, DIM))


def plotted(values: list[float], columns: int, rows: int, at: int, glyphs: Glyphs) -> list[Text]:
    """A curve of values in `rows` lines and at most `columns` points, one of them marked."""
    points = averaged(values, columns)
    finite = [point for point in points if math.isfinite(point)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    here = at * len(points) // max(1, len(values))
    lines = []
    for y in range(rows):
        parts = []
        for x, point in enumerate(points):
            drawn = row_of(point, low, high, rows) == y
            parts.append((glyphs.point if drawn else " ", HERE if x == here else PLAIN))
        label = f"{high:.4f}" if y == 0 else f"{low:.4f}" if y == rows - 1 else ""
        if rows == 1 or low == high:
            label = f"{high:.4f}" if y == rows // 2 else ""
        label = label if finite else ""  # what is not finite has no place on an axis
        lines.append(line((label.rjust(AXIS - 1), DIM), (glyphs.bar, DIM), *parts))
    return lines


def averaged(values: list[float], columns: int) -> list[float]:
    """At most `columns` values: each the mean of its share of the steps."""
    if len(values) <= columns:
        return values
    bounds = [round(i * len(values) / columns) for i in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]


def row_of(point: float, low: float, high: float, rows: int) -> int:
    """Which line, from the top, a point is drawn on; a non-finite one at the top."""
    if not math.isfinite(point):
        return 0
    if high == low:
        return rows // 2
    return round((high - point) / (high - low) * (rows - 1))
