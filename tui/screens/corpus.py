"""The corpus browser: a story, its tokens and IDs, and its windows, growing one pair at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from tui.actions import CORPUS_ACTIONS, bindings
from tui.corpora import audit_lines, ending, wrapped_text
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Typing
from tui.screens.reading import ReadingScreen
from tui.story import LENGTHS, StoryLines
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, STRONG, line, wrapped

FAR = 10**12  # beyond the last token of any story
BRIEF = 30  # characters of what is looked for that are told
PART = 3  # lines of the text, of the tokens and of the lengths, at the least


class CorpusScreen(ReadingScreen):
    """Stories, one at a time, and the audit of them all.

    at       the token that the newest window predicts
    context  how many tokens it sees
    search   what is looked for, None where nothing is
    """

    ACTIONS = CORPUS_ACTIONS
    BINDINGS = [*bindings(CORPUS_ACTIONS)]

    def __init__(self, walker: Walker, glyphs: Glyphs, typing: Typing):
        super().__init__(walker, glyphs, typing)
        self.number, self.at = 0, 1
        self.context = walker.options.context
        self.story: dict[str, Any] | None = None
        self.audit: dict[str, Any] | None = None
        self.auditing = False
        self.reading = False  # whether the whole text is shown
        self.first = 0  # the first of its lines that is seen
        self.search: str | None = None
        self.fetching = 0  # stories that were asked for and are not there yet

    # --- asking the worker --------------------------------------------------------------------

    @property
    def before(self) -> int:
        """Tokens before the newest target that may have to be drawn."""
        return max(self.context, LENGTHS[-1]) + self.app.size.height

    def fetch(self) -> None:
        """The story and token that are wanted when the worker comes to it."""
        self.said = ("", False)
        self.fetching += 1

        async def job() -> None:
            self.fetching -= 1
            where = {"number": self.number, "at": self.at, "before": self.before}
            self.take(await self.walker.client.ask("story", **where))

        self.later(job)

    def take(self, story: dict[str, Any]) -> None:
        if self.story is None or self.story["number"] != story["number"]:
            self.first = 0
        self.story, self.number, self.at = story, story["number"], story["at"]

    def look_for(self, text: str | None, back: bool = False) -> None:
        """To the next place of a text, or the one before."""
        if text is None:
            self.draw()
            return
        named = text.strip().startswith("#") and text.strip()[1:].isdigit()
        self.search = None if named else text
        self.fetching += 1

        async def job() -> None:
            self.fetching -= 1
            where = {"number": self.number, "at": self.at}
            answer = await self.walker.client.ask("find", text=text, back=back, **where)
            brief = repr(text if len(text) <= BRIEF else f"{text[:BRIEF]}...")
            if answer["found"] is None:
                self.said = (f"{brief} is nowhere in this corpus", True)
                return
            found = await self.walker.client.ask("story", **answer["found"], before=self.before)
            self.take(found)
            self.said = ("", False)
            if not named:
                self.said = (f"n, N: next, previous {brief}; escape: no more", False)

        self.later(job)

    # --- keys ---------------------------------------------------------------------------------

    def in_order(self, act: Callable[[], None]) -> None:
        """Do what a key asks for when what earlier keys fetch is there."""
        if not self.fetching:
            act()
            return

        async def job() -> None:
            self.in_order(act)

        self.later(job)

    def action_story(self, by: int) -> None:
        self.in_order(lambda: self.to_story(by))

    def to_story(self, by: int) -> None:
        """To another story or, while something is looked for, to its next place."""
        if self.search is not None:
            self.look_for(self.search, back=by < 0)
            return
        last = self.story["stories"] - 1 if self.story else 0
        if 0 <= self.number + by <= last:
            self.number, self.at = self.number + by, 1
            self.fetch()

    def action_match_back(self) -> None:
        if self.search is not None:
            self.look_for(self.search, back=True)

    def action_target(self, by: int) -> None:
        self.in_order(lambda: self.grow(by))

    def grow(self, by: int) -> None:
        """Grow the list of windows by pairs, or take the last away; in the text, scroll."""
        if self.reading:
            self.first = max(0, self.first + by)
            self.draw()
        elif self.story is not None and not self.auditing:
            self.at = max(1, min(self.at + by, self.story["count"] - 1))
            inside = self.at <= self.last_told(self.story)
            needs = max(0, self.at - self.before)
            if inside and self.story["first"] <= needs:
                self.draw()
            else:
                self.fetch()

    def last_told(self, story: dict[str, Any]) -> int:
        """The last token that the worker told of."""
        last: int = story["first"] + len(story["ids"]) - 1
        return last

    def action_target_end(self, by: int) -> None:
        """To the first pair, or to all of them."""
        if self.reading:
            self.action_target(by * FAR)
        else:
            self.in_order(lambda: self.grow(by * FAR))

    def action_context(self, by: int) -> None:
        """Other lengths of the context: powers of two, and the one that is walked."""
        lengths = sorted({*LENGTHS, self.walker.options.context})
        at = min(range(len(lengths)), key=lambda i: abs(lengths[i] - self.context))
        self.context = lengths[max(0, min(at + by, len(lengths) - 1))]
        self.action_target(0)

    def action_find(self) -> None:
        self.auditing = self.reading = False
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
            screen = CompareScreen(
                self.walker, self.glyphs, self.typing, self.story["text"], self.story["number"]
            )
            self.app.push_screen(screen)

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
            plain = [shown(each, self.glyphs.ascii) for each in told]
            fits = [cell_len(each) <= width for each in plain]  # wrapped, blanks at the left go
            return [
                part
                for each, whole in zip(plain, fits, strict=True)
                for part in ([line(each)] if whole else wrapped(each, width))
            ]
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
        where = ""
        if self.auditing:
            where = "audit"
        elif self.story is not None:
            number, stories = self.story["number"], self.story["stories"]
            where = f"story {number:,}, of 0 to {stories - 1:,}: {self.story['side']}"
        room = width - cell_len(where) - len("corpus  ") - 1
        name = ending(shown(self.walker.corpus, self.glyphs.ascii), room, self.glyphs)
        gap = room - cell_len(name) + 1
        return line(("corpus  ", HERE), (name, STRONG), " " * gap, (where, DIM))

    def story_lines(self, story: dict[str, Any], width: int, room: int) -> list[Text]:
        """The text, the flow of tokens, the windows so far, and the same target under several
        context lengths; each keeps its place while the windows grow."""
        part = max(PART, (room - 7) // 4)
        view = StoryLines(story, self.at, self.context, width, self.glyphs)
        flow = view.flow(part)
        count = story["count"] - 1
        tokens = line(("TOKENS", STRONG), (f"  {story['count']:,}, each with its ID", DIM))
        if count < 1:
            text = self.text_lines(story, width, room - len(flow) - 5)
            none = line(("no window: a single token has none before it", DIM))
            return [*text, line(), tokens, *flow, line(), none]
        lengths = view.lengths(part)
        left = room - len(flow) - len(lengths) - 6  # for the text and the windows
        text = self.text_lines(story, width, max(PART, left - max(part, 5) - 1))
        rows = max(1, left - len(text))
        windows = view.windows(rows)
        told = f"  {self.at:,} of {count:,}, context {self.context}, then the target"
        return [
            *text,
            line(),
            tokens,
            *flow,
            line(),
            line(("WINDOWS", STRONG), (told, DIM)),
            *windows,
            *[line()] * (rows - len(windows)),
            line(),
            line(("THE SAME TARGET", STRONG), ("  under several context lengths", DIM)),
            *lengths,
        ]

    def text_lines(self, story: dict[str, Any], width: int, most: int) -> list[Text]:
        return [line(each) for each in wrapped_text(story["text"], width, most, self.glyphs)]
