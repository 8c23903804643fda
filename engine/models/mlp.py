"""A window MLP: the embeddings of w tokens side by side, one hidden layer, scores for the next."""

from __future__ import annotations

from torch import Tensor, nn

from engine.models.base import StatesModel
from engine.ops import copy, linear, lookup, relu
from engine.states import State, States


class FixedWindowMLP(StatesModel):
    """Predicts the next token from exactly `context_len` tokens, each slot with weights of its own.

    vocab_size C, context_len w, d_embed d, hidden h; the row of `pad_id` is zero and stays zero.
    """

    weight_axes = {"hidden_layer": ("h", "w·d")}

    def __init__(
        self, vocab_size: int, context_len: int, d_embed: int, hidden: int, pad_id: int = 0
    ):
        super().__init__()
        self.vocab_size, self.context_len, self.pad_id = vocab_size, context_len, pad_id
        self.token_embedding = nn.Embedding(vocab_size, d_embed, padding_idx=pad_id)
        self.hidden_layer = nn.Linear(context_len * d_embed, hidden)
        self.vocab_head = nn.Linear(hidden, vocab_size)

    def states(self, X: Tensor | State) -> States:
        X = self.take_ids(X)  # [B, w]
        embedding = yield lookup("embedding", X, self.token_embedding)  # [B, w, d]
        joined = embedding.view(side_by_side, ("B", "w·d"))
        flatten = yield copy("flatten", joined)  # [B, w·d]
        pre = yield linear("hidden.pre", flatten, self.hidden_layer, "h")  # [B, h]
        hidden = yield relu("hidden", pre)  # [B, h]
        return (yield linear("logits", hidden, self.vocab_head, "C"))  # [B, C]


def side_by_side(x: Tensor) -> Tensor:
    """[B, w, d] -> [B, w·d]"""
    return x.flatten(1)
