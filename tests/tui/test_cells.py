"""How a number is written in a cell, and with all its digits."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.cells import exact, written

numbers = st.floats(width=32) | st.floats()
finite = numbers.filter(lambda number: abs(number) < 1e300)


@given(finite)
def test_a_cell_is_the_number_to_its_last_digit(number: float):
    """What is written is off by half a unit of the last place that is written, at the most."""
    text = written(number)
    digits, _, power = text.partition("e")
    places = len(digits.partition(".")[2])
    unit = 10.0 ** (int(power or 0) - places)
    assert abs(float(text) - number) <= unit / 2 * (1 + 1e-9)


@given(finite)
def test_a_cell_never_hides_a_number(number: float):
    """Four figures are seen of small ones, a sign of every negative one, and 0 is only 0."""
    text = written(number)
    assert (float(text) == 0) == (number == 0)
    assert text.startswith("-") == (math.copysign(1, number) < 0)
    if number:
        assert abs(float(text) / number - 1) <= 0.5


@given(st.floats(width=32))
def test_a_cell_fits_into_its_column(number: float):
    assert len(written(number)) <= 9


@given(finite, finite)
def test_order_is_kept(a: float, b: float):
    low, high = sorted((a, b))
    assert float(written(low)) <= float(written(high))


@given(st.floats(width=32))
def test_exact_gives_the_float32_back(number: float):
    """Nine digits tell any two float32 numbers apart."""
    found = float(exact(number))
    if number != number:
        assert found != found
    else:
        assert struct.pack("f", found) == struct.pack("f", number)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_stay_whole(number: int):
    assert int(written(number)) == int(exact(number)) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.25964343547821045, "0.2596"),
        (-0.02271692082285881, "-0.0227"),
        (1.0, "1.0000"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e-4, "0.0001"),
        (9.9e-5, "9.90e-05"),
        (-1e-30, "-1.00e-30"),
        (998.7654, "998.7654"),
        (123456.789, "123456.8"),
        (-654321.0, "-654321.0"),
        (1e6, "1.00e+06"),
        (3.4e38, "3.40e+38"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (7, "7"),
        ("red", "red"),
    ],
)
def test_written(number: object, text: str):
    assert written(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.25964343547821045, "0.259643435"),
        (2.2983837127685547, "2.29838371"),
        (5, "5"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        ("red", "red"),
    ],
)
def test_exact(number: object, text: str):
    assert exact(number) == text
