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
        if turned:
            rows, columns, cells = columns, rows, [list(row) for row in zip(*cells, strict=True)]
        tokens = header.get("tokens", [])
        return cls(rows, columns, cells, header["caption"], header["target"], tokens)


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
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def axes_of(axes: list[str], shape: list[int]) -> str:
    """Axes with their sizes: B 2, 1, S 4. An axis that is called 1 says its size itself."""
    pairs = zip(axes, shape, strict=True)
    return ", ".join(axis if axis == "1" == str(size) else f"{axis} {size}" for axis, size in pairs)
