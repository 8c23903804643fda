"""What a worker holds: the documents, the models, and a walk for each map of each model."""

from __future__ import annotations

import torch

from engine.data.documents import WORKED_SENTENCE
from engine.data.preparation import Prepared, prepare
from engine.data.sampling import FixedRows, SampledRows
from engine.errors import UsageError
from engine.generation.decoding import Chooser, FixedDraw, Greedy, SeededDraws
from engine.generation.generator import Generation
from engine.maps import GENERATION, TRAINING
from engine.models import CausalAttentionLM, FixedWindowMLP, MultiHeadAttentionLM, StatesModel
from engine.processes import Process
from engine.service.options import Options
from engine.states import drain
from engine.training.optimizers import rule_named
from engine.training.trainer import Training, train
from engine.walk import Walk

WORKED_ROWS = (2, 3)
WORKED_PROMPT = "Lily found"
WORKED_WIDTHS = {"d": 4, "k": 3, "v": 2, "h": 8}
BATCH = 2


class Session:
    """Everything one set of options opens. Walks are made when first asked for."""

    def __init__(self, options: Options):
        self.options = options
        documents = options.documents()
        self.worked = documents == [WORKED_SENTENCE]
        self.prepared: Prepared = prepare(documents, options.context)
        self._walks: dict[tuple[str, str], Walk] = {}
        self.batches()  # rows that are not there are told at once

    def walk(self, kind: str, model: str | None = None) -> Walk:
        """The walk on a map ("training", "generation") of a model; the same one every time."""
        model = model or self.options.model
        key = (kind, model)
        if key not in self._walks:
            self._walks[key] = Walk(self._process(kind, model))
        return self._walks[key]

    def _process(self, kind: str, model: str) -> Process:
        if kind == TRAINING:
            return self.training(model, keep_gradients=True)
        if kind == GENERATION:
            return self.generation(model)
        raise UsageError(f"there is no {kind} map: use {TRAINING} or {GENERATION}")

    def model(self, name: str) -> StatesModel:
        """A fresh model with the parameters that the seed draws."""
        options = self.options
        torch.manual_seed(options.seed)
        words, context = len(self.prepared.vocabulary), options.context
        d = options.width or WORKED_WIDTHS["d"]
        h = options.hidden or WORKED_WIDTHS["h"]
        if name == "mlp":
            return FixedWindowMLP(words, context, d, h)
        if name == "attention":
            k, v = (options.width or WORKED_WIDTHS[axis] for axis in "kv")
            return CausalAttentionLM(words, context, d, k, v, h)
        if name == "multihead":
            return MultiHeadAttentionLM(words, context, d, h, options.heads)
        raise UsageError(f"no model is called {name!r}: use mlp, attention or multihead")

    def batches(self) -> FixedRows | SampledRows:
        """Which windows each step trains on. Raises UsageError for rows that are not there."""
        options, count = self.options, len(self.prepared.windows)
        rows = options.rows
        if rows is None and options.batch is None and self.worked:
            rows = WORKED_ROWS
        if rows is None:
            return SampledRows(count, options.batch or BATCH, options.seed)
        for row in rows:
            if not 0 <= row < count:
                raise UsageError(
                    f"--rows {','.join(map(str, rows))}: there is no window {row},"
                    f" the text gives windows 0 to {count - 1}"
                )
        return FixedRows(list(rows))

    def training(self, model: str, keep_gradients: bool = False) -> Training:
        rule = rule_named(self.options.optimizer, self.options.lr)
        data = self.prepared.data
        return Training(self.model(model), data, self.batches(), rule, keep_gradients)

    def generation(self, model: str) -> Generation:
        """Generation with the model after `train_steps` steps of training."""
        training = self.training(model)
        training.evaluate_every = 0
        drain(train(training, self.options.train_steps))
        options, words = self.options, self.prepared.vocabulary
        prompt = options.prompt
        if prompt is None:
            prompt = self.first_words()
        return Generation(training.model, words, prompt, options.tokens, self.chooser())

    def first_words(self) -> str:
        """The beginning of the first training document: its first two tokens."""
        if self.worked:
            return WORKED_PROMPT
        words = self.prepared.vocabulary
        ids = self.prepared.windows.ids[1:3].tolist()
        return " ".join(words.itos[i] for i in ids if i != words.eos_id)

    def chooser(self) -> Chooser:
        if self.options.draw is not None:
            return FixedDraw(self.options.draw)
        if self.options.draw_seed is not None:
            return SeededDraws(self.options.draw_seed)
        return Greedy()
