"""Loading published models: what is read, what is left alone, and what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import TensorstepError
from engine.models.pretrained import Pretrained, load_pretrained
from tests.engine.checkpoint_files import (
    CONFIGS,
    GPT2,
    KINDS,
    LLAMA,
    VOCAB,
    shapes_of,
    tensors_of,
    write,
    write_config,
    write_shards,
    write_tokenizer,
)

IDS = torch.tensor([[4, 1, 7, 7, 2, 9]])


def logits(loaded: Pretrained) -> Tensor:
    with torch.no_grad():
        return loaded.model(IDS)


def refusal(folder: Path, **more: Any) -> str:
    """The one sentence that loading a folder ends with."""
    with pytest.raises(TensorstepError) as told:
        load_pretrained(str(folder), **more)
    return str(told.value)


def changed(tensors: dict[str, Tensor], **more: Tensor) -> dict[str, Tensor]:
    return {**tensors, **more}


# --- what is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str, tmp_path: Path):
    loaded = load_pretrained(str(write(tmp_path, CONFIGS[kind])))
    assert loaded.kind == kind
    assert not loaded.model.training
    assert loaded.config is loaded.model.config
    assert loaded.config.pad_id is None
    assert (loaded.tokenizer, loaded.bos_id, loaded.note) == (None, 1, "")
    assert loaded.eos_ids == ((2,) if kind == "gpt2" else (2, 3))
    assert loaded.where == str(tmp_path)
    assert loaded.folder == tmp_path
    assert logits(loaded).shape == (1, 6, VOCAB)
    assert all(p.requires_grad and not p.is_meta for p in loaded.model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_one_file_or_several(kind: str, tmp_path: Path):
    whole = load_pretrained(str(write(tmp_path / "whole", CONFIGS[kind])))
    parts = load_pretrained(str(write_shards(tmp_path / "parts", CONFIGS[kind])))
    assert torch.equal(logits(whole), logits(parts))


def test_the_only_file_under_another_name(tmp_path: Path):
    write(tmp_path, GPT2)
    (tmp_path / "model.safetensors").rename(tmp_path / "mine.safetensors")
    load_pretrained(str(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrapped",
    [
        "_orig_mod.{}",
        "module.{}",
        "module._orig_mod.{}",
        "_orig_mod.module._orig_mod.{}",
    ],
)
def test_wrappers_are_taken_off(kind: str, wrapped: str, tmp_path: Path):
    plain = load_pretrained(str(write(tmp_path / "plain", CONFIGS[kind])))
    tensors = {wrapped.format(k): v for k, v in tensors_of(CONFIGS[kind]).items()}
    loaded = load_pretrained(str(write(tmp_path / "wrapped", CONFIGS[kind], tensors)))
    assert torch.equal(logits(plain), logits(loaded))


def test_wrappers_inside_names_and_no_prefix(tmp_path: Path):
    plain = load_pretrained(str(write(tmp_path / "plain", LLAMA)))
    for i, (old, new) in enumerate([("model.layers.0.", "model._orig_mod.layers.0._orig_mod."),
                                    ("model.", "")]):  # fmt: skip
        tensors = {k.replace(old, new): v for k, v in tensors_of(LLAMA).items()}
        loaded = load_pretrained(str(write(tmp_path / str(i), LLAMA, tensors)))
        assert torch.equal(logits(plain), logits(loaded))


def test_buffers_are_no_parameters(tmp_path: Path):
    ones = torch.ones(1, 1, 16, 16)
    buffers = {f"transformer.h.{i}.attn.bias": ones.clone() for i in range(2)}
    buffers |= {f"transformer.h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    load_pretrained(str(write(tmp_path / "gpt2", GPT2, tensors_of(GPT2) | buffers)))
    turns = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
    load_pretrained(str(write(tmp_path / "llama", LLAMA, tensors_of(LLAMA) | turns)))


def test_conv1d_is_turned_and_split(tmp_path: Path):
    tensors = tensors_of(GPT2)
    model = load_pretrained(str(write(tmp_path, GPT2))).model
    fused = tensors["transformer.h.1.attn.c_attn.weight"]
    attention = model.blocks[1].attention
    for part, layer in enumerate((attention.W_Q, attention.W_K, attention.W_V)):
        assert torch.equal(layer.weight, fused[:, part * 12 : part * 12 + 12].T)
        bias = tensors["transformer.h.1.attn.c_attn.bias"]
        assert torch.equal(layer.bias, bias[part * 12 : part * 12 + 12])
    expand = tensors["transformer.h.0.mlp.c_fc.weight"]
    assert torch.equal(model.blocks[0].feedforward.expand.weight, expand.T)
    stored = {layer.weight.untyped_storage().data_ptr() for layer in attention.children()}
    assert len(stored) == 2  # q, k and v are views of one tensor, mapped: nothing is copied


def test_tied_heads(tmp_path: Path):
    """One parameter; a copy of it in the file is the same, anything else is no tied head."""
    config = {**LLAMA, "tie_word_embeddings": True}
    tensors = tensors_of(config)
    model = load_pretrained(str(write(tmp_path, config))).model
    assert model.vocab_head.weight is model.token_embedding.weight
    assert "vocab_head.weight" not in dict(model.named_parameters())
    copied = tensors["model.embed_tokens.weight"].clone()
    write(tmp_path, config, tensors | {"lm_head.weight": copied})
    load_pretrained(str(tmp_path))
    write(tmp_path, config, tensors | {"lm_head.weight": copied + 1})
    assert "lm_head.weight is another tensor" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["float32", "bf16", "float16", "float64"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_types(name: str, kind: str, tmp_path: Path):
    """As stored, or as asked for."""
    wanted = {"bf16": torch.bfloat16}.get(name) or getattr(torch, name)
    config = CONFIGS[kind]
    write(tmp_path / "stored", config, tensors_of(config, wanted))
    write(tmp_path / "single", config)
    stored = load_pretrained(str(tmp_path / "stored")).model
    asked = load_pretrained(str(tmp_path / "single"), dtype=name).model
    for a, b in zip(stored.parameters(), asked.parameters(), strict=True):
        assert a.dtype == b.dtype == wanted
        assert torch.equal(a, b)


def test_mixed_types_are_chosen_between(tmp_path: Path):
    tensors = tensors_of(LLAMA, torch.bfloat16)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float()
    write(tmp_path, LLAMA, tensors)
    assert "stores bfloat16 and float32: choose one with dtype" in refusal(tmp_path)
    assert logits(load_pretrained(str(tmp_path), dtype="float32")).dtype == torch.float32
    tensors["model.norm.weight"] = torch.ones(16, dtype=torch.int8)
    write(tmp_path, LLAMA, tensors)
    assert "stores int8 numbers" in refusal(tmp_path)
    assert "there is no type 'int8'" in refusal(tmp_path, dtype="int8")


def test_what_was_loaded_can_be_trained_and_the_file_stays(tmp_path: Path):
    for kind in ("gpt2", "llama"):
        folder = write(tmp_path / kind, CONFIGS[kind])
        before = (folder / "model.safetensors").read_bytes()
        model = load_pretrained(str(folder)).model
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(IDS).logsumexp(-1).sum().backward()
        optimizer.step()
        assert (folder / "model.safetensors").read_bytes() == before
        again = load_pretrained(str(folder)).model
        assert not torch.equal(again.norm.weight, model.norm.weight)


def test_parameters_are_mapped_not_copied(tmp_path: Path):
    """In a process of its own: 64 MB of weights take less than 16 MB of memory of its own."""
    pytest.importorskip("psutil")
    if not sys.platform.startswith("linux"):
        pytest.skip("resident memory by kind is read from /proc, which only Linux has")
    big = {**LLAMA, "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8}
    write(tmp_path, big)
    small = write(tmp_path / "small", LLAMA)
    code = """
import sys, torch
from engine.models.pretrained import load_pretrained
def own():
    lines = dict(line.split(':', 1) for line in open('/proc/self/status'))
    return int(lines['RssAnon'].split()[0]) / 1024
load_pretrained(sys.argv[2])
before = own()
model = load_pretrained(sys.argv[1]).model
print(own() - before, sum(p.nbytes for p in model.parameters()) / 2**20)
"""
    made = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path), str(small)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    taken, size = map(float, made.stdout.split())
    assert size > 28
    assert taken < size / 4


# --- what comes with them --------------------------------------------------------------------


def test_boundaries_of_the_generation_config(tmp_path: Path):
    write(tmp_path, LLAMA)
    beside = tmp_path / "generation_config.json"
    beside.write_text(json.dumps({"bos_token_id": 4, "eos_token_id": [5, 90]}))
    loaded = load_pretrained(str(tmp_path))
    assert (loaded.bos_id, loaded.eos_ids) == (4, (5,))
    assert loaded.note == "its boundaries name 90, outside the vocabulary of 19: left out"
    beside.write_text("{}")
    assert load_pretrained(str(tmp_path)).eos_ids == (2, 3)
    beside.write_text(json.dumps({"eos_token_id": "</s>"}))
    assert "'eos_token_id' of" in refusal(tmp_path)


def test_a_tokenizer_beside_it(tmp_path: Path):
    write(tmp_path, LLAMA)
    for entries in (VOCAB, VOCAB - 5):
        write_tokenizer(tmp_path, entries)
        tokenizer = load_pretrained(str(tmp_path)).tokenizer
        assert tokenizer is not None
        assert tokenizer.encode("w3 w1") == [3, 1]
    write_tokenizer(tmp_path, VOCAB + 1)
    assert "has 20 entries, but the model knows 19" in refusal(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    assert "tokenizer" in refusal(tmp_path)


def test_padding(tmp_path: Path):
    """`pad_id` is never seen; without it every ID is."""
    write(tmp_path, LLAMA)
    padded = load_pretrained(str(tmp_path), pad_id=7)
    assert padded.config.pad_id == padded.model.pad_id == 7
    more = torch.tensor([[7, 7, 4, 1, 2]])
    with torch.no_grad():
        short, long = padded.model(more[:, 2:]), padded.model(more)[:, 2:]
    torch.testing.assert_close(short, long, atol=1e-6, rtol=0)
    assert "padding ID 19 is not in the vocabulary of 19" in refusal(tmp_path, pad_id=VOCAB)
    assert "padding ID -1" in refusal(tmp_path, pad_id=-1)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_shorter_context(kind: str, tmp_path: Path):
    write(tmp_path, CONFIGS[kind])
    whole, short = load_pretrained(str(tmp_path)), load_pretrained(str(tmp_path), context=8)
    assert short.model.context_len == 8
    assert torch.equal(logits(whole), logits(short))
    with pytest.raises(TensorstepError, match="at most 8"):
        short.model(torch.zeros(1, 9, dtype=torch.int64))
    assert "a context of 33 does not fit" in refusal(tmp_path, context=33)


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.progress.OFTEN", -1.0)
    told: list[tuple[str, int, int | None]] = []
    load_pretrained(str(write(tmp_path, GPT2)), tell=lambda *of: told.append(of))
    assert ("loading the weights", len(shapes_of(GPT2)), len(shapes_of(GPT2))) in told


# --- what does not fit -----------------------------------------------------------------------


def test_a_table_of_what_differs(tmp_path: Path):
    tensors = tensors_of(LLAMA)
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.zeros(16, 24)
    del tensors["model.norm.weight"]
    tensors["score\x1b[31m.weight"] = torch.zeros(2, 16)
    lines = refusal(write(tmp_path, LLAMA, tensors)).splitlines()
    assert "(3 differ), and weights are never rewritten silently" in lines[0]
    assert [line.split("  ") for line in map(squeezed, lines[1:])] == [
        ["tensor", "described", "in the file"],
        ["layers.0.mlp.up_proj.weight", "[24, 16]", "[16, 24]", "other shape"],
        ["norm.weight", "[16]", "-", "missing"],
        ["score\\x1b[31m.weight", "-", "[2, 16]", "unexpected"],
    ]


def squeezed(line: str) -> str:
    """The columns of a line with two spaces between them."""
    return "  ".join(cell.strip() for cell in line.split("  ") if cell.strip())


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("llama", {"vocab_size": 20}, "embed_tokens.weight"),
        ("llama", {"num_hidden_layers": 3}, "layers.2.input_layernorm.weight"),
        ("llama", {"num_hidden_layers": 1}, "layers.1.input_layernorm.weight"),
        ("llama", {"num_key_value_heads": 1}, "layers.0.self_attn.k_proj.weight"),
        ("llama", {"head_dim": 6}, "layers.0.self_attn.q_proj.weight"),
        ("llama", {"intermediate_size": 25}, "layers.0.mlp.gate_proj.weight"),
        ("llama", {"attention_bias": True}, "layers.0.self_attn.o_proj.bias"),
        ("qwen2", {"model_type": "llama"}, "layers.0.self_attn.q_proj.bias"),
        ("llama", {"model_type": "qwen2"}, "layers.0.self_attn.q_proj.bias"),
        ("gpt2", {"n_positions": 15}, "wpe.weight"),
        ("gpt2", {"n_inner": 13}, "h.0.mlp.c_fc.weight"),
        ("gpt2", {"n_embd": 15}, "h.0.attn.c_attn.weight"),
        ("gpt2", {"tie_word_embeddings": False}, "lm_head.weight"),
    ],
)
def test_a_config_that_contradicts_the_file(kind: str, changes: dict, named: str, tmp_path: Path):
    write(tmp_path, CONFIGS[kind])
    write_config(tmp_path, {**CONFIGS[kind], **changes})
    told = refusal(tmp_path)
    assert named in told
    assert "never rewritten silently" in told
    assert len(told.splitlines()) <= 23
    if named == "lm_head.weight":
        assert "with tie_word_embeddings false there has to be lm_head.weight" in told


def test_at_most_twenty_rows(tmp_path: Path):
    write(tmp_path, LLAMA)
    write_config(tmp_path, {**LLAMA, "num_hidden_layers": 9})
    lines = refusal(tmp_path).splitlines()
    assert len(lines) == 23
    assert lines[-1] == "  and 43 more"


def test_one_tensor_twice(tmp_path: Path):
    tensors = tensors_of(LLAMA)
    tensors["module.model.norm.weight"] = torch.ones(16)
    assert "holds 'norm.weight' twice" in refusal(write(tmp_path, LLAMA, tensors))


# --- settings that are not computed here -----------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("gpt2", {"model_type": "gemma"}, "'gemma'"),
        ("gpt2", {"activation_function": "relu"}, "activation_function"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
        ("gpt2", {"n_head": 5}, "n_head"),
        ("gpt2", {"n_layer": 10**9}, "n_layer"),
        ("gpt2", {"n_embd": 10**12}, "n_embd"),
        ("gpt2", {"n_embd": "12"}, "n_embd"),
        ("gpt2", {"n_embd": True}, "n_embd"),
        ("gpt2", {"layer_norm_epsilon": -1}, "layer_norm_epsilon"),
        ("gpt2", {"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon"),
        ("gpt2", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads"),
        ("llama", {"num_attention_heads": 3}, "num_attention_heads"),
        ("llama", {"head_dim": 5}, "head_dim"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ("llama", {"rope_scaling": {"factor": 2.0}}, "'rope_type'"),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, "'factor'"),
        ("llama", {"rope_scaling": [1]}, "rope_scaling"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic"}}, "dynamic"),
        ("llama", {"rope_parameters": {"a": {"rope_type": "default"}}}, "rope_type"),
        ("mistral", {"sliding_window": 31}, "sliding_window"),
        ("mistral", {"attention_bias": True}, "attention_bias"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8}, "sliding_window"),
        ("qwen2", {"attention_bias": False}, "attention_bias"),
    ],
)
def test_refused_by_name(kind: str, changes: dict, named: str, tmp_path: Path):
    write_config(tmp_path, {**CONFIGS[kind], **changes})
    told = refusal(tmp_path)
    assert named in told
    assert "\n" not in told
    assert ": " in told


@pytest.mark.parametrize("kind", KINDS)
def test_missing_keys_are_named(kind: str, tmp_path: Path):
    sizes = ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions", "model_type")
    if kind != "gpt2":
        sizes = (
            "model_type",
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "max_position_embeddings",
        )
    for key in sizes:
        write_config(tmp_path, {k: v for k, v in CONFIGS[kind].items() if k != key})
        assert f"lacks {key!r}" in refusal(tmp_path)


def test_unknown_architectures_have_a_way(tmp_path: Path):
    write_config(tmp_path, {**LLAMA, "model_type": "mamba"})
    told = refusal(tmp_path)
    assert "gpt2, llama, mistral, qwen2 are" in told
    assert "module:PACKAGE.MODULE:FACTORY" in told


def test_a_window_as_wide_as_the_context_hides_nothing(tmp_path: Path):
    config = {**CONFIGS["mistral"], "sliding_window": 8}
    write(tmp_path, config)
    assert "'sliding_window' of" in refusal(tmp_path)
    assert "is 8, smaller than the context of 32 positions" in refusal(tmp_path)
    loaded = load_pretrained(str(tmp_path), context=8)
    plain = load_pretrained(str(write(tmp_path / "plain", CONFIGS["mistral"])))
    assert torch.equal(logits(loaded), logits(plain))
    long = {**CONFIGS["mistral"], "max_position_embeddings": 9000}
    del long["sliding_window"]  # which means 4096
    write_config(tmp_path, long)
    assert "sliding_window" in refusal(tmp_path)


# --- files that are none ---------------------------------------------------------------------


@pytest.mark.parametrize("content", ["[]", "", "{", "3", '"text"', "\x00", "[" * 100_000])
def test_a_config_that_is_none(content: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(content)
    assert "config.json" in refusal(tmp_path)


def test_pickled_weights_in_several_files(tmp_path: Path):
    plain = load_pretrained(str(write(tmp_path / "plain", GPT2)))
    folder = tmp_path / "bin"
    write_config(folder, GPT2)
    items = list(tensors_of(GPT2).items())
    places = {}
    for number, part in enumerate((items[:5], items[5:]), 1):
        name = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save(dict(part), folder / name)
        places |= {key: name for key, _ in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    loaded = load_pretrained(str(folder))
    assert torch.equal(logits(loaded), logits(plain))
    assert "pytorch_model.bin.index.json" in loaded.note
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    assert "'pytorch_model-00002-of-00002.bin' is missing" in refusal(folder)


@pytest.mark.parametrize("kind", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_whether_texts_begin_with_bos(kind: dict[str, Any], tmp_path: Path):
    """As tokenizer_config.json says, else the template of tokenizer.json, else the kind."""
    folder = write(tmp_path, kind)
    write_tokenizer(folder, VOCAB)
    is_llama = kind is LLAMA
    assert load_pretrained(str(folder)).puts_bos is is_llama
    file = folder / "tokenizer.json"
    fields = json.loads(file.read_text())
    begin = {"SpecialToken": {"id": "w1", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"w1": {"id": "w1", "ids": [1], "tokens": ["w1"]}},
    }
    plain = {**template, "single": [text]}
    for after, puts in ((template, True), (plain, False)):
        file.write_text(json.dumps({**fields, "post_processor": after}))
        assert load_pretrained(str(folder)).puts_bos is puts
        several = {"type": "Sequence", "processors": [after]}
        file.write_text(json.dumps({**fields, "post_processor": several}))
        assert load_pretrained(str(folder)).puts_bos is puts
    for said in (True, False):
        (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": said}))
        assert load_pretrained(str(folder)).puts_bos is said


def test_nothing_there(tmp_path: Path):
    assert "config.json' cannot be read" in refusal(tmp_path)
    write_config(tmp_path, LLAMA)
    assert "holds no weights: put model.safetensors there" in refusal(tmp_path)
    assert "is a file" in refusal(tmp_path / "config.json")
    for nowhere in ("/no/such/place", "a/b/c", "", "gpt2\0", "../none of it", "gpt3"):
        with pytest.raises(TensorstepError, match="there is no folder"):
            load_pretrained(nowhere)


@pytest.mark.parametrize("keep", [0, 5, 8, 100, -1])
def test_a_truncated_file(keep: int, tmp_path: Path):
    write(tmp_path, LLAMA)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    told = refusal(tmp_path)
    assert "model.safetensors' is damaged or incomplete" in told
    assert "\n" not in told


def test_a_pointer_in_place_of_the_file(tmp_path: Path):
    write_config(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "is a pointer of Git LFS" in refusal(tmp_path)


def test_shards_that_are_missing_or_others(tmp_path: Path):
    write_shards(tmp_path, LLAMA)
    index = tmp_path / "model.safetensors.index.json"
    second = tmp_path / "model-00002-of-00003.safetensors"
    kept = load_file(second)
    places = json.loads(index.read_text())["weight_map"]
    second.unlink()
    assert "'model-00002-of-00003.safetensors' is missing" in refusal(tmp_path)
    save_file(dict(list(kept.items())[1:]), second)
    lost = next(iter(kept))
    assert f"{lost!r} is not in 'model-00002-of-00003.safetensors'" in refusal(tmp_path)
    twice = next(name for name, file in places.items() if "00001" in file)
    save_file(kept | {twice: torch.ones(16)}, second)
    assert "in another file" in refusal(tmp_path)
    for hostile in ("../x.safetensors", "/etc/passwd", "x.bin", 3, None, "\0.safetensors", ""):
        index.write_text(json.dumps({"weight_map": {**places, lost: hostile}}))
        assert "which is no .safetensors file beside it" in refusal(tmp_path)
    for broken in ({}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": 3}, []):
        index.write_text(json.dumps(broken))
        assert "model.safetensors.index.json" in refusal(tmp_path)
    index.unlink()
    assert "nothing says which belong together" in refusal(tmp_path)


class Harmful:
    """What must never be run by loading."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("harmed",)


def test_pickled_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    plain = load_pretrained(str(write(tmp_path / "plain", GPT2)))
    write_config(tmp_path / "bin", GPT2)
    file = tmp_path / "bin" / "pytorch_model.bin"
    torch.save(tensors_of(GPT2), file)
    loaded = load_pretrained(str(tmp_path / "bin"))
    assert torch.equal(logits(plain), logits(loaded))
    assert "pytorch_model.bin" in loaded.note
    for refused in ({"wte.weight": Harmful()}, [1], {"state_dict": {}}, {3: torch.ones(1)}):
        torch.save(refused, file)
        assert "pytorch_model.bin' is refused" in refusal(tmp_path / "bin")
    torch.save(tensors_of(GPT2), file, _use_new_zipfile_serialization=False)
    assert "older than torch 1.6" in refusal(tmp_path / "bin")
    for content in (b"", b"no pickle", file.read_bytes()[:300]):
        file.write_bytes(content)
        assert "is refused" in refusal(tmp_path / "bin")
    assert not Path("harmed").exists()


# --- the hub ---------------------------------------------------------------------------------


def kept_in(cache: Path, config: dict[str, Any]) -> None:
    """A cache of the hub's library with a model in it, as a download leaves it."""
    place = cache / "models--somebody--small"
    write(place / "snapshots" / ("a" * 40), config)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("a" * 40)


@pytest.fixture
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))


@pytest.mark.usefixtures("_offline")
def test_the_hub_s_cache_without_a_network(tmp_path: Path):
    kept_in(tmp_path, LLAMA)
    told: list[str] = []
    loaded = load_pretrained("somebody/small", tell=lambda what, *_: told.append(what))
    assert loaded.where == "somebody/small"
    assert loaded.folder.parts[-3:] == ("models--somebody--small", "snapshots", "a" * 40)
    assert logits(loaded).shape == (1, 6, VOCAB)
    assert told[0] == "looking for somebody/small"
    by_revision = load_pretrained(f"somebody/small@{'a' * 40}")
    assert torch.equal(logits(loaded), logits(by_revision))
    assert "never fetched" in refusal(Path("somebody/small@v2"))


@pytest.mark.usefixtures("_offline")
def test_a_model_that_was_never_fetched():
    told = refusal(Path("somebody/other"))
    assert "'somebody/other' is no folder here, the hub cannot be reached" in told
    assert "\n" not in told


def test_only_what_is_needed_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And what the hub says is one sentence."""
    import huggingface_hub.constants
    from huggingface_hub.utils import filter_repo_objects

    asked: dict[str, Any] = {}

    def download(id: str, **how: Any) -> str:
        asked.update(how, id=id)
        if id == "somebody/broken":
            raise OSError("the line\nwent dead")
        return str(write(tmp_path, LLAMA))

    monkeypatch.setattr("engine.models.hub_models.is_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    load_pretrained("somebody/small@v1.0")
    assert (asked["id"], asked["revision"]) == ("somebody/small", "v1.0")
    assert not asked["local_files_only"]
    there = ["config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
             "pytorch_model.bin", "onnx/model.safetensors", "original/params.json", "README.md",
             "consolidated.safetensors", "modeling.py", "tokenizer.json", "merges.txt",
             "vocab.json", "generation_config.json"]  # fmt: skip
    kept = filter_repo_objects(
        there, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    assert set(there) - set(kept) == {
        "pytorch_model.bin", "onnx/model.safetensors", "original/params.json", "README.md",
        "consolidated.safetensors", "modeling.py",
    }  # fmt: skip
    told = refusal(Path("somebody/broken"))
    assert told.startswith("the hub does not give 'somebody/broken' (the line)")


def test_pickled_weights_are_fetched_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import huggingface_hub

    wanted: list[bool] = []

    def download(id: str, allow_patterns: list[str], **_: Any) -> str:
        wanted.append("pytorch_model*.bin" in allow_patterns)
        write_config(tmp_path, GPT2)
        if wanted[-1]:
            torch.save(tensors_of(GPT2), tmp_path / "pytorch_model.bin")
        return str(tmp_path)

    monkeypatch.setattr("engine.models.hub_models.is_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert "pytorch_model.bin" in load_pretrained("somebody/old").note
    assert wanted == [False, True]


def test_importing_needs_no_hub():
    """Neither the hub's library nor a network, until a name of the hub is given."""
    code = "import sys, engine.models.pretrained; print('huggingface_hub' in sys.modules)"
    made = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert made.stdout.strip() == "False"
