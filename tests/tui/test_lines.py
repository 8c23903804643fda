"""Lines of text: wrapped at a width, and never read as markup."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.widgets.lines import DIM, STRONG, line, wrapped

words = st.text(st.sampled_from("ab漢é[]/."), min_size=1, max_size=12)


@given(st.lists(words, min_size=1, max_size=12).map(" ".join), st.integers(2, 30))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int):
    lines = [each.plain for each in wrapped(text, width)]
    assert all(cell_len(each) <= width for each in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_words_stay_whole_where_they_fit():
    assert [each.plain for each in wrapped("one two three", 8)] == ["one two", "three"]
    assert [each.plain for each in wrapped("abcdefgh ij", 3)] == ["abc", "def", "gh", "ij"]
    assert [each.plain for each in wrapped("", 5)] == [""]


def test_markup_is_text():
    made = line("[red]a[/red]", ("[/]", STRONG), line("[b]", ("c", DIM)))
    assert made.plain == "[red]a[/red][/][b]c"
    assert {span.style for span in made.spans} == {STRONG, DIM}
