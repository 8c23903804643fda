"""The same states without a screen: `tensorstep states`."""

from __future__ import annotations

import json
import sys
from typing import Any

from engine.maps import GENERATION, TRAINING
from engine.service.client import Client
from engine.service.options import Options
from tui.glyphs import folded
from tui.plain import shown

KINDS = {"train": TRAINING, "generate": GENERATION}


async def print_states(
    what: str, options: Options, steps: int | None, as_json: bool, max_values: int
) -> None:
    """Print every state of the steps asked for: one JSON object a line, or a readable listing.

    A generation may end before that many steps. Raises TensorstepError as the worker does.
    """
    client = Client()
    await client.start()
    try:
        await client.ask("open", options=options.to_json())
        where = {"map": KINDS[what], "model": options.model}
        write = print_json if as_json else print_readable
        while True:
            state = await client.ask("dump", **where, max_values=max_values)
            if steps is not None and state["step"] > steps:
                break
            write(state)
            if not (await client.ask("move", **where, how="forward"))["moved"]:
                break
    finally:
        await client.close()


def print_json(state: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(state, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def print_readable(state: dict[str, Any]) -> None:
    """A heading, then the values: rows of numbers, or texts as data; all of it in ASCII where the
    output takes nothing else."""
    axes = ", ".join(f"{a} {n}" for a, n in zip(state["axes"], state["shape"], strict=True))
    heading = f"step {state['step']}  {state['stage']}  {state['name']}  [{axes}]  {state['role']}"
    lines = [heading, f"    {state['formula']}"]
    ascii_only = "utf" not in (sys.stdout.encoding or "utf-8").lower()
    if ascii_only:
        lines = [folded(line) for line in lines]
    if "values" in state:
        lines += [f"    {row}" for row in readable_rows(state["values"])]
    sys.stdout.write("\n".join(shown(line, ascii_only) for line in lines) + "\n")
    sys.stdout.flush()


def readable_rows(values: Any) -> list[str]:
    """Nested lists as lines: the innermost list is a row."""
    if not isinstance(values, list):
        return [readable(values)]
    if not values or not isinstance(values[0], list):
        return ["  ".join(readable(each) for each in values)]
    return [row for each in values for row in readable_rows(each)]


def readable(value: Any) -> str:
    return f"{value:10.4f}" if isinstance(value, float) else str(value)
