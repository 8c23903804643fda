"""What a run holds: its documents, its training, and walks of that while it stands still."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from typing import Any

import torch

from engine.data.split import VALIDATION
from engine.edits import Edit, check_edit
from engine.errors import TensorstepError, UsageError
from engine.generation.decoding import SeededDraws
from engine.generation.generator import Generation, generate
from engine.maps import GENERATION, TRAINING
from engine.models import StatesModel
from engine.processes import Process, Snapshot
from engine.progress import Tell
from engine.service.run_options import RunOptions
from engine.service.session import Session, budget_for
from engine.service.steps import Steps
from engine.states import drain
from engine.training.trainer import Training
from engine.walk import Walk
from engine.whatif import EditedProcess

TYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16}


class RunSession(Session):
    """A session over the training of a run. Its walks begin where that stands.

    steps  the training's steps, once there are any
    """

    steps: Steps

    def __init__(self, options: RunOptions, tell: Tell | None = None):
        super().__init__(options.walk, tell)
        self.run = options
        self.device = device_named(options.device)

    def process(self, edits: tuple[Edit, ...]) -> tuple[Training, Process]:
        """The training, and what is driven: the same, or with the edits that were asked for.

        Raises UsageError for an edit that cannot be made.
        """
        training = self.training(self.options.model)
        if not edits:
            return training, training
        walk = Walk(training.replica())
        for edit in edits:
            walk.seek(edit.step and 1)
            if not edit.is_parameter:
                walk.seek(1, edit.name)
            record = walk.record(edit.name, edit.step and 1)
            if record is None:
                raise UsageError(f"no state of a step is called {edit.name!r}: mend --set")
            check_edit(edit, record, len(self.prepared.tokenizer))
        return training, EditedProcess(training, edits)

    def training(self, model: str, keep_gradients: bool = False) -> Training:
        made = super().training(model, keep_gradients)
        held_out = self.measured_for(model, VALIDATION, self.run.eval_windows)
        data = replace(made.data, held_out=held_out)
        schedule = self.run.scheduled()
        moved = made.model.to(self.device, TYPES[self.run.dtype])
        return Training(
            moved,
            data,
            made.batches,
            made.rule,
            keep_gradients,
            self.run.eval_every,
            made.clip,
            schedule.factor,
        )

    def restored(self, snapshot: Snapshot) -> StatesModel:
        """The model with the parameters of a checkpoint of this run."""
        made = self.training(self.options.model)
        with torch.no_grad():
            for name, parameter in made.parameters.items():
                parameter.copy_(snapshot.tensors[f"parameters.{name}"])
        return made.model.eval()

    # --- walks --------------------------------------------------------------------------------

    def open_walk(self, step: int, losses: list[float]) -> Walk:
        """The walk of the step that comes next, made by the training itself."""
        self.steps.walked = True
        self.steps.training.keep_gradients = True
        walk = Walk.at(self.steps, step, losses, budget_for(self.steps))
        self._walks[TRAINING, self.options.model] = walk
        return walk

    def close_walk(self, finish: bool = True) -> None:
        """Nothing is left of any walk. The step in progress is finished, or, where it is not to be
        and its update has not begun, given up: it has changed nothing."""
        walk = self._walks.get((TRAINING, self.options.model))
        self._walks.clear()
        self._edited.clear()
        self._edits.clear()
        self._followers.clear()
        if walk is not None:
            walk.may_go_on = True
            names = (record.name for record in walk.records(walk.frontier))
            if finish or any(name.startswith("update.") for name in names):
                walk.finish_step()
        self.steps.walked = False
        self.steps.training.keep_gradients = False

    def _process(self, kind: str, model: str) -> Process:
        if model != self.options.model:
            raise UsageError(
                f"this run trains {self.options.model!r}: open {model!r} in a walk of its own"
            )
        if kind == GENERATION:
            return self.generation(model)
        raise UsageError(f"there is no {kind} map of a run that goes on")

    def generation(self, model: str) -> Generation:
        """Generation with the parameters as they stand, on a copy."""
        own = copy.deepcopy(self.steps.training.model).to("cpu", torch.float32)
        prompt = self.options.prompt
        return self.generating(own, self.first_words() if prompt is None else prompt, cache=False)

    def sample(self, tokens: int) -> dict[str, Any]:
        """A text that the model writes as it stands: `prompt` and `text`."""
        own = copy.deepcopy(self.steps.training.model).to("cpu", torch.float32)
        prompt, tokenizer = self.options.prompt or "", self.prepared.tokenizer
        draws = SeededDraws(self.options.seed)
        generation = Generation(own, tokenizer, prompt, tokens, draws)
        drain(generate(generation))
        return {"prompt": prompt, "text": tokenizer.decode(generation.ids[generation.given :])}

    def data_sha256(self) -> str:
        """Of all that is learnt from: the same IDs make the same batches."""
        digest = hashlib.sha256()
        for side in sorted(self.prepared.streams):
            stream = self.prepared.streams[side]
            for part in (stream.ids, stream.starts):
                digest.update(part.numpy().tobytes())
        return digest.hexdigest()


def device_named(name: str) -> torch.device:
    """A device by its name; auto is the fastest there is. Raises TensorstepError where there is
    none such."""
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if there[each]))
    if not there.get(name):
        usable = ", ".join(each for each, is_there in there.items() if is_there)
        raise TensorstepError(f"there is no {name} here: give --device {usable}, or auto")
    return torch.device(name)
