"""Keys: each means one thing, all are in the help, none needs a control key, all can be remapped;
and what they do in the table."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from textual.binding import Binding

from engine.service.options import Options
from tests.tui.contract import expected_training
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.actions import ACTIONS, BINDINGS, footer
from tui.app import Tensorstep
from tui.places import Place
from tui.screens.sheets import Choice, Pages, Sheet

BOTH_SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
SIGNS = {
    **{"full_stop": ".", "comma": ",", "semicolon": ";", "colon": ":", "question_mark": "?"},
    "slash": "/",
    **{"percent_sign": "%", "equals_sign": "="},
    **{"left_square_bracket": "[", "right_square_bracket": "]"},
    **{"less_than_sign": "<", "greater_than_sign": ">"},
    **{"pageup": "pgup", "pagedown": "pgdn"},
    **dict.fromkeys(("up", "down", "left", "right"), "arrows"),
    **dict.fromkeys("hjkl", "hjkl"),
}
# of DESIGN.md, as far as this screen has them
CONTRACT = {
    "next": {"n"},
    "previous": {"p"},
    "next_stage": {"N"},
    "back_stage": {"P"},
    "next_step": {"full_stop", "right_square_bracket"},
    "back_step": {"comma", "left_square_bracket"},
    "pane_next": {"tab"},
    "pane_back": {"shift+tab"},
    "close": {"escape"},
    "up": {"up", "k"},
    "down": {"down", "j"},
    "left": {"left", "h"},
    "right": {"right", "l"},
    "page_up": {"pageup"},
    "page_down": {"pagedown"},
    "slice_axis": {"a"},
    "slice_back": {"less_than_sign"},
    "slice_next": {"greater_than_sign"},
    "enter": {"enter"},
    "explanation": {"e"},
    "goto": {"semicolon", "colon"},
    "other_map": {"m"},
    "other_model": {"o"},
    "find": {"slash"},
    "sort": {"s"},
    "heat": {"i"},
    "format": {"percent_sign"},
    "copy": {"y"},
    "follow": {"F"},
    "gradient": {"d"},
    "what_if": {"w"},
    "undo": {"u"},
    "compare": {"equals_sign"},
    "come_back": {"backspace"},
    "help": {"question_mark"},
    "redraw": {"ctrl+l"},
    "leave": {"q", "ctrl+c"},
}


def keys_of(binding: Binding) -> list[str]:
    return [key.strip() for key in binding.key.split(",")]


def bindings_of(screen: Screen) -> dict[str, Binding]:
    """Every key that does something now, Textual's own included."""
    return {key: active.binding for key, active in screen.app.screen.active_bindings.items()}


# --- the registry ----------------------------------------------------------------------------


def test_the_keys_of_the_contract():
    found = {action.id: set(action.keys.split(",")) for action in ACTIONS}
    for id, keys in CONTRACT.items():
        assert found[id] == keys, id
    moves = {key for id in found for key in found[id]}
    assert {"home", "end", "g", "G"} <= moves


def test_no_key_means_two_things():
    counted = Counter(chain.from_iterable(map(keys_of, BINDINGS)))
    assert [key for key, times in counted.items() if times > 1] == []
    for sheet in (Sheet, Pages, Choice):
        counted = Counter(chain.from_iterable(map(keys_of, sheet.BINDINGS)))
        assert [key for key, times in counted.items() if times > 1] == []


def test_every_binding_has_an_id_of_its_own():
    ids = [binding.id for binding in BINDINGS]
    assert ids == [action.id for action in ACTIONS]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    own = [*Sheet.BINDINGS, *Pages.BINDINGS, *Choice.BINDINGS]
    assert all(isinstance(binding, Binding) and binding.id for binding in own)


def test_no_key_needs_control():
    """tmux, screen and editors eat them; the three are those that a terminal always had."""
    keys = set(chain.from_iterable(map(keys_of, BINDINGS)))
    assert {key for key in keys if "ctrl" in key or "alt" in key} == {"ctrl+l", "ctrl+c", "ctrl+z"}


def test_every_action_is_there_to_be_called():
    for binding in BINDINGS:
        name, _, arguments = binding.action.partition("(")
        assert callable(getattr(Tensorstep, f"action_{name}")), binding.id
        assert not arguments or arguments.rstrip(")").lstrip("-").isdigit()


def test_the_footer_is_of_the_registry():
    """All of it where there is room; what matters most at 80 columns, and never more than fits."""
    every = [
        (SIGNS.get(action.keys.split(",")[0], action.keys.split(",")[0]), action.brief)
        for action in ACTIONS
        if action.brief
    ]
    assert footer(10_000) == every
    for width in range(80, 250):
        found = footer(width)
        assert [pair for pair in every if pair in found] == found
        assert len("  ".join(f"{key} {word}" for key, word in found)) <= width
    assert {("n", "next"), ("?", "help"), ("q", "quit")} <= set(footer(80))


# --- on the screen ---------------------------------------------------------------------------


async def test_what_the_screen_binds():
    """Ours and nothing of Textual's that does anything else: no palette, no quit by ctrl+q."""
    async with opened(goto=Place(1, "q")) as screen:
        active = bindings_of(screen)
        ours = {key: binding.id for binding in BINDINGS for key in keys_of(binding)}
        for key, id in ours.items():
            if key not in ("tab", "shift+tab", "ctrl+c"):
                assert active[key].id == id
        others = set(active) - set(ours)
        assert {key for key in others if "ctrl" in key} == set()
        assert "ctrl+q" not in active
        before = screen.lines
        await screen.press("ctrl+q", "ctrl+p", "ctrl+b", "ctrl+s", "ctrl+a", "f1", "z", "Z", "*")
        assert screen.lines == before
        assert screen.app.return_code is None


async def test_keys_can_be_remapped():
    async with opened() as screen:
        screen.app.set_keymap({"next": "x,space", "leave": "Q"})
        await screen.press("x", "space")
        assert screen.state == "tokens"
        await screen.press("n", "q")
        assert screen.state == "tokens"
        await screen.press("Q")
        assert await screen.ended() == 0


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
@BOTH_SIZES
async def test_leaving(key: str, size: tuple[int, int]):
    async with opened(goto=Place(1, "q"), size=size) as screen:
        screen.post(key)
        assert await screen.ended() == 0
        assert screen.app.failure is None


@BOTH_SIZES
async def test_the_footer_is_seen_whole(size: tuple[int, int]):
    async with opened(size=size) as screen:
        words = screen.lines[-1].split()
        assert " ".join(words) == " ".join(word for pair in footer(size[0]) for word in pair)


@BOTH_SIZES
async def test_the_help_lists_every_key(size: tuple[int, int]):
    """And what is shown: name, sentence, formula, role, the letters of the axes."""
    async with opened(goto=Place(1, "weights"), size=size) as screen:
        before = screen.lines
        await screen.press("?")
        seen: list[str] = []
        for _ in range(60):
            screen.check()
            seen += [text for text in screen.lines if text not in seen]
            await screen.press("down")
        told = " ".join(" ".join(text.strip(" │┌┐└┘─") for text in seen).split())
        for words in ("weights", "Each score becomes a share of attention", "softmax(scores)"):
            assert words in told
        assert "activation: computed in this step" in told
        assert "H heads, C vocabulary" in told
        words = told.split()
        for action in ACTIONS:
            if action.shown:
                assert action.what in told, action.id
            for key in action.keys.split(","):
                sign = SIGNS.get(key, key)
                assert sign in words, key
        await screen.press("escape")
        assert screen.lines == before


@pytest.mark.parametrize("key", ["escape", "q", "enter"])
async def test_closing_the_help(key: str):
    async with opened(goto=Place(1, "weights")) as screen:
        before = screen.lines
        await screen.press("?", "pagedown", "k", "j", "pageup", "n", "m", key)
        assert screen.lines == before
        await screen.press("n")
        assert screen.state == "message"


async def test_redraw_changes_nothing():
    async with opened(goto=Place(1, "weights")) as screen:
        before = screen.lines
        await screen.press("ctrl+l")
        assert screen.lines == before


@BOTH_SIZES
async def test_panes_go_round(size: tuple[int, int]):
    async with opened(size=size) as screen:
        seen = []
        for _ in range(6):
            seen.append(screen.focus)
            await screen.press("tab")
        assert seen[0] == "table"
        assert set(seen[:3]) == {"table", "explain", "map"}
        assert seen[3:] == seen[:3]
        await screen.press("shift+tab")
        assert screen.focus == seen[5]
        await screen.press("escape")
        assert screen.focus == "table"


async def test_a_hidden_pane_is_passed_over():
    async with opened() as screen:
        await screen.to_pane("explain")
        await screen.press("e")
        assert screen.focus == "table"
        await screen.press("tab")
        assert screen.focus == "map"
        await screen.press("tab")
        assert screen.focus == "table"


# --- in the table ----------------------------------------------------------------------------


async def test_the_cursor():
    """Arrows and hjkl, no further than the edges; the number under it is the cell's."""
    values = expected_training("attention")[0]["embedding"]
    async with opened(goto=Place(1, "embedding"), size=LARGE) as screen:
        moves = [
            *(("down", (0, 1, 0)), ("j", (0, 2, 0)), ("right", (0, 2, 1)), ("l", (0, 2, 2))),
            *(("up", (0, 1, 2)), ("k", (0, 0, 2)), ("up", (0, 0, 2)), ("left", (0, 0, 1))),
            *(("h", (0, 0, 0)), ("h", (0, 0, 0)), ("end", (0, 0, 3)), ("right", (0, 0, 3))),
            *(("G", (0, 3, 3)), ("down", (0, 3, 3)), ("home", (0, 3, 0)), ("g", (0, 0, 0))),
            *(("pagedown", (0, 3, 0)), ("pageup", (0, 0, 0))),
        ]
        for key, cell in moves:
            await screen.press(key)
            assert screen.cursor[0] == cell, key
            assert screen.number == pytest.approx(float(values[cell]), abs=1e-6)
            assert f"embedding[{','.join(map(str, cell))}] =" in screen.explanation


async def test_the_cursor_is_where_it_says():
    """It is drawn reversed, on the cell whose index the line below names."""
    async with opened(goto=Place(1, "hidden", (1, 2)), size=LARGE) as screen:
        table = screen.app.screen.query_one("#table").content_region
        crops = [
            strip.crop(table.x, table.right) for strip in screen.strips[table.y : table.bottom]
        ]
        reversed_ = [part.text for crop in crops for part in crop if part.style.reverse]
        assert [float(text) for text in reversed_] == [round(screen.number, 4)]


async def test_the_cursor_stays_in_a_state_of_the_same_shape():
    async with opened(goto=Place(1, "scores", (1, 0, 2)), size=LARGE) as screen:
        await screen.press("n")
        assert screen.cursor[0] == (1, 0, 2)
        await screen.press("n", "n")
        assert (screen.state, screen.cursor[0]) == ("message", (0, 0, 0))


async def test_examples_one_by_one():
    """Of [B 2, w 4, d 4] one example is seen at a time; labels and caption go with it."""
    async with opened(goto=Place(1, "embedding"), size=LARGE) as screen:
        assert "B 1 of 2" in screen.table()
        assert "<PAD> <BOS> lily found → a" in screen.table()
        await screen.press(">")
        assert "B 2 of 2" in screen.table()
        assert "<BOS> lily found a → red" in screen.table()
        assert screen.cursor[0] == (1, 0, 0)
        rows = [text.split()[0] for text in screen.pane("table")[4:8]]
        assert rows == ["<BOS>", "lily", "found", "a"]
        await screen.press(">")
        assert screen.cursor[0] == (1, 0, 0)
        await screen.press("<", "<")
        assert screen.cursor[0] == (0, 0, 0)
        rows = [text.split()[0] for text in screen.pane("table")[4:8]]
        assert rows == ["<PAD>", "<BOS>", "lily", "found"]


async def test_heads_one_by_one():
    """a chooses which axis < and > move along: example or head."""
    values = expected_training("multihead")[0]["weights"]
    async with opened(Options(model="multihead"), goto=Place(1, "weights"), size=LARGE) as screen:
        for keys, cell in (
            (["a", ">"], (0, 1, 0, 0)),
            (["a", ">"], (1, 1, 0, 0)),
            (["down", "down"], (1, 1, 0, 2)),
            (["a", "<"], (1, 0, 0, 2)),
            (["<"], (1, 0, 0, 2)),
        ):
            await screen.press(*keys)
            assert screen.cursor[0] == cell
            assert screen.number == pytest.approx(float(values[cell]), abs=1e-6)
        assert "B 2 of 2" in screen.table()
        assert "H 1 of 2" in screen.table()


async def test_each_axis_is_moved_along_by_itself():
    options = Options(model="multihead", heads=4, rows=(0, 2, 3))
    async with opened(options, LARGE, goto=Place(1, "weights")) as screen:
        await screen.press("a", ">", ">", ">")
        assert screen.cursor[0] == (0, 3, 0, 0)
        await screen.press("a", ">", ">", "a", "<")
        assert screen.cursor[0] == (2, 2, 0, 0)
        assert "B 3 of 3" in screen.table()
        assert "H 3 of 4" in screen.table()


async def test_tokens_are_labels():
    """Rows of logits and of the vocabulary's parameters, and the keys of attention."""
    words = ["<PAD>", "<BOS>", "<EOS>", "<UNK>", ".", "a", "ball", "found", "lily", "red"]
    async with opened(size=LARGE) as screen:
        for place in ("1:logits", "1:gradients.vocab_head.bias", "0:parameters.vocab_head.weight"):
            await screen.goto(place)
            found = [text.split()[0] for text in screen.pane("table") if text.strip()]
            assert [label for label in found if label in words] == words
        await screen.goto("1:weights")
        assert [text.split() for text in screen.pane("table")[3:8]] == [
            ["found"],
            ["<PAD>", "0"],
            ["<BOS>", "0.4611"],
            ["lily", "0.2596"],
            ["found", "0.2792"],
        ]
        await screen.goto("1:batch.X")
        assert screen.pane("table")[4].split()[1:5] == ["<PAD>", "0", "<BOS>", "1"]
        await screen.press("end")
        assert screen.pane("table")[4].split()[-4:] == ["lily", "8", "found", "7"]
        await screen.goto("1:batch.y:1")
        assert screen.cursor == ((1,), "9  red")


@BOTH_SIZES
async def test_pages_of_a_long_table(size: tuple[int, int]):
    """Down by pages, to the last row and back; where one is is told."""
    sentence = " ".join(f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(70))
    words = ["<PAD>", "<BOS>", "<EOS>", "<UNK>", *sentence.split()]
    async with opened(Options(sentence=sentence), goto=Place(0, "vocabulary"), size=size) as screen:
        at = 0
        pages = 0
        while at < len(words) - 1:
            await screen.press("pagedown")
            (now,), text = screen.cursor
            assert now > at
            assert text == words[now]
            assert f"row {now + 1} of {len(words)}" in screen.table()
            at, pages = now, pages + 1
        assert pages > 1
        for _ in range(pages):
            await screen.press("pageup")
        assert screen.cursor == ((0,), "<PAD>")
        await screen.press("G")
        assert screen.cursor == ((73,), words[-1])
        await screen.press("g")
        assert screen.cursor == ((0,), "<PAD>")


async def test_columns_of_a_wide_table():
    """The cells beyond the edge come into view with their labels."""
    options = Options(model="mlp", hidden=40)
    async with opened(options, goto=Place(1, "hidden.pre")) as screen:
        for column in range(1, 40):
            await screen.press("right")
            assert screen.cursor[0] == (0, column)
            labels = screen.pane("table")[3].split()
            assert str(column) in labels
            assert f"column {column + 1} of 40" in screen.table()
        await screen.press("home")
        assert screen.cursor[0] == (0, 0)
        assert screen.pane("table")[3].split()[0] == "0"
        await screen.press("end")
        assert screen.cursor[0] == (0, 39)
        screen.check()
