"""Walks: forward, back and anywhere, always the same numbers, whatever had to be let go of."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import engine
from engine import FixedDraw, SeededDraws, TensorstepError, UsageError, Walk, drain
from engine.maps import stage_of
from engine.service.options import Options
from engine.service.session import Session
from tests.engine.plain import plain, plain_optimizer, plain_training
from tests.engine.test_models import SHAPES
from tests.engine.worked import (
    EVERY_MODEL,
    MODELS,
    RULES,
    X,
    Y,
    copied,
    generation,
    same,
    trace,
    training,
)

STEPS = 4
KINDS = ("sgd", "adamw")
BUDGETS = {"roomy": 2**28, "tight": 20_000, "tiny": 2_000}
EACH_TRAINING = pytest.mark.parametrize("kind", KINDS)
EACH_MODEL = pytest.mark.parametrize("name", EVERY_MODEL)
EACH_BUDGET = pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)


def position(walk: Walk) -> tuple[int, str]:
    return walk.cursor.step, walk.current.name


def walked_forward(walk: Walk, steps: int) -> dict[tuple[int, str], Any]:
    """Every state up to `steps`, one `forward` at a time, read as it comes."""
    seen = {position(walk): copied(walk.current.value)}
    while walk.forward() and walk.cursor.step <= steps:
        seen[position(walk)] = copied(walk.current.value)
    return seen


def check_same(a: dict, b: dict) -> None:
    assert list(a) == list(b)
    for key in a:
        assert same(a[key], b[key]), key


def wander(walk: Walk, expected: dict, steps: int, moves: int, seed: int) -> None:
    """Random keys; after each the cursor stands on the state a plain count says it stands on, and
    its value is the one that was seen there."""
    places = list(expected)
    kind = walk.process.map
    stages = [(step, stage_of(kind, name, step)) for step, name in places]
    first = [i for i in range(len(places)) if i == 0 or stages[i] != stages[i - 1]]
    chance = random.Random(seed)
    at = places.index(position(walk))
    for _ in range(moves):
        move = chance.choice(
            ["forward", "back", "next_stage", "back_stage", "next_step", "back_step", "seek"]
        )
        step, name = places[at]
        if move == "seek":
            there = chance.randrange(len(places))
            walk.seek(*places[there])
        elif move in ("next_step", "back_step"):
            other = step + (1 if move == "next_step" else -1)
            begin = [i for i, place in enumerate(places) if place[0] == other]
            if not begin and move == "next_step":  # beyond what is compared
                continue
            assert getattr(walk, move)() == bool(begin)
            match = [i for i in begin if step and other and places[i][1] == name]
            there = (match or begin or [at])[0]
        else:
            there = {
                "forward": at + 1,
                "back": max(at - 1, 0),
                "next_stage": next((i for i in first if i > at), len(places)),
                "back_stage": max((i for i in first if i < at), default=0),
            }[move]
            if there == len(places):  # beyond what is compared
                continue
            assert getattr(walk, move)() == (there != at)
        at = there
        assert position(walk) == places[at]
        assert same(walk.current.value, expected[places[at]]), places[at]


# --- the same numbers ------------------------------------------------------------------------


@EACH_TRAINING
@EACH_MODEL
@EACH_BUDGET
def test_walked_is_stepped(name: str, kind: str, budget: int):
    """Every state of four steps, asides included, is the one `engine.each` shows."""
    expected = trace(training(name, RULES[kind]), STEPS)
    check_same(walked_forward(Walk(training(name, RULES[kind]), budget), STEPS), expected)


@EACH_TRAINING
@EACH_MODEL
@EACH_BUDGET
def test_back_to_the_start_shows_the_same(name: str, kind: str, budget: int):
    """Every key back: all values once more, in the other order."""
    walk = Walk(training(name, RULES[kind]), budget)
    expected = trace(training(name, RULES[kind]), 2)
    walk.seek(2, list(expected)[-1][1])
    backwards = {position(walk): copied(walk.current.value)}
    while walk.back():
        backwards[position(walk)] = copied(walk.current.value)
    check_same(dict(reversed(backwards.items())), expected)
    assert position(walk) == (0, "stories")


@EACH_TRAINING
@EACH_MODEL
@EACH_BUDGET
def test_any_way_shows_the_same(name: str, kind: str, budget: int):
    """Random keys over four steps, from a walk that begins anew and only grows as it must."""
    expected = trace(training(name, RULES[kind]), STEPS)
    moves = 150 if budget > 2_000 else 60
    wander(Walk(training(name, RULES[kind]), budget), expected, STEPS, moves, seed=len(name))


@pytest.mark.parametrize("name", [*MODELS, "transformer"])  # the bigram's text ends before
@pytest.mark.parametrize("chooser", [None, FixedDraw(0.8), SeededDraws(5)], ids=repr)
@EACH_BUDGET
def test_any_way_through_a_generation(name: str, chooser, budget: int):
    expected = trace(generation(name, budget=STEPS, chooser=chooser), STEPS)
    walk = Walk(generation(name, budget=STEPS, chooser=chooser), budget)
    wander(walk, expected, STEPS, 100, seed=3)


@EACH_TRAINING
@pytest.mark.parametrize("name", MODELS)
@EACH_BUDGET
def test_parameters_at_every_step(name: str, kind: str, budget: int):
    """After 5 steps walked: those of a plain loop with torch.optim, and those of every step
    before, asked for in no order."""
    walk = Walk(training(name, RULES[kind]), budget)
    walk.seek(6)
    other = plain(name)
    optimizer = plain_optimizer(kind, other)
    after = [{key: copied(value) for key, value in other.named_parameters()}]
    losses = []
    for _ in range(5):
        losses += plain_training(other, torch.tensor(X), torch.tensor(Y), optimizer, 1)
        after.append({key: copied(value) for key, value in other.named_parameters()})
    assert walk.losses == [loss.item() for loss in losses]
    for step in (5, 1, 0, 3, 4, 2):
        for key, value in after[step].items():
            assert torch.equal(walk.fetch(f"parameters.{key}", step), value), (step, key)
            assert torch.equal(walk.record(f"parameters.{key}", step).value, value)
    for parameter, value in other.named_parameters():
        assert torch.equal(walk.process.parameters[parameter], value)


@EACH_TRAINING
@EACH_BUDGET
def test_back_to_step_1_after_step_3(kind: str, budget: int):
    """Values and explanations are of the numbers that stood then, in parts of updates as well."""
    expected = trace(training("attention", RULES[kind]), 1)
    fresh = Walk(training("attention", RULES[kind]))
    fresh.seek(1, "update.vocab_head.bias")
    walk = Walk(training("attention", RULES[kind]), budget)
    walk.seek(3, "update.vocab_head.bias")
    later = copied(walk.fetch("update.W_K.weight", 3))
    walk.seek(1)
    parts = RULES[kind].parts
    names = [
        *("q", "logits", "loss", "gradients.q", "gradients.W_K.weight", "update.W_K.weight"),
        *(f"update.W_K.weight.{part}" for part in parts),
    ]
    assert not torch.equal(walk.fetch("update.W_K.weight", 1), later)
    for name in names:
        value = walk.fetch(name, 1)
        if (1, name) in expected:
            assert same(value, expected[1, name])
        assert same(value, fresh.fetch(name, 1)), name
        cell = tuple(size - 1 for size in value.shape)
        assert walk.record(name, 1).explain(cell) == fresh.record(name, 1).explain(cell), name


@EACH_MODEL
@EACH_BUDGET
def test_gradients_of_states_that_were_made_again(name: str, budget: int):
    """A state read anew has no gradient of its own: asked for it, the step is made once more."""
    expected = trace(training(name), 1)
    walk = Walk(training(name), budget)
    walk.seek(4)
    for (step, state), value in expected.items():
        if (step, f"gradients.{state}") in expected:
            assert same(walk.fetch(state, step), value)
            gradient = expected[step, f"gradients.{state}"]
            assert same(walk.fetch(f"gradients.{state}", step), gradient), state


def test_parameters_can_be_read_at_any_time():
    """In the preparation, in the middle of a step, and when it has ended."""
    walk = Walk(training("mlp"))
    drawn = dict(plain("mlp").named_parameters())["vocab_head.bias"]
    assert torch.equal(walk.record("parameters.vocab_head.bias", 0).value, drawn)
    assert walk.record("parameters.vocab_head.bias", 0).role == "parameter"
    walk.seek(1, "logits")
    assert torch.equal(walk.record("parameters.vocab_head.bias", 0).value, drawn)
    assert torch.equal(walk.record("parameters.vocab_head.bias", 1).value, drawn)
    walk.seek(2)
    after = walk.record("parameters.vocab_head.bias", 1).value
    assert torch.equal(after, walk.fetch("update.vocab_head.bias", 1))
    assert not torch.equal(after, drawn)


def test_what_a_walk_shows_is_no_live_tensor():
    """Values read at step 1 are the same after the training has gone on."""
    walk = Walk(training("mlp", RULES["adamw"]))
    walk.seek(2)
    names = [record.name for record in walk.records(1)]
    names += [f"parameters.{name}" for name in SHAPES["mlp"]]
    names += [f"update.{name}.m" for name in SHAPES["mlp"]]
    held = {name: walk.fetch(name, 1) for name in names}
    kept = {name: copied(value) for name, value in held.items()}
    walk.seek(5)
    for name in names:
        assert same(held[name], kept[name]), name


# --- the cursor ------------------------------------------------------------------------------


def test_a_walk_begins_at_the_beginning():
    walk = Walk(training("mlp"))
    assert position(walk) == (0, "stories")
    assert not walk.back()
    assert not walk.back_stage()
    assert not walk.back_step()
    assert position(walk) == (0, "stories")


def test_a_generation_ends():
    walk = Walk(generation("mlp", budget=2))
    last = walked_forward(walk, 99)
    assert list(last)[-1] == (2, "history") == position(walk)
    assert not walk.forward()
    assert not walk.next_step()
    assert not walk.next_stage()
    assert position(walk) == (2, "history")


@pytest.mark.parametrize(
    ("step", "name", "sentence"),
    [
        (-1, None, "there is no step -1: steps are counted from 0"),
        (3, None, "there is no step 3: generation ended at step 2 .*the budget of 2 new tokens"),
        (
            1,
            "weight",
            "no state of step 1 of the generation .* is called 'weight': they are context",
        ),
        (0, "logits", "no state of step 0 .* is called 'logits': they are prompt, tokens, history"),
    ],
)
def test_seeking_what_is_not_there(step: int, name: str | None, sentence: str):
    walk = Walk(generation("mlp", budget=2))
    walk.seek(1, "hidden")
    with pytest.raises(UsageError, match=sentence):
        walk.seek(step, name)
    assert position(walk) == (1, "hidden")


@pytest.mark.parametrize("step", [-1, 5])
@pytest.mark.parametrize("process", [lambda: training("mlp"), lambda: generation("mlp", budget=2)])
def test_reading_a_step_that_is_not_there(process, step: int):
    """A step before the first or not begun yet is told, and nothing is made by asking."""
    walk = Walk(process())
    walk.seek(1, "hidden")
    with pytest.raises(UsageError, match=f"there is no step {step} yet"):
        walk.records(step)
    with pytest.raises(UsageError, match=f"no step {step}"):
        walk.record("logits", step)
    with pytest.raises(UsageError, match=f"no step {step}"):
        walk.fetch("logits", step)
    assert position(walk) == (1, "hidden")


def test_reading_a_name_that_is_not_there():
    walk = Walk(training("mlp"))
    walk.seek(2)
    for name in ("nothing", "update.vocab_head.bias.m", "parameters.W_Q.weight", "q"):
        assert walk.record(name, 1) is None
        with pytest.raises(KeyError, match=f"no value of {name} at step 1"):
            walk.fetch(name, 1)


def test_next_step_lands_on_the_same_state():
    walk = Walk(training("attention"))
    walk.seek(1, "weights")
    assert walk.next_step()
    assert position(walk) == (2, "weights")
    assert walk.back_step()
    assert position(walk) == (1, "weights")
    assert walk.back_step()
    assert position(walk) == (0, "stories")
    assert walk.next_step()
    assert position(walk) == (1, "batch.X")


def test_next_step_where_the_state_is_not_there_lands_on_the_first():
    """`validation` comes every other step."""
    stories = [f"lily found {count} balls." for count in range(20)]
    data = engine.prepare(stories, 4).data
    torch.manual_seed(11)
    model = engine.FixedWindowMLP(30, 4, 4, 8)
    process = engine.Training(model, data, engine.FixedRows([0]), evaluate_every=2)
    walk = Walk(process)
    walk.seek(2, "validation")
    assert walk.next_step()
    assert position(walk) == (3, "batch.X")
    walk.seek(2, "validation")
    assert walk.back_step()
    assert position(walk) == (1, "batch.X")


def test_losses_so_far():
    """One a finished loss, whatever way is walked; going back and forth adds none."""
    walk = Walk(training("mlp"))
    walk.seek(2, "hidden")
    assert len(walk.losses) == 1
    walk.seek(1)
    walk.seek(2, "loss")
    walk.seek(0)
    walk.seek(3)
    expected = trace(training("mlp"), 2)
    assert walk.losses == [expected[1, "loss"].item(), expected[2, "loss"].item()]


def test_a_step_that_fails_tells_so_every_time():
    """Logits that are NaN leave nothing to choose from: the walk stays where that is seen, says
    why whenever it is asked to go on, and can still go back."""
    process = generation("mlp")
    with torch.no_grad():
        process.model.vocab_head.bias.fill_(torch.nan)
    walk = Walk(process)
    walk.seek(1, "cdf")
    for go_on in (walk.forward, walk.forward, walk.next_step, lambda: walk.seek(2)):
        with pytest.raises(TensorstepError, match="no token has a probability above 0"):
            go_on()
    assert position(walk) == (1, "cdf")
    assert [record.name for record in walk.records(1)][-2:] == ["probabilities", "cdf"]
    assert walk.record("choice", 1) is None
    assert walk.back()
    assert walk.current.value.isnan().all()
    while walk.back():
        assert walk.current.value is not None
    assert position(walk) == (0, "prompt")


# --- several walks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [Options(), Options(optimizer="adamw"), Options(batch=3, sentence="a cat. a dog. a hat!")],
    ids=["worked", "adamw", "sampled"],
)
def test_walks_of_a_session_do_not_disturb_each_other(options: Options):
    """All ten walks of a session advanced in turn, over the same prepared data: each shows what
    it shows when it is alone."""
    turns = [(kind, model) for model in EVERY_MODEL for kind in ("training", "generation")]
    together = Session(options)
    seen: dict = {turn: {} for turn in turns}
    for _ in range(90):
        for kind, model in turns:
            walk = together.walk(kind, model)
            assert walk is together.walk(kind, model)
            seen[kind, model][position(walk)] = copied(walk.current.value)
            walk.forward()
    for kind, model in turns:
        alone = Session(options).walk(kind, model)
        for (step, name), value in seen[kind, model].items():
            alone.seek(step, name)
            assert same(alone.current.value, value), (kind, model, step, name)


# --- memory ----------------------------------------------------------------------------------


def large_training(keep_gradients: bool = True) -> engine.Training:
    """Vocabulary 4,000, width and keys 64, hidden 256: 1.3 million parameters, AdamW."""
    torch.manual_seed(11)
    contexts = torch.randint(1, 4000, (256, 16))
    targets = torch.randint(1, 4000, (256,))
    model = engine.CausalAttentionLM(4000, 16, 64, 64, 64, 256)
    data = engine.TrainingData.of(contexts, targets)
    batches = engine.SampledRows(256, 32, 11)
    return engine.Training(model, data, batches, engine.AdamW(0.003), keep_gradients)


def tensor_bytes() -> int:
    """All tensors Python knows of, each storage once, kept gradients included."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            for tensor in (thing, thing.grad if thing.is_leaf or thing.retains_grad else None):
                if tensor is not None:
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def test_a_budget_is_kept_and_going_back_is_right():
    """50 steps in 64 MB: inside it at every state, by the walk's own count and by all tensors
    there are; the steps trained are a plain loop's; values let go of come back the same."""
    budget, steps = 64 * 2**20, 50
    reference = large_training(keep_gradients=False)
    optimizer = torch.optim.AdamW(reference.model.parameters(), 0.003)
    contexts, targets = reference.data.contexts.value, reference.data.targets.value
    expected = {}
    losses = []
    for step in range(1, steps + 1):
        rows = reference.batches.rows(step)
        optimizer.zero_grad()
        logits = reference.model(contexts[rows])
        loss = F.cross_entropy(logits, targets[rows])
        loss.backward()
        losses.append(loss.item())
        if step in (2, 30):
            weight = reference.model.W_K.weight
            expected[step, "logits"] = copied(logits)
            expected[step, "gradients.W_K.weight"] = copied(weight.grad)
        optimizer.step()
        if step in (2, 30):
            expected[step, "update.W_K.weight"] = copied(weight)
            expected[step, "update.W_K.weight.v"] = copied(optimizer.state[weight]["exp_avg_sq"])
    before = tensor_bytes()
    process = large_training()
    walk = Walk(process, budget)
    most = 0
    while walk.cursor.step <= steps:
        walk.forward()
        most = max(most, walk.held_bytes)
    assert most <= budget
    assert walk.losses == losses
    for mine, its in zip(process.model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(mine, its)
    trained = 4 * sum(p.nbytes for p in process.model.parameters())  # itself, gradient, m and v
    assert tensor_bytes() - before <= budget + trained + 2**21  # 2 MB: the step in progress
    for (step, name), value in expected.items():
        assert same(walk.fetch(name, step), value), (step, name)
        assert walk.held_bytes <= budget
    walk.seek(2, "weights")
    assert walk.current.value.shape == (32, 1, 16)
    assert walk.held_bytes <= budget


@pytest.mark.parametrize("megabytes", [34, 40, 50])
def test_a_budget_that_holds_two_snapshots_but_not_three(megabytes: int):
    """A snapshot has 15.7 MB: reading back keeps to the budget all the same, and is right."""
    walk = Walk(large_training(), megabytes * 2**20)
    walk.seek(1, "weights")
    expected = copied(walk.fetch("parameters.W_K.weight", 0))
    walk.seek(8, "weights")
    for step in (6, 3, 5):
        walk.fetch("weights", step)
        walk.fetch("parameters.W_K.weight", step)
        assert walk.held_bytes <= megabytes * 2**20
    assert same(walk.fetch("parameters.W_K.weight", 0), expected)


@EACH_MODEL
def test_all_that_is_held_is_counted(name: str):
    """At the least: values and kept gradients of the states, and a snapshot a step."""
    process = training(name, RULES["adamw"])
    walk = Walk(process)
    walk.seek(3)  # one state of step 3 is made
    made = trace(training(name, RULES["adamw"]), 2)
    kept = 0
    for (step, state), value in made.items():
        held = not walk.record(state, step).aside or state.startswith("gradients.")
        if held and state != "gradients.norm" and isinstance(value, torch.Tensor):
            kept += value.nbytes
    snapshot = 3 * sum(parameter.nbytes for parameter in process.model.parameters())
    assert walk.held_bytes >= kept + 3 * snapshot + walk.current.value.nbytes


@pytest.mark.parametrize("read", ["loss.per_target", "probabilities", "weights"])
def test_what_is_made_again_keeps_no_graph(read: str):
    """A value computed late would otherwise hold the tensors its backward needs, uncounted."""
    walk = Walk(training("attention"), budget=2_000)
    walk.seek(4)
    assert not walk.fetch(read, 1).requires_grad


def test_a_walk_is_gone_when_it_is_let_go_of():
    """Nothing of 200 walks is left: neither the walks nor a single tensor."""

    def walk_once() -> tuple[weakref.ref, weakref.ref]:
        walk = Walk(training("attention", RULES["adamw"]), budget=50_000)
        walk.seek(2, "gradients.q")
        walk.current.explain((0, 0, 0))
        walk.seek(1, "update.W_Q.weight")
        assert walk.current.value is not None
        return weakref.ref(walk), weakref.ref(walk.process.model)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    walk_once()
    before = tensors()
    left = [ref for _ in range(200) for ref in walk_once()]
    after = tensors()
    assert [ref() for ref in left if ref() is not None] == []
    assert after <= before


def test_a_record_of_a_walk_that_is_gone_says_so():
    record = Walk(training("mlp")).current
    gc.collect()
    with pytest.raises(ReferenceError, match="the walk that saw stories is gone"):
        _ = record.value


def test_steps_beyond_the_listed_ones_are_listed_again():
    """More steps than records are kept of: the first ones come back by a replay."""
    process = training("mlp", keep_gradients=False)
    walk = Walk(process)
    walk.seek(walk.history.STEPS_LISTED + 20)
    expected = trace(training("mlp", keep_gradients=False), 3)
    for step in (0, 1, 3):
        names = [name for at, name in expected if at == step]
        assert [record.name for record in walk.records(step)] == names
        for name in names:
            assert same(walk.fetch(name, step), expected[step, name]), (step, name)


def test_draining_and_walking_train_the_same():
    walk, drained = Walk(training("multihead")), training("multihead")
    walk.seek(4)
    drain(engine.train(drained, 3))
    for name, value in drained.parameters.items():
        assert torch.equal(walk.fetch(f"parameters.{name}", 3), value)
