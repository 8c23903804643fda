"""Hand-sized examples: attention and a block over "money at bank", with weights that one can follow
on paper. In float64, so that every digit is the arithmetic's own.

`ROUNDED` has the figures of the notes these examples follow, where carrying rounded figures on has
made them differ from what comes out: the explanation of such a cell says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.errors import UsageError
from engine.models.base import StatesModel
from engine.models.parts import Attention, FeedForward, NoPast, NoPositions
from engine.models.transformer import Block, DecoderConfig
from engine.ops import add, lookup
from engine.states import State, States

TOKENS = ("money", "at", "bank")
EXAMPLES = ("money-bank-2", "money-bank-4", "money-bank-causal")
EYE = "identity"

# state -> the row of "bank" as the notes show it, where it is not what comes out, rounded
ROUNDED: dict[str, dict[str, dict[int, float]]] = {
    "money-bank-2": {
        "blocks.0.attention.message": {0: 6.802, 1: 6.802},
        "blocks.0.residual1": {0: 8.802, 1: 7.802},
    },
    "money-bank-4": {
        "blocks.0.norm2": {0: -1.26, 1: 0.925},
        "blocks.0.feedforward.pre": {0: -1.26, 1: 0.925, 4: -0.335},
        "blocks.0.feedforward.hidden": {1: 0.761},
        "blocks.0.feedforward.output": {3: 1.09},
        "blocks.0.residual2": {1: 4.707, 3: 5.058},
    },
}


class MoneyBank2(StatesModel):
    """Attention of width 2 and the residual, no more."""

    every_position = True
    vocab_size, context_len = len(TOKENS), len(TOKENS)

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = table([[10, 0], [0, 1], [2, 1]])
        self.positions = NoPositions()
        self.attention = Attention(2, 1, 1, 2, qkv_bias=False, out_bias=False)
        self.double()
        put(self.attention.W_Q, [[1, 0], [0, 0]])
        put(self.attention.W_K, [[0.1, 0], [0, 1]])
        put(self.attention.W_V, [[1, 1], [0, 0]])
        put(self.attention.W_O, EYE)

    def states(self, X: Tensor | State) -> States:
        X = self.take_ids(X, shorter=True)  # [B, T]
        tokens = yield lookup("embedding.tokens", X, self.token_embedding)  # [B, T, d]
        x = yield from self.positions.embedded(tokens, X, None)  # [B, T, d]
        at = "blocks.0."
        attention = self.attention.states(x, X, None, self.positions, NoPast(), f"{at}attention.")
        projection = yield from attention  # [B, T, d]
        return (yield add(f"{at}residual1", x, projection))  # [B, T, d]


class MoneyBank4(StatesModel):
    """A whole block of width 4: norms without ε, one head, six hidden units, exact GELU."""

    every_position = True
    vocab_size, context_len = len(TOKENS), len(TOKENS)

    def __init__(self) -> None:
        super().__init__()
        config = DecoderConfig(
            *(3, 3, 4, 1, 1, 6),
            norm_eps=0.0,
            qkv_bias=False,
            out_bias=False,
            feedforward_bias=False,
        )
        self.token_embedding = table([[3, 1, 3, 1], [1, 1, 3, 3], [1, 3, 1, 3]])
        self.positions = NoPositions()
        block = Block(config)
        self.blocks = nn.ModuleList([block])
        self.double()
        attention, feedforward = block.attention, block.feedforward
        assert isinstance(feedforward, FeedForward)  # noqa: S101, by its config
        for layer in (attention.W_Q, attention.W_K, attention.W_O):
            put(layer, EYE)
        put(attention.W_V, [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
        expand = [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1], [0, 0, 0, 1, 0, 1]]
        put(feedforward.expand, expand)
        put(feedforward.shrink, [*torch.eye(4).tolist(), [1, 0, 1, 0], [0, 1, 0, 1]])

    def states(self, X: Tensor | State) -> States:
        X = self.take_ids(X, shorter=True)  # [B, T]
        tokens = yield lookup("embedding.tokens", X, self.token_embedding)  # [B, T, d]
        x = yield from self.positions.embedded(tokens, X, None)  # [B, T, d]
        block: Block = self.blocks[0]  # type: ignore[assignment]
        return (yield from block.states(x, X, None, self.positions, NoPast(), "blocks.0."))


def table(rows: Sequence[Sequence[float]]) -> nn.Embedding:
    made = nn.Embedding(len(rows), len(rows[0]))
    with torch.no_grad():
        made.weight.copy_(torch.tensor(rows))
    return made


def put(layer: nn.Linear, matrix: Sequence[Sequence[float]] | str) -> None:
    """Weights as one writes them by hand, for x · W: torch keeps Wᵀ."""
    size, dtype = layer.in_features, layer.weight.dtype
    weight = torch.eye(size) if isinstance(matrix, str) else torch.tensor(matrix, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(weight.T)


def example_model(name: str) -> StatesModel:
    """The model of an example. Raises UsageError for one that there is not."""
    if name not in EXAMPLES:
        raise UsageError(f"there is no example {name!r}: use {', '.join(EXAMPLES)}")
    return MoneyBank2() if name == "money-bank-2" else MoneyBank4()
