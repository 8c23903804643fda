"""Where a number comes from, and back: enter and backspace, terms and factors, gradients. What is
come to is what the engine's own explanation cites and plain PyTorch computes."""

from __future__ import annotations

import random

import pytest
import torch

from engine import Walk
from engine.service.options import Options
from engine.service.session import Session
from tests.tui.contract import expected_training, training_names
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.places import Place

WIDER = (200, 50)
TOKENS = Session(Options()).prepared.tokenizer.itos
Spot = tuple[int, str, tuple[int, ...]]  # step, state, cell
ADAMW = Options(model="mlp", optimizer="adamw", lr=0.02)


def walked(kind: str = "training", options: Options | None = None, steps: int = 2) -> Walk:
    """The engine's own walk, with so many steps made."""
    walk = Session(options or Options()).walk(kind)
    walk.seek(steps)
    while walk.cursor.step == steps and walk.forward():
        pass
    return walk


def cited(walk: Walk, spot: Spot) -> list[list[Spot]]:
    """What the engine cites for a cell: the largest term first, each with its factors."""
    step, name, cell = spot
    record = walk.record(name, step)
    assert record is not None
    found = record.explain(cell)
    terms = found.terms
    if found.combine != "rule":
        terms = sorted(terms, key=lambda term: -abs(term.contribution))
    return [[(c.step, c.source, c.index) for c in (term.cited, *term.times)] for term in terms]


def spot(screen: Screen) -> Spot:
    return screen.step, screen.state, screen.cursor[0]


async def put(screen: Screen, at: Spot) -> None:
    step, name, cell = at
    await screen.goto(f"{step}:{name}:{','.join(map(str, cell))}" if cell else f"{step}:{name}")
    assert spot(screen) == at


def random_cells(walk: Walk, names: list[str], step: int, count: int) -> list[Spot]:
    draw = random.Random(4)
    cells = []
    for name in draw.choices(names, k=count):
        shape = walk.fetch(name, step).shape
        cells.append((step, name, tuple(draw.randrange(n) for n in shape)))
    return cells


# --- where a number comes from ---------------------------------------------------------------


@pytest.mark.parametrize("shown", [True, False], ids=["explained", "explanation hidden"])
@pytest.mark.parametrize("kind", ["training", "generation"])
async def test_enter_follows_the_largest_term_and_backspace_comes_back(kind: str, shown: bool):
    """Down to where it begins, hop by hop as the engine cites, and up again cell by cell."""
    walk = walked(kind)
    names = ["logits", "weights", "hidden.pre", "probabilities"]
    names += ["loss", "gradients.V", "update.W_Q.weight"] if kind == "training" else []
    async with opened(kind=kind, goto=Place(2, "logits"), size=LARGE) as screen:
        await screen.press(*([] if shown else ["e"]))
        for start in random_cells(walk, names, 2, 8):
            await put(screen, start)
            path = [start]
            while terms := cited(walk, path[-1]):
                await screen.press("enter")
                path.append(terms[0][0])
                assert spot(screen) == path[-1]
            await screen.press("enter")
            assert screen.said == "this is where it begins: nothing else is cited"
            assert len(path) > 1
            for back in path[-2::-1]:
                await screen.press("backspace")
                assert spot(screen) == back
            await screen.press("backspace")
            assert screen.said == "nothing to come back to: enter follows a number first"


@pytest.mark.parametrize("model", ["mlp", "multihead"])
async def test_any_term_and_factor_from_random_logits_to_ids_and_parameters(model: str):
    """From the explanation with arrows; the number there is the one that was cited."""
    options = Options(model=model)
    walk, draw = walked(options=options), random.Random(9)
    leaves, seen = set(), set()
    async with opened(options, WIDER, goto=Place(2, "logits")) as screen:
        await screen.to_pane("explain")
        for _ in range(14):
            at: Spot = (2, "logits", (draw.randrange(2), draw.randrange(10)))
            await put(screen, at)
            path = [at]
            while terms := cited(walk, at):
                ids = [k for k, t in enumerate(terms[:8]) if t[0][1].startswith(("batch", "embed"))]
                term = draw.choice(ids or range(min(8, len(terms))))
                factor = draw.randrange(len(terms[term]))
                await screen.press(*["down"] * term, *["right"] * factor, "enter")
                at = terms[term][factor]
                assert spot(screen) == at
                value = walk.fetch(at[1], at[0])
                if isinstance(value, torch.Tensor):
                    assert screen.number == pytest.approx(value[at[2]].item(), rel=1e-7)
                path.append(at)
            leaves.add(at[1].partition(".")[0])
            seen |= {name for _, name, _ in path}
            for back in path[-2::-1]:
                await screen.press("backspace")
                assert spot(screen) == back
        assert screen.focus == "explain"
    assert "parameters" in leaves
    assert leaves <= {"parameters", "tokens", "vocabulary", "ids"}  # the ID of <BOS> is put there
    assert {"batch.X", "ids", "tokens"} <= seen


async def test_left_and_right_pick_the_factor_and_stop_at_the_ends():
    walk = walked()
    start: Spot = (1, "message", (0, 0, 1))
    first = cited(walk, start)[0]
    assert len(first) == 2
    for keys, factor in (["right", "right"], 1), (["right", "left", "left"], 0), (["left"], 0):
        async with opened(goto=Place(*start), size=LARGE) as screen:
            await screen.to_pane("explain")
            await screen.press(*keys, "enter")
            assert spot(screen) == first[factor]


async def test_what_was_picked_counts_only_in_the_explanation():
    """From the table it is the first term again: no other is marked there."""
    start: Spot = (1, "message", (0, 0, 1))
    async with opened(goto=Place(*start), size=LARGE) as screen:
        await screen.to_pane("explain")
        await screen.press("down", "right")
        await screen.to_pane("table")
        await screen.press("enter")
        assert spot(screen) == cited(walked(), start)[0][0]


async def test_back_over_steps_and_from_a_parameter_beside_the_walk():
    """The update of step 2 from the parameter and the average that step 1 left."""
    walk = walked(options=ADAMW)
    start: Spot = (2, "update.vocab_head.weight", (9, 3))
    async with opened(ADAMW, LARGE, goto=Place(*start)) as screen:
        for term in cited(walk, start):
            await screen.to_pane("explain")
            await screen.press(*["down"] * cited(walk, start).index(term), "enter")
            assert spot(screen) == term[0]
            value = walk.fetch(term[0][1], term[0][0])[term[0][2]]
            assert screen.number == pytest.approx(float(value), rel=1e-7)
            await screen.press("backspace")
            assert spot(screen) == start
        assert {place[0][0] for place in cited(walk, start)} == {1, 2}
        await screen.press("n")  # the walk itself goes on from there
        names = training_names("mlp")
        assert screen.place == (2, names[names.index("update.vocab_head.weight") + 1])


async def test_back_to_the_other_map():
    async with opened(goto=Place(2, "logits", (1, 9)), size=LARGE) as screen:
        await screen.press("enter", "m")
        assert "generation map" in screen.lines[0]
        await screen.goto("1:probabilities:0,4")
        await screen.press("enter")
        assert spot(screen) == cited(walked("generation"), (1, "probabilities", (0, 4)))[0][0]
        await screen.press("backspace")
        assert spot(screen) == (1, "probabilities", (0, 4))
        await screen.press("backspace")
        assert "training map" in screen.lines[0]
        assert spot(screen) == (2, "logits", (1, 9))


async def test_folded_and_unfolded():
    """17 terms of the wide layer: eight, then all; the last one of them can be followed."""
    options = Options(model="mlp")
    start: Spot = (1, "hidden.pre", (1, 5))
    terms = cited(walked(options=options), start)
    assert len(terms) == 17
    async with opened(options, (200, 60), goto=Place(*start)) as screen:
        assert "… and 9 smaller terms: enter shows them" in screen.explanation
        assert screen.explanation.count("hidden_layer.weight[") == 8 - ("bias" in str(terms[:8]))
        await screen.to_pane("explain")
        await screen.press(*["down"] * 30, "enter")
        assert "smaller terms" not in screen.explanation
        assert screen.explanation.count("hidden_layer.weight[5,") == 16
        await screen.press(*["down"] * 30, "enter")
        assert spot(screen) == terms[-1][0]
        await screen.press("backspace")
        assert "… and 9 smaller terms: enter shows them" in screen.explanation  # as it was


async def test_a_cell_of_what_is_shown():
    """Only the numbers at ;"""
    async with opened(goto=Place(1, "weights"), size=SMALL) as screen:
        await screen.goto("1,0,2")
        assert spot(screen) == (1, "weights", (1, 0, 2))
        expected = expected_training("attention")[0]["weights"][1, 0, 2]
        assert screen.number == pytest.approx(float(expected), abs=1e-6)
        await screen.goto("0,0,9")
        assert screen.said == "there is no cell [0, 0, 9]: the shape is [2, 1, 4]"


# --- gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logits", "weights", "hidden", "embedding.tokens", "V"])
async def test_the_lens_keeps_the_cell(name: str):
    expected = expected_training("attention", steps=2)[1]
    shape = expected[name].shape
    cell = tuple(n - 1 for n in shape)
    async with opened(goto=Place(2, name, cell), size=LARGE) as screen:
        await screen.press("d")
        assert spot(screen) == (2, f"gradients.{name}", cell)
        value = float(expected[f"gradients.{name}"][cell])
        assert screen.number == pytest.approx(value, abs=1e-7)
        await screen.press("d")
        assert spot(screen) == (2, name, cell)


@pytest.mark.parametrize("step", [0, 1])
async def test_the_lens_on_a_parameter(step: int):
    """The gradient at a number is the one taken while it stood: in the step that follows it."""
    expected = expected_training("attention", steps=3)
    async with opened(goto=Place(3, "loss"), size=LARGE) as screen:
        await screen.goto(f"{step}:parameters.W_Q.weight:2,1")
        before = spot(screen)
        await screen.press("d")
        value = float(expected[step]["gradients.W_Q.weight"][2, 1])
        assert spot(screen) == (step + 1, "gradients.W_Q.weight", (2, 1))
        assert screen.number == pytest.approx(value, abs=1e-7)
        await screen.press("d")
        assert spot(screen) == before


async def test_the_lens_on_an_update():
    expected = expected_training("attention", steps=2)[1]
    async with opened(goto=Place(2, "update.W_V.weight", (1, 3)), size=LARGE) as screen:
        await screen.press("d")
        assert spot(screen) == (2, "gradients.W_V.weight", (1, 3))
        value = float(expected["gradients.W_V.weight"][1, 3])
        assert screen.number == pytest.approx(value, abs=1e-7)
        await screen.press("d")
        assert (screen.state, screen.cursor[0]) == ("parameters.W_V.weight", (1, 3))


async def test_where_there_is_no_gradient():
    async with opened(goto=Place(1, "batch.X", (0, 2)), size=LARGE) as screen:
        await screen.press("d")
        assert screen.said == "the loss has no gradient with respect to batch.X"
        assert spot(screen) == (1, "batch.X", (0, 2))
        await screen.press("m", "d")
        assert screen.said == "gradients are of the training map: m goes there"


async def test_a_sorted_cell_is_followed_and_come_back_to():
    values = expected_training("attention")[0]["logits"][0]
    third = values.argsort(descending=True)[2].item()
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await screen.press("s", "down", "down", "enter")
        assert spot(screen) == cited(walked(), (1, "logits", (0, third)))[0][0]
        await screen.press("backspace")
        assert spot(screen) == (1, "logits", (0, third))
