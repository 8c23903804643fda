"""Time to the first frame, against the smallest Textual app there is, in a real pseudo-terminal.

Both are started in turn; the figure is the median of the ratios. The first frame is there when its
text has been written.

    python -m benchmarks.startup [--json] [--smoke]
"""

from __future__ import annotations

import sys
import time

from benchmarks.report import Row, median, run
from tests.terminal.terminal import COMMAND, Terminal

HELLO = """
from textual.app import App
from textual.widgets import Static


class Hello(App):
    def compose(self):
        yield Static("hello world")


Hello().run(mouse=False)
"""


def first_frame(command: tuple[str, ...], text: bytes) -> float:
    """Seconds from starting a command until `text` was written."""
    env = {"PYTHONDONTWRITEBYTECODE": None}  # as an installed package, which is compiled once
    with Terminal(watched=False, command=command, env=env) as terminal:
        end = time.perf_counter() + 30
        while text not in terminal.raw:
            if time.perf_counter() > end:
                raise TimeoutError(f"no frame in 30 s: {bytes(terminal.raw[-200:])!r}")
            terminal.read(0.5)
        return terminal.last_byte - terminal.started


def measure(smoke: bool) -> list[Row]:
    rounds = 2 if smoke else 25
    ours, hello = [], []
    for _ in range(rounds):
        hello.append(first_frame((sys.executable, "-c", HELLO), b"hello world"))
        ours.append(first_frame((COMMAND,), b"TRAINING MAP"))
    del ours[0], hello[0]  # of which the first compiles
    ratios = [a / b for a, b in zip(ours, hello, strict=True)]
    return [
        Row("first frame / Textual's hello world", median(ratios), "times", 1.5),
        Row("first frame", median(ours) * 1000, "ms"),
        Row("Textual's hello world", median(hello) * 1000, "ms"),
    ]


if __name__ == "__main__":
    run("startup", measure)
