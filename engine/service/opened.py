"""Sessions over a model that is there already: a checkpoint, or a hand-sized example."""

from __future__ import annotations

import copy
from pathlib import Path

from safetensors.torch import load

from engine.data.corpus import Corpus
from engine.data.encoding import Encoded
from engine.data.preparation import Prepared, Texts, prepare
from engine.data.split import split_documents
from engine.data.windows import Stream
from engine.errors import TensorstepError, UsageError
from engine.generation.example import Example
from engine.generation.generator import Generation
from engine.maps import CACHED, CHECKPOINT, GENERATION
from engine.models import StatesModel
from engine.models.examples import TOKENS
from engine.models.pretrained import Pretrained, load_pretrained
from engine.processes import Process
from engine.progress import Tell
from engine.service.options import EXAMPLE, MODULE_FACTORY, Options
from engine.service.saved import TEXTS, TOKENIZER, WEIGHTS, saved_in
from engine.service.session import Session
from engine.text.boundaries import Boundaries
from engine.text.listed import ListedTokenizer
from engine.text.loading import load_tokenizer
from engine.text.tokenizer import Tokenizer

SHORT = 16  # positions of a training window, where the texts are that long


def open_session(options: Options, tell: Tell | None = None) -> Session:
    """A session over what the options open."""
    if options.opened is None:
        return Session(options, tell)
    if options.opened.startswith(EXAMPLE):
        return ExampleSession(options, tell)
    if options.opened.startswith(MODULE_FACTORY):
        from engine.service.module_session import ModuleSession

        return ModuleSession(options, tell)
    if saved_in(options.opened) is not None:
        return SavedSession(options, tell)
    return CheckpointSession(options, tell)


class ExampleSession(Session):
    """A hand-sized example: one forward pass over its prompt."""

    def prepare(self) -> Prepared:
        tokenizer = ListedTokenizer(self.options.model, TOKENS)
        corpus = Corpus(self.options.model, [" ".join(TOKENS)])
        split = split_documents(corpus.texts, None, None)
        streams = {
            side: Stream.of([tokenizer.encode(corpus.texts[n]) for n in numbers])
            for side, numbers in split.documents.items()
        }
        texts = Texts(corpus, split, Encoded(tokenizer, streams))
        return Prepared(tokenizer, texts, len(TOKENS))

    trained = None

    def check(self) -> None:
        """Nothing is drawn from an example."""

    def _process(self, kind: str, model: str) -> Process:
        if kind != GENERATION:
            raise UsageError("an example is a forward pass: it has no training map")
        return Example(model, self.options.prompt or " ".join(TOKENS))


class SavedSession(Session):
    """A checkpoint of our own: it writes, and its training goes on from there."""

    def prepare(self) -> Prepared:
        found = saved_in(self.options.opened or "")
        if found is None:
            raise TensorstepError(f"{self.options.opened!r} is gone: open it again")
        self.saved = found
        self._stored = load(found.content(WEIGHTS))
        found.content(TOKENIZER)  # which is read below, is the one that goes with them
        options = self.options
        tokenizer = load_tokenizer(Path(options.tokenizer))

        def texts() -> Texts:
            return Texts.of(options.open(self.tell), options.tokenizer, self.tell)

        return Prepared(tokenizer, texts, options.context, options.run_on)

    def check(self) -> None:
        """Windows are made when training is walked: writing needs no texts."""

    @property
    def corpus_name(self) -> str:
        """Known without reading it, where it is the one that trained it."""
        first = Options.from_json(self.saved.options)
        own = all(getattr(self.options, name) == getattr(first, name) for name in TEXTS)
        return self.saved.corpus if own else super().corpus_name

    @property
    def trained(self) -> int:
        return self.saved.steps + self.options.train_steps

    def untrained(self, name: str) -> StatesModel:
        """The model as it was before training."""
        return super().model(name)

    def model(self, name: str) -> StatesModel:
        """A copy of it, which training may change."""
        if name != self.options.model:
            raise UsageError(
                f"{self.saved.title} is opened: leave out `open` to walk a model that is not"
                " trained, or open another checkpoint"
            )
        made = super().model(name)
        wanted = {key: tuple(value.shape) for key, value in made.named_parameters()}
        if wanted != {key: tuple(value.shape) for key, value in self._stored.items()}:
            raise TensorstepError(
                f"the weights in {str(self.saved.folder)!r} do not fit its config.json: export the"
                " checkpoint anew"
            )
        made.load_state_dict(dict(self._stored), strict=False)
        return made


class CheckpointSession(Session):
    """A model that was trained elsewhere: it writes, and can be trained on."""

    pretrained: Pretrained
    trained = None

    def prepare(self) -> Prepared:
        options = self.options
        self.pretrained = load_pretrained(options.opened or "", options.dtype, self.tell)
        self.note = self.pretrained.note
        tokenizer = self.pretrained.tokenizer
        if tokenizer is None:
            raise UsageError(
                f"{options.opened!r} has no tokenizer that is read here: put a tokenizer.json"
                " beside its weights"
            )
        self.boundaries = self.pretrained.boundaries(tokenizer)
        self._flag_prompt(self.boundaries, tokenizer)
        corpus = options.open(self.tell)
        spec = str(self.pretrained.folder)
        found = prepare(corpus, options.context, spec, self.tell, options.run_on)
        longest = max((found.longest(side) for side in found.streams), default=2)
        most = min(self.pretrained.model.context_len, max(1, longest - 1))
        found.context_len = min(options.context, most)
        found.tokenizer = tokenizer
        if options.context > self.pretrained.model.context_len:
            self._flag(f"the model's context is {most}: --context {options.context} is cut to it")
        return found

    def _flag(self, said: str) -> None:
        """One more line to tell."""
        self.note = "\n".join(filter(None, (self.note, said)))

    def _flag_prompt(self, boundaries: Boundaries, tokenizer: Tokenizer) -> None:
        """A prompt that begins with what is put before it anyway has it twice; of one that is
        longer than the context the end is seen."""
        ids = tokenizer.encode(self.options.prompt or "", boundaries.spelt)
        before = boundaries.before(ids)
        if before and ids[:1] == before:
            spelt = tokenizer.itos[before[0]]
            self._flag(
                f"the prompt begins with {spelt}, which is put before it anyway: leave it out"
            )
        most = self.pretrained.model.context_len
        if len(before) + len(ids) > most:
            self._flag(f"of {len(before) + len(ids)} tokens the model sees the last {most}")

    def check(self) -> None:
        """Sequences are made when training is walked."""

    def model(self, name: str) -> StatesModel:
        """A copy, which training may change."""
        if name != CHECKPOINT:
            raise UsageError("a checkpoint is opened: leave out what opens it for another model")
        return copy.deepcopy(self.pretrained.model)

    def generation(self, model: str) -> Generation:
        """Generation with the checkpoint as it is, or after some steps of training."""
        if self.options.train_steps:
            return super().generation(model)
        prompt = self.options.prompt or ""
        return self.generating(self.pretrained.model, prompt, model.endswith(CACHED))
