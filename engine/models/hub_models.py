"""Models of the Hugging Face hub: the few files that are needed, kept in the hub's own cache."""

from __future__ import annotations

import errno
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.data.hub import HubFailed, first_line, is_reachable
from engine.errors import TensorstepError
from engine.progress import OFTEN, Tell

ID = re.compile(r"(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[\w][\w./-]*))?")
WANTED = [
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
]
MB = 10**6
PICKLED = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]  # where there is nothing better
UNWANTED = ["*/*", "consolidated*"]  # other forms of the same weights


@dataclass(frozen=True)
class HubModel:
    """A model of the hub: owner/name, and which version of it."""

    id: str
    revision: str | None


def parse_hub_model(where: str) -> HubModel | None:
    """`owner/name[@revision]`, read; None for anything else."""
    found = ID.fullmatch(where)
    return None if found is None else HubModel(found["id"], found["revision"])


def fetch(model: HubModel, tell: Tell | None = None) -> Path:
    """The folder of a model's files, which are fetched where they are not kept yet.

    Raises TensorstepError where the hub cannot be reached and nothing was kept, or where it has no
    such model.
    """
    online = is_reachable()
    if tell is not None:
        tell(f"asking the hub for {model.id}" if online else f"looking for {model.id}", 0, None)
    try:
        folder = snapshot(model, WANTED, online, tell)
        if any(folder.glob("*.safetensors")):
            return folder
        return snapshot(model, [*WANTED, *PICKLED], online, tell)
    except OSError as error:  # what the hub and the network raise is one, too
        raise told(model, error, online) from None
    except Exception as error:  # the hub's own errors
        raise TensorstepError(
            f"{model.id!r} of the hub cannot be fetched ({first_line(error)}): check its name, or"
            " give a folder"
        ) from None


def snapshot(model: HubModel, wanted: list[str], online: bool, tell: Tell | None) -> Path:
    """The folder of those files of a model, as the hub's library keeps them."""
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            model.id,
            revision=model.revision,
            allow_patterns=wanted,
            ignore_patterns=UNWANTED,
            local_files_only=not online,
            tqdm_class=teller(model.id, tell),
        )
    )


def teller(id: str, tell: Tell | None) -> Any:
    """In the place of the hub's bars, which would be drawn over the screen: tells of the bytes."""
    from huggingface_hub.utils.tqdm import tqdm

    last = 0.0

    class Told(tqdm):
        def __init__(self, *of: Any, **how: Any):
            self.is_of_bytes = how.get("unit") == "B"
            how["disable"] = True  # nothing is drawn
            super().__init__(*of, **how)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            nonlocal last
            if tell and self.is_of_bytes and self.total and time.monotonic() - last > OFTEN:
                last = time.monotonic()
                tell(f"fetching {id} (MB)", int(self.n / MB), int(self.total / MB))

    return Told


def told(model: HubModel, error: OSError, online: bool) -> TensorstepError:
    """What went wrong with the hub, as one sentence."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TensorstepError(f"there is no room for {model.id!r} on the disk: make room")
    if not online:
        return HubFailed(
            f"{model.id!r} is no folder here, the hub cannot be reached and the model was never"
            " fetched: connect to the network once, or give a folder"
        )
    if isinstance(error, GatedRepoError):
        return HubFailed(f"{model.id!r} is locked: ask for access on the hub, and log in to it")
    if isinstance(error, RevisionNotFoundError):
        return HubFailed(f"{model.id!r} has no revision {model.revision!r}: name another")
    if isinstance(error, RepositoryNotFoundError):
        return HubFailed(
            f"{model.id!r} is neither a folder here nor a model of the hub: check the name"
        )
    return HubFailed(
        f"the hub does not give {model.id!r} ({first_line(error)}): check the network and the name,"
        " or give a folder"
    )
