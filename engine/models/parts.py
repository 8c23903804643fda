"""The parts that decoders are put together from. Each is a module with its parameters and a
generator of its states; a kind of model is a choice of parts and settings, made once in `__init__`.

Axes: B examples, T positions, S sources (positions seen as keys), d width, h hidden, k query and
key width, v value width, H heads, G key/value heads, C vocabulary.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from engine.ops import (
    Rotary,
    add,
    copy,
    gated_silu,
    gelu,
    layer_norm,
    linear,
    mask,
    matmul,
    position_rows,
    rms_norm,
    rotate,
    scale,
    softmax,
)
from engine.states import State, States, View

Heads = State | View
NO_PADDING = -1  # an ID that no vocabulary has


# --- normalisation ---------------------------------------------------------------------------


class LayerNorm(nn.LayerNorm):
    """Mean 0 and variance 1 in each row, scaled and shifted."""

    def state(self, name: str, x: State) -> State:
        return layer_norm(name, x, self)


class RMSNorm(nn.RMSNorm):
    """Mean square 1 in each row, scaled."""

    def state(self, name: str, x: State) -> State:
        return rms_norm(name, x, self)


class Norm(Protocol):
    def state(self, name: str, x: State) -> State: ...


# --- positions -------------------------------------------------------------------------------


class LearnedPositions(nn.Embedding):
    """A row of numbers for every position, added to the token's; nothing is turned."""

    def embedded(self, tokens: State, X: State, pad_id: int | None) -> States:
        count = tokens.value.shape[1]
        rows = yield position_rows("embedding.positions", X, self, pad_id, count)  # [1, T, d]
        return (yield add("embedding", tokens, rows))  # [B, T, d]

    def turned(self, q: Heads, k: Heads, X: State, pad_id: int | None, at: str) -> States:
        return q, k
        yield


class NoPositions(nn.Module):
    """Nothing is added, and nothing turned: a token's place does not count."""

    def embedded(self, tokens: State, X: State, pad_id: int | None) -> States:
        return (yield copy("embedding", tokens.view(as_it_is, tokens.axes)))  # [B, T, d]

    def turned(self, q: Heads, k: Heads, X: State, pad_id: int | None, at: str) -> States:
        return q, k
        yield


class RotaryPositions(NoPositions):
    """Nothing is added; queries and keys are turned by their positions."""

    def __init__(self, rotary: Rotary):
        super().__init__()
        self.rotary = rotary

    def turned(self, q: Heads, k: Heads, X: State, pad_id: int | None, at: str) -> States:
        turned_q = yield rotate(f"{at}q.rotated", q, X, self.rotary, pad_id)  # [B, H, T, k]
        turned_k = yield rotate(f"{at}k.rotated", k, X, self.rotary, pad_id)  # [B, G, T, k]
        return turned_q, turned_k


class Positions(Protocol):
    """How a token's place comes in."""

    def embedded(self, tokens: State, X: State, pad_id: int | None) -> States:
        """`embedding`: what the stream begins with."""
        ...

    def turned(self, q: Heads, k: Heads, X: State, pad_id: int | None, at: str) -> States:
        """Queries and keys by head, as they are compared."""
        ...


# --- attention -------------------------------------------------------------------------------


class Attention(nn.Module):
    """Standard scaled dot-product attention: H query heads share G key/value heads; each position
    sees itself and what is before it, but for padding."""

    def __init__(
        self, width: int, heads: int, groups: int, head_width: int, qkv_bias: bool, out_bias: bool
    ):
        super().__init__()
        self.heads, self.groups = heads, groups
        self.W_Q = nn.Linear(width, heads * head_width, bias=qkv_bias)
        self.W_K = nn.Linear(width, groups * head_width, bias=qkv_bias)
        self.W_V = nn.Linear(width, groups * head_width, bias=qkv_bias)
        self.W_O = nn.Linear(heads * head_width, width, bias=out_bias)
        self.temper = head_width**-0.5

    def states(
        self,
        x: State,
        X: State,
        pad_id: int | None,
        positions: Positions,
        past: Past,
        at: str,
    ) -> States:
        q = yield linear(f"{at}q", x, self.W_Q, "H·k")  # [B, T, H·k]
        k = yield linear(f"{at}k", x, self.W_K, "G·k")  # [B, T, G·k]
        v = yield linear(f"{at}v", x, self.W_V, "G·v")  # [B, T, G·v]
        queries, keys, values = self.by_head(q), self.by_group(k), self.by_group(v)
        queries, keys = yield from positions.turned(queries, keys, X, pad_id, at)
        keys, values = yield from past.joined(keys, values, at)  # [B, G, S, k or v]
        keys, values = self.shared(keys, "S"), self.shared(values, "S")  # [B, H, S, k or v]
        scores = yield matmul(f"{at}scores.raw", queries, keys.T)  # [B, H, T, S]
        scores = yield scale(f"{at}scores", scores, self.temper)
        hidden = NO_PADDING if pad_id is None else pad_id
        scores = yield mask(f"{at}scores.masked", scores, X, hidden)
        weights = yield softmax(f"{at}weights", scores)
        message = yield matmul(f"{at}message", weights, values)  # [B, H, T, v]
        joined = message.view(side_by_side, ("B", "T", "H·v"))  # [B, T, H·v]
        return (yield linear(f"{at}projection", joined, self.W_O, "d"))  # [B, T, d]

    def by_head(self, x: State) -> View:
        """[B, T, H·k] -> [B, H, T, k]"""
        count = self.heads
        return x.view(lambda t: split(t, count), ("B", "H", "T", x.axes[-1][-1]))

    def by_group(self, x: State) -> View:
        """[B, T, G·k] -> [B, G, T, k]"""
        count = self.groups
        return x.view(lambda t: split(t, count), ("B", "G", "T", x.axes[-1][-1]))

    def shared(self, x: Heads, sources: str) -> View:
        """[B, G, S, k] -> [B, H, S, k]: each key/value head is read by H/G query heads."""
        times = self.heads // self.groups
        axes = ("B", "H", sources, x.axes[-1])
        return x.view(lambda t: t if times == 1 else t.repeat_interleave(times, 1), axes)


class Past(Protocol):
    """What is known of earlier positions: nothing, or a cache (`engine.generation.cache`)."""

    def unseen(self, X: State) -> Heads:
        """Of all IDs [B, S] those that are to be computed, [B, T]."""
        ...

    def joined(self, keys: Heads, values: Heads, at: str) -> States:
        """Keys and values of all positions [B, G, S, k], from those that are new."""
        ...


class NoPast:
    """All positions are computed anew."""

    def unseen(self, X: State) -> Heads:
        return X

    def joined(self, keys: Heads, values: Heads, at: str) -> States:
        return keys, values
        yield


# --- feedforward -----------------------------------------------------------------------------


class FeedForward(nn.Module):
    """Two layers with GELU between them."""

    def __init__(self, width: int, hidden: int, bias: bool, approximate: str = "none"):
        super().__init__()
        self.expand = nn.Linear(width, hidden, bias=bias)
        self.shrink = nn.Linear(hidden, width, bias=bias)
        self.approximate = approximate

    def states(self, x: State, at: str) -> States:
        pre = yield linear(f"{at}pre", x, self.expand, "h")  # [B, T, h]
        hidden = yield gelu(f"{at}hidden", pre, self.approximate)  # [B, T, h]
        return (yield linear(f"{at}output", hidden, self.shrink, "d"))  # [B, T, d]


class GatedFeedForward(nn.Module):
    """Two layers side by side, one of which is the gate of the other (SwiGLU), and one after."""

    def __init__(self, width: int, hidden: int, bias: bool):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=bias)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def states(self, x: State, at: str) -> States:
        gate = yield linear(f"{at}gate", x, self.gate, "h")  # [B, T, h]
        up = yield linear(f"{at}up", x, self.up, "h")  # [B, T, h]
        hidden = yield gated_silu(f"{at}hidden", gate, up)  # [B, T, h]
        return (yield linear(f"{at}output", hidden, self.down, "d"))  # [B, T, d]


# --- arrangements ----------------------------------------------------------------------------


def as_it_is(x: Tensor) -> Tensor:
    return x


def split(x: Tensor, count: int) -> Tensor:
    """[B, T, H·k] -> [B, H, T, k]"""
    return x.view(*x.shape[:-1], count, -1).transpose(1, 2)


def side_by_side(x: Tensor) -> Tensor:
    """[B, H, T, v] -> [B, T, H·v]"""
    return x.transpose(1, 2).flatten(-2)


def last_row(x: Tensor) -> Tensor:
    """[B, T, C] -> [B, C]"""
    return x[:, -1]
