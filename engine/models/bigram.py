"""A table: for each token, a row of scores for the token after it. The simplest language model."""

from __future__ import annotations

from torch import Tensor, nn

from engine.models.base import StatesModel
from engine.ops import lookup
from engine.states import State, States


class BigramLM(StatesModel):
    """Predicts the next token from the last one alone: [B, w] -> [B, C]."""

    weight_axes = {"table": ("C", "C")}

    def __init__(self, vocab_size: int, context_len: int):
        super().__init__()
        self.vocab_size, self.context_len = vocab_size, context_len
        self.table = nn.Embedding(vocab_size, vocab_size)

    def states(self, X: Tensor | State) -> States:
        X = self.take_ids(X, shorter=True)  # [B, w]
        last = X.view(last_id, ("B",))
        return (yield lookup("logits", last, self.table, "C"))  # [B, C]


def last_id(ids: Tensor) -> Tensor:
    """[B, w] -> [B]"""
    return ids[:, -1]
