"""The corpus browser: a story, its tokens and IDs, and its windows, growing one pair at a time."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.text import Text

from tui.actions import CORPUS_ACTIONS, bindings
from tui.corpora import audit_lines, ending, token, wrapped_text
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.screens.reading import ReadingScreen
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, PLAIN, STRONG, line

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PART = 3  # lines of the text, of the tokens and of the lengths, at the least


class CorpusScreen(ReadingScreen):
    """Stories, one at a time, and the audit of them all.

    at       the token that the newest window predicts
    context  how many tokens it sees
    search   what is looked for, None where nothing is
    """

    ACTIONS = CORPUS_ACTIONS
    BINDINGS = [*bindings(CORPUS_ACTIONS)]

    def __init__(self, walker: Walker, glyphs: Glyphs, finding: bool = False):
        super().__init__(walker, glyphs)
        self.number, self.at = 0, 1
        self.context = walker.options.context
        self.story: dict[str, Any] | None = None
        self.audit: dict[str, Any] | None = None
        self.auditing = False
        self.reading = False  # whether the whole text is shown
        self.first = 0  # the first of its lines that is seen
        self.search: str | None = None
        if finding:
            self.action_find()

    # --- asking the worker --------------------------------------------------------------------

    def fetch(self) -> None:
        self.said = ("", False)

        async def job() -> None:
            self.take(await self.walker.client.ask("story", number=self.number, at=self.at))

        self.later(job)

    def take(self, story: dict[str, Any]) -> None:
        self.story, self.number, self.at = story, story["number"], story["at"]
        self.first = 0

    def go(self, number: int, at: int = 1) -> None:
        """To a story, where there is one, and a token of it."""
        last = self.story["stories"] - 1 if self.story else 0
        self.number, self.at = max(0, min(number, last)), at
        self.fetch()

    def look_for(self, text: str | None, back: bool = False) -> None:
        """To the next place of a text, or the one before."""
        if text is None:
            self.draw()
            return
        self.search = text

        async def job() -> None:
            where = {"number": self.number, "at": self.at}
            answer = await self.walker.client.ask("find", text=text, back=back, **where)
            if answer["found"] is None:
                self.said = (f"{text!r} is nowhere in this corpus", True)
                return
            self.take(await self.walker.client.ask("story", **answer["found"]))
            self.said = (f"n, N: next, previous {text!r}; escape: no more", False)

        self.later(job)

    # --- keys ---------------------------------------------------------------------------------

    def action_story(self, by: int) -> None:
        if self.search is not None:
            self.look_for(self.search, back=by < 0)
        elif by > 0 or self.number > 0:
            self.go(self.number + by)

    def action_match_back(self) -> None:
        if self.search is not None:
            self.look_for(self.search, back=True)

    def action_target(self, by: int) -> None:
        """Grow the list of windows by one pair, or take the last away; in the text, scroll."""
        if self.reading:
            self.first = max(0, self.first + by)
            self.draw()
        elif self.story is not None:
            at = max(1, min(self.at + by, self.story["count"] - 1))
            inside = at - self.story["first"] < len(self.story["ids"])
            self.at = at
            if inside and at >= self.story["first"] + min(self.context, self.story["first"]):
                self.draw()
            else:
                self.fetch()

    def action_target_end(self, by: int) -> None:
        if self.story is not None:
            self.action_target(by * self.story["count"])

    def action_context(self, by: int) -> None:
        """Other lengths of the context: powers of two, and the one that is walked."""
        lengths = sorted({*LENGTHS, self.walker.options.context})
        at = min(range(len(lengths)), key=lambda i: abs(lengths[i] - self.context))
        self.context = lengths[max(0, min(at + by, len(lengths) - 1))]
        self.draw()

    def action_find(self) -> None:
        self.auditing = False
        self.ask_for("find", "a token or a text; #12 is a story", self.look_for)

    def action_read(self) -> None:
        """The whole text, or the parts of the story again."""
        self.reading, self.auditing, self.first = not self.reading, False, 0
        self.draw()

    def action_audit(self) -> None:
        self.auditing, self.reading = not self.auditing, False

        async def job() -> None:
            self.audit = await self.walker.client.ask("audit")

        if self.auditing and self.audit is None:
            self.later(job)
        self.draw()

    def action_tokenizers(self) -> None:
        from tui.screens.compare import CompareScreen

        if self.story is not None:
            self.app.push_screen(CompareScreen(self.walker, self.glyphs, self.story["text"]))

    def action_close(self) -> None:
        if self.reading:
            self.action_read()
        elif self.search is not None:
            self.search, self.said = None, ("", False)
            self.draw()
        else:
            super().action_close()

    # --- drawing ------------------------------------------------------------------------------

    def head(self, width: int) -> list[Text]:
        return [self.heading(width), line()]

    def body(self, width: int, room: int) -> list[Text]:
        if self.auditing:
            told = audit_lines(self.audit) if self.audit else ["counting ..."]
            return [line(shown(each, self.glyphs.ascii)) for each in told]
        if self.story is None:
            return [line(("loading ...", DIM))]
        if self.reading:
            return self.whole_text(self.story, width, room)
        return self.story_lines(self.story, width, room)

    def whole_text(self, story: dict[str, Any], width: int, room: int) -> list[Text]:
        """The text, as much of it as was told, from the line to which it was scrolled."""
        lines = [line(each) for each in wrapped_text(story["text"], width, None, self.glyphs)]
        if story["cut"]:
            lines.append(line((f"{self.glyphs.dots} and more, which is not shown", DIM)))
        self.first = max(0, min(self.first, len(lines) - room))
        return lines[self.first :]

    def heading(self, width: int) -> Text:
        name = shown(self.walker.corpus, self.glyphs.ascii)
        where = ""
        if self.auditing:
            where = "audit"
        elif self.story is not None:
            number, stories = self.story["number"], self.story["stories"]
            where = f"story {number:,}, of 0 to {stories - 1:,}: {self.story['side']}"
        gap = max(1, width - cell_len(name) - cell_len(where) - len("corpus  "))
        return line(("corpus  ", HERE), (name, STRONG), " " * gap, (where, DIM))

    def story_lines(self, story: dict[str, Any], width: int, room: int) -> list[Text]:
        """The text, the flow of tokens, the windows so far, and the same target under several
        context lengths, in about equal parts."""
        part = max(PART, (room - 7) // 4)
        flow = self.flow_lines(story, width, part)
        lengths = self.length_lines(story, width, part)
        left = room - len(flow) - len(lengths) - 6  # for the text and the windows
        wanted = min(self.at, part + 1)
        lines = wrapped_text(story["text"], width, max(PART, left - wanted), self.glyphs)
        text = [line(each) for each in lines]
        windows = left - len(text)
        count = story["count"] - 1
        return [
            *text,
            line(),
            line(("TOKENS", STRONG), (f"  {story['count']:,}, each with its ID", DIM)),
            *flow,
            line(),
            line(
                ("WINDOWS", STRONG),
                (f"  {self.at:,} of {count:,}, context {self.context}, then the target", DIM),
            ),
            *self.window_lines(story, width, max(1, windows)),
            line(),
            line(("THE SAME TARGET", STRONG), ("  under several context lengths", DIM)),
            *lengths,
        ]

    def piece(self, story: dict[str, Any], at: int) -> str:
        """One token of the story, as data."""
        return token(story["pieces"][at - story["first"]], self.glyphs)

    def flow_lines(self, story: dict[str, Any], width: int, most: int) -> list[Text]:
        """Tokens with their IDs, line after line, so that the one that is predicted is seen: what
        the window sees is plain, the target has the accent, the rest is dim."""
        lines: list[tuple[int, list[Any]]] = []
        room = 0
        for i, number in enumerate(story["ids"]):
            at = story["first"] + i
            name = self.piece(story, at)
            unknown = "?" if number == story["unknown"] else ""
            size = cell_len(name) + len(f" {number}{unknown}") + 2
            if not lines or size > room:
                lines.append((at, []))
                room = width - len(self.glyphs.dots)
            seen = self.at - self.context <= at < self.at
            style = HERE if at == self.at else PLAIN if seen else DIM
            lines[-1][1].extend([(name, style), (f" {number}{unknown}  ", DIM)])
            room -= size
        here = max(k for k, (at, _) in enumerate(lines) if at <= self.at)
        first = max(0, min(here - most // 2, len(lines) - most))
        seen = [line(*parts) for _, parts in lines[first : first + most]]
        if first + most < len(lines):
            seen[-1].append(self.glyphs.dots, DIM)
        return seen

    def window_lines(self, story: dict[str, Any], width: int, most: int) -> list[Text]:
        """The last windows up to the newest, one pair of context and target a line."""
        first = max(1, self.at - most + 1)
        return [
            self.pair(story, at, self.context, f"{at:>6}", width)
            for at in range(first, self.at + 1)
            if at - self.context >= story["first"] or story["first"] == 0
        ]

    def length_lines(self, story: dict[str, Any], width: int, most: int) -> list[Text]:
        lengths = sorted({*LENGTHS, self.context})
        first = max(0, lengths.index(self.context) + 1 - most)  # the one that is walked is there
        return [
            self.pair(story, self.at, length, f"{length:>6}", width)
            for length in lengths[first : first + most]
        ]

    def pair(self, story: dict[str, Any], at: int, context: int, label: str, width: int) -> Text:
        """A context and its target."""
        begin = max(story["first"], at - context)
        slots = [story["pad"]] * max(0, context - at) + [
            self.piece(story, i) for i in range(begin, at)
        ]
        target = f" {self.glyphs.arrow} {self.piece(story, at)}"
        seen = ending(" ".join(slots), width - cell_len(label + target) - 2, self.glyphs)
        style = HERE if at == self.at else PLAIN
        return line((label, DIM), "  ", (seen, PLAIN if at == self.at else DIM), (target, style))
