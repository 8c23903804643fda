"""Reports of a result: a page and a text that hold whatever they are given, and their files."""

from __future__ import annotations

import errno
import math
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TensorstepError, UsageError
from engine.experiments import plots
from engine.experiments.report import figure, html, markdown, write
from engine.experiments.rows import Curve, Result, Row, exact, made, measured
from engine.runs import disk

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</td><script>alert(1)</script>|`x`\n\x1b[31m\u202e&amp;\"'\ud800"
TEXTS = st.text(st.characters(), max_size=30) | st.just(HOSTILE)
NUMBERS = st.floats() | st.integers(-(10**6), 10**6) | st.none()
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30)


def falling(name: str = "training", count: int = 11) -> Curve:
    return Curve(name, [(float(i), 3.0 / (1 + i)) for i in range(count)], "epoch")


def sample() -> Result:
    return Result(
        "lily",
        "The worked sentence",
        rows=[
            exact("loss", 2.2983837127685547, 2.2983837127685547, "why"),
            exact("weight", 1.0, 1.5, "torch is another"),
            measured("mean", 1.0, 0.2, 1.1, "why"),
            made("seconds", 3.25),
        ],
        curves=[falling(), falling("validation", 5)],
        sections=[("What it wrote", ["lily found", "  a red ball"])],
        notes=["Losses are in nats."],
        facts={"torch": "2.13.0"},
    )


def hostile() -> Result:
    row = Row(HOSTILE, HOSTILE, [HOSTILE], math.nan, HOSTILE)
    curve = Curve(HOSTILE, [(0.0, 1.0), (1.0, 2.0)], HOSTILE, HOSTILE)
    return Result(
        *(HOSTILE, HOSTILE, [row], [], [curve], [(HOSTILE, [HOSTILE])], [HOSTILE]),
        {HOSTILE: HOSTILE},
    )


class Page(HTMLParser):
    """The elements of a page, its text, and whether each element that needs it is closed."""

    EMPTY = ("meta",)

    def __init__(self, content: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def pictures(page: str) -> list[ElementTree.Element]:
    return [
        ElementTree.fromstring(each)  # what was just written
        for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    ]


def points_of(line: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


# --- figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "–"), (True, "yes"), (False, "no"), (2413824, "2413824"), (1.0, "1")),
        *((1.6094379124341003, "1.60944"), (-0.0, "0"), (1e-9, "1e-09"), (math.nan, "nan")),
        *((math.inf, "inf"), (-math.inf, "-inf"), ("excellent", "excellent"), ("\n", "\\n")),
        ([0.5, None, 2], "[0.5, –, 2]"),
        ((1, 2, 3, 4, 5, 6), "[1, 2, 3, 4, 5, 6]"),
        (list(range(10)), "[0, 1, 2, 3, 4, 5, … 10 in all]"),
        ([[1.0], [2.5]], "[[1], [2.5]]"),
        ([], "[]"),
        ({"B": 2, "w": 4}, "{B: 2, w: 4}"),
        ("p" * 200, "p" * 99 + "…"),
    ],
)
def test_how_a_figure_is_written(value: Any, text: str):
    assert figure(value) == text


@pytest.mark.parametrize(
    ("here", "difference", "text"),
    [
        *((1.5, 0.5, "+0.5"), (1.5, -2e-7, "-2e-07"), (1.5, 0.0, "0"), (1, None, "–")),
        *(([1.5, 2], 0.5, "≤ 0.5"), ([1.5, 2], 0.0, "0"), (1.5, math.nan, "+nan")),
    ],
)
def test_how_a_difference_is_written(here: Any, difference: float | None, text: str):
    """Of lists it is the largest, without a sign."""
    table = markdown(Result("a", "a", [Row("row", here, here, difference, "exact")]))
    assert f" | {text} | ✓ exact |" in table


# --- the page --------------------------------------------------------------------------------


def test_a_page_has_everything():
    page = Page(html(sample()))
    text = "\n".join(page.texts)
    for part in (
        *("The worked sentence", "loss", "2.29838", "✓ exact", "✗ differs: torch is another"),
        *("≈ within one published standard deviation", "• new", "3.25", "+0.5", "–"),
        *("Losses are in nats.", "What it wrote", "lily found\n  a red ball", "torch", "2.13.0"),
        "4 figures: 1 exact, 1 within one published standard deviation, 1 differs, 1 new.",
    ):
        assert part in text, part
    assert page.open == []
    assert page.tags.count("tr") == 5
    assert page.tags.count("svg") == 1  # curves of the same axes are one picture
    assert ("class", "differs") in page.attributes


def test_a_page_needs_nothing_else():
    content = html(sample())
    page = Page(content)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name[:2] == "on"]
    assert "url(" not in content
    assert "@import" not in content
    addresses = set(re.findall(r"https?://[^\"' ]+", content))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a namespace: nothing is fetched
    assert "color-scheme: light dark" in content
    assert "prefers-color-scheme: dark" in content


@pytest.mark.parametrize("make", [html, markdown])
def test_hostile_texts_are_shown_and_not_obeyed(make: Any):
    content = make(hostile())
    assert content.encode()  # no lone surrogate is left
    assert not [c for c in content if not c.isprintable() and c != "\n"]
    assert "\\u202e" in content.replace("\\\\", "\\")
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", content)  # a fence holds whatever it is
    assert not re.search(r"(?<!\\)<script", outside)


def test_a_hostile_page_is_as_any_other():
    page = Page(html(hostile()))
    assert page.open == []
    assert "script" not in page.tags
    assert page.tags.count("tr") == 2
    shown = "</td><script>alert(1)</script>|`x`\\n\\x1b[31m\\u202e&amp;\"'\\ud800"
    assert page.texts.count(shown) >= 6
    (picture,) = pictures(html(hostile()))
    assert shown in (picture.findtext(f"{SVG}title") or "")


@given(TEXTS, TEXTS)
def test_any_name_stays_text(name: str, line: str):
    result = Result(name, name, [made(name, line)], sections=[(name, [line])], notes=[line])
    page = Page(html(result))
    expected = ["meta", "meta", "meta", "table", "tr", "tr", "ul", "li", "pre"]
    assert [tag for tag in page.tags if tag in set(expected)] == expected
    text = markdown(result)
    assert "\r" not in text
    assert text.encode()


# --- pictures --------------------------------------------------------------------------------


@given(st.lists(st.tuples(TEXTS, POINTS), min_size=1, max_size=14))
def test_a_picture_holds_whatever_it_is_given(curves: list[tuple[str, list[Any]]]):
    """It parses; every curve that has a finite point has one polyline; nothing leaves the view."""
    result = Result("any", "any", curves=[Curve(name, points) for name, points in curves])
    (picture,) = pictures(html(result))
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    lines = picture.findall(f"{SVG}polyline")
    largest = plots.LARGEST
    finite = [
        [p for p in points if all(n is not None and abs(n) <= largest for n in p)]
        for _, points in curves
    ]
    assert len(lines) == len([points for points in finite if points])
    for line, points in zip(lines, filter(None, finite), strict=True):
        found = points_of(line)
        assert len(found) == len(points)
        assert all(0 <= x <= width and 0 <= y <= height for x, y in found)
    for element in picture.iter():
        for name, value in element.attrib.items():
            if name in ("x", "x1", "x2", "cx"):
                assert 0 <= float(value) <= width
            elif name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(value) <= height
    assert markdown(result)


def test_where_points_lie():
    """Along x evenly from the left of the plot to its right; a larger y is higher up."""
    (picture,) = pictures(html(Result("a", "a", curves=[falling()])))
    (line,) = picture.findall(f"{SVG}polyline")
    found = points_of(line)
    xs, ys = zip(*found, strict=True)
    right = plots.WIDTH - plots.RIGHT
    assert xs == pytest.approx(
        [plots.LEFT + (right - plots.LEFT) * i / 10 for i in range(11)], 1e-3
    )
    assert list(ys) == sorted(ys)
    low, high = 3 / 11, 3.0
    margin = 0.05 * (high - low)
    shares = [(3 / (1 + i) - low + margin) / (high - low + 2 * margin) for i in range(11)]
    heights = [plots.TOP + plots.HEIGHT * (1 - share) for share in shares]
    assert ys == pytest.approx(heights, abs=0.01)


def test_axes_ticks_legend_and_labels():
    curves = [falling(), Curve("gone", [(0.0, math.nan), (1.0, 1.0), (2.0, None)], "epoch")]  # type: ignore[list-item]
    (picture,) = pictures(html(Result("a", "a", curves=curves)))
    texts = [element.text for element in picture.findall(f"{SVG}text")]
    assert {"loss (nats)", "epoch", "0", "10", "1", "3"} <= set(texts)
    assert texts.count("training") == texts.count("gone") == 1  # beside their ends
    assert "training: 0.272727 at the end" in texts  # the legend
    assert "gone: 1 at the end (2 not finite)" in texts
    kinds = {
        (line.attrib["class"], line.attrib["stroke-dasharray"])
        for line in picture.findall(f"{SVG}polyline")
    }
    assert len(kinds) == len({dash for _, dash in kinds}) == 2  # not by colour alone


def test_twelve_curves_look_different():
    curves = [falling(f"seed {i}") for i in range(12)]
    (picture,) = pictures(html(Result("a", "a", curves=curves)))
    lines = picture.findall(f"{SVG}polyline")
    assert len({(e.attrib["class"], e.attrib["stroke-dasharray"]) for e in lines}) == 12


@pytest.mark.parametrize(("count", "labels"), [(1, 1), (12, 12), (18, 18), (40, 18)])
def test_names_beside_the_curves_lie_apart(count: int, labels: int):
    """All inside the plot; where there is no room for more, the legend has the others."""
    names = [f"seed {i}" for i in range(count)]
    (picture,) = pictures(html(Result("a", "a", curves=[falling(name) for name in names])))
    texts = picture.findall(f"{SVG}text")
    heights = sorted(float(e.attrib["y"]) - 4 for e in texts if e.text in names)
    assert len(heights) == labels
    assert all(b - a >= plots.LABEL for a, b in pairwise(heights))
    assert all(plots.TOP <= each <= plots.TOP + plots.HEIGHT for each in heights)
    legend = [e.text for e in texts if (e.text or "").endswith(" at the end")]
    assert legend == [f"{name}: 0.272727 at the end" for name in names]


def test_other_axes_are_another_picture():
    curves = [falling(), Curve("rate", [(1.0, 0.1), (2.0, 0.05)], "step", "learning rate")]
    assert len(pictures(html(Result("a", "a", curves=curves)))) == 2


def test_a_long_curve_keeps_its_ends_and_its_spikes():
    points = [(float(i), 1.0) for i in range(6000)]
    points[3456], points[5000] = (3456.0, 9.0), (5000.0, -4.0)
    found = plots.thinned(points)
    assert len(found) <= plots.MOST_POINTS + 2
    assert {points[0], points[-1], points[3456], points[5000]} <= set(found)
    assert found == sorted(found)
    assert plots.thinned(points[:1000]) == points[:1000]


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_ticks_are_round_and_inside(a: float, b: float):
    span = plots.Span.of([a, b])
    assert span.low < span.high
    assert 2 <= len(span.ticks) <= 7
    slack = 1e-9 * max(abs(span.low), abs(span.high))
    assert all(span.low - slack <= tick <= span.high + slack for tick in span.ticks)
    assert list(span.ticks) == sorted(set(span.ticks))


def test_the_ticks_of_a_loss():
    assert plots.Span.of([0.1, 3.4]).ticks == (1, 2, 3)
    assert plots.Span.of([0, 30]).ticks == (0, 5, 10, 15, 20, 25, 30)


# --- text ------------------------------------------------------------------------------------


def test_a_text_has_everything():
    text = markdown(sample())
    assert text.startswith("# The worked sentence\n\nlily: 4 figures: 1 exact, ")
    assert "| figure | published | here | difference | verdict |\n| --- |" in text
    assert "| weight | 1 | 1.5 | +0.5 | ✗ differs: torch is another |" in text
    assert "| seconds | – | 3.25 | – | • new |" in text
    assert "- Losses are in nats." in text
    assert "```text\nlily found\n  a red ball\n```" in text
    assert "- torch: 2.13.0" in text


def test_cells_of_a_hostile_table():
    """No more columns and no more lines than of any other."""
    lines = markdown(hostile()).splitlines()
    (row,) = [line for line in lines if line.startswith("| ") and "alert" in line]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 6
    assert "\\<script\\>" in row


def test_a_fence_cannot_be_closed():
    text = markdown(Result("a", "a", sections=[("b", ["````", "# not a heading"])]))
    assert text.endswith("`````text\n````\n# not a heading\n`````\n")


def test_a_plot_in_characters():
    """A line that falls evenly: a mark in every column, one row lower at a time."""
    curve = Curve("down", [(0.0, 13.0), (63.0, 0.0)])
    (x, y, lines) = plots.together([curve])[0]
    *plot, bottom, under, _, legend = plots.drawn(x, y, lines)
    inside = [row.partition("│")[2] for row in plot]
    assert len(inside) == plots.LINES
    marked = [[i for i, row in enumerate(inside) if row[c : c + 1] == "●"] for c in range(64)]
    assert all(len(rows) == 1 for rows in marked)
    heights = [rows[0] for rows in marked]
    assert heights == sorted(heights)
    assert heights[0] <= 1
    assert heights[-1] >= 12
    assert bottom.endswith("└" + 64 * "─")
    assert re.fullmatch(r" +0 +step +63", under)
    assert legend == "● down: 0 at the end"


def test_a_curve_without_a_finite_point():
    result = Result("a", "a", curves=[Curve("lost", [(1.0, math.nan), (2.0, math.inf)])])
    assert "● lost: nothing to draw (2 not finite)" in markdown(result)
    (picture,) = pictures(html(result))
    assert picture.findall(f"{SVG}polyline") == []


def test_an_empty_result():
    result = Result("lily", "The worked sentence")
    assert markdown(result) == "# The worked sentence\n\nlily: No figure was compared.\n"
    page = Page(html(result))
    assert page.open == []
    assert not {"table", "svg", "ul", "dl", "pre"} & set(page.tags)


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "make"), [("a.html", html), ("a.HTM", html), ("a.md", markdown)])
def test_the_ending_decides(name: str, make: Any, tmp_path: Path):
    path = tmp_path / name
    path.write_text("what was there")
    write(sample(), path)
    assert path.read_text(encoding="utf-8") == make(sample())
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_may_be_read_by_whom_the_umask_lets(tmp_path: Path):
    before = os.umask(0o022)
    try:
        write(sample(), tmp_path / "a.md")
    finally:
        os.umask(before)
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["a.pdf", "report", "a.html.gz", ".md"])
def test_another_ending_is_told(name: str, tmp_path: Path):
    with pytest.raises(UsageError, match=r"let it end in \.html for a page, or in \.md"):
        write(sample(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.html"
    path.write_text("what was there")

    def full(number: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(TensorstepError) as told:
        write(sample(), path)
    assert str(told.value) == (
        f"there is no room for the report {str(path)!r} on the disk: make some, or give another"
        " place"
    )
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_is_whole_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.md"
    path.write_text("what was there")
    seen = []

    def rename(before: Path, after: Path) -> None:
        seen.append((before.read_text(encoding="utf-8"), after.read_text()))
        before.replace(after)

    monkeypatch.setattr(disk, "rename", rename)
    write(sample(), path)
    assert seen == [(markdown(sample()), "what was there")]


@pytest.mark.parametrize("where", ["missing/a.md", "file/a.md", "folder.md"])
def test_a_place_that_cannot_be_written_to(where: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.md").mkdir()
    path = tmp_path / where
    with pytest.raises(TensorstepError) as told:
        write(sample(), path)
    assert re.fullmatch(
        rf"the report {re.escape(repr(str(path)))} cannot be written \([A-Z][\w ]+\):"
        " give another place",
        str(told.value),
    )
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder.md"}
