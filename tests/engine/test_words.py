"""The words tokenizer."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import detokenize, tokenize
from engine.text.words import normalize

SHARED = Path(__file__).resolve().parents[3] / "shared"
STORIES = SHARED / "data" / "tinystories" / "three_stories.json"

# letters that change under lower case or NFKC, combining marks, digits of other scripts, marks
AWKWARD = "aZJH\u030c\u0331'.,!?;: \t\n0٣½²ﬁİΣςſǺ̇ẞ…﹒；＇ａ한ᄒ ́\u200b\u00a0\u2028\x1c\x85<>[/]\x1b"
texts = st.one_of(st.text(), st.text(alphabet=AWKWARD), st.text(alphabet="aB' 1.!"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Lily can't find 12 balls!", ["lily", "can't", "find", "12", "balls", "!"]),
        ("LILY found!", ["lily", "found", "!"]),
        ("redder!", ["redder", "!"]),
        ("Lily found a red ball.", ["lily", "found", "a", "red", "ball", "."]),
        ("", []),
        (" \n\t ", []),
        ("rock'n'roll", ["rock'n", "'", "roll"]),  # one inner apostrophe part
        ("'tis dogs'", ["'", "tis", "dogs", "'"]),
        ("3rd 1,000", ["3", "rd", "1", ",", "000"]),
        ("naïve", ["na", "ï", "ve"]),  # words are ASCII
        ("ｆｕｌｌ ﬁt", ["full", "fit"]),  # NFKC
        ("x²", ["x", "2"]),
        ("a...b", ["a", ".", ".", ".", "b"]),
        ("J\u030c", ["\u01f0"]),  # only the small letter has a code point of its own with its mark
    ],
)
def test_tokens_of_a_text(text: str, tokens: list[str]):
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["lily", "can't", "find", "12", "balls", "!"], "lily can't find 12 balls!"),
        (["oh", ",", "no", ":", "what", "?"], "oh, no: what?"),
        (["she", "said", '"', "hi", '"', "."], 'she said " hi ".'),
        (["."], "."),
        ([], ""),
    ],
)
def test_text_of_tokens(tokens: list[str], text: str):
    assert detokenize(tokens) == text


@given(texts)
def test_tokens_survive_becoming_a_text(text: str):
    tokens = tokenize(text)
    assert tokenize(detokenize(tokens)) == tokens


@given(texts)
def test_no_mark_is_lost_or_added(text: str):
    """Tokens are the text, normalized, cut at white space and at the edges of words."""
    assert "".join(tokenize(text)) == re.sub(r"\s", "", normalize(text))


@given(texts)
def test_normal_form_is_normal(text: str):
    """What is normalized is in NFKC, in lower case, and stays as it is."""
    form = normalize(text)
    assert unicodedata.normalize("NFKC", form) == form == form.lower() == normalize(form)


def test_counts_of_real_stories():
    if not STORIES.exists():
        pytest.skip("../shared/data/tinystories is not here")
    stories = json.loads(STORIES.read_text(encoding="utf-8"))["stories"]
    assert [len(tokenize(story["text"])) for story in stories] == [60, 133, 300]
