"""The inside of a decoder in plain data: what its stream says after each block, how long its rows
are, what each part puts into one logit, and what the cache saves.

Only what is to be seen crosses: a token and a number a cell, never whole logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.errors import UsageError
from engine.generation.costs import cost_of, costs
from engine.generation.generator import Generation
from engine.lens import Lens
from engine.maps import GENERATION
from engine.service.describe import finite_or_named
from engine.walk import Walk

LENS, STREAM, PARTS, CACHE = PAGES = ("lens", "stream", "parts", "cache")


@dataclass
class Look:
    """Where one looks: an example, a position of it, and which rows and columns are seen.

    position  None: the last
    first     the first position that is seen; None: so that `columns` end with the last
    rows      from one row to before another: 0 the embedding, n what block n - 1 left
    token     whose logit is taken apart; None: the most probable
    """

    example: int = 0
    position: int | None = None
    first: int | None = None
    columns: int = 8
    rows: tuple[int, int] = (0, 1)
    token: str | None = None


def inside(walk: Walk, step: int, tokens: Sequence[str], page: str, look: Look) -> dict[str, Any]:
    """One page. Raises UsageError where there is nothing of the kind."""
    if page not in PAGES:
        raise UsageError(f"no page is called {page!r}: use {', '.join(PAGES)}")
    lens = Lens(walk, step)
    if page == CACHE:
        return cache(walk, step)
    ids = ids_of(lens)
    examples, count = len(ids), len(ids[0])
    if not 0 <= look.example < examples:
        raise UsageError(f"there is no example {look.example}: they are 0 to {examples - 1}")
    at = count - 1 if look.position is None else look.position
    if not 0 <= at < count:
        raise UsageError(f"there is no position {at}: they are 0 to {count - 1}")
    first = max(0, count - look.columns) if look.first is None else look.first
    seen = range(first, min(first + look.columns, count))
    told = {
        "page": page,
        "step": step,
        "blocks": lens.blocks,
        "examples": examples,
        "positions": count,
        "position": at,
        "first": first,
        "before": offset_of(lens, count),
        "columns": [name_of(tokens, ids[look.example][i]) for i in seen],
        "token": name_of(tokens, ids[look.example][at]),
    }
    if page == PARTS:
        return told | parts(lens, tokens, look, at)
    rows = range(max(0, look.rows[0]), min(look.rows[1], lens.blocks + 1))
    read = said if page == LENS else lengths
    span = slice(seen.start, seen.stop)
    cells = [read(lens, tokens, after, look.example, span) for after in rows]
    return told | {"row": rows.start, "cells": cells}


def said(
    lens: Lens, tokens: Sequence[str], after: int, example: int, span: slice
) -> list[dict[str, Any]]:
    """At each position the most probable token after so many blocks, and how probable it is."""
    shares = lens.logits(after, span)[example].float().softmax(-1)
    most = shares.max(-1)
    return [
        {"id": i, "token": name_of(tokens, i), "probability": finite_or_named(p)}
        for i, p in zip(most.indices.tolist(), most.values.tolist(), strict=True)
    ]


def lengths(lens: Lens, _: Sequence[str], after: int, example: int, span: slice) -> list[Any]:
    """The norm of the stream at each position after so many blocks."""
    rows = lens.stream(after)[example, span].float()
    found: list[Any] = finite_or_named(torch.linalg.vector_norm(rows, dim=-1).tolist())
    return found


def parts(lens: Lens, tokens: Sequence[str], look: Look, at: int) -> dict[str, Any]:
    """What each part puts into the logit of a token, the largest first; what they add up to, and
    the logit itself."""
    logits = lens.logits(lens.blocks, slice(at, at + 1))[look.example, 0].float()
    token = int(logits.argmax()) if look.token is None else named(tokens, look.token)
    if token >= len(logits):
        raise UsageError(f"the model has no logit of token {token}: it has {len(logits)}")
    written = lens.written(look.example, at, token)
    written.sort(key=lambda each: -abs(each.share))
    return {
        "of": name_of(tokens, token),
        "id": token,
        "logit": finite_or_named(float(logits[token])),
        "probability": finite_or_named(float(logits.softmax(-1)[token])),
        "sum": finite_or_named(sum(each.share for each in written)),
        "parts": [{"part": e.part, "share": finite_or_named(e.share)} for e in written],
    }


def cache(walk: Walk, step: int) -> dict[str, Any]:
    """What a step of generation costs with a cache and without, and all of them so far."""
    process: Any = walk.process
    process = getattr(process, "inner", process)
    if walk.process.map != GENERATION or not isinstance(process, Generation):
        raise UsageError("keys and values are kept while generating: m goes to that map")
    model: Any = process.model
    config = model.config
    itemsize = next(iter(process.parameters.values())).element_size()
    seen = min(process.given + step - 1, config.context_len)
    new = seen if step == 1 else 1
    kept = cost_of(config, seen, new, itemsize, True)
    whole = costs(config, process.given, step, itemsize)
    return {
        "page": CACHE,
        "step": step,
        "used": process.cache is not None,
        "seen": seen,
        "new": new,
        "full": process.given + step - 1 > config.context_len,
        "with_cache": kept.multiplications,
        "without_cache": cost_of(config, seen, seen, itemsize, False).multiplications,
        "all_with_cache": whole["with_cache"],
        "all_without_cache": whole["without_cache"],
        "kept": kept.kept,
    }


def ids_of(lens: Lens) -> list[list[int]]:
    """The IDs at the positions of the stream, by example; with a cache only the new ones."""
    name = "context" if lens.walk.process.map == GENERATION else "batch.X"
    whole = lens.walk.fetch(name, lens.step)
    found: list[list[int]] = whole[:, whole.shape[1] - lens.stream(0).shape[1] :].tolist()
    return found


def offset_of(lens: Lens, count: int) -> int:
    """How many positions were there before those of the stream."""
    name = "context" if lens.walk.process.map == GENERATION else "batch.X"
    return int(lens.walk.fetch(name, lens.step).shape[1]) - count


def name_of(tokens: Sequence[str], i: int) -> str:
    """A token by its ID; a model may have more than its tokenizer."""
    return tokens[i] if 0 <= i < len(tokens) else f"#{i}"


def named(tokens: Sequence[str], text: str) -> int:
    """The ID of a token as it is written, or of the first that holds the text. Raises UsageError
    where none does."""
    if text in tokens:
        return tokens.index(text)
    wanted = text.casefold()
    found = next((i for i, token in enumerate(tokens) if wanted in token.casefold()), None)
    if found is None:
        raise UsageError(f"no token of the vocabulary holds {text!r}")
    return found
