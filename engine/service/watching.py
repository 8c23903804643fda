"""Three lines that watch a training loop that is not ours:

    with engine.watch(model, optimizer, name="mine") as run:
        for batch in data:
            ...
            run.step(loss)

The run is then among those of `tensorstep runs`, and can be attached to. Watching never raises into
the loop: what goes wrong is told in worker.log, and the loop goes on without being watched.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from engine.errors import TensorstepError


def watch(
    model: Any,
    optimizer: Any = None,
    name: str | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    steps: int | None = None,
) -> Watched:
    """Watch the loop that trains a model. Use it in a `with`, or call `close()` when it has ended.

    model      a torch.nn.Module; compiled and data-parallel ones are looked into
    optimizer  a torch.optim.Optimizer: without one there are no learning rates, gradient norms,
               gradients and optimizer states
    name       of the run; where it is taken, -2, -3, ... is added
    run_dir    its directory, in place of one in the folder of runs; the same is added
    steps      how many there will be, where that is known

    It never raises: after a mistake, said on stderr, and in every process but rank 0, the run that
    is handed out does nothing.
    """
    try:
        from engine.service.watched_loop import watched

        return watched(model, optimizer, name, run_dir, steps)
    except Exception as error:
        told = isinstance(error, TensorstepError)
        said = str(error) if told else f"{type(error).__name__}: {error}"
        print(f"tensorstep: this loop is not watched: {said}", file=sys.stderr)
    return Watched()


class Watched:
    """A loop and whoever watches it; this one nobody does."""

    @property
    def stopping(self) -> bool:
        """Whether somebody has asked the loop to end: `if run.stopping: break`."""
        return False

    def step(
        self, loss: Any = None, *, targets: float | None = None, grad_norm: Any = None
    ) -> None:
        """A step of the loop has ended.

        loss       a number or a tensor of one, on any device, with or without a graph
        targets    how many the loss is of, to tell how many are learnt from in a second
        grad_norm  where the loop knows it, as from clip_grad_norm_; else it is measured, of the
                   gradients as the optimizer gets them, now and then (at every step while a screen
                   is attached)

        A run that was paused stands still in here, as long as a screen is attached; other ranks
        wait for it. The step before, `step` has the iteration recorded: each submodule's output,
        the gradients and the parameters are copied, and what torch.compile has made is not used.
        While a breakpoint stands and a screen is attached, every iteration is recorded.
        """

    def close(self) -> None:
        """The loop has ended."""

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
