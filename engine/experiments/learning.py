"""`tensorstep learned`: what checkpoints have learned, each beside the same model before training.

A checkpoint is one of this project's own form; a run is all the checkpoints that it has kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.experiments import plane
from engine.experiments.findings import AFTER, BEFORE, Places, Questions, has_heads, sections
from engine.experiments.report import keep
from engine.experiments.rows import Result
from engine.models import StatesModel
from engine.progress import Tell
from engine.runs.checkpoints import checkpoints_in, load_checkpoint
from engine.runs.directory import RunDirectory, run_named
from engine.service.opened import SavedSession
from engine.service.options import Options
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.saved import Saved, saved_in
from engine.service.session import Session

MOST = 4  # checkpoints of a run that are read, evenly spread


@dataclass(frozen=True, eq=False)
class Learned:
    """One model.

    name     in a word
    title    what it is
    fresh    before training
    trained  after it: of a run one for each checkpoint that is read, by its step, in order; of a
             checkpoint that one, as ""
    """

    name: str
    title: str
    session: Session
    fresh: StatesModel
    trained: dict[str, StatesModel]


def open_learned(what: str, tell: Tell | None) -> Learned:
    """A checkpoint of our own, or a run. Raises TensorstepError where it is neither."""
    saved = saved_in(what)
    if saved is not None:
        return of_saved(what, saved, tell)
    try:
        return of_run(run_named(what), tell)
    except UsageError:
        raise
    except TensorstepError as error:
        raise UsageError(f"{error}; checkpoint:NAME is one that ships") from None


def of_saved(what: str, saved: Saved, tell: Tell | None) -> Learned:
    options = Options.from_json({**saved.options_with({}), "opened": what})
    session = SavedSession(options, tell)
    kind = options.model
    name, trained = saved.folder.name, {"": session.model(kind)}
    return Learned(name, saved.title, session, session.untrained(kind), trained)


def of_run(run: RunDirectory, tell: Tell | None) -> Learned:
    session = RunSession(RunOptions.from_json(run.read_config()["run"]), tell)
    found = checkpoints_in(run.checkpoints)
    if not found:
        raise UsageError(f"the run {run.name!r} has no checkpoint yet: let it train on")
    last = len(found) - 1
    picked = sorted({round(last * n / (MOST - 1)) for n in range(MOST)})
    trained = {
        f"step {found[n].step}": session.restored(load_checkpoint(found[n])[0]) for n in picked
    }
    fresh = session.model(session.options.model)
    return Learned(run.name, f"the run {run.name}", session, fresh, trained)


def learned(
    names: Sequence[str],
    questions: Questions,
    picture: Path | None = None,
    tell: Tell | None = None,
) -> Result:
    """What is asked, of one or several, side by side, before training and after it; and of each
    the words in one plane of all its checkpoints, which is drawn to `picture`, too. Where there are
    several, each has a picture of its own: their planes have no axes in common.

    Raises UsageError for models of different vocabularies, and for what cannot be opened; see
    `Questions` and `engine.experiments.learned` for what cannot be asked.
    """
    opened = [open_learned(name, tell) for name in names]
    tokenizer = opened[0].session.prepared.tokenizer
    for each in opened[1:]:
        if each.session.prepared.tokenizer.itos != tokenizer.itos:
            raise UsageError(
                f"{opened[0].title!r} and {each.title!r} have different vocabularies: ask each"
                " alone"
            )
    asked = questions.fitting(tokenizer)
    title = f"What was learned: {', '.join(each.title for each in opened)}"
    result = Result("learned", title)
    models = side_by_side(opened)
    result.sections += sections(models, tokenizer, asked)
    result.notes += unanswered(questions, models.values())
    for each in opened:
        kept = list(each.trained.values())
        after: Mapping[str, StatesModel] = {AFTER: kept[0]} if len(kept) == 1 else each.trained
        places = Places.of({BEFORE: each.fresh, **after}, tokenizer, asked.words)
        result.sections.append(places.section(each.title))
        result.history.append({"model": each.name, **as_json(places)})
        if picture is not None:
            own = picture if len(opened) == 1 else beside(picture, each.name)
            draw(places, own)
            result.notes.append(f"{str(own)!r} has the plane as a picture.")
    return result


def beside(picture: Path, name: str) -> Path:
    """The picture of one of several models."""
    return picture.with_name(f"{picture.stem}-{name}{picture.suffix}")


def unanswered(questions: Questions, models: Iterable[StatesModel]) -> list[str]:
    """What was asked to no effect, a sentence each."""
    few = len(questions.sentences) == 1 and questions.instead is None
    if few and not any(map(has_heads, models)):
        return ["Without attention one sentence says nothing: give two, or --instead too."]
    return []


def side_by_side(opened: Sequence[Learned]) -> dict[str, StatesModel]:
    """All of them by name, each as it was before training first; the checkpoints of a run by their
    steps, with the run's name where there is more than that run. Raises UsageError for two of one
    name."""
    found: dict[str, StatesModel] = {}
    for each in opened:
        found[BEFORE if len(opened) == 1 else f"{each.name} {BEFORE}"] = each.fresh
        for step, model in each.trained.items():
            parts = (each.name, step) if len(opened) > 1 else (step or each.name,)
            name = " ".join(filter(None, parts))
            if name in found:
                raise UsageError(f"two of them are called {name!r}: ask each alone")
            found[name] = model
    return found


def as_json(places: Places) -> dict[str, Any]:
    """Where each word lies at each checkpoint, and how much of the variance both axes have."""
    points = {name: at.tolist() for name, at in places.points.items()}
    return {"words": places.words, "points": points, "explained": list(places.plane.explained)}


def draw(places: Places, picture: Path) -> None:
    """Write the plane, as .png where the name ends so, else as .svg. Raises UsageError where
    matplotlib is missing, TensorstepError where it cannot be written."""
    if picture.suffix.lower() == ".png":
        content = plane.png(places.points, places.words)
    else:
        content = plane.svg(places.points, places.words).encode()
    keep(picture, content, "picture")
