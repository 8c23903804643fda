"""The three models once more, in plain PyTorch: what the engine's numbers are compared with.

Each draws its parameters in the order of `reference/lily.json` and names every value it makes
through `use`, so that a test can read it or put another one in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.engine.worked import SEED

Use = Callable[[str, Tensor], Tensor]


def as_it_is(name: str, tensor: Tensor) -> Tensor:
    return tensor


class PlainMLP(nn.Module):
    def __init__(self, words: int = 10, context: int = 4, d: int = 4, h: int = 8):
        super().__init__()
        self.token_embedding = nn.Embedding(words, d, padding_idx=0)
        self.hidden_layer = nn.Linear(context * d, h)
        self.vocab_head = nn.Linear(h, words)

    def forward(self, ids: Tensor, use: Use = as_it_is) -> Tensor:
        x = use("embedding", self.token_embedding(ids))
        x = use("flatten", x.reshape(len(ids), -1))
        x = use("hidden.pre", self.hidden_layer(x))
        x = use("hidden", torch.relu(x))
        return use("logits", self.vocab_head(x))


class PlainAttention(nn.Module):
    """One head (`heads=None`: W_Q, W_K [k, d], W_V [v, d]) or several of width d / heads."""

    def __init__(
        self,
        words: int = 10,
        context: int = 4,
        d: int = 4,
        k: int = 3,
        v: int = 2,
        h: int = 8,
        heads: int | None = None,
    ):
        super().__init__()
        self.heads = heads
        self.temper = 1 / math.sqrt(d // heads if heads else k)
        self.token_embedding = nn.Embedding(words, d, padding_idx=0)
        self.position_embedding = nn.Embedding(context, d)
        self.W_Q = nn.Linear(d, d if heads else k, bias=False)
        self.W_K = nn.Linear(d, d if heads else k, bias=False)
        self.W_V = nn.Linear(d, d if heads else v, bias=False)
        self.W_O = nn.Linear(d if heads else v, d, bias=False)
        self.hidden_layer = nn.Linear(d, h)
        self.vocab_head = nn.Linear(h, words)

    def forward(self, ids: Tensor, use: Use = as_it_is) -> Tensor:
        x = use("embedding.tokens", self.token_embedding(ids))
        slots = torch.arange(ids.shape[1])
        x = use("embedding", x + use("embedding.positions", self.position_embedding(slots)))
        last = x[:, -1:]
        q = self.split(use("q", self.W_Q(last)))
        K = self.split(use("K", self.W_K(x)))
        V = self.split(use("V", self.W_V(x)))
        scores = use("scores.raw", q @ K.mT)
        scores = use("scores", scores * self.temper)
        padding = (ids == 0)[:, None] if self.heads is None else (ids == 0)[:, None, None]
        scores = use("scores.masked", scores.masked_fill(padding, -math.inf))
        weights = use("weights", torch.softmax(scores, -1))
        message = use("message", weights @ V)
        if self.heads is not None:
            message = message.transpose(1, 2).flatten(-2)
        found = use("projection", self.W_O(message))
        x = use("residual", last + found)[:, 0]
        x = use("hidden.pre", self.hidden_layer(x))
        x = use("hidden", torch.relu(x))
        return use("logits", self.vocab_head(x))

    def split(self, x: Tensor) -> Tensor:
        if self.heads is None:
            return x
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


def plain(name: str) -> nn.Module:
    """The plain counterpart of `worked.build(name)`, drawn by itself after the same seed."""
    torch.manual_seed(SEED)
    if name == "mlp":
        return PlainMLP()
    return PlainAttention(heads=None if name == "attention" else 2)


def plain_training(
    model: nn.Module, X: Tensor, y: Tensor, optimizer: torch.optim.Optimizer, steps: int
) -> list[Tensor]:
    """The loop everybody writes; returns the losses."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def plain_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    """torch's own, with the settings of `worked.RULES`."""
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
