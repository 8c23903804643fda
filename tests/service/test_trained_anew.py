"""`reproduce storybook`: a checkpoint that ships, trained anew by its card."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.experiments import storybook
from engine.experiments.rows import Result
from engine.runs.directory import FINISHED
from engine.service.control import Control
from engine.service.exporting import export
from engine.service.run_session import RunSession
from engine.service.training_run import TrainingRun
from tests.service.runs import made, tiny
from tests.service.test_watch import rows_of


@pytest.mark.parametrize("name", ["mlp", storybook.WRITES])
def test_it_comes_out_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """To the last bit of each loss that is trained by, in the threads of the card."""
    options = tiny({"model": name})
    run = made(tmp_path / "run", options)
    training = TrainingRun(run, options, Control(), RunSession(options))
    training.begin()
    assert training.go() == FINISHED
    export(run, tmp_path / name, None, None)
    monkeypatch.setattr(storybook, "SHIPPED_IN", tmp_path)
    monkeypatch.setattr(storybook, "SAMPLES", 2)
    monkeypatch.setattr(storybook, "LONGEST", 5)
    result = Result("storybook", "")
    storybook.train_anew(result, name, tmp_path / "anew", "1 of 1", None)
    compared = [row for row in result.rows if row.published is not None]
    title = f"{name}, trained anew"
    sides = [f"{title}: {side} loss" for side in ("train", "validation", "test")]
    assert [row.name for row in compared] == [*sides, f"{title}: selected step"]
    assert all(row.verdict == "exact" and row.difference == 0 for row in compared)
    validated = [each["validation_loss"] for each in result.history]
    plain = [r["val_loss"] for r in rows_of(run) if r.get("val_loss") is not None]
    assert validated == plain
    assert torch.get_num_threads() == storybook.facts_of(name)["threads"]
    assert len(result.sections) == (name == storybook.WRITES)
