"""torch.compile leaves models as they are, and its compiler is loaded only by who compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.models.pretrained import load_pretrained
from tests.engine.checkpoint_files import LLAMA, write, write_tokenizer

ROOT = Path(__file__).resolve().parents[2]


AROUND = """
import torch
from engine.models.mlp import FixedWindowMLP

torch.manual_seed(0)
model = FixedWindowMLP(11, 4, 3, 5)
ids = torch.randint(0, 11, (6, 4))

def around(ids):
    return model(ids).logsumexp(-1).mean()

graphs = []
for made, plain in ((model, model), (around, around)):
    compiled = torch.compile(made, backend=BACKEND)
    assert torch.equal(compiled(ids), plain(ids))
    graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(graphs)
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_compiled_around_a_model(backend: str):
    """The rest of a function is compiled, the model is run as it is, and nothing is warned of.

    In a process of its own: the compiler leaves tensors behind that are none.
    """
    made = subprocess.run(
        [sys.executable, "-c", AROUND.replace("BACKEND", repr(backend))],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert (made.stdout.strip(), made.stderr) == ("[0, 1]", "")


def test_generating_loads_no_compiler(tmp_path: Path):
    """It is a second of time and 80 MB, before the first state."""
    write(tmp_path, LLAMA)
    write_tokenizer(tmp_path, LLAMA["vocab_size"])
    body = f"""
import sys, engine.service.worker, engine.service.factory, engine.service.session, torch
from engine.models.pretrained import load_pretrained
print(load_pretrained({str(tmp_path)!r}).model(torch.tensor([[1, 2, 3]])).shape)
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    made = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert made.stdout.splitlines()[-1] == "[]"


def test_loading_draws_no_numbers(tmp_path: Path):
    write(tmp_path, LLAMA)
    before = torch.get_rng_state()
    model = load_pretrained(str(tmp_path)).model
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(parameter.is_meta for parameter in model.parameters())
