"""Readings of a decoder's stream: what it says after each block (the logit lens), how long its rows
are, and what each block and head puts into one logit.

nostalgebraist, "interpreting GPT: the logit lens"; Elhage and others, "A Mathematical Framework for
Transformer Circuits" (the stream as a sum of what is written into it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.models.parts import LayerNorm, side_by_side
from engine.models.transformer import DecoderLM
from engine.ops import given
from engine.states import State, States
from engine.walk import Walk


@dataclass(frozen=True)
class Written:
    """What one part has put into the logit of a token.

    part   embedding, blocks.0.attention (head 1), blocks.0.feedforward, norm shift, head bias; of
           numbers shorter than float32 also what their rounding has put in
    share  in units of the logit
    """

    part: str
    share: float


class Lens:
    """Reads the walk of a decoder at one step: with the parameters that stood there."""

    def __init__(self, walk: Walk, step: int):
        model = getattr(walk.process, "model", None)
        if not isinstance(model, DecoderLM):
            raise UsageError("the lens reads a stream of blocks: open a transformer")
        self.walk, self.step, self.model = walk, step, model
        if not walk.make(step, "logits"):
            raise UsageError(f"step {step} has no logits yet: go on to them first")

    @property
    def blocks(self) -> int:
        return len(self.model.blocks)

    def stream(self, after: int) -> Tensor:
        """The stream after so many blocks, [B, T, d]; 0: the embedding."""
        name = f"blocks.{after - 1}.residual2" if after else "embedding"
        value: Tensor = self.walk.fetch(name, self.step)
        return value.detach()

    def logits(self, after: int, positions: slice = slice(None)) -> Tensor:
        """What the stream says after so many blocks, by the same final norm and head: [B, T, C], of
        some positions or of all. After the last block these are the logits."""
        rows = self.stream(after)[:, positions]
        stream = given("stream", rows, ("B", "T", "d"), "the stream")
        names = self.walk.process.parameter_names()
        with torch.no_grad():
            found = computed(self.model.answer(stream), lambda p: self._parameter(names[id(p)]))
        value: Tensor = found.value
        return value

    def norms(self) -> Tensor:
        """The length of every row of the stream, [blocks + 1, B, T]."""
        streams = [self.stream(after) for after in range(self.blocks + 1)]
        return torch.stack([torch.linalg.vector_norm(stream, dim=-1) for stream in streams])

    def written(self, example: int, position: int, token: int) -> list[Written]:
        """What each part put into the logit of a token at a position; they add up to it.

        The final norm divides all of them by the same number.
        """
        at = (example, position)
        row = self._parameter("vocab_head.weight", "token_embedding.weight")[token].double()
        norm = self.model.norm
        scale = self._parameter("norm.weight").double()
        stream = self.stream(self.blocks)[at].double()
        centred = isinstance(norm, LayerNorm)
        spread = stream.var(correction=0) if centred else stream.square().mean()
        direction = row * scale / (spread + (norm.eps or 0.0)).sqrt()
        if centred:  # the mean that the norm takes off is taken off every part
            direction = direction - direction.mean()
        parts = [("embedding", self.stream(0)[at].double())]
        for i in range(self.blocks):
            parts += self._of_block(i, at)
        found = [Written(name, float(part @ direction)) for name, part in parts]
        if getattr(norm, "bias", None) is not None:
            shift = self._parameter("norm.bias").double()
            found.append(Written("norm shift", float(shift @ row)))
        if self.model.vocab_head.bias is not None:
            found.append(Written("head bias", float(self._parameter("vocab_head.bias")[token])))
        made = self.walk.fetch("logits", self.step).detach()
        if torch.finfo(made.dtype).bits < torch.finfo(torch.float32).bits:
            rest = float(made[at][token]) - sum(each.share for each in found)
            found.append(Written(f"rounding to {str(made.dtype).removeprefix('torch.')}", rest))
        return found

    def _of_block(self, i: int, at: tuple[int, int]) -> list[tuple[str, Tensor]]:
        """What a block writes into one row of the stream: each head, the output's bias, and the
        feedforward network."""
        name = f"blocks.{i}.attention"
        message = self.walk.fetch(f"{name}.message", self.step).detach().double()
        joined = side_by_side(message)[at]
        weight = self._parameter(f"{name}.W_O.weight").double()
        width = joined.shape[0] // message.shape[1]
        parts = []
        for head in range(message.shape[1]):
            own = slice(head * width, (head + 1) * width)
            parts.append((f"{name} head {head}", weight[:, own] @ joined[own]))
        if self.model.get_submodule(f"{name}.W_O").bias is not None:
            parts.append((f"{name} bias", self._parameter(f"{name}.W_O.bias").double()))
        output = self.walk.fetch(f"blocks.{i}.feedforward.output", self.step).detach()
        return [*parts, (f"blocks.{i}.feedforward", output[at].double())]

    def _parameter(self, *names: str) -> Tensor:
        """A parameter as it stood before the step; a tied one has the other's name."""
        own = self.walk.process.axes
        name = next(each for each in names if each in own)
        value: Tensor = self.walk.fetch(f"parameters.{name}", max(0, self.step - 1))
        return value.detach()


def computed(states: States, parameter: Callable[[Tensor], Tensor]) -> State:
    """Drive to the end with other parameters than the model's own; returns the last state."""
    state = next(states)
    try:
        while True:
            operands = [operand.value for operand in state.inputs or ()]
            stood = map(parameter, state.parameters)
            state.recall(state.operation.compute(*operands, *stood))
            state = states.send(state)
    except StopIteration:
        return state
