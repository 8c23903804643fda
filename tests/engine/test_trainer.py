"""The trainer: the loop everybody writes, as states."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import engine
from engine import UsageError, drain, each, patched
from engine.training.optimizers import rule_named
from tests.engine.plain import as_it_is, plain, plain_optimizer, plain_training
from tests.engine.test_models import NAMES, SHAPES
from tests.engine.worked import MODELS, RULES, X, Y, build, copied, prepared, same, trace, training

IDS, TARGETS = torch.tensor(X), torch.tensor(Y)
PREPARATION = [
    *("stories", "split", "tokens", "vocabulary", "ids", "windows.contexts", "windows.targets"),
]
BOTH = pytest.mark.parametrize("kind", ["sgd", "adamw"])
EACH_MODEL = pytest.mark.parametrize("name", MODELS)


def held_out_data(name_of_words: str = "lily") -> engine.TrainingData:
    """Twenty stories, some of which the hash rule holds out."""
    stories = [f"{name_of_words} found {count} balls." for count in range(20)]
    data = prepared(documents=stories).data
    assert data.held_out is not None
    return data


def model_for(data: engine.TrainingData) -> engine.StatesModel:
    words = next(state.value for state in data.preparation if state.name == "vocabulary")
    return build("mlp", words=len(words))


# --- the numbers are torch's -----------------------------------------------------------------


@BOTH
@EACH_MODEL
@pytest.mark.parametrize("keep_gradients", [True, False])
def test_training_is_the_plain_loop(name: str, kind: str, keep_gradients: bool):
    """Drained: same losses and, after 5 steps, same parameters, bit for bit."""
    stepped = training(name, RULES[kind], keep_gradients=keep_gradients)
    other = plain(name)
    losses = plain_training(other, IDS, TARGETS, plain_optimizer(kind, other), 5)
    last = drain(engine.train(stepped, 5))
    assert torch.equal(last.value, losses[-1])
    for mine, its in zip(stepped.model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)


@BOTH
@EACH_MODEL
def test_reading_everything_disturbs_nothing(name: str, kind: str):
    """Stepped, with every state and aside read: same losses, gradients and parameters."""
    stepped, other = training(name, RULES[kind]), plain(name)
    optimizer = plain_optimizer(kind, other)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = F.cross_entropy(other(IDS), TARGETS)
        loss.backward()
        made = {state.name: copied(state.value) for state in each(stepped.states(step))}
        assert torch.equal(made["loss"], loss.detach())
        for parameter, value in other.named_parameters():
            assert torch.equal(made[f"gradients.{parameter}"], value.grad)
        optimizer.step()
        for parameter, value in other.named_parameters():
            assert torch.equal(made[f"update.{parameter}"], value), parameter
            assert torch.equal(stepped.parameters[parameter], value), parameter


@EACH_MODEL
def test_states_around_the_model(name: str):
    """Probabilities, losses, gradients of states and their norm, from plain autograd."""
    other, kept = plain(name), {}

    def keep(state: str, tensor):
        tensor.retain_grad()
        kept[state] = tensor
        return tensor

    logits = other(IDS, keep)
    loss = F.cross_entropy(logits, TARGETS)
    loss.backward()
    made = trace(training(name), 1)
    made = {state: value for (step, state), value in made.items() if step == 1}
    assert made["batch.X"].tolist() == X
    assert made["batch.y"].tolist() == Y
    assert torch.allclose(made["probabilities"], torch.softmax(logits, -1), atol=1e-7)
    shares = torch.log_softmax(logits, -1)[torch.arange(2), TARGETS]
    assert torch.allclose(made["loss.per_target"], -shares, atol=1e-6)
    for state, tensor in kept.items():
        assert torch.equal(made[f"gradients.{state}"], tensor.grad), state
    squares = sum(float((p.grad.double() ** 2).sum()) for p in other.parameters())
    assert made["gradients.norm"].item() == pytest.approx(math.sqrt(squares), abs=1e-6)


# --- names, order, asides --------------------------------------------------------------------


@EACH_MODEL
def test_names_in_order(name: str):
    stepped = training(name)
    assert [state.name for state in each(stepped.states(0))] == PREPARATION
    parameters = list(SHAPES[name])
    assert [state.name for state in each(stepped.states(1))] == [
        *("batch.X", "batch.y"),
        *NAMES[name],
        *("probabilities", "loss.per_target", "loss"),
        *(f"gradients.{state}" for state in reversed(NAMES[name])),
        *(f"gradients.{parameter}" for parameter in parameters),
        "gradients.norm",
        *(f"update.{parameter}" for parameter in parameters),
    ]


@EACH_MODEL
def test_asides_are_what_nothing_later_needs(name: str):
    asides = {state.name for state in each(training(name).states(1)) if state.aside}
    parameters = list(SHAPES[name])
    assert asides == {
        *("probabilities", "loss.per_target", "gradients.norm"),
        *(f"gradients.{state}" for state in NAMES[name]),
        *(f"update.{parameter}" for parameter in parameters),
    }


@EACH_MODEL
def test_roles(name: str):
    """Data, parameter, activation, gradient and optimizer are never confused."""
    for state in each(training(name).states(1)):
        first = state.name.partition(".")[0]
        expected = {"batch": "data", "gradients": "gradient", "update": "optimizer"}
        assert state.role == expected.get(first, "activation"), state.name


def test_without_gradients_kept_none_are_offered():
    names = [state.name for state in each(training("mlp", keep_gradients=False).states(1))]
    assert "gradients.logits" not in names
    assert "gradients.vocab_head.bias" in names


def test_data_that_is_only_windows():
    data = engine.TrainingData.of(IDS, TARGETS)
    stepped = engine.Training(build("mlp"), data, engine.FixedRows([0, 1]))
    made = {state.name: state.value for state in each(engine.train(stepped, 1))}
    assert list(made)[:2] == ["windows.contexts", "windows.targets"]
    assert torch.equal(made["loss"], F.cross_entropy(plain("mlp")(IDS), TARGETS))


# --- late readers ----------------------------------------------------------------------------


@BOTH
def test_what_is_read_late_is_right_or_says_so(kind: str):
    """Kept until the training is over, a state still has its own step's value. Only an update
    that nobody read cannot be made any more, and says so."""
    expected = trace(training("attention", RULES[kind]), 3)
    late = training("attention", RULES[kind])
    kept = [(step, state) for step in range(4) for state in list(each(late.states(step)))]
    assert len(kept) == len(expected)
    for step, state in kept:
        if state.name.startswith("update."):
            with pytest.raises(RuntimeError, match=f"{state.name} was read too late"):
                _ = state.value
        else:
            assert same(state.value, expected[step, state.name]), (step, state.name)


@BOTH
def test_an_update_read_in_time_stays_what_it_was(kind: str):
    """The value read is a copy: the next step's write does not reach it."""
    stepped = training("mlp", RULES[kind])
    read = []
    for step in (1, 2):
        for state in each(stepped.states(step)):
            if state.name == "update.vocab_head.weight":
                read.append((state, copied(state.value)))
    assert not torch.equal(read[0][1], read[1][1])
    for state, value in read:
        assert torch.equal(state.value, value)


# --- patches ---------------------------------------------------------------------------------


@EACH_MODEL
def test_a_patch_trains_as_plain_torch_would(name: str):
    """Another value at `hidden` in step 1: loss, gradients and the step that is taken."""
    stepped, other = training(name), plain(name)
    wanted = torch.full((2, 8), 0.5)
    optimizer = plain_optimizer("sgd", other)
    logits = other(IDS, lambda state, x: wanted if state == "hidden" else x)
    loss = F.cross_entropy(logits, TARGETS)
    loss.backward()
    assert torch.equal(drain(patched(stepped.states(1), {"hidden": wanted})).value, loss)
    optimizer.step()
    for mine, its in zip(stepped.model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)


@EACH_MODEL
def test_a_patch_with_own_values_trains_the_same(name: str):
    """Every state of the step patched with what it is anyway."""
    unpatched, stepped = training(name), training(name)
    made = trace(unpatched, 1)
    own = {state: value for (step, state), value in made.items() if step == 1}
    drain(patched(stepped.states(1), own))
    for mine, its in zip(stepped.model.parameters(), unpatched.model.parameters(), strict=True):
        assert torch.equal(mine, its)


@BOTH
def test_a_patched_update_is_the_one_that_is_used(kind: str):
    """The parameter is then what was asked for; every other one is what it would have been."""
    usual, stepped = (training("attention", rule_named(kind, 0.1)) for _ in "ab")
    drain(usual.states(1))
    wanted = torch.full((3, 4), 0.5)
    drain(patched(stepped.states(1), {"update.W_Q.weight": wanted}))
    for name, parameter in stepped.parameters.items():
        expected = wanted if name == "W_Q.weight" else usual.parameters[name]
        assert torch.equal(parameter, expected), name


def test_a_patched_gradient_is_the_one_that_is_used():
    """What the screen would show as the update is the step that is taken."""
    stepped = training("mlp", engine.SGD(0.5))
    old = copied(stepped.parameters["vocab_head.bias"])
    wanted = torch.ones(10)
    edits = {"gradients.vocab_head.bias": wanted}
    made = {state.name: copied(state.value) for state in each(patched(stepped.states(1), edits))}
    assert torch.equal(made["update.vocab_head.bias"], old - 0.5)
    assert torch.equal(stepped.parameters["vocab_head.bias"], old - 0.5)


# --- validation ------------------------------------------------------------------------------


@BOTH
def test_validation_scores_and_updates_nothing(kind: str):
    """The mean loss over the held-out windows after the step; training goes on as without it."""
    data = held_out_data()
    contexts, targets = data.held_out
    rows = engine.FixedRows([0, 3, 5])
    scored = engine.Training(model_for(data), data, rows, RULES[kind])
    unscored = engine.Training(model_for(data), data, rows, RULES[kind], evaluate_every=0)
    for step in range(1, 4):
        made = {state.name: state.value for state in each(scored.states(step))}
        drain(unscored.states(step))
        assert list(made)[-1] == "validation"
        for mine, its in zip(scored.model.parameters(), unscored.model.parameters(), strict=True):
            assert torch.equal(mine, its)
        shares = torch.log_softmax(scored.model(contexts).double(), -1)
        expected = -shares[torch.arange(len(targets)), targets].mean().item()
        assert made["validation"].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("every", "at"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (3, [3]), (0, [])])
def test_validation_comes_at_its_times(every: int, at: list[int]):
    data = held_out_data()
    rows = engine.FixedRows([0])
    stepped = engine.Training(model_for(data), data, rows, evaluate_every=every)
    found = [
        step
        for step in range(5)
        if "validation" in [state.name for state in each(stepped.states(step))]
    ]
    assert found == at


def test_no_validation_where_nothing_is_held_out():
    assert "validation" not in [state.name for state in each(training("mlp").states(1))]


# --- snapshots -------------------------------------------------------------------------------


@BOTH
def test_restored_training_goes_on_the_same(kind: str):
    """Snapshot, train on, restore, train again: same numbers; the snapshot is a copy."""
    stepped = training("attention", RULES[kind])
    drain(engine.train(stepped, 2))
    snapshot = stepped.snapshot(2)
    first = trace_from(stepped, 3)
    stepped.restore(snapshot)
    again = trace_from(stepped, 3)
    replica = stepped.replica()
    replica.restore(snapshot)
    apart = trace_from(replica, 3)
    for name, value in first.items():
        assert same(value, again[name]), name
        assert same(value, apart[name]), name


def trace_from(stepped: engine.Training, step: int) -> dict:
    return {
        (at, state.name): copied(state.value)
        for at in (step, step + 1)
        for state in each(stepped.states(at))
    }


def test_a_replica_has_tensors_of_its_own():
    stepped = training("mlp")
    before = [copied(parameter) for parameter in stepped.model.parameters()]
    drain(engine.train(stepped.replica(), 2))
    for parameter, value in zip(stepped.model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("lr", [0.0, -1.0, math.nan, math.inf])
@BOTH
def test_a_learning_rate_trains(kind: str, lr: float):
    with pytest.raises(UsageError, match="does not train: give a number above 0"):
        rule_named(kind, lr)


def test_an_unknown_optimizer_is_told():
    with pytest.raises(UsageError, match="no optimizer is called 'rmsprop': use sgd, adam, adamw"):
        rule_named("rmsprop", 0.1)


def test_plain_models_are_not_the_engine_s():
    """The comparison above is worth something: `plain` shares no code with the engine."""
    assert not isinstance(plain("mlp"), engine.StatesModel)
    assert as_it_is("x", IDS) is IDS
