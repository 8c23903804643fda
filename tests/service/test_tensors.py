"""Slices of tensors of any type and rank, as they cross to the screen."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import engine
from engine.service.describe import slice_of, table
from engine.service.options import Options
from engine.service.session import Session
from tui.cells import Slice

TYPES = {
    torch.float32: ("f", torch.float32),
    torch.float64: ("d", torch.float64),
    torch.float16: ("f", torch.float32),
    torch.bfloat16: ("f", torch.float32),
    torch.int64: ("q", torch.int64),
    torch.int32: ("q", torch.int64),
    torch.int16: ("q", torch.int64),
    torch.uint8: ("q", torch.int64),
    torch.int8: ("q", torch.int64),
    torch.bool: ("B", torch.bool),
}
WORDS = engine.prepare(["Lily found a red ball."], 4).tokenizer.itos


def crossed(
    value: Tensor, fixed: list[int], rows: tuple[int, int], columns: tuple[int, int]
) -> tuple[dict[str, Any], Slice]:
    """A slice of a tensor that is in no walk: header, and what the screen makes of it."""
    axes = tuple("xyzuv"[: value.dim()])
    record = SimpleNamespace(name="x", value=value, shape=tuple(value.shape), axes=axes, step=1)
    header, payload = table(None, record, WORDS, fixed, rows, columns)
    return header, Slice.of(header, payload)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type_keeps_its_numbers(dtype: torch.dtype):
    """Half precision is widened, which changes no number; bytes are as struct reads them."""
    numbers = [[0.0, 1.0, -2.5, 100.25], [3.140625, 0.0, 7.0, 1.0]]
    value = torch.tensor(numbers).abs().to(dtype)
    header, cells = crossed(value, [], (0, 2), (1, 4))
    assert header["code"] == TYPES[dtype][0]
    assert header["size"] == [2, 3]
    assert cells.cells == value[:, 1:].to(torch.float64).tolist()


def test_numbers_that_are_none_cross_as_they_are():
    value = torch.tensor([[float("inf"), -float("inf"), float("nan"), -0.0]])
    _, cells = crossed(value, [], (0, 1), (0, 4))
    above, below, nan, zero = cells.cells[0]
    assert (above, below) == (float("inf"), -float("inf"))
    assert nan != nan
    assert str(zero) == "-0.0"


def test_a_tensor_that_asks_for_a_gradient_or_is_not_contiguous():
    value = torch.arange(12.0, requires_grad=True).view(3, 4).T * 1
    _, cells = crossed(value, [], (1, 3), (0, 3))
    assert cells.cells == [[1.0, 5.0, 9.0], [2.0, 6.0, 10.0]]


@given(st.data())
def test_any_rank(data: st.DataObject):
    """The last two axes are rows and columns; of each before them one index is picked."""
    shape = data.draw(st.lists(st.integers(1, 4), max_size=5))
    value = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    fixed = [data.draw(st.integers(0, size - 1)) for size in shape[:-2]]
    first, end = sorted(data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5))))
    left, right = sorted(data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5))))
    found = slice_of(value, fixed, range(first, end), range(left, right))
    numbers = value.numpy()
    if not shape:
        expected = [[float(numbers)]]
    elif len(shape) == 1:
        expected = [[number] for number in numbers[first:end].tolist()]
    else:
        expected = numbers[tuple(fixed)][first:end, left:right].tolist()
    assert found.tolist() == expected


def test_labels_are_numbers_where_an_axis_stands_for_no_token():
    header, _ = crossed(torch.zeros(2, 3, 9, 8), [1, 2], (5, 9), (6, 20))
    assert header["rows"] == ["5", "6", "7", "8"]
    assert header["columns"] == ["6", "7"]
    assert (header["caption"], header["target"]) == ([], None)


def test_labels_of_a_query_are_of_the_slot_that_asks():
    """Row 3 of the windows: "<BOS> lily found a", whose last slot asks, seen by either head."""
    session = Session(Options())
    walk = session.walk("training", "multihead")
    walk.seek(1, "weights")
    for head in (0, 1):
        header, _ = table(walk, walk.current, WORDS, [1, head], (0, 1), (0, 4))
        assert header["rows"] == ["a"]
        assert header["columns"] == ["<BOS>", "lily", "found", "a"]
        assert header["caption"] == ["<BOS>", "lily", "found", "a"]
        assert header["target"] == "red"


@given(st.lists(st.lists(st.integers(-5, 5), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_slice_turned(numbers: list[list[int]]):
    """Rows and columns exchanged, labels with them."""
    height = len(numbers)
    payload = struct.pack(f"<{height * 3}q", *[each for row in numbers for each in row])
    header = {
        "code": "q",
        "size": [height, 3],
        "rows": [f"r{i}" for i in range(height)],
        "columns": ["a", "b", "c"],
        "caption": ["of", "this"],
        "target": "text",
        "index": None,
    }
    plain, turned = Slice.of(header, payload), Slice.of(header, payload, turned=True)
    assert plain.cells == numbers
    assert turned.cells == [[row[k] for row in numbers] for k in range(3)]
    assert (plain.rows, plain.columns) == (turned.columns, turned.rows)
    assert plain.caption == turned.caption == ["of", "this"]
    assert plain.target == turned.target == "text"


@pytest.mark.parametrize(
    "header",
    [
        {"code": "f", "size": [2, 2]},
        {"code": "f", "size": [1, 1]},
        {"code": "d", "size": [1, 3]},
        {"code": "?!", "size": [1, 3]},
    ],
)
def test_header_and_bytes_that_contradict_each_other(header: dict[str, Any]):
    with pytest.raises((ValueError, struct.error)):
        Slice.of(
            {**header, "rows": [], "columns": [], "caption": [], "target": None, "index": None},
            struct.pack("<3f", 1, 2, 3),
        )


def test_no_cells_at_all():
    header, cells = crossed(torch.zeros(3, 4), [], (1, 1), (0, 4))
    assert header["size"] == [0, 4]
    assert cells.cells == []
    header, cells = crossed(torch.zeros(0), [], (0, 5), (0, 1))
    assert (header["size"], cells.cells, cells.rows) == ([0, 1], [], [])
