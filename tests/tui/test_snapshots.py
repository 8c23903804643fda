"""Stills of the screen, to be looked at: `make snapshots` draws them anew after a change that is
meant.

Made in this process on the worked sentence, with four digits of each number: the last ones are not
the same on all processors. Elsewhere than on x86-64 with the pinned torch they are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from engine.service.options import Options
from tests.engine.worked import PINNED
from tests.tui.desk import DeskClient
from tests.tui.screen import LARGE, SMALL, Screen
from tui.app import Tensorstep
from tui.glyphs import ASCII, UNICODE, Glyphs
from tui.places import Place

pytestmark = pytest.mark.skipif(
    not PINNED, reason="the last digits are those of x86-64 with the pinned torch"
)
BOTH_SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
Compare = Callable[..., bool]


def still(
    compare: Compare,
    size: tuple[int, int],
    goto: Place | None = None,
    keys: tuple[str, ...] = (),
    kind: str = "training",
    options: Options | None = None,
    glyphs: Glyphs = UNICODE,
) -> bool:
    """Whether the screen, opened at a place and after some keys, looks as it did."""
    app = Tensorstep(options or Options(), goto, kind, glyphs, DeskClient())

    async def before(pilot: Pilot[int]) -> None:
        screen = Screen(app, pilot)
        await screen.ready()
        await screen.press(*keys)

    return compare(app, terminal_size=size, run_before=before)


@BOTH_SIZES
def test_snapshot_stories(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size)


@BOTH_SIZES
def test_snapshot_batch(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "batch.X"))


@BOTH_SIZES
def test_snapshot_weights(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "weights", (0, 0, 2)))


@BOTH_SIZES
def test_snapshot_weights_of_heads(snap_compare: Compare, size: tuple[int, int]):
    options = Options(model="multihead")
    assert still(snap_compare, size, Place(1, "weights", (1, 1, 0, 3)), options=options)


@BOTH_SIZES
def test_snapshot_loss_with_its_curve(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(12, "loss"), ("[", "["))


@BOTH_SIZES
def test_snapshot_gradient(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "gradients.position_embedding.weight"))


@BOTH_SIZES
def test_snapshot_update(snap_compare: Compare, size: tuple[int, int]):
    options = Options(model="mlp")
    assert still(snap_compare, size, Place(1, "update.vocab_head.weight", (9, 0)), options=options)


@BOTH_SIZES
def test_snapshot_choice(snap_compare: Compare, size: tuple[int, int]):
    options = Options(model="mlp", draw=0.8)
    assert still(snap_compare, size, Place(1, "choice"), kind="generation", options=options)


@BOTH_SIZES
def test_snapshot_probabilities(snap_compare: Compare, size: tuple[int, int]):
    options = Options(model="mlp")
    place = Place(1, "probabilities", (0, 9))
    assert still(snap_compare, size, place, kind="generation", options=options)


@BOTH_SIZES
def test_snapshot_parameters(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "parameters.W_Q.weight", (2, 3)))


@BOTH_SIZES
def test_snapshot_help(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "weights"), ("?",))


@BOTH_SIZES
def test_snapshot_ascii(snap_compare: Compare, size: tuple[int, int]):
    assert still(snap_compare, size, Place(1, "scores.masked"), glyphs=ASCII)


def test_snapshot_choosing_a_model(snap_compare: Compare):
    assert still(snap_compare, SMALL, Place(1, "weights"), ("o", "down"))


def test_snapshot_going_to_a_place(snap_compare: Compare):
    assert still(snap_compare, SMALL, Place(1, "weights"), (";", *"1:loss"))


def test_snapshot_too_small(snap_compare: Compare):
    assert still(snap_compare, (60, 12))
