"""The steps of a training that is a run: driven as any process, and told of when they end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.processes import Process, Snapshot
from engine.states import State, States
from engine.training.trainer import Training

KEPT = ("batch.y", "loss", "gradients.norm", "validation")  # what a line is made of
Figure = tuple[str, str]  # a function of all cells of a state, and the state
FIGURES: dict[str, Callable[[Tensor], float]] = {
    "norm": lambda cells: float(torch.linalg.vector_norm(cells)),
    "mean": lambda cells: float(cells.mean()),
    "std": lambda cells: float(cells.std(correction=0)),
    "largest": lambda cells: float(cells.max()),
    "smallest": lambda cells: float(cells.min()),
    "nonfinite": lambda cells: float((~cells.isfinite()).sum()),
}


class NotFinite(Exception):
    """The loss or the gradients of a step are not finite numbers; its update was not made."""

    def __init__(self, step: int, sentence: str):
        super().__init__(sentence)
        self.step = step


@dataclass
class Ended:
    """A step, told of when it has ended: its line of metrics, and what breakpoints asked of its
    states. `seen` has the states that the line is made of."""

    row: dict[str, float | None]
    figures: dict[Figure, float] = field(default_factory=dict)
    seen: dict[str, State] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    took: float | None = None  # seconds, without the validation

    def number(self, name: str) -> float:
        return float(self.seen[name].value.item()) if name in self.seen else math.nan


class Steps:
    """A training, or one with edits, whose steps are told of. A process: drained or walked.

    on_end    is told of each step that has ended
    last      the number of the last step
    checks    whether a loss or gradient norm that is not finite withholds the update
    walked    whether somebody walks: such a step then ends before its update, and is told of when
              it has ended; else it is given up (NotFinite), to be walked
    names     of the states of a step, once one was made
    wanted    which figures are read of the states that pass
    measures  whether the next step's update ratios are read, into `ratios`
    """

    map = "training"

    def __init__(
        self,
        training: Training,
        process: Process,
        on_end: Callable[[Ended], None],
        last: int,
        checks: bool = True,
    ):
        self.training = training
        self._process = process
        self._on_end = on_end
        self.last = last
        self.checks = checks
        self.walked = False
        self.names: tuple[str, ...] = ()
        self.wanted: frozenset[Figure] = frozenset()
        self.measures = False
        self.ratios: dict[str, Any] | None = None
        self.parameters = process.parameters
        self.axes = process.axes

    def states(self, step: int) -> States:
        if step == 0:
            return (yield from self._process.states(0))
        ended = Ended({"step": step})
        loss = yield from self._made(step, ended)
        self._fill(step, ended)
        self._on_end(ended)
        return loss

    def _made(self, step: int, ended: Ended) -> States:
        """The states as they are made; keeps what is told of the step."""
        states = self._process.states(step)
        before: dict[str, Tensor] = {}
        names: list[str] | None = None if self.names else []
        try:
            state = next(states)
            while True:
                if state.name == "validation":
                    ended.took = time.perf_counter() - ended.began
                state = yield state
                if state.name in KEPT:
                    ended.seen[state.name] = state
                if self.wanted:
                    self._read(state, ended.figures)
                if names is not None:
                    names.append(state.name)
                if state.name == "gradients.norm":
                    if self.checks and self._is_bad(step, ended):
                        states.close()
                        self._process.restore(self._process.snapshot(step))  # it counts as a step
                        return ended.seen["loss"]
                    if self.measures:
                        before = {n: p.detach().clone() for n, p in self.parameters.items()}
                state = states.send(state)
        except StopIteration as stop:
            self.names = self.names or tuple(names or ())
            self._measure(step, before)
            return stop.value

    def _is_bad(self, step: int, ended: Ended) -> bool:
        """Whether the update is not to be made. Raises NotFinite where nobody walks."""
        bad = [name for name in ("loss", "gradients.norm") if not math.isfinite(ended.number(name))]
        if bad and not self.walked:
            told = " and ".join(f"{name} is {ended.number(name)}" for name in bad)
            raise NotFinite(step, f"{told} at step {step}")
        return bool(bad)

    def _read(self, state: State, figures: dict[Figure, float]) -> None:
        for function, name in self.wanted:
            if name == state.name and isinstance(state.value, Tensor):
                figures[function, name] = FIGURES[function](state.value.detach().double())

    def _fill(self, step: int, ended: Ended) -> None:
        """The line of metrics of a step."""
        took = ended.took or time.perf_counter() - ended.began
        targets = ended.seen["batch.y"].value.numel()
        ended.row |= {
            "loss": ended.number("loss"),
            "lr": self.training.rule_at(step).lr,
            "grad_norm": ended.number("gradients.norm"),
            "targets_per_second": targets / took,
            "time": time.time(),
        }
        if "validation" in ended.seen:
            ended.row["val_loss"] = ended.number("validation")

    def _measure(self, step: int, before: dict[str, Tensor]) -> None:
        """How far each parameter has moved, as a share of its size: norm of change / norm."""
        if not before:
            return
        self.measures = False
        rows = []
        for name, old in before.items():
            size = float(torch.linalg.vector_norm(old))
            change = float(torch.linalg.vector_norm(self.parameters[name].detach() - old))
            if size > 0 and math.isfinite(change / size):
                rows.append([name, change / size])
        self.ratios = {"step": step, "rows": rows}

    # --- the rest of a process ----------------------------------------------------------------

    @property
    def model(self) -> Any:
        return getattr(self._process, "model", None)

    def ended(self, step: int) -> str | None:
        return f"all {self.last} steps are done" if step >= self.last else None

    def snapshot(self, step: int) -> Snapshot:
        return self._process.snapshot(step)

    def restore(self, snapshot: Snapshot) -> None:
        self._process.restore(snapshot)

    def replica(self) -> Process:
        """The same steps on other tensors, which nobody is told of."""
        return self._process.replica()

    def apart(self) -> Process:
        return self._process.apart()

    def parameter_names(self) -> dict[int, str]:
        return self._process.parameter_names()
