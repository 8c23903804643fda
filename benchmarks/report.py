"""What the benchmarks share: their two options, one table, one form of JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Row:
    """One figure: what was measured, in which unit, beside what it is to be (None: no target)."""

    what: str
    value: float
    unit: str
    target: float | None = None
    note: str = ""


def run(subject: str, measure: Callable[[bool], Sequence[Row]]) -> None:
    """Read `--json` and `--smoke`, measure, print."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{subject}")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--smoke", action="store_true", help="the smallest size, to see it runs")
    options = parser.parse_args()
    rows = measure(options.smoke)
    if options.json:
        print(json.dumps({"subject": subject, **machine(), "rows": [asdict(row) for row in rows]}))
        return
    print(f"{subject}: " + ", ".join(f"{key} {value}" for key, value in machine().items()))
    width = max(len(row.what) for row in rows)
    for row in rows:
        target = "" if row.target is None else f"   target {row.target:g}"
        note = f"   {row.note}" if row.note else ""
        print(f"  {row.what.ljust(width)}  {row.value:10.3f} {row.unit}{target}{note}")


def machine() -> dict[str, str]:
    """Where it was measured."""
    return {
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "textual": version("textual"),
    }


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most resident memory that this process had (Linux); unlike `getrusage` it does not begin
    with that of the process that started it."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
