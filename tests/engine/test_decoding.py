"""How a token is chosen: the sampling rule against a naive loop."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from engine import FixedDraw, Greedy, SeededDraws, TensorstepError, UsageError
from engine.generation.decoding import choose
from engine.ops import block, cumulative_sum, softmax
from engine.ops import given as state_of

BLOCKED = {0: "<PAD>", 1: "<BOS>", 3: "<UNK>"}
logits = st.lists(
    st.floats(-200, 200, width=32) | st.sampled_from([0.0, 1.0, -math.inf]), min_size=5, max_size=12
)
draws = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.8])


def distribution(numbers: list[float]) -> tuple[Tensor, Tensor]:
    """Probabilities and their running sum [C], as the generator makes them: blocked, softmax."""
    given_logits = state_of("logits", torch.tensor([numbers]), ("1", "C"), "given")
    probabilities = softmax("probabilities", block("logits.blocked", given_logits, BLOCKED))
    return probabilities.value[0], cumulative_sum("cdf", probabilities).value[0]


def naive(probabilities: list[float], draw: float) -> int:
    """The rule, read aloud: float64 sums over the IDs that may be chosen, one after another."""
    allowed = [i for i, share in enumerate(probabilities) if share > 0]
    total = 0.0
    for i in allowed:
        total += probabilities[i]
        if total >= draw:
            return i
    return allowed[-1]


@given(logits, draws)
def test_sampling_rule(numbers: list[float], draw: float):
    assume(any(math.isfinite(x) for i, x in enumerate(numbers) if i not in BLOCKED))
    probabilities, cumulative = distribution(numbers)
    assert choose(probabilities, cumulative, draw) == naive(probabilities.tolist(), draw)


@given(logits, st.data())
def test_draws_on_the_edge(numbers: list[float], data: st.DataObject):
    """A draw that is exactly a running sum takes that ID; the next larger number the one after."""
    assume(any(math.isfinite(x) for i, x in enumerate(numbers) if i not in BLOCKED))
    probabilities, cumulative = distribution(numbers)
    edge = data.draw(st.sampled_from(cumulative.tolist()))
    for draw in (edge, math.nextafter(edge, 2), math.nextafter(edge, 0)):
        assert choose(probabilities, cumulative, draw) == naive(probabilities.tolist(), draw)


@given(logits, draws | st.none())
def test_blocked_ids_are_never_chosen(numbers: list[float], draw: float | None):
    assume(any(math.isfinite(x) for i, x in enumerate(numbers) if i not in BLOCKED))
    for worst in (*BLOCKED, 0):
        numbers[worst] = 1e6  # however likely the model thinks them
    chosen = choose(*distribution(numbers), draw)
    assert chosen not in BLOCKED
    assert math.isfinite(numbers[chosen])


@pytest.mark.parametrize(
    ("draw", "chosen"),
    [(0.0, 2), (0.25, 2), (0.2500001, 4), (0.5, 4), (0.51, 5), (1.0, 5), (1.5, 5), (None, 5)],
)
def test_the_rule_by_hand(draw: float | None, chosen: int):
    """Shares 1/4, 1/4, 1/2 at IDs 2, 4 and 5; IDs 6 and 7 are impossible."""
    probabilities = torch.tensor([0, 0, 0.25, 0, 0.25, 0.5, 0, 0])
    assert choose(probabilities, probabilities.double().cumsum(0), draw) == chosen


def test_a_draw_beyond_a_last_sum_below_1_takes_the_last_id():
    probabilities = torch.tensor([0.3, 0.3, 0.3, 0.0])
    assert choose(probabilities, probabilities.double().cumsum(0), 0.99) == 2


def test_running_sums_are_float64():
    """40,000 equal shares: in float32 the sums would drift by more than one share."""
    count = 40_000
    cumulative = distribution([0.0] * count)[1]
    assert cumulative.dtype == torch.float64
    shares = 1 / torch.tensor(count - 3.0)
    assert cumulative[-1].item() == pytest.approx(shares.double().item() * (count - 3), abs=1e-9)


def test_greedy_takes_the_first_of_equals():
    probabilities = torch.tensor([0.1, 0.4, 0.4, 0.1])
    assert choose(probabilities, probabilities.double().cumsum(0), Greedy().draw(1)) == 1


def test_seeded_draws_are_those_of_torch():
    generator = torch.Generator().manual_seed(7)
    expected = [torch.rand((), generator=generator, dtype=torch.float64).item() for _ in range(5)]
    draws = SeededDraws(7)
    assert [draws.draw(step) for step in (5, 1, 3, 2, 4)] == [expected[i] for i in (4, 0, 2, 1, 3)]


def test_a_fixed_draw_is_the_same_in_every_step():
    assert {FixedDraw(0.8).draw(step) for step in range(1, 9)} == {0.8}


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf])
def test_a_draw_is_a_share(wrong: float):
    with pytest.raises(UsageError, match="give a number from 0 to 1"):
        FixedDraw(wrong)


@pytest.mark.parametrize("probabilities", [[0.0, 0.0], [math.nan, math.nan]])
def test_nothing_to_choose_from_is_told(probabilities: list[float]):
    shares = torch.tensor(probabilities)
    with pytest.raises(TensorstepError, match="no token has a probability above 0"):
        choose(shares, shares.double().cumsum(0), 0.5)
