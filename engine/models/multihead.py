"""Several attention heads side by side, each asking its own question of the same slots."""

from __future__ import annotations

from torch import Tensor, nn

from engine.errors import UsageError
from engine.models.attention import every_slot, first_slot, last_slot
from engine.models.base import StatesModel
from engine.models.details import forward_details
from engine.ops import add, linear, lookup, mask, matmul, relu, scale, slots, softmax
from engine.states import State, States, View


class MultiHeadAttentionLM(StatesModel):
    """Predicts the next token from what `heads` heads of width d_model / heads find together.

    vocab_size C, context_len w, d_model d, hidden h; slots that hold `pad_id` are never seen.
    Raises UsageError where the heads do not divide the width.
    """

    weight_axes = {
        "W_Q": ("H·k", "d"),
        "W_K": ("H·k", "d"),
        "W_V": ("H·v", "d"),
        "W_O": ("d", "H·v"),
    }

    def __init__(
        self,
        vocab_size: int,
        context_len: int,
        d_model: int = 64,
        hidden: int = 256,
        heads: int = 4,
        pad_id: int = 0,
    ):
        super().__init__()
        if heads < 1 or d_model % heads:
            raise UsageError(
                f"{heads} heads do not share a width of {d_model} evenly: give a multiple"
            )
        self.vocab_size, self.context_len, self.pad_id = vocab_size, context_len, pad_id
        self.heads = heads
        self.token_embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.position_embedding = nn.Embedding(context_len, d_model)
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)
        self.hidden_layer = nn.Linear(d_model, hidden)
        self.vocab_head = nn.Linear(hidden, vocab_size)
        self.temper = (d_model // heads) ** -0.5

    def states(self, X: Tensor | State, every_query: bool = False) -> States:
        X = self.take_ids(X, shorter=True)  # [B, w]
        x = yield lookup("embedding.tokens", X, self.token_embedding)  # [B, w, d]
        width = X.value.shape[1]
        positions = yield slots("embedding.positions", self.position_embedding, width)  # [w, d]
        x = yield add("embedding", x, positions)  # [B, w, d]
        asking = x if every_query else x.view(last_slot, ("B", "1", "d"))  # only the last slot asks
        asked = x.view(every_slot, ("B", "S", "d"))  # every slot is a source
        q = yield linear("q", asking, self.W_Q, "H·k")  # [B, 1, H·k]
        K = yield linear("K", asked, self.W_K, "H·k")  # [B, S, H·k]
        V = yield linear("V", asked, self.W_V, "H·v")  # [B, S, H·v]
        queries, keys, values = map(self.by_head, (q, K, V))  # [B, H, 1 or S, k or v]
        scores = yield matmul("scores.raw", queries, keys.T)  # [B, H, 1, S]
        scores = yield scale("scores", scores, self.temper)  # [B, H, 1, S]
        scores = yield mask("scores.masked", scores, X, self.pad_id)  # [B, H, 1, S]
        weights = yield softmax("weights", scores)  # [B, H, 1, S]
        message = yield matmul("message", weights, values)  # [B, H, 1, v]
        joined = message.view(side_by_side, ("B", asking.axes[1], "H·v"))  # [B, 1, H·v]
        projection = yield linear("projection", joined, self.W_O, "d")  # [B, 1, d]
        residual = yield add("residual", asking, projection)  # [B, 1, d]
        answer = residual if every_query else residual.view(first_slot, ("B", "d"))
        pre = yield linear("hidden.pre", answer, self.hidden_layer, "h")  # [B, h]
        hidden = yield relu("hidden", pre)  # [B, h]
        return (yield linear("logits", hidden, self.vocab_head, "C"))  # [B, C]

    def by_head(self, x: State) -> View:
        """[B, T, H·k] -> [B, H, T, k], as a view"""
        return x.view(self.split, (x.axes[0], "H", x.axes[1], x.axes[2][-1]))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def forward_details(self, ids: Tensor) -> dict[str, Tensor]:
        """Every causal query row at once: see `engine.models.details`."""
        return forward_details(self, ids)


def side_by_side(x: Tensor) -> Tensor:
    """[B, H, T, v] -> [B, T, H·v]"""
    return x.transpose(1, 2).flatten(-2)
