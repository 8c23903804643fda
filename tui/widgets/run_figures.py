"""What the live screen of a run tells beside its curves: figures, ratios, a sample, the log, as
lines of what is known."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.text import Text

from engine.runs.curves import Curves, number_of
from engine.runs.directory import DIED, FAILED, PAUSED, RUNNING
from tui.actions import LIVE_ACTIONS, brief
from tui.cells import written
from tui.glyphs import Glyphs
from tui.pace import left
from tui.plain import shown
from tui.widgets.lines import DIM, HERE, STRONG, WARN, line, wrapped

SAID = 3  # lines of a sentence
RATIO = 10  # cells
GAP = 3  # cells between what stands side by side
NOT_KNOWN = "-"
CHANGING = ("live.pause", "live.break", "live.stop")


def top_line(
    name: str,
    curves: Curves,
    status: dict[str, Any],
    steps: Any,
    reading: str,
    width: int,
    glyphs: Glyphs,
) -> Text:
    """Which run, how far it is, how it stands; and the newest loss."""
    last = curves.last
    step = step_of(last) or step_of(status)
    of = f" of {steps:,}" if isinstance(steps, int) else ""
    parts = [f"step {step:,}{of}", str(status.get("state", "")), reading]
    dot = " - " if glyphs.ascii else " · "
    text = "".join(dot + part for part in parts if part)
    right = f"loss {written(number_of(last.get('loss')))}" if last else ""
    room = width - len("run ") - len(text) - len(right) - GAP
    name = cut(name, room, glyphs)
    gap = " " * (room - cell_len(name) + GAP)
    return line(("run ", HERE), (name + text, STRONG), gap, (right, STRONG))


def why_lines(status: dict[str, Any], width: int, glyphs: Glyphs) -> list[Text]:
    """Why it is paused, or ended as it did; or how far it is with its preparation."""
    work = status.get("preparing")
    if isinstance(work, dict):
        total = f" of {work['total']:,}" if work.get("total") else ""
        told = f"{work.get('what')}  {work.get('done', 0):,}{total}"
        return wrapped(shown(told, glyphs.ascii), width, DIM, SAID)
    why = status.get("why")
    if why is None or status.get("state") not in (PAUSED, FAILED, DIED):
        return []
    return wrapped(shown(str(why), glyphs.ascii), width, WARN, SAID)


def figure_lines(
    curves: Curves, status: dict[str, Any], steps: Any, width: int, glyphs: Glyphs
) -> list[Text]:
    """What the run does now, in numbers."""
    last, values = curves.last, curves.val_loss[1]
    rate = steps_a_second(curves.recent)
    targets = middle([number_of(row.get("targets_per_second")) for row in curves.recent])
    remaining = None
    if rate and status.get("state") == RUNNING and isinstance(steps, int):
        remaining = left(max(0, steps - step_of(last)) / rate)
    device = shown(str(status.get("device") or NOT_KNOWN), glyphs.ascii)
    rows = (
        ("learning rate", figure(last.get("lr"), "{:.4g}"), "steps a second", speed(rate)),
        ("gradient norm", figure(last.get("grad_norm")), "targets a second", speed(targets)),
        ("validation", figure(values[-1] if values else None), "time left", remaining or NOT_KNOWN),
    )
    machine = (
        ("device", device),
        ("memory", size_of(status.get("memory"))),
        ("screens", str(status.get("screens") or NOT_KNOWN)),
    )
    lines = []
    for (a, first, b, second), (c, third) in zip(rows, machine, strict=True):
        text = line((f"{a:<14}", DIM), f"{first:>10}", (f"    {b:<17}", DIM), f"{second:>10}")
        text.append(f"    {c:<9}", DIM)
        lines.append(line(text, cut(third, width - text.cell_len, glyphs)))
    return lines


def footer(width: int, state: str, changes: bool) -> Text:
    """The keys, as many as there is room for: those that change the run, where it can be."""
    actions = tuple(each for each in LIVE_ACTIONS if changes or each.id not in CHANGING)
    pairs = brief(actions)
    if state == PAUSED:
        pairs = [("space", "go on") if pair == ("space", "pause") else pair for pair in pairs]
    for action in (action for action in actions if action.wide):
        if sum(len(key) + len(word) + 3 for key, word in pairs) - 2 > width:
            pairs.remove((action.shown.split()[0], action.brief))
    parts: list[Any] = []
    for key, word in pairs:
        parts += [(key, HERE), (f" {word}  ", DIM)]
    return line(*parts)


def ratio_lines(ratios: dict[str, Any] | None, width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """How far parameters moved, as a share of their size: the largest first."""
    if not ratios:
        return []
    rows = [(shown(str(name), glyphs.ascii), number_of(ratio)) for name, ratio in ratios["rows"]]
    rows.sort(key=lambda row: row[1] if row[1] == row[1] else math.inf, reverse=True)
    lines = [line(("UPDATE RATIOS", STRONG), (f"  of step {ratios['step']:,}", DIM))]
    for name, ratio in rows[: room - 1]:
        text = cut_within(name, width - RATIO, glyphs)
        gap = " " * (width - RATIO - cell_len(text))
        lines.append(line(text + gap + written(ratio).rjust(RATIO)))
    return lines


def sample_lines(sample: dict[str, Any], width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """What the model generated last, as much of it as there is room for."""
    if not sample:
        return []
    of = f"  of step {step_of(sample):,}"
    prompt, text = (str(sample.get(key, "")) for key in ("prompt", "text"))
    told = [
        *wrapped(shown(prompt, glyphs.ascii), width, DIM),
        *wrapped(shown(text, glyphs.ascii), width),
    ]
    lines = [line(("SAMPLE", STRONG), (of, DIM)), *told]
    return [*lines[: room - 1], line((glyphs.dots, DIM))] if len(lines) > room else lines


def log_lines(log: list[str], width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """The end of what the process said."""
    if not log or room < 2:
        return []
    return [line(("LOG", STRONG)), *(line(cut(text, width, glyphs)) for text in log[1 - room :])]


def beside(left_side: list[Text], right: list[Text], at: int) -> list[Text]:
    """Lines next to each other, those at the right from a column on."""
    lines = []
    for y in range(max(len(left_side), len(right))):
        text = left_side[y] if y < len(left_side) else line()
        more = right[y] if y < len(right) else line()
        lines.append(line(text, " " * (at - text.cell_len), more))
    return lines


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """The text in at most so many cells; where it is cut, it says so."""
    if cell_len(text) <= width:
        return text
    return next(iter(chop_cells(text, max(1, width - len(glyphs.dots)))), "") + glyphs.dots


def cut_within(name: str, width: int, glyphs: Glyphs) -> str:
    """A name in at most so many cells: where it is too long, its middle is left out."""
    if cell_len(name) <= width:
        return name
    begins = cut(name, width // 2, glyphs)
    for at in range(len(name) // 2, len(name)):
        if cell_len(begins + name[at:]) <= width:
            return begins + name[at:]
    return begins


def step_of(fields: dict[str, Any]) -> int:
    """The step of a line or of a run's process; 0 where there is none."""
    step = fields.get("step")
    return step if isinstance(step, int) else 0


def middle(values: list[float]) -> float | None:
    """The median of the finite values."""
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else None


def steps_a_second(recent: list[dict[str, Any]]) -> float | None:
    """How fast the last steps were; a pause between them does not count."""
    times = [number_of(row.get("time")) for row in recent]
    took = middle([b - a for a, b in pairwise(times) if b > a])
    return 1 / took if took else None


def speed(rate: float | None) -> str:
    if rate is None:
        return NOT_KNOWN
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def figure(value: Any, how: str = "") -> str:
    """A number of the metrics, as it stands there."""
    if value is None:
        return NOT_KNOWN
    number = number_of(value)
    return how.format(number) if how and math.isfinite(number) else written(number)


def size_of(size: Any) -> str:
    """Bytes, in words."""
    if not isinstance(size, (int, float)):
        return NOT_KNOWN
    for unit, power in (("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size / 1000:.0f} kB"
