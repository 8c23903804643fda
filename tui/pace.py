"""How fast work goes and how long it will still take, as one line."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.progress import Progress
from tui.glyphs import Glyphs

BAR = 20  # cells


class Pace:
    """Measures work that tells of its progress: rate and time left since it was first told of."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._what: str | None = None
        self._since = 0.0
        self._at = 0  # how much was done then
        self._last = 0

    def restart(self) -> None:
        """Other work begins, whatever it is called."""
        self._what = None

    def line(self, progress: Progress, glyphs: Glyphs, width: int | None = None) -> str:
        """What is done, a bar where its end is known and the width has room, how many, a second,
        and seconds left."""
        now = self._clock()
        if progress.what != self._what or progress.done < self._last:
            self._what, self._since, self._at = progress.what, now, progress.done
        self._last = progress.done
        parts, bar = [progress.what], ""
        rate = (progress.done - self._at) / (now - self._since) if now > self._since else 0.0
        if progress.total:
            full = BAR * min(progress.done, progress.total) // progress.total
            bar = glyphs.full * full + glyphs.rest * (BAR - full)
            parts.append(f"{progress.done:,} of {progress.total:,}")
        elif progress.done:
            parts.append(f"{progress.done:,}")
        if rate > 0:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            if progress.total:
                parts.append(f"{left(max(0, progress.total - progress.done) / rate)} left")
        plain = "  ".join(parts)
        if not bar or (width is not None and len(plain) + 2 + len(bar) > width):
            return plain
        return "  ".join([parts[0], bar, *parts[1:]])


def left(seconds: float) -> str:
    """A time that is still to pass: 12 s, 3 min, 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"
