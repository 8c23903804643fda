"""The checkpoints that ship, on the screen: what opens without options, and what `o` opens."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engine.service.options import Options
from engine.service.saved import SHIPPED
from tests.tui.conftest import Command
from tests.tui.screen import LARGE, SMALL, opened
from tests.tui.test_mistakes import Refused, refused
from tui.arguments import options_of, parse
from tui.opened_arguments import WORKED, elsewhere, map_of, options_of_shipped

__all__ = ["refused"]  # the fixture

BOTH = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


def test_without_options_the_first_of_them_opens():
    for arguments in ([], ["--ascii"], ["--temperature", "0.8"], ["--draw-seed", "4"]):
        given = parse(arguments)
        options = options_of(given)
        assert (options.opened, map_of(given)) == (f"checkpoint:{SHIPPED[0]}", "generation")
        assert options.train_steps == 0
        assert options.prompt
    asked = options_of(parse(["--prompt", "ben had a", "--top-p", "0.9"]))
    assert (asked.opened, asked.prompt) == (f"checkpoint:{SHIPPED[0]}", "ben had a")
    for arguments in (["--model", "mlp"], ["--goto", "1:loss"], ["--map", "training"]):
        given = parse(arguments)
        assert options_of(given).opened is None
        assert map_of(given) == "training"


def test_the_worked_sentence_is_an_example():
    given = parse(["open", WORKED])
    assert options_of(given) == Options()
    assert map_of(given) == "training"


@BOTH
async def test_it_writes(size: tuple[int, int]):
    """Through a whole step: the prompt, the model, the choice; and on to the training map."""
    options, kind = options_of_shipped(f"checkpoint:{SHIPPED[0]}")
    async with opened(options, size, kind=kind) as screen:
        screen.check()
        assert screen.app.source == "storybook"
        await screen.goto("1:choice")
        screen.check()
        assert screen.place[1] == "choice"
        await screen.press("m")
        await screen.goto("1:loss")
        screen.check()
        assert 0 < screen.number < 2  # it is trained: a fresh one begins at 7
        if size == LARGE:  # there is room to say so
            assert "training map · after 6,000 training steps · step 1 · loss" in screen.lines[0]


@BOTH
async def test_others_are_opened_instead(size: tuple[int, int]):
    """All are listed, with the worked sentence; each opens at its beginning."""
    options, kind = options_of_shipped(f"checkpoint:{SHIPPED[0]}")
    async with opened(options, size, kind=kind) as screen:
        await screen.press("o")
        for key, title in elsewhere():
            assert title in screen.text, key
        await screen.press("end", *["down"] * 9, "enter")
        assert "lily" in screen.lines[0]
        assert screen.app.walker.kind == "training"
        await screen.goto("1:weights:0,0,1")
        assert screen.number == pytest.approx(0.4611196)
        screen.check()
        await screen.press("o")
        assert "the worked sentence" not in screen.text
        await screen.press("escape")
        app = screen.app
        app.walker.later(lambda: app.open_instead("checkpoint:characters"))
        await screen.settle()
        assert screen.app.source == "logs"
        assert screen.app.walker.kind == "generation"
        await screen.goto("1:choice")
        screen.check()


async def test_another_is_opened_and_draws_the_same_way():
    """So that two models can be compared: the same draw chooses from the probabilities of each."""
    options, kind = options_of_shipped(f"checkpoint:{SHIPPED[0]}")
    drawing = replace(options, temperature=0.5, draw_seed=7)
    draws = []
    async with opened(drawing, LARGE, kind=kind) as screen:
        await screen.goto("1:choice")
        draws.append(re.search(r"the draw\s+([\d.]+)", screen.explanation))
        app = screen.app
        app.walker.later(lambda: app.open_instead("checkpoint:mlp"))
        await screen.settle()
        await screen.goto("1:logits.temperature")
        await screen.goto("1:choice")
        draws.append(re.search(r"the draw\s+([\d.]+)", screen.explanation))
    assert draws[0] is not None
    assert draws[1] is not None
    assert draws[0][1] == draws[1][1]


def test_window_models_write_too(command: Command):
    code, out, err = command("generate", "--checkpoint", "checkpoint:mlp", "--max-new-tokens", 5)
    assert (code, err) == (0, "")
    assert out.strip()


def test_what_the_weights_fix(refused: Refused):
    told = refused("open", "checkpoint:mlp", "--width", 3)
    assert "--width 3 does not fit" in told
    assert "there is no checkpoint 'x': use transformer" in refused("open", "checkpoint:x")
