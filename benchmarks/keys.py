"""From a key to the settled screen, and the bytes it costs, in a real pseudo-terminal at 120x40.

python -m benchmarks.keys [--json] [--smoke]
"""

from __future__ import annotations

import time

from benchmarks.report import Row, median, run
from tests.terminal.terminal import DOWN, TAB, UP, Terminal

QUIET = 0.12  # seconds without a byte: the screen has settled


def press(terminal: Terminal, key: str) -> tuple[float, int]:
    """Milliseconds until the last byte that a key causes, and how many bytes."""
    before = len(terminal.raw)
    start = time.perf_counter()
    terminal.send(key)
    last = start
    while terminal.read(QUIET):
        last = terminal.last_byte
    return (last - start) * 1000, len(terminal.raw) - before


def rows_of(what: str, pressed: list[tuple[float, int]], target: float | None) -> Row:
    times = [milliseconds for milliseconds, count in pressed if count]
    sizes = [count for _, count in pressed]
    note = f"{median(sizes):.0f} bytes at the median, {max(sizes)} at most"
    return Row(f"{what}: key to settled screen", median(times), "ms", target, note)


def while_loading(times: int) -> list[Row]:
    """Keys pressed as soon as the frame is there, while the worker loads torch: to another pane,
    and help (a whole page) opened and closed."""
    panes, pages = [], []
    for _ in range(times):
        with Terminal(watched=False) as terminal:
            while b"TRAINING MAP" not in terminal.raw:
                terminal.read(0.5)
            terminal.settle(0.05)
            panes += [press(terminal, TAB) for _ in range(4)]
            pages += [press(terminal, key) for key in ("?", "q", "?", "q")]
            if b"stories[0]" in terminal.raw:
                raise RuntimeError("the worker was ready before the keys were pressed")
    return [
        rows_of("tab, while torch loads", panes, 20),
        rows_of("help and back, while torch loads", pages, None),
    ]


def measure(smoke: bool) -> list[Row]:
    steps = 6 if smoke else 60
    with Terminal(watched=False) as terminal:
        while b"stories[0]" not in terminal.raw:
            terminal.read(0.5)
        terminal.settle(0.5)
        states = [press(terminal, "n") for _ in range(steps)]
        back = [press(terminal, "p") for _ in range(steps)]
        terminal.send("NNNNNNNN")
        terminal.settle(0.5)
        cells = [press(terminal, key) for key in (DOWN, UP) * (steps // 2)]
    return [
        rows_of("n, the next state", states, 50),
        rows_of("p, the state before", back, 50),
        rows_of("an arrow, the next cell", cells, 20),
        *while_loading(1 if smoke else 8),
    ]


if __name__ == "__main__":
    run("keys", measure)
