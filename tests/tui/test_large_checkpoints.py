"""Models of the sizes that people have, with random numbers: opened, walked, written with and
trained on, by the installed command, within the memory that the README states."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.engine.checkpoint_files import GPT2, LLAMA, shapes_of, write_tokenizer
from tests.terminal.terminal import COMMAND

pytestmark = pytest.mark.slow

MB = 10**6
PROGRAM, HELD = 500, 256  # MB: Python with torch and a pass; what a walk holds
# GPT-2 small in float32, and a Llama of 300 million parameters in bfloat16
LARGE: dict[str, tuple[dict[str, Any], torch.dtype, int]] = {
    "gpt2": (
        {**GPT2, "vocab_size": 50257, "n_positions": 1024, "n_embd": 768}
        | {"n_layer": 12, "n_head": 12},
        torch.float32,
        124,
    ),
    "llama": (
        {**LLAMA, "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816}
        | {"num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 8}
        | {"max_position_embeddings": 2048},
        torch.bfloat16,
        301,
    ),
}
# the peak of the command's processes, and of nothing else
MEASURED = """
import json, resource, subprocess, sys
made = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([peak * (1 if sys.platform == "darwin" else 1024), made.stdout.decode()]))
"""


@pytest.fixture(scope="module", params=LARGE)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a large checkpoint."""
    config, dtype, millions = LARGE[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    drawn = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(shape, generator=drawn).mul_(0.02).to(dtype)
        for name, shape in shapes_of(config).items()
    }
    assert sum(tensor.numel() for tensor in tensors.values()) // MB == millions
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, config["vocab_size"])
    return folder


def peak_of(*arguments: Any) -> tuple[float, str]:
    """The most memory that a process of the command took, in MB, and what it printed."""
    command = [sys.executable, "-c", MEASURED, COMMAND, *map(str, arguments)]
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    peak, printed = json.loads(made.stdout)
    return peak / MB, printed


def size(folder: Path) -> float:
    return (folder / "model.safetensors").stat().st_size / MB


PROMPT = " ".join(f"w{i}" for i in range(10, 250))


def test_it_writes(large: Path):
    peak, printed = peak_of(
        "generate", "--checkpoint", large, "--prompt", PROMPT, "--max-new-tokens", 8, "--json"
    )
    assert json.loads(printed)["new_tokens"] == 8
    assert peak < size(large) + PROGRAM


def test_it_is_walked(large: Path):
    arguments = ("--open", large, "--prompt", PROMPT, "--steps", 2, "--json", "--max-values", 0)
    peak, printed = peak_of("states", "generate", *arguments)
    states = [json.loads(line) for line in printed.splitlines()]
    seen = [(each["step"], each["name"]) for each in states if "name" in each]
    blocks = 12 if "gpt2" in large.name else 20
    assert (2, f"blocks.{blocks - 1}.attention.weights") in seen
    assert seen[-1] == (2, "history")
    assert peak < size(large) + PROGRAM + 2 * HELD


def test_it_is_trained_on(large: Path):
    """A step needs its parameters before and after, gradients and updates."""
    sentence = " ".join(f"w{i}" for i in range(10, 60))
    arguments = ("--open", large, "--sentence", sentence, "--steps", 1, "--json", "--max-values", 0)
    peak, printed = peak_of("states", "train", *arguments)
    names = [json.loads(line).get("name") for line in printed.splitlines()]
    assert "update.token_embedding.weight" in names
    assert peak < 8 * size(large) + PROGRAM + HELD
