"""The lines above a table: which state it is, its axes, and the example that is seen."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from tui.cells import Slice, axes_of
from tui.corpora import last_tokens, token
from tui.glyphs import Glyphs, folded
from tui.plain import shown
from tui.widgets.lines import DIM, FOCUS, HERE, PLAIN, STRONG, line

ROLES = {
    "data": "data",
    "parameter": "stored parameter",
    "activation": "activation, temporary",
    "gradient": "gradient",
    "optimizer": "optimizer's update",
}


class Heading:
    """The heading of one state in a table of so many cells' width."""

    def __init__(
        self, state: dict[str, Any], width: int, glyphs: Glyphs, active: bool, shows: str = ""
    ):
        self.state, self.width, self.glyphs, self.active = state, width, glyphs, active
        self.name = shown(state["name"], glyphs.ascii) + shows
        # the role goes to the second line where a long name leaves it no room
        self.role = ROLES[state["role"]]
        self.role_below = cell_len(self.name) + len(self.role) + 2 > width

    def ours(self, text: str) -> str:
        """Our own words, in the terminal's alphabet."""
        return folded(text) if self.glyphs.ascii else text

    def title(self) -> Text:
        """Name, formula where there is room, role."""
        role = "" if self.role_below else self.role
        formula = shown(self.ours(self.state["formula"]), self.glyphs.ascii)
        room = self.width - cell_len(self.name) - len(role) - 4
        formula = formula if cell_len(formula) <= room else ""
        gap = max(1, self.width - cell_len(self.name) - cell_len(formula) - len(role) - 2)
        style = FOCUS if self.active else STRONG
        return line((self.name, style), "  ", (formula, DIM), " " * gap, (role, DIM))

    def shape(self, fixed: list[int], chosen: int) -> Text:
        """Axes and sizes, and where on the leading axes the table is."""
        state = self.state
        axes = self.ours(axes_of(state["axes"], state["shape"]))
        parts: list[tuple[str, Style] | str] = [("[", DIM), axes, ("]", DIM)]
        if not state["shape"]:
            parts = [("one text" if state["kind"] == "text" else "one number", DIM)]
        for k, index in enumerate(fixed):
            axis, size = self.ours(state["axes"][k]), state["shape"][k]
            style = HERE if k == chosen and len(fixed) > 1 else PLAIN
            parts += ["   ", (f"{axis} {index + 1} of {size}", style)]
        if fixed:
            parts.append(("  < >", DIM))
        if state["kind"] != "text" and state["dtype"] != "float32":
            parts.append((f"   {state['dtype']}", DIM))
        if self.role_below:
            parts.append((f"   {self.role}", DIM))
        return line(*parts)

    def caption(self, cells: Slice | None) -> Text:
        """The example: its context, as much of its end as there is room for, and its target."""
        if cells is None or not cells.caption:
            return line()
        target = ""
        if cells.target is not None:
            target = f" {self.glyphs.arrow} {token(cells.target, self.glyphs)}"
        tokens = [token(each, self.glyphs) for each in cells.caption]
        context = last_tokens(tokens, self.width - cell_len(target), self.glyphs)
        return line((context + target, DIM))
