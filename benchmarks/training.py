"""A drained training step against a plain hand-written loop of the same model.

Both train from the same parameters on the same batches, in turn within one run, and must agree in
every loss to the last bit. The figure is the median of the ratios, step by step.

    python -m benchmarks.training [--json] [--smoke]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import engine
from benchmarks.report import Row, median, run
from engine.training.optimizers import UpdateRule

VOCABULARY, CONTEXT = 4000, 64


class PlainMLP(nn.Module):
    """The window MLP as one would write it by hand."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.hidden_layer = nn.Linear(CONTEXT * width, hidden)
        self.vocab_head = nn.Linear(hidden, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding(ids).flatten(1)
        logits: Tensor = self.vocab_head(F.relu(self.hidden_layer(x)))
        return logits


class PlainAttention(nn.Module):
    """Attention of the last slot, one head or several, as one would write it by hand."""

    def __init__(self, width: int, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.token_embedding = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.position_embedding = nn.Embedding(CONTEXT, width)
        self.W_Q = nn.Linear(width, width, bias=False)
        self.W_K = nn.Linear(width, width, bias=False)
        self.W_V = nn.Linear(width, width, bias=False)
        self.W_O = nn.Linear(width, width, bias=False)
        self.hidden_layer = nn.Linear(width, hidden)
        self.vocab_head = nn.Linear(hidden, VOCABULARY)
        self.register_buffer("slots", torch.arange(CONTEXT), persistent=False)
        self.factor = (width // heads) ** -0.5

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding(ids) + self.position_embedding(self.slots)
        last = x[:, -1:]
        q, k, v = self.W_Q(last), self.W_K(x), self.W_V(x)
        hidden = (ids == 0)[:, None]
        if self.heads > 1:
            q, k, v = map(self.split, (q, k, v))
            hidden = hidden[:, None]
        scores = (q @ k.transpose(-2, -1)) * self.factor
        message = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        if self.heads > 1:
            message = message.transpose(1, 2).flatten(-2)
        residual = (last + self.W_O(message))[:, 0]
        logits: Tensor = self.vocab_head(F.relu(self.hidden_layer(residual)))
        return logits


def models(width: int, hidden: int) -> dict[str, tuple[Callable[[], nn.Module], ...]]:
    """Ours and the plain one, by name."""
    d, h = width, hidden
    return {
        "mlp": (
            lambda: engine.FixedWindowMLP(VOCABULARY, CONTEXT, d, h),
            lambda: PlainMLP(d, h),
        ),
        "attention": (
            lambda: engine.CausalAttentionLM(VOCABULARY, CONTEXT, d, d, d, h),
            lambda: PlainAttention(d, h, 1),
        ),
        "multihead": (
            lambda: engine.MultiHeadAttentionLM(VOCABULARY, CONTEXT, d, h, 4),
            lambda: PlainAttention(d, h, 4),
        ),
    }


def documents(count: int) -> list[list[int]]:
    """Random IDs between <BOS> and <EOS>: numbers do not care what they mean."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(4, VOCABULARY, (count, 200), generator=generator).tolist()
    return [[1, *row, 2] for row in rows]


def compare(
    made: tuple[Callable[[], nn.Module], ...], rule: UpdateRule, batch: int, steps: int
) -> tuple[float, float]:
    """Median ratio ours / plain, and the plain step's median in milliseconds.

    Raises AssertionError where a loss differs.
    """
    windows = engine.Windows(documents(40), CONTEXT, 0)
    contexts, targets = windows.contexts[:], windows.targets
    torch.manual_seed(0)
    ours = made[0]()
    torch.manual_seed(0)
    plain = made[1]()
    assert isinstance(ours, engine.StatesModel)
    optimizer = rule.build(list(plain.parameters()))
    data = engine.TrainingData.of(contexts, targets)
    training = engine.Training(ours, data, engine.SampledRows(len(windows), batch, 11), rule)
    batches = engine.SampledRows(len(windows), batch, 11)

    def plain_step(step: int) -> Tensor:
        rows = batches.rows(step)
        x, y = contexts[rows], targets[rows]
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def our_step(step: int) -> Tensor:
        loss: Tensor = engine.drain(training.states(step)).value
        return loss

    ratios, plain_times = [], []
    for step in range(1, steps + 1):
        first, second = (plain_step, our_step) if step % 2 else (our_step, plain_step)
        start = time.perf_counter()
        a = first(step)
        middle = time.perf_counter()
        b = second(step)
        end = time.perf_counter()
        assert a.item() == b.item(), f"losses differ at step {step}"
        times = {first: middle - start, second: end - middle}
        if step > max(2, steps // 10):
            ratios.append(times[our_step] / times[plain_step])
            plain_times.append(times[plain_step] * 1000)
    return median(ratios), median(plain_times)


def measure(smoke: bool) -> list[Row]:
    sizes = [("batch 512, width 64", 64, 512, 160, 1.03), ("batch 16, width 32", 32, 16, 800, 1.10)]
    if smoke:
        sizes = [("batch 16, width 32", 32, 16, 20, 1.10)]
    rows = []
    for size, width, batch, steps, target in sizes:
        for model, made in models(width, 256).items():
            for name, rule in (("SGD", engine.SGD(0.1)), ("AdamW", engine.AdamW(0.003))):
                ratio, plain = compare(made, rule, batch, steps)
                what = f"{model}, {name}, {size}: drained / plain"
                rows.append(Row(what, ratio, "times", target, f"plain step {plain:.2f} ms"))
    return rows


if __name__ == "__main__":
    run("training", measure)
