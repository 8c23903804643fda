"""From a key to the settled screen, and the bytes it costs, in a real pseudo-terminal at 120x40.

python -m benchmarks.keys [--json] [--smoke]
"""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.report import Row, median, run
from tests.terminal.terminal import DOWN, TAB, UP, Terminal

QUIET = 0.12  # seconds without a byte: the screen has settled


class Pressed(NamedTuple):
    """Milliseconds until the first and the last byte that a key causes, and how many bytes."""

    first: float
    last: float
    size: int


def press(terminal: Terminal, key: str) -> Pressed:
    before = len(terminal.raw)
    start = time.perf_counter()
    terminal.send(key)
    first = last = start
    while terminal.read(QUIET):
        last = terminal.last_byte
        first = last if first == start else first
    return Pressed((first - start) * 1000, (last - start) * 1000, len(terminal.raw) - before)


def settled(what: str, pressed: list[Pressed], target: float | None) -> Row:
    """Until nothing changes any more, what the worker had to be asked for included."""
    sizes = [each.size for each in pressed]
    note = f"{median(sizes):.0f} bytes at the median, {max(sizes)} at most"
    times = [each.last for each in pressed if each.size]
    return Row(f"{what}: key to settled screen", median(times), "ms", target, note)


def answered(what: str, pressed: list[Pressed]) -> Row:
    """Until the key is seen to do something."""
    times = [each.first for each in pressed if each.size]
    return Row(f"{what}: key to its effect", median(times), "ms", 20)


def while_loading(times: int) -> list[Row]:
    """Keys pressed as soon as the frame is there, while the worker loads torch: to another pane,
    and help (a whole page) opened and closed."""
    panes, pages = [], []
    for _ in range(times):
        with Terminal(watched=False) as terminal:
            terminal.wait_for(lambda t: b"TRAINING MAP" in t.raw)
            terminal.settle(0.05)
            panes += [press(terminal, TAB) for _ in range(4)]
            pages += [press(terminal, key) for key in ("?", "q", "?", "q")]
            if b"stories[0]" in terminal.raw:
                raise RuntimeError("the worker was ready before the keys were pressed")
    return [
        answered("tab, while torch loads", panes),
        answered("help and back, while torch loads", pages),
        settled("help and back, while torch loads", pages, None),
    ]


def measure(smoke: bool) -> list[Row]:
    steps = 6 if smoke else 60
    with Terminal(watched=False) as terminal:
        terminal.wait_for(lambda t: b"stories[0]" in t.raw)
        terminal.settle(0.5)
        states = [press(terminal, "n") for _ in range(steps)]
        back = [press(terminal, "p") for _ in range(steps)]
        terminal.send("NNNNNNNN")
        terminal.settle(0.5)
        cells = [press(terminal, key) for key in (DOWN, UP) * (steps // 2)]
    return [
        answered("an arrow, the next cell", cells),
        settled("an arrow, the next cell, explained", cells, None),
        settled("n, the next state", states, 50),
        settled("p, the state before", back, 50),
        *while_loading(1 if smoke else 8),
    ]


if __name__ == "__main__":
    run("keys", measure)
