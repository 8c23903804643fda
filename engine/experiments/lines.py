"""Lines of plain text for a terminal or a report: aligned tables, and points in a frame.

What stands in them are tokens of some text, which is data: whatever is not plainly visible is
written as an escape.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

WIDTH = 100  # columns of a report
CELL = 28  # columns of one cell of a table, at the most
MARKS = ("Mn", "Me")  # they sit on the character before
# fillers, joining vowels, halves of a flag, skin tones, tone marks and killed vowels, hexagrams:
# terminals do not agree on their width
UNSURE = (
    *((0x1160, 0x11FF), (0xD7B0, 0xD7FF), (0x115F, 0x115F), (0x3164, 0x3164), (0xFFA0, 0xFFA0)),
    *((0x034F, 0x034F), (0x17B4, 0x17B5), (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)),
    *((0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF), (0x1B44, 0x1B44), (0x302E, 0x302F), (0xA9C0, 0xA9C0)),
    *((0x111C0, 0x111C0), (0x11235, 0x11235), (0x1134D, 0x1134D), (0x116B6, 0x116B6)),
    *((0x1171E, 0x1171E), (0x16FF0, 0x16FF1), (0x1D300, 0x1D376), (0x4DC0, 0x4DFF)),
    *((0x2630, 0x2637), (0x268A, 0x268F)),
)


def shown(text: str, ascii: bool = False) -> str:
    """The text with what could move, hide or restyle its surroundings written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    for character in text:
        code = ord(character)
        lone = unicodedata.category(character) in MARKS and not (parts and len(parts[-1]) == 1)
        unsure = any(first <= code <= last for first, last in UNSURE)
        plain = character.isprintable() and not lone and not unsure
        if plain and (code < 0x80 or not ascii):
            parts.append(character)
        else:
            parts.append(f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}")
    return "".join(parts)


def in_cells(text: str) -> list[str]:
    """A shown text by columns of a terminal: what each holds; the second of a wide character is
    empty, marks are with what they sit on."""
    cells: list[str] = []
    for character in text:
        if cells and unicodedata.category(character) in MARKS:
            at = -2 if len(cells) > 1 and not cells[-1] else -1
            cells[at] += character
        else:
            wide = unicodedata.east_asian_width(character) in "WF"
            cells += [character, ""] if wide else [character]
    return cells


def fitted(text: str, size: int) -> str:
    """A text in so many columns: filled up with spaces, or cut, which two dots say."""
    cells = in_cells(shown(text))
    if len(cells) > size:
        cells = cells[: size - 2]
        if cells and len(in_cells("".join(cells))) > len(cells):
            cells[-1] = " "  # half of a wide character
        cells += [".", "."]
    return "".join(cells) + " " * (size - len(cells))


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in lines of at most WIDTH columns. Columns that have no room go on below, beside the
    first column again."""
    table = [list(header), *map(list, rows)]
    sizes = [
        min(CELL, max(len(in_cells(shown(cell))) for cell in column))
        for column in zip(*table, strict=True)
    ]
    lines: list[str] = []
    at = 1
    while at < len(sizes) or not lines:
        end, used = at, sizes[0]
        while end < len(sizes) and used + 2 + sizes[end] <= WIDTH:
            used += 2 + sizes[end]
            end += 1
        picked = [0, *range(at, end)]
        lines += [""] if lines else []
        lines += ["  ".join(fitted(row[i], sizes[i]) for i in picked).rstrip() for row in table]
        at = end
    return lines


def placed(value: float, first: float, last: float, count: int) -> int:
    """Which of `count` places a value takes between the first and the last; in the middle where
    they are equal."""
    share = 0.5 if first == last else (value - first) / (last - first)
    return round(share * (count - 1))


class Grid:
    """Cells of characters, with points and labels beside them."""

    def __init__(self, width: int, height: int, mark: str):
        self.width, self.height, self.mark = width, height, mark
        self._cells = [[" "] * width for _ in range(height)]

    def fill(self, at: Sequence[tuple[int, int]], labels: Sequence[str]) -> int:
        """Points by (row, column), then their labels, to the right of the point or to the left;
        returns how many labels have no room."""
        for row, column in at:
            self._cells[row][column] = self.mark
        return sum(
            not any(
                self._put(row, first, cells) for first in (column + 1, column - len(cells)) if cells
            )
            for (row, column), cells in zip(at, map(in_cells, labels), strict=True)
        )

    def _put(self, row: int, first: int, label: list[str]) -> bool:
        """A label from a column on, where that is free and what stands before and after is too,
        but for the label's own point."""
        line, end = self._cells[row], first + len(label)
        if first < 0 or end > self.width or any(cell != " " for cell in line[first:end]):
            return False
        beside = [line[i] for i in (first - 1, end) if 0 <= i < self.width]
        if sum(cell != " " for cell in beside) > 1:
            return False
        line[first:end] = label
        return True

    def lines(self) -> list[str]:
        return ["".join(line) for line in self._cells]
