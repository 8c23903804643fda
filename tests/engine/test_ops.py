"""Operations by themselves: what they compute, and how an explanation adds up."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from engine import ops
from engine.ops.core import Cited, Explanation, Term, exact_sum, pick, ravel, unravel

INF = math.inf


def state(value, axes=("B", "S")):
    return ops.given("x", torch.tensor(value), axes, "given")


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "scores", "masked"),
    [
        ([[0, 5, 6]], [[[1.0, 2.0, 3.0]]], [[[-INF, 2.0, 3.0]]]),  # one query: it is the last slot
        ([[7, 5, 6]], [[[1.0, 2.0, 3.0]]], [[[1.0, 2.0, 3.0]]]),
        (
            [[0, 5]],
            [[[1.0, 2.0], [3.0, 4.0]]],
            [[[-INF, -INF], [-INF, 4.0]]],  # slot 0 sees only itself, which is padding
        ),
        (
            [[4, 5, 6]],
            [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]],  # two queries are the last two of three slots
            [[[1.0, 2.0, -INF], [4.0, 5.0, 6.0]]],
        ),
    ],
)
def test_mask(ids, scores, masked):
    made = ops.mask("masked", state(scores, ("B", "T", "S")), state(ids), 0)
    assert made.value.tolist() == masked
    heads = torch.tensor(scores)[:, None].repeat(1, 2, 1, 1).tolist()  # [B, H, T, S]
    made = ops.mask("masked", state(heads, ("B", "H", "T", "S")), state(ids), 0)
    assert made.value.tolist() == [[head, head] for head in masked]


def test_mask_takes_any_padding_id():
    made = ops.mask("masked", state([[[1.0, 2.0]]], ("B", "1", "S")), state([[9, 0]]), 9)
    assert made.value.tolist() == [[[-INF, 2.0]]]


@pytest.mark.parametrize("row", [[1.0, 2.0, -INF, 0.5], [80.0, -80.0, 0.0, 1.0], [-INF, 3.0, -INF]])
def test_softmax(row: list[float]):
    """Against the definition in float64."""
    top = max(row)
    whole = math.fsum(math.exp(x - top) for x in row)
    made = ops.softmax("weights", state([row])).value[0]
    assert made.tolist() == pytest.approx([math.exp(x - top) / whole for x in row], abs=1e-6)
    assert all(made[i] == 0 for i, x in enumerate(row) if x == -INF)


def test_softmax_of_a_fully_masked_row_is_0_and_so_is_its_gradient():
    """In the same batch as a row that is not: nothing becomes NaN, forward or backward."""
    x = torch.tensor([[-INF, -INF, -INF], [0.0, math.log(3), -INF]], requires_grad=True)
    made = ops.softmax("weights", ops.given("x", x, ("B", "S"), "given")).value
    assert made[0].tolist() == [0, 0, 0]
    assert made[1].tolist() == pytest.approx([0.25, 0.75, 0])
    (made * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad[0].tolist() == [0, 0, 0]
    # row 1: w * (g - sum w g), sum w g = 0.25 + 1.5
    assert x.grad[1].tolist() == pytest.approx([0.25 * -0.75, 0.75 * 0.25, 0], abs=1e-6)


def test_blocked_logits():
    made = ops.block("blocked", state([[1.0, 2.0, 3.0, 4.0]], ("1", "C")), {0: "<PAD>", 3: "<UNK>"})
    assert made.value.tolist() == [[-INF, 2.0, 3.0, -INF]]


def test_rows_of_positions_are_a_copy():
    """The optimizer writes tables in place: a state must not change with them."""
    table = nn.Embedding(3, 2)
    made = ops.slots("positions", table, 2).finish()
    before = made.value.tolist()
    with torch.no_grad():
        table.weight.zero_()
    assert made.value.tolist() == before
    assert made.axes == ("w", "d")


def test_gather_takes_rows():
    table = state([[1, 2], [3, 4], [5, 6]], ("N", "w"))
    made = ops.gather("batch.X", table, torch.tensor([2, 0, 2]))
    assert made.value.tolist() == [[5, 6], [1, 2], [5, 6]]
    assert made.axes == ("B", "w")


def test_losses():
    logits = [[0.0, 1.0, 2.0], [3.0, 0.0, -1.0]]
    targets = [2, 1]
    each = [
        math.log(math.fsum(map(math.exp, row))) - row[target]
        for row, target in zip(logits, targets, strict=True)
    ]
    one_by_one = ops.cross_entropy_each("each", state(logits, ("B", "C")), state(targets, ("B",)))
    mean = ops.cross_entropy("loss", state(logits, ("B", "C")), state(targets, ("B",)))
    assert one_by_one.value.tolist() == pytest.approx(each, abs=1e-6)
    assert mean.value.item() == pytest.approx(sum(each) / 2, abs=1e-6)
    assert one_by_one.aside
    assert not mean.aside


def test_norm_of_gradients():
    gradients = [state([[3.0, 0.0]]), state([[0.0], [4.0]])]
    assert ops.total_norm("gradients.norm", gradients).value.item() == 5


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_torch_s(bias: bool):
    layer = nn.Linear(3, 2, bias=bias)
    x = torch.randn(4, 5, 3)
    made = ops.linear("q", ops.given("x", x, ("B", "T", "d"), "given"), layer, "k")
    assert torch.equal(made.value, F.linear(x, layer.weight, layer.bias))
    assert made.axes == ("B", "T", "k")
    assert made.operation.describe(["x", "W", "b"][: 2 + bias]) == "x · Wᵀ" + " + b" * bias


# --- explanations ----------------------------------------------------------------------------


def explanation(combine: str, parts: list[float], **fields) -> Explanation:
    terms = [Term(Cited("x", 1, (i,), part), part) for i, part in enumerate(parts)]
    return Explanation("y", 1, (), 0.0, "", combine, terms, **fields)


@pytest.mark.parametrize(
    ("combine", "parts", "fields", "total", "size"),
    [
        ("sum", [1.5, -2.0, 0.25], {}, -0.25, 3.75),
        ("sum", [], {}, 0.0, 0.0),
        ("sum", [-INF, 3.0], {}, -INF, INF),
        ("softmax", [1.0, 3.0], {"own": 1}, 0.75, 4.0),
        ("softmax", [0.0, 0.0], {"own": 1}, 0.0, 0.0),
        ("cross-entropy", [1.0, math.e - 1], {"constant": 2.0}, 3.0, math.e + 2),
        ("root", [9.0, 16.0], {}, 5.0, 25.0),
        ("rule", [1.0], {}, None, 1.0),
    ],
)
def test_totals(combine: str, parts: list[float], fields: dict, total, size: float):
    made = explanation(combine, parts, **fields)
    assert made.total == (None if total is None else pytest.approx(total))
    assert made.size == pytest.approx(size)


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1e16, 1.0, -1e16], 1.0),  # exact where a plain sum loses the 1
        ([INF, 1.0], INF),
        ([INF, -INF], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1e308, 1e308], INF),
        ([], 0.0),
    ],
)
def test_sums_as_ieee_has_them(numbers: list[float], total: float):
    assert exact_sum(numbers) == pytest.approx(total, nan_ok=True)


shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(shapes, st.data())
def test_cells_and_their_numbers(shape: tuple[int, ...], data: st.DataObject):
    """Counting cells row by row, there and back, as a tensor lies in memory."""
    numbers = torch.arange(math.prod(shape)).view(shape)
    cell = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    flat = numbers[cell].item()
    assert ravel(cell, shape) == flat
    assert unravel(flat, shape) == cell


def test_one_cell_of_any_value():
    assert pick(torch.tensor([[1.5, 2.5]]), (0, 1)) == 2.5
    assert pick(["lily", "found"], (1,)) == "found"
    assert pick("Lily", ()) == "Lily"
