"""The explanation pane: what this stage does, and where the cell under the cursor comes from."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from engine.stages import Stage
from tui.cells import exact, written
from tui.explanations import indexed, share_of, total_of
from tui.glyphs import UNICODE, Glyphs, folded
from tui.plain import shown
from tui.widgets.lines import CURSOR, DIM, FOCUS, STRONG, Pane, line, wrapped

FOLD = 8  # terms that are shown of many, until they are unfolded


class ExplainPane(Pane):
    """Sentence, formula, and the terms of one cell with their numbers."""

    def __init__(self, glyphs: Glyphs = UNICODE, id: str | None = None):
        super().__init__(id=id)
        self.glyphs = glyphs
        self.stage: Stage | None = None
        self.found: dict[str, Any] | None = None
        self.training = True  # whether the parameters change from step to step
        self.first = 0  # the first line that is seen
        self.picked, self.factor = 0, 0  # the term that enter follows, and which of its factors
        self.unfolded = False
        self._all: list[Text] = []

    def explain(self, stage: Stage, found: dict[str, Any] | None) -> None:
        """Show another explanation, from its beginning."""
        if found is not self.found:
            self.first, self.picked, self.factor, self.unfolded = 0, 0, 0, False
        self.stage, self.found = stage, found
        self.draw()

    @property
    def terms(self) -> list[dict[str, Any]]:
        """The terms that are shown."""
        terms: list[dict[str, Any]] = self.found["terms"] if self.found else []
        return terms if self.unfolded or len(terms) <= FOLD + 1 else terms[:FOLD]

    @property
    def link(self) -> dict[str, Any] | None:
        """The cited cell that is picked: its `source`, `step` and `index`; None where none is."""
        if self.picked >= len(self.terms):
            return None
        term = self.terms[self.picked]
        cited: dict[str, Any] = [term, *term["times"]][min(self.factor, len(term["times"]))]
        return cited

    def turn(self, by: int) -> None:
        """Pick a term further down, or up; where there are none, scroll."""
        picks = len(self.terms) + (self.found is not None and self.more > 0)
        if picks:
            self.picked = max(0, min(self.picked + by, picks - 1))
            self.factor = 0
        else:
            self.first = max(0, min(self.first + by, len(self._all) - self.size.height))
        self.draw()

    def turn_factor(self, by: int) -> None:
        """Pick another factor of the term."""
        if self.picked < len(self.terms):
            factors = 1 + len(self.terms[self.picked]["times"])
            self.factor = max(0, min(self.factor + by, factors - 1))
            self.draw()

    def unfold(self) -> bool:
        """Show all terms, where it is that which is picked."""
        if self.found is None or self.picked < len(self.terms) or not self.folded:
            return False
        self.unfolded = True
        self.draw()
        return True

    @property
    def folded(self) -> int:
        """Terms that unfolding would show."""
        return len(self.found["terms"]) - len(self.terms) if self.found else 0

    @property
    def more(self) -> int:
        """Terms that are not shown."""
        return self.found["count"] - len(self.terms) if self.found else 0

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
        width, height = max(10, self.size.width - 1), self.size.height
        lines = [line(("EXPLANATION", FOCUS if self.active else STRONG))]
        lines += wrapped(self.ours(self.stage.sentence), width)
        here = range(0)
        if self.found is not None:
            lines += [line(), *self.cell_lines(self.found, width)]
            for k, term in enumerate(self.terms):
                made = self.term_lines(term, k, width)
                if k == self.picked:
                    here = range(len(lines), len(lines) + len(made))
                lines += made
            lines += self.end_lines(self.found)
            if self.picked >= len(self.terms):
                here = range(len(lines) - 1, len(lines))
        self._all = lines
        if self.active and here:  # keep what is picked in sight
            top = 0 if self.picked == 0 else here.start  # the first term with what stands above
            self.first = min(max(self.first, here.stop - height + 1), top)
        self.first = max(0, min(self.first, len(lines) - height))
        seen = lines[self.first : self.first + height]
        if self.first + height < len(lines) and seen:
            seen[-1] = line((f"{self.glyphs.dots} tab, then down: more", DIM))
        self.show(seen)

    def cell_lines(self, found: dict[str, Any], width: int) -> list[Text]:
        """The cell and its formula."""
        value = found["value"]
        text = self.theirs(value) if isinstance(value, str) else exact(value)
        lines = wrapped(
            f"{self.data(indexed(found['name'], found['cell']))} = {text}", width, STRONG
        )
        lines += wrapped(f"= {self.data(found['formula'])}", width, DIM)
        if found["note"] and found["note"] != found["formula"]:
            lines += wrapped(self.data(found["note"]), width)
        return lines

    def end_lines(self, found: dict[str, Any]) -> list[Text]:
        """The terms that are not shown, and the total."""
        lines = []
        total = total_of(found)
        if total is not None:
            number, rule = total.split("  ", 1)
            lines.append(line((number, STRONG), (f"  {rule}", DIM)))
        if self.more:
            picked = self.active and self.picked >= len(self.terms)
            how = ": enter shows them" if self.folded else ""
            style = CURSOR if picked else DIM
            lines.append(line((f"{self.glyphs.dots} and {self.more} smaller terms{how}", style)))
        return lines

    def term_lines(self, term: dict[str, Any], number: int, width: int) -> list[Text]:
        """`contribution  value · value  where from`, on as many lines as it takes; the place that
        enter would follow is marked."""
        picked = self.active and number == self.picked
        factors = [term, *term["times"]]
        names = [self.cited(each) for each in factors]
        values = f" {self.glyphs.times} ".join(self.number(each["value"]) for each in factors)
        note = f"  {self.data(term['note'])}" if term["note"] else ""
        rule = self.found is not None and self.found["combine"] == "rule"
        share = "" if rule else self.number(share_of(term)).rjust(9)
        first = f"{share}  {values}{note}" if share else f"  {values}{note}"
        if picked:
            first = self.glyphs.here + first[len(self.glyphs.here) :]
        styles = [CURSOR if picked and k == self.factor else DIM for k in range(len(names))]
        whole = sum(map(cell_len, names)) + 3 * (len(names) - 1)
        if cell_len(first) + whole + 3 <= width:
            return [line(first, "   ", *self.joined(names, styles))]
        if whole + 4 <= width:
            return [*wrapped(first, width), line("    ", *self.joined(names, styles))]
        below = [
            line("    ", each)
            for name, style in zip(names, styles, strict=True)
            for each in wrapped(name, width - 4, style)
        ]
        return [*wrapped(first, width), *below]

    def joined(self, names: list[str], styles: list[Style]) -> list[tuple[str, Style]]:
        parts = [(f" {self.glyphs.times} ", DIM)] * (2 * len(names) - 1)
        parts[::2] = list(zip(names, styles, strict=True))
        return parts

    def cited(self, cell: dict[str, Any]) -> str:
        """name[index], and the step where it is another than this."""
        name = self.data(cell["source"].removeprefix("parameters."))
        step = self.found["step"] if self.found else cell["step"]
        # generating changes no parameter, so that it does not matter after which token it is read
        stored = cell["source"].startswith("parameters.") and not self.training
        at = "" if cell["step"] == step or stored else f" @{cell['step']}"
        return f"{indexed(name, cell['index'])}{at}"

    def number(self, value: Any) -> str:
        return self.theirs(value) if isinstance(value, str) else written(value)
