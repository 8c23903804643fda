"""Inside a decoder: what its stream says after each block (the logit lens), how long its rows are,
what each part puts into one logit, and what the cache saves."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from engine.errors import TensorstepError
from tui.actions import INSIDE_ACTIONS, bindings
from tui.cells import written
from tui.corpora import token
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Typing
from tui.screens.reading import ReadingScreen
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, STRONG, line

LENS, STREAM, PARTS, CACHE = PAGES = ("lens", "stream", "parts", "cache")
TITLES = {LENS: "logit lens", STREAM: "stream", PARTS: "contributions", CACHE: "cache"}
SENTENCES = {
    LENS: "the token that the model would find most probable, were each block its last",
    STREAM: "how long the row of the stream is at each position, after each block (its norm)",
    PARTS: "what each part puts into a logit; the final norm divides them all by one number",
    CACHE: "how often two numbers are multiplied in products of matrices, and what is kept",
}
HEAD = 4  # lines above the body
LABEL, WIDTH = 11, 11  # cells of what stands before a row, and of a column
NAME, NUMBER = 28, 10  # cells of a part's name, and of a number
FIGURE = 22  # of a number of multiplications


class InsideScreen(ReadingScreen):
    """Pages over the step that is shown, turned by tab.

    position  the one that is looked at; None until the worker has said which is the last
    first     the first position that is seen
    row       the first row, or part, that is seen
    token     whose logit is taken apart; None: the most probable
    answers   what the worker has told of this step, by what it was asked
    known     its last answer about positions
    """

    ACTIONS = INSIDE_ACTIONS
    BINDINGS = [*bindings(INSIDE_ACTIONS)]

    def __init__(self, walker: Walker, glyphs: Glyphs, typing: Typing):
        super().__init__(walker, glyphs, typing)
        self.step = (walker.state or walker.standing)["step"]
        self.page = LENS
        self.example = self.row = 0
        self.position: int | None = None
        self.first: int | None = None
        self.token: str | None = None
        self.answers: dict[str, dict[str, Any]] = {}
        self.known: dict[str, Any] = {}

    # --- the worker ---------------------------------------------------------------------------

    @property
    def question(self) -> dict[str, Any]:
        """What the worker is asked for what is seen now."""
        asked: dict[str, Any] = {"step": self.step, "page": self.page}
        if self.page == CACHE:
            return asked
        asked["example"] = self.example
        if self.page == PARTS:
            return asked | {"position": self.position, "token": self.token}
        rows = (self.row, self.row + self.seen)
        return asked | {"first": self.first, "columns": self.columns, "rows": rows}

    @property
    def found(self) -> dict[str, Any] | None:
        """What the worker has told of it."""
        return self.answers.get(str(self.question))

    def fetch(self) -> None:
        question = self.question
        if str(question) not in self.answers:
            self.later(lambda: self.ask(question))
        self.draw()

    async def ask(self, question: dict[str, Any]) -> None:
        if question != self.question or self.found is not None:
            return  # the cursor has moved on
        try:
            answer = await self.walker.ask("lens", **question)
        except TensorstepError:
            self.token = None
            raise
        if "positions" in answer:
            self.known = answer
            if self.position is None:
                self.position, self.first = answer["position"], answer["first"]
        self.answers[str(question)] = self.answers[str(self.question)] = answer

    def on_resize(self) -> None:
        self.look()

    # --- keys ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Show what is to be seen now: no row or column beyond the last."""
        self.said = ("", False)
        if self.position is not None and self.first is not None:
            first = min(max(self.first, self.position - self.columns + 1), self.position)
            self.first = max(0, min(first, self.known["positions"] - self.columns))
        self.row = max(0, min(self.row, self.length - self.seen))
        self.fetch()

    def action_page(self, by: int) -> None:
        self.page = PAGES[(PAGES.index(self.page) + by) % len(PAGES)]
        self.row = 0
        self.look()

    def action_position(self, by: int) -> None:
        if self.position is not None and self.page != CACHE:
            self.position = max(0, min(self.position + by, self.known["positions"] - 1))
            self.look()

    def action_end(self, by: int) -> None:
        self.action_position(by * self.known.get("positions", 0))

    def action_scroll(self, by: int) -> None:
        self.row += by
        self.look()

    def action_example(self, by: int) -> None:
        if self.known and self.page != CACHE:
            self.example = (self.example + by) % self.known["examples"]
            self.look()

    def action_token(self) -> None:
        hint = "a token of the vocabulary, or a piece of one"
        self.ask_for("the logit of", hint, self.take_token)

    def take_token(self, text: str | None) -> None:
        if text is not None:
            self.token, self.page, self.row = text, PARTS, 0
            self.look()

    # --- sizes --------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """How many positions are seen."""
        return max(1, (self.app.size.width - LABEL) // WIDTH)

    @property
    def seen(self) -> int:
        """How many rows, or parts, are seen."""
        room = self.app.size.height - HEAD - 1
        return max(1, {LENS: (room - 1) // 2, STREAM: room - 1}.get(self.page, room - 3))

    @property
    def length(self) -> int:
        """How many rows, or parts, there are."""
        if self.page == PARTS:
            return len(self.found["parts"]) if self.found else 0
        return int(self.known.get("blocks", 0)) + 1

    # --- drawing ------------------------------------------------------------------------------

    def head(self, width: int) -> list[Text]:
        titles: list[Any] = [("inside ", HERE)]
        for page in PAGES:
            here = page == self.page
            titles.append(
                (f"[{TITLES[page]}]" if here else f" {TITLES[page]} ", STRONG if here else DIM)
            )
        titles.append((f"   step {self.step}", DIM))
        sentence = line((SENTENCES[self.page], DIM))
        return [line(*titles), sentence, self.place(), line()]

    def place(self) -> Text:
        """Which example and position are looked at."""
        known = self.known
        if self.page == CACHE or not known or self.position is None:
            return line()
        parts: list[Any] = []
        if known["examples"] > 1:
            parts.append(f"example {self.example + 1} of {known['examples']}  ")
        before, count = known["before"], known["positions"]
        parts.append(f"position {before + self.position + 1} of {before + count}")
        if before:
            parts.append((f"  the {before} before {'is' if before == 1 else 'are'} kept", DIM))
        return line(*parts)

    def body(self, width: int, room: int) -> list[Text]:
        found = self.found
        if found is None:
            return [] if self.said[1] else [line(("reading ...", DIM))]
        if self.page == CACHE:
            return self.cache_lines(found)
        if self.page == PARTS:
            return self.part_lines(found, width)
        lines = [self.row_line("", [self.data(each) for each in found["columns"]], True)]
        for number, cells in enumerate(found["cells"], found["row"]):
            name = f"block {number - 1}" if number else "embedding"
            if self.page == STREAM:
                lines.append(self.row_line(name, [written(cell) for cell in cells]))
                continue
            lines.append(self.row_line(name, [self.data(cell["token"]) for cell in cells]))
            shares = [written(cell["probability"]) for cell in cells]
            lines.append(self.row_line("", shares, dim=True))
        return lines

    def row_line(self, name: str, cells: list[str], head: bool = False, dim: bool = False) -> Text:
        """A row of the table; the heading of the position that is looked at is marked."""
        parts: list[Any] = [(fitted(name, LABEL, self.glyphs), DIM)]
        at = (self.position or 0) - (self.first or 0)
        for k, cell in enumerate(cells):
            here = k == at
            mark = self.glyphs.here if here and head else " "
            style = HERE if here and not dim else STRONG if head else DIM if dim else ""
            parts.append((mark + fitted(cell, WIDTH - 1, self.glyphs), style))
        return line(*parts)

    def part_lines(self, found: dict[str, Any], width: int) -> list[Text]:
        """The parts of a logit with bars, thick where they are for the token, thin against it."""
        parts = found["parts"]
        top: list[Any] = ["the logit of ", (self.data(found["of"]), HERE)]
        top += [" after ", (self.data(found["token"]), STRONG), f": {written(found['logit'])}"]
        top.append((f"   probability {written(found['probability'])}", DIM))
        told = f"{written(found['sum'])} in {len(parts)} parts, the largest first"
        lines = [line(*top), line((f"added up: {told}", DIM)), line()]
        sizes = [abs(part["share"]) for part in parts if isinstance(part["share"], float)]
        largest = max(sizes, default=0.0)
        room = max(1, width - NAME - NUMBER - 4)
        for part in parts[self.row : self.row + self.seen]:
            share = part["share"]
            plain = isinstance(share, float) and largest > 0
            size = round(room * abs(share) / largest) if plain else 0
            bar = (self.glyphs.full if plain and share > 0 else self.glyphs.rest) * size
            name = fitted(shown(part["part"], self.glyphs.ascii), NAME, self.glyphs)
            lines.append(line(name, written(share).rjust(NUMBER), "  ", (bar, HERE)))
        return lines

    def cache_lines(self, found: dict[str, Any]) -> list[Text]:
        """Two ways to compute the same logits, and what each costs."""
        heading = "".join(each.rjust(FIGURE) for each in ("with a cache", "without"))
        lines = [line((" " * LABEL * 2 + heading, STRONG))]
        for name, key in (("this step", ""), ("all steps so far", "all_")):
            figures = (found[f"{key}with_cache"], found[f"{key}without_cache"])
            cells = "".join(f"{figure:,}".rjust(FIGURE) for figure in figures)
            lines.append(line((name.ljust(LABEL * 2), DIM), cells))
        kept = (f"{found['kept']:,} bytes", "0 bytes")
        cells = "".join(each.rjust(FIGURE) for each in kept)
        lines.append(line(("kept for the next".ljust(LABEL * 2), DIM), cells))
        new, seen = found["new"], found["seen"]
        reused = f"positions: {seen}, of which a cache reuses {seen - new}; new: {new}"
        if found["full"]:
            reused = f"the text is longer than the context of {seen}: a cache would be full"
        own = "this walk keeps them: blocks.N.attention.cache.k and .v"
        other = "this walk computes all positions anew: o opens it with a cache"
        return [*lines, line(), line(reused), line((own if found["used"] else other, DIM))]

    def data(self, text: str) -> str:
        return token(text, self.glyphs)


def fitted(text: str, size: int, glyphs: Glyphs) -> str:
    """A text in so many cells, one of them blank; dots where it is cut."""
    if cell_len(text) > size - 1:
        text = set_cell_size(text, size - 1 - len(glyphs.dots)) + glyphs.dots
    return set_cell_size(text, size)
