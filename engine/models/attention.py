"""Standard scaled dot-product attention, one head, asked by the last slot only."""

from __future__ import annotations

from torch import Tensor, nn

from engine.models.base import StatesModel
from engine.models.details import forward_details
from engine.ops import add, linear, lookup, mask, matmul, relu, scale, slots, softmax
from engine.states import State, States


class CausalAttentionLM(StatesModel):
    """Predicts the next token from what the last slot finds in the slots it may see.

    vocab_size C, context_len w, d_model d, d_k k, d_v v, hidden h; slots that hold `pad_id` are
    never seen. Contexts may be shorter than w.
    """

    def __init__(
        self,
        vocab_size: int,
        context_len: int,
        d_model: int,
        d_k: int,
        d_v: int,
        hidden: int,
        pad_id: int = 0,
    ):
        super().__init__()
        self.vocab_size, self.context_len, self.pad_id = vocab_size, context_len, pad_id
        self.token_embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.position_embedding = nn.Embedding(context_len, d_model)
        self.W_Q = nn.Linear(d_model, d_k, bias=False)
        self.W_K = nn.Linear(d_model, d_k, bias=False)
        self.W_V = nn.Linear(d_model, d_v, bias=False)
        self.W_O = nn.Linear(d_v, d_model, bias=False)
        self.hidden_layer = nn.Linear(d_model, hidden)
        self.vocab_head = nn.Linear(hidden, vocab_size)
        self.temper = d_k**-0.5

    def states(self, X: Tensor | State, every_query: bool = False) -> States:
        X = self.take_ids(X, shorter=True)  # [B, w]
        x = yield lookup("embedding.tokens", X, self.token_embedding)  # [B, w, d]
        width = X.value.shape[1]
        positions = yield slots("embedding.positions", self.position_embedding, width)  # [w, d]
        x = yield add("embedding", x, positions)  # [B, w, d]
        asking = x if every_query else x.view(last_slot, ("B", "1", "d"))  # only the last slot asks
        asked = x.view(every_slot, ("B", "S", "d"))  # every slot is a source
        q = yield linear("q", asking, self.W_Q, "k")  # [B, 1, k]
        K = yield linear("K", asked, self.W_K, "k")  # [B, S, k]
        V = yield linear("V", asked, self.W_V, "v")  # [B, S, v]
        scores = yield matmul("scores.raw", q, K.T)  # [B, 1, S]
        scores = yield scale("scores", scores, self.temper)  # [B, 1, S]
        scores = yield mask("scores.masked", scores, X, self.pad_id)  # [B, 1, S]
        weights = yield softmax("weights", scores)  # [B, 1, S]
        message = yield matmul("message", weights, V)  # [B, 1, v]
        projection = yield linear("projection", message, self.W_O, "d")  # [B, 1, d]
        residual = yield add("residual", asking, projection)  # [B, 1, d]
        answer = residual if every_query else residual.view(first_slot, ("B", "d"))
        pre = yield linear("hidden.pre", answer, self.hidden_layer, "h")  # [B, h]
        hidden = yield relu("hidden", pre)  # [B, h]
        return (yield linear("logits", hidden, self.vocab_head, "C"))  # [B, C]

    def forward_details(self, ids: Tensor) -> dict[str, Tensor]:
        """Every causal query row at once: see `engine.models.details`."""
        return forward_details(self, ids)


def last_slot(x: Tensor) -> Tensor:
    """[B, w, d] -> [B, 1, d]"""
    return x[:, -1:]


def first_slot(x: Tensor) -> Tensor:
    """[B, 1, d] -> [B, d]"""
    return x[:, 0]


def every_slot(x: Tensor) -> Tensor:
    """[B, w, d] -> [B, S, d]: the same cells, in their part as what is looked at."""
    return x
