"""Tables and their summaries: sorted and counted as numpy does it."""

from __future__ import annotations

import math
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.ops import given as stated
from engine.records import Record
from engine.service.describe import table
from engine.service.desk import Desk
from engine.service.options import Options
from engine.service.session import Session
from engine.service.spread import summary

NAN, INF = math.nan, math.inf
TOKENS = [f"token{i}" for i in range(100)]
NUMPY = {"f": np.float32, "d": np.float64, "q": np.int64, "B": np.uint8}


class Shelf:
    """A history that holds one value."""

    def __init__(self, value: Any, axes: tuple[str, ...] = (), name: str = "state"):
        self.value = value
        self.record = Record(stated(name, value, axes, ""), 1, {}, self)
        self.walk = SimpleNamespace(process=SimpleNamespace(map="training"), fetch=self.fetch)

    def fetch(self, name: str, step: int) -> Any:
        return self.value

    def records(self, step: int) -> list[Record]:
        return [self.record]

    def table(self, order=None, fixed=(), rows=(0, 1000), columns=(0, 1000)):
        """The header, and the cells as numpy reads their bytes."""
        header, payload = table(self.walk, self.record, TOKENS, list(fixed), rows, columns, order)
        return header, np.frombuffer(payload, NUMPY[header["code"]]).reshape(header["size"])


def ranked(values: np.ndarray, falling: bool) -> list[int]:
    """numpy's stable order, NaN last."""
    return np.argsort(-values if falling else values, kind="stable").tolist()


# --- summaries -------------------------------------------------------------------------------

SPREADS = {
    "mixed": torch.tensor([[1.5, -2.0, 0.0], [NAN, INF, -0.0], [-INF, 3.0, 1e-30]]),
    "nan": torch.tensor([NAN, 1.0, 2.0]),
    "inf": torch.tensor([INF, -INF, 4.0]),
    "nothing finite": torch.tensor([[NAN, INF], [-INF, NAN]]),
    "empty": torch.zeros(0, 3),
    "ints": torch.tensor([[3, 0, -7], [2**40, 0, 5]]),
    "int32": torch.tensor([3, 0, -7], dtype=torch.int32),
    "bool": torch.tensor([True, False, True, True]),
    "one": torch.tensor(2.5),
    "one int": torch.tensor(0),
    "one nan": torch.tensor(NAN),
    "bf16": torch.tensor([1.0, -3.0, 0.0, INF], dtype=torch.bfloat16),
    "f16": torch.tensor([1.0, -3.0, 0.0, 60000.0, 60000.0], dtype=torch.float16),
    "f64": torch.tensor([1e300, -1e300, 3.0], dtype=torch.float64),
    "large": torch.tensor([1e8, 1e8 + 8, 1e8 + 16] * 50),
    "of a graph": torch.tensor([1.0, 2.0], requires_grad=True) * 2,
    "turned": torch.arange(12.0).view(3, 4).T,
}


@pytest.mark.parametrize("value", SPREADS.values(), ids=SPREADS)
def test_summary(value: torch.Tensor):
    shelf = Shelf(value)
    told = summary(shelf.record.value)
    cells = np.array(value.detach().double().tolist()).ravel()
    finite = cells[np.isfinite(cells)]
    assert set(told) == {"count", "zeros", "nonfinite", "min", "max", "mean", "std"}
    assert told["count"] == cells.size
    assert told["zeros"] == np.count_nonzero(cells == 0)
    assert told["nonfinite"] == cells.size - finite.size
    if not finite.size:
        assert {told[key] for key in ("min", "max", "mean", "std")} == {None}
        return
    assert (told["min"], told["max"]) == (finite.min(), finite.max())
    rel = 1e-6 if value.dtype in (torch.float16, torch.bfloat16) else 1e-12
    assert told["mean"] == pytest.approx(finite.mean(), rel=rel, abs=1e-12)
    with np.errstate(over="ignore"):
        spread = finite.std()
    assert told["std"] == pytest.approx(spread, rel=max(rel, 1e-9), abs=1e-12)


@pytest.mark.parametrize("at", [0.0, 1000.0])
def test_summary_of_a_large_tensor(at: float):
    """1.2 million cells, one of them NaN: close to float64, also far from 0."""
    value = torch.randn(1200, 1000, generator=torch.Generator().manual_seed(5)) + at
    value[7, 9] = NAN
    value[8, :50] = 0.0
    told = summary(value)
    cells = value.double().numpy().ravel()
    finite = cells[np.isfinite(cells)]
    assert (told["count"], told["zeros"], told["nonfinite"]) == (1_200_000, 50, 1)
    assert (told["min"], told["max"]) == (finite.min(), finite.max())
    assert told["mean"] == pytest.approx(finite.mean(), rel=1e-6, abs=1e-6)
    assert told["std"] == pytest.approx(finite.std(), rel=1e-4)


def test_summary_of_texts():
    texts = Shelf(["a", "b", "c"], ("N",))
    assert summary(texts.record.value) == {"count": 3}


def test_summaries_of_a_walk():
    """Of everything that is shown in three steps, against numpy; tables of windows too."""
    session = Session(Options())
    walk = session.walk("training", "attention")
    walk.seek(3)
    for step in (0, 1, 2):
        for record in walk.records(step):
            told = summary(record.value)
            if record.kind == "text":
                assert list(told) == ["count"]
                continue
            value = record.value
            cells = np.array((value[:] if record.shape else value).detach().double().tolist())
            finite = cells[np.isfinite(cells)]
            assert told["count"] == cells.size
            assert told["nonfinite"] == cells.size - finite.size
            assert told["max"] == finite.max()
            assert told["std"] == pytest.approx(finite.std(), abs=1e-12), record.name


# --- sorted ----------------------------------------------------------------------------------

NUMBERS = st.one_of(st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0]), st.floats(-9, 9, width=32))


@settings(max_examples=60)
@given(
    cells=st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=7),
    axis=st.integers(0, 1),
    falling=st.booleans(),
    data=st.data(),
)
def test_any_two_axes_sorted(cells: list, axis: int, falling: bool, data: st.DataObject):
    """Rows by a column, or columns by a row: numpy's stable order, NaN last; any slice of it."""
    value = np.array(cells, np.float32)
    by = data.draw(st.integers(0, value.shape[1 - axis] - 1))
    shelf = Shelf(torch.tensor(value), ("o", "i"))
    order = ranked(value.take(by, 1 - axis), falling)
    header, found = shelf.table((axis, by, falling))
    assert header["index"] == order
    assert np.array_equal(found, value.take(order, axis), equal_nan=True)
    assert header[("rows", "columns")[axis]] == [str(i) for i in order]
    other = range(value.shape[1 - axis])
    assert header[("columns", "rows")[axis]] == [str(i) for i in other]
    first = data.draw(st.integers(0, len(order)))
    end = data.draw(st.integers(first, len(order) + 2))
    span = {("rows", "columns")[axis]: (first, end)}
    header, found = shelf.table((axis, by, falling), **span)
    assert header["index"] == order[first:end]
    assert np.array_equal(found, value.take(order[first:end], axis), equal_nan=True)


@pytest.mark.parametrize("falling", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_one_axis_sorted(dtype: torch.dtype, falling: bool):
    value = torch.tensor([3.0, -1.0, 3.0, 0.0, -1.0, 8.0]).to(dtype)
    header, found = Shelf(value, ("C",)).table((0, 0, falling))
    order = ranked(np.array(value.tolist()), falling)
    assert header["index"] == order
    assert found[:, 0].tolist() == [value.tolist()[i] for i in order]
    assert header["rows"] == [TOKENS[i] for i in order]
    assert header["columns"] == []


@pytest.mark.parametrize("falling", [True, False])
def test_what_is_no_number_comes_last(falling: bool):
    """Behind the infinities, too, whichever way."""
    value = [NAN, -INF, 2.0, INF, NAN, -INF, INF]
    header, _ = Shelf(torch.tensor(value), ("N",)).table((0, 0, falling))
    assert header["index"] == ([3, 6, 2, 1, 5, 0, 4] if falling else [1, 5, 2, 3, 6, 0, 4])


def test_one_slice_of_more_axes_sorted():
    """[4, 3, 5]: the slice that is looked at decides, and only its last two axes are turned."""
    value = np.random.default_rng(3).integers(-4, 5, (4, 3, 5)).astype(np.float32)
    shelf = Shelf(torch.tensor(value), ("H", "T", "k"))
    for fixed in range(4):
        for falling in (True, False):
            for axis, by in ((0, 4), (1, 2)):
                header, found = shelf.table((axis, by, falling), [fixed])
                order = ranked(value[fixed].take(by, 1 - axis), falling)
                assert header["index"] == order
                assert np.array_equal(found, value[fixed].take(order, axis))


def test_large_tables_give_only_what_is_seen():
    value = torch.randn(3000, 40, generator=torch.Generator().manual_seed(1))
    header, found = Shelf(value, ("o", "d")).table((0, 7, True), (), (1000, 1003), (5, 9))
    order = ranked(value[:, 7].numpy(), True)[1000:1003]
    assert header["index"] == order
    assert np.array_equal(found, value.numpy()[order][:, 5:9])
    assert header["columns"] == ["5", "6", "7", "8"]


def test_without_an_order_there_is_no_index():
    header, found = Shelf(torch.arange(6).view(2, 3), ("o", "i")).table()
    assert header["index"] is None
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_single_number_and_texts_have_no_order_to_change():
    header, found = Shelf(torch.tensor(2.5)).table((0, 0, True))
    assert found.tolist() == [[2.5]]
    shelf = Shelf(["b", "a"], ("N",))
    header, _ = table(shelf.walk, shelf.record, TOKENS, [], (0, 9), (0, 9), (0, 0, True))
    assert header["texts"] == ["b", "a"]
    assert header["rows"] == ["0", "1"]


# --- labels go with what they label ----------------------------------------------------------


def ask(desk: Desk, name: str, fixed: list[int], order: list | None, rows=(0, 50)) -> tuple:
    asked = {"map": "training", "model": "attention", "name": name, "step": 1}
    spans = {"fixed": fixed, "rows": list(rows), "columns": [0, 50], "order": order}
    header, payload = desk.answer("table", {**asked, **spans})
    height, width = header["size"]
    cells = struct.unpack(f"<{height * width}{header['code']}", payload)
    return header, np.array(cells).reshape(height, width)


@pytest.fixture(scope="module")
def desk() -> Desk:
    made = Desk()
    made.answer("open", {"options": {}})
    made.answer("move", {"map": "training", "model": "attention", "how": "seek", "step": 2})
    return made


@pytest.mark.parametrize(
    ("name", "fixed", "order"),
    [
        ("logits", [], [1, 0, True]),  # the vocabulary by the first example
        ("probabilities", [], [1, 1, False]),
        ("weights", [1], [1, 0, True]),  # the slots by their weight
        ("embedding", [0], [0, 2, True]),  # the slots by a column
        ("gradients.token_embedding.weight", [], [0, 3, False]),
        ("parameters.token_embedding.weight", [], [0, 1, True]),
        ("batch.X", [], [1, 1, True]),
        ("batch.y", [], [0, 0, True]),
        ("vocab_head.bias", [], [0, 0, True]),
    ],
)
def test_labels_and_tokens_are_sorted_with_the_cells(desk, name: str, fixed: list, order: list):
    name = f"parameters.{name}" if name == "vocab_head.bias" else name
    plain, cells = ask(desk, name, fixed, None)
    sorted_, found = ask(desk, name, fixed, order)
    axis, by, falling = order
    line = cells.take(by, 1 - axis)
    expected = ranked(line, falling)
    assert sorted_["index"] == expected
    assert np.array_equal(found, cells.take(expected, axis))
    label, other = ("rows", "columns") if axis == 0 else ("columns", "rows")
    assert sorted_[label] == [plain[label][i] for i in expected]
    assert sorted_[other] == plain[other]
    assert (sorted_["caption"], sorted_["target"]) == (plain["caption"], plain["target"])
    if "tokens" in plain:
        tokens = np.array(plain["tokens"]).take(expected, axis).tolist()
        assert sorted_["tokens"] == tokens
    few, _ = ask(desk, name, fixed, order, (1, 2)) if axis == 0 else (None, None)
    if few:
        assert few["rows"] == [plain["rows"][expected[1]]]


def test_the_highest_logits_with_their_tokens(desk):
    session = Session(Options())
    walk = session.walk("training", "attention")
    walk.seek(2)
    logits = walk.fetch("logits", 1)[1].tolist()
    best = sorted(range(10), key=lambda i: -logits[i])
    header, cells = ask(desk, "logits", [], [1, 1, True])
    assert header["columns"][:3] == [session.prepared.tokenizer.itos[i] for i in best[:3]]
    assert cells[1][:3].tolist() == [logits[i] for i in best[:3]]


def test_a_token_is_found_round_and_round(desk):
    """Whatever the case, from the next ID on, and back at the beginning."""
    tokens = Session(Options()).prepared.tokenizer.itos
    assert sorted(tokens[4:]) == sorted([".", "a", "ball", "found", "lily", "red"])

    def find(text: str, after: int) -> int | None:
        return desk.answer("find_token", {"text": text, "after": after})["found"]

    for text in ("a", "A", "l", "ED", "<", "found", "lily", ".", "os>"):
        holding = [i for i, token in enumerate(tokens) if text.lower() in token.lower()]
        assert holding
        for after in range(-1, len(tokens)):
            later = [i for i in holding if i > after]
            assert find(text, after) == (later or holding)[0], (text, after)
    assert find("zebra", 3) is None
    assert find("ball", len(tokens) + 5) == tokens.index("ball")
