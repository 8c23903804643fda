"""The map pane: the stages in order, where you are, what is done in this step, what is to come."""

from __future__ import annotations

from typing import Any

from rich.style import Style
from rich.text import Text
from textual.message import Message

from engine.maps import Map
from tui.glyphs import UNICODE, Glyphs, folded
from tui.widgets.lines import DIM, FOCUS, HERE, PLAIN, STRONG, Pane, line, wrapped

TITLE = 17


class MapPane(Pane):
    """A list of stages with lanes for what skips or loops; on a narrow screen one line of it."""

    class Chosen(Message):
        """A stage was opened with enter."""

        def __init__(self, stage: str):
            super().__init__()
            self.stage = stage

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.map: Map | None = None
        self.stage = ""
        self.seen: list[str] = []
        self.cursor = 0
        self.narrow = False

    def show_map(self, map: Map, stage: str, standing: dict[str, Any]) -> None:
        """Another place on a map."""
        self.map, self.stage, self.seen = map, stage, standing["stages"]
        if not self.active:
            self.cursor = self.index
        self.draw()

    @property
    def index(self) -> int:
        """Which stage is the current one."""
        keys = [stage.key for stage in self.map.stages] if self.map else []
        return keys.index(self.stage) if self.stage in keys else 0

    def activate(self, active: bool) -> None:
        self.cursor = self.index
        super().activate(active)

    def move(self, by: int) -> None:
        if self.map is not None:
            self.cursor = min(max(self.cursor + by, 0), len(self.map.stages) - 1)
            self.draw()

    def choose(self) -> None:
        if self.map is not None:
            self.post_message(self.Chosen(self.map.stages[self.cursor].key))

    def draw(self) -> None:
        if self.map is None:
            return
        self.show([self.one_line()] if self.narrow else self.all_lines())

    def all_lines(self) -> list[Text]:
        if self.map is None:
            return []
        title = f"{self.map.kind} map".upper()
        lines = [line((title, FOCUS if self.active else STRONG))]
        lanes = lanes_of(self.map, self.glyphs)
        rows = [self.stage_line(i, lanes[i]) for i in range(len(self.map.stages))]
        room = self.size.height - 1
        first = max(0, min(self.cursor - room // 2, len(rows) - room))
        lines += rows[first : first + room]
        legend = [line()]
        for edge in self.map.edges:
            a, b = (self.title_of(key) for key in (edge.source, edge.target))
            legend += wrapped(f"{edge.what}: {a} {self.glyphs.arrow} {b}", self.size.width, DIM)
        return lines + legend if len(lines) + len(legend) <= self.size.height else lines

    def title_of(self, key: str) -> str:
        if self.map is None:
            return key
        title = next(stage.title for stage in self.map.stages if stage.key == key)
        return folded(title) if self.glyphs.ascii else title

    def stage_line(self, i: int, lanes: str) -> Text:
        if self.map is None:
            return line()
        stage = self.map.stages[i]
        here = stage.key == self.stage
        picked = self.active and i == self.cursor
        mark = self.glyphs.here if here else " "
        title = self.title_of(stage.key).ljust(TITLE)
        style = HERE if here else PLAIN if stage.key in self.seen else DIM
        if picked:
            style = style + Style(reverse=True)
        return line((f"{mark} ", HERE), (title, style), " ", (lanes, DIM))

    def one_line(self) -> Text:
        """The current stage between its neighbours."""
        if self.map is None:
            return line()
        at = self.cursor if self.active else self.index
        stages = self.map.stages
        parts: list[tuple[str, Style] | str] = []
        arrow = f" {self.glyphs.here} "
        around = range(max(0, at - 2), min(len(stages), at + 3))
        if around.start > 0:
            parts += [(self.glyphs.dots, DIM), (arrow, DIM)]
        for i in around:
            title = self.title_of(stages[i].key)
            style = HERE if i == at else PLAIN if stages[i].key in self.seen else DIM
            if self.active and i == at:
                style = style + Style(reverse=True)
            parts.append((title.upper() if i == at else title, style))
            if i < len(stages) - 1:
                parts.append((arrow, DIM))
        if around.stop < len(stages):
            parts.append((self.glyphs.dots, DIM))
        return line(*parts)


def lanes_of(map: Map, glyphs: Glyphs) -> list[str]:
    """For each stage the characters at its right that draw the edges, one lane an edge."""
    keys = [stage.key for stage in map.stages]
    rows = [""] * len(keys)
    for edge in map.edges:
        source, target = keys.index(edge.source), keys.index(edge.target)
        for i in range(len(keys)):
            if i == source:
                rows[i] += glyphs.down_source if source < target else glyphs.up_source
            elif i == target:
                rows[i] += glyphs.target
            elif min(source, target) < i < max(source, target):
                rows[i] += glyphs.bar
            else:
                rows[i] += " "
    return rows
