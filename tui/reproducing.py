"""`tensorstep reproduce`: an experiment run whole, beside what was published of it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from engine.errors import UsageError
from engine.experiments.names import EXPERIMENTS
from tui.headless import print_json, worker
from tui.plain import shown

SHORT = 22  # characters of a list or text in the table
ENDINGS = (".html", ".htm", ".md")
# for tinystories alone
OF_STORIES = ("corpus", "text", "lines", "documents", "seeds", "steps", "sweep")
KEPT = ("tinystories", "storybook")  # whose runs are kept


async def reproduce(given: argparse.Namespace) -> None:
    """Run it, and print the table. Raises UsageError for what cannot be run."""
    values = vars(given)
    name = values["what"]
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}: use {', '.join(EXPERIMENTS)}")
    others = [each for each in OF_STORIES if each in values]
    if others and name != "tinystories":
        raise UsageError(f"--{others[0]} goes with tinystories: {name} has its own protocol")
    if "shipped" in values and name != "storybook":
        raise UsageError(f"--shipped goes with storybook: {name} is not a checkpoint")
    if {"shipped", "dir"} <= set(values):
        raise UsageError("--shipped trains nothing that could be kept: leave out --dir")
    if "dir" in values and name not in KEPT:
        raise UsageError(f"--dir goes with {' and '.join(KEPT)}: {name} keeps nothing")
    report = file_of(values, "report", ENDINGS)
    folder = values.get("dir") or str(user_state_path("tensorstep") / "reproduced" / name)
    async with worker() as client:
        told = await client.ask(
            "reproduce",
            name=name,
            folder=os.path.abspath(folder),
            given={
                "plan": plan_of(values),
                "sweep": "sweep" in values,
                "shipped": "shipped" in values,
            },
            report=report,
        )
    if "json" in values:
        print_json(told)
        return
    for line in table_of(told):
        print(line)
    if report is not None:
        print(f"\n{shown(values['report'])} has all of it, with curves.")


def file_of(values: dict[str, Any], option: str, endings: tuple[str, ...]) -> str | None:
    """The whole path of a file that is to be written, if one is. Raises UsageError for one of
    another kind."""
    name: str | None = values.get(option)
    if name is None:
        return None
    if Path(name).suffix.lower() not in endings:
        known = " or ".join(each for each in endings if each != ".htm")
        raise UsageError(f"--{option} {name!r} is of no known kind: give a name in {known}")
    if os.path.isdir(name):
        raise UsageError(f"--{option} {name!r} is a folder: give the name of a file")
    return os.path.abspath(name)


def plan_of(values: dict[str, Any]) -> dict[str, Any]:
    """What is to be other than in the protocol of the stories."""
    plan: dict[str, Any] = {}
    if {"corpus", "text"} <= set(values):
        raise UsageError("--text and --corpus are both given: give one of them")
    for name in ("corpus", "text"):
        if name in values:
            spec = values[name]
            plan["corpus"] = str(Path(spec).absolute()) if os.path.exists(spec) else spec
    for name in ("documents", "steps"):
        if name in values:
            if values[name] < 1:
                raise UsageError(f"--{name} {values[name]} is too small: give 1 or more")
            plan[name] = values[name]
    if "seeds" in values:
        plan["seeds"] = seeds_of(values["seeds"])
    if "lines" in values:
        if "text" not in values:
            raise UsageError("--lines goes with --text FILE")
        plan["lines"] = True
    if "sweep" in values and ("steps" in plan or len(plan.get("seeds", ())) > 1):
        raise UsageError(
            "--sweep has its own 600 steps and one seed: leave out --steps, and give one of --seeds"
        )
    if "steps" in plan:
        plan["eval_every"] = max(1, min(750, plan["steps"] // 2))
    return plan


def seeds_of(text: str) -> list[int]:
    """Seeds written as N,N. Raises UsageError for anything else, and for one given twice."""
    parts = [part.strip() for part in text.split(",")]
    good = all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts)
    if not good or len(set(parts)) < len(parts):
        raise UsageError(f"--seeds {text!r} are no seeds: write different numbers as 11,29,47")
    return [int(part) for part in parts]


def table_of(told: dict[str, Any]) -> list[str]:
    """A result as aligned text: name, published, here, difference, verdict."""
    heads = ("", "published", "here", "difference", "verdict")
    rows = [
        (
            row["name"],
            written(row["published"]),
            written(row["here"]),
            gap(row["difference"]),
            row["verdict"],
        )
        for row in told["rows"]
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(4)]
    lines = [shown(told["title"]), ""]
    for row in [heads, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:4], widths[1:], strict=True)]
        lines.append(shown("  ".join([*cells, row[4]]).rstrip()))
    notes = list(told["notes"])
    if any(row["verdict"] == "new" for row in told["rows"]):
        notes.append("new: there is no published figure to compare with.")
    lines += ["", *map(shown, notes)]
    lines += sections_of(told)
    facts = ", ".join(f"{name} {value}" for name, value in told["facts"].items())
    return [*lines, "", shown(facts)]


def sections_of(told: dict[str, Any]) -> list[str]:
    """What else there is to read, each part below its title."""
    return [
        line
        for title, section in told["sections"]
        for line in ("", shown(title), *(f"  {shown(each)}".rstrip() for each in section))
    ]


def written(value: Any) -> str:
    """A figure in a table: 6 digits, a long list by its beginning."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)[:SHORT]
    if isinstance(value, list | tuple):
        whole = ", ".join(written(each) for each in value)
        return whole if len(whole) <= SHORT else f"{whole[: SHORT - 3]}..."
    if isinstance(value, dict):
        return f"{len(value)} entries"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def gap(difference: Any) -> str:
    """A difference, of which the size is what counts."""
    if difference is None:
        return ""
    return "0" if difference == 0 else f"{float(difference):+.1e}"
