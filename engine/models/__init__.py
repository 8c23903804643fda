"""One file a model, each readable from top to bottom."""

from engine.models.attention import CausalAttentionLM
from engine.models.base import StatesModel, evaluate
from engine.models.mlp import FixedWindowMLP
from engine.models.multihead import MultiHeadAttentionLM

__all__ = [
    "CausalAttentionLM",
    "FixedWindowMLP",
    "MultiHeadAttentionLM",
    "StatesModel",
    "evaluate",
]
