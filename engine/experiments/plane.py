"""One plane for the word vectors of several checkpoints: principal axes of all of them together, so
that a word that moves on the page has moved. As aligned text, in characters, as SVG or as PNG.
"""

from __future__ import annotations

import html
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.experiments.lines import Grid, aligned, fitted, placed, shown


@dataclass(frozen=True, eq=False)
class Plane:
    """Two principal axes of the chosen words' vectors.

    words      the IDs of the rows that are read
    mean       [d] of all rows of all checkpoints
    axes       [2, d], of length 1; the second is 0 where the vectors lie on a line
    explained  the share of the variance along each axis
    """

    words: tuple[int, ...]
    mean: Tensor
    axes: Tensor
    explained: tuple[float, float]

    @classmethod
    def of(cls, tables: Sequence[Tensor], words: Sequence[int]) -> Plane:
        """The plane of these rows of all tables [C, d] together.

        Raises UsageError for no table or word, for tables of different widths, for IDs that a table
        does not have, and for numbers that are not finite.
        """
        if not tables or not words:
            raise UsageError("a plane of no vectors: give a checkpoint and a word, or more")
        if len(widths := sorted({table.shape[-1] for table in tables})) > 1:
            raise UsageError(
                f"vectors of widths {', '.join(map(str, widths))} have no plane in common: give"
                " checkpoints of one model"
            )
        rows = torch.cat([rows_of(table, words) for table in tables])
        mean = rows.mean(0)
        _, sizes, turned = torch.linalg.svd(rows - mean, full_matrices=False)
        variance = sizes.square()
        total = float(variance.sum())
        axes, shares = torch.zeros(2, rows.shape[1], dtype=torch.float64), [0.0, 0.0]
        for i in range(min(2, len(turned))):
            if variance[i] > total * 1e-24:  # less is the rounding of vectors on a line
                axes[i] = upright(turned[i])
                shares[i] = float(variance[i]) / total
        return cls(tuple(words), mean, axes, (shares[0], shares[1]))

    def project(self, table: Tensor) -> Tensor:
        """Where the words of a table lie: [n, 2], float64. Raises UsageError as `of` does."""
        if table.shape[-1] != len(self.mean):
            raise UsageError(
                f"vectors of width {table.shape[-1]} do not lie in a plane of vectors of width"
                f" {len(self.mean)}: give a checkpoint of the same model"
            )
        return (rows_of(table, self.words) - self.mean) @ self.axes.T


def rows_of(table: Tensor, words: Sequence[int]) -> Tensor:
    """[n, d] in float64."""
    for word in words:
        if not 0 <= word < len(table):
            raise UsageError(f"ID {word} is not in a vocabulary of {len(table)}: give one below")
    rows = table.detach()[list(words)].double().cpu()
    if not rows.isfinite().all():
        raise UsageError("some word's vector is not finite: read an earlier checkpoint")
    return rows


def upright(axis: Tensor) -> Tensor:
    """The axis or its opposite: whichever has its largest component positive."""
    sizes = axis.abs()
    first = int((sizes == sizes.max()).nonzero()[0])
    return -axis if axis[first] < 0 else axis


# --- drawn -----------------------------------------------------------------------------------


def table_lines(points_by_checkpoint: Mapping[str, Tensor], labels: Sequence[str]) -> list[str]:
    """Where each word lies at each checkpoint, and how far it has gone from the first to the
    last."""
    names = list(points_by_checkpoint)
    points = stacked(points_by_checkpoint, labels)
    moved = torch.linalg.vector_norm(points[-1] - points[0], dim=-1).tolist()
    rows = [
        [label, *(f"{x:+.4f} {y:+.4f}" for x, y in points[:, i].tolist()), f"{moved[i]:.4f}"]
        for i, label in enumerate(labels)
    ]
    return aligned(["word", *names, "moved"], rows)


def plot_lines(
    points: Tensor,
    labels: Sequence[str],
    width: int = 78,
    height: int = 20,
    ascii: bool = False,
    around: Tensor | None = None,
) -> list[str]:
    """Points [n, 2] in a frame of characters, `height` lines of `width` columns; below it the
    range of both axes, and how many labels had no room. Labels overlap neither each other nor a
    point.

    around  points that the frame has room for, too: of all checkpoints, so that frames compare

    Raises UsageError where there is no room for a frame.
    """
    if width < 12 or height < 3:
        raise UsageError(f"{width}x{height} has no room for a frame: give 12x3 or more")
    paired = zip(points.double().tolist(), labels, strict=True)
    kept = [((x, y), label) for (x, y), label in paired if torch.tensor([x, y]).isfinite().all()]
    every = torch.cat([points.double(), around.double() if around is not None else points[:0]])
    every = every[every.isfinite().all(-1)]
    if not len(every):
        every = torch.zeros(1, 2, dtype=torch.float64)
    low, high = every.min(0).values.tolist(), every.max(0).values.tolist()
    grid = Grid(width - 2, height - 2, "*" if ascii else "•")
    at = [
        (
            placed(y, high[1], low[1], grid.height),
            placed(x, low[0], high[0], grid.width),
        )
        for (x, y), _ in kept
    ]
    left_out = grid.fill(at, [shown(label, ascii) for _, label in kept])
    notes = [f"labels left out: {left_out}"] if left_out else []
    if lost := len(labels) - len(kept):
        notes.append(f"points not finite: {lost}")
    ranges = [f"{axis} {low[i]:.3g} to {high[i]:.3g}" for i, axis in enumerate("xy")]
    across, down, corners = ("-", "|", "++++") if ascii else ("─", "│", "┌┐└┘")
    return [
        corners[0] + across * grid.width + corners[1],
        *(f"{down}{line}{down}" for line in grid.lines()),
        corners[2] + across * grid.width + corners[3],
        fitted(", ".join([*notes, *ranges]), width).rstrip(),
    ]


COLOURS = ("#9a9a9a", "#c17f1c", "#2a8a57", "#a03c78", "#5b5bb5", "#1f5fa8")  # the last: the last


def svg(
    points_by_checkpoint: Mapping[str, Tensor],
    labels: Sequence[str],
    width: int = 760,
    height: int = 560,
) -> str:
    """The words' ways from the first checkpoint to the last, as one SVG that needs nothing else:
    rings, larger with every checkpoint, and at the last a dot with the word beside it. Both axes
    have one scale."""
    points, names = stacked(points_by_checkpoint, labels), list(points_by_checkpoint)
    at = on_page(points, width, height - 24 - 18 * len(names)).tolist()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{data(f'{len(labels)} words at {len(names)} checkpoints')}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, label in enumerate(labels):
        way = [(n, *at[n][i]) for n in range(len(names)) if points[n, i].isfinite().all()]
        parts += way_of(way, label, names)
    for n, name in enumerate(names):
        y = height - 18 * (len(names) - n)
        parts.append(ring(n, len(names), 24, y))
        parts.append(f'<text x="40" y="{y + 4}" fill="#222222">{data(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def way_of(way: Sequence[tuple[int, float, float]], label: str, names: Sequence[str]) -> list[str]:
    """A word's marks, (checkpoint, x, y) in order; what there is of them."""
    if not way:
        return []
    corners = " ".join(f"{x:.1f},{y:.1f}" for _, x, y in way)
    parts = [f'<polyline points="{corners}" fill="none" stroke="#cccccc"/>']
    for n, x, y in way:
        parts.append(ring(n, len(names), x, y, f"{shown(label)}: {shown(names[n])}"))
    _, x, y = way[-1]
    parts.append(
        f'<text x="{x + 7:.1f}" y="{y + 4:.1f}" fill="#222222" stroke="#ffffff" stroke-width="3"'
        f' paint-order="stroke">{data(label)}</text>'
    )
    return parts


def ring(n: int, count: int, x: float, y: float, title: str = "") -> str:
    """The mark of checkpoint n of so many."""
    is_last = n == count - 1
    colour = COLOURS[-1] if is_last else COLOURS[n % (len(COLOURS) - 1)]
    fill = colour if is_last else "none"
    size = 2 + 3 * (n + 1) / count
    told = f"<title>{data(title)}</title>" if title else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{fill}" stroke="{colour}">'
        f"{told}</circle>"
    )


def on_page(points: Tensor, width: int, height: int, margin: int = 40) -> Tensor:
    """Points as places of a page of that size, y down; one scale for both axes, the middle in the
    middle."""
    finite = points[points.isfinite().all(-1)]
    if not len(finite):
        return points
    low, high = finite.min(0).values, finite.max(0).values
    room = torch.tensor([width - 2 * margin - 80, height - 2 * margin]).clamp(min=1)  # 80: a label
    spans = high - low
    scale = min((float(r / s) for r, s in zip(room, spans, strict=True) if s > 0), default=1.0)
    middle = torch.tensor([(width - 80) / 2, height / 2])
    return (points - (low + high) / 2) * torch.tensor([scale, -scale]) + middle


def png(points_by_checkpoint: Mapping[str, Tensor], labels: Sequence[str]) -> bytes:
    """The same ways as the content of a PNG file. Raises UsageError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "matplotlib is not installed: pip install 'tensorstep[plot]', or draw an SVG instead"
        ) from None
    points, names = stacked(points_by_checkpoint, labels), list(points_by_checkpoint)
    figure = Figure(figsize=(8, 6), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.set_aspect("equal", "datalim")
    for n, name in enumerate(names):
        is_last = n == len(names) - 1
        colour = COLOURS[-1] if is_last else COLOURS[n % (len(COLOURS) - 1)]
        axes.scatter(
            points[n, :, 0].tolist(),
            points[n, :, 1].tolist(),
            s=8 + 20 * (n + 1) / len(names),
            facecolors=colour if is_last else "none",
            edgecolors=colour,
            label=shown(name),
        )
    for i, label in enumerate(labels):
        axes.plot(*points[:, i].T.tolist(), color="#cccccc", linewidth=0.8, zorder=0)
        if points[-1, i].isfinite().all():
            x, y = points[-1, i].tolist()  # a $ in a token begins no formula: parse_math
            axes.annotate(
                shown(label),
                (x, y),
                (4, 2),
                textcoords="offset points",
                fontsize=8,
                parse_math=False,
            )
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    written = io.BytesIO()
    with warnings.catch_warnings():  # of characters that its fonts do not have
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(written, format="png")
    return written.getvalue()


def stacked(points_by_checkpoint: Mapping[str, Tensor], labels: Sequence[str]) -> Tensor:
    """[checkpoints, n, 2] in float64. Raises UsageError where the points are not those labels'."""
    if not points_by_checkpoint:
        raise UsageError("there is no checkpoint to draw: give one or more")
    for name, points in points_by_checkpoint.items():
        if tuple(points.shape) != (len(labels), 2):
            raise UsageError(
                f"points of shape {list(points.shape)} at {name!r} do not fit {len(labels)} labels:"
                " project the same words"
            )
    return torch.stack([points.detach().double().cpu() for points in points_by_checkpoint.values()])


def data(text: str) -> str:
    """A text inside an XML element."""
    return html.escape(shown(text))
