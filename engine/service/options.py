"""What a session is opened with. Knows no tensors, so that the screen can check it first."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.data.documents import WORKED_SENTENCE, check_documents, read_documents
from engine.errors import UsageError
from engine.maps import MODEL_STAGES

SEED = 11  # of the worked sentence


@dataclass(frozen=True)
class Options:
    """Everything a walk is made from. None where the worked sentence's own figure is meant.

    sentence, text, lines   the documents: a sentence, or a file (one document, or one a line)
    context                 w, slots a window
    rows, batch             the windows of every batch, or how many are drawn for each
    width, hidden, heads    d, h, H
    train_steps             optimizer steps before generating
    tokens                  how many new tokens at the most
    draw, draw_seed         a fixed draw, or seeded draws; neither: greedy
    """

    model: str = "attention"
    sentence: str | None = None
    text: str | None = None
    lines: bool = False
    context: int = 4
    rows: tuple[int, ...] | None = None
    batch: int | None = None
    width: int | None = None
    hidden: int | None = None
    heads: int = 2
    seed: int = SEED
    optimizer: str = "sgd"
    lr: float = 0.1
    train_steps: int = 1
    tokens: int = 16
    prompt: str | None = None
    draw: float | None = None
    draw_seed: int | None = None

    @property
    def worked(self) -> bool:
        """Whether it is the worked sentence that is walked."""
        return self.sentence is None and self.text is None

    def documents(self) -> list[str]:
        """The texts. Raises UsageError for those that cannot be walked."""
        if self.text is not None:
            return read_documents(self.text, self.lines)
        if self.sentence is not None:
            return check_documents([self.sentence], "the sentence")
        return [WORKED_SENTENCE]

    def check(self) -> Options:
        """Itself. Raises UsageError for what can be seen to be wrong before anything is made."""
        if self.model not in MODEL_STAGES:
            raise UsageError(f"no model is called {self.model!r}: use {', '.join(MODEL_STAGES)}")
        if self.sentence is not None and self.text is not None:
            raise UsageError("--sentence and --text are both given: give one of them")
        if self.lines and self.text is None:
            raise UsageError("--lines goes with --text FILE")
        if self.rows is not None and self.batch is not None:
            raise UsageError("--rows and --batch are both given: give one of them")
        if self.rows is not None and not self.rows:
            raise UsageError("--rows names no window: write their numbers as 2,3")
        if self.draw is not None and self.draw_seed is not None:
            raise UsageError("a draw and a seed for draws are both given: give one of them")
        positive = ("context", "batch", "width", "hidden", "heads", "tokens")
        for name in positive:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} {value} is too small: give 1 or more")
        if self.train_steps < 0:
            raise UsageError(f"--train-steps {self.train_steps} is too small: give 0 or more")
        if self.draw is not None and not (0 <= self.draw <= 1):
            raise UsageError(f"--draw {self.draw:g} is no share: give a number from 0 to 1")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise UsageError(f"--lr {self.lr:g} does not train: give a learning rate above 0")
        if self.optimizer not in ("sgd", "adamw"):
            raise UsageError(f"no optimizer is called {self.optimizer!r}: use sgd or adamw")
        for name in ("seed", "draw_seed"):
            seed = getattr(self, name)
            if seed is not None and not 0 <= seed < 2**63:
                raise UsageError(
                    f"--seed {seed} is no seed: give a whole number from 0 to 2^63 - 1"
                )
        self.documents()
        return self

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Options:
        known = {field.name for field in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        if kept.get("rows") is not None:
            kept["rows"] = tuple(kept["rows"])
        return cls(**kept)
