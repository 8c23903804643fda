"""A worker whose states are large tensors, for `benchmarks.terminal`."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from engine.ops import given
from engine.processes import Snapshot
from engine.service import worker
from engine.service.desk import Desk
from engine.service.line import Answer
from engine.states import States
from engine.walk import Walk

WORDS = 50_257
SHAPES = {
    "logits": (("B", "C"), (64, 4000)),
    "scores": (("H", "T", "S"), (12, 1024, 1024)),
    "probabilities": (("1", "T", "C"), (1, 256, WORDS)),
}


class Shelf:
    """A process of one step, whose states are there already."""

    map = "training"
    axes: dict[str, tuple[str, ...]] = {}
    parameters: dict[str, Tensor] = {}

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.made = {name: torch.randn(shape) for name, (_, shape) in SHAPES.items()}

    def states(self, step: int) -> States:
        yield given("stories", ["large tensors"], ("N",), "drawn by chance", step=0)
        for name, (axes, _) in SHAPES.items():
            yield given(name, self.made[name], axes, "drawn by chance", role="activation", step=0)
        return None

    def ended(self, step: int) -> str | None:
        return "there is no more"

    def snapshot(self, step: int) -> Snapshot:
        return Snapshot(step, {})

    def restore(self, snapshot: Snapshot) -> None:
        """Nothing changes."""

    def replica(self) -> Shelf:  # nothing changes, so that one is enough
        return self

    def apart(self) -> Shelf:
        return self

    def parameter_names(self) -> dict[int, str]:
        return {}


class LargeDesk(Desk):
    """Answers for the shelf, whatever it is asked to open."""

    def open(self, options: dict[str, Any]) -> Answer:
        walk = Walk(Shelf())
        while walk.forward():
            pass
        walk.seek(0)
        tokens = [f"token{i}" for i in range(WORDS)]
        self._session = SimpleNamespace(
            walk=lambda *_, **__: walk,
            edits=lambda *_: [],
            prepared=SimpleNamespace(tokenizer=SimpleNamespace(itos=tokens)),
        )
        return {"corpus": "large", "note": "", "trained": None}


def screen() -> int:
    """The screen over such a worker."""
    from engine.service.client import Client
    from engine.service.options import Options
    from tui.cli import set_up_textual

    set_up_textual()
    from tui.app import Tensorstep

    command = (sys.executable, "-m", "benchmarks.large_worker", "worker")
    app = Tensorstep(Options(), client=Client(command))
    return app.run(mouse=False) or 0


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        setattr(worker, "Desk", LargeDesk)  # noqa: B010 (a class is put in another's place)
        worker.main()
    else:
        sys.exit(screen())
