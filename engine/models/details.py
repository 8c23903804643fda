"""The attention models with every slot asking: what a whole causal pass would compute."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.states import State, States, each

# key of the details -> name of the state
DETAILS = {
    "X": "embedding",
    "Q": "q",
    "K": "K",
    "V": "V",
    "scores": "scores",
    "masked_scores": "scores.masked",
    "weights": "weights",
    "messages": "message",
    "updates": "projection",
    "contextual": "residual",
    "hidden": "hidden",
    "logits_all": "logits",
}


class Attending(Protocol):
    def states(self, X: Tensor | State, every_query: bool = False) -> States: ...


def forward_details(model: Attending, ids: Tensor) -> dict[str, Tensor]:
    """All intermediate tensors with every slot as a query, each seeing itself and what is before.

    ids [B, w]. Returns `X` [B, w, d], `Q`, `K` [B, w, k], `V` [B, w, v], `scores`,
    `masked_scores`, `weights` [B, (H,) w, w], `attention_mask` of the same shape (True where a
    query may see a source), `messages`, `updates` and `contextual` = X + updates [B, w, d],
    `hidden` [B, w, h], `logits_all` [B, w, C] and `logits` [B, C], its last row, which is what
    `forward` gives. A query that may see nothing (padding) has weights and message 0.
    """
    made = {state.name: state.value for state in each(model.states(ids, every_query=True))}
    details: dict[str, Tensor] = {key: made[name] for key, name in DETAILS.items()}
    details["attention_mask"] = ~details["masked_scores"].isneginf()
    details["logits"] = details["logits_all"][:, -1]
    return details
