"""Curves as pictures: an SVG for a page, and lines of characters for plain text.

Points that are not finite are left out and told of. A curve has a colour and a dash (or a mark of
its own in text), so that nothing rests on colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.experiments.rows import Curve

Point = tuple[float, float]
LARGEST = 1e100  # what is larger is drawn as little as infinity is
MOST_POINTS = 1000  # of a drawn curve
TICKS = 6

# of the SVG, in its own units
WIDTH, LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 800, 76, 190, 30, 280, 66
LABEL, LEGEND_LINE = 15, 20  # heights of a line of text
LABEL_LENGTH, LEGEND_LENGTH = 24, 90  # characters
COLOURS = 6
DASHES = ("none", "8 4", "2 4", "10 4 2 4")

# of the plot in text, in characters
COLUMNS, LINES = 64, 14
MARKS = "●○▲△■□◆◇"


@dataclass(frozen=True)
class Line:
    """A curve's points that can be drawn, and how many cannot."""

    name: str
    points: list[Point]
    left_out: int

    @classmethod
    def of(cls, curve: Curve) -> Line:
        pairs = [(drawable(x), drawable(y)) for x, y in curve.points]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        return cls(plain(curve.name), points, len(pairs) - len(points))

    def told(self) -> str:
        """Its name, where it ends, and what is left out."""
        end = f": {self.points[-1][1]:.6g} at the end" if self.points else ": nothing to draw"
        left = f" ({self.left_out} not finite)" if self.left_out else ""
        return f"{self.name}{end}{left}"


@dataclass(frozen=True)
class Span:
    """From where to where an axis goes, and where it is marked."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, numbers: Sequence[float], margin: float = 0.0) -> Span:
        low, high = min(numbers), max(numbers)
        if high - low <= max(1e-300, 1e-9 * max(abs(low), abs(high))):
            around = 0.05 * abs(low) or 1.0
            low, high = low - around, high + around
        more = margin * (high - low)
        low, high = low - more, high + more
        return cls(low, high, tuple(ticks(low, high)))

    def share(self, number: float) -> float:
        """Where a number lies, from 0 to 1."""
        return min(1.0, max(0.0, (number - self.low) / (self.high - self.low)))


def ticks(low: float, high: float) -> Iterator[float]:
    """Round numbers from `low` to `high`, at most seven: 1, 2 or 5 times a power of ten apart."""
    least = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    apart = next((n * power for n in (1, 2, 5) if n * power >= least), 10 * power)
    for n in range(math.ceil(low / apart), math.floor(high / apart) + 1):
        yield float(f"{n * apart:.12g}")


def drawable(number: Any) -> float | None:
    """A number as a float, where it can be drawn."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return float(number) if abs(number) <= LARGEST else None


def plain(text: str) -> str:
    """Text from outside: what is no printable character is shown as its escape, never obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def together(curves: Sequence[Curve]) -> list[tuple[str, str, list[Line]]]:
    """Curves of the same axes, which one picture shows: what x is, what y is, the lines."""
    found: dict[tuple[str, str], list[Line]] = {}
    for curve in curves:
        found.setdefault((plain(curve.x), plain(curve.y)), []).append(Line.of(curve))
    return [(x, y, lines) for (x, y), lines in found.items()]


def thinned(points: list[Point]) -> list[Point]:
    """At most about so many points: of each run the lowest and the highest, and both ends."""
    if len(points) <= MOST_POINTS:
        return points
    each = math.ceil(2 * len(points) / MOST_POINTS)
    kept = {0, len(points) - 1}
    for begin in range(0, len(points), each):
        run = range(begin, min(begin + each, len(points)))
        kept |= {min(run, key=lambda i: points[i][1]), max(run, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def spans(lines: Sequence[Line]) -> tuple[Span, Span] | None:
    """The axes that hold every line; None where there is nothing to draw."""
    points = [point for line in lines for point in line.points]
    if not points:
        return None
    return Span.of([x for x, _ in points]), Span.of([y for _, y in points], 0.05)


# --- SVG -------------------------------------------------------------------------------------


def svg(x: str, y: str, lines: Sequence[Line]) -> str:
    """One picture: axes, ticks, a polyline a curve, its name beside its end, and a legend. Its
    classes are those of `STYLE`."""
    axes = spans(lines)
    height = TOP + HEIGHT + BOTTOM + LEGEND_LINE * len(lines)
    what = f"{y} over {x}: " + "; ".join(line.told() for line in lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{html.escape(what)}</title>",
    ]
    if axes is not None:
        parts += [*axes_of(x, y, *axes), *curves_of(lines, *axes)]
    for i, line in enumerate(lines):
        at = TOP + HEIGHT + BOTTOM + LEGEND_LINE * i
        parts.append(
            f'<line class="curve c{i % COLOURS}" stroke-dasharray="{DASHES[i % len(DASHES)]}"'
            f' x1="{LEFT}" y1="{at}" x2="{LEFT + 44}" y2="{at}"/>'
        )
        parts.append(text_at(LEFT + 54, at + 4, shortened(line.told(), LEGEND_LENGTH)))
    return "\n".join([*parts, "</svg>"])


def across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def down(share: float) -> float:
    return TOP + (1 - share) * HEIGHT


def text_at(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def axes_of(x: str, y: str, xs: Span, ys: Span) -> Iterator[str]:
    """Lines and numbers of both axes, and what they are."""
    right, bottom = across(1), down(0)
    for tick in ys.ticks:
        at = down(ys.share(tick))
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.2f}" x2="{right:.2f}" y2="{at:.2f}"/>'
        yield text_at(LEFT - 8, at + 4, f"{tick:.6g}", "end")
    for tick in xs.ticks:
        at = across(xs.share(tick))
        yield f'<line class="axis" x1="{at:.2f}" y1="{bottom}" x2="{at:.2f}" y2="{bottom + 5}"/>'
        yield text_at(at, bottom + 18, f"{tick:.6g}", "middle")
    yield f'<path class="axis" d="M {LEFT} {TOP} V {bottom} H {right}"/>'
    yield text_at(8, TOP - 12, shortened(y, LEGEND_LENGTH))
    yield text_at((LEFT + right) / 2, bottom + 36, shortened(x, LABEL_LENGTH), "middle")


def curves_of(lines: Sequence[Line], xs: Span, ys: Span) -> Iterator[str]:
    """A polyline a curve, its last point, and its name to the right of it."""
    made = []
    for i, line in enumerate(lines):
        points = [(across(xs.share(x)), down(ys.share(y))) for x, y in thinned(line.points)]
        if not points:
            continue
        kind, dash = f"c{i % COLOURS}", DASHES[i % len(DASHES)]
        written = " ".join(f"{a:.2f},{b:.2f}" for a, b in points)
        yield f'<polyline class="curve {kind}" stroke-dasharray="{dash}" points="{written}"/>'
        made.append((points[-1][1], points[-1][0], kind, line.name))
    made.sort()
    beside = spread([b for b, *_ in made])
    x = across(1) + 22
    for (b, a, _, name), at in zip(made, beside, strict=False):  # the others have the legend only
        yield f'<line class="leader" x1="{a:.2f}" y1="{b:.2f}" x2="{x - 4:.2f}" y2="{at:.2f}"/>'
        yield text_at(x, at + 4, shortened(name, LABEL_LENGTH))
    for b, a, kind, _ in made:
        yield f'<circle class="end {kind}" cx="{a:.2f}" cy="{b:.2f}" r="3"/>'


def spread(heights: Sequence[float]) -> list[float]:
    """Heights in order, moved apart so that a line of text fits at each, as many as there are
    lines: none leaves the plot."""
    room = HEIGHT // LABEL
    found: list[float] = []
    for height in heights[:room]:
        found.append(max(height, found[-1] + LABEL) if found else height)
    lowest = float(TOP + HEIGHT)
    for i in reversed(range(len(found))):
        found[i] = min(found[i], lowest)
        lowest = found[i] - LABEL
    return found


# --- text ------------------------------------------------------------------------------------


def drawn(x: str, y: str, lines: Sequence[Line]) -> list[str]:
    """A plot in lines of characters, a mark a curve, and a legend. Later curves cover earlier."""
    legend = [f"{MARKS[i % len(MARKS)]} {line.told()}" for i, line in enumerate(lines)]
    axes = spans(lines)
    if axes is None:
        return legend
    xs, ys = axes
    rows = [[" "] * COLUMNS for _ in range(LINES)]
    for i, line in enumerate(lines):
        for column, height in heights_of(sorted(line.points), xs, ys):
            row = LINES - 1 - round(height * (LINES - 1))
            rows[row][column] = MARKS[i % len(MARKS)]
    named = {
        0: f"{ys.high:.4g}",
        LINES // 2: shortened(y, LABEL_LENGTH),
        LINES - 1: f"{ys.low:.4g}",
    }
    width = max(len(text) for text in named.values())
    plot = [f"{named.get(i, ''):>{width}} │{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    low, high = f"{xs.low:.6g}", f"{xs.high:.6g}"
    under = f"{low}{shortened(x, LABEL_LENGTH):^{COLUMNS - len(low) - len(high)}}{high}"
    blank = " " * (width + 1)
    return [*plot, f"{blank}└{'─' * COLUMNS}", f"{blank} {under}", "", *legend]


def heights_of(points: list[Point], xs: Span, ys: Span) -> Iterator[tuple[int, float]]:
    """The columns that a curve crosses, and how high it is there, from 0 to 1."""
    if not points:
        return
    at = 0
    first, last = (round(xs.share(points[i][0]) * (COLUMNS - 1)) for i in (0, -1))
    for column in range(first, last + 1):
        x = xs.low + (xs.high - xs.low) * column / (COLUMNS - 1)
        while at + 2 < len(points) and points[at + 1][0] < x:
            at += 1
        (a, from_), (b, to) = points[at], points[min(at + 1, len(points) - 1)]
        share = min(1.0, max(0.0, (x - a) / (b - a))) if b > a else 1.0
        yield column, ys.share(from_ + share * (to - from_))
