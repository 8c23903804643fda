"""What if: an edited walk is what plain PyTorch makes of the same numbers with one put in place."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine import SGD, Adam, AdamW, TensorstepError, UsageError, Walk
from engine.edits import Edit
from engine.service.options import Options
from engine.service.session import Session
from tests.engine.plain import plain, plain_training
from tests.engine.test_models import EVERY_STATE, IDS, TARGETS
from tests.engine.test_walk import position
from tests.engine.worked import MODELS, RULES, copied, same

Seen = dict[tuple[int, str], Any]
EACH_MODEL = pytest.mark.parametrize("name", MODELS)
WORD, ROW = "token_embedding.weight", "hidden_layer.bias"
OTHERS = ("batch.X", "batch.y", f"gradients.{ROW}", f"update.{ROW}", f"parameters.{ROW}")


def torch_optimizer(rule: Any, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """torch's own, with a rule's settings."""
    if isinstance(rule, AdamW):
        decay = rule.weight_decay
        return torch.optim.AdamW(parameters, rule.lr, rule.betas, rule.eps, weight_decay=decay)
    if isinstance(rule, Adam):
        return torch.optim.Adam(parameters, rule.lr, rule.betas, rule.eps)
    return torch.optim.SGD(parameters, rule.lr, rule.momentum)


def reference(
    name: str, rule: Any, steps: int, edits: Iterable[Edit] = (), clip: float | None = None
) -> Seen:
    """The loop everybody writes, on the worked batch, with numbers put in place where an edit says
    so: all states, losses, gradients, the optimizer's memory and parameters, by (step, name)."""
    model, seen = plain(name), {}
    parameters = dict(model.named_parameters())
    optimizer = torch_optimizer(rule, parameters.values())

    def put(step: int, state: str, tensor: Tensor) -> Tensor:
        here = [edit for edit in edits if (edit.step, edit.name) == (step, state)]
        made = tensor.clone() if here else tensor
        for edit in here:
            made[edit.cell] = edit.value  # a constant: autograd lets nothing through
        return made

    def stored(step: int) -> None:
        for key, parameter in parameters.items():
            parameter.data.copy_(put(step, f"parameters.{key}", parameter.data))
            seen[step, f"parameters.{key}"] = copied(parameter)

    stored(0)
    for step in range(1, steps + 1):
        kept = {}

        def use(state: str, tensor: Tensor, step: int = step, kept: dict = kept) -> Tensor:
            made = put(step, state, tensor)
            made.retain_grad()
            kept[state] = made
            return made

        X, y = put(step, "batch.X", IDS), put(step, "batch.y", TARGETS)
        optimizer.zero_grad()
        loss = put(step, "loss", F.cross_entropy(model(X, use), y))
        loss.backward()
        made = {"batch.X": X, "batch.y": y, "loss": loss, **kept}
        made |= {f"gradients.{state}": tensor.grad for state, tensor in kept.items()}
        for key, parameter in parameters.items():
            parameter.grad = put(step, f"gradients.{key}", parameter.grad)
            made[f"gradients.{key}"] = copied(parameter.grad)
        if clip is not None:
            made["gradients.norm"] = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
            for key, parameter in parameters.items():
                parameter.grad = put(step, f"gradients.clipped.{key}", parameter.grad)
                made[f"gradients.clipped.{key}"] = copied(parameter.grad)
        optimizer.step()
        for key, parameter in parameters.items():
            parameter.data.copy_(put(step, f"update.{key}", parameter.data))
            made[f"update.{key}"] = parameter
            for part, torchs in rule.kept.items():
                made[f"update.{key}.{part}"] = optimizer.state[parameter][torchs]
        seen |= {(step, state): copied(tensor) for state, tensor in made.items()}
        stored(step)
    return seen


def compare(walk: Walk, expected: Seen) -> None:
    """Not one bit differs."""
    for (step, state), value in expected.items():
        assert same(walk.fetch(state, step), value), (step, state)


def session(rule: Any = None, step: int = 4, clip: float | None = None) -> Session:
    """Every training walk at the beginning of a step."""
    named = {"Adam": "adam", "AdamW": "adamw"}.get(type(rule).__name__, "sgd")
    settings = {key: getattr(rule, key, None) for key in ("momentum", "weight_decay")}
    settings = {key: value or None for key, value in settings.items()}
    lr = rule.lr if rule else 0.1
    made = Session(Options(optimizer=named, lr=lr, clip=clip, **settings))
    for model in MODELS:
        made.walk("training", model).seek(step)
    return made


def everything(walk: Walk, steps: int) -> Seen:
    """All states of the steps, and the parameters after each."""
    seen = {
        (step, record.name): copied(record.value)
        for step in range(steps + 1)
        for record in walk.records(step)
    }
    for step in range(steps + 1):
        for key in walk.process.parameters:
            seen[step, f"parameters.{key}"] = copied(walk.fetch(f"parameters.{key}", step))
    return seen


def an_edit(walk: Walk, step: int, state: str, seed: int) -> Edit:
    """Another value in a random cell of a state."""
    chance = random.Random(f"{state}{seed}")
    value = walk.fetch(state, step)
    cell = tuple(chance.randrange(size) for size in value.shape)
    wanted = round(chance.uniform(-2, 2), 3)
    if not value.dtype.is_floating_point:
        wanted = float(chance.choice([i for i in range(10) if i != value[cell].item()]))
    return Edit(step, state, cell, wanted)


# --- what follows, and what came before ------------------------------------------------------


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize(
    ("name", "state"), [*EVERY_STATE, *((model, other) for model in MODELS for other in OTHERS)]
)
def test_one_cell_edited(name: str, state: str, kind: str):
    """Any state of step 2: what follows to step 5 is plain PyTorch's, what came before is what it
    was, and so is the whole original walk."""
    made = session(RULES[kind])
    original = made.walk("training", name)
    before = everything(original, 3)
    edit = an_edit(original, 2, state, 1)
    made.edit("training", name, edit)
    walk = made.walk("training", name)
    assert walk is not original
    assert position(walk) == (4, "batch.X")
    walk.seek(6)
    expected = reference(name, RULES[kind], 5, [edit])
    compare(walk, expected)
    assert walk.losses == [expected[step, "loss"].item() for step in range(1, 6)]
    wanted = torch.tensor(edit.value).to(walk.fetch(state, 2).dtype)
    assert torch.equal(walk.fetch(state, 2)[edit.cell], wanted)
    names = [record.name for record in walk.records(2)]
    until = names.index(state) if state in names else len(names)
    compare(walk, {key: value for key, value in before.items() if key[0] < 2})
    compare(walk, {(2, earlier): before[2, earlier] for earlier in names[:until]})
    assert made.walk("training", name, original=True) is original
    compare(original, before)


@EACH_MODEL
def test_several_edits_and_undo(name: str):
    """Two edits in step 2, one in step 1, one of a stored parameter, made in any order: each time
    plain PyTorch's numbers; taken back one by one, each time the numbers of before, bit for bit."""
    rule = SGD(0.1, 0.9)
    made = session(rule, 5)
    original = made.walk("training", name)
    edits = [
        an_edit(original, 2, "hidden", 1),
        an_edit(original, 2, "logits", 2),
        an_edit(original, 1, "embedding", 3),
        an_edit(original, 3, f"parameters.{WORD}", 4),
        an_edit(original, 2, "hidden", 5),
    ]
    states = [everything(original, 4)]
    for count in range(1, len(edits) + 1):
        made.edit("training", name, edits[count - 1])
        walk = made.walk("training", name)
        walk.seek(5)
        compare(walk, reference(name, rule, 4, edits[:count]))
        states.append(everything(walk, 4))
    assert made.edits("training", name) == edits
    for count in range(len(edits), 0, -1):
        compare(made.walk("training", name), states[count])
        assert made.undo("training", name) == edits[count - 1]
    assert made.edits("training", name) == []
    assert made.walk("training", name) is original
    compare(original, states[0])
    assert made.undo("training", name) is None


@pytest.mark.parametrize("state", ["embedding", "logits", f"gradients.{ROW}"])
@EACH_MODEL
def test_a_parameter_and_a_state_of_the_step_that_begins_with_it(name: str, state: str):
    """What comes before the edited state, in the same step, comes from the edited parameter."""
    made = session()
    edits = [Edit(1, f"parameters.{WORD}", (7, 1), 2.0)]
    edits.append(an_edit(made.walk("training", name), 2, state, 7))
    for order in (edits, edits[::-1]):
        for edit in order:
            made.edit("training", name, edit)
        compare(made.walk("training", name), reference(name, SGD(0.1), 3, edits))
        for _ in order:
            made.undo("training", name)


def test_of_two_edits_of_one_cell_the_last_counts():
    made = session()
    first, last = (Edit(1, "hidden", (0, 2), value) for value in (3.0, -1.5))
    for edit in (first, last):
        made.edit("training", "mlp", edit)
    walk = made.walk("training", "mlp")
    walk.seek(4)
    compare(walk, reference("mlp", SGD(0.1), 3, [last]))
    made.undo("training", "mlp")
    compare(made.walk("training", "mlp"), reference("mlp", SGD(0.1), 3, [first]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "state", "cell"),
    [
        ("mlp", "hidden", (0, 3)),
        ("attention", "scores", (1, 0, 2)),
        ("multihead", "scores.masked", (1, 1, 0, 2)),
        ("attention", f"parameters.{ROW}", (3,)),
    ],
)
def test_what_is_no_number(name: str, state: str, cell: tuple[int, ...], value: float):
    """It spreads as in plain PyTorch; a second edit, among what is NaN by then, cuts the gradient
    of its own cell only."""
    made = session()
    edits = [Edit(2, state, cell, value), Edit(3, "logits", (0, 4), 0.5)]
    for count in (1, 2):
        made.edit("training", name, edits[count - 1])
        walk = made.walk("training", name)
        walk.seek(5)
        compare(walk, reference(name, SGD(0.1), 4, edits[:count]))


@pytest.mark.parametrize(("name", "state"), [*EVERY_STATE, ("mlp", f"gradients.{ROW}")])
def test_a_cell_s_own_value_changes_nothing(name: str, state: str):
    made = session(RULES["adamw"])
    original = made.walk("training", name)
    before = everything(original, 3)
    cell = an_edit(original, 2, state, 6).cell
    made.edit("training", name, Edit(2, state, cell, original.fetch(state, 2)[cell].item()))
    compare(made.walk("training", name), before)


@pytest.mark.parametrize("state", ["gradients.W_Q.weight", "gradients.clipped.W_Q.weight", "q"])
def test_edits_where_gradients_are_clipped(state: str):
    """An edited gradient counts in the norm; of one that is clipped already comes only the step."""
    made = session(Adam(0.02), clip=0.2)
    edit = Edit(2, state, (0, 0, 1) if state == "q" else (0, 1), 0.7)
    made.edit("training", "attention", edit)
    walk = made.walk("training", "attention")
    walk.seek(5)
    compare(walk, reference("attention", Adam(0.02), 4, [edit], clip=0.2))


def test_a_parameter_as_it_stands_in_the_step_in_progress():
    """In the middle of step 4 a parameter is the one of step 3: the edit is of that one."""
    made = session()
    made.walk("training", "mlp").seek(4, "hidden")
    made.edit("training", "mlp", Edit(4, f"parameters.{ROW}", (1,), 0.5))
    walk = made.walk("training", "mlp")
    assert position(walk) == (4, "hidden")
    assert walk.forward()
    assert position(walk) == (4, "logits")
    walk.seek(7)
    compare(walk, reference("mlp", SGD(0.1), 6, [Edit(3, f"parameters.{ROW}", (1,), 0.5)]))
    assert len(walk.losses) == 6


# --- generating ------------------------------------------------------------------------------

GENERATED = ("context", "logits", "logits.blocked", "probabilities", "choice", "history", "hidden")


def generated(name: str, count: int, edits: Iterable[Edit] = (), draw: float | None = None) -> Seen:
    """Continuing "Lily found" after one step of training, with numbers put in place."""
    model, seen, ids = plain(name), {}, [1, 8, 7]
    plain_training(model, IDS, TARGETS, torch.optim.SGD(model.parameters(), 0.1), 1)

    def put(step: int, state: str, tensor: Tensor) -> Tensor:
        made = tensor.detach().clone()
        for edit in edits:
            if (edit.step, edit.name) == (step, state):
                made[edit.cell] = edit.value
        seen[step, state] = made
        return made

    for step in range(1, count + 1):
        for key, parameter in model.named_parameters():
            parameter.data.copy_(put(step - 1, f"parameters.{key}", parameter.data))
        padded = [0] * max(0, 4 - len(ids)) + ids[-4:]
        context = put(step, "context", torch.tensor([padded]))
        logits = model(context, lambda state, tensor, step=step: put(step, state, tensor))
        blocked = logits.clone()
        blocked[0, [0, 1, 3]] = -math.inf
        blocked = put(step, "logits.blocked", blocked)
        chances = put(step, "probabilities", torch.softmax(blocked, -1))[0]
        reached = [
            i for i in range(10) if chances[i] > 0 and sum(chances.double()[: i + 1]) >= (draw or 0)
        ]
        choice = chances.argmax() if draw is None else torch.tensor(reached[0])
        choice = put(step, "choice", choice)
        ids = put(step, "history", torch.tensor([*ids, int(choice)])).tolist()
        if int(choice) == 2:
            break
    return seen


def generating(draw: float | None = None) -> Session:
    made = Session(Options(tokens=6, draw=draw))
    for model in MODELS:
        made.walk("generation", model).seek(4, "logits")
    return made


def to_the_end(walk: Walk) -> int:
    while walk.forward():
        pass
    return walk.frontier


@pytest.mark.parametrize("draw", [None, 0.8])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("state", [*GENERATED, f"parameters.{WORD}", "parameters.vocab_head.bias"])
def test_one_cell_edited_while_generating(name: str, state: str, draw: float | None):
    """What follows from an edit in step 2; and the original, and what undo leaves, as it was."""
    made = generating(draw)
    original = made.walk("generation", name)
    before = generated(name, 6, (), draw)
    compare(original, {key: value for key, value in before.items() if key[0] < 4})
    value, cell = {
        "context": (5.0, (0, 2)),
        "choice": (6.0, ()),
        "history": (4.0, (3,)),
        "probabilities": (0.9, (0, 4)),
        f"parameters.{WORD}": (3.0, (9, 1)),
        "parameters.vocab_head.bias": (20.0, (5,)),
    }.get(state, (9.5, (0, 4)))
    edit = Edit(2, state, cell, value)
    made.edit("generation", name, edit)
    walk = made.walk("generation", name)
    to_the_end(walk)
    expected = generated(name, 6, [edit], draw)
    compare(walk, expected)
    assert walk.frontier == max(step for step, _ in expected)
    to_the_end(original)
    compare(original, before)
    assert made.undo("generation", name) == edit
    assert made.walk("generation", name) is original
    compare(original, before)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_put_in_ends_the_text(name: str):
    """<EOS> chosen in step 2: there is no step 3, until it is taken back."""
    made = generating()
    made.edit("generation", name, Edit(2, "choice", (), 2.0))
    walk = made.walk("generation", name)
    assert to_the_end(walk) == 2
    assert walk.fetch("stop", 2) == "yes: <EOS> was chosen"
    assert walk.fetch("history", 2).tolist()[-1] == 2
    with pytest.raises(UsageError, match="there is no step 3"):
        walk.seek(3)
    made.undo("generation", name)
    to_the_end(made.walk("generation", name))
    compare(made.walk("generation", name), generated(name, 6))


def test_an_edit_after_which_nothing_can_be_chosen():
    """NaN among the logits says why there is no going on, and can be taken back."""
    made = generating()
    with contextlib.suppress(TensorstepError):  # told at once, as the cursor stands behind it
        made.edit("generation", "mlp", Edit(2, "logits", (0, 4), math.nan))
    with pytest.raises(TensorstepError, match="no token has a probability above 0"):
        made.walk("generation", "mlp").seek(3)
    made.undo("generation", "mlp")
    assert made.edits("generation", "mlp") == []
    compare(made.walk("generation", "mlp"), generated("mlp", 3))
