"""Stills of a run: live, as its files and their times say; and the walk of its paused step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.runs.directory import RunDirectory
from engine.service.run_options import RunOptions
from tests.tui.screen import LARGE
from tests.tui.test_run_app import TINY, RingingScreen, Seen, Training, no_clocks, walked
from tests.tui.test_snapshots import BOTH_SIZES, Compare, pytestmark
from tui.glyphs import ASCII, UNICODE, Glyphs

__all__ = ["no_clocks", "pytestmark"]
BEGUN = 1764495000.0


def of_run(
    compare: Compare,
    run: RunDirectory,
    size: tuple[int, int],
    keys: tuple[str, ...] = (),
    walk: bool = False,
    glyphs: Glyphs = UNICODE,
) -> bool:
    """Whether the screen of a run looks as it did, after some keys, live or walked."""
    app = RingingScreen(run, True, glyphs)

    async def before(pilot: Pilot[int]) -> None:
        seen = Seen(app, pilot)
        await seen.until(lambda: seen.app.live is not None)
        if walk:
            await seen.until(lambda: seen.status)
            await walked(seen)
            await seen.until("batch.X[0,0] =")
        await seen.press(*keys)

    return compare(app, terminal_size=size, run_before=before)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """The files of a run that has been stopped: four steps a second, one that was not finite."""
    made = RunDirectory(tmp_path / "lily")
    options = RunOptions.by_protocol(dict(TINY)).to_json()
    made.create(
        {"kind": "training", "name": "lily", "created": BEGUN, "steps": 6000, "run": options}
    )
    worker = {"host": os.uname().nodename, "pid": 1, "started": BEGUN, "socket": "", "version": "0"}
    worker |= {"state": "failed", "why": "the loss of step 750 is nan: the update is withheld"}
    made.worker.write_text(json.dumps(worker))
    rows = []
    for step in range(1, 751):
        loss = 3 + 5 / math.sqrt(step) + 0.01 * (step * 37 % 11) + 2 * (step == 400)
        row = {"step": step, "loss": loss, "lr": 0.003 * min(1, step / 100)}
        row |= {"grad_norm": 0.5 + step % 13 / 40, "targets_per_second": 5000.5}
        row["time"] = BEGUN + step / 4
        if step % 75 == 0:
            row["val_loss"] = loss + 0.125
        rows.append(row)
    rows[-1] |= {"loss": "nan", "val_loss": "nan"}
    made.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "upon a time there was a red \x1b[31mball [red] that nobody had seen, \u6f22\u5b57"
    made.samples.write_text(json.dumps({"step": 700, "prompt": "once", "text": text}) + "\n")
    made.log.write_text("".join(f"2025-11-30 09:30:{i:02}  line {i}\n" for i in range(30)))
    return made


@BOTH_SIZES
def test_snapshot_live(snap_compare: Compare, run: RunDirectory, size: tuple[int, int]):
    assert of_run(snap_compare, run, size)


@BOTH_SIZES
def test_snapshot_live_nearer_and_logarithmic(
    snap_compare: Compare, run: RunDirectory, size: tuple[int, int]
):
    assert of_run(snap_compare, run, size, ("l", "home", "plus", "right", "enter"))


def test_snapshot_live_in_ascii(snap_compare: Compare, run: RunDirectory):
    assert of_run(snap_compare, run, LARGE, glyphs=ASCII)


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[Training]:
    made = Training(tmp_path / "ada")
    yield made
    made.end()


@BOTH_SIZES
def test_snapshot_the_walk_of_a_paused_run(
    snap_compare: Compare, paused: Training, size: tuple[int, int]
):
    assert of_run(snap_compare, paused.run, size, walk=True)


def test_snapshot_live_help(snap_compare: Compare, run: RunDirectory):
    assert of_run(snap_compare, run, (80, 24), ("question_mark",))
