"""A story in the corpus browser: its tokens with their IDs, its windows, and one target under
several context lengths, as lines."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.text import Text

from tui.corpora import beginning, last_tokens, token
from tui.glyphs import Glyphs
from tui.widgets.lines import DIM, HERE, PLAIN, line

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class StoryLines:
    """What a worker told of a story, seen from the token that the newest window predicts.

    at       that token
    context  how many tokens the window sees
    """

    def __init__(self, story: dict[str, Any], at: int, context: int, width: int, glyphs: Glyphs):
        self.story, self.at, self.context = story, at, context
        self.width, self.glyphs = width, glyphs

    def piece(self, at: int) -> str:
        """One token of the story, as data."""
        return token(self.story["pieces"][at - self.story["first"]], self.glyphs)

    def flow(self, most: int) -> list[Text]:
        """Tokens with their IDs, line after line, so that the one that is predicted is seen: what
        the window sees is plain, the target has the accent, the rest is dim."""
        lines: list[tuple[int, list[Any]]] = []
        room = 0
        for i, number in enumerate(self.story["ids"]):
            at = self.story["first"] + i
            name = beginning(self.piece(at), self.width - 14, self.glyphs)
            unknown = "?" if number == self.story["unknown"] else ""
            size = cell_len(name) + len(f" {number}{unknown}") + 2
            if not lines or size > room:
                lines.append((at, []))
                room = self.width - len(self.glyphs.dots)
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

    def windows(self, most: int) -> list[Text]:
        """The last windows up to the newest, one pair of context and target a line."""
        first = max(1, self.at - most + 1)
        return [self.pair(at, self.context, f"{at:>6}") for at in range(first, self.at + 1)]

    def lengths(self, most: int) -> list[Text]:
        lengths = sorted({*LENGTHS, self.context})
        first = max(0, lengths.index(self.context) + 1 - most)  # the one that is walked is there
        return [
            self.pair(self.at, length, f"{length:>6}") for length in lengths[first : first + most]
        ]

    def pair(self, at: int, context: int, label: str) -> Text:
        """A context and its target."""
        slots = [self.story["pad"]] * max(0, context - at)
        slots += [self.piece(i) for i in range(max(0, at - context), at)]
        target = f" {self.glyphs.arrow} {self.piece(at)}"
        target = beginning(target, self.width - len(label) - 6, self.glyphs)
        seen = last_tokens(slots, self.width - cell_len(label + target) - 2, self.glyphs)
        newest = at == self.at
        return line(
            (label, DIM),
            "  ",
            (seen, PLAIN if newest else DIM),
            (target, HERE if newest else PLAIN),
        )
