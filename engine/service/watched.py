"""A step of a loop that is not ours, frozen while it stands still: to be walked as any other, and
what its screens are answered."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from engine.edits import Edit
from engine.errors import UsageError
from engine.follow import norm_of
from engine.maps import MODULE, TRAINING
from engine.ops import given
from engine.ops.gradients import total_norm
from engine.processes import Process, Snapshot
from engine.service.desk import Desk
from engine.service.line import Answer
from engine.service.recording import Recording, local
from engine.states import Axes, State, States
from engine.walk import Walk

NEVER = 2**62  # bytes: what is frozen is held anyway, and cannot be made again
ENDS = "the next step is made by your own loop: resume it, and pause again"
ONLY_LOOKED_AT = "a loop of your own is only looked at: edit and follow runs of tensorstep train"


class Before(Snapshot):
    """What stood before the frozen step: the names of all parameters, and those that were kept."""

    def __init__(self, step: int, names: tuple[str, ...], kept: dict[str, Tensor]):
        super().__init__(step, {}, kept)
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


class FrozenStep:
    """One step, as a process that has only this one.

    parameters  the stored ones, as they stand now
    """

    map = TRAINING

    def __init__(
        self, step: int, loss: float | None, model: nn.Module, optimizer: Any, recording: Recording
    ):
        self.step = step
        self.loss = torch.tensor(float("nan") if loss is None else loss, dtype=torch.float64)
        self.recording = recording
        self.optimizer = optimizer
        self._named = dict(model.named_parameters())
        self.parameters = {name: local(value) for name, value in self._named.items()}
        self.axes = {name: axes_of(value) for name, value in self.parameters.items()}

    def states(self, step: int) -> States:
        if step != self.step:
            raise UsageError(f"step {step} was not kept: the loop stands still at step {self.step}")
        for name, module, value in self.recording.activations:
            said = f"what {module} gave: code that is not ours, whose cells cannot be taken apart"
            yield tensor(f"modules.{name}", value, said, "activation")
        yield tensor("loss", self.loss, "the loss that was handed to run.step", "activation")
        gradients = []
        for name, value in self.recording.gradients.items():
            said = f"d loss / d {name}, as the optimizer got it"
            gradients.append((yield tensor(f"gradients.{name}", value, said, "gradient")))
        if gradients:
            yield total_norm("gradients.norm", gradients)
        yield from self._kept()

    def _kept(self) -> States:
        """What the optimizer keeps for each parameter, cell by cell."""
        state = getattr(self.optimizer, "state", {})
        for name, parameter in self._named.items():
            for key, value in state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    said = f"{key}, which {type(self.optimizer).__name__} keeps for {name}"
                    whole = f"optimizer.{name}.{key}"
                    yield tensor(whole, local(value), said, "optimizer")

    def ended(self, step: int) -> str | None:
        return ENDS if step >= self.step else None

    def snapshot(self, step: int) -> Snapshot:
        if step >= self.step:
            return Snapshot(step, {}, named(self.parameters))
        return Before(step, tuple(named(self.parameters)), named(self.recording.before))

    def restore(self, snapshot: Snapshot) -> None:
        pass

    def replica(self) -> Process:
        return self

    def apart(self) -> Process:
        raise UsageError(ONLY_LOOKED_AT)

    def parameter_names(self) -> dict[int, str]:
        return {id(value): name for name, value in self.parameters.items()}

    def walk(self, losses: list[float]) -> Walk:
        """The walk of this step, at its first state; `losses` are those of the steps before."""
        walk = Walk.at(self, self.step, losses, NEVER)
        walk.finish_step()
        return walk


def named(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"parameters.{name}": value for name, value in parameters.items()}


def axes_of(value: Tensor) -> Axes:
    """One letter a dimension: what they mean, only whoever wrote the model knows."""
    return ("N",) * value.dim()


def tensor(name: str, value: Tensor, sentence: str, role: str) -> State:
    plain = sentence.replace("{", "{{").replace("}", "}}")
    return given(name, value, axes_of(value), plain, role=role)


class WatchedSession:
    """The one walk there is while the loop stands still, as a desk asks for it."""

    tell = None
    prepared = SimpleNamespace(tokenizer=SimpleNamespace(itos=()))

    def __init__(self) -> None:
        self.stands: Walk | None = None

    def walk(self, kind: str, model: str | None = None, original: bool = False) -> Walk:
        if (kind, model or MODULE) != (TRAINING, MODULE):
            raise UsageError(
                "of a loop of your own the step at which it stands still can be walked, on the"
                " training map: there is no other map or model"
            )
        if self.stands is None:
            raise UsageError("the loop has not stood still yet: pause it first (space)")
        return self.stands

    def edits(self, kind: str, model: str) -> list[Edit]:
        return []

    def edit(self, kind: str, model: str, edit: Edit) -> None:
        raise UsageError(ONLY_LOOKED_AT)

    def undo(self, kind: str, model: str) -> Edit | None:
        raise UsageError(ONLY_LOOKED_AT)

    def follower(self, kind: str, model: str, name: str, cell: tuple[int, ...]) -> Any:
        raise UsageError(ONLY_LOOKED_AT)


class WatchedDesk(Desk):
    """Answers about the walk of a frozen step."""

    def __init__(self) -> None:
        super().__init__()
        self.session = self._session = WatchedSession()

    def open(self, options: Any = None) -> Answer:
        raise UsageError("a run is opened already: attach to it")

    @property
    def reader(self) -> Any:
        raise UsageError("the texts of a loop of your own are not known")

    def tokenize(
        self, text: str | int, names: list[str] | None = None, most: int | None = None
    ) -> Answer:
        return self.reader  # type: ignore[no-any-return]

    def norms(self, map: str, model: str, step: int) -> Answer:
        """The parameters at a glance that had a gradient, and were kept as they stood before the
        update: see `engine.follow.norms`."""
        walk = self._walk(map, model)
        frozen = walk.process
        rows = []
        for name, old in frozen.recording.before.items():
            if name not in frozen.recording.gradients:
                continue
            new = frozen.parameters[name]
            value, change = norm_of(old), norm_of(new.double() - old.to(new.device).double())
            row = {"name": name, "value": value, "update": change}
            row["gradient"] = norm_of(frozen.recording.gradients[name])
            row["ratio"] = change / value if value else float("nan")
            rows.append(row)
        return {"step": frozen.step, "rows": rows, "dead": None}
