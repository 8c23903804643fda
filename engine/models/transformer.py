"""The decoder: blocks of attention and feedforward, each added to a stream that runs through.

GPT-2, Llama, Mistral and Qwen2 are this model with other parts and settings; so is the character
model of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from engine.errors import UsageError
from engine.models.base import StatesModel
from engine.models.parts import (
    Attention,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    NoPast,
    Past,
    Positions,
    RMSNorm,
    RotaryPositions,
)
from engine.ops import Rotary, add, linear, lookup
from engine.states import State, States


@dataclass(frozen=True)
class DecoderConfig:
    """The settings of a decoder.

    vocab_size, context_len  C, and the most positions T
    width, blocks, hidden    d, how many blocks, h
    heads, groups            H query heads, G key/value heads (None: as many)
    head_width               k (None: d / H)
    norm, norm_eps           layer (with shift unless `norm_bias` is off) or rms
    rotary                   how positions turn queries and keys; None: a learned table is added
    gated                    SwiGLU; else GELU, by tanh where `approximate` says so
    qkv_bias, out_bias, feedforward_bias, head_bias
    tied                     the head reads the token embedding
    pad_id                   the ID of padding, which is never seen; None: there is none
    """

    vocab_size: int
    context_len: int
    width: int
    blocks: int
    heads: int
    hidden: int
    groups: int | None = None
    head_width: int | None = None
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_bias: bool = True
    rotary: Rotary | None = None
    gated: bool = False
    approximate: str = "none"
    qkv_bias: bool = True
    out_bias: bool = True
    feedforward_bias: bool = True
    head_bias: bool = False
    tied: bool = True
    pad_id: int | None = None

    def check(self) -> DecoderConfig:
        """Itself. Raises UsageError for sizes that do not fit each other."""
        groups = self.groups or self.heads
        if self.head_width is None and self.width % self.heads:
            raise UsageError(f"{self.heads} heads do not share a width of {self.width} evenly")
        if self.heads % groups:
            raise UsageError(f"{groups} key/value heads do not share {self.heads} heads evenly")
        return self


class Block(nn.Module):
    """Attention, then feedforward, each of a normalised copy and added to what came in."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        c = config
        self.norm1 = norm_of(c)
        self.attention = Attention(
            c.width,
            c.heads,
            c.groups or c.heads,
            c.head_width or c.width // c.heads,
            c.qkv_bias,
            c.out_bias,
        )
        self.norm2 = norm_of(c)
        self.feedforward = (
            GatedFeedForward(c.width, c.hidden, c.feedforward_bias)
            if c.gated
            else FeedForward(c.width, c.hidden, c.feedforward_bias, c.approximate)
        )

    def states(
        self, x: State, X: State, pad_id: int | None, positions: Positions, past: Past, at: str
    ) -> States:
        normed = yield self.norm1.state(f"{at}norm1", x)  # [B, T, d]
        attention = self.attention.states(normed, X, pad_id, positions, past, f"{at}attention.")
        projection = yield from attention  # [B, T, d]
        x = yield add(f"{at}residual1", x, projection)  # [B, T, d]
        normed = yield self.norm2.state(f"{at}norm2", x)  # [B, T, d]
        output = yield from self.feedforward.states(normed, f"{at}feedforward.")  # [B, T, d]
        return (yield add(f"{at}residual2", x, output))  # [B, T, d]


class DecoderLM(StatesModel):
    """Predicts the next token at every position: X [B, T] -> logits [B, T, C]. With a past only the
    positions that are not in it are computed: X [B, S] -> logits [B, T, C] of the last T."""

    every_position = True

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = c = config.check()
        self.vocab_size, self.context_len = c.vocab_size, c.context_len
        self.pad_id = c.pad_id
        self.token_embedding = nn.Embedding(c.vocab_size, c.width, padding_idx=c.pad_id)
        self.position_embedding = (
            LearnedPositions(c.context_len, c.width)
            if c.rotary is None
            else RotaryPositions(c.rotary)
        )
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.blocks))
        self.norm = norm_of(c)
        self.vocab_head = nn.Linear(c.width, c.vocab_size, bias=c.head_bias)
        if c.tied:
            self.vocab_head.weight = self.token_embedding.weight

    def states(self, X: Tensor | State, past: Past | None = None) -> States:
        X = self.take_ids(X, shorter=True)  # [B, T]
        past, pad_id = past or NoPast(), self.pad_id
        positions: Positions = self.position_embedding
        new = past.unseen(X)  # [B, T]
        tokens = yield lookup("embedding.tokens", new, self.token_embedding)  # [B, T, d]
        x = yield from positions.embedded(tokens, X, pad_id)  # [B, T, d]
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)  # noqa: S101, as they were made
            x = yield from block.states(x, X, pad_id, positions, past, f"blocks.{i}.")
        return (yield from self.answer(x))  # [B, T, C]

    def answer(self, x: State) -> States:
        """What a stream [B, T, d] says of the next token: [B, T, C]; at the end, or, by the logit
        lens (`engine.lens`), after any block."""
        x = yield self.norm.state("norm", x)  # [B, T, d]
        return (yield linear("logits", x, self.vocab_head, "C"))  # [B, T, C]


def norm_of(config: DecoderConfig) -> LayerNorm | RMSNorm:
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.norm_eps)
    return LayerNorm(config.width, eps=config.norm_eps, bias=config.norm_bias)


class TinyTransformer(DecoderLM):
    """One block, one head, pre-normalisation: the character model."""

    def __init__(
        self, vocabulary_size: int, context_length: int, width: int = 32, hidden_width: int = 64
    ):
        super().__init__(
            DecoderConfig(
                vocabulary_size,
                context_length,
                width,
                blocks=1,
                heads=1,
                hidden=hidden_width,
                qkv_bias=False,
                out_bias=False,
                tied=False,
            )
        )
