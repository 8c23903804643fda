"""Temperature, top-k and top-p: against independent computations, and against transformers' own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from engine import FixedDraw, Generation, SeededDraws, UsageError, Walk, drain, each, generate
from engine.generation.decoding import Filters
from engine.maps import stage_of
from engine.ops import given as state_of
from tests.engine.worked import MODELS, build, by_name, prepared

TOKENIZER = prepared().tokenizer
numbers = st.lists(
    st.floats(-30, 30, width=32) | st.sampled_from([0.0, 1.0, -math.inf]), min_size=1, max_size=12
)


def filtered(logits: list[float], **settings: Any) -> dict[str, Tensor]:
    """The states of the filters, by name."""
    start = state_of("logits.blocked", torch.tensor([logits]), ("B", "C"), "given")
    return by_name(Filters(**settings).states(start))


def only(logits: list[float], **settings: Any) -> list[float]:
    """The logits that one filter leaves."""
    (value,) = filtered(logits, **settings).values()
    return value[0].tolist()


def kept(logits: list[float], left: list[float]) -> set[int]:
    """The IDs that are left; those that are not are -inf, the others as they were."""
    for before, after in zip(logits, left, strict=True):
        assert after in (before, -math.inf)
    return {i for i, x in enumerate(left) if x > -math.inf}


# --- independent computations ----------------------------------------------------------------


@given(numbers, st.floats(0.05, 20))
def test_temperature_divides(logits: list[float], temperature: float):
    found = only(logits, temperature=temperature)
    for before, after in zip(logits, found, strict=True):
        assert after == pytest.approx(before / temperature, rel=1e-6)


def test_temperature_by_hand():
    """At 1/2 the shares are squared, at 2 their roots are taken."""
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for temperature, power in ((0.5, 2.0), (2.0, 0.5)):
        found = torch.tensor(only(shares.log().tolist(), temperature=temperature)).softmax(-1)
        expected = shares**power / (shares**power).sum()
        assert torch.allclose(found.double(), expected, atol=1e-6)


@given(numbers, st.integers(1, 14))
def test_top_k_keeps_the_k_highest(logits: list[float], k: int):
    """And those equal to the last of them: an ID is kept where fewer than k are higher."""
    finite = {i for i, x in enumerate(logits) if x > -math.inf}
    expected = {i for i in finite if sum(x > logits[i] for x in logits) < k}
    assert kept(logits, only(logits, top_k=k)) == expected


def nucleus(logits: list[float], p: float) -> tuple[set[int], float]:
    """The fewest IDs, the likeliest first (of equals the first), that have p together; and how
    near p any of the sums on the way comes."""
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    total, chosen, nearest = 0.0, set(), 1.0
    for i in order:
        if total >= p or logits[i] == -math.inf:
            break
        chosen.add(i)
        total += powers[i] / math.fsum(powers)
        nearest = min(nearest, abs(total - p))
    return chosen, nearest


@given(numbers, st.floats(0.001, 1))
def test_top_p_keeps_the_nucleus(logits: list[float], p: float):
    assume(any(math.isfinite(x) for x in logits))
    logits = torch.tensor(logits).tolist()
    expected, nearest = nucleus(logits, p)
    assume(nearest > 1e-9)  # a sum that is p but for its last bits may fall on either side
    assert kept(logits, only(logits, top_p=p)) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.1, {1}),
        (0.5, {1}),
        (0.51, {1, 3}),
        (0.75, {1, 3}),
        (0.76, {0, 1, 3}),
        (1.0, {0, 1, 2, 3}),
    ],
)
def test_top_p_by_hand(p: float, expected: set[int]):
    """Shares 1/8, 1/2, 1/8, 1/4: sums 1/2, 3/4, 7/8, 1, exact in binary."""
    logits = [math.log2(share) * math.log(2) for share in (0.125, 0.5, 0.125, 0.25)]
    assert kept(torch.tensor(logits).tolist(), only(logits, top_p=p)) == expected


@pytest.mark.parametrize("p", [0.01, 0.25, 0.5, 0.75])
def test_of_equals_top_p_keeps_the_first(p: float):
    assert kept([0.0] * 4, only([0.0] * 4, top_p=p)) == set(range(max(1, int(p * 4))))


def test_of_equals_top_k_keeps_all():
    logits = [1.0, 2.0, 1.0, 0.0, 1.0]
    assert kept(logits, only(logits, top_k=2)) == {0, 1, 2, 4}
    assert kept(logits, only(logits, top_k=1)) == {1}


def test_one_is_always_left():
    for settings in ({"top_k": 1}, {"top_p": 1e-9}):
        assert kept([3.0, 5.0, 4.0], only([3.0, 5.0, 4.0], **settings)) == {1}


def test_blocked_ids_stay_blocked():
    """-inf goes through every filter, and is none of the k highest that are left."""
    blocked = [-math.inf, 2.0, -math.inf, 1.0]
    left = filtered(blocked, temperature=0.7, top_k=3, top_p=1.0)
    for value in left.values():
        assert value[0, [0, 2]].tolist() == [-math.inf, -math.inf]
        assert value[0, [1, 3]].isfinite().all()


def test_top_k_of_more_than_there_are():
    assert only([1.0, 2.0], top_k=50_000) == [1.0, 2.0]


# --- the library's own -----------------------------------------------------------------------


WARPERS = {
    "temperature": ("TemperatureLogitsWarper", [0.3, 1.0, 1.7]),
    "top_k": ("TopKLogitsWarper", [1, 2, 5, 40]),
    "top_p": ("TopPLogitsWarper", [0.05, 0.5, 0.9, 0.99]),
}


@pytest.mark.parametrize(
    ("name", "setting"), [(name, x) for name, (_, xs) in WARPERS.items() for x in xs]
)
def test_as_transformers_does_it(name: str, setting: float):
    reason = "transformers is not installed: `pip install transformers` for its own filters"
    library = pytest.importorskip("transformers", reason=reason)
    warper = getattr(library, WARPERS[name][0])(setting)
    drawn = torch.Generator().manual_seed(8)
    for _ in range(50):
        logits = torch.randn(1, 40, generator=drawn) * 3
        logits[0, [3, 17]] = -math.inf
        expected = warper(torch.empty(1, 0, dtype=torch.long), logits.clone())
        (found,) = filtered(logits[0].tolist(), **{name: setting}).values()
        assert torch.allclose(found, expected, rtol=1e-6)
        assert torch.equal(found.isfinite(), expected.isfinite())


def test_all_of_them_as_transformers_does_it():
    """In its order: temperature, top-k, top-p."""
    reason = "transformers is not installed: `pip install transformers` for its own filters"
    library = pytest.importorskip("transformers", reason=reason)
    drawn, nothing = torch.Generator().manual_seed(9), torch.empty(1, 0, dtype=torch.long)
    for _ in range(50):
        expected = logits = torch.randn(1, 40, generator=drawn) * 3
        for name, setting in (("temperature", 0.8), ("top_k", 12), ("top_p", 0.9)):
            expected = getattr(library, WARPERS[name][0])(setting)(nothing, expected)
        found = filtered(logits[0].tolist(), temperature=0.8, top_k=12, top_p=0.9)
        assert torch.allclose(found["logits.top_p"], expected, rtol=1e-6)
        assert 1 <= int(expected.isfinite().sum()) < 12


# --- in a generation -------------------------------------------------------------------------


SETTINGS = {"temperature": 0.8, "top_k": 5, "top_p": 0.9}
SUBSETS = [dict(c) for n in range(4) for c in itertools.combinations(SETTINGS.items(), n)]


def generation(chooser: Any = None, name: str = "mlp", **settings: Any) -> Generation:
    filters = Filters(**settings)
    return Generation(build(name), TOKENIZER, "Lily found", 6, chooser, filters)


@pytest.mark.parametrize("settings", SUBSETS, ids=lambda s: "+".join(s) or "none")
def test_names_in_order(settings: dict[str, float]):
    """Only those that are asked for, between the blocked logits and the probabilities."""
    process = generation(**settings)
    drain(process.states(0))
    names = [state.name for state in each(process.states(1))]
    at = names.index("logits.blocked") + 1
    assert names[at:] == [
        *(f"logits.{name}" for name in SETTINGS if name in settings),
        *("probabilities", "cdf", "choice", "stop", "history"),
    ]
    assert {stage_of("generation", name, 1) for name in names[at:-3]} == {"probabilities"}


@pytest.mark.parametrize("name", MODELS)
def test_the_plain_loop_chooses_the_same(name: str):
    """Each filter once more by hand, over a whole text."""
    draws = SeededDraws(4)
    process = generation(SeededDraws(4), name, **SETTINGS)
    ids = list(process.ids)
    drain(generate(process))
    model = process.model
    for step in range(1, len(process.ids) - len(ids) + 1):
        with torch.no_grad():
            logits = model(torch.tensor([([0] * 4 + ids)[-4:]]))[0].double()
        logits[[0, 1, 3]] = -math.inf
        logits = logits / 0.8
        logits[logits < logits.sort(descending=True).values[4]] = -math.inf
        left, _ = nucleus(logits.tolist(), 0.9)
        logits[[i for i in range(10) if i not in left]] = -math.inf
        sums = logits.softmax(-1).cumsum(-1)
        draw = draws.draw(step)
        assert draw is not None
        ids.append(int((sums >= draw).nonzero()[0]))
    assert process.ids == ids


def test_what_is_filtered_out_is_never_chosen():
    """Whatever the draw; and what is left can be."""
    seen = set()
    for i in range(101):
        process = generation(FixedDraw(i / 100), top_k=3)
        drain(process.states(0))
        made = by_name(process.states(1))
        left = (made["logits.top_k"][0] > -math.inf).nonzero().flatten().tolist()
        assert len(left) == 3
        assert made["choice"].item() in left
        seen.add(made["choice"].item())
    assert seen == set(left)


def test_explanations():
    """Every cell of every filter: what it comes from, and why it is not kept."""
    walk = Walk(generation(FixedDraw(0.5), **{**SETTINGS, "top_p": 0.5}))
    walk.seek(1)
    walk.finish_step()
    formulas = {
        "logits.temperature": "logits.blocked · 1.25",
        "logits.top_k": "the 5 highest of logits.temperature, -inf elsewhere",
        "logits.top_p": "the highest of logits.top_k that together have 0.5, -inf elsewhere",
    }
    before = "logits.blocked"
    for name, formula in formulas.items():
        record = walk.record(name, 1)
        assert record.formula == formula
        dropped = 0
        for i in range(10):
            found = record.explain((0, i))
            (term,) = found.terms
            assert (term.cited.source, term.cited.index) == (before, (0, i))
            assert found.total == pytest.approx(found.value, rel=1e-6)
            if found.value == -math.inf < term.cited.value:
                assert term.note == "not among those that are kept"
                dropped += 1
        assert (dropped > 0) == (name != "logits.temperature")
        before = name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": 0.0}, "a temperature of 0 divides nothing: give a number above 0"),
        ({"temperature": -1.0}, "a temperature of -1 divides nothing: give a number above 0"),
        ({"temperature": math.nan}, "a temperature of nan divides nothing: give a number above 0"),
        ({"temperature": math.inf}, "a temperature of inf divides nothing: give a number above 0"),
        ({"top_k": 0}, "--top-k 0 keeps no token: give 1 or more"),
        ({"top_k": -5}, "--top-k -5 keeps no token: give 1 or more"),
        ({"top_p": 0.0}, "--top-p 0 is no share: give a number above 0, up to 1"),
        ({"top_p": 1.1}, "--top-p 1.1 is no share: give a number above 0, up to 1"),
        ({"top_p": math.nan}, "--top-p nan is no share: give a number above 0, up to 1"),
    ],
)
def test_settings_that_leave_nothing(settings: dict[str, float], sentence: str):
    with pytest.raises(UsageError) as told:
        Filters(**settings)
    assert str(told.value) == sentence


@pytest.mark.parametrize("temperature", [1.1e6, 1e308])
def test_a_temperature_that_would_make_all_tokens_alike(temperature: float):
    with pytest.raises(UsageError, match="makes all tokens alike: give 1e\\+06 or less"):
        Filters(temperature=temperature)
    Filters(temperature=1e6)


@pytest.mark.parametrize("temperature", [9e-7, 1e-45, 1e-320])
def test_a_temperature_that_would_make_logits_infinite(temperature: float):
    with pytest.raises(UsageError) as told:
        Filters(temperature=temperature)
    assert str(told.value) == (
        f"a temperature of {temperature:g} makes the logits infinite: give 1e-06 or more, or leave"
        " it out for the most probable token"
    )


def test_the_smallest_temperature_takes_the_most_probable():
    """Nothing becomes NaN, and the highest is chosen whatever the draw."""
    process = generation(FixedDraw(0.7), temperature=1e-6)
    drain(process.states(0))
    made = by_name(process.states(1))
    assert made["choice"].item() == int(made["logits.blocked"].argmax())
