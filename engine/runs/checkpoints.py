"""Checkpoints: everything the next step starts from, in safetensors and JSON.

A checkpoint is a folder, `step-00000750`, that is written under another name, synced and renamed:
one that is there is whole. Its `state.json` has the SHA-256 of its tensors, which is checked when
they are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from engine.errors import TensorstepError
from engine.processes import Snapshot
from engine.runs import disk

FOLDER = re.compile(r"step-(\d{8,})")
TENSORS, STATE = "state.safetensors", "state.json"
RNG = "rng.torch"


@dataclass(frozen=True)
class Checkpoint:
    """One of a run's checkpoints.

    val_loss  of the step at which it stands, where that was validated
    """

    path: Path
    step: int
    val_loss: float | None


def save_checkpoint(folder: Path, snapshot: Snapshot, facts: dict[str, Any]) -> Checkpoint:
    """Write what a snapshot holds, the state of torch's random numbers, and facts about it.

    Raises OSError where the disk does not take it; nothing is left then.
    """
    tensors = {name: tensor.cpu().contiguous() for name, tensor in snapshot.tensors.items()}
    tensors[RNG] = torch.get_rng_state()
    content = save(tensors)
    state = {
        "step": snapshot.step,
        **facts,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    path = folder / f"step-{snapshot.step:08d}"
    written = (json.dumps(state, indent=1) + "\n").encode()
    disk.write_folder(path, {TENSORS: content, STATE: written})
    return Checkpoint(path, snapshot.step, facts.get("val_loss"))


def load_checkpoint(checkpoint: Checkpoint) -> tuple[Snapshot, dict[str, Any]]:
    """The snapshot and the facts; torch's random numbers go on from where they were.

    Raises TensorstepError where it is damaged.
    """
    try:
        state = json.loads((checkpoint.path / STATE).read_bytes())
        content = (checkpoint.path / TENSORS).read_bytes()
        if hashlib.sha256(content).hexdigest() != state["sha256"]:
            raise ValueError
        tensors = load(content)
        torch.set_rng_state(tensors.pop(RNG))
    except (OSError, ValueError, KeyError, TypeError):
        raise TensorstepError(
            f"the checkpoint {str(checkpoint.path)!r} is damaged: delete it, and the one before"
            " it is used, if there is one"
        ) from None
    return Snapshot(state["step"], tensors), state


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """All there are, by step."""
    found = []
    for path in folder.glob("step-*"):
        if FOLDER.fullmatch(path.name):
            try:
                state = json.loads((path / STATE).read_bytes())
                found.append(Checkpoint(path, int(state["step"]), state.get("val_loss")))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # damaged: `load_checkpoint` is never asked for it
    return sorted(found, key=lambda each: each.step)


def best_of(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The one with the lowest validation loss, the earlier of two."""
    validated = [each for each in checkpoints if each.val_loss is not None]
    return min(validated, key=lambda each: (each.val_loss, each.step), default=None)


def retain(folder: Path, every: int) -> None:
    """Delete checkpoints but the last, the best by validation, and those of every N steps."""
    found = checkpoints_in(folder)
    best = best_of(found)
    for each in found[:-1]:
        if each is not best and not (every and each.step % every == 0):
            doomed = each.path.with_name(f"{disk.PART}{each.path.name}")
            disk.rename(each.path, doomed)  # half-deleted it would look like one
            shutil.rmtree(doomed, ignore_errors=True)


def finite(value: float | None) -> float | None:
    """A validation loss as a checkpoint keeps it: one that is not finite is never the best."""
    return value if value is not None and math.isfinite(value) else None
