"""A decoder of GPT-2's small size against `transformers`: a pass driven state by state, a pass
walked and held, generation with a cache, and the time to the first state of a checkpoint.

The two run in turn within one process, on the same weights, and must agree. The figure is the
median of the ratios.

    python -m benchmarks.decoder [--json] [--smoke]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.report import Row, median, peak_bytes, run
from engine.generation.decoding import Greedy
from engine.generation.generator import Generation, without_gradients
from engine.models.pretrained import Pretrained, load_pretrained
from engine.ops import given
from engine.processes import Snapshot
from engine.service.client import MEMORY
from engine.states import States, drain
from engine.text.listed import ListedTokenizer
from engine.walk import Walk


def peer(folder: Path, smoke: bool) -> Any:
    """A GPT-2 of the small size with random weights, saved as `transformers` saves it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size: dict[str, Any] = (
        {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000} if smoke else {}
    )
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(**size))
    model.eval()
    model.save_pretrained(folder)
    model.generation_config.eos_token_id = None  # to the last token, whatever comes
    return model


class OnePass:
    """A process of one step: one forward pass over some IDs."""

    map = "generation"

    def __init__(self, model: Any, ids: Tensor):
        self.model, self.ids = model, ids
        self.parameters = dict(model.named_parameters())
        self.axes = model.parameter_axes()

    def states(self, step: int) -> States:
        X = yield given("context", self.ids, ("B", "S"), "the IDs")
        if step:
            return (yield from without_gradients(self.model.states(X)))
        return X

    def ended(self, step: int) -> str | None:
        return "one pass" if step else None

    def snapshot(self, step: int) -> Snapshot:
        return Snapshot(step, {}, {f"parameters.{n}": p for n, p in self.parameters.items()})

    def restore(self, snapshot: Snapshot) -> None:
        pass

    def replica(self) -> OnePass:
        return self

    def apart(self) -> OnePass:
        return self

    def parameter_names(self) -> dict[int, str]:
        return {id(p): name for name, p in self.parameters.items()}


def in_turn(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> float:
    """Median of first / second, each pair measured in the other order than the one before."""
    ratios = []
    for number in range(rounds + 2):
        took = {}
        for which in (first, second) if number % 2 else (second, first):
            begin = time.perf_counter()
            which()
            took[which] = time.perf_counter() - begin
        if number > 1:
            ratios.append(took[first] / took[second])
    return median(ratios)


def walked(process: OnePass) -> Walk:
    walk = Walk(process)
    walk.seek(1)
    walk.finish_step()
    return walk


def passes(theirs: Any, ours: Any, length: int, rounds: int) -> list[Row]:
    ids = torch.randint(ours.vocab_size, (1, length), generator=torch.Generator().manual_seed(1))

    process = OnePass(ours, ids)

    def plain() -> Tensor:
        with torch.no_grad():
            logits: Tensor = theirs(ids, use_cache=False).logits
        return logits

    def driven() -> Tensor:
        with torch.no_grad():
            logits: Tensor = drain(ours.states(ids)).value
        return logits

    torch.testing.assert_close(driven(), plain(), rtol=1e-4, atol=1e-4)
    return [
        Row(
            f"T {length}: driven and dropped / plain", in_turn(driven, plain, rounds), "times", 1.03
        ),
        Row(
            f"T {length}: walked and held / plain",
            in_turn(lambda: walked(process), plain, rounds),
            "times",
            1.05,
        ),
    ]


def peak(folder: str, length: int, how: str) -> None:
    """In a process of its own: print the most memory that one pass took, in bytes."""
    ids = torch.randint(1000, (1, length), generator=torch.Generator().manual_seed(1))
    if how == "plain":
        from transformers import GPT2LMHeadModel

        theirs: Any = GPT2LMHeadModel.from_pretrained(folder)
        with torch.no_grad():
            theirs(ids, use_cache=False)
    else:
        kept = walked(OnePass(load_pretrained(folder).model, ids))
        assert kept.held_bytes
    print(peak_bytes())


def peaks(folder: Path, length: int) -> Row:
    """The peak of a walk that holds all it can within its budget, against that of a plain pass."""
    most = {}
    for how in ("plain", "walked"):
        code = f"from benchmarks.decoder import peak; peak({str(folder)!r}, {length}, {how!r})"
        made = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        most[how] = int(made.stdout.split()[-1])
    note = f"{most['walked'] / 1e6:,.0f} MB against {most['plain'] / 1e6:,.0f}"
    what = f"T {length}: peak memory, walked and held / plain"
    return Row(what, most["walked"] / most["plain"], "times", 3.0, note)


def generation(theirs: Any, found: Pretrained, new: int, rounds: int) -> Row:
    """Greedy tokens after a prompt, each with its own cache."""
    words = [str(i) for i in range(found.model.vocab_size)]
    tokenizer = ListedTokenizer("numbers", words)
    prompt = [17, 4, 99, 256]
    ids = torch.tensor([prompt])

    def ours() -> list[int]:
        text = " ".join(map(str, prompt))
        made = Generation(found.model, tokenizer, text, new, Greedy(), cache=True)
        with torch.no_grad():  # as `tensorstep generate` does
            for step in range(new + 1):
                drain(made.states(step))
        return made.ids

    def plain() -> list[int]:
        made = theirs.generate(ids, max_new_tokens=new, do_sample=False, pad_token_id=0)
        return list(made[0].tolist())

    assert ours() == plain()
    return Row(
        "generation with a cache / transformers'", in_turn(ours, plain, rounds), "times", 1.0
    )


def first_state(folder: Path, rounds: int) -> Row:
    """From nothing to the embedding, against reading the file into memory."""
    file = folder / "model.safetensors"

    def ours() -> None:
        model = load_pretrained(str(folder)).model
        states = model.states(torch.tensor([[1, 2, 3]]))
        next(states).finish()
        states.close()

    def plain() -> list[Tensor]:
        return [tensor.clone() for tensor in load_file(file).values()]

    return Row("to the first state / a plain read", in_turn(ours, plain, rounds), "times", 1.5)


def measure(smoke: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs = peer(folder, smoke)
        found = load_pretrained(name)
        rounds, new = (2, 5) if smoke else (9, 48)
        rows = []
        for length in (16,) if smoke else (64, 256):
            rows += passes(theirs, found.model, length, rounds)
        rows.append(peaks(folder, length))
        rows.append(generation(theirs, found, new, rounds))
        rows.append(first_state(folder, max(2, rounds // 3)))
    return rows


if __name__ == "__main__":
    if not MEMORY.keys() <= os.environ.keys():  # as the worker is started, in which walks are made
        command = [sys.executable, "-m", "benchmarks.decoder", *sys.argv[1:]]
        os.execve(sys.executable, command, MEMORY | os.environ)
    run("decoder", measure)
