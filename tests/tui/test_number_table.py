"""How the table shows numbers: order, formats, heat, a summary, tokens found, copies; compared with
what numpy makes of plain PyTorch's numbers."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tui.contract import expected_training
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tests.tui.test_numbers import TOKENS, WIDER
from tui import number_keys
from tui.glyphs import ASCII
from tui.places import Place

BARS = "▁▂▃▄▅▆▇█"


# --- order, formats, summary -----------------------------------------------------------------


def cells_of(screen: Screen) -> dict[str, list[str]]:
    """The rows of a table of tokens by their labels."""
    rows = [line.split() for line in screen.pane("table")[4:]]
    return {row[0]: row[1:] for row in rows if row and row[0] in TOKENS}


@pytest.mark.parametrize(("name", "column"), [("logits", 1), ("probabilities", 0)])
async def test_sorted_by_a_column(name: str, column: int):
    values = expected_training("attention")[0][name][column].double()
    falling = values.argsort(descending=True).tolist()
    async with opened(goto=Place(1, name, (column, 3)), size=LARGE) as screen:
        for order, words in ((falling, "largest first"), (falling[::-1], "smallest first")):
            await screen.press("s")
            assert list(cells_of(screen)) == [TOKENS[i] for i in order]
            assert words in screen.table()
            for i in order[:3]:
                assert screen.cursor[0] == (column, i)
                assert screen.number == pytest.approx(float(values[i]), abs=1e-6)
                assert f"{name}[{column},{i}] = " in screen.explanation
                await screen.press("down")
        await screen.press("s")
        assert list(cells_of(screen)) == TOKENS
        assert " first" not in screen.table()


async def test_three_formats():
    value = float(expected_training("attention")[0]["logits"][0, 9])
    async with opened(goto=Place(1, "logits", (0, 9)), size=LARGE) as screen:
        for told, word in (
            ("", f"{value:.4f}"),
            ("scientific", f"{value:.4e}"),
            ("all digits", f"{value:.9g}"),
            ("four decimals", f"{value:.4f}"),
        ):
            assert screen.said == told
            assert float(cells_of(screen)[TOKENS[9]][0]) == pytest.approx(float(word), abs=2e-8)
            assert len(cells_of(screen)[TOKENS[9]][0]) == pytest.approx(len(word), abs=1)
            screen.check()
            await screen.press("%")


@pytest.mark.parametrize("size", [SMALL, LARGE, WIDER], ids=["80x24", "120x40", "200x50"])
@pytest.mark.parametrize("name", ["logits", "hidden", "scores.masked", "update.W_Q.weight"])
async def test_the_summary_is_numpys(name: str, size: tuple[int, int]):
    """Where there is no room for all of it, no number of it is cut off."""
    values = expected_training("attention")[0][name].double().numpy().ravel()
    finite = values[np.isfinite(values)]
    async with opened(goto=Place(1, name), size=size) as screen:
        (told,) = [line for line in screen.pane("table") if " max " in line]
    zeros, lost = int((values == 0).sum()), len(values) - len(finite)
    figures = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "std": finite.std()}
    expected = [f"{lost} not finite"] if lost else []
    expected += [
        f"{word} {figure:.4f}" if figure else f"{word} 0" for word, figure in figures.items()
    ]
    expected += [f"zeros {100 * zeros / len(values):.0f}%"] if zeros else []
    parts = told.strip().split("  ")
    assert parts == expected[: len(parts)]
    assert len(parts) >= (3 if size == LARGE else len(expected))


# --- heat ------------------------------------------------------------------------------------


def levels(values: np.ndarray) -> np.ndarray:
    """0 to 7: an eighth each of the largest size where both signs are there, else of the range."""
    low, high = values.min(), values.max()
    if low < 0 < high:
        share = np.abs(values) / np.abs(values).max()
    else:
        share = (values - low) / (high - low)
    return np.minimum((share * 8).astype(int), 7)


def background(screen: Screen, text: str) -> set[Any]:
    """The background of what ends with a text, on this screen."""
    found = [s.style for s in screen.segments if s.text.strip() == text and s.style is not None]
    return {None if f.bgcolor is None or f.bgcolor.is_default else f.bgcolor.number for f in found}


@pytest.mark.parametrize("glyphs", ["unicode", "NO_COLOR"])
@pytest.mark.parametrize("name", ["logits", "probabilities"])
async def test_heat(name: str, glyphs: str, monkeypatch: pytest.MonkeyPatch):
    """The right one of eight levels in every cell, as a bar and as a colour of the cube."""
    if glyphs == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    values = expected_training("attention")[0][name].double().numpy()
    expected, low, high = levels(values), values.min(), values.max()
    async with opened(goto=Place(1, name), size=LARGE) as screen:
        await screen.press("i", "G", "l")  # the cursor is on no cell but [1, 9]
        screen.check()
        seen = cells_of(screen)
        colours = {}
        for i, token in enumerate(TOKENS):
            for b in range(2):
                text = f"{values[b, i]:.4f}{BARS[expected[b, i]]}"
                assert seen[token][b] == text
                if (b, i) != (1, 9):
                    (colour,) = background(screen, text)
                    colours.setdefault((values[b, i] < 0, expected[b, i]), set()).add(colour)
        if name == "logits":
            legend = f"heat: 0 {BARS} {max(-low, high):.4f}, by size"
        else:
            legend = f"heat: {low:.4f} {BARS} {high:.4f}"
        assert legend in " ".join(screen.table().split())
        if glyphs == "NO_COLOR":
            assert set().union(*colours.values()) == {None}
        else:
            each = [colour for (colour,) in colours.values()]  # one a level and sign
            assert len(set(each)) == len(each)
            assert all(colour is not None and 16 <= colour < 232 for colour in each)
        await screen.press("i")
        assert "heat" not in screen.table()
        assert cells_of(screen)[TOKENS[0]][0] == f"{values[0, 0]:.4f}"


@pytest.mark.parametrize("name", ["logits", "probabilities"])
async def test_heat_in_ascii(name: str):
    """A mark for each level, which cannot be read as one more digit of the number."""
    values = expected_training("attention")[0][name].double().numpy()
    expected = levels(values)
    async with opened(goto=Place(1, name), size=LARGE, glyphs=ASCII) as screen:
        await screen.press("i")
        screen.check()
        marks: dict[int, set[str]] = {}
        for i, line in enumerate(screen.pane("table")[4:14]):
            found = re.findall(r"(-?\d+\.\d{4}) ([^\d\s])", line)
            assert [number for number, _ in found] == [f"{values[b, i]:.4f}" for b in range(2)]
            for b, (_, mark) in enumerate(found):
                marks.setdefault(int(expected[b, i]), set()).add(mark)
        each = [mark for (mark,) in marks.values()]
        assert len(set(each)) == len(each)


async def test_heat_of_what_is_masked_and_of_what_is_no_number():
    """-inf is dim, NaN and inf are marked, none has a level; the scale is of the others."""
    values = expected_training("attention")[0]["scores.masked"].double().numpy().ravel()
    finite = values[np.isfinite(values)]
    async with opened(goto=Place(1, "scores.masked", (0, 0, 1)), size=LARGE) as screen:
        assert screen.pane("table")[4].split()[:2] == ["<PAD>", "-inf"]
        for keys, text in (("i", "-inf"), ("wnan", "nan"), ("winf", "inf")):
            await screen.press(*keys, *(["enter", "down"] if len(keys) > 1 else []))
            styles = [s.style for s in screen.segments if s.text.strip() == text]
            assert styles
            for style in styles:
                assert style is not None
                assert style.bgcolor is None or style.bgcolor.is_default
                yellow = style.color is not None and style.color.name == "yellow"
                assert (bool(style.dim), yellow) == (
                    (True, False) if text == "-inf" else (False, True)
                )
            if text == "-inf":
                assert f"heat: 0 {BARS} {np.abs(finite).max():.4f}" in screen.table()
            screen.check()


async def test_heat_of_a_difference_is_of_the_differences():
    """Not of the probabilities after the edit, all of which are positive."""
    logits = expected_training("attention")[0]["logits"].double()
    edited = logits.clone()
    edited[0, 0] = 2
    difference = (torch.softmax(edited, -1) - torch.softmax(logits, -1)).numpy()
    assert len(set(levels(difference)[0])) > 2
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await screen.press("w", "2", "enter", "n", "=", "=", "i", "G", "l")
        assert (screen.state, screen.app.table.shows) == ("probabilities", "difference")
        bars = [row[0][-1] for row in cells_of(screen).values()]
        assert bars == [BARS[level] for level in levels(difference)[0]]


# --- tokens, copies --------------------------------------------------------------------------


@pytest.mark.parametrize("place", [Place(1, "logits", (1, 0)), Place(0, "vocabulary")])
async def test_tokens_are_found_round_and_round(place: Place):
    """Whatever the case, from the one under the cursor on; the column stays."""
    holding = [i for i, token in enumerate(TOKENS) if "b" in token.casefold()]
    assert len(holding) > 1
    async with opened(goto=place, size=LARGE) as screen:
        await screen.press("slash", "B", "enter")
        for i in [*holding, holding[0]]:
            assert screen.cursor[0][-1] == i
            assert screen.cursor[0][:-1] == (place.cell or ())[:-1]
            await screen.press("slash", "enter")
        await screen.press("slash", *"zebra", "enter")
        assert screen.said == "no token of the vocabulary holds 'zebra'"


async def test_a_token_is_found_in_a_sorted_table():
    ball = TOKENS.index("ball")
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await screen.press("s", "slash", *"ball", "enter")
        assert screen.cursor[0] == (0, ball)


@pytest.mark.parametrize("name", ["weights", "loss", "hidden"])
async def test_where_no_token_has_a_row_the_corpus_is_searched(name: str):
    async with opened(goto=Place(1, name), size=LARGE) as screen:
        await screen.press("slash")
        assert type(screen.app.screen).__name__ == "CorpusScreen"
        assert screen.app.typing.open
        await screen.press("escape", "escape")
        assert screen.place == (1, name)


@pytest.mark.parametrize("sort", [False, True])
async def test_copies(sort: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """All digits, tabs between cells; as text to the clipboard, or to a file where it is much."""
    logits = expected_training("attention")[0]["logits"]
    copied: list[str] = []
    async with opened(goto=Place(1, "logits", (1, 2)), size=LARGE) as screen:
        monkeypatch.setattr(screen.app, "copy_to_clipboard", copied.append)
        if sort:
            await screen.press("s", "down", "down")
        for keys in ([], ["down"], ["down", "down"]):
            await screen.press("y", *keys, "enter")
            assert "sent to the terminal's clipboard (OSC 52)" in screen.said
        row = int(logits[1].argsort(descending=True)[2]) if sort else 2
        order = logits[1].argsort(descending=True) if sort else torch.arange(10)
        for text, expected in zip(
            copied,
            (logits[1:, row : row + 1], logits[:, row : row + 1], logits[:, order]),
            strict=True,
        ):
            numbers = [[float(cell) for cell in line.split("\t")] for line in text.split("\n")]
            assert np.allclose(numbers, expected.T.double().numpy(), atol=1e-6)
        number = float(copied[0])
        assert number == np.float64(np.float32(number))  # float32, none of its digits lost
        await screen.press("y", "escape")
        assert len(copied) == 3
        monkeypatch.setattr(number_keys, "CLIPBOARD", len(copied[2]) - 1)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        await screen.press("y", "down", "down", "enter")
        (file,) = tmp_path.iterdir()
        assert "too much for a terminal's clipboard: written to" in screen.said
        assert str(file)[:20] in screen.said
        assert file.read_text() == copied[2] + "\n"
        assert len(copied) == 3


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
async def test_heat_of_what_has_none(size: tuple[int, int]):
    """Texts and single numbers stay as they are, and the heat comes back with the next tensor."""
    async with opened(size=size) as screen:
        before = screen.lines
        await screen.press("i")
        assert screen.lines == before
        for place in ("0:vocabulary:3", "1:loss", "1:logits:0,7"):
            await screen.goto(place)
            screen.check()
        assert "heat:" in screen.table()
        await screen.press("m")
        assert screen.state == "prompt"
