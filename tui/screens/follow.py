"""One parameter over the steps, as curve and table; and the norms of all of them."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from tui.actions import FOLLOW_ACTIONS, bindings
from tui.cells import written
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Typing
from tui.screens.reading import ReadingScreen
from tui.walker import Walker
from tui.widgets.curve import plotted
from tui.widgets.lines import DIM, HERE, STRONG, line

CURVE = 7  # lines
WIDTH = 12  # cells of a column
COLUMNS = ("value", "gradient", "m", "v", "update", "loss")


class FollowScreen(ReadingScreen):
    """What one cell of a parameter did, a line a step, beside the loss."""

    ACTIONS = FOLLOW_ACTIONS
    BINDINGS = [*bindings(FOLLOW_ACTIONS)]

    def __init__(self, walker: Walker, glyphs: Glyphs, typing: Typing, name: str, cell: list[int]):
        super().__init__(walker, glyphs, typing)
        self.followed, self.cell = name, cell
        self.rows: list[dict[str, float]] | None = None
        self.last = 0  # how many of the newest rows are below what is seen

    def fetch(self) -> None:
        async def job() -> None:
            answer = await self.walker.ask("follow", name=self.followed, cell=self.cell)
            self.rows = answer["rows"]

        self.later(job)
        self.draw()

    def action_scroll(self, by: int) -> None:
        self.last = max(0, min(self.last - by, len(self.rows or ()) - 1))
        self.draw()

    def head(self, width: int) -> list[Text]:
        name = f"{self.followed}[{','.join(map(str, self.cell))}]"
        told = ("  step by step, before each update", DIM)
        return [line(("follow  ", HERE), (shown(name, self.glyphs.ascii), STRONG), told), line()]

    def body(self, width: int, room: int) -> list[Text]:
        if self.rows is None:
            return [] if self.said[1] else [line(("reading ...", DIM))]
        if not self.rows:
            return [line(("no step has ended yet: go on to step 1 first", DIM))]
        values = [row["value"] for row in self.rows]
        curve = plotted(values, width - 10, CURVE, len(values) - 1 - self.last, self.glyphs)
        columns = [name for name in COLUMNS if name in self.rows[0]]
        heading = "step".rjust(7) + "".join(name.rjust(WIDTH) for name in columns)
        seen = max(1, room - CURVE - 2)
        end = len(self.rows) - self.last
        rows = [
            line(
                (f"{row['step']:>7}", HERE if i == end - 1 else DIM),
                "".join(written(row[name]).rjust(WIDTH) for name in columns),
            )
            for i, row in enumerate(self.rows[:end])
        ]
        return [*curve, line(), line((heading, STRONG)), *rows[-seen:]]


class NormsScreen(ReadingScreen):
    """Every parameter at a glance: how large it is, its gradient, and how far it moved."""

    ACTIONS = FOLLOW_ACTIONS
    BINDINGS = [*bindings(FOLLOW_ACTIONS)]

    def __init__(self, walker: Walker, glyphs: Glyphs, typing: Typing):
        super().__init__(walker, glyphs, typing)
        self.found: dict[str, Any] | None = None
        self.first = 0

    def fetch(self) -> None:
        async def job() -> None:
            self.found = await self.walker.ask("norms", step=self.walker.standing["step"])

        self.later(job)
        self.draw()

    def action_scroll(self, by: int) -> None:
        self.first = max(0, self.first + by)
        self.draw()

    def head(self, width: int) -> list[Text]:
        step = self.found["step"] if self.found else self.walker.standing["step"]
        return [line(("norms  ", HERE), (f"of every parameter in step {step}", STRONG)), line()]

    def body(self, width: int, room: int) -> list[Text]:
        if self.found is None:
            return [] if self.said[1] else [line(("reading ...", DIM))]
        wide = max(20, width - 4 * WIDTH - 2)
        names = ("value", "gradient", "update", "ratio")
        lines = [line((" " * wide + "".join(name.rjust(WIDTH) for name in names), STRONG))]
        for row in self.found["rows"]:
            name = shown(row["name"], self.glyphs.ascii)[:wide].ljust(wide)
            lines.append(line(name + "".join(written(row[k]).rjust(WIDTH) for k in names)))
        lines.append(line())
        if self.found["dead"] is not None:
            dead = f"hidden units that are 0 for every example: {100 * self.found['dead']:.0f}%"
            lines.append(line((dead, DIM)))
        lines.append(line(("ratio: the update's norm over the value's; about 0.001 is usual", DIM)))
        return lines[self.first :]
