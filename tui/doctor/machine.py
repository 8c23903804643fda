"""What `tensorstep doctor` looks at, and what it finds there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OK, NOTE, BAD = "ok", "note", "bad"

Run = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True)
class Finding:
    """One thing that was found: `verdict` is ok, note or bad; `mend` may be empty."""

    topic: str
    what: str
    verdict: str = OK
    mend: str = ""


@dataclass(frozen=True)
class Machine:
    """Everything that is looked at.

    run     what a command prints; None where it fails or is not there
    torch   what it says of itself (PROBE), or a sentence why it says nothing
    size    columns and lines of the terminal; None where the output is none
    runs    the folder in which runs are kept
    root    below which the system's own files are read
    """

    environment: Mapping[str, str]
    run: Run
    torch: Mapping[str, Any] | str
    size: tuple[int, int] | None
    cpus: int
    user: str
    runs: Path
    root: Path = Path("/")
    system: str = "Linux"


def read(file: Path) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
