"""Which tensor of a published checkpoint is which parameter of ours, for each kind of decoder.

The tables name modules without `weight` and `bias`; a parameter of ours says which of them it is.
Names of files are compared without what wraps them: `model.layers.0…`, `layers.0…` and
`module._orig_mod.model.layers.0…` are one and the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.errors import TensorstepError

WRAPPERS = ("_orig_mod", "module")  # of torch.compile, and of data parallelism
ROWS = 20  # of a table of differences, at most
LONGEST = 100  # characters of a name in it
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where a parameter lies in a file.

    module  the module's name there
    turned  stored as [inputs, outputs]
    part    which of `parts` equal parts of the outputs, where several are stored as one
    """

    module: str
    turned: bool = False
    part: int = 0
    parts: int = 1

    def stored(self, shape: Shape) -> Shape:
        """The shape in the file of a parameter of this shape."""
        whole = (shape[0] * self.parts, *shape[1:])
        return whole[::-1] if self.turned else whole

    def whole(self, stored: Tensor, dtype: torch.dtype) -> Tensor:
        """What is stored, as rows of outputs and in a type: no copy where it has that type. Turned
        it is a view, which the product with it reads as fast."""
        whole = stored.T if self.turned and stored.dim() == 2 else stored
        if whole.dtype == dtype:
            return whole
        return torch.empty(whole.shape, dtype=dtype).copy_(whole)

    def taken(self, whole: Tensor) -> Tensor:
        """The parameter, of all rows that are stored as one."""
        return whole.chunk(self.parts)[self.part] if self.parts > 1 else whole


@dataclass(frozen=True)
class Layout:
    """How a kind of decoder names what it stores.

    prefix   what the names of its body begin with, or do not
    block    what a block is called
    ends     our modules before and after the blocks
    inside   our modules of a block
    ignored  buffers that can be computed
    """

    prefix: str
    block: str
    ends: Mapping[str, Source]
    inside: Mapping[str, Source]
    ignored: re.Pattern[str] = field(default=re.compile(r"(?!)"))

    def source(self, parameter: str) -> tuple[str, Source]:
        """The name in a file, and how it lies there, of a parameter of ours."""
        module, _, kind = parameter.rpartition(".")
        if not module.startswith("blocks."):
            found = self.ends[module]
            return f"{found.module}.{kind}", found
        _, number, module = module.split(".", 2)
        found = self.inside[module]
        return f"{self.block}.{number}.{found.module}.{kind}", found

    def plain(self, name: str) -> str:
        """A name of a file without what wraps it."""
        bare = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        return bare.removeprefix(self.prefix)


GPT2 = Layout(
    "transformer.",
    "h",
    {
        "token_embedding": Source("wte"),
        "position_embedding": Source("wpe"),
        "norm": Source("ln_f"),
        "vocab_head": Source("lm_head"),
    },
    {
        "norm1": Source("ln_1"),
        "attention.W_Q": Source("attn.c_attn", True, 0, 3),
        "attention.W_K": Source("attn.c_attn", True, 1, 3),
        "attention.W_V": Source("attn.c_attn", True, 2, 3),
        "attention.W_O": Source("attn.c_proj", True),
        "norm2": Source("ln_2"),
        "feedforward.expand": Source("mlp.c_fc", True),
        "feedforward.shrink": Source("mlp.c_proj", True),
    },
    re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
)

LLAMA = Layout(
    "model.",
    "layers",
    {
        "token_embedding": Source("embed_tokens"),
        "norm": Source("norm"),
        "vocab_head": Source("lm_head"),
    },
    {
        "norm1": Source("input_layernorm"),
        "attention.W_Q": Source("self_attn.q_proj"),
        "attention.W_K": Source("self_attn.k_proj"),
        "attention.W_V": Source("self_attn.v_proj"),
        "attention.W_O": Source("self_attn.o_proj"),
        "norm2": Source("post_attention_layernorm"),
        "feedforward.gate": Source("mlp.gate_proj"),
        "feedforward.up": Source("mlp.up_proj"),
        "feedforward.down": Source("mlp.down_proj"),
    },
    re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.(original_)?inv_freq"),
)

LAYOUTS = {"gpt2": GPT2, "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA}
HEAD = "lm_head.weight"


def unwrapped(tensors: Mapping[str, Tensor], layout: Layout, where: str) -> dict[str, Tensor]:
    """The tensors that count, by their plain names.

    Raises TensorstepError where two have the same plain name.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = layout.plain(name)
        if plain in found:
            raise TensorstepError(
                f"{where!r} holds {plain!r} twice, once as {name!r}: keep one of them"
            )
        if not layout.ignored.fullmatch(plain):
            found[plain] = tensor
    return found


Sources = dict[str, tuple[str, Source]]  # parameter -> name in a file, and how it lies there


def check_tensors(
    parameters: Mapping[str, Shape],
    sources: Sources,
    tensors: Mapping[str, Tensor],
    where: str,
) -> None:
    """Raises TensorstepError, with a table, where the tensors, by plain name, are not exactly those
    that the parameters are made of."""
    wanted = {stored: source.stored(parameters[name]) for name, (stored, source) in sources.items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    is_twice = HEAD in found and HEAD not in wanted  # a tied head that was stored all the same
    if is_twice:
        del found[HEAD]
    check_fit(wanted, found, where)
    embedding, _ = sources["token_embedding.weight"]
    if is_twice and not is_same(tensors[HEAD], tensors[embedding]):
        raise TensorstepError(
            f"the config.json of {where!r} has the head read the token embedding, but {HEAD} is"
            " another tensor: set tie_word_embeddings to false, or leave it out"
        )


def is_same(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() or (a.dtype == b.dtype and torch.equal(a, b))


def check_fit(wanted: Mapping[str, Shape], found: Mapping[str, Shape], where: str) -> None:
    """Raises TensorstepError, with a table, where these are not the same names and shapes."""
    wrong = [name for name in (*wanted, *(set(found) - set(wanted)))
             if wanted.get(name) != found.get(name)]  # fmt: skip
    if not wrong:
        return
    sentence = (
        f"the tensors of {where!r} are not those that its config.json describes ({len(wrong)}"
        " differ), and weights are never rewritten silently: give the config.json that belongs to"
        " them"
    )
    if HEAD in wrong and HEAD not in found:
        sentence += f" (with tie_word_embeddings false there has to be {HEAD})"
    raise TensorstepError("\n".join([f"{sentence}:", *table(sorted(wrong), wanted, found)]))


def table(wrong: list[str], wanted: Mapping[str, Shape], found: Mapping[str, Shape]) -> list[str]:
    """Lines of names and shapes, of the first few."""
    lines = [("tensor", "described", "in the file", "")]
    for name in wrong[:ROWS]:
        what = "other shape"
        if name not in found:
            what = "missing"
        elif name not in wanted:
            what = "unexpected"
        shown = name[:LONGEST].encode("unicode_escape").decode()  # from outside: never obeyed
        lines.append((shown, shape_of(wanted.get(name)), shape_of(found.get(name)), what))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [aligned(line, widths) for line in lines]
    return [*rows, f"  and {len(wrong) - ROWS} more"] if len(wrong) > ROWS else rows


def shape_of(shape: Shape | None) -> str:
    return "-" if shape is None else str(list(shape))


def aligned(cells: Iterable[str], widths: list[int]) -> str:
    columns = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"  {'  '.join(columns)}".rstrip()
