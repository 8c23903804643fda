"""A hand-sized example as a process: a prompt, its IDs, and the states of one forward pass."""

from __future__ import annotations

import torch

from engine.generation.generator import Generation, crop_and_pad, without_gradients
from engine.models.examples import ROUNDED, TOKENS, example_model
from engine.ops import by_rule, given
from engine.ops.core import Cell, Explanation, Operands, Operation, Wrapped
from engine.states import States
from engine.text.listed import ListedTokenizer

ENDS = "the example ends here"


class Example(Generation):
    """Step 0 is the prompt, step 1 the forward pass; no token is chosen."""

    def __init__(self, name: str, prompt: str = " ".join(TOKENS)):
        super().__init__(example_model(name), ListedTokenizer(name, TOKENS), prompt)
        self.rounded = ROUNDED.get(name, {})

    def _step(self, step: int) -> States:
        length = len(self.ids)
        before = torch.tensor(self.ids)
        history = given("history", before, ("N",), "the IDs of the prompt", step=step - 1)
        X = yield by_rule("context", crop_and_pad(length, length, 0), (history,), ("B", "S"))
        return (yield from noted(without_gradients(self.model.states(X)), self.rounded))

    def ended(self, step: int) -> str | None:
        return ENDS if step else None


class Noted(Wrapped):
    """An operation some of whose cells are shown otherwise in the notes that are followed."""

    __slots__ = ("shown",)

    def __init__(self, inner: Operation, shown: dict[int, float]):
        super().__init__(inner)
        self.shown = shown  # by the last index, of the last row

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        super().explain(cell, operands, to)
        is_last = cell[-2] == operands.output.shape[-2] - 1
        if is_last and cell[-1] in self.shown:
            shown = self.shown[cell[-1]]
            to.note = f"the notes show {shown:g}: they carry rounded figures on. {to.note}".strip()


def noted(states: States, rounded: dict[str, dict[int, float]]) -> States:
    """The same states; those that the notes round otherwise say so."""
    try:
        state = next(states)
        while True:
            if state.name in rounded:
                state.operation = Noted(state.operation, rounded[state.name])
            state = yield state
            state = states.send(state)
    except StopIteration as stop:
        return stop.value
