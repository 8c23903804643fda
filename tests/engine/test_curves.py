"""The metrics of a run, read as they grow, against json.loads of the whole file."""

from __future__ import annotations

import json
import math
import tempfile
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runs import curves as module
from engine.runs.curves import (
    BLOCK,
    NUMBERS,
    SMOOTHING,
    Curves,
    Series,
    column_of,
    last_lines,
    steps_a_column,
)

ODD = ("nan", "inf", "-inf", None)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, *ODD])
rows = st.lists(
    st.fixed_dictionaries(
        dict.fromkeys(NUMBERS, numbers), optional={"val_loss": numbers.filter(lambda n: n)}
    ),
    max_size=40,
)
DAMAGED = (
    b"",
    b"{",
    b"\x00\x00",
    b"null",
    b"[1]",
    b'{"step": 1, "loss": 2.0',
    b'x{"step": 1}',
    b"\r",
)


def lines_of(found: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps({"step": i, **row}).encode() for i, row in enumerate(found, 1)]


def number(value: Any) -> float:
    return math.nan if value is None else float(value)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def check(curves: Curves, whole: list[bytes]) -> None:
    """What was read is what json makes of these lines."""
    told = []
    for text in whole:
        try:
            fields = json.loads(text)
        except ValueError:
            fields = {}
        told.append(fields if isinstance(fields, dict) else {})
    assert len(curves) == len(told)
    for name in NUMBERS:
        values = getattr(curves, name).values
        assert len(values) == len(told)
        for value, fields in zip(values, told, strict=True):
            assert same(value, number(fields.get(name)))
    validation = [(i, row["val_loss"]) for i, row in enumerate(told, 1) if row.get("val_loss")]
    assert curves.val_loss[0] == [step for step, _ in validation]
    for value, (_, wanted) in zip(curves.val_loss[1], validation, strict=True):
        assert same(value, number(wanted))
    assert curves.last == next((row for row in reversed(told) if row), {})
    level = weight = 0.0
    for step, fields in enumerate(told, 1):
        loss = number(fields.get("loss"))
        if math.isfinite(loss):
            level = SMOOTHING * level + (1 - SMOOTHING) * loss
            weight = 1 - SMOOTHING * (1 - weight)
        wanted = level / weight if weight else math.nan
        value = curves.smoothed.at(step)
        assert same(value, wanted) or value == pytest.approx(wanted, rel=1e-9, abs=1e-300)


def opened() -> Path:
    return Path(tempfile.mkdtemp()) / "metrics.jsonl"


@given(rows, st.lists(st.integers(0, 4000), max_size=6), st.sampled_from([100, 2**17]))
def test_any_lines_in_any_pieces(found: list[dict[str, Any]], cuts: list[int], chunk: int):
    """The file grows by pieces that end anywhere; after each, the whole lines have been read."""
    content = b"".join(text + b"\n" for text in lines_of(found))
    path = opened()
    curves = Curves(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        assert curves.read(None)  # it is not there yet
        for end in (*sorted(cuts), len(content)):
            path.write_bytes(content[:end])
            assert curves.read(None)
            check(curves, content[:end].split(b"\n")[:-1])


@given(rows, st.lists(st.tuples(st.integers(0, 40), st.sampled_from(DAMAGED)), max_size=4))
def test_lines_that_cannot_be_read(found: list[dict[str, Any]], damage: list[tuple[int, bytes]]):
    """They are steps of which nothing is known; those around them stay what they are."""
    whole = lines_of(found)
    for at, text in damage:
        whole.insert(at, text)
    path = opened()
    path.write_bytes(b"".join(text + b"\n" for text in whole))
    curves = Curves(path)
    assert curves.read(None)
    check(curves, whole)


@given(rows, rows, st.integers(0, 40))
def test_a_file_that_was_cut_and_went_on(
    found: list[dict[str, Any]], more: list[dict[str, Any]], kept: int
):
    """Whether it is seen while it is short, or only when it has grown beyond what it was."""
    whole = lines_of([{**row, "time": 1.5 + i} for i, row in enumerate(found)])
    other = lines_of([{**row, "time": 1e9 + i} for i, row in enumerate([*found[:kept], *more])])
    other = [*whole[:kept], *other[kept:]]
    path = opened()
    curves = Curves(path)
    for lines in (whole, other, whole[:kept], other):
        path.write_bytes(b"".join(text + b"\n" for text in lines))
        assert curves.read(None)
        check(curves, lines)


def row(step: int, **more: Any) -> bytes:
    fields = {"step": step, "loss": 3.0, "lr": 0.003, "grad_norm": 0.91}
    fields |= {"targets_per_second": 5312.4, "time": 1764495000.125 + step, **more}
    return json.dumps(fields).encode() + b"\n"


def test_a_torn_last_line():
    path = opened()
    path.write_bytes(row(1) + row(2)[:-1])
    curves = Curves(path)
    assert curves.read(None)
    assert (len(curves), curves.last["step"]) == (1, 1)
    path.write_bytes(row(1) + row(2, loss=4.5))
    assert curves.read(None)
    assert list(curves.loss.values) == [3.0, 4.5]
    assert curves.progress == (path.stat().st_size, path.stat().st_size)


def test_a_file_that_goes_away_and_one_that_comes():
    path = opened()
    curves = Curves(path)
    assert curves.read()
    assert (len(curves), curves.last, curves.progress) == (0, {}, (0, 0))
    path.write_bytes(row(1))
    assert curves.read()
    path.unlink()
    assert curves.read()
    assert len(curves) == 1


def test_the_last_line_of_a_long_file_is_known_at_once():
    path = opened()
    path.write_bytes(b"".join(row(step) for step in range(1, 20_001)) + b'{"step": 20001, "lo')
    curves = Curves(path)
    assert not curves.read(0)
    assert curves.last == json.loads(row(20_000))
    assert [fields["step"] for fields in curves.recent] == list(range(19_901, 20_001))
    assert 0 < len(curves) < 2000
    done, size = curves.progress
    assert 0 < done < size == path.stat().st_size
    while not curves.read(0):
        pass
    assert len(curves) == 20_000


def test_a_long_file_that_is_cut_while_it_is_read():
    path = opened()
    path.write_bytes(b"".join(row(step) for step in range(1, 20_001)))
    curves = Curves(path)
    assert not curves.read(0)
    path.write_bytes(row(1, loss=9.0))
    assert curves.read(None)
    assert list(curves.loss.values) == [9.0]
    assert curves.last["loss"] == 9.0


@pytest.mark.parametrize("most", [1, 2, 5, 6, 7, 8, 12, 13, 100])
def test_whole_lines_at_the_end(tmp_path: Path, most: int):
    """Those of which every byte is among the last so many, and that have ended."""
    content = b"first\nsecond\n\nthird\ntorn"
    path = tmp_path / "log"
    path.write_bytes(content)
    expected, end = [], len(content) - len(b"torn")
    for text in (b"third", b"", b"second", b"first"):
        end -= len(text) + 1
        if end >= len(content) - most:
            expected.insert(0, text)
    assert last_lines(path, most) == expected
    assert last_lines(tmp_path / "none", most) == []


# --- columns ----------------------------------------------------------------------------------


def series_of(values: list[float]) -> Curves:
    curves = Curves(Path("nowhere"))
    for at in range(0, len(values), 100):  # as they come in
        curves.loss.values.extend(array("d", values[at : at + 100]))
    return curves


odd = st.sampled_from([math.nan, math.inf, -math.inf])


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(0, 2999), st.floats(-1e9, 1e9) | odd), max_size=20),
    st.integers(-5, 3100),
    st.integers(0, 3100),
    st.integers(1, 200),
)
def test_columns_are_exact(
    steps: int, places: list[tuple[int, float]], first: int, more: int, count: int
):
    values = [math.sin(step) for step in range(steps)]
    for at, value in places:
        values[at % steps] = value
    columns = series_of(values).columns("loss", first, first + more, count)
    begin, end = max(1, first), min(first + more, steps)
    assert len(columns) <= count
    assert len(columns) > min(count, end - begin + 1) // 2 - 1  # half of the room, or more
    seen = [step for column in columns for step in range(column.first, column.last + 1)]
    assert seen == list(range(begin, end + 1))
    sizes = {column.last - column.first + 1 for column in columns[1:-1]}
    assert len(sizes) <= 1  # the first and the last may be cut short
    assert all(size & (size - 1) == 0 for size in sizes)
    for x, column in enumerate(columns):
        share = values[column.first - 1 : column.last]
        finite = [value for value in share if math.isfinite(value)]
        assert column.nonfinite == (len(finite) < len(share))
        if finite:
            assert (column.low, column.high) == (min(finite), max(finite))
            assert column.mean == pytest.approx(math.fsum(finite) / len(finite), abs=1e-5)
        else:
            assert all(math.isnan(value) for value in column[2:5])
        for step in (column.first, column.last):
            assert column_of(step, begin, end, count) == x


@given(st.integers(1, 5000), st.integers(1, 100))
def test_columns_of_the_past_stay(steps: int, count: int):
    """As long as there is room, a new step changes the last column at most, or adds one."""
    before = series_of([0.0] * steps).columns("loss", 1, steps, count)
    after = series_of([0.0] * (steps + 1)).columns("loss", 1, steps + 1, count)
    each = [steps_a_column(1, last, count) for last in (steps, steps + 1)]
    if each[0] == each[1]:
        assert [column.last for column in after[: len(before) - 1]] == [
            column.last for column in before[:-1]
        ]
    else:  # twice as many steps a column from here on
        assert each[1] == 2 * each[0]


def test_a_spike_of_one_step_in_a_million():
    values = array("d", [3.0]) * 1_000_000
    values[654_321 - 1] = 4000.0
    curves = Curves(Path("nowhere"))
    curves.loss.values.extend(values)
    columns = curves.columns("loss", 1, 1_000_000, 71)
    (spike,) = [column for column in columns if column.high > 3]
    assert spike.high == 4000.0
    assert spike.first <= 654_321 <= spike.last
    assert spike.low == 3.0


def test_a_column_reads_blocks_not_steps(monkeypatch: pytest.MonkeyPatch):
    """At most two blocks' worth of single steps a column, however long the run is."""
    series = Series()
    series.values.extend(array("d", range(1_000_000)))
    series.column(1, 1)  # from here on its blocks are known
    looked: list[int] = []
    measured = module.measured

    def counted(values: array[float]) -> tuple[float, float, float, int]:
        looked.append(len(values))
        return measured(values)

    monkeypatch.setattr(module, "measured", counted)
    for first, last in ((1, 1_000_000), (100, 999_999), (257, 512), (2, 767), (3, 1025)):
        looked.clear()
        column = series.column(first, last)
        assert (column.low, column.high) == (first - 1, last - 1)
        assert sum(looked) <= 3 * BLOCK


def test_a_run_of_huge_numbers():
    """Their sum overflows; the mean stays between them."""
    columns = series_of([1.7e308, -1.7e308, 1.7e308, 1.7e308] * 300).columns("loss", 1, 1200, 3)
    for column in columns:
        assert (column.low, column.high, column.nonfinite) == (-1.7e308, 1.7e308, False)
        assert column.low <= column.mean <= column.high


def test_smoothing_of_a_long_run():
    """Also where its weight has settled, and past losses that are not finite."""
    losses: list[Any] = [3 + math.sin(step * step) for step in range(9000)]
    losses[100], losses[6000], losses[8999] = "nan", "inf", "-inf"
    path = opened()
    whole = [row(step, loss=loss) for step, loss in enumerate(losses, 1)]
    path.write_bytes(b"".join(whole))
    curves = Curves(path)
    while not curves.read(0):
        pass
    check(curves, [text[:-1] for text in whole])
