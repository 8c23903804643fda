"""What is told of a corpus and of tokenizers, as lines of text: for the screen and without it."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size

from tui.glyphs import Glyphs
from tui.plain import escaped, shown

SIDES = ("train", "validation", "test")
GAP = 2  # cells between two pieces


def token(text: str, glyphs: Glyphs) -> str:
    """A token as data, its spaces made visible."""
    plain = "".join(escaped(c) if c != " " and c.isspace() else c for c in text)
    return shown(plain, glyphs.ascii).replace(" ", glyphs.space)


def last_tokens(tokens: list[str], width: int, glyphs: Glyphs) -> str:
    """Tokens, as they are shown, with spaces between: as many of the last ones as there is room
    for, after dots where there are more."""
    kept: list[str] = []
    room = width
    for at in range(len(tokens) - 1, -1, -1):
        dots = len(glyphs.dots) + 1 if at else 0
        size = cell_len(tokens[at]) + (1 if kept else 0)
        if size + dots > room:
            kept.append(glyphs.dots if kept else ending(tokens[at], room, glyphs))
            break
        kept.append(tokens[at])
        room -= size
    return " ".join(reversed(kept))


def heading_of(row: dict[str, Any]) -> str:
    """A tokenizer and how many tokens it makes."""
    count = row["count"]
    unknown = f", {row['unknown']:,} unknown (?)" if row["unknown"] else ""
    return f"{row['tokenizer']}  {count:,} token{'' if count == 1 else 's'}{unknown}"


def columns_of(row: dict[str, Any], width: int, glyphs: Glyphs) -> list[list[str]]:
    """The pieces of a comparison in blocks of three lines no wider than `width`: pieces, IDs and
    bytes, one under the other."""
    blocks: list[list[str]] = []
    room = 0
    for piece, number, raw in zip(row["pieces"], row["ids"], row["bytes"], strict=True):
        mark = "?" if number == row["unk_id"] else ""
        cells = [token(piece, glyphs), f"{number}{mark}", raw]
        size = min(width, max(map(cell_len, cells)))
        if not blocks or size + GAP > room:
            blocks.append(["", "", ""])
            room = width
        for k, cell in enumerate(cells):
            blocks[-1][k] += set_cell_size(cell, size) + " " * GAP
        room -= size + GAP
    return [[text.rstrip() for text in block] for block in blocks]


def audit_lines(audit: dict[str, Any]) -> list[str]:
    """The audit as a table: a column a side, then what there is one of."""
    lines = [f"{audit['corpus']}: {audit['split']}"]
    lines.append(f"tokenizer {audit['tokenizer']}, windows of {audit['context']}")
    lines += ["", "".ljust(20) + "".join(side.rjust(12) for side in SIDES)]
    for name in ("documents", "tokens", "unknown", "windows"):
        lines.append(name.ljust(20) + "".join(f"{audit[name][side]:>12,}" for side in SIDES))
    for name, title in (("min", "shortest, tokens"), ("median", "median"), ("max", "longest")):
        figures = (audit["length_tokens"][side][name] for side in SIDES)
        lines.append(title.ljust(20) + "".join(figure_of(figure).rjust(12) for figure in figures))
    lines += ["", "vocabulary".ljust(20) + f"{audit['vocabulary_size']:>12,}"]
    lines.append("duplicates dropped".ljust(20) + f"{audit['duplicates_dropped']:>12,}")
    leak = "no document is on two sides" if not audit["overlap"] else "documents leak between sides"
    lines.append("on two sides".ljust(20) + f"{audit['overlap']:>12,}  {leak}")
    return lines


def figure_of(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,}"


def wrapped_text(text: str, width: int, most: int | None, glyphs: Glyphs) -> list[str]:
    """A text from outside in lines, at most `most`; its own line breaks are kept, other controls
    are shown. The last line ends in dots where there is more."""
    lines: list[str] = []
    for part in text.split("\n"):
        current = ""
        for word in shown(part, glyphs.ascii).split(" "):
            grown = f"{current} {word}" if current else word
            if cell_len(grown) > width:
                if current:
                    lines.append(current)
                *full, grown = chop_cells(word, width) or [""]
                lines += full
            current = grown
        lines.append(current)
        if most is not None and len(lines) > most:
            break
    if most is not None and len(lines) > most:
        lines = lines[:most]
        lines[-1] = set_cell_size(lines[-1], width - len(glyphs.dots)).rstrip() + glyphs.dots
    return lines


def beginning(text: str, width: int, glyphs: Glyphs) -> str:
    """The beginning of a text in at most `width` cells, before dots where it is longer."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - len(glyphs.dots)).rstrip() + glyphs.dots


def ending(text: str, width: int, glyphs: Glyphs) -> str:
    """The end of a text in at most `width` cells, after dots where it is longer."""
    if cell_len(text) <= width:
        return text
    kept = text
    while kept and cell_len(kept) > width - len(glyphs.dots):
        kept = kept[max(1, (cell_len(kept) - width) // 2) :]
    return glyphs.dots + kept
