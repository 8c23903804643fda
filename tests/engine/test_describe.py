"""A walk in plain data: descriptions, whole values, visible slices, labels."""

from __future__ import annotations

import json
import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import UsageError
from engine.service.describe import (
    describe,
    dump,
    explanation,
    finite_or_named,
    table,
    values_of,
)
from engine.service.options import Options
from engine.service.session import Session

FIELDS = ["map", "step", "stage", "name", "role", "kind", "shape", "axes", "dtype", "formula"]
ALL = (0, 10_000)
BYTES = {"f": 4, "d": 8, "q": 8, "B": 1}


@pytest.fixture(scope="module")
def session() -> Session:
    """Worked, both maps of the one-head model and of several heads two steps on."""
    made = Session(Options())
    for kind in ("training", "generation"):
        for model in ("attention", "multihead"):
            made.walk(kind, model).seek(3)
    return made


def read(session: Session, walk, name: str, step: int, fixed=(), rows=ALL, columns=ALL):
    """A table as the screen gets it: header, and the cells unpacked from bytes, row by row."""
    words = session.prepared.tokenizer.itos
    header, payload = table(walk, walk.record(name, step), words, list(fixed), rows, columns)
    if "texts" in header:
        return header, header["texts"]
    height, width = header["size"]
    assert len(payload) == height * width * BYTES[header["code"]]
    cells = struct.unpack(f"<{height * width}{header['code']}", payload)
    return header, [list(cells[i * width : (i + 1) * width]) for i in range(height)]


# --- descriptions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "step", "name", "expected"),
    [
        ("training", 0, "stories", ["stories", "data", "text", [1], ["N"], "str"]),
        ("training", 0, "windows.contexts", ["windows", "data", "tensor", [7, 4], ["N", "w"], 64]),
        ("training", 1, "batch.X", ["batch", "data", "tensor", [2, 4], ["B", "w"], 64]),
        ("training", 1, "weights", ["weights", "activation", "tensor", [2, 1, 4], ["B", "1", "S"]]),
        ("training", 1, "loss", ["loss", "activation", "number", [], []]),
        ("training", 2, "gradients.q", ["backward", "gradient", "tensor", [2, 1, 3], None]),
        ("training", 2, "update.W_Q.weight", ["optimizer", "optimizer", "tensor", [3, 4], None]),
        ("training", 1, "update.W_Q.weight.step", ["optimizer", "optimizer", "tensor", [3, 4]]),
        ("training", 1, "parameters.W_Q.weight", ["parameters", "parameter", "tensor", [3, 4]]),
        ("generation", 0, "prompt", ["prompt", "data", "text", [], [], "str"]),
        ("generation", 1, "choice", ["choose", "data", "number", [], [], 64]),
        ("generation", 1, "parameters.W_Q.weight", ["checkpoint", "parameter", "tensor", [3, 4]]),
    ],
)
def test_what_a_state_is(session: Session, kind: str, step: int, name: str, expected: list):
    walk = session.walk(kind)
    found = describe(walk, walk.record(name, step))
    assert list(found) == FIELDS
    assert (found["map"], found["step"], found["name"]) == (kind, step, name)
    stage, role, what, shape, axes, dtype = [*expected, None, None][:6]
    assert (found["stage"], found["role"], found["kind"]) == (stage, role, what)
    assert found["shape"] == shape
    assert len(found["axes"]) == len(shape)
    if axes is not None:
        assert found["axes"] == axes
    assert found["dtype"] == {None: "float32", 64: "int64"}.get(dtype, dtype)


@pytest.mark.parametrize("kind", ["training", "generation"])
@pytest.mark.parametrize("model", ["attention", "multihead"])
def test_dumps_are_json_in_full_precision(session: Session, kind: str, model: str):
    """Every state of three steps as a line of strict JSON, and back the same numbers."""
    walk = session.walk(kind, model)
    for step in range(3):
        for record in walk.records(step):
            line = json.dumps(dump(walk, record), allow_nan=False)
            found = json.loads(line)
            assert list(found) == [*FIELDS, "values"]
            if found["kind"] == "text":
                assert found["values"] == record.value
                continue
            value = record.value[...].detach()
            values = torch.tensor(unnamed(found["values"]), dtype=value.dtype)
            assert torch.equal(values, value), record.name


def unnamed(values):
    """Numbers again out of "inf", "-inf" and "nan"."""
    if isinstance(values, list):
        return [unnamed(each) for each in values]
    return float(values) if isinstance(values, str) else values


def test_large_values_are_left_out(session: Session):
    walk = session.walk("training")
    record = walk.record("weights", 1)  # 8 cells
    assert "values" in dump(walk, record, max_values=8)
    assert "values" not in dump(walk, record, max_values=7)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ([[0.5, math.nan], [-math.inf, -0.0]], [[0.5, "nan"], ["-inf", -0.0]]),
        (3, 3),
        ("inf", "inf"),
        ([], []),
    ],
)
def test_numbers_json_has_no_word_for(values, named):
    assert finite_or_named(values) == named


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (torch.tensor(2), 2),
        (torch.tensor([[1.5, -math.inf]]), [[1.5, "-inf"]]),
        ("text", "text"),
        (["a", "b"], ["a", "b"]),
        (torch.tensor([True, False]), [True, False]),
    ],
)
def test_values(value, plain):
    assert values_of(value) == plain


# --- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step", "fixed", "cells"),
    [
        ("weights", 1, [1], lambda v: v[1]),
        ("embedding", 2, [0], lambda v: v[0]),
        ("logits", 1, [], lambda v: v),
        ("loss", 2, [], lambda v: v.view(1, 1)),
        ("loss.per_target", 1, [], lambda v: v[:, None]),
        ("windows.contexts", 0, [], lambda v: v[:]),
        ("ids", 0, [], lambda v: v[:, None]),
        ("update.vocab_head.bias", 1, [], lambda v: v[:, None]),
    ],
)
def test_cells_of_a_table(session: Session, name: str, step: int, fixed: list[int], cells):
    walk = session.walk("training")
    _, found = read(session, walk, name, step, fixed)
    assert found == cells(walk.record(name, step).value).tolist()


@given(st.data())
def test_any_window_of_a_table(session: Session, data: st.DataObject):
    """Only the visible rows and columns cross, with the labels of just those."""
    walk = session.walk("training", "multihead")
    name = data.draw(st.sampled_from(["weights", "logits", "V", "gradients.message"]))
    value = walk.record(name, 1).value
    fixed = [data.draw(st.integers(0, n - 1)) for n in value.shape[:-2]]
    spans = [
        sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n + 3))))
        for n in value.shape[-2:]
    ]
    header, found = read(session, walk, name, 1, fixed, tuple(spans[0]), tuple(spans[1]))
    expected = value[tuple(fixed)][slice(*spans[0]), slice(*spans[1])]
    assert found == expected.tolist()
    assert header["size"] == list(expected.shape)
    assert len(header["columns"]) == expected.shape[1]


@pytest.mark.parametrize(
    ("name", "fixed", "rows", "columns"),
    [
        ("weights", [0], ["found"], ["<PAD>", "<BOS>", "lily", "found"]),
        ("embedding", [1], ["<BOS>", "lily", "found", "a"], ["0", "1", "2", "3"]),
        ("batch.X", [], ["0", "1"], ["0", "1", "2", "3"]),
        ("embedding.positions", [], ["0", "1", "2", "3"], ["0", "1", "2", "3"]),
        ("gradients.K", [0], ["<PAD>", "<BOS>", "lily", "found"], ["0", "1", "2"]),
        ("loss", [], [""], []),
    ],
)
def test_labels(session: Session, name: str, fixed: list[int], rows: list[str], columns: list[str]):
    header, _ = read(session, session.walk("training"), name, 1, fixed)
    assert (header["rows"], header["columns"]) == (rows, columns)


def test_a_vocabulary_axis_is_labelled_with_tokens(session: Session):
    words = session.prepared.tokenizer.itos
    walk = session.walk("training")
    assert read(session, walk, "logits", 1)[0]["columns"] == words
    assert read(session, walk, "parameters.token_embedding.weight", 1)[0]["rows"] == words
    assert read(session, walk, "gradients.vocab_head.bias", 1)[0]["rows"] == words


def test_texts_are_numbered(session: Session):
    """The entries of the vocabulary by their IDs; a single text needs no number."""
    header, texts = read(session, session.walk("training"), "vocabulary", 0, rows=(4, 6))
    assert (header["rows"], texts) == (["4", "5"], [".", "a"])
    header, texts = read(session, session.walk("generation"), "prompt", 0)
    assert (header["rows"], texts) == ([""], ["Lily found"])


def test_captions_and_tokens(session: Session):
    training, generation = session.walk("training"), session.walk("generation")
    header, _ = read(session, training, "weights", 1, [1])
    assert header["caption"] == ["<BOS>", "lily", "found", "a"]
    assert header["target"] == "red"
    header, _ = read(session, generation, "weights", 1, [0])
    assert header["caption"] == ["<PAD>", "<BOS>", "lily", "found"]
    assert header["target"] is None
    header, cells = read(session, training, "batch.y", 1)
    assert cells == [[5], [9]]
    assert header["tokens"] == [["a"], ["red"]]
    header, cells = read(session, generation, "choice", 1)
    assert header["tokens"] == [[session.prepared.tokenizer.itos[cells[0][0]]]]


# --- explanations ----------------------------------------------------------------------------


def test_an_explanation_in_plain_data(session: Session):
    walk = session.walk("training")
    record = walk.record("scores.masked", 1)
    found = explanation(record, (0, 0, 0))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["value"], found["total"]) == ("-inf", "-inf")
    assert (found["name"], found["step"], found["cell"]) == ("scores.masked", 1, [0, 0, 0])
    (term,) = found["terms"]
    assert (term["source"], term["index"], term["value"]) == ("batch.X", [0, 0], 0)
    assert term["contribution"] == "-inf"


def test_the_largest_terms_of_many(session: Session):
    """`most` keeps the terms that weigh most, in their order, and says how many there are."""
    record = session.walk("training").record("logits", 1)
    every = explanation(record, (0, 3))["terms"]
    assert len(every) == 9  # eight hidden units and the bias
    cut = explanation(record, (0, 3), most=3)
    assert cut["count"] == 9
    ranked = sorted(every, key=lambda term: -abs(term["contribution"]))[:3]
    assert cut["terms"] == [term for term in every if term in ranked]
    assert cut["total"] == explanation(record, (0, 3))["total"]


@pytest.mark.parametrize("cell", [(0, 99), (0,), (-1, 0), ()])
def test_a_cell_that_is_not_there(session: Session, cell: tuple[int, ...]):
    with pytest.raises(UsageError, match=r"logits has no cell .*: its shape is \[2, 10\]"):
        explanation(session.walk("training").record("logits", 1), cell)
