"""Operations: each computes a state and explains any cell of it.

`layers` linear arithmetic, `norms` normalisation, `activations` and `positions` as they are called,
`attention` mask, softmax and losses, `data` texts, batches and choices, `gradients` the backward
pass, `core` what an operation and an explanation are.
"""

from engine.ops.activations import gated_silu, gelu
from engine.ops.attention import cross_entropy, cross_entropy_each, mask, softmax
from engine.ops.core import Cited, Explanation, Operands, Operation, Term
from engine.ops.data import Rule, block, by_rule, cumulative_sum, gather, given
from engine.ops.gradients import GradientOf, clipped, gradient_of_state, total_norm
from engine.ops.layers import add, copy, linear, lookup, matmul, relu, scale, slots
from engine.ops.norms import layer_norm, rms_norm
from engine.ops.positions import Rotary, position_rows, rotate

__all__ = [
    "Cited",
    "Explanation",
    "GradientOf",
    "Operands",
    "Operation",
    "Rotary",
    "Rule",
    "Term",
    "add",
    "block",
    "by_rule",
    "clipped",
    "copy",
    "cross_entropy",
    "cross_entropy_each",
    "cumulative_sum",
    "gated_silu",
    "gather",
    "gelu",
    "given",
    "gradient_of_state",
    "layer_norm",
    "linear",
    "lookup",
    "mask",
    "matmul",
    "position_rows",
    "relu",
    "rms_norm",
    "rotate",
    "scale",
    "slots",
    "softmax",
    "total_norm",
]
