"""One parameter followed over the steps, and all of them at a glance.

Following makes the steps again on a replica of the process: what the walk holds is left alone.
"""

from __future__ import annotations

from typing import Any

import torch

from engine.errors import UsageError
from engine.ops.core import Cell
from engine.progress import Tell, tracked
from engine.states import each
from engine.walk import Walk

Row = dict[str, float]
COLUMNS = ("value", "gradient", "m", "v", "update", "loss")


class Follower:
    """What one cell of a parameter did in each step of a training walk.

    rows  one a step: `step`, `value` (before the update), `gradient` (what the optimizer got), `m`
          and `v` where it keeps them, `update` (new - old) and the `loss`
    """

    def __init__(self, walk: Walk, name: str, cell: Cell):
        if walk.process.map != "training":
            raise UsageError("generating changes no parameter: follow one on the training map")
        if name not in walk.process.parameters:
            raise UsageError(f"no parameter is called {name!r}: follow a cell of a parameter")
        shape = walk.process.parameters[name].shape
        if len(cell) != len(shape) or not all(0 <= i < n for i, n in zip(cell, shape, strict=True)):
            raise UsageError(f"there is no cell {list(cell)} of {name}: its shape is {list(shape)}")
        self.name, self.cell = name, cell
        self.rows: list[Row] = []
        self._first = walk.history.first_step
        self._process = walk.history.beginning()

    def up_to(self, step: int, tell: Tell | None = None) -> list[Row]:
        """The rows of all steps up to one; those that are new are made now."""
        steps = range(self._first + len(self.rows), step + 1)
        for number in tracked(steps, f"following {self.name}", len(steps), tell):
            self.rows.append(self._row(number))
        return [row for row in self.rows if row["step"] <= step]

    def _row(self, step: int) -> Row:
        row: Row = {"step": step}
        for state in each(self._process.states(step)):
            if state.name == "loss":
                row["loss"] = state.value.item()
            elif state.name == f"gradients.{self.name}":
                row["gradient"] = float(state.value[self.cell])
                row["value"] = float(self._process.parameters[self.name].detach()[self.cell])
            elif state.name == f"update.{self.name}":
                parts = {}
                if state.inputs:  # what an optimizer that is not ours has made is made already
                    parts = state.operation.take_apart(*operands_of(state))
                    row["value"] = float(parts["old"][self.cell])
                    row["gradient"] = float(parts["grad"][self.cell])
                row["update"] = (
                    float(state.value[self.cell]) - row["value"]
                )  # also of an edited one
                row |= {p: float(parts[p][self.cell]) for p in ("m", "v") if p in parts}
        return row


def operands_of(state: Any) -> list[Any]:
    return [*(operand.value for operand in state.inputs or ()), *state.parameters]


def norms(walk: Walk, step: int) -> dict[str, Any]:
    """All parameters at a glance, in a step of a training walk that has ended: for each `name` the
    `value`, `gradient` and `update` norms and `ratio`, the update's to the value's; and `dead`, the
    share of hidden units that are 0 for every example of the batch (None without such a layer).

    Raises UsageError for a step that has not ended, and for another map.
    """
    if walk.process.map != "training":
        raise UsageError(
            "generating changes no parameter: norms are of the training map, m goes there"
        )
    if not 1 <= step <= walk.ended_step:
        raise UsageError(
            "norms are of a training step that has ended: go on to the next step first"
        )
    if walk.record("gradients.norm", step) is None:
        raise UsageError("there is no loss here, so that nothing has a gradient or moves")
    rows = []
    for name in walk.process.parameters:
        old = walk.fetch(f"parameters.{name}", step - 1)
        new = walk.fetch(f"parameters.{name}", step)
        gradient = walk.fetch(f"gradients.{name}", step)
        value, change = norm_of(old), norm_of(new.double() - old.double())
        ratio = change / value if value else float("nan")
        rows.append(
            {
                "name": name,
                "value": value,
                "gradient": norm_of(gradient),
                "update": change,
                "ratio": ratio,
            }
        )
    return {"step": step, "rows": rows, "dead": dead_share(walk, step)}


def norm_of(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().double()))


def dead_share(walk: Walk, step: int) -> float | None:
    """The share of units of the ReLU layer that pass nothing on, whatever the example."""
    if walk.record("hidden", step) is None:
        return None
    hidden = walk.fetch("hidden", step).detach()
    return float((hidden.flatten(0, -2) == 0).all(0).double().mean())
