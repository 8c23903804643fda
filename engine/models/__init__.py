"""The models, one file each, read from top to bottom."""

from engine.models.attention import CausalAttentionLM
from engine.models.base import StatesModel, evaluate
from engine.models.bigram import BigramLM
from engine.models.mlp import FixedWindowMLP
from engine.models.multihead import MultiHeadAttentionLM
from engine.models.transformer import DecoderConfig, DecoderLM, TinyTransformer

__all__ = [
    "BigramLM",
    "CausalAttentionLM",
    "DecoderConfig",
    "DecoderLM",
    "FixedWindowMLP",
    "MultiHeadAttentionLM",
    "StatesModel",
    "TinyTransformer",
    "evaluate",
]
