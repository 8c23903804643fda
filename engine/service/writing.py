"""A text that is generated token by token, and not walked: what `tensorstep generate` prints."""

from __future__ import annotations

from typing import Any

import torch

from engine.generation.costs import costs
from engine.maps import CACHED, EVERY_POSITION
from engine.models.transformer import DecoderLM
from engine.service.session import Session
from engine.states import drain


class Writing:
    """The generation of a session."""

    def __init__(self, session: Session, cache: bool):
        self.session = session
        model = session.options.model
        keeps = cache and model in EVERY_POSITION  # a window that moves on keeps nothing
        self.generation = session.generation(f"{model}{CACHED if keeps else ''}")
        self.step = 0
        drain(self.generation.states(0))

    def next(self) -> dict[str, Any]:
        """One token more: `text`, all there is so far, the prompt with it; and, where it has
        `ended`, why, with all `ids` and what it cost."""
        generation = self.generation
        self.step += 1
        with torch.no_grad():  # once, not for every state
            drain(generation.states(self.step))
        text = self.session.prepared.tokenizer.decode(generation.ids)
        ended = generation.ended(self.step)
        told: dict[str, Any] = {"text": text, "ended": ended}
        if ended is not None:
            made = len(generation.ids) - generation.given
            told |= {"ids": generation.ids, "prompt": generation.prompt, "new_tokens": made}
            model = generation.model
            if isinstance(model, DecoderLM):
                itemsize = next(iter(generation.parameters.values())).element_size()
                told |= costs(model.config, generation.given, made, itemsize)
        return told
