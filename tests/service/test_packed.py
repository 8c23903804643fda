"""Sequences that run over the ends of documents: in the walk, in its explanations, in losses."""

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


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Documents of seven IDs, boundaries included: none has a sequence of nine."""
    (tmp_path / "texts").write_text("\n".join(SENTENCES))
    text = str(tmp_path / "texts")
    return Options(model="transformer", text=text, lines=True, context=9, packed=True)


def runs(session: Session, side: str) -> torch.Tensor:
    """Every ten IDs in a row of a side's documents, one after another: [N, 10]."""
    return session.prepared.streams[side].ids.unfold(0, 10, 1)


def test_a_walk_of_them(options: Options):
    session = Session(options)
    walk = session.walk("training")
    walk.seek(1)
    wanted = runs(session, TRAIN)
    assert torch.equal(walk.fetch("windows.contexts", 0)[:], wanted[:, :-1])
    assert torch.equal(walk.fetch("windows.targets", 0)[:], wanted[:, 1:])
    found = walk.record("windows.targets", 0).explain((5, 8))
    assert [(term.cited.source, term.cited.index) for term in found.terms] == [("ids", (14,))]
    eos, bos = session.prepared.tokenizer.eos_id, session.prepared.tokenizer.bos_id
    assert wanted[0, 6:8].tolist() == [eos, bos]


@pytest.mark.parametrize("side", [TRAIN, VALIDATION])
def test_losses_are_of_every_target_once(options: Options, side: str):
    session = RunSession(RunOptions(walk=options, device="cpu"))
    model = session.model("transformer")
    ids = runs(session, side)[::9]  # one after another: each target once
    with torch.no_grad():
        logits = model(ids[:, :-1])
    wanted = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert session.split_loss(model, "transformer", side) == pytest.approx(wanted.item(), abs=1e-6)
    assert torch.equal(ids[:-1, -1], ids[1:, 0])
    first, _ = session.measured_for("transformer", side, 2) or (None, None)
    assert torch.equal(first, ids[:2, :-1])
