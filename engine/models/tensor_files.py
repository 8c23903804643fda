"""The tensors of a folder: of safetensors files, mapped into memory, or of a pytorch_model.bin.

Nothing is read until it is used, and a change of a tensor never reaches its file.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import TensorstepError
from engine.models.published import Fields

ONE, INDEX, PICKLED = "model.safetensors", "*.safetensors.index.json", "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"
POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Found:
    """Tensors by name, and what there is to tell about where they come from."""

    tensors: dict[str, Tensor]
    note: str = ""


def read_tensors(folder: Path) -> Found:
    """All tensors of a folder: of model.safetensors, of the files that an index names, of the only
    safetensors file, or of pytorch_model.bin, which may be in several files, too.

    Raises TensorstepError where they are missing or damaged.
    """
    if (folder / ONE).exists():
        return Found(read_safetensors(folder / ONE))
    indexes = sorted(folder.glob(INDEX))
    if len(indexes) == 1:
        return Found(read_shards(indexes[0], ".safetensors", read_safetensors))
    files = sorted(folder.glob("*.safetensors"))
    if len(indexes) > 1 or len(files) > 1:
        names = ", ".join(path.name for path in indexes or files)
        raise TensorstepError(
            f"{str(folder)!r} holds {names}, and nothing says which belong together: leave one, or"
            " give model.safetensors.index.json"
        )
    if files:
        return Found(read_safetensors(files[0]))
    note = "its weights come from {}, of which nothing but tensors was loaded"
    if (folder / PICKLED).exists():
        return Found(read_pickled(folder / PICKLED), note.format(PICKLED))
    if (folder / PICKLED_INDEX).exists():
        tensors = read_shards(folder / PICKLED_INDEX, ".bin", read_pickled)
        return Found(tensors, note.format("the files of " + PICKLED_INDEX))
    raise TensorstepError(
        f"{str(folder)!r} holds no weights: put {ONE} there, or the files of"
        f" {INDEX.replace('*', 'model')}"
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file, mapped."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise missing(path) from None
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise TensorstepError(
            f"{str(path)!r} {trouble(path, error)}: fetch the file again"
        ) from None


def missing(path: Path) -> TensorstepError:
    return TensorstepError(
        f"{path.name!r} is missing in {str(path.parent)!r}: fetch it, or the model again"
    )


def trouble(path: Path, error: Exception) -> str:
    """What is wrong with a file that could not be read."""
    try:
        with path.open("rb") as file:
            start = file.read(len(POINTER))
    except OSError as cause:
        return f"cannot be read ({cause.strerror})"
    if start == POINTER:
        return "is a pointer of Git LFS, not the file itself"
    return f"is damaged or incomplete ({first_line(error)})"


def read_shards(
    index: Path, ending: str, read: Callable[[Path], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The tensors of all files that an index names."""
    fields = Fields.read(index)
    places = fields.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise fields.wrong("weight_map", "give an object of tensors and their files")
    tensors: dict[str, Tensor] = {}
    for name in dict.fromkeys(map(str, places.values())):
        if Path(name).name != name or not name.endswith(ending) or "\0" in name:
            raise TensorstepError(
                f"{str(index)!r} names {name[:80]!r}, which is no {ending} file beside it: give"
                " the index that belongs to the files"
            )
        for key, tensor in read(index.parent / name).items():
            if key in tensors:
                raise TensorstepError(
                    f"{key!r} is in {name!r} and in another file that {str(index)!r} names: fetch"
                    " the model again"
                )
            tensors[key] = tensor
    for key, name in places.items():
        if key not in tensors:
            raise TensorstepError(
                f"{key!r} is not in {name!r}, where {str(index)!r} has it: fetch the model again"
            )
    return tensors


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote, mapped. Code in it is never run."""
    refused = TensorstepError(
        f"{str(path)!r} is refused, for it holds more than tensors or is damaged or older than"
        " torch 1.6: convert it to model.safetensors"
    )
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise missing(path) from None
    except (pickle.UnpicklingError, RuntimeError, ValueError, OSError, EOFError, KeyError):
        raise refused from None
    if not isinstance(loaded, dict):
        raise refused
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise refused
    return {name: value.detach() for name, value in loaded.items()}


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
