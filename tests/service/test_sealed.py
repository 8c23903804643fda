"""The test side of a split: out of reach until a choice stands; the sweep never reads it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.data.split import TEST, VALIDATION
from engine.errors import TensorstepError
from engine.experiments import stories, sweep
from engine.experiments.runs import finished, train
from engine.experiments.sealed import Frozen, Sealed
from engine.models import evaluate
from engine.runs.checkpoints import checkpoints_in, load_checkpoint
from engine.runs.directory import RunDirectory
from engine.service.run_session import RunSession
from engine.states import drain

PLAN = stories.Plan("storybook:60", None, (5,), 2, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    return train(folder, PLAN.options("mlp", 5), "training", None)


def test_it_is_out_of_reach(run: RunDirectory, tmp_path: Path):
    """Of a finished run; it is lent for one reading once the choice is on the disk."""
    found, other = finished(run, None), finished(run, None)
    with pytest.raises(KeyError):
        found.session.split_loss(found.model, "mlp", TEST)
    with pytest.raises(TensorstepError, match="the test side is sealed: freeze the choice first"):
        found.sealed.loss({"step": 2}, found.model, "mlp")  # type: ignore[arg-type]
    other.sealed.choice["step"] += 1
    with pytest.raises(TensorstepError, match="the test side is sealed"):
        found.sealed.loss(Frozen(tmp_path / "other", other.sealed), found.model, "mlp")
    frozen = Frozen(tmp_path, found.sealed)
    whole = RunSession(PLAN.options("mlp", 5))
    windows = whole.prepared.windows_of(TEST)
    wanted = evaluate(found.model, windows.contexts[:], windows.targets[:])
    assert found.sealed.loss(frozen, found.model, "mlp") == wanted
    assert TEST not in found.session.prepared.streams
    frozen.path.unlink()
    with pytest.raises(TensorstepError, match="the test side is sealed"):
        found.sealed.loss(frozen, found.model, "mlp")


@pytest.mark.parametrize("threads", [1, 2])
def test_in_as_many_threads_as_are_asked_for(threads: int, tmp_path: Path):
    """Whatever the machine would take: sums depend on it in their last bits."""
    run = train(tmp_path / "mlp", PLAN.options("mlp", 5), "training", None, threads)
    assert load_checkpoint(checkpoints_in(run.checkpoints)[-1])[1]["threads"] == threads


def test_damaged_metrics_are_told(run: RunDirectory, tmp_path: Path):
    """Cut in a line, as a loss of power leaves them."""
    copied = RunDirectory(shutil.copytree(run.path, tmp_path / "mlp"))
    copied.metrics.write_bytes(copied.metrics.read_bytes()[:-20])
    told = f"line 2 of {str(copied.metrics)!r} is damaged: delete the folder"
    with pytest.raises(TensorstepError, match=re.escape(told)):
        finished(copied, None)


def test_a_choice_is_made_once(run: RunDirectory, tmp_path: Path):
    """Further runs may be added to it; those that are in it stay as they are."""

    def sealed(name: str, step: int) -> Sealed:
        return Sealed(RunSession(PLAN.options("mlp", 5)), name, {"step": step})

    folder = tmp_path / "new"
    Frozen(folder, sealed("mlp-11", 750))
    Frozen(folder, sealed("mlp-11", 750))  # the same: gone on with
    Frozen(folder, sealed("mlp-29", 1500), sealed("mlp-11", 750))
    assert Frozen(folder).choice == {"mlp-11": {"step": 750}, "mlp-29": {"step": 1500}}
    with pytest.raises(TensorstepError, match="holds another choice of mlp-11, after which the"):
        Frozen(folder, sealed("mlp-47", 750), sealed("mlp-11", 1500))
    assert "mlp-47" not in Frozen(folder).choice


def test_the_sweep_is_the_published_one():
    """`mlp_sweep` of the reference: one setting at a time from a base, 600 steps each."""
    assert sweep.STEPS == 600
    base = {"context": 16, "width": 64, "hidden": 256, "lr": 0.003, "weight_decay": 0.0001}
    assert base == sweep.BASE
    for name, value, varied in sweep.settings():
        assert varied == {**base, name: value}
    assert [(name, value) for name, value, _ in sweep.settings()] == [
        *(("context", value) for value in (8, 16, 32, 64)),
        *(("width", value) for value in (32, 64, 96)),
        *(("hidden", value) for value in (128, 256, 384)),
        *(("lr", value) for value in (0.001, 0.003, 0.006)),
        *(("weight_decay", value) for value in (0.0, 0.0001, 0.001)),
    ]
    assert len({tuple(varied.values()) for _, _, varied in sweep.settings()}) == 12


@pytest.mark.slow
def test_the_sweep_reads_validation_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunDirectory
):
    """Losses over the whole validation side; where anything opens the seal, it fails."""

    def opened(*_: object) -> float:
        raise AssertionError("the seal was opened")

    monkeypatch.setattr(Sealed, "loss", opened)
    monkeypatch.setattr(sweep, "STEPS", 2)
    monkeypatch.setattr(sweep, "ONE_AT_A_TIME", {"context": (8, 16), "lr": (0.003, 0.01)})
    result = sweep.reproduce(tmp_path, PLAN)
    here = {row.name: row.here for row in result.rows}
    assert list(here) == [
        *("context 8: validation loss", "context 16: validation loss"),
        *("learning rate 0.003: validation loss", "learning rate 0.01: validation loss"),
        *("best context", "best learning rate"),
    ]
    assert here["context 16: validation loss"] == here["learning rate 0.003: validation loss"]
    assert len([each for each in tmp_path.iterdir() if (each / "config.json").is_file()]) == 3
    options = replace(PLAN, eval_every=2).options("mlp", 5, **{**sweep.BASE, "context": 8})
    plain = RunSession(options)
    training, windows = plain.training("mlp"), plain.prepared.windows_of(VALIDATION)
    for step in range(3):
        drain(training.states(step))
    wanted = evaluate(training.model, windows.contexts[:], windows.targets[:])
    assert here["context 8: validation loss"] == pytest.approx(wanted, abs=1e-6)
