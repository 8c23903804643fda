"""What a training run is started with. Knows no tensors, so that the screen can check it first."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from engine.errors import UsageError
from engine.runs.schedules import Schedule, schedule_of
from engine.service.options import Options

CORPUS = "storybook"
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "bf16", "float64")
# the protocol of the measured experiment: the same for all models but for learning rate and decay
PROTOCOL: dict[str, Any] = {
    "context": 64,
    "width": 64,
    "hidden": 256,
    "heads": 4,
    "batch": 512,
    "optimizer": "adamw",
    "clip": 1.0,
}
RATES = {"mlp": (0.001, 0.0001), "attention": (0.003, 0.001), "multihead": (0.003, 0.001)}
# what may be another when a run is resumed: it changes no number of the steps that follow
FREE = ("steps", "eval_every", "checkpoint_every", "keep_every", "sample_every", "breaks")


@dataclass(frozen=True)
class RunOptions:
    """Everything a training run is made from.

    walk              documents, model, batches, optimizer: the options of a walk
    steps             optimizer steps in all
    schedule          of the learning rate: see `engine.runs.schedules`
    eval_every        every how many steps there is a validation; 0: never
    eval_windows      on the first of so many validation windows
    checkpoint_every  every how many steps a checkpoint is saved
    keep_every        of these, one of every so many steps stays for good; 0: none
    sample_every      every how many steps a text is sampled; 0: never
    device, dtype     where it is computed, and in which type of number
    breaks            conditions that pause it
    nonfinite         whether a loss or gradient norm that is not finite pauses it
    edits             cells that are set in a step, as they are written
    """

    walk: Options = field(default_factory=Options)
    steps: int = 6000
    schedule: str = "constant"
    eval_every: int = 750
    eval_windows: int = 20_000
    checkpoint_every: int = 100
    keep_every: int = 0
    sample_every: int = 750
    device: str = "auto"
    dtype: str = "float32"
    breaks: tuple[str, ...] = ()
    nonfinite: bool = True
    edits: tuple[str, ...] = ()

    @classmethod
    def by_protocol(cls, given: dict[str, Any], **run: Any) -> RunOptions:
        """The protocol's options, with what was given of a walk's in their place."""
        model = given.get("model", Options.model)
        lr, decay = RATES.get(model, RATES["attention"])
        values = {**PROTOCOL, "lr": lr, **given}
        if values["optimizer"] == "adamw":
            values.setdefault("weight_decay", decay)
        if not {"sentence", "text", "corpus"} & set(given):
            values["corpus"] = CORPUS
        if values.get("rows") is not None and "batch" not in given:
            values.pop("batch")
        values = placed(values)
        return cls(walk=Options.from_json(values), **run)

    def check(self) -> RunOptions:
        """Itself. Raises UsageError for what can be seen to be wrong before anything is made."""
        from engine.runs.conditions import condition_of

        self.walk.check()
        if self.steps < 1:
            raise UsageError(f"--steps {self.steps} trains nothing: give 1 or more")
        for name in ("eval_every", "keep_every", "sample_every"):
            if getattr(self, name) < 0:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} {getattr(self, name)} is too small: give 0 or more")
        if self.checkpoint_every < 1:
            raise UsageError(
                f"--checkpoint-every {self.checkpoint_every} is too small: give 1 or more"
            )
        if self.device not in DEVICES:
            raise UsageError(f"no device is called {self.device!r}: use {', '.join(DEVICES)}")
        if self.dtype not in DTYPES:
            raise UsageError(f"no type is called {self.dtype!r}: use {', '.join(DTYPES)}")
        self.scheduled()
        for text in self.breaks:
            condition_of(text)
        return self

    def scheduled(self) -> Schedule:
        return schedule_of(self.schedule, self.steps)

    def resumed_with(self, given: dict[str, Any]) -> RunOptions:
        """These options with other ones that change no number. Raises UsageError, naming the
        option, for one that would."""
        own = {**self.walk.to_json(), **self.to_json()}
        for name, value in placed(given).items():
            if name not in FREE and own.get(name) != value:
                raise UsageError(
                    f"{as_given(name, value)} would change the numbers: the run was started with"
                    f" {as_given(name, own.get(name))}; start a new run with it"
                )
        changed = replace(self, **{name: given[name] for name in FREE if name in given})
        if changed.steps != self.steps and self.scheduled().steps is not None:
            raise UsageError(
                f"--steps {changed.steps} would change the numbers: the schedule"
                f" {self.schedule!r} falls until step {self.steps}; start a new run with it"
            )
        return changed.check()

    def to_json(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "walk": asdict(self.walk)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunOptions:
        known = {each.name for each in dataclasses.fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        kept["walk"] = Options.from_json(kept["walk"])
        for name in ("breaks", "edits"):
            kept[name] = tuple(kept.get(name, ()))
        return cls(**kept)


def as_given(name: str, value: Any) -> str:
    """An option as a user writes it."""
    if (name, value) == ("clip", None):
        return "--no-clip"
    if name == "nonfinite":
        return "a stop at numbers that are not finite" if value else "--no-break-on-nonfinite"
    return f"--{name.replace('_', '-')} {value}"


def placed(values: dict[str, Any]) -> dict[str, Any]:
    """Options with the whole paths of files: the process that trains starts elsewhere."""
    there = {
        name: os.path.abspath(values[name])
        for name in ("text", "corpus", "tokenizer")
        if values.get(name) is not None and os.path.exists(values[name])
    }
    return {**values, **there}
