"""Inside a transformer (I): the logit lens, the stream, contributions and the cache, as they are
seen; against the lens of another session over the same model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.lens import Lens
from engine.service.client import Client
from engine.service.options import Options
from engine.service.session import Session
from tests.tui.screen import LARGE, PATIENCE, SMALL, Screen, opened
from tui.cells import written
from tui.glyphs import ASCII
from tui.places import Place

STORIES = Path(__file__).resolve().parents[3] / "shared" / "models" / "stories260K"
OPTIONS = Options(
    model="transformer", blocks=2, width=8, hidden=12, train_steps=3, prompt="Lily found"
)
WRITING = replace(OPTIONS, context=6, rows=(0,), seed=12)  # writes more than a token
HUGE = (200, 50)
BOTH = pytest.mark.parametrize("size", [SMALL, LARGE, HUGE], ids=["80x24", "120x40", "200x50"])


@cache
def session() -> Session:
    return Session(OPTIONS)


@cache
def writing() -> Session:
    return Session(WRITING)


def lens_at(step: int, kind: str = "training", model: str = "transformer") -> Lens:
    walk = (session() if kind == "training" else writing()).walk(kind, model)
    walk.seek(step, "logits")
    return Lens(walk, step)


def tokens() -> Any:
    return session().prepared.tokenizer.itos


def lines_of(screen: Screen) -> list[str]:
    return [line.rstrip() for line in screen.pane("reading")]


def rows_of(screen: Screen) -> dict[str, list[list[str]]]:
    """The rows of a table by their labels, each with the lines below it; the heading is ''."""
    rows: dict[str, list[list[str]]] = {}
    label = ""
    for line in lines_of(screen)[4:-1]:
        name, *cells = line[:11].strip(), *line[11:].split()
        label = name or label
        if line.strip():
            rows.setdefault(label, []).append(cells)
    return rows


@BOTH
@pytest.mark.parametrize("example", [0, 1])
async def test_the_logit_lens(size: tuple[int, int], example: int):
    lens = lens_at(3)
    async with opened(OPTIONS, size, goto=Place(3, "logits")) as screen:
        await screen.press("I", *[">"] * example)
        screen.check()
        lines = lines_of(screen)
        assert lines[0].startswith("inside [logit lens] stream  contributions  cache    step 3")
        assert lines[2] == f"example {example + 1} of 2  position 4 of 4"
        rows = rows_of(screen)
        assert list(rows) == ["", "embedding", "block 0", "block 1"]
        heading = rows[""][0]
        ids = session().walk("training").fetch("batch.X", 3)[example].tolist()
        assert [each.removeprefix("▸") for each in heading] == [tokens()[i] for i in ids]
        assert [each.startswith("▸") for each in heading] == [False] * 3 + [True]
        for after, label in enumerate(("embedding", "block 0", "block 1")):
            most = lens.logits(after)[example].softmax(-1).max(-1)
            assert rows[label][0] == [tokens()[i] for i in most.indices]
            assert rows[label][1] == [written(p) for p in most.values.tolist()]
        choice = session().walk("training").fetch("logits", 3)[example].argmax(-1)
        assert rows["block 1"][0] == [tokens()[i] for i in choice]


@BOTH
async def test_the_stream(size: tuple[int, int]):
    norms = lens_at(2).norms()
    async with opened(OPTIONS, size, goto=Place(2, "logits")) as screen:
        await screen.press("I", "tab")
        screen.check()
        assert "[stream]" in lines_of(screen)[0]
        rows = rows_of(screen)
        for after, label in enumerate(("embedding", "block 0", "block 1")):
            assert rows[label] == [[written(n) for n in norms[after, 0].tolist()]]


async def test_contributions():
    lens = lens_at(3)
    async with opened(OPTIONS, LARGE, goto=Place(3, "logits")) as screen:
        await screen.press("I", "tab", "tab", "left")
        screen.check()
        logits = session().walk("training").fetch("logits", 3)[0, 2].detach()
        wanted = int(logits.argmax())
        lines = lines_of(screen)
        assert lines[2] == "example 1 of 2  position 3 of 4"
        assert lines[4].startswith(f"the logit of {tokens()[wanted]} after ")
        assert f": {written(float(logits[wanted]))}" in lines[4]
        parts = sorted(lens.written(0, 2, wanted), key=lambda each: -abs(each.share))
        total = sum(part.share for part in parts)
        assert total == pytest.approx(float(logits[wanted]), abs=1e-4)
        told = f"added up: {written(total)} in {len(parts)} parts, the largest first"
        assert lines[5] == told
        largest = abs(parts[0].share)
        for line, part in zip(lines[7:], parts, strict=False):
            assert line.startswith(part.part)
            assert line[28:38].strip() == written(part.share)
            bar = line[40:]
            assert set(bar) <= ({"━"} if part.share > 0 else {"─"})
            assert len(bar) == round((120 - 42) * abs(part.share) / largest)


async def test_another_token():
    lens = lens_at(3)
    async with opened(OPTIONS, LARGE, goto=Place(3, "logits")) as screen:
        await screen.press("I")
        await screen.press("slash")
        assert "the logit of" in lines_of(screen)[-1]
        await screen.press_at_once(*"bal", "enter")
        lines = lines_of(screen)
        assert lines[4].startswith("the logit of ball after ")
        total = sum(p.share for p in lens.written(0, 3, tokens().index("ball")))
        assert lines[5].startswith(f"added up: {written(total)} in ")
        await screen.press("slash")
        await screen.press_at_once(*"zebra", "enter")
        assert lines_of(screen)[-1] == "no token of the vocabulary holds 'zebra'"
        screen.check()
        await screen.press("left")
        assert lines_of(screen)[2] == "example 1 of 2  position 3 of 4"
        await screen.press("slash", "escape", "escape")
        assert screen.state == "logits"


async def test_a_token_alone_is_no_key_of_the_walk():
    """What is typed goes there, also the keys that turn pages or close."""
    async with opened(OPTIONS, LARGE, goto=Place(3, "logits")) as screen:
        await screen.press("I", "slash")
        await screen.press_at_once(*"qq?")
        assert "qq?" in lines_of(screen)[-1]


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
async def test_columns_scroll_with_the_position(size: tuple[int, int]):
    """A text longer than the screen is wide, each position with its token."""
    if not STORIES.is_dir():
        pytest.skip("models/stories260K is not there")
    prompt = "Once upon a time there was a little girl named Lily who found a red ball"
    options = Options(model="checkpoint", opened=str(STORIES), prompt=prompt, context=16)
    options = Options.from_json({**options.to_json(), "train_steps": 0})
    more = {"kind": "generation", "goto": Place(1, "logits")}
    async with opened(options, size, **more) as screen:
        await screen.press("I")
        screen.check()
        seen = (size[0] - 11) // 11
        count = int(lines_of(screen)[2].split()[-1])
        assert count > seen
        told = []
        for position in range(count, 0, -1):
            assert lines_of(screen)[2] == f"position {position} of {count}"
            heading = rows_of(screen)[""][0]
            assert len(heading) == seen
            (here,) = [each for each in heading if each.startswith("▸")]
            told.append(here.removeprefix("▸"))
            await screen.press("left")
        wanted = session_tokens(options)
        assert told[::-1] == wanted
        await screen.press("end")
        assert lines_of(screen)[2] == f"position {count} of {count}"
        await screen.press("home", "right")
        assert lines_of(screen)[2] == f"position 2 of {count}"


def session_tokens(options: Options) -> list[str]:
    from engine.service.opened import open_session

    made = open_session(options)
    ids = made.walk("generation").process.ids
    return [made.prepared.tokenizer.itos[i].replace(" ", "␣") for i in ids]


async def test_rows_scroll_where_there_are_many_blocks():
    options = Options(model="transformer", blocks=14)
    async with opened(options, SMALL, goto=Place(1, "logits")) as screen:
        await screen.press("I")
        assert list(rows_of(screen))[1:] == ["embedding", *(f"block {i}" for i in range(8))]
        await screen.press("down", "j")
        assert list(rows_of(screen))[1:] == [f"block {i}" for i in range(1, 10)]
        await screen.press("pagedown", "pagedown")
        assert list(rows_of(screen))[1:] == [f"block {i}" for i in range(5, 14)]
        await screen.press("tab")
        assert len(rows_of(screen)) == 1 + 15
        await screen.press("tab", "pagedown", "pagedown", "pagedown", "pagedown", "pagedown")
        screen.check()
        parts = [line for line in lines_of(screen)[7:-1] if line.strip()]
        assert len(parts) == 24 - 5 - 3
        await screen.press("up")
        assert lines_of(screen)[8:-1] == parts[:-1]


async def test_the_cache():
    more = {"kind": "generation", "goto": Place(3, "logits")}
    for model, used in (("transformer", False), ("transformer:cached", True)):
        async with opened(WRITING, SMALL, **more) as screen:
            if used:
                await screen.app.walker.open("generation", model)
                await screen.goto("3:logits")
            await screen.press("I", "shift+tab")
            screen.check()
            lines = lines_of(screen)
            assert "[cache]" in lines[0]

            def cost(seen: int, new: int) -> int:
                return new * (2 * (8 * 8 * 4 + 16 * seen + 2 * 8 * 12) + 8 * 10)

            assert lines[5].split()[-2:] == [f"{cost(5, n):,}" for n in (1, 5)]
            kept = 2 * 2 * 5 * 8 * 4
            assert f"{kept:,} bytes" in lines[7]
            assert lines[9] == "positions: 5, of which a cache reuses 4; new: 1"
            own = "this walk keeps them" if used else "this walk computes all positions anew"
            assert lines[10].startswith(own)


async def test_with_a_cache_there_is_only_the_new_position():
    lens = lens_at(3, "generation", "transformer:cached")
    more = {"kind": "generation", "goto": Place(3, "logits")}
    async with opened(WRITING, SMALL, **more) as screen:
        await screen.app.walker.open("generation", "transformer:cached")
        await screen.goto("3:logits")
        await screen.press("I")
        screen.check()
        assert lines_of(screen)[2] == "position 5 of 5  the 4 before are kept"
        most = lens.logits(2)[0].softmax(-1).max(-1)
        assert rows_of(screen)["block 1"][0] == [tokens()[int(most.indices[0])]]
        await screen.press("left", "right", "home", "end")
        assert lines_of(screen)[2] == "position 5 of 5  the 4 before are kept"


@pytest.mark.parametrize("model", ["mlp", "attention", "multihead", "bigram"])
async def test_other_models_have_no_stream(model: str):
    async with opened(Options(model=model), LARGE, goto=Place(1, "logits")) as screen:
        await screen.press("I")
        assert screen.said == "the lens reads a stream of blocks: open a transformer"
        assert type(screen.app.screen).__name__ == "Ground"


async def test_before_there_are_logits():
    async with opened(OPTIONS, SMALL, goto=Place(0, "stories")) as screen:
        await screen.press("I")
        screen.check()
        assert "step 0 has no logits yet: go on to them first" in screen.text
        assert "reading" not in screen.text
        await screen.press("left", "down", ">", "escape")
        assert screen.state == "stories"


async def test_cache_page_on_the_training_map():
    async with opened(OPTIONS, SMALL, goto=Place(1, "logits")) as screen:
        await screen.press("I", "shift+tab")
        assert "keys and values are kept while generating: m goes to that map" in screen.text
        await screen.press("tab")
        assert "keys and values" not in screen.text
        assert "block 1" in screen.text


@pytest.mark.parametrize("page", range(4))
async def test_in_ascii(page: int):
    more = {"kind": "generation", "goto": Place(2, "logits"), "glyphs": ASCII}
    async with opened(OPTIONS, SMALL, **more) as screen:
        await screen.press("I", *["tab"] * page)
        screen.check()
        assert "\n".join(lines_of(screen)).isascii()


async def test_tokens_are_data():
    """Wide characters, escapes and markup take their cells and no more."""
    text = "漢字 [red]x \x1b[31m \u202e 👍🏽 end"
    options = Options(model="transformer", sentence=text, tokenizer="characters", context=8)
    async with opened(options, SMALL, goto=Place(2, "logits")) as screen:
        await screen.press("I")
        screen.check()
        await screen.press("left", "left", "tab", "tab")
        screen.check()


async def test_the_terminal_changes_its_size():
    async with opened(OPTIONS, LARGE, goto=Place(2, "logits")) as screen:
        await screen.press("I", "left")
        before = rows_of(screen)
        for size in (SMALL, HUGE, LARGE):
            await screen.resize(*size)
            screen.check()
            assert rows_of(screen) == before


async def test_help_and_closing():
    async with opened(OPTIONS, LARGE, goto=Place(2, "logits")) as screen:
        await screen.press("I", "?")
        assert "the logit of another token" in screen.text
        await screen.press("escape", "q")
        assert screen.state == "logits"


class Real(Client):
    gate = None


async def test_with_a_worker_of_its_own():
    """The same over a pipe, in another process."""
    most = lens_at(2).logits(2)[0].softmax(-1).max(-1)
    wanted = [tokens()[i] for i in most.indices]
    async with opened(OPTIONS, LARGE, client=Real()) as screen:
        async with asyncio.timeout(PATIENCE):
            while not screen.app.walker.ready:
                await asyncio.sleep(0.02)
            for typed, until in (([";", *"2:logits", "enter"], " step 2 "), (["I"], "block 1")):
                await screen.press(*typed)
                while until not in screen.text:
                    await asyncio.sleep(0.02)
                    await screen.settle()
        assert rows_of(screen)["block 1"][0] == wanted
