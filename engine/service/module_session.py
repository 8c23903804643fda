"""The session over a module of the user's own: one walk, and no texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.data.preparation import Prepared
from engine.edits import Edit
from engine.errors import UsageError
from engine.follow import Follower
from engine.maps import MODULE, TRAINING
from engine.processes import Process
from engine.service.module import FORWARD_ALONE, ModuleSteps
from engine.service.options import MODULE_FACTORY
from engine.service.session import Session
from engine.text.listed import ListedTokenizer
from engine.training.foreign import ForeignDescent
from engine.training.optimizers import rule_named

NOT_EDITED = (
    "what comes out of code of your own cannot be edited: edit a parameter, a gradient or an update"
)


class NoTexts:
    """Stands where a corpus would be read."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError("a module of your own comes without texts: there is no corpus to read")


class ModuleSession(Session):
    """The one walk of a module: on the training map."""

    def prepare(self) -> Prepared:
        self.spec = (self.options.opened or "").removeprefix(MODULE_FACTORY)
        options = self.options
        settings = {"momentum": options.momentum, "weight_decay": options.weight_decay}
        rule = rule_named(options.optimizer, options.lr, **settings)
        self.steps = ModuleSteps(self.spec, options.seed, rule, options.clip)
        self.note = note_of(self.steps)
        named = SimpleNamespace(name=self.spec)
        empty: Any = SimpleNamespace(corpus=named, tokenizer=ListedTokenizer("none", ()))
        return empty  # type: ignore[no-any-return]

    def check(self) -> None:
        """There are no windows."""

    def reader(self) -> Any:
        return NoTexts()

    def _process(self, kind: str, model: str) -> Process:
        if (kind, model) != (TRAINING, MODULE):
            raise UsageError("a module of your own has the training map: there is no other")
        return self.steps

    def edit(self, kind: str, model: str, edit: Edit) -> None:
        if edit.name == "loss" or edit.name.startswith(("modules", "gradients.modules.")):
            raise UsageError(NOT_EDITED)
        super().edit(kind, model, edit)

    def follower(self, kind: str, model: str, name: str, cell: tuple[int, ...]) -> Follower:
        if self.steps.descent is None:
            raise UsageError(FORWARD_ALONE)
        return super().follower(kind, model, name, cell)


def note_of(steps: ModuleSteps) -> str:
    """What there is to know about what was opened."""
    if steps.descent is None:
        return FORWARD_ALONE
    if steps.made.optimizer is None:
        return ""
    name = type(steps.made.optimizer).__name__
    apart = isinstance(steps.descent, ForeignDescent)
    told = ": what it makes is shown, but not taken apart" if apart else ""
    return f"the factory's own {name} updates the parameters, not --optimizer{told}"
