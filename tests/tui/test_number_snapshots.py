"""Stills of what is done with numbers: order and heat on a text that is hard to draw, a difference,
one parameter over the steps, and the norms of all."""

from __future__ import annotations

import pytest

from engine.service.options import Options
from tests.tui.screen import LARGE, SMALL
from tests.tui.test_hostile import HOSTILE
from tests.tui.test_snapshots import Compare, pytestmark, still
from tui.glyphs import ASCII
from tui.places import Place

__all__ = ["pytestmark"]
SIZES = pytest.mark.parametrize(
    "size", [SMALL, LARGE, (200, 50)], ids=["80x24", "120x40", "200x50"]
)
HARD = Options(
    model="mlp", sentence="漢字 語 한국 👍🏽 ❤\ufe0f [red] \x1b[31m \u202e [/] " + HOSTILE
)
ADAMW = Options(model="mlp", optimizer="adamw", lr=0.02)


@SIZES
def test_snapshot_logits_sorted_with_heat(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "logits"), ("s", "i", "down"), options=HARD)


@SIZES
def test_snapshot_difference(snap_compare: Compare, size: tuple[int, int]):
    keys = ("w", *"0.5", "enter", "=", "=")
    assert still(snap_compare, size, Place(1, "weights", (0, 0, 2)), keys)


@SIZES
def test_snapshot_what_is_followed(snap_compare: Compare, size: tuple[int, int]):
    place = Place(30, "update.vocab_head.bias", (9,))
    assert still(snap_compare, size, place, ("F",), options=ADAMW)


@SIZES
def test_snapshot_norms(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(12, "loss"), ("V",))


def test_snapshot_heat_in_ascii(snap_compare: Compare):
    assert still(snap_compare, LARGE, Place(1, "logits"), ("s", "i"), options=HARD, glyphs=ASCII)


def test_snapshot_masked_with_heat(snap_compare: Compare):
    assert still(snap_compare, LARGE, Place(1, "scores.masked", (0, 0, 3)), ("i",))


def test_snapshot_a_picked_factor(snap_compare: Compare):
    place = Place(1, "message", (0, 0, 1))
    assert still(snap_compare, LARGE, place, ("tab", "down", "right"))
