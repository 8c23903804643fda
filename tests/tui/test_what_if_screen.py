"""The first what-if on the screen: shown is what plain
PyTorch computes with the same numbers put in place, bit for bit what the engine's own edited walk
has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.service.desk import Desk
from engine.service.options import Options
from tests.engine.plain import plain
from tests.engine.worked import X, Y
from tests.tui.screen import LARGE, Screen, opened
from tests.tui.test_numbers import TOKENS
from tui.places import Place

Edits = dict[tuple[int, str, tuple[int, ...]], float]
BALL = TOKENS.index("ball")


def what_if(edits: Edits, steps: int = 1, model: str = "attention") -> list[dict[str, Tensor]]:
    """Each step of the worked batch with numbers put in place, in plain PyTorch."""
    network, made = plain(model), []
    put_parameters(network, 0, edits)
    for step in range(1, steps + 1):
        values: dict[str, Tensor] = {}

        def put(name: str, tensor: Tensor, step: int = step, values: Any = values) -> Tensor:
            here = {cell: v for (at, of, cell), v in edits.items() if (at, of) == (step, name)}
            tensor = tensor.clone() if here else tensor
            for cell, value in here.items():
                tensor[cell] = value
            values[name] = tensor
            if tensor.requires_grad:
                tensor.retain_grad()
            return tensor

        network.zero_grad()
        x, y = put("batch.X", torch.tensor(X)), put("batch.y", torch.tensor(Y))
        loss = F.cross_entropy(network(x, put), y)
        loss.backward()
        gradients = {f"gradients.{k}": t.grad for k, t in values.items() if t.requires_grad}
        for name, parameter in network.named_parameters():
            gradients[f"gradients.{name}"] = parameter.grad.clone()
            parameter.data -= 0.1 * parameter.grad
            values[f"update.{name}"] = parameter.detach().clone()
        put_parameters(network, step, edits)
        values |= {"loss": loss, "probabilities": torch.softmax(values["logits"], -1), **gradients}
        made.append({name: tensor.detach() for name, tensor in values.items()})
    return made


def put_parameters(network: torch.nn.Module, step: int, edits: Edits) -> None:
    for (at, name, cell), value in edits.items():
        if at == step and name.startswith("parameters."):
            network.get_parameter(name.removeprefix("parameters.")).data[cell] = value


def own_walk(edits: Edits, kind: str = "training") -> Any:
    """The engine's walk with the edits, without a screen."""
    desk = Desk()
    desk.open(Options().to_json())
    where = {"map": kind, "model": "attention"}
    for (step, name, cell), value in edits.items():
        desk.move(**where, how="seek", step=step, name=name)
        desk.edit(**where, name=name, step=step, cell=list(cell), value=repr(value))
    return desk._session.walk(kind, "attention")


def shown(screen: Screen) -> Tensor:
    """The cells on the screen as rows and columns of the state."""
    table = screen.app.table
    assert table.current is not None
    found = torch.tensor(table.current.cells, dtype=torch.float64)
    return found.T if table.turned else found


def seen(screen: Screen, value: Tensor) -> Tensor:
    """The part of a value that should be on the screen now."""
    table = screen.app.table
    value = value.detach().double()
    assert list(value.shape) == table.state["shape"]
    for i in table.fixed:
        value = value[i]
    rows, columns = (slice(*span) for span in (table.view.rows, table.view.columns))
    if value.dim() < 2:
        return value.reshape(-1, 1)[rows]
    return value[columns, rows] if table.turned else value[rows, columns]


async def edit(screen: Screen, place: str, value: str) -> None:
    await screen.goto(place)
    await screen.press("w")
    await screen.press_at_once(*value, "enter")


async def check_against(screen: Screen, step: int, expected: dict[str, Tensor], walk: Any) -> None:
    """Every state that fits on the screen: plain PyTorch's numbers, and the engine's to the bit."""
    for name in NAMES:
        await screen.goto(f"{step}:{name}")
        assert screen.place == (step, name)
        assert torch.allclose(shown(screen), seen(screen, expected[name]), atol=1e-6), name
        walk.seek(step, name)
        assert torch.equal(shown(screen), seen(screen, walk.current.value)), name


NAMES = ["weights", "residual", "hidden.pre", "hidden", "logits", "probabilities", "loss"]
NAMES += ["gradients.logits", "gradients.hidden.pre", "gradients.W_Q.weight"]
NAMES += ["update.W_Q.weight", "update.W_V.weight", "update.hidden_layer.bias"]
EDITS: dict[str, Edits] = {
    "hidden": {(1, "hidden.pre", (0, 6)): 2.5},
    "weights": {(1, "weights", (1, 0, 2)): 0.125},
    "two steps": {(1, "residual", (1, 0, 2)): -3.0, (2, "logits", (0, 5)): 4.0},
    "parameter": {(0, "parameters.W_Q.weight", (2, 1)): 1.5},
    "both": {(1, "q", (0, 0, 1)): 0.5, (1, "parameters.vocab_head.bias", (9,)): -2.0},
    "update": {(1, "update.W_V.weight", (1, 1)): 0.75},
}


@pytest.mark.parametrize("kind", EDITS)
async def test_what_follows_is_made_again(kind: str):
    """In the step that is edited and the next; the top line counts, the cursor stays."""
    edits = EDITS[kind]
    stored = {(s, k.replace("update.", "parameters."), c): v for (s, k, c), v in edits.items()}
    expected = what_if(stored, 2)  # an update is stored
    walk = own_walk(edits)
    async with opened(goto=Place(2, "loss"), size=LARGE) as screen:
        for k, ((step, name, cell), value) in enumerate(edits.items()):
            await edit(screen, f"{step}:{name}:{','.join(map(str, cell))}", repr(value))
            assert (screen.state, *screen.cursor) == (name, cell, f"{value:.9g}")
            assert f"what if: {k + 1} edit{'s' if k else ''} " in screen.lines[0]
            screen.check()
        for step in (1, 2):
            if kind == "update" and step == 1:
                continue  # plain PyTorch's own is not put in place there
            await check_against(screen, step, expected[step - 1], walk)
        assert f"what if: {len(edits)} edit" in screen.lines[0]


async def test_another_token():
    """A token or an ID; what was read before it is not shown as changed."""
    for value in ("ball", str(BALL)):
        edits: Edits = {(1, "batch.X", (0, 3)): BALL}
        expected = what_if(edits)[0]
        async with opened(goto=Place(1, "batch.X", (0, 3)), size=LARGE) as screen:
            await screen.press("w", *value, "enter")
            assert screen.cursor == ((0, 3), f"{BALL}  ball")
            assert f"ball {BALL}" in screen.table()
            await check_against(screen, 1, expected, own_walk(edits))
            await screen.goto("1:weights:0,0,3")
            assert "ball" in screen.table()  # the row is labelled with it


async def test_another_choice_is_read_on():
    """On the generation map: the token that was put there is in the next context."""
    async with opened(kind="generation", goto=Place(1, "choice"), size=LARGE) as screen:
        await screen.press("w", *"ball", "enter")
        assert screen.number == BALL
        await screen.goto("2:context:0,3")
        assert screen.number == BALL
        walk = own_walk({(1, "choice", ()): BALL}, "generation")
        await screen.goto("2:logits")
        walk.seek(2, "logits")
        assert torch.equal(shown(screen), seen(screen, walk.current.value))
        await screen.press("m")
        assert "what if" not in screen.lines[0]


REFUSED = [
    ("1:weights:0,0,1", "lots", "'lots' is no value of weights: give a number"),
    ("1:batch.X:0,1", "zebra", "is no value of batch.X: give a number, or a token of the vocab"),
    ("1:batch.X:0,1", "99", "is not in a vocabulary of 10"),
    ("1:batch.X:0,1", "-1", "is not in a vocabulary of 10"),
    ("1:batch.X:0,1", "1.5", "holds whole numbers: give one of these"),
    ("1:batch.X:0,1", "nan", "is not in a vocabulary of 10"),
    ("1:q:0,0,1", "1e39", "is too large for q[0, 0, 1], which is float32"),
    ("0:ids:2", "3", "ids is of step 0, the preparation: edit batch.X or context instead"),
    ("1:gradients.norm", "3", "nothing follows from gradients.norm"),
    ("1:update.W_Q.weight.step:0,0", "3", "is a part: edit the whole"),
]


async def test_what_cannot_be_edited():
    """One sentence, and nothing is another number."""
    async with opened(goto=Place(2, "loss"), size=LARGE) as screen:
        for place, value, words in REFUSED:
            await screen.goto(place)
            before = screen.place, screen.cursor
            await edit(screen, place, value)
            assert words in screen.said, (place, value)
            assert (screen.place, screen.cursor) == before
            assert "what if:" not in screen.lines[0]
            screen.check()
        await screen.goto("0:tokens:2")
        await screen.press("w")
        assert screen.said == "a text cannot be edited: edit the IDs that are made of it"
        await screen.press("=")
        assert screen.said == "nothing was edited: w edits the cell under the cursor"
        await screen.press("u")
        assert screen.said == "nothing was edited: w edits"


async def test_an_edit_in_a_sorted_table():
    """The cell that was edited is the one that was seen, and the one that is looked at still."""
    logits = what_if({})[0]["logits"][0]
    most = int(logits.argmax())
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await screen.press("s", "w", *"-9", "enter")
        assert screen.app.walker.standing["edits"] == [f"1:logits:0,{most}=-9"]
        assert screen.cursor == ((0, most), "-9")


async def test_left_while_typed():
    async with opened(goto=Place(1, "logits", (0, 9)), size=LARGE) as screen:
        before = shown(screen)
        for keys in ([*"42", "escape"], ["enter"], ["ctrl+u", *"7", "backspace", "enter"]):
            await screen.press("w")
            assert "logits[0,9] =" in screen.said
            await screen.press(*keys)
            assert "what if:" not in screen.lines[0]
            assert torch.equal(shown(screen), before)


async def test_before_after_and_difference():
    edits = {(1, "hidden.pre", (0, 6)): 2.5}
    after, before = what_if(edits)[0], what_if({})[0]
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await edit(screen, "1:hidden.pre:0,6", "2.5")
        await screen.goto("1:logits:0,9")
        for word, expected in (
            ("", after["logits"]),
            ("before", before["logits"]),
            ("difference", after["logits"] - before["logits"]),
            ("", after["logits"]),
        ):
            title = screen.pane("table")[0]
            assert title.startswith(f"logits ({word})" if word else "logits  ")
            assert torch.allclose(shown(screen), seen(screen, expected), atol=1e-6)
            assert screen.number == pytest.approx(float(expected[0, 9]), abs=1e-6)
            await screen.press("=")
        await screen.press("=")
        await screen.goto("1:embedding")  # before the edit: nothing differs
        assert not shown(screen).any()
        await screen.press("u")  # without edits there is but one view
        assert screen.pane("table")[0].startswith("embedding  ")


async def test_taken_back_one_by_one():
    """To the bit, in the step and the next, and in the right order."""
    edits: Edits = {(1, "q", (0, 0, 1)): 0.5, (0, "parameters.W_V.weight", (1, 1)): 2.0}
    edits |= {(2, "logits", (1, 9)): -1.0, (1, "q", (0, 0, 1)): 0.25, (1, "batch.X", (1, 1)): BALL}
    async with opened(goto=Place(2, "loss"), size=LARGE) as screen:
        were = []

        async def look() -> tuple[Tensor, ...]:
            found = []
            for place in ("1:logits", "1:update.W_Q.weight", "2:gradients.logits", "2:loss"):
                await screen.goto(place)
                found.append(shown(screen))
            return tuple(found)

        for (step, name, cell), value in edits.items():
            were.append(await look())
            await edit(screen, f"{step}:{name}:{','.join(map(str, cell))}", repr(value))
        for k in reversed(range(len(edits))):
            await screen.press("u")
            assert screen.said == "the last edit is taken back"
            assert (f"what if: {k} edit" in screen.lines[0]) == (k > 0)
            assert all(map(torch.equal, await look(), were[k]))
        await screen.goto("1:logits")
        assert torch.allclose(were[0][0], seen(screen, what_if({})[0]["logits"]), atol=1e-6)


async def test_going_on_back_and_to_the_other_map_with_edits():
    edits: Edits = {(1, "hidden.pre", (0, 6)): 2.5}
    expected = what_if(edits, 3)
    async with opened(goto=Place(1, "logits"), size=LARGE) as screen:
        await edit(screen, "1:hidden.pre:0,6", "2.5")
        await screen.goto("1:loss")
        for key, step in ((".", 2), (".", 3), (",", 2), (",", 1)):
            await screen.press(key)
            assert screen.place == (step, "loss")
            assert screen.number == pytest.approx(float(expected[step - 1]["loss"]), abs=1e-6)
            assert f"loss {float(expected[step - 1]['loss']):.4f}" in screen.lines[0]
        await screen.press("m")
        assert "what if" not in screen.lines[0]
        await screen.press("m")
        assert "what if: 1 edit" in screen.lines[0]
        assert screen.number == pytest.approx(float(expected[0]["loss"]), abs=1e-6)
        await screen.goto("1:hidden.pre:0,6")
        assert "set by you" in screen.explanation
        await screen.press("enter")
        assert screen.number == pytest.approx(float(what_if({})[0]["hidden.pre"][0, 6]), abs=1e-6)
