"""torch.compile leaves models as they are, and its compiler is loaded only by who compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.models.mlp import FixedWindowMLP
from engine.models.pretrained import load_pretrained
from tests.engine.checkpoint_files import LLAMA, write, write_tokenizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_compiled_around_a_model(backend: str, caplog: pytest.LogCaptureFixture):
    """The rest of a function is compiled, the model is run as it is, and nothing is warned of."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = FixedWindowMLP(11, 4, 3, 5)
    ids = torch.randint(0, 11, (6, 4))

    def around(ids: Tensor) -> Tensor:
        return model(ids).logsumexp(-1).mean()

    torch._dynamo.utils.counters.clear()
    compiled, whole = torch.compile(around, backend=backend), torch.compile(model, backend=backend)
    assert torch.equal(whole(ids), model(ids))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0
    assert torch.equal(compiled(ids), around(ids))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not caplog.records


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
