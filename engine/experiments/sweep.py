"""One setting at a time: the window MLP with each of its settings varied alone, compared by
validation. The test side is sealed throughout: no session here has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.data.split import VALIDATION
from engine.experiments.rows import Result, made
from engine.experiments.runs import finished, train
from engine.experiments.stories import Plan, fitted
from engine.progress import Tell

STEPS = 600
BASE: dict[str, Any] = {
    "context": 16,
    "width": 64,
    "hidden": 256,
    "lr": 0.003,
    "weight_decay": 0.0001,
}
ONE_AT_A_TIME: dict[str, tuple[Any, ...]] = {
    "context": (8, 16, 32, 64),
    "width": (32, 64, 96),
    "hidden": (128, 256, 384),
    "lr": (0.001, 0.003, 0.006),
    "weight_decay": (0.0, 0.0001, 0.001),
}
TITLES = {
    "context": "context",
    "width": "embedding width",
    "hidden": "hidden units",
    "lr": "learning rate",
    "weight_decay": "weight decay",
}


def settings() -> list[tuple[str, Any, dict[str, Any]]]:
    """Each setting's name, its value, and all settings of that run; the base once for each name."""
    return [
        (name, value, {**BASE, name: value})
        for name, values in ONE_AT_A_TIME.items()
        for value in values
    ]


def reproduce(folder: Path, plan: Plan, tell: Tell | None = None) -> Result:
    """Train every variation once, and tell their losses over the whole validation side."""
    result = Result("tinystories", "One setting at a time, by validation alone")
    losses: dict[str, float] = {}
    plan = fitted(plan, tell)
    seed = plan.seeds[0]
    short = replace(plan, seeds=(seed,), steps=STEPS, eval_every=STEPS)
    count = len({tuple(varied.values()) for _, _, varied in settings()})
    for name, value, varied in settings():
        key = "-".join(f"{each}" for each in varied.values())
        if key not in losses:
            what = f"{TITLES[name]} {value} ({len(losses) + 1} of {count})"
            run = train(folder / key, short.options("mlp", seed, **varied), what, tell)
            found = finished(run, tell)
            loss = found.session.split_loss(found.model, "mlp", VALIDATION)
            losses[key] = float("nan") if loss is None else loss
        result.rows.append(made(f"{TITLES[name]} {value}: validation loss", losses[key]))
        result.history.append({"setting": name, "value": value, "validation_loss": losses[key]})
    for name, values in ONE_AT_A_TIME.items():
        own = {
            value: losses["-".join(f"{each}" for each in {**BASE, name: value}.values())]
            for value in values
        }
        best = min(own, key=lambda value: own[value])
        result.rows.append(made(f"best {TITLES[name]}", best))
    result.notes.append(f"{STEPS} steps each, seed {seed}; the test stories were not read.")
    return result
