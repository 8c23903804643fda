"""The frame: sizes, alphabets, colours, the loss curve; every state of both maps in ASCII."""

from __future__ import annotations

import pytest
from rich.color import ColorType
from rich.segment import Segment

from engine.service.options import Options
from tests.tui.contract import (
    MODELS,
    PREPARATION,
    PROMPT,
    expected_training,
    generation_names,
    training_names,
)
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.glyphs import ASCII
from tui.places import Place

BOTH_SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(79, 24), (80, 23), (79, 23), (60, 15), (40, 2)])
async def test_smaller_than_the_smallest(size: tuple[int, int]):
    """One sentence and nothing else; back in size the walk is where it was, keys and all."""
    async with opened(goto=Place(1, "weights", (1, 0, 2))) as screen:
        before = screen.lines
        await screen.resize(*size)
        sentence = f"tensorstep needs 80x24, this is {size[0]}x{size[1]}: enlarge it"
        assert screen.text.split() == sentence.split()
        screen.check()
        await screen.resize(80, 24)
        assert screen.lines == before
        await screen.press("up", "n")
        assert screen.state == "message"


async def test_keys_count_while_the_terminal_is_too_small():
    async with opened(goto=Place(1, "q")) as screen:
        await screen.resize(70, 20)
        await screen.press("n", "n")
        assert "needs 80x24" in screen.text
        await screen.resize(120, 40)
        assert screen.place == (1, "V")


@pytest.mark.parametrize(
    "size", [(80, 24), (81, 33), (109, 24), (110, 24), (110, 60), (200, 50), (300, 100), (81, 100)]
)
async def test_every_size_is_filled(size: tuple[int, int]):
    """Opened in it or resized to it: the same screen, every line as wide as the terminal."""
    async with opened(goto=Place(1, "gradients.position_embedding.weight"), size=size) as screen:
        screen.check()
        assert screen.state == "gradients.position_embedding.weight"
        assert "gradient" in screen.table()
        assert "quit" in screen.lines[-1]
        opened_in_it = screen.lines
    async with opened(goto=Place(1, "gradients.position_embedding.weight")) as screen:
        await screen.resize(*size)
        assert screen.lines == opened_in_it


async def test_the_explanation_is_beside_the_table_or_below_it():
    async with opened(goto=Place(1, "q"), size=(110, 24)) as screen:
        assert any("q " in text and "EXPLANATION" in text for text in screen.lines)
        await screen.resize(109, 24)
        (below,) = [text for text in screen.lines if "EXPLANATION" in text]
        assert below.split() == ["EXPLANATION"]


# --- alphabets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "size"), [("mlp", LARGE), ("attention", SMALL), ("multihead", LARGE)]
)
async def test_ascii_only(model: str, size: tuple[int, int]):
    """Every state of both maps, and no character of ours without a spelling."""
    async with opened(Options(model=model, tokens=1), size, glyphs=ASCII) as screen:
        for names in (
            [*PREPARATION, *training_names(model)],
            [*PROMPT, *generation_names(model)],
        ):
            for name in names:
                assert screen.state == name
                assert screen.text.isascii(), screen.text
                assert "?" not in screen.text.replace("? help", "").replace("finished?", "")
                screen.check()
                await screen.press("n")
            await screen.press("m")


async def test_sheets_in_ascii():
    async with opened(size=SMALL, glyphs=ASCII, goto=Place(1, "logits")) as screen:
        for key in ("?", "o", ";"):
            await screen.press(key)
            assert screen.text.isascii(), screen.text
            await screen.press("down")
            assert screen.text.isascii()
            await screen.press("escape")
        for key in ("tab", "tab", "G", "n"):
            await screen.press(key)
            assert screen.text.isascii(), screen.text
        await screen.goto("1:é")
        assert "is called '\\xe9'" in screen.said
        await screen.resize(60, 10)
        assert screen.text.isascii()


async def test_tokens_in_ascii_are_escaped_everywhere_alike():
    """A token is data: no spelling of ours is put in place of one of its characters."""
    options = Options(sentence="café · → ² naïve", model="mlp")
    async with opened(options, LARGE, glyphs=ASCII) as screen:
        tokens = ["caf", "\\xe9", "\\xb7", "\\u{2192}", "2", "na", "\\xef", "ve"]
        for row, token in enumerate(tokens):
            await screen.goto(f"0:tokens:{row}")
            assert screen.cursor[1] == token
            assert f"tokens[{row}] = {token} " in screen.explanation
            assert screen.text.isascii()
        await screen.goto("0:stories")
        assert "caf\\xe9 \\xb7 \\u{2192} \\xb2 na\\xefve" in screen.explanation


# --- colours ---------------------------------------------------------------------------------


def colours(segment: Segment) -> list[str]:
    style = segment.style
    found = [style.color, style.bgcolor] if style else []
    return [colour.name for colour in found if colour is not None and not colour.is_default]


async def walk_a_little(screen: Screen) -> list[Segment]:
    """What is drawn on the way: states, panes, a warning, the sheets."""
    seen = []
    for keys in (["n"], ["tab"], ["tab"], ["escape"], ["?"], ["escape"], ["o"], ["escape"]):
        await screen.press(*keys)
        seen += screen.segments
    await screen.goto("1:weights:9,9,9")
    assert "there is no cell" in screen.text
    seen += screen.segments
    await screen.press("n")
    return [*seen, *screen.segments]


async def test_no_colour(monkeypatch: pytest.MonkeyPatch):
    """And all that colour says is still there: the cursor, where one is, the warning."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(size=LARGE) as screen:
        segments = await walk_a_little(screen)
        assert {colour for segment in segments for colour in colours(segment)} == set()
        assert any(segment.style and segment.style.reverse for segment in screen.segments)
        assert any(segment.style and segment.style.bold for segment in screen.segments)
        assert any("▸" in text and "message" in text for text in screen.lines)


async def test_only_the_terminals_own_colours():
    """The sixteen that every terminal has, so that a theme of the user's is kept."""
    async with opened(size=LARGE) as screen:
        for segment in await walk_a_little(screen):
            for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                if colour is not None:
                    assert colour.type in (ColorType.DEFAULT, ColorType.STANDARD), colour


# --- the top line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "place", "words"),
    [
        (Options(), "training", Place(1, "weights"), "lily · one head · training map · step 1"),
        (Options(model="mlp"), "training", Place(2, "loss"), "window MLP · training map · step 2"),
        (
            Options(model="multihead", train_steps=3),
            "generation",
            Place(1, "choice"),
            "generation map · after 3 training steps · step 1 · choose",
        ),
        (Options(), "generation", None, "after 1 training step · step 0 · prompt"),
        (Options(train_steps=0), "generation", None, "after 0 training steps · step 0"),
        (Options(sentence="a b"), "training", None, "your sentence · one head · training map"),
    ],
)
@BOTH_SIZES
async def test_the_top_line(
    options: Options, kind: str, place: Place | None, words: str, size: tuple[int, int]
):
    async with opened(options, size, kind=kind, goto=place) as screen:
        assert screen.lines[0].startswith("tensorstep  ")
        assert words in screen.lines[0]
        assert screen.lines[0].rstrip().endswith("cpu")


async def test_the_loss_is_in_the_top_line():
    """Of the step that is shown, once it is known."""
    losses = [each["loss"].item() for each in expected_training("mlp", steps=2)]
    async with opened(Options(model="mlp"), size=LARGE) as screen:
        assert "loss" not in screen.lines[0].partition("step")[2].replace("· loss", "")
        await screen.goto("2:gradients.norm")
        assert f"loss {losses[1]:.4f}" in screen.lines[0]
        await screen.goto("1:gradients.norm")
        assert f"loss {losses[0]:.4f}" in screen.lines[0]


# --- the loss curve --------------------------------------------------------------------------


def points(screen: Screen) -> list[tuple[int, int]]:
    """Row and column of each point of the curve, from its upper left corner."""
    rows = [text.partition("│")[2] for text in screen.pane("curve") if "│" in text]
    return sorted(
        (column, row) for row, text in enumerate(rows) for column in range(len(text))
        if text[column] == "•"
    )  # fmt: skip


async def test_the_curve_of_the_losses():
    """One column a step, the highest loss on the highest line, the lowest on the lowest."""
    losses = [each["loss"].item() for each in expected_training("mlp", steps=6)]
    assert losses == sorted(losses, reverse=True)
    async with opened(Options(model="mlp"), size=LARGE, goto=Place(6, "loss")) as screen:
        pane = screen.pane("curve")
        assert pane[0].startswith("LOSS")
        assert f"{losses[0]:.4f}" in pane[1]
        assert f"{losses[-1]:.4f}" in pane[-2]
        assert "steps 1 to 6" in pane[-1]
        assert f"at 6: {losses[5]:.6f}" in pane[-1]
        found = points(screen)
        assert [column for column, _ in found] == list(range(6))
        rows = [row for _, row in found]
        assert rows == sorted(rows)
        assert (rows[0], rows[-1]) == (0, len(pane) - 3)
        low, high = losses[-1], losses[0]
        for row, loss in zip(rows, losses, strict=True):
            share = (high - loss) / (high - low)
            assert abs(row / rows[-1] - share) <= 0.5 / rows[-1] + 1e-9
        await screen.goto("2:loss")
        assert f"at 2: {2.2394907474517822:.6f}" in screen.pane("curve")[-1]


async def test_where_the_curve_is_seen():
    """Always on a large screen of the training map; on a small one on the loss alone."""
    async with opened(size=LARGE) as screen:
        assert "LOSS" in screen.text
        assert "none yet: the first comes with step 1" in " ".join(screen.pane("curve"))
        await screen.press("m")
        assert screen.pane("curve") == []
        await screen.press("m")
        assert screen.pane("curve") != []
    async with opened(Options(model="mlp"), SMALL, goto=Place(2, "loss")) as screen:
        assert f"{2.2394907474517822:.4f}" in " ".join(screen.pane("curve"))
        assert screen.cursor[0] == ()
        assert screen.number == pytest.approx(2.2394907474517822, abs=1e-6)
        await screen.press("n")
        assert screen.pane("curve") == []
        await screen.press("p", "p")
        assert screen.pane("curve") == []


async def test_curves_of_models_are_their_own():
    first = {model: expected_training(model)[0]["loss"].item() for model in MODELS}
    async with opened(size=LARGE) as screen:
        for model, key in zip(("attention", "multihead", "mlp"), ("down", "up", "up"), strict=True):
            await screen.goto("1:loss")
            assert f"at 1: {first[model]:.6f}" in screen.pane("curve")[-1]
            await screen.press("o", key, "enter")
            if model == "multihead":
                await screen.press("o", "up", "enter")
