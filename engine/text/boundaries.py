"""What the texts of a model begin and end with, and what it never says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.text.tokenizer import Tokenizer, blocked


@dataclass(frozen=True)
class Boundaries:
    """How generation begins and ends.

    begin   the ID that texts begin with; None: there is none
    always  whether it stands before every prompt, or only where there is no other token
    ends    the IDs that end a text
    never   the IDs that are not to be generated, and their names
    spelt   whether the name of a special token in a prompt is the token, as published tokenizers
            read it; else it is plain text
    """

    begin: int | None
    always: bool
    ends: Collection[int]
    never: dict[int, str]
    spelt: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Boundaries:
        """Those of the documents that a tokenizer makes: <BOS> before, <EOS> after."""
        ends = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
        return cls(tokenizer.bos_id, True, ends, blocked(tokenizer))

    def before(self, ids: Collection[int]) -> list[int]:
        """What is put before the IDs of a prompt."""
        if self.begin is None or (ids and not self.always):
            return []
        return [self.begin]
