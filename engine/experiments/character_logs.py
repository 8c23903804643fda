"""The character model on job logs, trained again by the published protocol: one thread, both sides
evaluated whole after every epoch, losses compared in six digits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.data.logs import reference_logs
from engine.data.preparation import TrainingData
from engine.data.sampling import EpochRows
from engine.data.split import TRAIN, VALIDATION
from engine.data.windows import Sequences
from engine.experiments.comparing import A_RULE, alike, circumstances, elsewhere
from engine.experiments.rows import Curve, Result, Row, exact, printed
from engine.models.base import evaluate
from engine.models.transformer import TinyTransformer
from engine.progress import Tell
from engine.states import drain, each
from engine.training.optimizers import AdamW
from engine.training.trainer import Training

SIDES = (TRAIN, VALIDATION)
BATCH, SEED, RATE, DECAY = 16, 7, 0.003, 0.01
PROMPT, NEW = "job=", 120
EPOCHS = {24: 30, 32: 10}  # by context

GREEDY = "greedy text before training, as far as published"

RULES: dict[str, Any] = {
    "characters of the vocabulary": 25,
    "the first of them": "\n",
    "first batch: inputs": [
        *([12, 17, 5, 3, 17, 19, 7, 8], [12, 17, 5, 3, 22, 20, 8, 19]),
    ],
    "first batch: targets": [
        *([17, 5, 3, 17, 19, 7, 8, 19], [17, 5, 3, 22, 20, 8, 19, 20]),
    ],
    "first batch: inputs as text": ["job=orde", "job=user"],
    "first batch: targets as text": ["ob=order", "ob=users"],
    "first batch: shape of the embedding": [2, 8, 32],
    "first batch: shape of the logits": [2, 8, 25],
    "context 24: parameters": 10848,
    "context 24: windows of both sides": [276, 143],
    "context 32: parameters": 11104,
    "context 32: windows of both sides": [244, 127],
    GREEDY: f"job=v lntuppeoanogyilad== ad=roao{88 * 'p'}",
}
# of which epoch 9 is the best: epoch, then the losses of training and of validation
HISTORY: list[tuple[int, float, float]] = [
    (0, 3.3557320110133437, 3.380885293164591),
    (1, 2.5118992797663955, 2.6733193284883274),
    (2, 2.0459474540147626, 2.362641646167425),
    (3, 1.7112620775816871, 2.1717177732722965),
    (4, 1.4800985406656735, 2.098122504752452),
    (5, 1.314201098973634, 2.0531676622826285),
    (6, 1.1739824013631852, 2.03136479572987),
    (7, 1.0385244244434795, 2.002343046383595),
    (8, 0.9120146309743162, 1.9765158112593524),
    (9, 0.7869707727041401, 1.9127990579980565),
    (10, 0.6788913285145994, 1.9296042243326743),
]
BEST = {24: 8, 32: 9}
BEST_OF_24 = 1.9086  # as it was published; the two pairs were computed again later
EPOCH_8_OF_24 = (0.6402173387831536, 1.9085942981960056)
EPOCH_30_OF_24 = (0.14479529933221097, 2.447341782229764)
SIX_DIGITS = 5e-7
AFTER_540_STEPS = 1e-4  # errors in the last bits have grown from step to step

NOTES = (
    "Losses are compared to six digits: 0.0000005.",
    "The greedy text was published as its first 33 characters, followed by 88 times p; so many"
    " characters are compared, and the 120 new ones after job= have three more.",
    "The last epoch of context 24 comes after 540 steps, in which differences of the last bits"
    " grow: its losses are compared to 0.0001.",
)


@dataclass
class Losses:
    """Of both sides, before training and after each epoch."""

    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The epoch of the lowest validation loss."""
        return min(range(len(self.validation)), key=self.validation.__getitem__)


def reproduce(tell: Tell | None = None) -> Result:
    """Both contexts, in a few seconds. Torch's threads and random numbers are given back as
    they were."""
    began = time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            texts = Texts()
            found, text = texts.figures(), texts.greedy()
            found[GREEDY] = text[: len(RULES[GREEDY])]
            losses = {context: trained(texts, context, tell) for context in EPOCHS}
        facts = circumstances(began)
    finally:
        torch.set_num_threads(threads)
    result = Result("character-logs", "The character model on job logs", facts=facts)
    result.rows += [exact(name, RULES[name], here, A_RULE) for name, here in found.items()]
    result.rows += [*rows_of_24(losses[24]), *rows_of_32(losses[32])]
    result.sections.append(("Greedy text before training", text.splitlines()))
    result.notes += NOTES
    for context, of_both in losses.items():
        pairs = zip(of_both.train, of_both.validation, strict=True)
        result.history += [
            {"context": context, "epoch": epoch, "train_loss": a, "validation_loss": b}
            for epoch, (a, b) in enumerate(pairs)
        ]
        for name, side in (("training", of_both.train), ("validation", of_both.validation)):
            points = [(float(epoch), loss) for epoch, loss in enumerate(side)]
            result.curves.append(Curve(f"context {context}, {name}", points, "epoch"))
    return result


def rows_of_24(losses: Losses) -> list[Row]:
    """The best epoch and what comes after it; the last was computed again, not published."""
    why, name = elsewhere(), "context 24: "
    last = EPOCHS[24]
    best, end = ([losses.train[at], losses.validation[at]] for at in (BEST[24], last))
    later = bool(end[0] < best[0] and end[1] > best[1])
    return [
        exact(f"{name}best epoch", BEST[24], losses.best, why),
        printed(f"{name}validation loss of epoch 8", BEST_OF_24, best[1], 4, why),
        alike(f"{name}losses of epoch 8", list(EPOCH_8_OF_24), best, why, SIX_DIGITS),
        alike(f"{name}losses of epoch 30", list(EPOCH_30_OF_24), end, why, AFTER_540_STEPS),
        exact(f"{name}then training falls and validation rises", True, later, why),
    ]


def rows_of_32(losses: Losses) -> list[Row]:
    """Every pair of losses, and which is the best."""
    why = elsewhere()
    rows = [
        alike(
            f"context 32: losses of epoch {epoch}",
            list(published),
            [losses.train[epoch], losses.validation[epoch]],
            why,
            SIX_DIGITS,
        )
        for epoch, *published in HISTORY
    ]
    return [*rows, exact("context 32: best epoch", BEST[32], losses.best, why)]


class Texts:
    """The six logs by side, and the characters of those that train, in order: an ID each."""

    def __init__(self) -> None:
        logs = reference_logs()
        self.of = {side: [log.text for log in logs if log.split == side] for side in SIDES}
        self.characters = sorted(set("".join(self.of[TRAIN])))
        self._ids = {character: i for i, character in enumerate(self.characters)}

    def encoded(self, text: str) -> list[int]:
        return [self._ids[character] for character in text]

    def decoded(self, ids: list[int]) -> str:
        return "".join(self.characters[i] for i in ids)

    def sequences(self, side: str, context: int) -> Sequences:
        return Sequences([self.encoded(text) for text in self.of[side]], context)

    def model(self, context: int) -> TinyTransformer:
        """Untrained, after the published seed."""
        torch.manual_seed(SEED)
        return TinyTransformer(len(self.characters), context)

    def figures(self) -> dict[str, Any]:
        """What is known before anything is trained."""
        found: dict[str, Any] = {
            "characters of the vocabulary": len(self.characters),
            "the first of them": self.characters[0],
            **self._first_batch(),
        }
        for context in EPOCHS:
            count = sum(parameter.numel() for parameter in self.model(context).parameters())
            found[f"context {context}: parameters"] = count
            windows = [len(self.sequences(side, context)) for side in SIDES]
            found[f"context {context}: windows of both sides"] = windows
        return found

    def _first_batch(self) -> dict[str, Any]:
        """The first eight characters of the first two texts."""
        found = self.sequences(TRAIN, 8)
        rows = torch.tensor([0, len(self.of[TRAIN][0]) - 8])  # where the second text begins
        inputs, targets = found.inputs[rows], found.targets[rows]
        states = each(self.model(8).states(inputs))
        shapes = {state.name: list(state.value.shape) for state in states}
        return {
            "first batch: inputs": inputs.tolist(),
            "first batch: targets": targets.tolist(),
            "first batch: inputs as text": [self.decoded(row) for row in inputs.tolist()],
            "first batch: targets as text": [self.decoded(row) for row in targets.tolist()],
            "first batch: shape of the embedding": shapes["embedding"],
            "first batch: shape of the logits": shapes["logits"],
        }

    def greedy(self) -> str:
        """What the untrained model of context 32 goes on with."""
        model, ids = self.model(32), self.encoded(PROMPT)
        with torch.no_grad():
            for _ in range(NEW):
                ids.append(int(model(torch.tensor([ids[-32:]]))[0, -1].argmax()))
        return self.decoded(ids)


def trained(texts: Texts, context: int, tell: Tell | None) -> Losses:
    """By the project's own trainer. `tell` is told after every epoch."""
    made = {side: texts.sequences(side, context) for side in SIDES}
    model = texts.model(context)
    state = torch.get_rng_state()
    rows = EpochRows(len(made[TRAIN]), BATCH, SEED, state=state, others=len(SIDES))
    data = TrainingData.of(made[TRAIN].inputs, made[TRAIN].targets)
    training = Training(model, data, rows, AdamW(RATE, weight_decay=DECAY))
    losses, step = Losses(), 0
    for epoch in range(EPOCHS[context] + 1):
        for _ in range(rows.batches if epoch else 0):
            step += 1
            drain(training.states(step))
        for side, kept in zip(SIDES, (losses.train, losses.validation), strict=True):
            kept.append(evaluate(model, made[side].inputs, made[side].targets[:]))
        if tell is not None and epoch:
            tell(f"epochs of context {context}", epoch, EPOCHS[context])
    return losses
