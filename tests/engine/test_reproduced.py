"""The worked sentence, the hand-sized examples and the character model, reproduced: every published
figure comes out, and a wrong one is told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.experiments import character_logs, lily, money_bank
from engine.experiments.comparing import alike
from engine.experiments.rows import DIFFERS, EXACT, MADE, Result
from tests.engine import test_character_logs, test_lily, test_money_bank

MODULES = (lily, money_bank, character_logs)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the figures were made."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def reproduced(module: ModuleType) -> Result:
    found: Result = module.reproduce()
    return found


def here(module: ModuleType) -> dict[str, Any]:
    return {row.name: row.here for row in reproduced(module).rows}


def spoiled(value: Any) -> Any:
    """The same with one thing in it changed, by as little as counts."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        first, *_ = value
        return {**value, first: spoiled(value[first])}
    if isinstance(value, list):
        return [*value[:-1], spoiled(value[-1])]
    return value + 1 if isinstance(value, int) else value + 2e-6


# --- every figure ----------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_every_published_figure_comes_out(module: ModuleType):
    result = reproduced(module)
    assert result.name == module.__name__.rpartition(".")[2].replace("_", "-")
    assert [row for row in result.rows if row.verdict not in (EXACT, MADE)] == []
    assert result.holds
    names = [row.name for row in result.rows]
    assert len(set(names)) == len(names)
    assert set(result.facts) == {"torch", "device", "threads", "seconds"}
    assert json.loads(json.dumps(result.to_json()))["name"] == result.name


def test_no_figure_of_the_sentence_is_left_out():
    published = {**lily.RULES, **lily.FIGURES, **lily.PRINTED, **lily.CLOSE}
    assert set(here(lily)) == set(published)
    assert len(published) == 45


def test_no_figure_of_the_examples_is_left_out():
    states = sum(len(each) for each in money_bank.STATES.values())
    names = set(here(money_bank))
    assert set(money_bank.FIGURES) <= names
    assert len(names) == states + len(money_bank.FIGURES) == 61


def test_the_sentence_is_compared_with_the_reference():
    """What is published here is what the tests of the engine have, number for number."""
    assert lily.RULES["vocabulary"] == test_lily.VOCABULARY
    assert lily.RULES["contexts"] == test_lily.CONTEXTS
    assert lily.RULES["targets"] == test_lily.ALL_TARGETS
    shares = [lily.CLOSE[f"first probabilities, {w} the step"] for w in ("before", "after")]
    assert shares == [test_lily.BEFORE_ANY_STEP, test_lily.AFTER_ONE_STEP]


def test_the_examples_are_compared_with_the_reference():
    for model, states in test_money_bank.EXACT.items():
        for name, row in states.items():
            assert money_bank.STATES[model, money_bank.BANK][name][0] == row, (model, name)
    assert money_bank.FIGURES["choosing: probabilities"][0] == test_money_bank.SHARES


def test_the_logs_are_compared_with_the_reference():
    assert character_logs.HISTORY == test_character_logs.HISTORY
    assert character_logs.EPOCH_8_OF_24 == test_character_logs.BEST
    assert character_logs.EPOCH_30_OF_24 == test_character_logs.LAST
    text = test_character_logs.GREEDY + test_character_logs.PUBLISHED_PS * "p"
    assert character_logs.RULES[character_logs.GREEDY] == text
    assert len(test_character_logs.GREEDY) == 33  # as a note says
    result = reproduced(character_logs)
    assert result.sections == [
        ("Greedy text before training", [test_character_logs.GREEDY + 91 * "p"])
    ]


def test_where_the_notes_round_otherwise_is_said():
    notes = reproduced(money_bank).notes
    assert len(notes) == 8  # seven states, and how intervals are drawn
    told = next(note for note in notes if "blocks.0.residual2" in note)
    assert told == (
        'money-bank-4: for the row "bank" of blocks.0.residual2 the notes show 4.707, 5.058;'
        " 4.706179, 5.059106 comes out, as they carry rounded figures on."
    )


# --- a wrong one is told ---------------------------------------------------------------------


@pytest.mark.parametrize("table", ["RULES", "FIGURES", "CLOSE"])
def test_each_wrong_figure_of_the_sentence(table: str, monkeypatch: pytest.MonkeyPatch):
    own = here(lily)
    for name, value in getattr(lily, table).items():
        with monkeypatch.context() as patch:
            patch.setitem(getattr(lily, table), name, spoiled(value))
            differs = [row.name for row in lily.rows_of(own) if row.verdict.startswith(DIFFERS)]
        assert differs == [name]


def test_a_wrong_digit_of_a_rounded_figure(monkeypatch: pytest.MonkeyPatch):
    name = "attention: loss before the step"
    monkeypatch.setitem(lily.PRINTED, name, (2.113, 3))
    rows = lily.rows_of(here(lily))
    assert [row.name for row in rows if row.verdict.startswith(DIFFERS)] == [name]


def test_other_parameters_of_the_sentence_s_models(monkeypatch: pytest.MonkeyPatch):
    """What follows from the text alone stays; the figures of the models do not."""
    monkeypatch.setattr(lily, "SEED", 12)
    result = lily.reproduce()
    differs = {row.name for row in result.rows if row.verdict.startswith(DIFFERS)}
    assert not result.holds
    assert differs >= {*lily.FIGURES, "attention: weights of row 0", "MLP: norm of all gradients"}
    assert not differs & {"tokens", "vocabulary", "contexts", "dimensions"}


@pytest.mark.parametrize("name", money_bank.FIGURES)
def test_each_wrong_figure_of_the_examples(name: str):
    published, digits = money_bank.FIGURES[name]
    own = here(money_bank)[name]
    assert money_bank.row_of(name, published, digits, own).verdict == EXACT
    wrong = spoiled(published)
    if digits is not None:  # another last digit
        wrong = [*published[:-1], published[-1] + 10**-digits]
    row = money_bank.row_of(name, wrong, digits, own)
    assert row.verdict.startswith(f"{DIFFERS}: ")


def test_a_wrong_state_of_an_example(monkeypatch: pytest.MonkeyPatch):
    states = money_bank.STATES["money-bank-4", money_bank.BANK]
    name = "blocks.0.residual2"
    monkeypatch.setitem(states, name, ([-1.19111, 4.706179, -0.02681, 5.059107], 6))
    result = money_bank.reproduce()
    differs = [row.name for row in result.rows if row.verdict.startswith(DIFFERS)]
    assert differs == [f'money-bank-4: {name} of "bank"']


@pytest.mark.parametrize("name", character_logs.RULES)
def test_each_wrong_rule_of_the_logs(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(character_logs, "trained", lambda *_: reproduced_losses(32))
    monkeypatch.setitem(character_logs.RULES, name, spoiled(character_logs.RULES[name]))
    rows = {row.name: row for row in character_logs.reproduce().rows}
    assert rows[name].verdict.startswith(DIFFERS)


def reproduced_losses(context: int) -> character_logs.Losses:
    """The losses of a context, as its reproduction has them."""
    found = [row for row in reproduced(character_logs).history if row["context"] == context]
    found += found[-1:] * (31 - len(found))  # as many as the longer has
    return character_logs.Losses(
        [row["train_loss"] for row in found], [row["validation_loss"] for row in found]
    )


@pytest.mark.parametrize("epoch", range(11))
def test_each_wrong_pair_of_the_history(epoch: int, monkeypatch: pytest.MonkeyPatch):
    losses = reproduced_losses(32)
    assert {row.verdict for row in character_logs.rows_of_32(losses)} == {EXACT}
    history = list(character_logs.HISTORY)
    _, train, validation = history[epoch]
    history[epoch] = (epoch, train, validation + 2e-6)
    monkeypatch.setattr(character_logs, "HISTORY", history)
    rows = character_logs.rows_of_32(losses)
    differs = [row for row in rows if row.verdict.startswith(DIFFERS)]
    assert [row.name for row in differs] == [f"context 32: losses of epoch {epoch}"]
    assert differs[0].difference == pytest.approx(2e-6, abs=5e-7)


def test_what_context_24_is_compared_with():
    losses = reproduced_losses(24)
    assert {row.verdict for row in character_logs.rows_of_24(losses)} == {EXACT}
    losses.validation[8] = 2.5  # now another epoch is the best, and the last is no worse than it
    losses.train[30] = losses.train[0]
    rows = character_logs.rows_of_24(losses)
    assert [row.verdict == EXACT for row in rows] == [False] * 5
    losses.validation = [math.nan] * 31
    assert not any(row.verdict == EXACT for row in character_logs.rows_of_24(losses))


# --- what else a reproduction does -----------------------------------------------------------


def test_every_epoch_is_in_the_history_and_in_the_curves():
    result = reproduced(character_logs)
    keys = ["context", "epoch", "train_loss", "validation_loss"]
    assert all(list(row) == keys for row in result.history)
    epochs = [(row["context"], row["epoch"]) for row in result.history]
    assert epochs == [(24, e) for e in range(31)] + [(32, e) for e in range(11)]
    assert [(c.name, len(c.points), c.x) for c in result.curves] == [
        ("context 24, training", 31, "epoch"),
        ("context 24, validation", 31, "epoch"),
        ("context 32, training", 11, "epoch"),
        ("context 32, validation", 11, "epoch"),
    ]
    assert result.curves[1].points[8] == (8, pytest.approx(1.9086, abs=5e-5))
    assert result.facts["threads"] == "1"


def test_losses_of_the_sentence_are_its_history():
    assert [(row["model"], row["step"]) for row in reproduced(lily).history] == [
        *(("MLP", 0), ("MLP", 1), ("attention", 0), ("attention", 1))
    ]
    losses = [row["loss"] for row in reproduced(lily).history]
    expected = [2.2983837127685547, 2.2394907474517822, 2.112, 2.0291149616241455]
    assert losses == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("module", [lily, money_bank])
def test_progress_is_told_to_the_end(module: ModuleType):
    told: list[tuple[str, int, int | None]] = []
    module.reproduce(lambda *how: told.append(how))
    assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
    assert {(what, total) for what, _, total in told} == {(told[0][0], len(told))}


def test_threads_and_random_numbers_are_given_back(monkeypatch: pytest.MonkeyPatch):
    """Also where training fails; it is told of every epoch."""
    monkeypatch.setattr(character_logs, "EPOCHS", {24: 1, 32: 2})
    monkeypatch.setattr(character_logs, "rows_of_24", lambda _: [])
    monkeypatch.setattr(character_logs, "rows_of_32", lambda _: [])
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    told: list[tuple[str, int, int | None]] = []
    result = character_logs.reproduce(lambda *how: told.append(how))
    assert told == [
        *(("epochs of context 24", 1, 1), ("epochs of context 32", 1, 2)),
        ("epochs of context 32", 2, 2),
    ]
    assert result.facts["threads"] == "1"
    for module in (lily, money_bank):
        module.reproduce()

    def stops(*_: Any) -> None:
        torch.rand(3)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        character_logs.reproduce(stops)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


# --- lists of numbers ------------------------------------------------------------------------

NUMBERS = st.floats(-1e6, 1e6) | st.just(math.inf) | st.just(-math.inf)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6)


@given(PAIRS, st.sampled_from([0.0, 1e-6, 1.0]))
def test_the_largest_difference_decides(pairs: list[tuple[float, float]], within: float):
    published, own = ([[number] for number in side] for side in zip(*pairs, strict=True))
    row = alike("row", published, own, "why", within)
    a, b = np.array(published), np.array(own)
    with np.errstate(invalid="ignore"):
        largest = np.where(a == b, 0, np.abs(a - b)).max()
    assert row.difference == largest
    assert row.verdict == (EXACT if largest <= within else f"{DIFFERS}: why")
    assert (row.published, row.here) == (published, own)


@pytest.mark.parametrize(
    ("published", "own"),
    [([1, 2], [1]), ([1, 2], [[1, 2]]), (1, [1]), ([1.0, 2.0], [1.0, math.nan]), ([math.nan], [0])],
)
def test_other_shapes_and_nan_are_never_alike(published: Any, own: Any):
    assert alike("row", published, own, "why", math.inf).verdict == f"{DIFFERS}: why"
