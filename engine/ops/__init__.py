"""Operations: each computes a state and explains any cell of it.

`layers` linear arithmetic, `attention` mask, softmax and losses, `data` texts, batches and choices,
`gradients` the backward pass, `core` what an operation and an explanation are.
"""

from engine.ops.attention import cross_entropy, cross_entropy_each, mask, softmax
from engine.ops.core import Cited, Explanation, Operands, Operation, Term
from engine.ops.data import Rule, block, by_rule, cumulative_sum, gather, given
from engine.ops.gradients import GradientOf, clipped, gradient_of_state, total_norm
from engine.ops.layers import add, copy, linear, lookup, matmul, relu, scale, slots

__all__ = [
    "Cited",
    "Explanation",
    "GradientOf",
    "Operands",
    "Operation",
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
    "gather",
    "given",
    "gradient_of_state",
    "linear",
    "lookup",
    "mask",
    "matmul",
    "relu",
    "scale",
    "slots",
    "softmax",
    "total_norm",
]
