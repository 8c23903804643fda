"""Heat: how large a number is among its own, as a colour of the 256-colour cube and, without
colour, as a bar of eight heights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.style import Style

from tui.cells import fitting, written
from tui.glyphs import Glyphs

# from little to much; where signs matter, one way for each
WARM = (52, 88, 124, 130, 166, 172, 208, 214)
COLD = (17, 18, 19, 20, 26, 32, 38, 44)
BARS = "▁▂▃▄▅▆▇█"
MARKS = ".:-=+*%@"  # the same in ASCII: no digits, which would be read as part of the number
LEVELS = len(BARS)
DARK = 5  # levels on which white is read best; black on those above


@dataclass(frozen=True)
class Heat:
    """The scale of one tensor: diverging around 0 where it has both signs."""

    low: float
    high: float

    @classmethod
    def of(cls, summary: dict[str, Any] | None) -> Heat | None:
        """The scale of what was summarized; None where nothing is finite."""
        low = None if summary is None else summary.get("min")  # a text has none
        if summary is None or not isinstance(low, (int, float)):
            return None
        return cls(float(low), float(summary["max"]))

    @property
    def diverging(self) -> bool:
        return self.low < 0 < self.high

    def level(self, value: float) -> int:
        """0 to 7: the share of the range, or, where it diverges, of the largest size."""
        if self.diverging:
            share = abs(value) / max(-self.low, self.high)
        else:
            share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return max(0, min(LEVELS - 1, int(share * LEVELS)))

    def style(self, value: Any) -> Style | None:
        """The colour of a cell; none for what is not a finite number."""
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        level = self.level(value)
        ramp = COLD if self.diverging and value < 0 else WARM
        ink = "color(231)" if level < DARK else "color(16)"
        return Style(color=ink, bgcolor=f"color({ramp[level]})")

    def bar(self, value: Any, glyphs: Glyphs) -> str:
        """The same without colour: one character, blank for what is not a finite number."""
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            return "  " if glyphs.ascii else " "
        level = self.level(value)
        return f" {MARKS[level]}" if glyphs.ascii else BARS[level]

    def legend(self, glyphs: Glyphs, width: int) -> str:
        """What little and much are, as much of it as there is room for."""
        bars = MARKS if glyphs.ascii else BARS
        if self.diverging:
            most = written(float(max(-self.low, self.high)))
            return fitting([f"heat: 0 {bars} {most}", "by size", "signs by colour"], width, ", ")
        return f"heat: {written(self.low)} {bars} {written(self.high)}"
