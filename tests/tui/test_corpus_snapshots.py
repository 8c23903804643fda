"""Stills of the corpus browser, its audit and the comparison of tokenizers: `make snapshots` draws
them anew. See `tests.tui.test_snapshots`."""

from __future__ import annotations

import pytest

from engine.service.options import Options
from tests.tui.screen import LARGE, SMALL
from tests.tui.test_snapshots import Compare, still
from tui.glyphs import ASCII

HUGE = (200, 50)
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE, HUGE], ids=["80x24", "120x40", "200x50"])
TWELVE = Options(corpus="storybook:12", context=8)
DOWN = ("down",) * 17


@SIZES
def test_snapshot_corpus(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, keys=("C", "n", *DOWN), options=TWELVE)


@SIZES
def test_snapshot_audit(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, keys=("C", "tab"), options=TWELVE)


@SIZES
def test_snapshot_tokenizers(snap_compare: Compare, size: tuple[int, int]):
    text = ("T", ";", *"Merhaba dünya! 😀 redder", "enter")
    assert still(snap_compare, size, keys=text, options=TWELVE)


def test_snapshot_finding(snap_compare: Compare):
    assert still(snap_compare, SMALL, keys=("C", "slash", *"her sister", "enter"), options=TWELVE)


def test_snapshot_typing_what_is_looked_for(snap_compare: Compare):
    assert still(snap_compare, SMALL, keys=("slash", *"her si"), options=TWELVE)


def test_snapshot_corpus_in_ascii(snap_compare: Compare):
    options = Options(corpus="storybook:12", context=8, tokenizer="characters")
    assert still(snap_compare, SMALL, keys=("C", "n", *DOWN), options=options, glyphs=ASCII)
