"""What a worker holds: the documents, the models, and a walk for each map of each model."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from engine.data.documents import WORKED_SENTENCE
from engine.data.preparation import Measured, Prepared, TrainingData, prepare
from engine.data.sampling import EpochRows, FixedRows, SampledRows
from engine.data.split import TRAIN
from engine.data.windows import Sequences, Windows
from engine.edits import Edit, check_edit
from engine.errors import UsageError
from engine.follow import Follower
from engine.generation.decoding import Chooser, Filters, FixedDraw, Greedy, SeededDraws
from engine.generation.generator import Generation
from engine.maps import CACHED, EVERY_POSITION, GENERATION, MODEL_STAGES, TRAINING
from engine.models import (
    BigramLM,
    CausalAttentionLM,
    DecoderConfig,
    DecoderLM,
    FixedWindowMLP,
    MultiHeadAttentionLM,
    StatesModel,
    evaluate,
)
from engine.processes import Process
from engine.progress import Tell, tracked
from engine.service.options import EPOCHS, Options
from engine.service.reading import Reader
from engine.states import drain
from engine.text.boundaries import Boundaries
from engine.training.optimizers import rule_named
from engine.training.trainer import Rows, Training
from engine.walk import BUDGET, Walk
from engine.whatif import EditedProcess

WORKED_ROWS = (2, 3)
WORKED_PROMPT = "Lily found"
WORKED_WIDTHS = {"d": 4, "k": 3, "v": 2, "h": 8}
BATCH = 2
CHANGING = 6  # times its size that a step of training makes of each parameter


class Session:
    """Everything one set of options opens. Walks are made when first asked for.

    note        what there is to know about what was opened, a sentence a line
    boundaries  how its texts begin and end; None: as the tokenizer's documents do
    """

    note = ""
    boundaries: Boundaries | None = None

    def __init__(self, options: Options, tell: Tell | None = None):
        self.options = options
        self.tell = tell
        self.worked = False
        self.prepared: Prepared = self.prepare()
        self._walks: dict[tuple[str, str], Walk] = {}
        self._edited: dict[tuple[str, str], Walk] = {}
        self._followers: dict[tuple[Any, ...], Follower] = {}
        self._edits: dict[tuple[str, str], list[Edit]] = {}
        self.check()

    def prepare(self) -> Prepared:
        """The documents, made ready."""
        options = self.options
        corpus = options.open(self.tell)
        self.worked = corpus.texts == [WORKED_SENTENCE]
        run_on = options.run_on
        return prepare(corpus, options.context, options.tokenizer, self.tell, run_on)

    @property
    def trained(self) -> int | None:
        """How many training steps are behind the model that generates; None: nobody knows."""
        return self.options.train_steps

    @property
    def corpus_name(self) -> str:
        return self.prepared.corpus.name

    def check(self) -> None:
        """Raises UsageError for rows that are not there: told at once."""
        self.batches()

    def reader(self) -> Reader:
        """What reads the documents to a screen."""
        return Reader(self.prepared, self.tell)

    def walk(self, kind: str, model: str | None = None, original: bool = False) -> Walk:
        """The walk on a map ("training", "generation") of a model, with its edits unless it is the
        `original` that is asked for; the same one every time."""
        key = (kind, model or self.options.model)
        if key in self._edited and not original:
            return self._edited[key]
        if key not in self._walks:
            process = self._process(*key)
            self._walks[key] = Walk(process, budget_for(process))
        return self._walks[key]

    def follower(self, kind: str, model: str, name: str, cell: tuple[int, ...]) -> Follower:
        """The follower of a cell of a parameter; the same one until an edit."""
        key = (kind, model, name, cell)
        if key not in self._followers:
            self._followers[key] = Follower(self.walk(kind, model), name, cell)
        return self._followers[key]

    # --- what if ----------------------------------------------------------------------------

    def edits(self, kind: str, model: str) -> list[Edit]:
        """The edits of a walk, in the order in which they were made."""
        return self._edits.get((kind, model), [])

    def edit(self, kind: str, model: str, edit: Edit) -> None:
        """One more edit. Raises UsageError for one that cannot be made."""
        walk = self.walk(kind, model)
        record = walk.record(edit.name, edit.step) if 0 <= edit.step <= walk.frontier else None
        if record is None:
            raise UsageError(f"no state of step {edit.step} of the {kind} map is {edit.name!r}")
        if edit.is_parameter:  # in the step in progress it stands as the one before left it
            edit = replace(edit, step=record.step)
        check_edit(edit, record, len(self.prepared.tokenizer))
        self._branch(kind, model, [*self.edits(kind, model), edit])

    def undo(self, kind: str, model: str) -> Edit | None:
        """Take the last edit back. Returns it, or None where there is none."""
        edits = self.edits(kind, model)
        if not edits:
            return None
        self._branch(kind, model, edits[:-1])
        return edits[-1]

    def _branch(self, kind: str, model: str, edits: list[Edit]) -> None:
        """The walk with these edits, made as far as the one that it takes the place of."""
        key = (kind, model)
        here = self.walk(kind, model)
        at, name = here.cursor, here.current.name
        original = self.walk(kind, model, original=True)
        walk = original
        if edits:
            process = EditedProcess.of(original.process, tuple(edits), original.history.held)
            walk = original.branch(process, min(edit.first_step for edit in edits))
        self._edited.pop(key, None)
        if edits:
            self._edited[key] = walk
        self._edits[key] = edits
        self._followers.clear()
        with contextlib.suppress(UsageError):  # an edited generation may end before
            walk.seek(at.step, name)

    def _process(self, kind: str, model: str) -> Process:
        if kind == TRAINING:
            return self.training(model.removesuffix(CACHED), keep_gradients=True)
        if kind == GENERATION:
            return self.generation(model)
        raise UsageError(f"there is no {kind} map: use {TRAINING} or {GENERATION}")

    def model(self, name: str) -> StatesModel:
        """A fresh model with the parameters that the seed draws."""
        options = self.options
        torch.manual_seed(options.seed)
        words, context = len(self.prepared.tokenizer), options.context
        pad = self.prepared.pad_id
        d = options.width or WORKED_WIDTHS["d"]
        h = options.hidden or WORKED_WIDTHS["h"]
        if name == "bigram":
            return BigramLM(words, context)
        if name == "transformer":
            heads = options.heads if d % options.heads == 0 else 1
            config = DecoderConfig(
                *(words, context, d, options.blocks, heads, h),
                qkv_bias=False,  # as the character model has them
                out_bias=False,
                tied=False,  # a table drawn from N(0, 1) would make logits of any size
            )
            return DecoderLM(config)
        if name == "mlp":
            return FixedWindowMLP(words, context, d, h, pad)
        if name == "attention":
            k, v = (options.width or WORKED_WIDTHS[axis] for axis in "kv")
            return CausalAttentionLM(words, context, d, k, v, h, pad)
        if name == "multihead":
            return MultiHeadAttentionLM(words, context, d, h, options.heads, pad)
        raise UsageError(f"no model is called {name!r}: use {', '.join(MODEL_STAGES)}")

    def batches(self, model: str | None = None) -> Rows:
        """Which windows each step trains on. Raises UsageError for rows that are not there."""
        options = self.options
        count = len(self.windows_for(model or options.model))
        rows = options.rows
        if rows is None and options.batch is None and self.worked and count > max(WORKED_ROWS):
            rows = WORKED_ROWS
        if rows is None and options.sampling == EPOCHS:
            return EpochRows(count, options.batch or BATCH, options.seed, options.drop_last)
        if rows is None:
            return SampledRows(count, options.batch or BATCH, options.seed)
        for row in rows:
            if not 0 <= row < count:
                raise UsageError(
                    f"--rows {','.join(map(str, rows))}: there is no window {row},"
                    f" the text gives windows 0 to {count - 1}"
                )
        return FixedRows(list(rows))

    def windows_for(self, model: str) -> Windows | Sequences:
        """What a model trains on: windows of one target, or a target at every position."""
        prepared = self.prepared
        return prepared.sequences if model in EVERY_POSITION else prepared.windows

    def data_for(self, model: str) -> TrainingData:
        prepared = self.prepared
        return prepared.sequence_data if model in EVERY_POSITION else prepared.data

    def measured_for(self, model: str, side: str, count: int | None = None) -> Measured | None:
        """What a model's loss is measured on: of a side the first so many windows or sequences, or
        all; None: nothing."""
        prepared = self.prepared
        every = model in EVERY_POSITION
        measured = prepared.measured_sequences if every else prepared.measured_windows
        return measured(side, count)

    def split_loss(self, model: StatesModel, name: str, side: str) -> float | None:
        """The mean loss over all of a side, by target count; None where there is nothing on it."""
        found = self.measured_for(name, side)
        return None if found is None else evaluate(model, *found)

    def training(self, model: str, keep_gradients: bool = False) -> Training:
        options = self.options
        settings = {"momentum": options.momentum, "weight_decay": options.weight_decay}
        rule = rule_named(options.optimizer, options.lr, **settings)
        data, batches = self.data_for(model), self.batches(model)
        return Training(self.model(model), data, batches, rule, keep_gradients, clip=options.clip)

    def generation(self, model: str) -> Generation:
        """Generation with the model after `train_steps` steps of training."""
        trained = self._after_training(model.removesuffix(CACHED))
        prompt = self.first_words() if self.options.prompt is None else self.options.prompt
        return self.generating(trained, prompt, model.endswith(CACHED))

    def _after_training(self, model: str) -> StatesModel:
        if not self.options.train_steps:
            return self.model(model)  # which needs no texts
        training = self.training(model)
        training.evaluate_every = 0
        steps = range(self.options.train_steps + 1)
        for step in tracked(steps, "training before generating", len(steps), self.tell):
            drain(training.states(step))
        return training.model

    def generating(self, model: StatesModel, prompt: str, cache: bool) -> Generation:
        """Generation with a model as it is."""
        options, tokenizer = self.options, self.prepared.tokenizer
        filters = Filters(options.temperature, options.top_k, options.top_p)
        return Generation(
            model,
            tokenizer,
            prompt,
            options.tokens,
            self.chooser(),
            filters,
            cache,
            self.boundaries,
        )

    def first_words(self) -> str:
        """The beginning of the first training document: its first two tokens."""
        if self.worked:
            return WORKED_PROMPT
        return self.prepared.tokenizer.decode(self.prepared.streams[TRAIN].document(0)[:3])

    def chooser(self) -> Chooser:
        if self.options.draw is not None:
            return FixedDraw(self.options.draw)
        if self.options.draw_seed is not None:
            return SeededDraws(self.options.draw_seed)
        return Greedy()


def budget_for(process: Process) -> int:
    """The bytes that a walk may hold: where parameters change, also those before and after a step,
    their gradients and updates, which else would be made again for every one that is read."""
    parameters = sum(each.nbytes for each in process.parameters.values())
    return BUDGET + (CHANGING * parameters if process.map == TRAINING else 0)
