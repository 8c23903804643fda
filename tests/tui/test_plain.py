"""Text from outside is data: whatever stands in it, what is shown stays in its place."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcswidth

from tui.plain import shown

EVERY = st.characters(exclude_categories=())
HOSTILE = st.sampled_from(
    "\x1b\x07\x9b\r\n\t\0\u202e\u2066\u200b\u200d\ufeff\u2028\u0301\ufe0f\ud800"
)
texts = st.text(alphabet=EVERY | HOSTILE | st.sampled_from("ab \\[/]é漢"))
# control, format (bidi, zero width), surrogate, private, unassigned, line and paragraph ends
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(texts, st.booleans())
def test_nothing_that_could_be_obeyed_is_let_through(text: str, ascii_only: bool):
    found = shown(text, ascii_only)
    assert not {unicodedata.category(character) for character in found} & UNSEEN
    assert len(found.splitlines()) <= 1
    assert len(found) >= len(text)
    found.encode("utf-8")


@given(texts)
def test_it_takes_the_cells_a_terminal_gives_it(text: str):
    """Counted by rich, with which the screen is laid out, and by wcwidth, as terminals count."""
    found = shown(text)
    assert cell_len(found) == wcswidth(found)


@given(texts)
def test_ascii_only(text: str):
    found = shown(text, ascii_only=True)
    assert found.isascii()
    assert found.isprintable()


@given(texts, st.booleans())
def test_what_is_shown_is_plain_text_from_then_on(text: str, ascii_only: bool):
    once = shown(text, ascii_only)
    assert shown(once, ascii_only) == once


def test_every_character_by_itself_is_seen():
    """It takes one or two cells of its own, or is written as an escape of visible letters."""
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):  # the planes that hold marks
        character = chr(code)
        found = shown(character)
        if found != character:
            assert found.isascii()
            assert found.isprintable()
            assert found.startswith("\\")
            continue
        assert unicodedata.category(character) not in UNSEEN
        assert cell_len(character) == wcswidth(character) in (1, 2), hex(code)


@given(st.text(st.characters(categories=["L", "Nd", "P"], max_codepoint=0x10FF)))
def test_plain_text_is_unchanged(text: str):
    assert shown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Lily found a red ball.",
        "[red]not red[/red] [/]",
        "back\\slash",
        "naïve café, Größe, Ångström",
        "漢字かな交じり文 한국어 中文",
        "\u1112\u1161\u11ab",  # the same in parts, as macOS writes it
        "Καλημέρα мир שלום مرحبا",
        "नमस्ते नी้",
        "e\u0301 a\u0308\u0304",  # marks on letters
        "🙂 🚀 ∑ √ → ½ “ ” … \u00a0",
        "",
    ],
)
def test_these_are_plain(text: str):
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred", "\\e[31mred"),
        ("\x1b]0;title\x07", "\\e]0;title\\x07"),
        ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
        ("nul\0 del\x7f", "nul\\0 del\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\x85next", "\\x85next"),
        ("a\u202etxt.exe", "a\\u{202e}txt.exe"),
        ("\u2066x\u2069", "\\u{2066}x\\u{2069}"),
        ("zero\u200bwidth\u200d\ufeff", "zero\\u{200b}width\\u{200d}\\u{feff}"),
        ("soft\xadhyphen", "soft\\xadhyphen"),
        ("line\u2028paragraph\u2029", "line\\u{2028}paragraph\\u{2029}"),
        ("tag\U000e0041", "tag\\u{e0041}"),
        ("half\ud800", "half\\u{d800}"),
        ("private\ue000", "private\\u{e000}"),
        ("\u0301", "\\u{301}"),  # a mark on nothing would sit on what stands before
        ("\n\u0301", "\\n\\u{301}"),
        ("❤\ufe0f", "❤\\u{fe0f}"),  # a selector changes how wide a heart is, in some terminals
        ("x\u034fy", "x\\u{34f}y"),
        ("\u3164", "\\u{3164}"),  # a letter that is invisible
        ("👍🏽", "👍\\u{1f3fd}"),  # one glyph or two
        ("🇩🇪", "\\u{1f1e9}\\u{1f1ea}"),
        ("👨\u200d👩", "👨\\u{200d}👩"),
    ],
)
def test_these_are_escaped(text: str, seen: str):
    assert shown(text) == seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [("café", "caf\\xe9"), ("漢", "\\u{6f22}"), ("😀!", "\\u{1f600}!"), ("a→b", "a\\u{2192}b")],
)
def test_these_are_escaped_where_there_is_only_ascii(text: str, seen: str):
    assert shown(text, ascii_only=True) == seen
    assert shown(text) == text
