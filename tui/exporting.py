"""`tensorstep export`: a training run's best parameters as a folder."""

from __future__ import annotations

import argparse
import os

from tui.headless import print_json, worker
from tui.plain import shown


async def export(given: argparse.Namespace) -> None:
    """Write a run's best parameters to a folder, and say what they come to."""
    async with worker() as client:
        told = await client.ask(
            "export",
            run=os.path.abspath(given.what) if os.path.exists(given.what) else given.what,
            to=os.path.abspath(given.to),
            title=given.title,
            prompt=given.prompt,
        )
    if given.json:
        print_json(told)
        return
    losses = {side: loss for side, loss in told["losses"].items() if loss is not None}
    listed = ", ".join(f"{side} {loss:.4f}" for side, loss in losses.items())
    print(f"{shown(told['folder'])}: {told['parameters']:,} parameters of step {told['step']:,}")
    print(f"loss (nats a target): {listed}")
    print(f"tensorstep open {shown(told['folder'])}")
