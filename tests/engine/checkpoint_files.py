"""Small published checkpoints, written by hand: config.json and tensors of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

SHARED = Path(__file__).resolve().parents[3] / "shared"
STORIES = SHARED / "models" / "stories260K"
VOCAB = 19

GPT2 = {
    "model_type": "gpt2",
    "vocab_size": VOCAB,
    "n_positions": 16,
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": None},
    "qwen2": {**LLAMA, "model_type": "qwen2", "use_sliding_window": False},
}
KINDS = list(CONFIGS)


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes as the libraries write them."""
    return gpt2_shapes(config) if config["model_type"] == "gpt2" else llama_shapes(config)


def gpt2_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    d, C = config["n_embd"], config["vocab_size"]
    h = config.get("n_inner") or 4 * d
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (C, d),
        "transformer.wpe.weight": (config["n_positions"], d),
    }
    for i in range(config["n_layer"]):
        at = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"{at}{norm}.weight": (d,), f"{at}{norm}.bias": (d,)}
        for name, inputs, outputs in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, h),
            ("mlp.c_proj", h, d),
        ):
            shapes |= {f"{at}{name}.weight": (inputs, outputs), f"{at}{name}.bias": (outputs,)}
    shapes |= {"transformer.ln_f.weight": (d,), "transformer.ln_f.bias": (d,)}
    if not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (C, d)
    return shapes


def llama_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    d, h, C = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    k = config.get("head_dim") or d // heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (C, d)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {f"{at}{n}_layernorm.weight": (d,) for n in ("input", "post_attention")}
        for name, rows in (("q", heads * k), ("k", groups * k), ("v", groups * k)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (rows, d)
            if config["model_type"] == "qwen2":
                shapes[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}self_attn.o_proj.weight"] = (d, heads * k)
        shapes |= {f"{at}mlp.{n}_proj.weight": (h, d) for n in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (d, h)
    shapes["model.norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (C, d)
    return shapes


def tensors_of(config: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Random numbers of these shapes, the same every time."""
    drawn = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(shape, generator=drawn).mul_(0.3).to(dtype)
        for name, shape in shapes_of(config).items()
    }


def write_config(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> Path:
    """A checkpoint in one file."""
    write_config(folder, config)
    save_file(tensors_of(config) if tensors is None else tensors, folder / "model.safetensors")
    return folder


def write_shards(folder: Path, config: dict[str, Any], count: int = 3) -> Path:
    """A checkpoint in several files and an index."""
    write_config(folder, config)
    tensors = tensors_of(config)
    places = {}
    for i in range(count):
        name = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        part = dict(list(tensors.items())[i::count])
        save_file(part, folder / name)
        places |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_tokenizer(folder: Path, entries: int) -> None:
    """A tokenizer.json that knows as many words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(entries - 1)} | {"<unk>": entries - 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
