"""What every model shares: `forward` drains `states` and holds no arithmetic of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import TensorstepError
from engine.ops import given
from engine.states import State, States, drain, uncompiled


class StatesModel(nn.Module):
    """A model whose computation is a generator of named states.

    Subclasses write `states(X)`: X [B, w] IDs in, the logits state [B, C] returned.
    """

    vocab_size: int
    context_len: int
    every_position = False  # whether there are logits at every position: [B, T, C], not [B, C]

    def states(self, X: Tensor | State) -> States:
        raise TypeError(f"{type(self).__name__} does not say how it computes: write states(X)")
        yield

    @uncompiled
    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, C] of the token after each context ids [B, w]."""
        logits: State = drain(self.states(ids))
        value: Tensor = logits.value
        return value

    def take_ids(self, X: Tensor | State, shorter: bool = False) -> State:
        """X as a state, checked: [B, w] IDs of the vocabulary.

        Raises TensorstepError naming the shape, the type or the ID that does not fit.
        """
        if isinstance(X, State):
            return X
        width = X.shape[-1] if X.dim() == 2 else -1
        if width != self.context_len and not (shorter and 0 < width < self.context_len):
            bound = "at most " if shorter else ""
            raise TensorstepError(
                f"IDs of shape {list(X.shape)} do not fit: give [batch, {bound}{self.context_len}]"
            )
        if X.dtype not in (torch.int64, torch.int32):
            raise TensorstepError(f"IDs of type {X.dtype} are no IDs: give whole numbers (int64)")
        if X.numel() and not 0 <= int(X.min()) <= int(X.max()) < self.vocab_size:
            worst = int(X.min()) if int(X.min()) < 0 else int(X.max())
            raise TensorstepError(f"ID {worst} is not in a vocabulary of {self.vocab_size}")
        return given("batch.X", X, ("B", "w"), "the IDs that were given")

    weight_axes: Mapping[str, tuple[str, str]] = {}  # of layers that differ from the usual

    def parameter_axes(self) -> dict[str, tuple[str, ...]]:
        """One letter a dimension for each parameter: a table's rows and width, or a layer's
        outputs and inputs (its bias has outputs only)."""
        axes = {}
        for name, value in self.named_parameters():
            layer = name.split(".")[-2]
            of_weight = self.weight_axes.get(layer) or USUAL_AXES.get(layer, ("o", "i"))
            axes[name] = of_weight[: value.dim()]
        return axes


USUAL_AXES = {
    "token_embedding": ("C", "d"),
    "position_embedding": ("w", "d"),
    "W_Q": ("k", "d"),
    "W_K": ("k", "d"),
    "W_V": ("v", "d"),
    "W_O": ("d", "v"),
    "hidden_layer": ("h", "d"),
    "vocab_head": ("C", "h"),
}


def evaluate(model: StatesModel, contexts: Any, targets: Any, batch: int = 512) -> float:
    """Mean loss in nats over all windows, by target count. Changes nothing: no gradients are made
    and no parameter is touched."""
    total = 0.0
    device = next(model.parameters()).device
    with torch.no_grad():
        for at in range(0, len(targets), batch):
            logits = model(contexts[at : at + batch].to(device))
            wanted = targets[at : at + batch].to(device)
            total += float(total_loss(logits, wanted))
    return total / int(math.prod(targets.shape))


def total_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Σ of the losses of all targets."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")
