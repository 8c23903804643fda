"""`metrics.jsonl`: one line a step, steps 1, 2, 3, ... without a gap or a double.

    {"step": 1, "loss": 8.29, "lr": 0.003, "grad_norm": 0.91, "targets_per_second": 5312.4,
     "time": 1764495000.1, "val_loss": 4.2}

`val_loss` stands only where there was a validation; what is not known is null; what is not finite
is "nan", "inf" or "-inf". A last line without its end was cut short by a kill: it does not count.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError
from engine.runs import disk

TAIL = 65_536  # bytes in which the last line is looked for


class MetricsFile:
    """The file, to append to."""

    def __init__(self, path: Path):
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def add(self, row: Mapping[str, float | None]) -> None:
        """Append one step. Raises OSError where the disk does not take it; nothing is written."""
        self.add_lines(line_of(row))

    def add_lines(self, lines: bytes) -> None:
        disk.append(self._number, lines)

    def sync(self) -> None:
        disk.sync(self._number)

    def close(self) -> None:
        os.close(self._number)


def line_of(row: Mapping[str, float | None]) -> bytes:
    return (json.dumps({key: written(value) for key, value in row.items()}) + "\n").encode()


def written(value: float | None) -> float | str | None:
    """A number as JSON takes it."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def number(value: float | str | None) -> float:
    """A number as it is in a line; what is not known is nan."""
    return math.nan if value is None else float(value)


def last_row(path: Path) -> dict[str, Any] | None:
    """The last whole line, or None where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
        return dict(json.loads(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None


def cut(path: Path, cut_path: Path, step: int) -> int:
    """Move the lines of steps after `step` to the end of another file, so that the steps can be
    made again without a double. Returns how many there were.

    A kill between the two leaves lines in both: they are not appended twice. Raises
    TensorstepError where the file ends before `step`.
    """
    if not path.exists():
        path.touch()
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        whole, keep = span(file.fileno(), size, step) if size else (0, 0)
        if last_step(file.fileno(), keep) != step:
            raise TensorstepError(
                f"{str(path)!r} ends before step {step}, at which the checkpoint stands: put the"
                " missing lines back, or start a new run"
            )
        file.seek(keep)
        moved = file.read(whole - keep)
        if moved:
            set_aside(cut_path, moved)
        file.truncate(keep)
        disk.sync(file.fileno())
    return moved.count(b"\n")


def span(number: int, size: int, step: int) -> tuple[int, int]:
    """Where the last whole line ends, and where the last line up to `step` does."""
    with mmap.mmap(number, size, access=mmap.ACCESS_READ) as mapped:
        whole = mapped.rfind(b"\n") + 1
        keep = whole
        while keep:
            begin = mapped.rfind(b"\n", 0, keep - 1) + 1
            if step_of(mapped[begin:keep]) <= step:
                break
            keep = begin
    return whole, keep


def last_step(number: int, end: int) -> int:
    """The step of the line that ends at a byte; 0 at the beginning of the file."""
    if not end:
        return 0
    with mmap.mmap(number, end, access=mmap.ACCESS_READ) as mapped:
        return step_of(mapped[mapped.rfind(b"\n", 0, end - 1) + 1 : end])


def step_of(line: bytes) -> int:
    """Raises TensorstepError for a line that is none of ours."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        raise TensorstepError(
            f"{line[:60].decode('utf-8', 'replace')!r} is no line of metrics: mend metrics.jsonl"
        ) from None


def set_aside(path: Path, lines: bytes) -> None:
    """Append lines to the file of those that were cut, unless it ends with them already. All or
    nothing: a kill leaves no half of them."""
    there = path.read_bytes() if path.exists() else b""
    if not there.endswith(lines):
        disk.write_whole(path, there + lines)


def cut_samples(path: Path, step: int) -> None:
    """Take samples of steps after `step` away: those steps, and they, are made again. So is a last
    line that was cut short."""
    content = path.read_bytes() if path.exists() else b""
    kept = [line for line in content.splitlines(True) if line.endswith(b"\n")]
    kept = [line for line in kept if step_of(line) <= step]
    if b"".join(kept) != content:
        disk.write_whole(path, b"".join(kept))
