"""Stills of the inside of a small transformer that was trained 3 steps on the worked sentence."""

from __future__ import annotations

import pytest

from engine.service.options import Options
from tests.tui.test_snapshots import BOTH_SIZES, Compare, pytestmark, still
from tui.glyphs import ASCII
from tui.places import Place

__all__ = ["pytestmark"]
TINY = Options(model="transformer", blocks=2, width=8, hidden=12, train_steps=3, prompt="Lily")
PAGES = pytest.mark.parametrize("page", range(4), ids=["lens", "stream", "parts", "cache"])


@BOTH_SIZES
@PAGES
def test_snapshot_inside(snap_compare: Compare, size: tuple[int, int], page: int):
    keys = ("I", *["tab"] * page, "left")
    where = {"kind": "generation", "options": TINY}
    assert still(snap_compare, size, Place(2, "logits"), keys, **where)


def test_snapshot_inside_in_ascii(snap_compare: Compare):
    keys = ("I", "tab", "tab")
    assert still(snap_compare, (80, 24), Place(3, "logits"), keys, options=TINY, glyphs=ASCII)
