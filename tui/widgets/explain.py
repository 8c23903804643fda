"""The explanation pane: what this stage does, and where the cell under the cursor comes from."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.text import Text

from engine.maps import Stage
from tui.cells import exact, written
from tui.glyphs import UNICODE, Glyphs, folded
from tui.plain import shown
from tui.widgets.lines import DIM, FOCUS, STRONG, Pane, line, wrapped

RULES = {
    "softmax": "its own share of the sum",
    "cross-entropy": "ln of the sum, plus the constant",
    "root": "square root of the sum",
}


class ExplainPane(Pane):
    """Sentence, formula, and the terms of one cell with their numbers."""

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.stage: Stage | None = None
        self.found: dict[str, Any] | None = None
        self.training = True  # whether the parameters change from step to step
        self.first = 0  # the first line that is seen
        self._all: list[Text] = []

    def explain(self, stage: Stage, found: dict[str, Any] | None) -> None:
        """Show another explanation, from its beginning."""
        if found is not self.found:
            self.first = 0
        self.stage, self.found = stage, found
        self.draw()

    def turn(self, by: int) -> None:
        """Show lines further down, or up."""
        self.first = max(0, min(self.first + by, len(self._all) - self.size.height))
        self.draw()

    def ours(self, text: str) -> str:
        return folded(text) if self.glyphs.ascii else text

    def data(self, text: str) -> str:
        return shown(self.ours(text), self.glyphs.ascii)

    def theirs(self, text: str) -> str:
        """A text from outside: none of our spellings in place of its characters."""
        return shown(text, self.glyphs.ascii)

    def draw(self) -> None:
        if self.stage is None:
            return
        width = max(10, self.size.width - 1)
        lines = [line(("EXPLANATION", FOCUS if self.active else STRONG))]
        lines += wrapped(self.ours(self.stage.sentence), width)
        if self.found is not None:
            lines += [line(), *self.cell_lines(self.found, width)]
        self._all = lines
        seen = lines[self.first : self.first + self.size.height]
        if self.first + self.size.height < len(lines) and seen:
            seen[-1] = line((f"{self.glyphs.dots} tab, then down: more", DIM))
        self.show(seen)

    def cell_lines(self, found: dict[str, Any], width: int) -> list[Text]:
        value = found["value"]
        text = self.theirs(value) if isinstance(value, str) else exact(value)
        name = self.data(found["name"]) + self.index(found["cell"])
        lines = wrapped(f"{name} = {text}", width, STRONG)
        lines += wrapped(f"= {self.data(found['formula'])}", width, DIM)
        if found["note"] and found["note"] != found["formula"]:
            lines += wrapped(self.data(found["note"]), width)
        for term in found["terms"]:
            lines += self.term_lines(term, found["combine"], width)
        if found["count"] > len(found["terms"]):
            more = found["count"] - len(found["terms"])
            lines.append(line((f"{self.glyphs.dots} and {more} smaller terms", DIM)))
        if found["total"] is not None and found["terms"]:
            rule = RULES.get(found["combine"], "sum")
            total = found["total"]
            number = total if isinstance(total, str) else exact(float(total))
            lines.append(line((f"{number}", STRONG), (f"  {rule}", DIM)))
        return lines

    def term_lines(self, term: dict[str, Any], combine: str, width: int) -> list[Text]:
        """`contribution  value · value  where from`, on as many lines as it takes."""
        factors = [term, *term["times"]]
        names = f" {self.glyphs.times} ".join(self.cited(each) for each in factors)
        value = f" {self.glyphs.times} ".join(self.number(each["value"]) for each in factors)
        note = self.data(term["note"])
        if combine == "rule":
            return wrapped(f"  {names} = {value}" + (f"  {note}" if note else ""), width, DIM)
        whole = isinstance(term["value"], int) and term["contribution"] in (0, term["value"])
        share = int(term["contribution"]) if whole else term["contribution"]  # an ID stays one
        contribution = self.number(share).rjust(9)
        first = f"{contribution}  {value}" + (f"  {note}" if note else "")
        if cell_len(first) + cell_len(names) + 3 <= width:
            return [line(first, "   ", (names, DIM))]
        below = wrapped(names, width - 4, DIM)
        return [*wrapped(first, width), *[line("    ", each) for each in below]]

    def cited(self, cell: dict[str, Any]) -> str:
        """name[index], and the step where it is another than this."""
        name = self.data(cell["source"].removeprefix("parameters."))
        step = self.found["step"] if self.found else cell["step"]
        # generating changes no parameter, so that it does not matter after which token it is read
        stored = cell["source"].startswith("parameters.") and not self.training
        at = "" if cell["step"] == step or stored else f" @{cell['step']}"
        return f"{name}{self.index(cell['index'])}{at}"

    def number(self, value: Any) -> str:
        return self.theirs(value) if isinstance(value, str) else written(value)

    @staticmethod
    def index(cell: list[int]) -> str:
        return f"[{','.join(map(str, cell))}]" if cell else ""
