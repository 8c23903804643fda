"""Large tensors on the screen, in a real pseudo-terminal at 120x40: cursor, pages, opening, memory;
and what a what-if in the last layer costs.

    python -m benchmarks.terminal [--json] [--smoke]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import engine
from benchmarks.keys import Pressed, press
from benchmarks.large_worker import SHAPES
from benchmarks.report import Row, median, run
from engine.edits import Edit
from engine.service.options import Options
from engine.service.session import Session
from tests.terminal.terminal import DOWN, RIGHT, Terminal

PAGE_DOWN, PAGE_UP = "\x1b[6~", "\x1b[5~"
MEGABYTE = 2**20
ROOT = Path(__file__).parents[1]


def resident(pid: int) -> int:
    """Resident bytes of a process (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def row(
    what: str, pressed: list[Pressed], time_target: float | None, size_target: float
) -> list[Row]:
    times = [each.last for each in pressed if each.size]
    sizes = [float(each.size) for each in pressed if each.size]
    return [
        Row(f"{what}: key to settled screen", median(times), "ms", time_target),
        Row(f"{what}: bytes", median(sizes), "bytes", size_target),
    ]


def one(name: str, number: int, times: int) -> list[Row]:
    """One tensor: opened, walked over, paged through without and with heat."""
    command = (sys.executable, "-m", "benchmarks.large_worker")
    shape = "x".join(map(str, SHAPES[name][1]))
    with Terminal(command=command, cwd=ROOT, watched=False) as terminal:
        terminal.wait_for(lambda t: b"stories[0]" in t.raw)
        terminal.settle(0.5)
        pids = (terminal.pid, terminal.worker)
        opened = [press(terminal, "n") for _ in range(number)]
        before = [resident(pid) for pid in pids]
        cells = [press(terminal, key) for key in (DOWN, RIGHT) * (times // 2)]
        pages = [press(terminal, key) for key in (PAGE_DOWN, PAGE_UP) * (times // 2)]
        press(terminal, "i")
        hot = [press(terminal, key) for key in (PAGE_DOWN, PAGE_UP) * (times // 2)]
        grown = [(resident(pid) - b) / MEGABYTE for pid, b in zip(pids, before, strict=True)]
    return [
        Row(f"[{shape}] opening", opened[-1].last, "ms", 100),
        Row(f"[{shape}] cursor: key to its move", median([c.first for c in cells]), "ms", 15),
        *row(f"[{shape}] cursor, explained", cells, None, 700),
        *row(f"[{shape}] page", pages, 30, 15_000),
        *row(f"[{shape}] page with heat", hot, 30, 30_000),
        Row(f"[{shape}] growth of screen and worker", max(grown), "MB", 5),
    ]


def what_if(smoke: bool) -> Row:
    """An edit of a logit, up to the loss, against the walk of a whole step."""
    width, hidden, batch = (16, 32, 16) if smoke else (64, 256, 512)
    options = Options(
        corpus="storybook:600",
        context=64,
        batch=batch,
        width=width,
        hidden=hidden,
        optimizer="adamw",
        lr=0.003,
    )
    session = Session(options)
    walk: engine.Walk = session.walk("training", "attention")
    times, edits = [], []
    for step in range(1, 5):
        walk.seek(step, "batch.X")
        start = time.perf_counter()
        walk.seek(step, "loss")
        walk.seek(step + 1, "batch.X")
        times.append(time.perf_counter() - start)
        walk.seek(step, "loss")
        start = time.perf_counter()
        session.edit("training", "attention", Edit(step, "logits", (0, 5), 3.0))
        edits.append(time.perf_counter() - start)
        session.undo("training", "attention")
    return Row(
        "a what-if in the last layer / a step's walk", median(edits) / median(times), "", 0.3
    )


def measure(smoke: bool) -> list[Row]:
    times = 4 if smoke else 40
    names = list(SHAPES)[:1] if smoke else list(SHAPES)
    rows = [each for k, name in enumerate(names, 1) for each in one(name, k, times)]
    return [*rows, what_if(smoke)]


if __name__ == "__main__":
    run("terminal", measure)
