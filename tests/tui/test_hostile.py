"""Text from outside on the screen: shown, never obeyed, and nothing beside it moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from wcwidth import wcswidth

from engine.service.options import Options
from tests.tui.contract import PREPARATION, PROMPT, generation_names, training_names
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.glyphs import ASCII
from tui.places import Place

# markup, escape sequences, control characters, bidi overrides, zero width, combining marks, wide
# characters, emoji with selectors and joiners, a filler, and a long token
HOSTILE = (
    "[red] [/] [bold red]x[/bold red] [link=http://x] \x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b1m"
    " \x07 \x08 \x7f \x85 \u202e\u2066\u2069 \u200b\u200d\ufeff a\u0301e\u0308\u0323 \u0301 漢字 語"
    " 한국 👍🏽 ❤\ufe0f 👨\u200d👩\u200d👧 🇩🇪 \u3164 \u115f \\ \\n {} {0} %s ${x} $(x) `x` "
    + "long"
    * 20
)
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


def check_hostile(screen: Screen) -> None:
    """Widths are right, nothing could be obeyed, and no style came out of the text."""
    screen.check()
    for segment in screen.segments:
        if segment.style is not None:
            assert not segment.style.link
            colour = segment.style.color
            assert colour is None or colour.is_default or colour.name in ("cyan", "yellow")
            assert not segment.style.meta.get("@click")


@pytest.mark.parametrize("model", ["mlp", "multihead"])
@SIZES
async def test_hostile_text_everywhere(model: str, size: tuple[int, int]):
    """Every state of both maps, every row that has a token for a label."""
    options = Options(model=model, sentence=HOSTILE, tokens=1, width=2, hidden=2, rows=(0, 20))
    async with opened(options, size) as screen:
        for names in (
            [*PREPARATION, *training_names(model)],
            [*PROMPT, *generation_names(model)],
        ):
            for name in names:
                assert screen.state == name
                check_hostile(screen)
                if name in ("tokens", "vocabulary", "logits", "windows.contexts"):
                    await screen.press("G")
                    check_hostile(screen)
                await screen.press("n")
            await screen.press("m")


async def test_hostile_text_is_shown():
    """Literally where it is visible, as escapes where it is not."""
    async with opened(Options(sentence=HOSTILE), size=(250, 40)) as screen:
        told = " ".join(screen.pane("explain"))
        for text in (
            "[red]",
            "[/]",
            "\\e[31mred\\e[0m",
            "\\x9b1m",
            "\\u{202e}",
            "漢字",
            "\\u{200b}",
        ):
            assert text in screen.table() + told


async def test_every_hostile_token():
    """The cell under the cursor, its label and its explanation say the same of every token."""
    async with opened(Options(sentence=HOSTILE), LARGE, goto=Place(0, "vocabulary")) as screen:
        before = None
        while True:
            index, text = screen.cursor
            if index == before:
                break
            before = index
            assert text
            assert f"vocabulary[{index[0]}] = {text}"[:60] in screen.explanation
            check_hostile(screen)
            await screen.press("down")
        assert before is not None
        assert before[0] > 40


@SIZES
async def test_hostile_labels_do_not_move_numbers(size: tuple[int, int]):
    """The numbers beside tokens end in one column, whatever the tokens are."""
    async with opened(Options(sentence=HOSTILE, model="mlp"), size) as screen:
        await screen.goto("1:logits")
        seen: set[str] = set()
        for _ in range(20):
            rows = [text.rstrip() for text in screen.pane("table")[4:-2] if text.strip()]
            assert len({cell_len(row) for row in rows}) == 1, rows
            assert len({wcswidth(row) for row in rows}) == 1, rows
            seen.update(rows)
            await screen.press("pagedown")
        assert len(seen) > 40


async def test_hostile_names_of_files(tmp_path: Path):
    """In the top line."""
    file = tmp_path / "\x1b[31m[red]\u202e.txt"
    file.write_text("one two three")
    async with opened(Options(text=str(file)), LARGE) as screen:
        assert "\\e[31m[red]\\u{202e}.txt · one head" in screen.lines[0]
        check_hostile(screen)


async def test_names_of_files_that_are_not_utf8(tmp_path: Path):
    """They can be opened, and are shown."""
    file = tmp_path / b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    file.write_text("one two three")
    async with opened(Options(text=str(file)), LARGE) as screen:
        assert "caf\\u{dce9}.txt" in screen.lines[0]
        assert "one two three" in screen.table()
        check_hostile(screen)


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_hostile_places(ascii_only: bool):
    """What is typed comes back in the sentence, as data."""
    more = {"glyphs": ASCII} if ascii_only else {}
    async with opened(size=LARGE, **more) as screen:
        for text in (
            "[red]x[/red]",
            "1:[/]:0",
            "1:weights:[bold]",
            "漢:字",
            "1:e\u0301",
            "x\u202e",
        ):
            await screen.goto(text)
            assert screen.said
            check_hostile(screen)
            assert not ascii_only or screen.text.isascii()


async def test_a_hostile_prompt():
    options = Options(prompt=f"lily {HOSTILE}", tokens=1)
    async with opened(options, LARGE, kind="generation") as screen:
        assert "[red]" in screen.table()
        for _ in range(2):
            check_hostile(screen)
            await screen.press("n")
    options = Options(prompt="\x1b[31m [/]")
    async with opened(options, LARGE) as screen:
        await screen.press("m")
        assert "has no token of the vocabulary" in screen.said
        assert "\\x1b[31m [/]" in screen.said
        check_hostile(screen)
