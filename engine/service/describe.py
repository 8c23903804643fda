"""A walk in plain data: what a state is, a slice of its cells, labels, explanations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.data.split import SIDES
from engine.errors import UsageError
from engine.maps import stage_of
from engine.ops.core import Cell, Explanation
from engine.records import Record
from engine.walk import Walk

# states whose cells are IDs: shown with their tokens
ID_STATES = {"ids", "windows.contexts", "windows.targets", "batch.X", "batch.y"}
ID_STATES |= {"history", "context", "choice"}
AUDIT_ROWS, AUDIT_COLUMNS = SIDES, ("min", "median", "max")
LONG = 2000  # characters of a text that are told
MANY = 10_000  # values of more cells than this are left out, unless asked for


def describe(walk: Walk, record: Record) -> dict[str, Any]:
    """What a state is, without its cells: the fields of `states --json` but `values`."""
    return {
        "map": walk.process.map,
        "step": record.step,
        "stage": stage_of(walk.process.map, record.name, record.step),
        "name": record.name,
        "role": record.role,
        "kind": record.kind,
        "shape": list(record.shape),
        "axes": list(record.axes),
        "dtype": record.dtype,
        "formula": record.formula,
    }


def standing(walk: Walk) -> dict[str, Any]:
    """Where the walk stands, for the map: the stages this step has passed, the newest loss, and of
    how many steps there is one."""
    step, index = walk.cursor.step, walk.cursor.index
    records = walk.records(step)
    stages = (stage_of(walk.process.map, record.name, record.step) for record in records)
    return {
        "step": step,
        "index": index,
        "stages": list(dict.fromkeys(stages)),
        "loss": finite_or_named(walk.loss_at(step)),
        "losses": len(walk.losses),
    }


def dump(walk: Walk, record: Record, max_values: int = MANY) -> dict[str, Any]:
    """A state whole: one line of `states --json`. `values` is left out above `max_values`."""
    fields = describe(walk, record)
    if math.prod(record.shape) <= max_values:
        fields["values"] = values_of(record.value)
    return fields


def values_of(value: Any) -> Any:
    """Nested lists of numbers in full precision; non-finite ones as "nan", "inf", "-inf"."""
    if isinstance(value, Sequence):
        return value if isinstance(value, str) else list(value)
    return finite_or_named(value[:].tolist() if value.shape else value.item())


def shortened(text: str) -> str:
    """The beginning of a text: of a document of megabytes a screen shows a line."""
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def plain(value: Any) -> Any:
    """A cell as plain data for a screen."""
    return shortened(value) if isinstance(value, str) else finite_or_named(value)


def finite_or_named(values: Any) -> Any:
    if isinstance(values, list):
        return [finite_or_named(each) for each in values]
    if isinstance(values, float) and not math.isfinite(values):
        return "nan" if values != values else "inf" if values > 0 else "-inf"
    return values


# --- tables ----------------------------------------------------------------------------------

CODES = {torch.float32: "f", torch.float64: "d", torch.int64: "q", torch.bool: "B"}


def table(
    walk: Walk,
    record: Record,
    tokens: Sequence[str],
    fixed: list[int],
    rows: tuple[int, int],
    columns: tuple[int, int],
    order: tuple[int, int, bool] | None = None,
    value: Any = None,
) -> tuple[dict[str, Any], bytes]:
    """The visible cells of a state: `fixed` picks one index for each axis but the last two, `rows`
    and `columns` are half-open ranges. Returns a header and the cells' bytes, row after row.

    order  sorts along an axis (0 rows, 1 columns) by the values at an index of the other, falling
           or rising; the header's `index` then has the numbers of those that are seen
    value  other values than the state's own, in the same shape
    """
    value = record.value if value is None else value
    if isinstance(value, Sequence):
        texts = [value] if isinstance(value, str) else list(value[rows[0] : rows[1]])
        texts = [shortened(text) for text in texts]
        numbers = [str(rows[0] + i) if record.shape else "" for i in range(len(texts))]
        return {"texts": texts, "rows": numbers}, b""
    picked: list[Sequence[int]] = [range(*rows), range(*columns)]
    order = order if record.shape else None
    if order is not None:
        axis, by, falling = order
        span = (rows, columns)[axis]
        picked[axis] = ranking(value, fixed, axis, by, falling)[slice(*span)].tolist()
    cells = slice_of(value, fixed, *picked)
    rank = len(record.shape)
    header: dict[str, Any] = {
        "code": CODES[cells.dtype],
        "size": list(cells.shape),
        "rows": labels(walk, record, rank - 2 if rank > 1 else 0, fixed, picked[0], tokens),
        "columns": labels(walk, record, rank - 1, fixed, picked[1], tokens) if rank > 1 else [],
        "index": None if order is None else list(picked[order[0]]),
    }
    header["caption"], header["target"] = caption(walk, record, fixed, tokens)
    if record.name in ID_STATES:
        header["tokens"] = [[tokens[i] for i in row] for row in cells.tolist()]
    return header, cells.numpy().tobytes()


def ranking(value: Any, fixed: list[int], axis: int, by: int, falling: bool) -> Tensor:
    """The indices along one of the last two axes, sorted by the values at `by` of the other; what
    is not a number comes last, equals keep their order."""
    for i in fixed:
        value = value[i]
    if len(value.shape) > 1:
        value = value[:, by] if axis == 0 else value[by, :]
    found = value[:].detach().to("cpu", torch.float64)
    order = found.argsort(descending=falling, stable=True)
    lost = found.isnan()[order]
    return torch.cat([order[~lost], order[lost].sort().values])


def slice_of(value: Any, fixed: list[int], rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """[rows, columns] of a tensor of any rank, on the CPU, in a type that has a struct code."""
    rank = len(value.shape)
    if rank == 0:
        cells = value.reshape(1, 1)
    elif rank == 1:
        cells = value[indices(rows)][:, None]
    else:
        for i in fixed:
            value = value[i]
        if isinstance(rows, range):
            cells = value[indices(rows), indices(columns)]
        else:
            cells = value[indices(rows)][:, indices(columns)]
    found: Tensor = cells.detach().to("cpu")
    if found.dtype in CODES:
        return found.contiguous()
    wider = torch.float32 if found.dtype.is_floating_point else torch.int64
    return found.to(wider).contiguous()


def indices(span: Sequence[int]) -> Any:
    """A range as a slice, which copies nothing; other numbers as they are."""
    return (
        slice(span.start, span.stop)
        if isinstance(span, range)
        else torch.tensor(list(span), dtype=torch.long)
    )


def labels(
    walk: Walk,
    record: Record,
    axis: int,
    fixed: list[int],
    span: Sequence[int],
    tokens: Sequence[str],
) -> list[str]:
    """What the rows or columns of a table are: tokens where they stand for tokens, else numbers."""
    if not record.axes:
        return [""]
    letter = record.axes[axis]
    numbers = [i for i in span if i < record.shape[axis]]
    if letter == "C":
        return [tokens[i] for i in numbers]
    if record.name.startswith("audit."):
        return [(AUDIT_ROWS, AUDIT_COLUMNS)[axis][i] for i in numbers]
    ids = context_ids(walk, record, fixed)
    if ids is not None and letter in ("w", "S"):
        return [tokens[ids[i]] for i in numbers]
    if ids is not None and letter == "1":
        return [tokens[ids[-1]]]
    if ids is not None and letter == "T":  # the last T of them
        before = len(ids) - record.shape[axis]
        return [tokens[ids[before + i]] for i in numbers]
    return [str(i) for i in numbers]


def context_ids(walk: Walk, record: Record, fixed: list[int]) -> list[int] | None:
    """The IDs in the slots of the example that is looked at, where it is one example's table."""
    if record.axes[:1] != ("B",) or len(record.axes) < 3:
        return None
    name = "batch.X" if walk.process.map == "training" else "context"
    ids: list[int] = walk.fetch(name, record.step)[fixed[0] if fixed else 0].tolist()
    return ids


def caption(
    walk: Walk, record: Record, fixed: list[int], tokens: Sequence[str]
) -> tuple[list[str], str | None]:
    """The example a slice belongs to: the tokens of its context and, in training, its target."""
    ids = context_ids(walk, record, fixed)
    if ids is None:
        return [], None
    target = None
    if walk.process.map == "training":
        targets = walk.fetch("batch.y", record.step)
        if targets.dim() == 1:  # at every position there is another
            target = tokens[int(targets[fixed[0]])]
    return [tokens[i] for i in ids], target


# --- explanations ----------------------------------------------------------------------------


def explanation(record: Record, cell: Cell, most: int | None = None) -> dict[str, Any]:
    """An explanation in plain data: at most `most` terms, the largest first, and how many there
    are."""
    try:
        found: Explanation = record.explain(cell)
    except IndexError as error:
        raise UsageError(str(error)) from None
    terms = found.terms
    if found.combine != "rule":  # the largest first; terms of a rule have an order of their own
        terms = sorted(terms, key=lambda term: -weight(term.contribution))
    terms = terms[:most]
    return {
        "name": found.name,
        "step": found.step,
        "cell": list(found.cell),
        "value": plain(found.value),
        "formula": found.formula,
        "combine": found.combine,
        "total": finite_or_named(found.total),
        "note": found.note,
        "count": len(found.terms),
        "terms": [
            {
                "source": term.cited.source,
                "step": term.cited.step,
                "index": list(term.cited.index),
                "value": plain(term.cited.value),
                "contribution": finite_or_named(term.contribution),
                "times": [
                    {
                        "source": cited.source,
                        "step": cited.step,
                        "index": list(cited.index),
                        "value": finite_or_named(cited.value),
                    }
                    for cited in term.times
                ],
                "note": term.note,
            }
            for term in terms
        ],
    }


def weight(contribution: float) -> float:
    """What a term is ranked by: its size; what is not a number comes first."""
    return math.inf if math.isnan(contribution) else abs(contribution)
