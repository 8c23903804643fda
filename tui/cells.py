"""The visible cells of a state, as the worker sent them, and how a cell is written."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Slice:
    """Rows and columns of one state: numbers or texts, labels, and what the slice belongs to."""

    rows: list[str]
    columns: list[str]
    cells: list[list[Any]]
    caption: list[str] = field(default_factory=list)
    target: str | None = None
    tokens: list[list[str]] = field(default_factory=list)
    index: list[int] | None = None  # of the rows, where they are sorted

    @classmethod
    def of(cls, header: dict[str, Any], payload: bytes, turned: bool = False) -> Slice:
        """From the answer to `table`; `turned`: rows as columns and the other way round.

        Raises ValueError (struct.error) where header and payload contradict each other.
        """
        if "texts" in header:
            return cls(header["rows"], [], [[text] for text in header["texts"]])
        height, width = header["size"]
        numbers = struct.unpack(f"<{height * width}{header['code']}", payload)
        cells = [list(numbers[at : at + width]) for at in range(0, height * width, width or 1)]
        rows, columns = header["rows"], header["columns"]
        tokens = header.get("tokens", [])
        if turned:
            rows, columns = columns, rows
            cells, tokens = transposed(cells), transposed(tokens)
        caption, target = header["caption"], header["target"]
        return cls(rows, columns, cells, caption, target, tokens, header["index"])


def transposed(cells: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*cells, strict=True)]


DIGITS = 9  # significant ones: a float32 has no more
FORMATS = ("plain", "scientific", "exact")
WIDTHS = {"plain": 9, "scientific": 11, "exact": 15}  # cells that a number takes


def formatted(value: Any, how: str) -> str:
    """A number as a cell shows it: see FORMATS."""
    if how == "plain" or not isinstance(value, float) or not math.isfinite(value):
        return written(value)
    return f"{value:.4e}" if how == "scientific" else exact(value)


def summary_line(summary: dict[str, Any], width: int) -> str:
    """How a tensor's cells are spread, as much of it as there is room for; empty where there is
    nothing to say."""
    if summary.get("min") is None:
        count = summary.get("nonfinite", 0)
        return f"all {count} not finite" if count else ""
    parts = [f"{summary['nonfinite']} not finite"] if summary["nonfinite"] else []
    parts += [f"{name} {written(summary[name])}" for name in ("min", "max", "mean", "std")]
    if summary["zeros"]:
        parts.append(f"zeros {100 * summary['zeros'] / summary['count']:.0f}%")
    return fitting(parts, width)


def fitting(parts: list[str], width: int, between: str = "  ") -> str:
    """The first of some parts that fit: a number that is cut would be another number."""
    while len(parts) > 1 and len(between.join(parts)) > width:
        parts = parts[:-1]
    return between.join(parts)


def written(value: Any) -> str:
    """A number as a cell shows it, in at most 9 characters: four decimals; one for large numbers;
    scientific where either would hide it."""
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if 1e-4 <= abs(value) < 999:
        return f"{value:.4f}"
    if 999 <= abs(value) < 999_999:
        return f"{value:.1f}"
    return f"{value:.2e}"


def exact(value: Any) -> str:
    """A number with all its digits."""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def axes_of(axes: list[str], shape: list[int]) -> str:
    """Axes with their sizes: B 2, 1, S 4. An axis that is called 1 says its size itself."""
    pairs = zip(axes, shape, strict=True)
    return ", ".join(axis if axis == "1" == str(size) else f"{axis} {size}" for axis, size in pairs)
