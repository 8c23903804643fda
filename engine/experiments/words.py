"""The words of a model: their rows of its table, which of them lie near each other, and what the
model reads of a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import TensorstepError, UsageError
from engine.models import BigramLM, StatesModel
from engine.states import each
from engine.text.boundaries import Boundaries
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import SPECIAL_TOKENS


@dataclass(frozen=True)
class Neighbour:
    """A token near another, by the cosine of their embeddings."""

    token: str
    id: int
    cosine: float


@torch.no_grad()
def neighbours(
    table: Tensor,
    itos: Sequence[str],
    word_id: int,
    count: int = 8,
    among: Collection[int] | None = None,
) -> list[Neighbour]:
    """The tokens nearest to one by the cosine of their rows of the table [C, d], in float64; of
    equals the lower ID first. Itself, special tokens and rows of zeros are left out; a row of zeros
    has no neighbours.

    among  the IDs that may be one; None: every one

    Raises UsageError for an ID that the table does not have, and for a count below 1.
    """
    size = min(len(table), len(itos))
    if not 0 <= word_id < size:
        raise UsageError(f"ID {word_id} is not in a vocabulary of {size}: give one below {size}")
    if count < 1:
        raise UsageError(f"{count} neighbours are none: give a count of 1 or more")
    rows = table[:size].double().cpu()
    own, squares = rows[word_id], rows.square().sum(-1)
    # one root of the product, by `math`, as torch's may be wrong in the last bit: rows of whole
    # numbers on one line come out equal
    sizes = [math.sqrt(square) for square in (squares * squares[word_id]).tolist()]
    cosines = (rows * own).sum(-1) / torch.tensor(sizes, dtype=torch.float64)
    may = [
        i
        for i in cosines.isfinite().nonzero().flatten().tolist()
        if i != word_id and itos[i] not in SPECIAL_TOKENS and (among is None or i in among)
    ]
    order = cosines[may].sort(descending=True, stable=True).indices[:count].tolist()
    return [Neighbour(itos[may[n]], may[n], float(cosines[may[n]])) for n in order]


def embedding_of(model: StatesModel) -> Tensor:
    """The table of a model that has a row for each token: [C, d]."""
    layer = model.table if isinstance(model, BigramLM) else model.get_submodule("token_embedding")
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.detach()


def cosine(a: Tensor, b: Tensor) -> float | None:
    """Of two vectors, in float64; None where one is zero."""
    size = float((a.double().square().sum() * b.double().square().sum()).sqrt())
    return max(-1.0, min(1.0, float(a.double() @ b.double()) / size)) if size else None


# --- what is read ----------------------------------------------------------------------------


def known(tokenizer: Tokenizer, word: str) -> int:
    """The ID of a word. Raises TensorstepError where it is not one token of the vocabulary."""
    ids = tokenizer.encode(word)
    if len(ids) != 1:
        raise TensorstepError(f"{word!r} is {len(ids)} tokens: give a word that is one")
    if ids[0] == tokenizer.unk_id:
        raise TensorstepError(f"{word!r} is not in the vocabulary: give a word of the training")
    return ids[0]


def history_of(tokenizer: Tokenizer, sentence: str) -> list[int]:
    """The IDs of a sentence as a document begins. Raises UsageError where there is none."""
    prompted = tokenizer.encode(sentence)
    ids = [*Boundaries.of(tokenizer).before(prompted), *prompted]
    if not ids:
        raise UsageError(f"the sentence {sentence!r} has no token: give a word")
    return ids


def seen(model: StatesModel, tokenizer: Tokenizer, ids: Sequence[int]) -> Tensor:
    """What the model reads of them, [1, w]: the last ones, a window with <PAD> before them."""
    kept = list(ids[-model.context_len :])
    missing = 0 if model.every_position else model.context_len - len(kept)
    if missing and tokenizer.pad_id is None:
        raise UsageError(f"windows need <PAD>, which {tokenizer.name!r} does not have")
    padded = [tokenizer.pad_id or 0] * missing + kept
    return torch.tensor([padded], device=next(model.parameters()).device)


def values_of(model: StatesModel, X: Tensor, wanted: re.Pattern[str]) -> dict[str, Tensor]:
    """The values of the states of one pass whose whole names fit."""
    return {s.name: s.value for s in each(model.states(X)) if wanted.fullmatch(s.name)}
