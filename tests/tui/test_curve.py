"""The loss curve: as many columns as there is room for, high is up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.widgets.curve import averaged, row_of

losses = st.lists(st.floats(0, 100), min_size=1, max_size=300)


@given(losses, st.integers(1, 80))
def test_every_step_counts_once(values: list[float], columns: int):
    points = averaged(values, columns)
    assert len(points) == min(len(values), columns)
    assert min(values) - 1e-9 <= min(points) <= max(points) <= max(values) + 1e-9
    if len(values) <= columns:
        assert points == values


def test_shares_of_equal_size():
    assert averaged([1.0, 3.0, 5.0, 7.0, 2.0, 4.0], 3) == [2.0, 6.0, 3.0]
    assert averaged([1.0, 3.0, 5.0], 1) == [3.0]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 20))
def test_higher_is_never_lower_on_the_screen(a: float, b: float, rows: int):
    low, high = sorted((a, b))
    assert 0 <= row_of(high, 0, 1, rows) <= row_of(low, 0, 1, rows) <= rows - 1


@pytest.mark.parametrize(
    ("point", "row"), [(2.0, 0), (1.0, 4), (1.5, 2), (math.nan, 0), (math.inf, 0)]
)
def test_rows(point: float, row: int):
    assert row_of(point, 1.0, 2.0, 5) == row


def test_a_flat_curve_lies_in_the_middle():
    assert row_of(1.0, 1.0, 1.0, 5) == 2
