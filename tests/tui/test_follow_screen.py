"""One parameter over the steps (F) and all of them at a glance (V): rows against a plain loop with
torch's own optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engine.service.options import Options
from tests.engine.plain import plain
from tests.engine.worked import X, Y
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.glyphs import ASCII
from tui.places import Place

OPTIONS = {
    "sgd": Options(model="mlp"),
    "momentum": Options(model="mlp", momentum=0.9),
    "adam": Options(optimizer="adam", lr=0.02),
    "adamw": Options(model="multihead", optimizer="adamw", lr=0.02, weight_decay=0.1),
}
COLUMNS = {
    "sgd": ["value", "gradient", "update", "loss"],
    "momentum": ["value", "gradient", "m", "update", "loss"],
    "adam": ["value", "gradient", "m", "v", "update", "loss"],
}
COLUMNS["adamw"] = COLUMNS["adam"]


def optimizer_of(kind: str, network: torch.nn.Module) -> torch.optim.Optimizer:
    if kind in ("sgd", "momentum"):
        return torch.optim.SGD(network.parameters(), 0.1, 0.9 if kind == "momentum" else 0)
    if kind == "adam":
        return torch.optim.Adam(network.parameters(), 0.02)
    return torch.optim.AdamW(network.parameters(), 0.02, weight_decay=0.1)


def plain_loop(kind: str, name: str, cell: tuple[int, ...], steps: int) -> list[dict[str, float]]:
    """What a cell of a parameter did in each step, and the norms of all of them in the last."""
    network = plain(OPTIONS[kind].model)
    optimizer, rows = optimizer_of(kind, network), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(torch.tensor(X)), torch.tensor(Y))
        loss.backward()
        parameter = network.get_parameter(name)
        row = {"loss": loss.item(), "value": parameter[cell].item()}
        row["gradient"] = parameter.grad[cell].item()
        optimizer.step()
        kept = optimizer.state[parameter]
        for column, key in (("m", "exp_avg"), ("m", "momentum_buffer"), ("v", "exp_avg_sq")):
            if kept.get(key) is not None:
                row[column] = kept[key][cell].item()
        row["update"] = parameter[cell].item() - row["value"]
        rows.append(row)
    return rows


def lines_of(screen: Screen) -> list[str]:
    return [line.rstrip() for line in screen.pane("reading")]


def rows_of(screen: Screen) -> tuple[list[str], dict[int, list[float]]]:
    """The columns, and the rows that are seen by their step."""
    lines = lines_of(screen)
    (at,) = [y for y, line in enumerate(lines) if line.split()[:1] == ["step"]]
    rows = {}
    for line in lines[at + 1 : -1]:
        if line.strip():
            step, *numbers = line.split()
            rows[int(step)] = [float(number) for number in numbers]
    return lines[at].split()[1:], rows


def check_rows(screen: Screen, kind: str, expected: list[dict[str, float]], steps: range) -> None:
    screen.check()
    columns, rows = rows_of(screen)
    assert columns == COLUMNS[kind]
    assert list(rows) == list(steps)
    for step, numbers in rows.items():
        for name, number in zip(columns, numbers, strict=True):
            wanted = expected[step - 1][name]
            assert number == pytest.approx(wanted, rel=6e-3, abs=5.1e-5), (step, name)


@pytest.mark.parametrize("kind", OPTIONS)
async def test_a_parameter_over_the_steps(kind: str):
    """From the parameter, its gradient and its update; each column is torch's."""
    name, cell = "hidden_layer.weight", (3, 2)
    expected = plain_loop(kind, name, cell, 5)
    async with opened(OPTIONS[kind], LARGE, goto=Place(6, "batch.X")) as screen:
        places = (f"0:parameters.{name}", f"2:gradients.{name}", f"5:update.{name}")
        for place in places:
            await screen.goto(f"{place}:3,2")
            before = screen.place, screen.cursor
            await screen.press("F")
            assert lines_of(screen)[0].startswith(f"follow  {name}[3,2]")
            check_rows(screen, kind, expected, range(1, 6))
            await screen.press("escape")
            assert (screen.place, screen.cursor) == before


async def test_from_a_part_of_an_update():
    async with opened(OPTIONS["adamw"], LARGE, goto=Place(3, "batch.X")) as screen:
        await screen.goto("2:update.W_Q.weight.m:1,2")
        await screen.press("F")
        assert lines_of(screen)[0].startswith("follow  W_Q.weight[1,2]")
        check_rows(screen, "adamw", plain_loop("adamw", "W_Q.weight", (1, 2), 2), range(1, 3))


async def test_the_curve_is_of_the_values():
    """Its highest and lowest value stand beside it; one point a step."""
    expected = [row["value"] for row in plain_loop("sgd", "vocab_head.bias", (9,), 12)]
    async with opened(OPTIONS["sgd"], LARGE, goto=Place(13, "batch.X")) as screen:
        await screen.goto("0:parameters.vocab_head.bias:9")
        await screen.press("F")
        curve = [line for line in lines_of(screen) if "│" in line]
        assert float(curve[0].split("│")[0]) == pytest.approx(max(expected), abs=5.1e-5)
        assert float(curve[-1].split("│")[0]) == pytest.approx(min(expected), abs=5.1e-5)
        assert sum(line.count("•") for line in curve) == 12
        drawn = [
            next(y for y, line in enumerate(curve) if line.split("│")[1].ljust(12)[k] == "•")
            for k in range(12)
        ]
        low, high = min(expected), max(expected)
        assert drawn == [round((high - value) / (high - low) * 6) for value in expected]


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
async def test_scrolling(size: tuple[int, int]):
    """The newest steps first; up to the first, and not beyond; down to the newest again."""
    expected = plain_loop("sgd", "vocab_head.weight", (9, 0), 60)
    room = size[1] - 3 - 9  # two lines on top, a foot; the curve, a blank and the columns
    async with opened(OPTIONS["sgd"], size, goto=Place(61, "batch.X")) as screen:
        await screen.goto("0:parameters.vocab_head.weight:9,0")
        await screen.press("F")
        check_rows(screen, "sgd", expected, range(61 - room, 61))
        await screen.press("up", "k")
        check_rows(screen, "sgd", expected, range(59 - room, 59))
        await screen.press("j", "pageup")
        check_rows(screen, "sgd", expected, range(50 - room, 50))
        await screen.press(*["pageup"] * 9)
        rows = rows_of(screen)[1]
        assert min(rows) == 1
        assert len(rows) in (1, room)
        await screen.press(*["pagedown"] * 9)
        check_rows(screen, "sgd", expected, range(61 - room, 61))


@pytest.mark.parametrize(
    "place", ["1:logits", "1:loss", "1:batch.X", "0:ids", "1:gradients.norm", "0:stories"]
)
async def test_what_is_of_no_parameter(place: str):
    async with opened(goto=Place(2, "batch.X"), size=LARGE) as screen:
        await screen.goto(place)
        await screen.press("F")
        assert screen.said == "follow a cell of a parameter, its gradient or its update"
        assert type(screen.app.screen).__name__ == "Ground"


async def test_the_gradient_of_an_activation_is_of_no_parameter():
    """It says so, and reads nothing."""
    async with opened(goto=Place(2, "batch.X"), size=LARGE) as screen:
        await screen.goto("1:gradients.logits")
        await screen.press("F")
        assert "follow a cell of a parameter" in screen.text
        assert "reading" not in screen.text


@pytest.mark.parametrize("place", [(0, "stories"), (1, "logits")])
async def test_before_the_first_step_has_ended(place: tuple[int, str]):
    async with opened(goto=Place(*place), size=LARGE) as screen:
        await screen.goto("0:parameters.W_Q.weight:1,1")
        await screen.press("F")
        assert "no step has ended yet: go on to step 1 first" in screen.text
        await screen.press("escape", "V")
        assert "norms are of a training step that has ended" in screen.text
        assert "reading" not in screen.text
        screen.check()
        await screen.press("escape")
        assert screen.state == "parameters.W_Q.weight"


async def test_on_the_generation_map():
    async with opened(kind="generation", goto=Place(1, "logits"), size=LARGE) as screen:
        await screen.goto("0:parameters.W_Q.weight:1,1")
        await screen.press("F")
        assert "generating changes no parameter: follow one on the training map" in screen.text
        assert "reading" not in screen.text
        await screen.press("escape", "V")
        assert "norms are of the training map, m goes there" in screen.text


def plain_norms(kind: str, step: int) -> tuple[dict[str, list[float]], float]:
    """Norms of values before, gradients and updates; the share of hidden units that are dead."""
    network = plain(OPTIONS[kind].model)
    optimizer = optimizer_of(kind, network)
    rows: dict[str, list[float]] = {}
    dead = 0.0
    for _ in range(step):
        hidden: dict[str, Any] = {}

        def keep(name: str, tensor: torch.Tensor, hidden: dict[str, Any] = hidden) -> torch.Tensor:
            hidden[name] = tensor
            return tensor

        optimizer.zero_grad()
        F.cross_entropy(network(torch.tensor(X), keep), torch.tensor(Y)).backward()
        old = {name: p.detach().clone() for name, p in network.named_parameters()}
        optimizer.step()
        for name, p in network.named_parameters():
            value, change = old[name].norm().item(), (p.detach() - old[name]).norm().item()
            rows[name] = [value, p.grad.norm().item(), change, change / value]
        dead = float((hidden["hidden"] == 0).flatten(0, -2).all(0).double().mean())
    return rows, dead


@pytest.mark.parametrize("glyphs", [None, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
async def test_norms_at_a_glance(kind: str, size: tuple[int, int], glyphs: Any):
    """Of the step that is shown, where it has ended; of the last that has, where not."""
    more = {} if glyphs is None else {"glyphs": glyphs}
    async with opened(OPTIONS[kind], size, goto=Place(4, "batch.X"), **more) as screen:
        for step in (2, 4):
            await screen.goto(f"{step}:loss")
            await screen.press("V")
            screen.check()
            expected, dead = plain_norms(kind, min(step, 3))
            assert f"norms  of every parameter in step {min(step, 3)}" in lines_of(screen)[0]
            seen = {line.split()[0]: line.split()[1:] for line in lines_of(screen) if line.strip()}
            for name, numbers in expected.items():
                for told, number in zip(seen[name], numbers, strict=True):
                    assert float(told) == pytest.approx(number, rel=6e-3, abs=5.1e-5), name
            share = f"hidden units that are 0 for every example: {100 * dead:.0f}%"
            assert share in screen.text
            await screen.press("escape")
            assert screen.place == (step, "loss")
