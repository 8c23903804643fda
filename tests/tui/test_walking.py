"""Walking the maps key by key: every state by name, in order, forward and back, with its role and
the number that plain PyTorch computes."""

from __future__ import annotations

import itertools

import pytest
import torch
from textual import events

import engine
from engine.maps import stage_of
from engine.service.options import Options
from engine.stages import STAGES
from tests.engine.worked import training
from tests.tui.contract import (
    GREEDY,
    MODELS,
    PARAMETERS,
    PREPARATION,
    PROMPT,
    expected_token,
    expected_training,
    generation_names,
    role_of,
    trained,
    training_names,
)
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tui.places import Place

EACH_MODEL = pytest.mark.parametrize("model", MODELS)
BOTH_SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
EACH_MODEL_AT_A_SIZE = pytest.mark.parametrize(
    ("model", "size"),
    [("mlp", SMALL), ("attention", SMALL), ("attention", LARGE), ("multihead", LARGE)],
    ids=["mlp 80x24", "attention 80x24", "attention 120x40", "multihead 120x40"],
)
ROLES = {
    "data": "data",
    "parameter": "stored parameter",
    "activation": "activation, temporary",
    "gradient": "gradient",
    "optimizer": "optimizer's update",
}


def check_state(screen: Screen, expected: dict[str, torch.Tensor], name: str) -> None:
    """Name and role are there; the number under the cursor is the right one."""
    screen.check()
    assert screen.state == name
    assert ROLES[role_of(name)] in screen.table()
    if name not in expected:  # texts
        return
    index, _ = screen.cursor
    value = expected[name]
    assert len(index) == value.dim()
    assert screen.number == pytest.approx(float(value[index]), abs=1e-6)


# --- the whole map ---------------------------------------------------------------------------


@EACH_MODEL_AT_A_SIZE
async def test_the_whole_training_map(model: str, size: tuple[int, int]):
    """With n to the beginning of step 2, with p back to the very beginning."""
    expected = expected_training(model)[0]
    places = [(0, name) for name in PREPARATION] + [(1, name) for name in training_names(model)]
    async with opened(Options(model=model), size) as screen:
        for step, name in [*places, (2, "batch.X")]:
            assert screen.place == (step, name)
            check_state(screen, expected if step == 1 else {}, name)
            await screen.press("n")
        await screen.press("p")
        for step, name in reversed(places):
            await screen.press("p")
            assert screen.place == (step, name)
            check_state(screen, expected if step else {}, name)
        assert screen.said == ""
        await screen.press("p")
        assert screen.place == (0, "stories")
        assert screen.said == "this is the beginning"


@EACH_MODEL_AT_A_SIZE
async def test_the_whole_generation_map(model: str, size: tuple[int, int]):
    """Two tokens forward to the end, where it says why, and back."""
    names = generation_names(model)
    places = [(step, name) for step in (1, 2) for name in names]
    network = trained(model, 1)
    first = expected_token(network, [0, 1, 8, 7])
    choice = int(first["probabilities"].argmax())
    second = expected_token(network, [1, 8, 7, choice])
    async with opened(Options(model=model, tokens=2), size) as screen:
        await screen.press("m")
        assert "generation map" in screen.lines[0]
        for name in PROMPT:
            assert screen.place == (0, name)
            check_state(screen, {}, name)
            await screen.press("n")
        for step, name in places:
            assert screen.place == (step, name)
            expected = first if step == 1 else second
            check_state(screen, {} if name == "history" else expected, name)
            if name == "choice":
                assert screen.number == int(expected["probabilities"].argmax())
            await screen.press("n")
        assert screen.place == (2, "history")
        assert screen.said == ("generation has ended (yes: the budget of 2 new tokens is used up)")
        for place in [*((0, name) for name in PROMPT), *places][-2::-1]:
            await screen.press("p")
            assert screen.place == place
        await screen.press("p")
        assert screen.said == "this is the beginning"


async def test_keys_faster_than_they_can_be_answered():
    """They are answered in order, none is lost, and the last one's state is shown."""
    async with opened() as screen:
        await screen.press_at_once(*"n" * 20, *"p" * 3, ".", "n", *"p" * 2)
        places = [(0, name) for name in PREPARATION]
        places += [(1, name) for name in training_names("attention")]
        step, name = places[20 - 3]
        names = training_names("attention")
        assert screen.place == (step + 1, names[names.index(name) - 1])
        assert screen.cursor[0] == (0, 0, 0)


# --- by stage, by step -----------------------------------------------------------------------


@EACH_MODEL
async def test_stage_by_stage(model: str):
    """N to the first state of the next stage, P back the same way; the top line names it."""
    places = [(0, name) for name in PREPARATION]
    places += [(step, name) for step in (1, 2) for name in training_names(model)]
    stages = [stage_of("training", name, step) for step, name in places]
    first = [i for i in range(len(places)) if i == 0 or stages[i] != stages[i - 1]]
    async with opened(Options(model=model)) as screen:
        for i in first:
            assert screen.place == places[i]
            assert f" · step {places[i][0]} · {stages[i]} " in screen.lines[0]
            await screen.press("N")
        await screen.press("P")
        for i in reversed(first):
            assert screen.place == places[i]
            await screen.press("P")
        assert screen.place == (0, "stories")
        assert screen.said == "this is the beginning"


async def test_back_by_stage_goes_to_the_beginning_of_this_one_first():
    async with opened(goto=Place(1, "scores.masked")) as screen:
        await screen.press("P")
        assert screen.state == "scores.raw"
        await screen.press("P")
        assert screen.state == "q"


async def test_step_by_step():
    """The same state one step on, with either key; step 0 has other states."""
    losses = [2.2983837127685547, 2.2394907474517822]
    expected = [each["loss"].item() for each in expected_training("mlp", steps=4)]
    assert expected[:2] == pytest.approx(losses, abs=1e-6)
    async with opened(Options(model="mlp"), goto=Place(1, "loss")) as screen:
        for key, step in ((".", 2), ("]", 3), (".", 4), (",", 3), ("[", 2), (",", 1)):
            await screen.press(key)
            assert screen.place == (step, "loss")
            assert screen.number == pytest.approx(expected[step - 1], abs=1e-6)
        await screen.press(",")
        assert screen.place == (0, "stories")
        await screen.press(",")
        assert screen.place == (0, "stories")
        assert screen.said == "this is the beginning"
        await screen.press(".")
        assert screen.place == (1, "batch.X")


async def test_back_to_the_very_first_state():
    async with opened(goto=Place(3, "weights")) as screen:
        await screen.press("0")
        assert screen.place == (0, "stories")


async def test_going_back_shows_what_stood_then():
    """Step 1 after step 3: the update of step 1, not of step 3."""
    steps = expected_training("mlp", steps=3)
    name = "update.vocab_head.weight"
    async with opened(Options(model="mlp")) as screen:
        for step in (3, 1, 2):
            await screen.goto(f"{step}:{name}:9,0")
            assert screen.place == (step, name)
            assert screen.number == pytest.approx(float(steps[step - 1][name][9, 0]), abs=1e-7)


# --- to a place ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [";", ":"])
async def test_go_to_a_cell(key: str):
    """A published figure: how much of its attention the first example gives to lily."""
    async with opened() as screen:
        await screen.press(key)
        assert "go to STEP:STATE:CELL" in screen.text
        await screen.type("1:weights:0,0,2")
        assert "1:weights:0,0,2" in screen.text
        await screen.press("enter")
        assert screen.place == (1, "weights")
        assert screen.cursor[0] == (0, 0, 2)
        assert screen.number == pytest.approx(0.25964343547821045, abs=1e-6)


PLACES = {
    "3:loss": (3, "loss", ()),
    "2": (2, "batch.X", (0, 0)),
    "0:ids:3": (0, "ids", (3,)),
    "1:update.W_Q.weight:2,3": (1, "update.W_Q.weight", (2, 3)),
    " 1:q ": (1, "q", (0, 0, 0)),
    "1:q:1, 0, 2": (1, "q", (1, 0, 2)),
}


async def test_go_to_places():
    async with opened() as screen:
        for place, (step, name, cell) in PLACES.items():
            await screen.goto(place)
            assert screen.place == (step, name), place
            assert screen.cursor[0] == cell, place


async def test_go_to_a_parameter_and_a_part_beside_the_walk():
    async with opened(Options(model="mlp"), goto=Place(2, "hidden")) as screen:
        await screen.goto("0:parameters.vocab_head.weight:9,0")
        assert screen.state == "parameters.vocab_head.weight"
        assert "stored parameter" in screen.table()
        assert screen.number == pytest.approx(-0.021635789424180984, abs=1e-6)
        await screen.goto("1:update.vocab_head.weight.step:9,0")
        assert screen.number == pytest.approx(-0.1 * 0.010811314918100834, abs=1e-7)
        assert screen.said == "beside the walk: escape back to it"
        await screen.press("n")
        assert screen.place == (2, "hidden")
        await screen.goto("0:parameters.vocab_head.bias")
        assert screen.said.startswith("parameter 5 of 5, beside the walk: n, p others, escape")
        assert "loss" not in screen.lines[0]  # of step 2, where the walk stands, and not of step 0
        await screen.press("p")
        assert screen.state == "parameters.vocab_head.weight"
        await screen.press("escape")
        assert screen.place == (2, "hidden")


NOWHERE = {
    "weights": "'weights' is no place: write STEP:STATE:CELL, such as 1:weights:0,0,2",
    "-1": "is no place",
    "1:weights:x": "'x' is no cell: write one number a dimension",
    "1:nothing": "no state of step 1 of the training map is called 'nothing'",
    "0:weights": "no state of step 0 of the training map is called 'weights'",
    "1:[red]:0": "is called '[red]'",
}


async def test_go_to_nowhere():
    """One sentence, and the walk stays where it was."""
    async with opened(goto=Place(1, "q"), size=LARGE) as screen:
        before = screen.pane("table")
        for place, words in NOWHERE.items():
            await screen.goto(place)
            assert words in screen.said, place
            assert screen.pane("table") == before[: len(screen.pane("table"))]
            screen.check()
        await screen.press("n")
        assert screen.state == "K"
        assert screen.said == ""


async def test_a_long_sentence_is_told_on_several_lines():
    """None is wider than the terminal, the table makes room, and gets it back."""
    async with opened(goto=Place(1, "q")) as screen:
        room = screen.app.table.size.height
        await screen.goto("1:nothing")
        told = screen.pane("say")
        assert len(told) > 1
        assert screen.said == (
            "no state of step 1 of the training map is called 'nothing': they are batch.X, batch.y,"
            " embedding.tokens, embedding.positions, embedding, q, ... (`tensorstep states` lists"
            " all 58)"
        )
        assert screen.app.table.size.height == room - len(told) + 1
        screen.check()
        await screen.press("n")
        assert screen.said == ""
        assert screen.app.table.size.height == room


async def test_go_to_a_cell_that_is_not_there():
    """The state is shown, the sentence says what is wrong with the cell."""
    async with opened(size=LARGE) as screen:
        for cell in ("9,0,0", "0,0", "0,0,0,0", "0,0,4"):
            await screen.press("0")
            await screen.goto(f"1:weights:{cell}")
            assert screen.said == (
                f"there is no cell [{cell.replace(',', ', ')}]: the shape is [2, 1, 4]"
            )
            assert screen.place == (1, "weights")
            assert screen.cursor[0] == (0, 0, 0)


async def test_going_nowhere_after_all():
    async with opened(goto=Place(1, "q")) as screen:
        await screen.press(";")
        await screen.type("1:lo")
        await screen.press("escape")
        assert screen.place == (1, "q")
        assert "go to STEP" not in screen.text
        await screen.press(";", "enter")  # an empty line goes nowhere either
        assert screen.place == (1, "q")
        assert screen.said == ""


async def test_every_key_is_a_letter_in_a_question():
    """q does not quit, n does not move, while a place is typed."""
    async with opened() as screen:
        await screen.press(";")
        await screen.type("qnpNPmoe?;:.,[]hjkl<>0gG")
        assert "qnpNPmoe?;:.,[]hjkl<>0gG" in screen.text
        await screen.press("escape")
        assert screen.place == (0, "stories")


async def test_a_place_typed_in_one_go():
    """As a paste or a hiccup of the line sends it: no key is lost, none does anything else."""
    async with opened() as screen:
        await screen.press_at_once(";", *"1:q:0,0,2", "enter", "n", "n")
        assert screen.place == (1, "V")


async def test_a_place_pasted():
    async with opened() as screen:
        await screen.press(";")
        screen.app.post_message(events.Paste("1:q\x1b[31m:0,0\n,2"))
        await screen.settle()
        assert "1:q[31m:0,0,2" in screen.text
        await screen.press("ctrl+u", *"1:K", "backspace", "V", "enter")
        assert screen.place == (1, "V")


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_opening_at_a_place(size: tuple[int, int]):
    async with opened(size=size, goto=Place(1, "weights", (1, 0, 3))) as screen:
        assert screen.place == (1, "weights")
        assert screen.cursor[0] == (1, 0, 3)
        expected = expected_training("attention")[0]["weights"][1, 0, 3]
        assert screen.number == pytest.approx(float(expected), abs=1e-6)
        assert "B 2 of 2" in screen.table()


async def test_opening_on_the_generation_map():
    async with opened(kind="generation", goto=Place(2, "choice")) as screen:
        assert "generation map" in screen.lines[0]
        assert screen.place == (2, "choice")


@pytest.mark.parametrize(
    ("goto", "words"),
    [
        (Place(1, "nothing"), "is called 'nothing'"),
        (Place(1, "weights", (7, 0, 0)), "there is no cell [7, 0, 0]: the shape is [2, 1, 4]"),
    ],
)
async def test_opening_nowhere(goto: Place, words: str):
    """The screen closes, the command tells why, with exit code 2."""
    async with opened(goto=goto) as screen:
        assert await screen.ended() == 2
        assert words in str(screen.app.failure)


# --- other maps and models -------------------------------------------------------------------


async def test_both_maps_are_left_where_they_were():
    async with opened(goto=Place(2, "weights")) as screen:
        await screen.press("m", "n", "n", "n", "n")
        assert screen.place == (1, "embedding.tokens")
        await screen.press("m")
        assert "training map" in screen.lines[0]
        assert screen.place == (2, "weights")
        await screen.press("m")
        assert screen.place == (1, "embedding.tokens")


async def test_greedy_steps_of_the_reference():
    async with opened(Options(model="mlp"), kind="generation") as screen:
        for step, (context, chosen) in enumerate(GREEDY, 1):
            await screen.goto(f"{step}:context")
            assert [int(word) for word in screen.pane("table")[4].split() if word.isdigit()][
                1:
            ] == context
            await screen.goto(f"{step}:choice")
            assert screen.number == chosen


async def test_the_same_state_of_another_map_or_model_is_another():
    """Same name, same step, same shape: not the same numbers."""
    states = {model: expected_training(model)[0]["hidden"] for model in MODELS}
    token = expected_token(trained("attention", 1), [0, 1, 8, 7])["hidden"]

    def first_row(screen: Screen) -> list[float]:
        cells = itertools.chain.from_iterable(line.split() for line in screen.pane("table")[4:5])
        return [float(each) for each in list(cells)[1:]]

    async with opened(goto=Place(1, "hidden"), size=LARGE) as screen:
        for key, wanted in (("m", token), ("m", states["attention"]), ("m", token)):
            await screen.press(key)
            if screen.state != "hidden":
                await screen.goto("1:hidden")
            row = first_row(screen)
            assert row == pytest.approx(wanted[0, : len(row)].tolist(), abs=6e-5)
        await screen.press("m")
        for keys, model in (
            (["down"], "multihead"),
            (["up", "up"], "mlp"),
            (["down"], "attention"),
        ):
            await screen.press("o", *keys, "enter")
            if screen.state != "hidden":
                await screen.goto("1:hidden")
            row = first_row(screen)
            assert row == pytest.approx(states[model][0, : len(row)].tolist(), abs=6e-5)


async def test_choosing_a_model():
    async with opened(goto=Place(1, "q")) as screen:
        await screen.press("o")
        for title in ("bigram table", "window MLP", "one head", "several heads", "transformer"):
            assert title in screen.text
        await screen.press("escape")
        assert screen.place == (1, "q")
        assert "one head" in screen.lines[0]
        await screen.press("o", "enter")  # the one that is open: nothing changes
        assert screen.place == (1, "q")
        await screen.press("o", "j", "j", "enter")
        assert "transformer" in screen.lines[0]
        assert screen.place == (0, "stories")
        await screen.press("o", *"kkkkk", "enter")
        assert "bigram table" in screen.lines[0]
        await screen.press("o", "down", "down", "enter")
        assert screen.place == (1, "q")


async def test_a_map_that_cannot_be_opened():
    """A prompt of only unknown words: told when the generation map is asked for."""
    async with opened(Options(prompt="blue"), goto=Place(1, "q"), size=LARGE) as screen:
        await screen.press("m")
        assert "the prompt 'blue' has no token of the vocabulary" in screen.said
        assert "training map" in screen.lines[0]
        assert screen.place == (1, "q")
        await screen.press("n")
        assert screen.place == (1, "K")


async def test_an_empty_prompt():
    """A state without a cell is shown, and no mistake."""
    async with opened(Options(prompt=""), kind="generation") as screen:
        assert screen.place == (0, "prompt")
        await screen.press("n")
        assert screen.place == (0, "tokens")
        assert "N 0" in screen.table()
        assert screen.said == ""
        await screen.press("down", "end", "G", "pagedown")
        screen.check()
        await screen.press("n")
        assert screen.place == (0, "history")
        assert screen.number == 1


# --- the map pane ----------------------------------------------------------------------------


@EACH_MODEL_AT_A_SIZE
async def test_the_map_names_where_one_is(model: str, size: tuple[int, int]):
    async with opened(Options(model=model), size) as screen:
        for name in ("stories", "ids", "batch.X", "hidden", "loss", "gradients.norm"):
            await screen.goto(f"{0 if name in PREPARATION else 1}:{name}")
            title = STAGES[stage_of("training", name, 1)].title
            lines = [line for line in screen.pane("map") if "▸" in line]
            if size == LARGE:
                assert [line.split("▸")[1].strip(" ╮│◂╯") for line in lines] == [title]
                assert screen.pane("map")[0].strip() == "TRAINING MAP"
            else:
                assert title.upper() in lines[0]


async def test_open_a_stage_from_the_map():
    async with opened(size=LARGE) as screen:
        await screen.to_pane("map")
        await screen.press("down", "j", "down", "right", "l", "up", "k", "down", "down", "down")
        assert screen.state == "stories"  # only chosen, not opened
        await screen.press("enter")
        assert screen.place == (1, "embedding.tokens")
        assert screen.focus == "table"
        await screen.to_pane("map")
        await screen.press("up", "up", "up", "enter")
        assert screen.place == (0, "vocabulary")


async def test_the_map_pane_ends_at_its_ends():
    async with opened(size=LARGE) as screen:
        await screen.to_pane("map")
        await screen.press("pageup", "up", "enter")
        assert screen.place == (0, "stories")
        await screen.to_pane("map")
        await screen.press(*["down"] * 40, "enter")
        assert "this walk has no state in validation" in screen.said
        assert screen.place == (0, "stories")


async def test_escape_leaves_the_map():
    async with opened(size=LARGE, goto=Place(1, "q")) as screen:
        await screen.to_pane("map")
        await screen.press("down", "escape")
        assert screen.focus == "table"
        assert screen.place == (1, "q")


# --- stored parameters -----------------------------------------------------------------------


async def to_the_parameters(screen: Screen) -> None:
    """By the map pane, wherever the walk stands."""
    kind = "parameters" if "training map" in screen.lines[0] else "checkpoint"
    keys = [stage.key for stage in screen.app.map_pane.map.stages]
    here = next(i for i, stage in enumerate(keys) if stage == screen.app.map_pane.stage)
    way = keys.index(kind) - here
    await screen.to_pane("map")
    await screen.press(*["down" if way > 0 else "up"] * abs(way), "enter")


@EACH_MODEL
async def test_parameters_beside_the_walk(model: str):
    """All of them in their order, as they were drawn; past the last one the walk goes on."""
    network = dict(trained(model, 0).named_parameters())
    async with opened(Options(model=model), goto=Place(0, "ids"), size=LARGE) as screen:
        await to_the_parameters(screen)
        for number, name in enumerate(PARAMETERS[model], 1):
            assert screen.state == f"parameters.{name}"
            assert "stored parameter" in screen.table()
            assert f"parameter {number} of {len(PARAMETERS[model])}" in screen.said
            index, _ = screen.cursor
            assert screen.number == pytest.approx(network[name][index].item(), abs=1e-7)
            screen.check()
            await screen.press("n")
        assert screen.place == (0, "ids")
        assert screen.said == ""
        await screen.press("n")
        assert screen.place == (0, "windows.contexts")


async def test_parameters_after_each_step():
    async with opened(Options(model="mlp"), size=LARGE) as screen:
        for step, value in ((1, -0.021635789424180984), (2, -0.02271692082285881)):
            await screen.goto(f"{step}:hidden")
            await to_the_parameters(screen)
            await screen.press("n", "n", "n")
            assert screen.state == "parameters.vocab_head.weight"
            await screen.press("G")
            assert screen.cursor[0] == (9, 0)
            assert screen.number == pytest.approx(value, abs=1e-6)
            await screen.press("escape")
            assert screen.place == (step, "hidden")


async def test_back_from_the_first_parameter_is_back_to_the_walk():
    async with opened(goto=Place(1, "q"), size=LARGE) as screen:
        await to_the_parameters(screen)
        await screen.press("n", "p", "p")
        assert screen.place == (1, "q")


async def test_parameters_that_generate():
    """The stage is called checkpoint there; they are those after one step."""
    trained_once = dict(trained("mlp", 1).named_parameters())
    async with opened(Options(model="mlp"), kind="generation", size=LARGE) as screen:
        await screen.press("n", "n", "n")
        await to_the_parameters(screen)
        await screen.press("n", "n", "n")
        assert screen.state == "parameters.vocab_head.weight"
        await screen.press("G")
        expected = trained_once["vocab_head.weight"][9, 0].item()
        assert screen.number == pytest.approx(expected, abs=1e-7)
        assert expected == pytest.approx(-0.02271692082285881, abs=1e-6)


async def test_a_search_and_a_detour_end_with_any_other_move():
    async with opened(goto=Place(1, "q"), size=LARGE) as screen:
        await to_the_parameters(screen)
        await screen.press("N")
        assert screen.place == (1, "scores.raw")
        await to_the_parameters(screen)
        await screen.press("m", "m")
        assert screen.place == (1, "scores.raw")
        await screen.press("n")
        assert screen.place == (1, "scores")


# --- explanations ----------------------------------------------------------------------------


EXPLAINED = [
    (1, "embedding", (0, 1, 2)),
    (1, "q", (1, 0, 2)),
    (1, "weights", (0, 0, 2)),
    (1, "hidden.pre", (0, 3)),
    (1, "loss", ()),
    (1, "gradients.norm", ()),
    (2, "update.W_Q.weight", (2, 3)),
    (2, "gradients.V", (1, 2, 0)),
]


async def test_explanations_are_the_engines():
    """Value, total and every term of the cell, with its source, as the engine explains it."""
    walk = engine.Walk(training("attention"))
    async with opened(size=(200, 60)) as screen:
        for step, name, cell in EXPLAINED:
            walk.seek(step, name)
            expected = walk.current.explain(cell)
            await screen.goto(f"{step}:{name}" + (f":{','.join(map(str, cell))}" if cell else ""))
            if "enter shows them" in screen.explanation:
                await screen.to_pane("explain")
                await screen.press("pagedown", "enter", "escape")
            told = screen.explanation
            index = f"[{','.join(map(str, cell))}]" if cell else ""
            sentence = STAGES[stage_of("training", name, step)].sentence
            assert told.startswith(f"EXPLANATION {sentence}")
            assert f"{name}{index} = {expected.value:.9g}" in told
            assert f"= {expected.formula}" in told
            assert f"{expected.total:.9g}" in told.split()
            numbers = [float(word) for word in told.split() if is_number(word)]
            for term in expected.terms:
                source = term.cited.source.removeprefix("parameters.")
                at = f"[{','.join(map(str, term.cited.index))}]" if term.cited.index else ""
                assert source + at in told
                assert any(abs(number - term.contribution) < 6e-5 for number in numbers)
            assert expected.total == pytest.approx(expected.value, abs=1e-6)


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


async def test_the_explanation_follows_the_cursor():
    async with opened(goto=Place(1, "weights"), size=LARGE) as screen:
        for row in range(4):
            assert f"weights[0,0,{row}] =" in screen.explanation
            assert screen.cursor[0] == (0, 0, row)
            await screen.press("down")
        await screen.press(">")
        assert "weights[1,0,3] =" in screen.explanation


@BOTH_SIZES
async def test_e_hides_the_explanation(size: tuple[int, int]):
    async with opened(size=size, goto=Place(1, "weights")) as screen:
        assert "EXPLANATION" in screen.text
        wide = len(screen.pane("table")[0]), len(screen.pane("table"))
        await screen.press("e")
        assert "EXPLANATION" not in screen.text
        now = len(screen.pane("table")[0]), len(screen.pane("table"))
        assert now > wide
        await screen.press("down", "n")
        screen.check()
        await screen.press("e")
        assert "message[0,0,0] =" in screen.explanation
        assert (len(screen.pane("table")[0]), len(screen.pane("table"))) == wide


async def test_a_long_explanation_is_scrolled():
    """Every term is reached, and the end says so by ending."""
    async with opened(Options(model="mlp"), goto=Place(1, "hidden.pre")) as screen:
        assert "flatten[0,15]" not in screen.explanation
        assert "more" in screen.pane("explain")[-1]
        await screen.to_pane("explain")
        await screen.press("pagedown", "enter")  # the end of what is shown at first: all of it
        await screen.press(*["up"] * 60)
        seen = screen.explanation
        for _ in range(20):
            await screen.press("down")
            seen += " " + screen.explanation
        for slot in range(16):
            assert f"flatten[0,{slot}]" in seen
        assert "more" not in screen.pane("explain")[-1]
        assert "hidden_layer.bias[0]" in seen
        before = screen.pane("explain")
        await screen.press("down")
        assert screen.pane("explain") == before
        await screen.press(*["up"] * 60)
        assert screen.pane("explain")[0].startswith("EXPLANATION")
        await screen.press("escape", "n")
        assert screen.focus == "table"
        assert screen.pane("explain")[0].startswith("EXPLANATION")


async def test_masked_cells():
    async with opened(goto=Place(1, "scores.masked"), size=LARGE) as screen:
        assert screen.cursor == ((0, 0, 0), "-inf")
        assert "<PAD>: not to be seen" in screen.explanation
        assert "batch.X[0,0]" in screen.explanation
        await screen.press("n")
        assert screen.cursor == ((0, 0, 0), "0")
        await screen.goto("1:logits")
        assert screen.state == "logits"


async def test_blocked_ids():
    async with opened(Options(model="mlp"), kind="generation", size=LARGE) as screen:
        await screen.goto("1:logits.blocked:0,3")
        assert screen.cursor == ((0, 3), "-inf")
        assert "a blocked ID is never chosen" in screen.explanation
        await screen.goto("1:probabilities:0,9")
        assert screen.number == pytest.approx(0.19430454075336456, abs=1e-6)


async def test_the_draw_is_shown():
    async with opened(Options(model="mlp", draw=0.8), kind="generation", size=LARGE) as screen:
        await screen.goto("1:choice")
        assert screen.number == 8
        assert "lily" in screen.cursor[1]
        assert "0.8" in screen.explanation
