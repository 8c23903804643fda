"""Every kind of model can be a run, validated on what is held out for its kind."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from engine.maps import EVERY_POSITION, MODEL_STAGES
from engine.service.run_session import RunSession
from engine.states import each
from engine.text.tokenizer import bounded
from tests.service.runs import tiny


@pytest.mark.parametrize("model", MODEL_STAGES)
def test_it_is_validated(model: str):
    session = RunSession(tiny({"model": model}, eval_every=2))
    training = session.training(model)
    for step in (1, 2):
        states = {state.name: state.value for state in each(training.states(step))}
    prepared, width = session.prepared, session.options.context
    pairs = []
    for number in prepared.split.documents["validation"]:
        ids = bounded(prepared.tokenizer, prepared.tokenizer.encode(prepared.corpus.texts[number]))
        if model in EVERY_POSITION:
            ends = range(width + 1, len(ids) + 1)
            pairs += [(ids[end - width - 1 : end - 1], ids[end - width : end]) for end in ends]
        else:
            padded = [prepared.pad_id] * width + ids
            pairs += [(padded[i : i + width], [ids[i]]) for i in range(1, len(ids))]
    losses = []
    with torch.no_grad():
        for context, targets in pairs:
            logits = training.model(torch.tensor([context])).flatten(0, -2)
            losses.append(F.cross_entropy(logits, torch.tensor(targets)).item())
    assert states["validation"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
