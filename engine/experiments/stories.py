"""The measured experiment on stories: a window MLP against one head and four heads of attention, on
the same windows, three seeds each."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.data.split import SIDES, TRAIN, VALIDATION
from engine.errors import UsageError
from engine.experiments.findings import AFTER, BEFORE, Places, Questions, Section, sections
from engine.experiments.rows import Curve, Result, Row, exact, made, measured
from engine.experiments.runs import Finished, finished, train
from engine.experiments.sampled import sample
from engine.experiments.sealed import Frozen
from engine.models import StatesModel
from engine.progress import Tell
from engine.service.run_options import RunOptions
from engine.service.session import Session
from engine.text.tokenizer import Tokenizer

SEEDS = (11, 29, 47)
KINDS = {"mlp": "mlp", "attention": "one head", "multihead": "four heads"}
SELECTION = "tinystories:full"  # what the published figures are of
PARAMETERS = {"mlp": 2_332_832, "attention": 1_321_120, "multihead": 1_321_120}
PERPLEXITY = {  # of test, over three seeds: mean and standard deviation
    "mlp": (51.414434800867234, 0.44307967119606395),
    "attention": (31.31463254211675, 0.3047408118077636),
    "multihead": (28.784579416639392, 0.613505962050175),
}
TEST_LOSS = {  # by seed
    "mlp": (3.937838947320572, 3.949341204592719, 3.9325026212980614),
    "attention": (3.4548369977808355, 3.441335761448963, 3.435989217019989),
}
FIRST_LOSS = {"mlp": 8.35482406616211, "attention": 8.294988632202148}  # of step 1, seed 11
WINDOWS = {"train": 969_160, "validation": 120_220, "test": 120_393}
VOCABULARY = 4000
SAMPLES, SHOWN, TEMPERATURE, LONGEST = 10, 2, 0.8, 600  # stories written, and tokens of each
OTHER_DEVICE = "published on an Apple GPU, whose sums and draws differ"


@dataclass(frozen=True)
class Plan:
    """What is run.

    corpus    its SPEC; `documents` only the first of them; `lines` every line of a file is one
    seeds     one run each, of each kind
    steps, eval_every   of each run
    max_vocab  of other stories than the selection; None: all tokens that occur twice
    """

    corpus: str = SELECTION
    documents: int | None = None
    seeds: tuple[int, ...] = SEEDS
    steps: int = 6000
    eval_every: int = 750
    max_vocab: int | None = None
    lines: bool = False

    @property
    def comparable(self) -> bool:
        return (self.corpus, self.documents, self.steps) == (SELECTION, None, 6000)

    def options(self, kind: str, seed: int, **other: Any) -> RunOptions:
        """The protocol of `reference/tinystories_experiment.json`."""
        given: dict[str, Any] = {"model": kind, "seed": seed, "corpus": self.corpus, **other}
        if self.documents is not None:
            given["documents"] = self.documents
        if self.lines:
            given["lines"] = True
        if self.corpus != SELECTION:
            given |= {"max_vocab": self.max_vocab, "min_freq": 2}
        run = {"steps": self.steps, "eval_every": self.eval_every, "sample_every": 0}
        return RunOptions.by_protocol(given, **run, device="cpu").check()


def fitted(plan: Plan, tell: Tell | None) -> Plan:
    """The plan with the protocol's vocabulary, where its stories have as many tokens. Raises
    UsageError where they are too few to hold any out."""
    if plan == Plan(seeds=plan.seeds):
        return plan
    prepared = Session(plan.options("mlp", plan.seeds[0]).walk, tell).prepared
    for side in SIDES:
        if not len(prepared.windows_of(side)):
            raise UsageError(
                f"{len(prepared.corpus.texts)} stories leave none for {side}: give more; with"
                " --lines every line of a text file is one"
            )
    if plan.corpus == SELECTION:
        return plan
    has_more = len(prepared.tokenizer) > VOCABULARY
    return replace(plan, max_vocab=VOCABULARY if has_more else None)


def reproduce(folder: Path, plan: Plan, tell: Tell | None = None) -> Result:
    """Train what is missing, select by validation, freeze, and only then read the test side."""
    plan = fitted(plan, tell)
    runs: dict[tuple[str, int], Finished] = {}
    for kind in KINDS:
        for seed in plan.seeds:
            options = plan.options(kind, seed)
            place = f"{len(runs) + 1} of {len(KINDS) * len(plan.seeds)}"
            what = f"{KINDS[kind]}, seed {seed} ({place})"
            runs[kind, seed] = finished(train(folder / f"{kind}-{seed}", options, what, tell), tell)
    frozen = Frozen(folder, *(run.sealed for run in runs.values()))
    result = Result("tinystories", "A window MLP, one head and four heads, on the same stories")
    losses = {}
    for number, ((kind, seed), run) in enumerate(runs.items()):
        if tell is not None:
            tell("reading the test stories", number, len(runs))
        losses[kind, seed] = of_splits(run, frozen, kind)
    notes_of(result, plan, runs)
    for kind in KINDS:
        result.rows += rows_of(kind, plan, runs, losses)
    result.rows += order_of(plan, losses)
    history_of(result, runs, losses)
    first = {kind: runs[kind, plan.seeds[0]] for kind in KINDS}
    fresh = {KINDS[kind]: run.session.model(kind) for kind, run in first.items()}
    trained = {KINDS[kind]: run.model for kind, run in first.items()}
    tokenizer = first["mlp"].session.prepared.tokenizer
    models = {
        each: model
        for name in trained
        for each, model in ((f"{name} {BEFORE}", fresh[name]), (name, trained[name]))
    }
    result.sections += sections(models, tokenizer, Questions().fitting(tokenizer))
    for name, model in trained.items():
        result.sections.append(writes(result, name, model, tokenizer, tell))
    for name, model in trained.items():
        plane = Places.of({BEFORE: fresh[name], AFTER: model}, tokenizer)
        result.sections.append(plane.section(name))
    return result


def writes(
    result: Result, name: str, model: StatesModel, tokenizer: Tokenizer, tell: Tell | None
) -> Section:
    """Have a model write some stories, from nothing; a row tells how many end by themselves."""
    written = sample(model, tokenizer, (), SAMPLES, TEMPERATURE, LONGEST, SEEDS[0], tell)
    told = f"{name}: stories that end by themselves, of {SAMPLES}"
    result.rows.append(made(told, written.ended))
    title = f"{name}: the first {SHOWN} of {SAMPLES} stories, at temperature {TEMPERATURE}"
    return title, [f"{i}. {story}" for i, story in enumerate(written.stories[:SHOWN], 1)]


def of_splits(run: Finished, frozen: Frozen, kind: str) -> dict[str, float]:
    """The losses over whole splits, with the parameters that were selected."""
    validation = run.session.split_loss(run.model, kind, VALIDATION)
    test = run.sealed.loss(frozen, run.model, kind)
    none = math.nan
    return {
        "validation": none if validation is None else validation,
        "test": none if test is None else test,
    }


def rows_of(
    kind: str,
    plan: Plan,
    runs: dict[tuple[str, int], Finished],
    losses: dict[tuple[str, int], dict[str, float]],
) -> list[Row]:
    """The figures of one kind of model."""
    name, mine = KINDS[kind], {seed: losses[kind, seed] for seed in plan.seeds}
    model = runs[kind, plan.seeds[0]].model
    count = sum(each.numel() for each in model.parameters())
    perplexity = statistics.fmean(math.exp(loss["test"]) for loss in mine.values())
    if not plan.comparable:
        rows = [made(f"{name}: parameters", count), made(f"{name}: test perplexity", perplexity)]
        rows += [made(f"{name}: test loss, seed {s}", loss["test"]) for s, loss in mine.items()]
        return rows
    rows = [exact(f"{name}: parameters", PARAMETERS[kind], count, "another model")]
    mean, deviation = PERPLEXITY[kind]
    rows.append(
        measured(f"{name}: test perplexity, mean", mean, deviation, perplexity, OTHER_DEVICE)
    )
    for seed, published in zip(SEEDS, TEST_LOSS.get(kind, ()), strict=False):
        if seed in mine:
            told = f"{name}: test loss, seed {seed}"
            share = deviation / mean  # of a perplexity is, for its logarithm, a difference
            rows.append(measured(told, published, share, mine[seed]["test"], OTHER_DEVICE))
    if kind in FIRST_LOSS and SEEDS[0] in mine:
        first = runs[kind, SEEDS[0]].rows[0]["loss"]
        told = f"{name}: loss of step 1, seed {SEEDS[0]}"
        rows.append(exact(told, FIRST_LOSS[kind], first, OTHER_DEVICE, within=1e-5))
    return rows


def order_of(plan: Plan, losses: dict[tuple[str, int], dict[str, float]]) -> list[Row]:
    """Whether one head is ahead of the MLP and four heads of one: every seed against every seed."""
    found = []
    for worse, better in (("mlp", "attention"), ("attention", "multihead")):
        lowest = min(losses[worse, seed]["test"] for seed in plan.seeds)
        highest = max(losses[better, seed]["test"] for seed in plan.seeds)
        told = f"{KINDS[better]} ahead of {KINDS[worse]}, every seed"
        figures = f"the worst {highest:.4f}, against the best {lowest:.4f}"
        if plan.comparable:
            found.append(exact(told, True, highest < lowest, figures))
        else:
            found.append(made(f"{told} ({figures})", highest < lowest))
    return found


def notes_of(result: Result, plan: Plan, runs: dict[tuple[str, int], Finished]) -> None:
    prepared = next(iter(runs.values())).session.prepared
    result.facts |= {
        "corpus": prepared.corpus.name,
        "vocabulary": str(len(prepared.tokenizer)),
        "training windows": f"{len(prepared.windows_of(TRAIN)):,}",
        "steps": str(plan.steps),
        "seeds": ", ".join(map(str, plan.seeds)),
    }
    result.notes.append("Steps were selected by the first 20,000 validation windows alone.")
    if not plan.comparable:
        result.notes.append(
            "The published figures are of another selection of stories or another number of steps:"
            " they are not comparable with these."
        )


def history_of(
    result: Result,
    runs: dict[tuple[str, int], Finished],
    losses: dict[tuple[str, int], dict[str, float]],
) -> None:
    """Validation losses as they were measured, and the curves of the first seed."""
    for (kind, seed), run in runs.items():
        measured_at = [row for row in run.rows if row.get("val_loss") is not None]
        for row in measured_at:
            result.history.append(
                {
                    "model": kind,
                    "seed": seed,
                    "step": row["step"],
                    "validation_loss": row["val_loss"],
                }
            )
        result.history.append(
            {"model": kind, "seed": seed, "selected_step": run.step, **losses[kind, seed]}
        )
        points = [(float(row["step"]), float(row["val_loss"])) for row in measured_at]
        result.curves.append(Curve(f"{KINDS[kind]}, seed {seed}: validation", points))
