"""Our decoders against `transformers`, on small random models of every kind, in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.models.pretrained import load_pretrained
from engine.models.transformer import DecoderLM
from engine.states import each
from tests.engine.checkpoint_files import STORIES

TOLERANCE = 1e-5
PAD, VOCAB, WIDTH = 5, 61, 32
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
OF_LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.3,
}
OF_GPT2 = {
    "vocab_size": VOCAB,
    "n_positions": 64,
    "n_embd": WIDTH,
    "n_layer": 3,
    "n_head": 4,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {}),
    "gpt2, other hidden width": ("GPT2", {"n_inner": 40}),
    "gpt2, untied": ("GPT2", {"tie_word_embeddings": False}),
    "gpt2, exact gelu": ("GPT2", {"activation_function": "gelu"}),
    "gpt2, one head": ("GPT2", {"n_head": 1, "activation_function": "gelu_pytorch_tanh"}),
    "llama, as many groups": ("Llama", {"num_key_value_heads": 4}),
    "llama, grouped": ("Llama", {}),
    "llama, one group": ("Llama", {"num_key_value_heads": 1}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("Llama", {"head_dim": 16}),
    "llama, other theta": (
        "Llama",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    ),
    "llama 3": ("Llama", {"rope_parameters": {**LLAMA3, "rope_theta": 500_000.0}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral, wide heads": ("Mistral", {"sliding_window": None, "head_dim": 12}),
    "mistral, window as wide": ("Mistral", {"sliding_window": 64}),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied, one group": ("Qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
}


def theirs(name: str) -> Any:
    """A random model of the library, with no parameter left at 0 or 1."""
    pytest.importorskip("transformers", reason="transformers, to compare with, is not installed")
    import transformers

    kind, changes = MODELS[name]
    base = OF_GPT2 if kind == "GPT2" else OF_LLAMA
    config = getattr(transformers, f"{kind}Config")(**{**base, **changes})
    config._attn_implementation = "eager"
    torch.manual_seed(11)
    of_kind = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, of_kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model


def ours(model: Any, folder: Path, pad_id: int | None = None) -> DecoderLM:
    model.save_pretrained(folder)
    return load_pretrained(str(folder), pad_id=pad_id).model


def padded(lengths: tuple[int, ...], width: int) -> tuple[Tensor, Tensor]:
    """Random IDs, padded in front, and where they are none."""
    drawn = torch.Generator().manual_seed(7)
    ids = torch.randint(6, VOCAB, (len(lengths), width), generator=drawn)
    for row, length in zip(ids, lengths, strict=True):
        row[: width - length] = PAD
    return ids, ids != PAD


def their_values(model: Any, ids: Tensor, seen: Tensor | None = None) -> dict[str, Tensor]:
    """What their model makes of IDs, by our names."""
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            found[name] = output[0] if isinstance(output, tuple) else output

        return hook

    hooks = [b.register_forward_hook(keep(f"blocks.{i}.residual2")) for i, b in enumerate(blocks)]
    more = {}
    if seen is not None:
        places = (seen.long().cumsum(-1) - 1).clamp(min=0)
        more = {"attention_mask": seen.long(), "position_ids": places}
    with torch.no_grad():
        made = model(ids, output_hidden_states=True, **more)
    for hook in hooks:
        hook.remove()
    hidden = made.hidden_states
    for i in range(1, len(blocks)):
        assert torch.equal(hidden[i], found[f"blocks.{i - 1}.residual2"])
    return found | {"embedding": hidden[0], "norm": hidden[-1], "logits": made.logits}


def our_values(model: DecoderLM, ids: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        return {state.name: state.value for state in each(model.states(ids))}


def furthest(a: dict[str, Tensor], b: dict[str, Tensor], seen: Tensor | None = None) -> float:
    """How far apart two passes are at most, in what is seen, in all states that both have."""
    names = set(a) & set(b)
    assert len(names) >= 6
    return max(apart(a[name], b[name], seen) for name in names)


def apart(a: Tensor, b: Tensor, seen: Tensor | None = None) -> float:
    difference = (a - b).abs()
    return float((difference if seen is None else difference[seen]).max())


@pytest.mark.parametrize("name", MODELS)
def test_every_block_and_the_logits(name: str, tmp_path: Path):
    model = theirs(name)
    mine = ours(model, tmp_path)
    for width in (1, 17, 64):
        ids, _ = padded((width,), width)
        made = our_values(mine, ids)
        assert furthest(their_values(model, ids), made) <= TOLERANCE
        assert torch.equal(mine(ids), made["logits"])


@pytest.mark.parametrize("name", MODELS)
def test_batches_padded_in_front(name: str, tmp_path: Path):
    model = theirs(name)
    mine = ours(model, tmp_path, pad_id=PAD)
    ids, seen = padded((20, 13, 1), 20)
    assert furthest(their_values(model, ids, seen), our_values(mine, ids), seen) <= TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_more_padding_changes_nothing(name: str, tmp_path: Path):
    """Within 1e-6: sums over more keys, of which some weigh 0, may be added up in other order."""
    mine = ours(theirs(name), tmp_path, pad_id=PAD)
    ids, seen = padded((12, 7), 12)
    more = torch.cat([torch.full((2, 3), PAD), ids], -1)
    with torch.no_grad():
        assert apart(mine(ids), mine(more)[:, 3:], seen) <= 1e-6


def cells_of(name: str, parameter: Tensor, used: int) -> list[tuple[int, ...]]:
    """A cell of every part of a parameter: of tables, in a row that is used."""
    row = used if parameter.shape[0] == VOCAB else 3
    if "c_attn" in name:  # queries, keys and values in one
        return [(row, part * WIDTH + 5)[-parameter.dim() :] for part in range(3)]
    return [(row, 5)[: parameter.dim()]]


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt2, untied", "llama, grouped", "llama 3", "mistral", "qwen2"]
)
def test_one_weight_more_changes_both_alike(name: str, tmp_path: Path):
    """Every parameter's numbers are where they belong: a change of one of them shows in both; all
    else is as before, bit for bit."""
    model = theirs(name)
    ids, _ = padded((14,), 14)
    before = our_values(ours(model, tmp_path), ids)["logits"]
    for key, parameter in model.named_parameters():
        for cell in cells_of(key, parameter, int(ids[0, 4])):
            old = parameter[cell].item()
            with torch.no_grad():
                parameter[cell] = old + 0.5
            changed = our_values(ours(model, tmp_path), ids)
            assert furthest(their_values(model, ids), changed) <= TOLERANCE, (key, cell)
            # keys that all get the same more are all read as much as before
            is_same = "c_attn.bias" in key and WIDTH <= cell[0] < 2 * WIDTH
            assert is_same or apart(before, changed["logits"]) > 1e-6, (key, cell)
            with torch.no_grad():
                parameter[cell] = old
    assert torch.equal(before, our_values(ours(model, tmp_path), ids)["logits"])


def test_llama_3_as_older_files_have_it(tmp_path: Path):
    """`rope_scaling` and `rope_theta` beside each other mean what `rope_parameters` means."""
    model = theirs("llama 3")
    new = ours(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    theta = config.pop("rope_parameters")["rope_theta"]
    for kind in ("rope_type", "type"):
        scaling = {kind: "llama3", **{k: v for k, v in LLAMA3.items() if k != "rope_type"}}
        old = {**config, "rope_scaling": scaling, "rope_theta": theta}
        (tmp_path / "config.json").write_text(json.dumps(old))
        mine = load_pretrained(str(tmp_path)).model
        assert mine.config == new.config
        ids, _ = padded((40,), 40)
        assert furthest(their_values(model, ids), our_values(mine, ids)) <= TOLERANCE


def test_a_model_without_a_head_s_prefix(tmp_path: Path):
    """The body alone, as GPT-2 itself was published: names without `transformer.`."""
    model = theirs("gpt2")
    model.transformer.save_pretrained(tmp_path)
    mine = load_pretrained(str(tmp_path)).model
    ids, _ = padded((14,), 14)
    assert furthest(their_values(model, ids), our_values(mine, ids)) <= TOLERANCE


def test_in_float64_both_are_closer(tmp_path: Path):
    model = theirs("gpt2").double()
    model.save_pretrained(tmp_path)
    mine = load_pretrained(str(tmp_path)).model
    ids, _ = padded((30,), 30)
    assert mine.token_embedding.weight.dtype == torch.float64
    assert furthest(their_values(model, ids), our_values(mine, ids)) <= 1e-12


def test_the_trained_stories_model():
    """Its 200 greedy tokens are those of the project that trained it."""
    if not STORIES.exists():
        pytest.skip("../shared/models/stories260K is not here")
    loaded = load_pretrained(str(STORIES))
    wanted = json.loads((STORIES / "greedy200_token_ids.json").read_text())
    ids = [wanted[0]]
    with torch.no_grad():
        while len(ids) < len(wanted):
            ids.append(int(loaded.model(torch.tensor([ids]))[0, -1].argmax()))
    assert ids == wanted
    assert (loaded.bos_id, loaded.eos_ids) == (1, (2,))
    assert loaded.tokenizer is not None
    text = (STORIES / "expected_greedy_200.txt").read_text()
    assert loaded.tokenizer.decode(ids).strip()[:100] == text.strip()[:100]
