"""Checkpoints in this project's own form: a folder with config.json, model.safetensors,
tokenizer.json and card.md. Some ship with it. Knows no tensors, so that the screen can list them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.service.options import Options

SAVED = "checkpoint:"  # what the name of one that ships begins with
FORMAT = "tensorstep-1"
CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "card.md"
# they lie beside the package `engine`, in a checkout as in an installed wheel
SHIPPED_IN = Path(__file__).resolve().parents[2] / "checkpoints"
SHIPPED = ("transformer", "four-heads", "one-head", "mlp", "characters")
# what the weights fix: with another of these they would not fit, or mean something else
FIXED = ("model", "tokenizer", "context", "width", "hidden", "heads", "blocks")
TEXTS = ("sentence", "text", "lines", "corpus", "documents")  # where its texts come from
TOKENS = 60  # of a text that it writes, at the most, unless another number is asked for


@dataclass(frozen=True)
class Saved:
    """A checkpoint of our own.

    title    what it is, in a few words
    corpus   the name of the texts that trained it
    steps    of training behind it
    options  of the walk that it was trained by
    prompt   a text that it continues well
    sha256   of its other files, by name
    """

    folder: Path
    title: str
    corpus: str
    steps: int
    options: dict[str, Any]
    prompt: str | None
    sha256: dict[str, str]

    def content(self, name: str) -> bytes:
        """One of its files. Raises TensorstepError where it is not the one that was written."""
        path = self.folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TensorstepError(
                f"{str(path)!r} cannot be read ({error.strerror}): export the checkpoint anew"
            ) from None
        import hashlib  # which the first frame does without

        if hashlib.sha256(content).hexdigest() != self.sha256.get(name):
            raise TensorstepError(
                f"{str(path)!r} is not the file that its {CONFIG} was written with: export the"
                " checkpoint anew"
            )
        return content

    def options_with(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options of a walk of it, with those that are given in place of its own. Raises
        UsageError for one that its weights do not leave open."""
        for name in FIXED:
            if name in given and given[name] != self.options.get(name):
                raise UsageError(
                    f"--{name} {given[name]} does not fit: the checkpoint {self.title!r} has its"
                    f" own; train a model of that kind with `tensorstep train --{name}`"
                )
        own = {**self.options, "prompt": self.prompt, "tokens": TOKENS, "train_steps": 0}
        if {"sentence", "text", "corpus"} & set(given):
            own = {k: v for k, v in own.items() if k not in TEXTS}
        if given.get("optimizer", own.get("optimizer")) != own.get("optimizer"):
            own = {k: v for k, v in own.items() if k not in ("momentum", "weight_decay")}
        return {**own, **given, "tokenizer": str(self.folder / TOKENIZER)}


def saved_in(opened: str) -> Saved | None:
    """The checkpoint of our own that `checkpoint:NAME` or a folder means; None where it is
    something else. Raises TensorstepError for one that is not there, or damaged."""
    if opened.startswith(SAVED):
        name = opened.removeprefix(SAVED)
        if name not in SHIPPED:
            raise UsageError(f"there is no checkpoint {name!r}: use {', '.join(SHIPPED)}")
        return read(SHIPPED_IN / name)
    if "\0" in opened or not os.path.isfile(os.path.join(opened, CONFIG)):
        return None
    return read(Path(opened), only_ours=True)


def read(folder: Path, only_ours: bool = False) -> Saved | None:
    """What a folder's config.json says; None where it is of another kind of checkpoint, and that
    is allowed."""
    place = repr(str(folder / CONFIG))
    try:
        values = json.loads((folder / CONFIG).read_bytes())
    except OSError as error:
        raise TensorstepError(f"{place} cannot be read ({error.strerror}): check it") from None
    except (ValueError, RecursionError):
        if only_ours:
            return None  # who reads other kinds tells what is wrong
        raise TensorstepError(f"{place} is no JSON: install tensorstep anew") from None
    if not isinstance(values, dict) or "format" not in values:
        return None
    if values["format"] != FORMAT:
        raise TensorstepError(
            f"{place} is of the format {str(values['format'])[:40]!r}, and {FORMAT!r} is read here:"
            " take the tensorstep that wrote it"
        )
    try:
        options = Options.from_json(values["options"])
        without = {k: v for k, v in values["options"].items() if k not in TEXTS}
        Options.from_json(without).check()  # the texts may be gone
        kept = {k: v for k, v in options.to_json().items() if k in values["options"]}
        title, corpus = str(values["title"]), str(values["facts"]["corpus"])
        steps, sums = int(values["steps"]), dict(values["sha256"])
        return Saved(folder, title, corpus, steps, kept, values.get("prompt"), sums)
    except (AttributeError, KeyError, TypeError, UsageError, ValueError):
        raise TensorstepError(f"{place} is damaged: export the checkpoint anew") from None


def config_of(saved: Saved, sums: dict[str, str], facts: dict[str, Any]) -> bytes:
    """The bytes of config.json: what `read` reads, the SHA-256 of other files, and facts for
    whoever looks."""
    values = {
        "format": FORMAT,
        "title": saved.title,
        "steps": saved.steps,
        "prompt": saved.prompt,
        "options": saved.options,
        "sha256": sums,
        "facts": facts,
    }
    return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()
