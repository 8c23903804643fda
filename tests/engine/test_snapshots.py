"""Snapshots kept at even strides: the first and the newest always, the total always right."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.processes import Snapshot
from engine.snapshots import Snapshots


def snapshot(step: int, floats: int = 100) -> Snapshot:
    return Snapshot(step, {"parameters.w": torch.zeros(floats)})


def kept(snapshots: Snapshots, steps: int) -> list[int]:
    return [step for step in range(steps + 1) if snapshots.get(step) is not None]


@given(st.integers(0, 200), st.integers(1, 40))
def test_what_is_kept_is_evenly_spaced(steps: int, room: int):
    one = snapshot(0).nbytes
    snapshots = Snapshots(snapshot(0))
    for step in range(1, steps + 1):
        snapshots.add(snapshot(step))
        snapshots.thin(room * one)
        assert snapshots.held == one * len(snapshots)
        assert len(snapshots) <= max(room, 2)
    steps_kept = kept(snapshots, steps)
    assert steps_kept[0] == 0
    assert steps_kept[-1] == steps
    inner = [step for step in steps_kept if step % snapshots.stride == 0]
    assert inner == list(range(0, steps + 1, snapshots.stride))
    assert set(steps_kept) <= {*inner, steps}


@given(st.integers(1, 60), st.integers(0, 60))
def test_a_replay_begins_at_the_last_one_before(steps: int, near: int):
    snapshots = Snapshots(snapshot(0))
    for step in range(1, steps + 1):
        snapshots.add(snapshot(step))
        snapshots.thin(4 * snapshot(0).nbytes)
    snapshots.stand_near(snapshot(min(near, steps)))
    known = kept(snapshots, steps)
    for step in range(1, steps + 2):
        assert snapshots.before(step).step == max(each for each in known if each < step)
    snapshots.stand_near(None)
    assert snapshots.held == snapshot(0).nbytes * len(snapshots)
