"""What a session is opened with. Knows no tensors, so that the screen can check it first."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from engine.errors import UsageError
from engine.maps import EVERY_POSITION, MODEL_STAGES
from engine.progress import Tell

if (
    TYPE_CHECKING
):  # what reads texts is imported when it is asked to: the first frame waits for this
    from engine.data.corpus import Corpus, VocabularyRule

SEED = 11  # of the worked sentence
EXAMPLE = "example:"  # what the name of an example begins with
MODULE_FACTORY = "module:"  # and that of a factory of the user's
WORDS = "words"  # the tokenizer, unless another is named
REPLACEMENT, EPOCHS = SAMPLINGS = ("replacement", "epochs")
SETTINGS: dict[str, tuple[str, ...]] = {  # of each optimizer, beside the learning rate
    "sgd": ("momentum",),
    "adam": (),
    "adamw": ("weight_decay",),
}
SPOKEN = {"tokens": "max-new-tokens"}  # options that are called otherwise
POSITIVE = (
    "context",
    "batch",
    "width",
    "hidden",
    "heads",
    "blocks",
    "tokens",
    "documents",
    "min_freq",
    "max_vocab",
)


@dataclass(frozen=True)
class Options:
    """Everything a walk is made from. None where the worked sentence's own figure is meant.

    opened, dtype           a model that is there already: example:NAME, a folder, a name on the
                            hub, or module:package.module:factory; in the type that is stored, or
                            in this one
    sentence, text, lines   the documents: a sentence, or a file (one document, or one a line)
    corpus, documents       or a corpus by its SPEC, and how many of its documents
    tokenizer               its name or path
    max_vocab, min_freq     the size of its vocabulary, and how often a token has to occur; None: as
                            the corpus has it
    context                 w, slots a window
    run_on                  whether the sequences of a transformer run on into the next document
    optimizer, lr           with momentum or weight_decay, as it has them; None: its default
    clip                    the largest norm of all gradients; None: they are left as they are
    sampling, drop_last     windows are drawn with replacement, or in epochs; without a smaller last
                            batch
    rows, batch             the windows of every batch, or how many are drawn for each
    width, hidden, heads    d, h, H
    blocks                  of a transformer
    train_steps             optimizer steps before generating
    tokens                  how many new tokens at the most
    draw, draw_seed         a fixed draw, or seeded draws; neither: greedy
    temperature, top_k, top_p   what happens to the logits before
    """

    model: str = "attention"
    opened: str | None = None
    dtype: str | None = None
    sentence: str | None = None
    text: str | None = None
    lines: bool = False
    corpus: str | None = None
    documents: int | None = None
    tokenizer: str = WORDS
    max_vocab: int | None = None
    min_freq: int | None = None
    context: int = 4
    run_on: bool = False
    rows: tuple[int, ...] | None = None
    batch: int | None = None
    sampling: str = REPLACEMENT
    drop_last: bool = False
    width: int | None = None
    hidden: int | None = None
    heads: int = 2
    blocks: int = 1
    seed: int = SEED
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float | None = None
    weight_decay: float | None = None
    clip: float | None = None
    train_steps: int = 1
    tokens: int = 16
    prompt: str | None = None
    draw: float | None = None
    draw_seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None

    @property
    def worked(self) -> bool:
        """Whether it is the worked sentence that is walked."""
        return self.sentence is None and self.text is None and self.corpus is None

    def open(self, tell: Tell | None = None) -> Corpus:
        """The documents, and the rule of their vocabulary.

        Raises TensorstepError for those that cannot be walked.
        """
        from engine.data.corpus import Corpus, open_corpus
        from engine.data.documents import WORKED_SENTENCE, check_documents

        if self.corpus is not None:
            found = open_corpus(self.corpus, self.documents, self.lines, tell=tell)
        elif self.text is not None:
            found = open_corpus(self.text, self.documents, self.lines, "--text", tell)
        elif self.sentence is not None:
            found = Corpus("your sentence", check_documents([self.sentence], "the sentence"))
        else:
            found = Corpus("lily", [WORKED_SENTENCE])
        return replace(found, rule=self._rule(found.rule))

    def _rule(self, rule: VocabularyRule) -> VocabularyRule:
        """A corpus's rule with what was asked for in its place."""
        if self.min_freq is not None:
            rule = replace(rule, min_freq=self.min_freq)
        if self.max_vocab is not None:
            rule = replace(rule, max_vocab=self.max_vocab, exact=True)
        return rule

    def _check_source(self) -> None:
        """Raises UsageError for documents or a tokenizer that cannot be opened; what may be large
        or far away is left to the worker."""
        sources = [n for n in ("sentence", "text", "corpus") if getattr(self, n) is not None]
        if len(sources) > 1:
            names = " and ".join(f"--{name}" for name in sources)
            raise UsageError(f"{names} are both given: give one of them")
        if self.lines and self.text is None and self.corpus is None:
            raise UsageError("--lines goes with --text FILE")
        # texts behind a checkpoint may be gone: the worker tells so once they are read
        path = self.corpus or ""
        gone = self.opened is not None and os.path.isabs(path) and not os.path.exists(path)
        if self.lines and self.corpus is not None and not gone and not os.path.isfile(self.corpus):
            raise UsageError(f"--lines goes with a text file: {self.corpus!r} is none")
        if self.documents is not None and self.text is None and self.corpus is None:
            raise UsageError("--documents goes with --corpus SPEC or --text FILE")
        if self.tokenizer != WORDS or (self.max_vocab, self.min_freq) != (None, None):
            self._check_vocabulary()
        if self.corpus is not None and not gone:
            from engine.data.corpus import check_spec

            check_spec(self.corpus)
        elif self.corpus is None and not self.worked:
            self.open()

    def _check_vocabulary(self) -> None:
        from engine.text.loading import check_name, is_cut
        from engine.text.vocabulary import SPECIAL_TOKENS

        check_name(self.tokenizer)
        if not is_cut(self.tokenizer) and (self.max_vocab, self.min_freq) != (None, None):
            raise UsageError(
                f"--max-vocab and --min-freq are for words and characters: {self.tokenizer!r} has"
                " its own vocabulary (bpe:SIZE says how large)"
            )
        if self.max_vocab is not None and self.max_vocab <= len(SPECIAL_TOKENS):
            raise UsageError(
                f"--max-vocab {self.max_vocab} is too small: the special tokens are"
                f" {len(SPECIAL_TOKENS)}, give more"
            )

    def check(self) -> Options:
        """Itself. Raises UsageError for what can be seen to be wrong before anything is made."""
        if self.opened is None and self.model not in MODEL_STAGES:
            raise UsageError(f"no model is called {self.model!r}: use {', '.join(MODEL_STAGES)}")
        if self.rows is not None and self.batch is not None:
            raise UsageError("--rows and --batch are both given: give one of them")
        for name in ("prompt", "sentence"):
            text = getattr(self, name)
            if text is not None and not is_text(text):
                raise UsageError(f"--{name} is not UTF-8: check what your terminal sends")
        if self.rows is not None and not self.rows:
            raise UsageError("--rows names no window: write their numbers as 2,3")
        if self.draw is not None and self.draw_seed is not None:
            raise UsageError("a draw and a seed for draws are both given: give one of them")
        if self.sampling not in SAMPLINGS:
            raise UsageError(
                f"no sampling is called {self.sampling!r}: use {' or '.join(SAMPLINGS)}"
            )
        if self.run_on and self.opened is None and self.model not in EVERY_POSITION:
            raise UsageError(
                "--run-on goes with --model transformer: the windows of the others are of one text"
            )
        if self.drop_last and self.sampling != EPOCHS:
            raise UsageError("--drop-last goes with --sampling epochs")
        if self.rows is not None and self.sampling == EPOCHS:
            raise UsageError("--rows and --sampling epochs are both given: give one of them")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                option = SPOKEN.get(name, name.replace("_", "-"))
                raise UsageError(f"--{option} {value} is too small: give 1 or more")
        if self.train_steps < 0:
            raise UsageError(f"--train-steps {self.train_steps} is too small: give 0 or more")
        if self.draw is not None and not (0 <= self.draw <= 1):
            raise UsageError(f"--draw {self.draw:g} is no share: give a number from 0 to 1")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise UsageError(f"--lr {self.lr:g} does not train: give a learning rate above 0")
        if self.clip is not None and not (self.clip > 0 and math.isfinite(self.clip)):
            raise UsageError(f"--clip {self.clip:g} leaves no gradient: give a norm above 0")
        self._check_optimizer()
        for name in ("seed", "draw_seed"):
            seed = getattr(self, name)
            if seed is not None and not 0 <= seed < 2**63:
                raise UsageError(f"{seed} is no seed: give a whole number from 0 to 2^63 - 1")
        self._check_source()
        return self

    def _check_optimizer(self) -> None:
        settings = SETTINGS.get(self.optimizer)
        if settings is None:
            raise UsageError(
                f"no optimizer is called {self.optimizer!r}: use {', '.join(SETTINGS)}"
            )
        for name in ("momentum", "weight_decay"):
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            if value is not None and name not in settings:
                owners = " or ".join(rule for rule, has in SETTINGS.items() if name in has)
                raise UsageError(f"{option} goes with --optimizer {owners}")
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise UsageError(f"{option} {value:g} is out of range: give 0 or more")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Options:
        known = {field.name for field in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        if kept.get("rows") is not None:
            kept["rows"] = tuple(kept["rows"])
        return cls(**kept)


def is_text(text: str) -> bool:
    """Whether it is text: bytes that are none come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
