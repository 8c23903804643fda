"""What was opened, on the screen and in the headless commands: its name in the top line, and a
module of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.service.options import Options
from tests.tui.conftest import Command
from tests.tui.screen import LARGE, SMALL, opened
from tests.tui.test_inside_screen import STORIES
from tui.names import source_name
from tui.places import Place

OWN = """
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    return model, lambda step: model(torch.full((2, 3), float(step))).square().mean()

def forward():
    return nn.Linear(3, 2), torch.ones(2, 3)

def breaks():
    model, loss = make()
    return model, lambda step: loss(step) if step < 2 else 1 / 0
"""
BOTH = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of one's own in the folder one stands in."""
    monkeypatch.chdir(tmp_path)
    name = f"screened_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    return name


def module(name: str, factory: str = "make") -> Options:
    return Options(model="module", opened=f"module:{name}:{factory}")


def test_names_of_what_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for given, name in (
        ("example:money-bank-4", "money-bank-4"),
        ("module:pkg.nets:make", "pkg.nets:make"),
        (str(tmp_path), tmp_path.name),
        (".", tmp_path.name),
        ("owner/name", "owner/name"),
    ):
        assert source_name(Options(opened=given), "a corpus") == name


@BOTH
async def test_the_top_line_of_an_example(size: tuple[int, int]):
    options = Options(model="money-bank-2", opened="example:money-bank-2", train_steps=0)
    async with opened(options, size, kind="generation") as screen:
        assert "money-bank-2" in screen.lines[0]
        assert "lily" not in screen.lines[0]
        assert "training steps" not in screen.lines[0]


async def test_the_top_line_of_a_checkpoint():
    if not STORIES.is_dir():
        pytest.skip("models/stories260K is not there")
    options = Options(model="checkpoint", opened=str(STORIES), train_steps=0, context=16, prompt="")
    async with opened(options, LARGE, kind="generation") as screen:
        assert "stories260K · checkpoint · generation map · step 0" in screen.lines[0]


async def test_the_worked_sentence_still_says_after_how_many_steps():
    async with opened(Options(), LARGE, kind="generation") as screen:
        assert "lily · one head · generation map · after 1 training step" in screen.lines[0]


@BOTH
async def test_a_module_of_ones_own(own: str, size: tuple[int, int]):
    async with opened(module(own), size) as screen:
        assert screen.state == "modules"
        assert "Linear" in screen.table()
        await screen.press("n")
        assert screen.state == "modules.0"
        await screen.press("N")
        assert screen.state == "loss"
        assert "your own code gives" in " ".join(screen.text.split())
        assert "LOSS  as your code gives it" in screen.text
        assert "nats" not in screen.text  # it may be anything
        await screen.press("N", "N")
        assert screen.state == "update.0.weight"
        await screen.press(".", "p", "p")
        assert screen.place == (2, "gradients.2.bias")
        screen.check()
        await screen.press("F")
        assert "follow  2.bias[0]" in screen.text
        screen.check()
        await screen.press("escape", "V")
        assert "norms  of every parameter in step 1" in screen.text
        await screen.press("escape", "I")
        assert screen.said == "the lens reads a stream of blocks: open a transformer"
        await screen.press("m")
        assert screen.said == "a module of your own has the training map: there is no other"
        await screen.press("C")
        assert "a module of your own comes without texts" in screen.text
        screen.check()


async def test_from_an_output_to_its_gradient_and_back(own: str):
    async with opened(module(own), LARGE, goto=Place(1, "update.0.weight")) as screen:
        await screen.goto("1:modules.1:1,2")
        await screen.press("d")
        assert (screen.state, screen.cursor[0]) == ("gradients.modules.1", (1, 2))
        assert "not taken apart" in screen.explanation
        await screen.press("d")
        assert (screen.state, screen.cursor[0]) == ("modules.1", (1, 2))
        await screen.goto("1:gradients.modules.1")
        await screen.press("F")
        assert screen.said == "follow a cell of a parameter, its gradient or its update"


async def test_a_forward_pass_says_that_it_is_all(own: str):
    ends = "a forward pass is all there is: the factory gives inputs and no loss"
    async with opened(module(own, "forward"), LARGE) as screen:
        assert screen.said == ends
        await screen.press("n", "n")
        assert (screen.state, screen.said) == ("modules.Linear", ends)
        await screen.press("V")
        assert "there is no loss here" in screen.text


async def test_a_step_that_fails_is_told_and_the_screen_stays(own: str):
    async with opened(module(own, "breaks"), LARGE, goto=Place(1, "update.2.bias")) as screen:
        await screen.press("n")
        assert "the loss of step 2 failed: ZeroDivisionError: division by zero" in screen.said
        assert screen.place == (1, "update.2.bias")
        await screen.press("p")
        assert screen.state == "update.2.weight"


# --- without a screen ------------------------------------------------------------------------


def test_states_of_what_is_opened(command: Command, own: str):
    spec = ("--open", f"module:{own}:make", "--lr", "0.5", "--json")
    code, out, err = command("states", "train", *spec, "--steps", 2)
    assert (code, err) == (0, "")
    names = [(row["step"], row["name"]) for row in map(json.loads, out.splitlines())]
    assert names[:3] == [(0, "modules"), (1, "modules.0"), (1, "modules.1")]
    assert names[-1] == (2, "update.2.bias")


def test_states_of_an_example(command: Command):
    code, out, _ = command("states", "generate", "--open", "example:money-bank-2", "--json")
    assert code == 0
    rows = {row["name"]: row for row in map(json.loads, out.splitlines())}
    assert rows["blocks.0.residual1"]["shape"] == [1, 3, 2]
    code, out, _ = command(
        "explain", "blocks.0.residual1", "--at", "0,2,1", "--open", "example:money-bank-2"
    )
    assert (code, "the notes show 7.802" in out) == (0, True)


def test_states_of_a_checkpoint(command: Command):
    if not STORIES.is_dir():
        pytest.skip("models/stories260K is not there")
    spec = ("--open", STORIES, "--steps", 3, "--json", "--max-values", 0)
    code, out, _ = command("states", "generate", *spec, "--prompt", "Once")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["step"] for row in rows if row["name"] == "choice"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("states", "generate", "--open", "module:a:b"), "has the training map: there is no other"),
        (("open", "module:a:b", "--map", "generation"), "has the training map"),
        (("generate", "--checkpoint", "module:a:b"), "has the training map"),
        (("states", "train", "--open", "module:a"), "module:a names no factory"),
        (("states", "train", "--open", "example:none"), "there is no example 'none'"),
        (
            ("explain", "loss", "--open", "example:money-bank-2", "--map", "x"),
            "there is no 'x' map",
        ),
    ],
)
def test_what_cannot_be_opened(command: Command, arguments: tuple[str, ...], sentence: str):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
