"""Places, as a user writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UsageError
from tui.places import Place, place_of

steps = st.integers(0, 999_999_999)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]*", fullmatch=True)
cells = st.lists(steps, min_size=1, max_size=5).map(tuple)
spaces = st.sampled_from(["", " ", "  ", "\t"])


@given(steps, names, cells, spaces)
def test_a_place_is_read_as_it_was_written(step: int, name: str, cell: tuple[int, ...], space: str):
    written = f"{space}{step}:{name}:{','.join(map(str, cell))}{space}"
    assert place_of(written) == Place(step, name, cell)
    assert place_of(f"{step}:{name}") == Place(step, name)
    assert place_of(f"{step}{space}") == Place(step)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1:weights:0,0,2", Place(1, "weights", (0, 0, 2))),
        ("1:weights:0, 0, 2", Place(1, "weights", (0, 0, 2))),
        ("3:loss", Place(3, "loss")),
        ("1:parameters.W_Q.weight:2,3", Place(1, "parameters.W_Q.weight", (2, 3))),
        ("2", Place(2)),
        ("2:", Place(2)),
        ("2::", Place(2)),
        ("0007:x", Place(7, "x")),
        ("1:choice:", Place(1, "choice")),
    ],
)
def test_places(text: str, place: Place):
    assert place_of(text) == place


NO_PLACES = ["", " ", "weights", "weights:0", "-1", "-1:loss", "1.5", "+1", "1e3", "one", "²", "１"]
NO_PLACES += ["٣:x", "1234567890", ":", ":loss", "1 2"]
NO_CELLS = ["1:a:x", "1:a:0,", "1:a:,0", "1:a:-1", "1:a:1.0", "1:a:0 0", "1:a:0:0", "1:a:²"]
NO_CELLS += ["1:a:1234567890"]


@pytest.mark.parametrize("text", NO_PLACES)
def test_what_is_no_place(text: str):
    with pytest.raises(UsageError, match="is no place: write STEP:STATE:CELL") as told:
        place_of(text)
    assert told.value.exit_code == 2


@pytest.mark.parametrize("text", NO_CELLS)
def test_what_is_no_cell(text: str):
    with pytest.raises(UsageError, match="is no cell: write one number a dimension"):
        place_of(text)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_a_place_or_one_sentence(text: str):
    try:
        place = place_of(text)
    except UsageError:
        return
    assert place.step >= 0
    assert place.cell is None or all(index >= 0 for index in place.cell)
