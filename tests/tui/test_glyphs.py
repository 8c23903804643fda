"""ASCII where a terminal plainly has nothing else; our own words in it."""

from __future__ import annotations

from dataclasses import fields

import pytest
from rich.cells import cell_len

from engine.stages import STAGES
from tui.glyphs import ASCII, UNICODE, folded, glyphs_for


@pytest.mark.parametrize(
    ("environment", "glyphs"),
    [
        ({}, UNICODE),
        ({"LANG": "en_GB.UTF-8"}, UNICODE),
        ({"LANG": "C.utf8"}, UNICODE),
        ({"LANG": "C"}, ASCII),
        ({"LANG": "POSIX"}, ASCII),
        ({"LANG": "de_DE.ISO-8859-1"}, ASCII),
        ({"LANG": "C", "LC_CTYPE": "en_GB.UTF-8"}, UNICODE),
        ({"LANG": "en_GB.UTF-8", "LC_CTYPE": "C"}, ASCII),
        ({"LC_CTYPE": "C", "LC_ALL": "en_GB.UTF-8"}, UNICODE),
        ({"LC_CTYPE": "en_GB.UTF-8", "LC_ALL": "C"}, ASCII),
        ({"LC_ALL": "", "LANG": "C"}, ASCII),
        ({"TENSORSTEP_ASCII": "1", "LANG": "en_GB.UTF-8"}, ASCII),
        ({"TENSORSTEP_ASCII": ""}, UNICODE),
    ],
)
def test_which_a_terminal_gets(environment: dict[str, str], glyphs: object):
    """LC_ALL before LC_CTYPE before LANG, as POSIX has it."""
    assert glyphs_for(environment) is glyphs


def test_the_two_sets():
    for field in fields(ASCII):
        value = getattr(ASCII, field.name)
        assert value is True or value.isascii()
        if field.name != "ascii":  # each in as many cells as it has characters: nothing wide
            unicode = getattr(UNICODE, field.name)
            assert cell_len(unicode) == len(unicode) == 1
    assert (ASCII.ascii, UNICODE.ascii) == (True, False)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("embedding · W_Q.weightᵀ", "embedding * W_Q.weight^T"),
        ("old - lr · m̂ / (√v̂ + ε)", "old - lr * mhat / (sqrtvhat + eps)"),
        ("√ Σ (…)²", "sqrt sum (..)^2"),
        ("cdf ≥ draw → next", "cdf >= draw -> next"),
        ("plain [text] stays", "plain [text] stays"),
    ],
)
def test_our_words_in_ascii(text: str, plain: str):
    assert folded(text) == plain


def test_no_word_of_a_map_is_lost_in_ascii():
    """A question mark would stand for a character that has no spelling yet."""
    for stage in STAGES.values():
        for text in (stage.title, stage.formula, stage.sentence, stage.axes):
            assert folded(text).count("?") == text.count("?"), text
