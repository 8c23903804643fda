"""One experiment by its name: run whole, or gone on with where it was left."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from engine.errors import UsageError
from engine.experiments.names import EXPERIMENTS
from engine.experiments.report import write
from engine.experiments.rows import Result
from engine.progress import Tell


def reproduce(
    name: str,
    folder: Path,
    given: dict[str, Any],
    report: Path | None = None,
    tell: Tell | None = None,
) -> Result:
    """What an experiment comes to; `given` has what is to be other than in its protocol.

    Raises UsageError for an experiment that there is not.
    """
    if report is not None and not os.access(report.parent, os.W_OK):
        raise UsageError(
            f"no report can be written to {str(report.parent)!r}: give another folder that exists"
        )
    began = time.monotonic()
    result = found(name, folder, given, tell)
    result.facts = {
        "torch": version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
        "seconds": f"{time.monotonic() - began:.0f}",
        **result.facts,
    }
    if report is not None:
        write(result, report)
    return result


def found(name: str, folder: Path, given: dict[str, Any], tell: Tell | None) -> Result:
    from engine.experiments import character_logs, lily, money_bank, stories, storybook, sweep

    if name == "lily":
        return lily.reproduce(tell)
    if name == "money-bank":
        return money_bank.reproduce(tell)
    if name == "character-logs":
        return character_logs.reproduce(tell)
    if name == "tinystories":
        plan = stories.Plan(**given.get("plan", {}))
        if given.get("sweep"):
            return sweep.reproduce(folder / "sweep", plan, tell)
        return stories.reproduce(folder, plan, tell)
    if name == "storybook":
        return storybook.reproduce(folder, bool(given.get("shipped")), tell)
    raise UsageError(f"there is no experiment {name!r}: use {', '.join(EXPERIMENTS)}")
