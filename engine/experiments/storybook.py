"""The checkpoints that ship: as they are, and trained anew on the project's own stories and logs;
and what the transformer among them writes, read by the storybook's own grammar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.data.preparation import Prepared
from engine.data.split import TEST, TRAIN, VALIDATION
from engine.errors import TensorstepError
from engine.experiments.rows import Curve, Result, exact, made
from engine.experiments.runs import finished, train
from engine.experiments.sampled import Sampled, sample
from engine.experiments.sealed import Frozen
from engine.models import StatesModel
from engine.progress import Tell
from engine.service.opened import SavedSession
from engine.service.options import Options
from engine.service.run_options import RunOptions
from engine.service.saved import CONFIG, SAVED, SHIPPED, SHIPPED_IN, saved_in

LEARNT, HELD_OUT = (TRAIN, VALIDATION), (VALIDATION, TEST)
SAMPLES, TEMPERATURE, LONGEST, SEED = 200, 0.8, 100, 11
SHOWN = 10  # stories of a report
ACCEPTED, COPIED = 0.9, 0.1  # shares of all: at least, at most
OTHER = "another machine or torch"
COPIES = "copies of training stories"
WRITES = "transformer"  # the one whose stories are read
CLOSE = 5e-5  # losses that are summed in another order


def reproduce(folder: Path, shipped: bool = False, tell: Tell | None = None) -> Result:
    """What ships, as it is, beside its cards; then each trained anew to its end, in `folder`.

    shipped  only the former, which takes minutes
    """
    title = "The checkpoints that ship" + ("" if shipped else ", as they are and trained anew")
    result = Result("storybook", title)
    for name in SHIPPED:
        read_shipped(result, name, tell)
    if shipped:
        return result
    result.notes.append(
        "The checkpoints were trained on an Intel Xeon. Other processors round sums otherwise,"
        " which thousands of steps make grow: losses may then differ in the third digit."
    )
    for number, name in enumerate(SHIPPED, start=1):
        train_anew(result, name, folder / name, f"{number} of {len(SHIPPED)}", tell)
    return result


def read_shipped(result: Result, name: str, tell: Tell | None) -> None:
    """Losses of a checkpoint over the sides that were held out from it; and its stories, of which
    more is asked than of those of another training."""
    opened = f"{SAVED}{name}"
    saved = saved_in(opened)
    if saved is None:
        raise TensorstepError(
            f"{opened!r} is no checkpoint of ours any more: install tensorstep anew"
        )
    session = SavedSession(Options.from_json({**saved.options_with({}), "opened": opened}), tell)
    kind, losses = session.options.model, facts_of(name)["losses"]
    model = session.model(kind).eval()
    for side in HELD_OUT:
        if losses[side] is not None:  # six logs leave none to test
            here = session.split_loss(model, kind, side)
            result.rows.append(exact(f"{name}: {side} loss", losses[side], here, OTHER, CLOSE))
    if name == WRITES:
        shares = read_stories(result, "", model, session.prepared, tell)
        holds = shares.pop(COPIES) <= COPIED and min(shares.values()) >= ACCEPTED
        promised = f"at least {ACCEPTED:.0%} accepted and ended, at most {COPIED:.0%} copied"
        result.rows.append(exact(promised, True, holds, "see the shares above"))


def train_anew(result: Result, name: str, folder: Path, place: str, tell: Tell | None) -> None:
    """Train a checkpoint to its end, and compare losses and selected step with its card's."""
    card = facts_of(name)
    options = RunOptions.from_json(card["run"])
    title = f"{name}, trained anew"
    found = finished(train(folder, options, f"{title} ({place})", tell, card["threads"]), tell)
    frozen = Frozen(folder, found.sealed)
    kind = options.walk.model
    here = {side: found.session.split_loss(found.model, kind, side) for side in LEARNT}
    here[TEST] = found.sealed.loss(frozen, found.model, kind)
    for side, published in card["losses"].items():
        if published is not None:
            result.rows.append(exact(f"{title}: {side} loss", published, here[side], OTHER, CLOSE))
    result.rows.append(exact(f"{title}: selected step", card["step"], found.step, OTHER))
    validated = [row for row in found.rows if row.get("val_loss") is not None]
    for row in validated:
        result.history.append(
            {"model": name, "step": row["step"], "validation_loss": row["val_loss"]}
        )
    points = [(float(row["step"]), float(row["val_loss"])) for row in validated]
    result.curves.append(Curve(f"{name}: validation", points))
    if name == WRITES:
        read_stories(result, ", trained anew", found.model, found.session.prepared, tell)


def facts_of(name: str) -> dict[str, Any]:
    """What the card of one that ships says."""
    facts: dict[str, Any] = json.loads((SHIPPED_IN / name / CONFIG).read_bytes())["facts"]
    return facts


def read_stories(
    result: Result, which: str, model: StatesModel, prepared: Prepared, tell: Tell | None
) -> dict[str, float]:
    """Have the grammar read what the transformer writes: rows of the result, and some stories.
    Returns the shares."""
    training = [prepared.corpus.texts[i] for i in prepared.split.documents[TRAIN]]
    written = sample(model, prepared.tokenizer, training, SAMPLES, TEMPERATURE, LONGEST, SEED, tell)
    shares = shares_of(written)
    about = f"{WRITES}{which}: {SAMPLES} stories"
    result.rows += [made(f"{about}, {what}", share) for what, share in shares.items()]
    title = f"{WRITES}{which}: the first {SHOWN} of {SAMPLES} stories, at temperature {TEMPERATURE}"
    stories = [f"{i}. {story}" for i, story in enumerate(written.stories[:SHOWN], 1)]
    result.sections.append((title, stories))
    return shares


def shares_of(written: Sampled) -> dict[str, float]:
    count = len(written.stories)
    return {
        "accepted by the grammar": written.accepted / count,
        "ended by themselves": written.ended / count,
        COPIES: written.copied / count,
    }
