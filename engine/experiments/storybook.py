"""The checkpoints that ship, trained anew on the project's own stories and logs; and what the
transformer among them writes, read by the storybook's own grammar."""

from __future__ import annotations

import json
from pathlib import Path

from engine.data.split import TEST, TRAIN, VALIDATION
from engine.experiments.rows import Curve, Result, exact, made
from engine.experiments.runs import Finished, finished, train
from engine.experiments.sampled import sample
from engine.experiments.sealed import Frozen
from engine.progress import Tell
from engine.service.run_options import RunOptions
from engine.service.saved import CONFIG, SHIPPED, SHIPPED_IN

LEARNT = (TRAIN, VALIDATION)
SAMPLES, TEMPERATURE, LONGEST, SEED = 200, 0.8, 100, 11
SHOWN = 10  # stories of a report
ACCEPTED, COPIED = 0.9, 0.1  # shares of all: at least, at most
OTHER = "another machine or torch"
WRITES = "transformer"  # the one whose stories are read


def reproduce(folder: Path, tell: Tell | None = None) -> Result:
    """Train each of them to its end, and compare its losses with its card's."""
    result = Result("storybook", "The checkpoints that ship, trained anew")
    for name in SHIPPED:
        config = json.loads((SHIPPED_IN / name / CONFIG).read_bytes())
        card, options = config["facts"], RunOptions.from_json(config["facts"]["run"])
        run = train(folder / name, options, config["title"], tell, card["threads"])
        found = finished(run, tell)
        frozen = Frozen(folder / name, found.sealed)
        kind = options.walk.model
        here = {side: found.session.split_loss(found.model, kind, side) for side in LEARNT}
        here[TEST] = found.sealed.loss(frozen, found.model, kind)
        for side, published in card["losses"].items():
            told = f"{name}: {side} loss"
            result.rows.append(exact(told, published, here[side], OTHER, within=5e-5))
        result.rows.append(exact(f"{name}: selected step", card["step"], found.step, OTHER))
        validated = [row for row in found.rows if row.get("val_loss") is not None]
        for row in validated:
            result.history.append(
                {"model": name, "step": row["step"], "validation_loss": row["val_loss"]}
            )
        points = [(float(row["step"]), float(row["val_loss"])) for row in validated]
        result.curves.append(Curve(f"{name}: validation", points))
        if name == WRITES:
            result.sections.append(read(result, found, tell))
    return result


def read(result: Result, found: Finished, tell: Tell | None) -> tuple[str, list[str]]:
    """Have the grammar read what the transformer writes: rows of the result, and some stories."""
    prepared = found.session.prepared
    training = [prepared.corpus.texts[i] for i in prepared.split.documents[TRAIN]]
    written = sample(
        found.model, prepared.tokenizer, training, SAMPLES, TEMPERATURE, LONGEST, SEED, tell
    )
    shares = {
        "accepted by the grammar": written.accepted / SAMPLES,
        "ended by themselves": written.ended / SAMPLES,
        "copies of training stories": written.copied / SAMPLES,
    }
    holds = shares["copies of training stories"] <= COPIED and all(
        share >= ACCEPTED for name, share in shares.items() if not name.startswith("copies")
    )
    result.rows += [made(f"{SAMPLES} stories: {name}", share) for name, share in shares.items()]
    promised = f"at least {ACCEPTED:.0%} accepted and ended, at most {COPIED:.0%} copied"
    result.rows.append(exact(promised, True, holds, "see the shares above"))
    title = f"The first {SHOWN} of {SAMPLES} stories, at temperature {TEMPERATURE}"
    return title, [f"{i}. {story}" for i, story in enumerate(written.stories[:SHOWN], 1)]
