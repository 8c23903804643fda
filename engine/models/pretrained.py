"""Published models: a folder, or a name on the hub, as a decoder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from engine.errors import TensorstepError, UsageError
from engine.models.hub_models import fetch, parse_hub_model
from engine.models.layouts import LAYOUTS, Source, Sources, check_tensors, unwrapped
from engine.models.published import Fields, decoder_config
from engine.models.tensor_files import read_tensors
from engine.models.transformer import DecoderConfig, DecoderLM
from engine.progress import Meter, Tell
from engine.text.boundaries import Boundaries
from engine.text.loading import PAIRS, load_tokenizer
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import PAD
from engine.text.wider import WiderTokenizer

DTYPES = {
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Pretrained:
    """A model that was trained elsewhere.

    kind       gpt2, llama, mistral or qwen2
    tokenizer  None where its files are not there, or not of a kind that is read here
    bos_id     what its texts begin with; None where it does not say
    puts_bos   whether that stands before every prompt, as its tokenizer has it
    eos_ids    what may end them
    where      the folder or name on the hub, as it was given; `folder` is where the files are
    note       what there is to know about how it was loaded, a sentence a line; mostly empty
    """

    model: DecoderLM
    kind: str
    config: DecoderConfig
    tokenizer: Tokenizer | None
    bos_id: int | None
    puts_bos: bool
    eos_ids: tuple[int, ...]
    where: str
    folder: Path
    note: str = ""

    def boundaries(self, tokenizer: Tokenizer) -> Boundaries:
        """How its texts begin and end, by the tokenizer and by the files. Nothing is blocked: it
        may say whatever it says."""
        begin = self.bos_id if tokenizer.bos_id is None else tokenizer.bos_id
        if begin is not None and begin >= len(tokenizer):
            begin = None
        ends = {*self.eos_ids, *([] if tokenizer.eos_id is None else [tokenizer.eos_id])}
        return Boundaries(begin, self.puts_bos, ends, {}, spelt=True)


def load_pretrained(
    where: str,
    dtype: str | None = None,
    tell: Tell | None = None,
    *,
    pad_id: int | None = None,
    context: int | None = None,
) -> Pretrained:
    """The model of a folder with config.json and weights, or of `owner/name[@revision]` on the hub.

    dtype    float32, bf16, float16 or float64; None: as it is stored
    pad_id   an ID that is never seen; None: all IDs are
    context  how many positions are used at most; None: as many as it knows

    Parameters that are stored as they are used are mapped, not copied. Raises TensorstepError, in
    one sentence, for what is missing, damaged, contradictory or not known here.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"there is no type {dtype!r}: give {', '.join(DTYPES)}")
    folder = folder_of(where, tell)
    fields = Fields.read(folder / "config.json")
    kind, config = fields.text("model_type"), decoder_config(fields, context, pad_id)
    with torch.device("meta"), Undrawn():
        model = DecoderLM(config)
    found = read_tensors(folder)
    tensors = unwrapped(found.tensors, LAYOUTS[kind], where)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    sources = {name: LAYOUTS[kind].source(name) for name in shapes}
    check_tensors(shapes, sources, tensors, where)
    fill(model, made_of(sources, tensors, stored_type(tensors, dtype, where), tell))
    model.context_len = context or model.context_len
    bos_id, eos_ids, note = boundaries(folder, fields, config.vocab_size)
    tokenizer = tokenizer_of(folder, config.vocab_size)
    notes = "\n".join(filter(None, (found.note, note)))
    return Pretrained(
        model.eval(),
        kind,
        config,
        tokenizer,
        bos_id,
        puts_bos(folder, kind),
        eos_ids,
        where,
        folder,
        notes,
    )


def folder_of(where: str, tell: Tell | None) -> Path:
    """The folder that a path or a name on the hub means."""
    if "\0" not in where and os.path.isdir(where):
        return Path(where)
    if "\0" not in where and os.path.exists(where):
        raise UsageError(f"{where!r} is a file: give the folder with config.json and weights")
    named = parse_hub_model(where)
    if named is None:
        raise UsageError(
            f"there is no folder {where!r}: give one, or owner/name[@revision] of the hub"
        )
    return fetch(named, tell)


# --- parameters ------------------------------------------------------------------------------


class Undrawn(TorchFunctionMode):
    """No numbers are drawn for parameters that are about to be replaced.

    On the meta device that would cost no time, but torch loads its whole compiler to do it.
    """

    def __torch_function__(
        self, called: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(called, "__module__", None) == nn.init.__name__:
            return None  # the parameter stays as it is; modules do not use what this returns
        return called(*args, **(kwargs or {}))


def stored_type(tensors: dict[str, Tensor], dtype: str | None, where: str) -> torch.dtype:
    """The type that was asked for, or the one that all are stored in."""
    types = {tensor.dtype for tensor in tensors.values()}
    strange = types - set(DTYPES.values())
    if strange:
        raise TensorstepError(
            f"{where!r} stores {short(strange.pop())} numbers, which are not computed with here:"
            f" give a model in one of {', '.join(DTYPES)}"
        )
    if dtype is not None:
        return DTYPES[dtype]
    if len(types) > 1:
        names = " and ".join(sorted(map(short, types)))
        raise TensorstepError(f"{where!r} stores {names}: choose one with dtype")
    return types.pop()


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def made_of(
    sources: Sources, tensors: dict[str, Tensor], dtype: torch.dtype, tell: Tell | None
) -> dict[str, Tensor]:
    """The parameters, of stored tensors: those that are as they are used are not copied."""
    how = dict(sources.values())
    meter = Meter("loading the weights", len(how), tell)

    def whole(item: tuple[str, Source]) -> Tensor:
        made = item[1].whole(tensors[item[0]], dtype)
        meter.add()
        return made

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # torch takes one for a copy
        made = dict(zip(how, pool.map(whole, how.items()), strict=True))
    return {name: source.taken(made[stored]) for name, (stored, source) in sources.items()}


def fill(model: DecoderLM, parameters: dict[str, Tensor]) -> None:
    """Give a model these parameters, without copying them."""
    tied = model.config.tied
    named = dict(parameters)
    if tied:
        named["vocab_head.weight"] = named["token_embedding.weight"]
    model.load_state_dict(named, assign=True)
    if tied:
        model.vocab_head.weight = model.token_embedding.weight


# --- what comes with them --------------------------------------------------------------------


def boundaries(folder: Path, fields: Fields, size: int) -> tuple[int | None, tuple[int, ...], str]:
    """What texts begin and may end with, and a note of the IDs that are outside the vocabulary."""
    path = folder / "generation_config.json"
    beside = Fields.read(path) if path.exists() else Fields(fields.place, {})
    begins, ends = (
        ids_of(beside if beside.get(key, None) is not None else fields, key)
        for key in ("bos_token_id", "eos_token_id")
    )
    outside = sorted({i for i in (*begins, *ends) if i >= size})
    bos_id = next((i for i in begins if i < size), None)
    note = ""
    if outside:
        listed = ", ".join(map(str, outside))
        note = f"its boundaries name {listed}, outside the vocabulary of {size}: left out"
    return bos_id, tuple(i for i in ends if i < size), note


def puts_bos(folder: Path, kind: str) -> bool:
    """Whether a tokenizer puts BOS before every text: as tokenizer_config.json says, or the
    template in tokenizer.json; without either as is usual for models of this kind."""
    beside = folder / "tokenizer_config.json"
    if beside.exists():
        said = Fields.read(beside).values.get("add_bos_token")
        if isinstance(said, bool):
            return said
    path = folder / "tokenizer.json"
    after = Fields.read(path).values.get("post_processor") if path.exists() else None
    if isinstance(after, dict):
        steps = after.get("processors") if after.get("type") == "Sequence" else [after]
        pieces = [step.get("single") for step in steps or [] if isinstance(step, dict)]
        return any(isinstance(each, list) and "SpecialToken" in each[0] for each in pieces if each)
    return kind in ("llama", "mistral")


def ids_of(fields: Fields, key: str) -> list[int]:
    """The ID or IDs that a key holds."""
    value = fields.get(key, [])
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise fields.wrong(key, "give an ID, or a list of IDs")
    return ids


def tokenizer_of(folder: Path, size: int) -> Tokenizer | None:
    """The tokenizer that lies beside a model; None where there is none.

    Raises TensorstepError where it has IDs that the model does not know.
    """
    files = [("tokenizer.json",), *PAIRS]
    if not any(all((folder / name).is_file() for name in names) for names in files):
        return None
    tokenizer = load_tokenizer(folder)
    entries = len(tokenizer)
    if tokenizer.pad_id == entries - 1 and tokenizer.itos[-1] == PAD:
        entries -= 1  # which is ours: see BPETokenizer
    if entries > size:
        raise TensorstepError(
            f"the tokenizer of {str(folder)!r} has {entries} entries, but the model knows {size}:"
            " give the tokenizer that belongs to it"
        )
    return tokenizer if entries == size else WiderTokenizer(tokenizer, entries, size)
