"""One plane for several checkpoints, and how it is drawn."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import wcwidth
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.errors import UsageError
from engine.experiments.lines import aligned, fitted, in_cells, shown
from engine.experiments.plane import Plane, plot_lines, png, svg, table_lines

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "</svg><script>",
    "[bold]&amp;",
    '"\x00\ufffe',
    "\ud800",
    "猫\u202e",
]
NAMESPACE = "{http://www.w3.org/2000/svg}"


def tables(seed: int = 1, count: int = 3, width: int = 5) -> list[Tensor]:
    """Checkpoints of a table, each a little farther from the first."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(9, width, generator=generator)
    moves = torch.randn(count, 9, width, generator=generator)
    return [first + 0.3 * move for move in moves.cumsum(0)]


# --- the plane -------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(2, 6))
def test_axes_are_the_eigenvectors_of_the_covariance(seed: int, count: int, width: int):
    words = [8, 2, 3, 5, 1, 7]
    made = tables(seed, count, width)
    plane = Plane.of(made, words)
    rows = np.concatenate([table.double().numpy()[words] for table in made])
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    assert plane.explained == pytest.approx(tuple(values[:2] / values.sum()), abs=1e-9)
    gaps = [abs(values[0] - values[1]), abs(values[1] - values[2]) if width > 2 else 1.0]
    for i in range(2):
        if min(gaps[: i + 1]) < 1e-3:
            continue  # nearly equal: any axis between them is as good
        axis = vectors[:, i] * np.sign(vectors[np.abs(vectors[:, i]).argmax(), i])
        assert plane.axes[i].numpy() == pytest.approx(axis, abs=1e-6)
        for table in made:  # the same axes and the same middle for each
            wanted = (table.double().numpy()[words] - rows.mean(0)) @ axis
            assert plane.project(table)[:, i].numpy() == pytest.approx(wanted, abs=1e-6)


def test_one_plane_serves_all_checkpoints():
    """A word that has not moved is at one place, whatever the others did."""
    first, second = tables(count=2)
    second[4] = first[4]
    plane = Plane.of([first, second], [3, 4, 6])
    a, b = plane.project(first), plane.project(second)
    assert a.shape == (3, 2)
    assert a.dtype == torch.float64
    assert torch.equal(a[1], b[1])
    assert not torch.allclose(a[[0, 2]], b[[0, 2]], atol=0.01)
    assert torch.cat([a, b]).mean(0).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert (plane.axes @ plane.axes.T).flatten().tolist() == pytest.approx([1, 0, 0, 1], abs=1e-12)


def test_by_hand():
    """Four points of a cross, 3 wide and 1 high, in a space of three."""
    table = torch.tensor([[-3.0, 5, 0], [3, 5, 0], [0, 5, -1], [0, 5, 1], [100, 100, 100]])
    plane = Plane.of([table], range(4))
    assert plane.axes.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert plane.mean.tolist() == [0, 5, 0]
    assert plane.explained == pytest.approx((0.9, 0.1))
    assert plane.project(table).tolist() == [[-3, 0], [3, 0], [0, -1], [0, 1]]


def test_vectors_on_a_line_or_a_point_have_no_second_axis():
    line = Plane.of([torch.tensor([[1.0, 1], [2, 2], [4, 4]])], [0, 1, 2])
    assert line.explained == pytest.approx((1, 0))
    assert line.axes.tolist() == [pytest.approx([0.5**0.5] * 2), [0, 0]]
    point = Plane.of([torch.ones(3, 4)], [0, 2])
    assert point.explained == (0, 0)
    assert point.project(torch.ones(3, 4)).tolist() == [[0, 0], [0, 0]]
    assert Plane.of([torch.tensor([[1.0], [3.0]])], [0, 1]).axes.tolist() == [[1], [0]]


def test_nothing_is_changed():
    table = torch.nn.Parameter(torch.randn(5, 3))
    before = table.detach().clone()
    assert not Plane.of([table], [0, 1, 2]).project(table).requires_grad
    assert torch.equal(table, before)


@pytest.mark.parametrize(
    ("made", "words", "told"),
    [
        ([], [0], "a plane of no vectors"),
        ([torch.ones(2, 3)], [], "a plane of no vectors"),
        ([torch.ones(2, 3), torch.ones(2, 4)], [0], "widths 3, 4 have no plane"),
        ([torch.ones(2, 3)], [2], "ID 2 is not in a vocabulary of 2"),
        ([torch.ones(2, 3)], [-1], "ID -1"),
        ([torch.full((2, 3), math.nan)], [0], "not finite"),
    ],
)
def test_what_has_no_plane_is_told(made: list[Tensor], words: list[int], told: str):
    with pytest.raises(UsageError, match=told):
        Plane.of(made, words)


def test_a_table_of_another_width_is_told():
    with pytest.raises(UsageError, match="width 4 do not lie in a plane of vectors of width 3"):
        Plane.of([torch.ones(2, 3)], [0]).project(torch.ones(2, 4))


# --- text ------------------------------------------------------------------------------------


def test_a_table_of_points():
    points = {"before": torch.tensor([[0.0, 1], [3, 4]]), "after": torch.tensor([[0.0, 1], [0, 0]])}
    assert table_lines(points, ["cat", "\x1b[2J"]) == [
        "word     before           after            moved",
        "cat      +0.0000 +1.0000  +0.0000 +1.0000  0.0000",
        "\\x1b[2J  +3.0000 +4.0000  +0.0000 +0.0000  5.0000",
    ]


def test_points_that_do_not_fit_their_labels_are_told():
    with pytest.raises(UsageError, match=r"shape \[1, 2\] at 'after' do not fit 2 labels"):
        table_lines({"before": torch.zeros(2, 2), "after": torch.zeros(1, 2)}, ["a", "b"])
    with pytest.raises(UsageError, match="no checkpoint"):
        svg({}, [])


def test_a_plot_by_hand():
    points = torch.tensor([[0.0, 0], [10, 2], [4, 1], [5, 1], [0, math.nan]])
    found = plot_lines(points, ["low", "high", "here", "there", "lost"], 24, 5, ascii=True)
    assert found == [
        "+----------------------+",
        "|                 high*|",
        "|    here* *there      |",
        "|*low                  |",
        "+----------------------+",
        "points not finite: 1, ..",
    ]


def test_labels_without_room_are_counted():
    """Four points in one cell: a label to the right, one to the left."""
    lines = plot_lines(torch.zeros(4, 2), ["right", "left", "third", "fourth"], 14, 3)
    assert lines[:3] == ["┌────────────┐", "│  left•right│", "└────────────┘"]
    assert lines[3] == "labels left .."
    wide = plot_lines(torch.zeros(4, 2), ["right", "left", "third", "fourth"])
    assert wide[-1] == "labels left out: 2, x 0 to 0, y 0 to 0"


def test_frames_compare_around_the_same_points():
    a, b = torch.tensor([[0.0, 0]]), torch.tensor([[4.0, 4]])
    first = plot_lines(a, ["cat"], 20, 6, around=torch.cat([a, b]))
    second = plot_lines(b, ["cat"], 20, 6, around=torch.cat([a, b]))
    assert first[4].startswith("│•cat")
    assert second[1].endswith("cat•│")
    assert first[-1] == second[-1][: len(first[-1])] == "x 0 to 4, y 0 to 4"


@pytest.mark.parametrize("size", [(11, 20), (78, 2)])
def test_no_room_for_a_frame_is_told(size: tuple[int, int]):
    with pytest.raises(UsageError, match="no room for a frame"):
        plot_lines(torch.zeros(1, 2), ["a"], *size)


def test_no_points_are_an_empty_frame():
    lines = plot_lines(torch.zeros(0, 2), [], 20, 4)
    assert len(lines) == 5
    assert "•" not in "".join(lines)


coordinate = st.floats(-1e6, 1e6) | st.sampled_from([0.0, math.nan, math.inf])
label = st.text(max_size=8) | st.sampled_from([*HOSTILE, "cat", "猫猫", "e\u0301"])


@given(
    st.lists(st.tuples(coordinate, coordinate, label), max_size=30),
    st.integers(12, 90),
    st.integers(3, 24),
    st.booleans(),
)
def test_a_plot_keeps_to_its_frame(found: list, width: int, height: int, ascii: bool):
    """Whatever the labels: every line has its width, every finite point its mark, and nothing in it
    is obeyed by a terminal."""
    points = torch.tensor([[x, y] for x, y, _ in found], dtype=torch.float64).reshape(-1, 2)
    lines = plot_lines(points, [text for *_, text in found], width, height, ascii)
    assert len(lines) == height + 1
    for line in lines[:-1]:
        assert len(in_cells(line)) == width
        assert all(c.isprintable() or unicodedata.category(c) in ("Mn", "Me") for c in line)
        assert line.isascii() or not ascii
    assert len(lines[-1]) <= width


words = st.lists(st.text("abcdefghij", min_size=1, max_size=9), min_size=1, max_size=25)


@given(words, st.integers(0, 999))
def test_labels_overlap_nothing(labels: list[str], seed: int):
    """Each label that is drawn stands whole beside a mark; the others are those counted."""
    points = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(seed))
    lines = plot_lines(points, labels, 50, 12, ascii=True)
    body = [line[1:-1] for line in lines[1:-2]]
    runs = [run for line in body for run in line.replace("*", " * ").split() if run != "*"]
    counted = re.match(r"labels left out: (\d+)", lines[-1])
    left_out = int(counted[1]) if counted else 0
    assert len(runs) == len(labels) - left_out
    for run in set(runs):
        assert run in labels
        assert runs.count(run) <= labels.count(run)
    assert sum(line.count("*") for line in body) == len(places_of(points, 48, 10))


def places_of(points: Tensor, width: int, height: int) -> set[tuple[int, int]]:
    """The cells that points lie in."""
    x, y = points.double().T
    across = (x - x.min()) / (x.max() - x.min()) if len(x) > 1 else torch.full_like(x, 0.5)
    down = (y.max() - y) / (y.max() - y.min()) if len(y) > 1 else torch.full_like(y, 0.5)
    columns = (across * (width - 1)).tolist()
    rows = (down * (height - 1)).tolist()
    return {(round(a), round(b)) for a, b in zip(rows, columns, strict=True)}


# --- text as data ----------------------------------------------------------------------------


def test_shown_text_has_the_width_it_is_counted_for():
    """Every character but for rare ideographs, as wcwidth has it."""
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        text = shown(f"a{chr(code)}")
        if text.isascii():
            continue
        assert text.isprintable(), hex(code)
        assert wcwidth.wcswidth(text) == len(in_cells(text)), hex(code)


@given(st.text(max_size=12))
def test_shown_text_stays_as_it_is(text: str):
    assert shown(shown(text)) == shown(text)
    assert shown(text, ascii=True).isascii()


@pytest.mark.parametrize(
    ("text", "size", "found"),
    [
        ("cat", 5, "cat  "),
        ("elephant", 5, "ele.."),
        ("猫猫猫", 5, "猫 .."),
        ("e\u0301\u0301clair", 6, "e\u0301\u0301clair"),
        ("\u0301", 8, "\\u{301} "),
    ],
)
def test_text_is_fitted(text: str, size: int, found: str):
    assert fitted(text, size) == found
    assert wcwidth.wcswidth(found) == size


def test_a_table_of_one_column():
    assert aligned(["word"], [["cat"], [""]]) == ["word", "cat", ""]


# --- svg and png -----------------------------------------------------------------------------


def drawn(points: dict[str, Tensor], labels: list[str]) -> ElementTree.Element:
    return ElementTree.fromstring(svg(points, labels))


def test_an_svg_has_every_way():
    points = {"before": torch.tensor([[0.0, 0], [1, 1]]), "after": torch.tensor([[2.0, 0], [0, 2]])}
    root = drawn(points, ["cat", "dog"])
    assert root.tag == f"{NAMESPACE}svg"
    assert [text.text for text in root.iter(f"{NAMESPACE}text")] == [
        "cat",
        "dog",
        "before",
        "after",
    ]
    ways = [
        [tuple(map(float, place.split(","))) for place in line.get("points", "").split()]
        for line in root.iter(f"{NAMESPACE}polyline")
    ]
    (x0, y0), (x1, y1) = ways[0]
    unit = (x1 - x0) / 2
    assert unit > 50
    assert y0 == y1
    (x2, y2), (x3, y3) = ways[1]  # one scale for both axes, y up
    assert [x2 - x0, y0 - y2, x3 - x0, y0 - y3] == pytest.approx(
        [unit, unit, 0, 2 * unit], abs=0.11
    )
    titles = [t.text for t in root.iter(f"{NAMESPACE}title")]
    assert titles[1:] == ["cat: before", "cat: after", "dog: before", "dog: after"]


def test_an_svg_shows_hostile_labels():
    points = torch.randn(len(HOSTILE), 2)
    root = drawn({"<step 0>\x07": points, "b": points + 1}, HOSTILE)
    texts = [text.text for text in root.iter(f"{NAMESPACE}text")]
    assert texts == [*map(shown, HOSTILE), "<step 0>\\x07", "b"]
    assert texts[:3] == ["\\x1b[31mred\\x1b[0m", "</svg><script>", "[bold]&amp;"]
    kinds = {element.tag.removeprefix(NAMESPACE) for element in root.iter()}
    assert kinds == {"svg", "title", "rect", "polyline", "circle", "text"}
    svg({"a": points}, HOSTILE).encode()  # can be written


@given(
    st.lists(st.tuples(coordinate, coordinate, st.text(max_size=6)), max_size=8),
    st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True),
)
def test_an_svg_is_xml_within_its_page(found: list, names: list[str]):
    points = torch.tensor([[x, y] for x, y, _ in found], dtype=torch.float64).reshape(-1, 2)
    root = drawn(dict.fromkeys(names, points), [text for *_, text in found])
    circles = list(root.iter(f"{NAMESPACE}circle"))
    finite = int(points.isfinite().all(-1).sum())
    assert len(circles) == (finite + 1) * len(names)
    for circle in circles:
        assert 0 <= float(circle.get("cx", "nan")) <= 760
        assert 0 <= float(circle.get("cy", "nan")) <= 560


def test_a_missing_matplotlib_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"not installed: pip install 'tensorstep\[plot\]'"):
        png({"a": torch.zeros(1, 2)}, ["cat"])


def test_a_png_is_one():
    points = torch.randn(len(HOSTILE) + 1, 2)
    content = png({"$a$": points, "b": points + 1}, [*HOSTILE, r"$\frac{$"])
    assert content.startswith(b"\x89PNG\r\n")
