"""Sequences that run on into the next document: in the walk, in its explanations, in losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from engine.data.split import TRAIN, VALIDATION
from engine.service.options import Options
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.session import Session

SENTENCES = [f"the {animal} saw a {thing}" for animal in "abcdefgh" for thing in "stuvwxyz"]
LENGTH, T = 7, 9  # IDs of each document, boundaries included; so none has a sequence of its own


@pytest.fixture
def options(tmp_path: Path) -> Options:
    (tmp_path / "texts").write_text("\n".join(SENTENCES))
    text = str(tmp_path / "texts")
    return Options(model="transformer", text=text, lines=True, context=T, run_on=True)


def runs(session: Session, side: str) -> torch.Tensor:
    """From the beginning of each document ten IDs in a row: [N, 10]."""
    return session.prepared.streams[side].ids.unfold(0, T + 1, LENGTH)


def test_a_walk_of_them(options: Options):
    session = Session(options)
    walk = session.walk("training")
    walk.seek(1)
    wanted = runs(session, TRAIN)
    assert torch.equal(walk.fetch("windows.contexts", 0)[:], wanted[:, :-1])
    assert torch.equal(walk.fetch("windows.targets", 0)[:], wanted[:, 1:])
    found = walk.record("windows.targets", 0).explain((5, 8))
    assert [(term.cited.source, term.cited.index) for term in found.terms] == [("ids", (44,))]
    eos, bos = session.prepared.tokenizer.eos_id, session.prepared.tokenizer.bos_id
    assert set(wanted[:, 0].tolist()) == set(wanted[:, 7].tolist()) == {bos}
    assert set(wanted[:, 6].tolist()) == {eos}


@pytest.mark.parametrize("side", [TRAIN, VALIDATION])
def test_losses_are_of_all_of_them(options: Options, side: str):
    session = RunSession(RunOptions(walk=options, device="cpu"))
    model = session.model("transformer")
    ids = runs(session, side)
    with torch.no_grad():
        logits = model(ids[:, :-1])
    wanted = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert session.split_loss(model, "transformer", side) == pytest.approx(wanted.item(), abs=1e-6)
    first, _ = session.measured_for("transformer", side, 2) or (None, None)
    assert torch.equal(first, ids[:2, :-1])
