"""The same text under several tokenizers, side by side: pieces, IDs, bytes, counts."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from tui.actions import COMPARE_ACTIONS, bindings
from tui.corpora import columns_of, heading_of, wrapped_text
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Typing
from tui.screens.reading import ReadingScreen
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, STRONG, line

TEXT_LINES = 3
MOST = 2000  # pieces asked for


class CompareScreen(ReadingScreen):
    """A text, or a story by its number, and what each tokenizer makes of it; without either the
    first story of the corpus."""

    ACTIONS = COMPARE_ACTIONS
    BINDINGS = [*bindings(COMPARE_ACTIONS)]

    def __init__(
        self,
        walker: Walker,
        glyphs: Glyphs,
        typing: Typing,
        text: str | None = None,
        story: int | None = None,
    ):
        super().__init__(walker, glyphs, typing)
        self.text = text  # or its beginning, where it is a story
        self.story = 0 if text is None else story
        self.found: list[dict[str, Any]] | None = None
        self.first = 0  # the first line of the body that is seen

    def fetch(self) -> None:
        self.said, self.found, self.first = ("", False), None, 0

        async def job() -> None:
            ask = self.walker.client.ask
            if self.text is None:
                self.text = (await ask("story", number=0))["text"]
            whole = self.text if self.story is None else self.story
            self.found = (await ask("tokenize", text=whole, most=MOST))["tokenizers"]

        self.later(job)
        self.draw()

    def action_other_text(self) -> None:
        self.ask_for("text", "what is to be cut into tokens", self.take)

    def take(self, text: str | None) -> None:
        if text is not None:
            self.text, self.story = text, None
            self.fetch()

    def action_scroll(self, by: int) -> None:
        lines = len(self.blocks(self.app.size.width))
        self.first = max(0, min(self.first + by, lines - 1))
        self.draw()

    # --- drawing ------------------------------------------------------------------------------

    def head(self, width: int) -> list[Text]:
        text = wrapped_text(self.text or "", width, TEXT_LINES, self.glyphs)
        title = line(("tokenizers", HERE), ("  the same text, side by side", DIM))
        return [title, line(), *(line((each, DIM)) for each in text), line()]

    def body(self, width: int, room: int) -> list[Text]:
        blocks = self.blocks(width)
        seen = blocks[self.first : self.first + room]
        if self.first + room < len(blocks) and seen:
            seen[-1] = line((f"{self.glyphs.dots} down: more", DIM))
        return seen

    def blocks(self, width: int) -> list[Text]:
        """For each tokenizer a heading, then pieces, IDs and bytes, one under the other."""
        if self.found is None:
            return [line(("cutting ...", DIM))]
        lines: list[Text] = []
        for row in self.found:
            lines.append(line((shown(heading_of(row), self.glyphs.ascii), STRONG)))
            for pieces, ids, raw in columns_of(row, width - 2, self.glyphs):
                lines += [line("  ", pieces), line("  ", (ids, DIM)), line("  ", (raw, DIM))]
            if row["count"] > len(row["ids"]):
                more = row["count"] - len(row["ids"])
                lines.append(line((f"  {self.glyphs.dots} and {more:,} more", DIM)))
            lines.append(line())
        return lines
