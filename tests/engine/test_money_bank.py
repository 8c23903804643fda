"""The hand-sized examples: every exact figure of `reference/money_bank.json` to its printed digits,
and what is said where the notes' rounded figures differ."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine import FixedDraw, Generation, Greedy, UsageError, Walk, drain, each
from engine.generation.decoding import choose
from engine.generation.example import Example
from engine.maps import EXAMPLES, map_of, stage_of
from engine.models import BigramLM
from engine.models.examples import ROUNDED, example_model
from engine.ops import (
    cross_entropy,
    cross_entropy_each,
    cumulative_sum,
    layer_norm,
    linear,
    matmul,
    relu,
    scale,
    softmax,
)
from engine.ops import given as state_of
from engine.service.opened import open_session
from engine.service.options import Options
from engine.text.listed import ListedTokenizer
from engine.training.optimizers import SGD, Update
from tests.engine.worked import by_name

BEFORE, AFTER = "money at bank", "money at bank at"
BANK, AT = 2, 1  # the rows that the notes follow
ATTENTION, FEEDFORWARD = "blocks.0.attention.", "blocks.0.feedforward."

# state -> the row of "bank" (or "at") as it is printed, computed in float64
EXACT: dict[str, dict[str, list[float]]] = {
    "money-bank-2": {
        f"{ATTENTION}scores.raw": [2, 0, 0.4],
        f"{ATTENTION}weights": [0.638689, 0.155276, 0.206035],
        f"{ATTENTION}message": [6.798959, 6.798959],
        f"{ATTENTION}projection": [6.798959, 6.798959],
        "blocks.0.residual1": [8.798959, 7.798959],
    },
    "money-bank-4": {
        f"{ATTENTION}scores.raw": [-4, 0, 4],
        f"{ATTENTION}scores": [-2, 0, 2],
        f"{ATTENTION}weights": [0.015876, 0.11731, 0.866813],
        f"{ATTENTION}message": [-1.936495, 0.733627, -0.733627, 0.968248],
        f"{ATTENTION}projection": [-1.936495, 0.733627, -0.733627, 0.968248],
        "blocks.0.residual1": [-0.936495, 3.733627, 0.266373, 3.968248],
        "blocks.0.norm2": [-1.260625, 0.924351, -0.697848, 1.034122],
        f"{FEEDFORWARD}pre": [-1.260625, 0.924351, -0.697848, 1.034122, -0.336274, 0.336274],
        f"{FEEDFORWARD}hidden": [-0.130755, 0.760139, -0.169323, 0.878445, -0.12386, 0.212413],
        f"{FEEDFORWARD}output": [-0.254615, 0.972552, -0.293184, 1.090859],
        "blocks.0.residual2": [-1.19111, 4.706179, -0.02681, 5.059106],
    },
}
# the same rows as the notes show them, rounded figures carried on
SHOWN: dict[str, dict[str, list[float]]] = {
    "money-bank-2": {
        f"{ATTENTION}scores": [1.414, 0, 0.283],
        f"{ATTENTION}weights": [0.639, 0.155, 0.206],
        f"{ATTENTION}message": [6.802, 6.802],
        "blocks.0.residual1": [8.802, 7.802],
    },
    "money-bank-4": {
        f"{ATTENTION}weights": [0.016, 0.117, 0.867],
        f"{ATTENTION}message": [-1.936, 0.734, -0.734, 0.968],
        "blocks.0.residual1": [-0.936, 3.734, 0.266, 3.968],
        "blocks.0.norm2": [-1.26, 0.925, -0.698, 1.034],
        f"{FEEDFORWARD}pre": [-1.26, 0.925, -0.698, 1.034, -0.335, 0.336],
        f"{FEEDFORWARD}hidden": [-0.131, 0.761, -0.169, 0.878, -0.124, 0.212],
        f"{FEEDFORWARD}output": [-0.255, 0.973, -0.293, 1.09],
        "blocks.0.residual2": [-1.191, 4.707, -0.027, 5.058],
    },
}
EVERY_EXACT = [(model, name) for model, states in EXACT.items() for name in states]
EVERY_SHOWN = [(model, name) for model, states in SHOWN.items() for name in states]


def made(model: str) -> dict[str, Tensor]:
    """The states of an example over its own prompt."""
    return by_name(example_model(model).states(torch.tensor([[0, 1, 2]])))


def row_of(value: Tensor, row: int) -> list[float]:
    """One row of the only example (and head)."""
    return value[0, ..., row, :].flatten().tolist()


def digits(number: float, places: int = 6) -> Any:
    """A number as it is printed with so many digits after the point."""
    return round(number, places) + 0.0  # no -0.0


def walked(model: str, prompt: str = "money at bank") -> Walk:
    walk = Walk(Example(model, prompt))
    walk.seek(1)
    walk.finish_step()
    return walk


def state(name: str, value: list[Any]) -> Any:
    """A state with these numbers, in float64."""
    numbers = torch.tensor(value, dtype=torch.float64)
    return state_of(name, numbers, ("B", "T", "S", "d")[: numbers.dim()], "given")


# --- the examples' figures -------------------------------------------------------------------


@pytest.mark.parametrize(("model", "name"), EVERY_EXACT)
def test_every_exact_figure(model: str, name: str):
    value = made(model)[name]
    assert value.dtype == torch.float64
    assert list(map(digits, row_of(value, BANK))) == EXACT[model][name]


def test_queries_keys_and_values_of_width_2():
    found = made("money-bank-2")
    assert found["embedding"][0].tolist() == [[10, 0], [0, 1], [2, 1]]
    assert found[f"{ATTENTION}q"][0].tolist() == [[10, 0], [0, 0], [2, 0]]
    assert found[f"{ATTENTION}k"][0].tolist() == [[1, 0], [0, 1], [0.2, 1]]
    assert found[f"{ATTENTION}v"][0].tolist() == [[10, 10], [0, 0], [2, 2]]


def test_normalised_rows_and_values_of_width_4():
    found = made("money-bank-4")
    assert found["embedding"][0].tolist() == [[3, 1, 3, 1], [1, 1, 3, 3], [1, 3, 1, 3]]
    normalised = [[1, -1, 1, -1], [-1, -1, 1, 1], [-1, 1, -1, 1]]
    assert found["blocks.0.norm1"][0].tolist() == normalised
    assert found[f"{ATTENTION}q"][0].tolist() == found[f"{ATTENTION}k"][0].tolist() == normalised
    assert found[f"{ATTENTION}v"][0].tolist() == [[2, -1, 1, -1], [-2, -1, 1, 1], [-2, 1, -1, 1]]


@pytest.mark.parametrize("model", ["money-bank-causal", "money-bank-4"])
def test_the_causal_row_of_at(model: str):
    """The same block; the row of "at" does not see "bank"."""
    found = made(model)
    assert row_of(found[f"{ATTENTION}scores.raw"], AT) == [0, 4, 0]
    assert row_of(found[f"{ATTENTION}scores"], AT) == [0, 2, 0]
    assert row_of(found[f"{ATTENTION}scores.masked"], AT) == [0, 2, -math.inf]
    weights = row_of(found[f"{ATTENTION}weights"], AT)
    assert list(map(digits, weights)) == [0.119203, 0.880797, 0.0]
    assert weights[2] == 0


def test_the_mean_and_variance_before_the_second_norm():
    """As shown: 1.758 and 4.568."""
    walk = walked("money-bank-4")
    mean, variance = (walk.fetch(f"blocks.0.norm2.{part}", 1) for part in ("mean", "variance"))
    assert digits(mean[0, BANK, 0].item(), 3) == 1.758
    assert digits(variance[0, BANK, 0].item(), 3) == 4.568


def test_shapes_of_one_block():
    """3 positions, width 4, 6 hidden units."""
    shapes = {name: tuple(value.shape)[-2:] for name, value in made("money-bank-4").items()}
    expected = {f"{ATTENTION}{name}": (3, 4) for name in ("q", "k", "v", "message", "projection")}
    expected |= {f"{ATTENTION}{name}": (3, 3) for name in ("scores.raw", "scores", "weights")}
    expected |= {f"{FEEDFORWARD}pre": (3, 6), f"{FEEDFORWARD}hidden": (3, 6)}
    expected |= {f"blocks.0.{name}": (3, 4) for name in ("norm1", "residual1", "norm2")}
    expected |= {f"{FEEDFORWARD}output": (3, 4), "blocks.0.residual2": (3, 4)}
    assert {name: shapes[name] for name in expected} == expected


# --- where the notes round otherwise ---------------------------------------------------------


@pytest.mark.parametrize(("model", "name"), EVERY_SHOWN)
def test_rounded_figures_are_told_where_they_differ(model: str, name: str):
    """An explanation says what the notes show exactly where that is not what comes out, rounded to
    the notes' three digits."""
    walk = walked(model)
    record = walk.record(name, 1)
    own = row_of(record.value, BANK)
    for i, (number, shown) in enumerate(zip(own, SHOWN[model][name], strict=True)):
        lead = (0,) * (len(record.shape) - 2)
        note = record.explain((*lead, BANK, i)).note
        if digits(number, 3) == shown:
            assert "the notes" not in note, i
        else:
            assert note.startswith(f"the notes show {shown:g}: they carry rounded figures on"), i
        assert "the notes" not in record.explain((*lead, AT, i)).note  # of another row


@pytest.mark.parametrize("model", EXAMPLES)
def test_nothing_else_is_told_to_be_rounded(model: str):
    """`ROUNDED` is the difference between what is shown and what comes out: no more, no less."""
    found = made(model)
    differ: dict[str, dict[int, float]] = {}
    for name, shown in SHOWN.get(model, {}).items():
        for i, number in enumerate(row_of(found[name], BANK)):
            if digits(number, 3) != shown[i]:
                differ.setdefault(name, {})[i] = shown[i]
    assert ROUNDED.get(model, {}) == differ


@pytest.mark.parametrize("model", EXAMPLES)
def test_every_cell_explains_itself(model: str):
    """Every total is its cell, in float64; nothing cites itself."""
    walk = walked(model)
    records = [record for record in walk.records(1) if record.role == "activation"]
    assert len(records) == (12 if model == "money-bank-2" else 18)
    for record in records:
        for cell in itertools.product(*map(range, record.shape)):
            found = record.explain(cell)
            assert all(term.cited.source != record.name for term in found.terms)
            if math.isfinite(found.value):
                assert found.total == pytest.approx(found.value, abs=1e-12), (record.name, cell)
            else:
                assert found.total == found.value, (record.name, cell)


# --- the other figures, with the same operations ---------------------------------------------


def test_two_positions():
    """One query over two keys: raw scores [2, 0], then 1/√2, softmax, values mixed."""
    query, keys = state("q", [[[2, 0]]]), state("K", [[[1, 0], [0, 1]]])
    raw = matmul("raw", query, keys.T)
    scaled = scale("scores", raw, 2**-0.5)
    weights = softmax("weights", scaled)
    output = matmul("message", weights, state("V", [[[10, 0], [2, 2]]]))
    assert raw.value.flatten().tolist() == [2, 0]
    assert [digits(x, 3) for x in scaled.value.flatten().tolist()] == [1.414, 0]
    assert [digits(x, 5) for x in weights.value.flatten().tolist()] == [0.80443, 0.19557]
    assert list(map(digits, output.value.flatten().tolist())) == [8.435437, 0.391141]


def test_mixing_by_hand():
    halves = state("weights", [[[0.5, 0.5]]])
    for first, mixed in (([10, 0], [6, 1]), ([0, 10], [1, 6])):
        values = state("V", [[first, [2, 2]]])
        assert matmul("message", halves, values).value[0, 0].tolist() == mixed


def test_a_square_matrix():
    layer = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1, 0, 2], [0, 1, 0], [1, 0, 1]]).T)
    assert linear("product", state("x", [[2, 1, 3]]), layer, "d").value.tolist() == [[5, 1, 7]]


WORDS = ("money", "at", "bank", "today", ".")
LOGITS, SHARES = [-1, 0, -2, 2, 1], [0.031685, 0.086129, 0.011656, 0.636409, 0.234122]


def test_choosing():
    """Five logits, their shares, and the most probable: "today", which joins the history."""
    model = BigramLM(len(WORDS), 3).double()
    with torch.no_grad():
        model.table.weight[2] = torch.tensor(LOGITS, dtype=torch.float64)
    tokenizer = ListedTokenizer("words", WORDS)
    tokenizer.pad_id = 4  # windows ask for one; this prompt fills the window
    process = Generation(model, tokenizer, "money at bank", 1, Greedy())
    found = by_name(process.states(0)) | by_name(process.states(1))
    assert found["logits"][0].tolist() == LOGITS
    shares = softmax("probabilities", state("logits", [LOGITS])).value[0].tolist()
    assert list(map(digits, shares)) == SHARES
    assert (found["choice"].item(), found["history"].tolist()) == (3, [0, 1, 2, 3])


def test_sampling_intervals():
    """delicious to 0.45, excellent to 0.8, tasty to 1: a draw of 0.78 takes the second."""
    probabilities = torch.tensor([[0.45, 0.35, 0.2]], dtype=torch.float64)
    shares = state_of("probabilities", probabilities, ("B", "C"), "given")
    sums = cumulative_sum("cdf", shares).value
    assert list(map(digits, sums[0].tolist())) == [0.45, 0.8, 1.0]
    assert choose(probabilities[0], sums[0], FixedDraw(0.78).draw(1)) == 1
    assert [choose(probabilities[0], sums[0], draw) for draw in (0.1, 0.44, 0.46, 0.81)] == [
        *(0, 0, 1, 2)
    ]


def test_cross_entropy():
    """Of the probability 0.2: 1.6094379124341003, and its gradient is p - [target]."""
    shares = [0.1, 0.1, 0.1, 0.2, 0.5]
    logits = torch.tensor([shares], dtype=torch.float64).log().requires_grad_()
    rows = state_of("logits", logits, ("B", "C"), "given")
    target = state_of("batch.y", torch.tensor([3]), ("B",), "given")
    one = cross_entropy_each("loss.per_target", rows, target).value
    mean = cross_entropy("loss", rows, target).value
    assert one.item() == pytest.approx(1.6094379124341003, abs=1e-14)
    assert mean.item() == pytest.approx(1.6094379124341003, abs=1e-14)
    mean.backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.1, 0.1, 0.1, -0.8, 0.5], abs=1e-14)


@pytest.mark.parametrize(("share", "loss"), [(0.8, 0.2231435513142097), (0.1, 2.3025850929940455)])
def test_cross_entropy_of_other_shares(share: float, loss: float):
    logits = torch.tensor([[share, 1 - share]], dtype=torch.float64).log()
    rows = state_of("logits", logits, ("B", "C"), "given")
    target = state_of("batch.y", torch.tensor([0]), ("B",), "given")
    assert cross_entropy("loss", rows, target).value.item() == pytest.approx(loss, abs=1e-14)


def test_sgd():
    """0.5 - 0.1 · 0.2 = 0.48, by the rule and by the optimizer it builds."""
    weight = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    gradient = torch.tensor([0.2], dtype=torch.float64)
    rule = SGD(0.1)
    assert Update(rule, 1).compute(gradient, weight.detach()).item() == pytest.approx(0.48)
    optimizer = rule.build([weight])
    weight.grad = gradient
    optimizer.step()
    assert weight.item() == pytest.approx(0.48, abs=1e-15)


def test_gradients_are_cleared_before_each_step():
    """2 in one step and 3 in the next: the next is 3, not 5."""
    slopes = {1: 2.0, 2: 3.0}
    weight = torch.zeros((), requires_grad=True)
    optimizer = SGD(0.1).build([weight])
    seen = []
    for slope in slopes.values():
        (slope * weight).backward()
        seen.append(float(weight.grad))
    assert seen == [2, 5]  # without clearing they add up
    for slope in slopes.values():
        optimizer.zero_grad()
        (slope * weight).backward()
    assert float(weight.grad) == 3


def test_layer_norm_of_2_1():
    """Mean 1.5, variance 0.25: [1, -1]; with scale [2, 0.5] and shift [0.1, 0.3]: [2.1, -0.2]."""
    layer = nn.LayerNorm(2, eps=0.0).double()
    x = state("x", [[2, 1]])
    operation = layer_norm("norm", x, layer).operation
    parts = operation.take_apart(x.value, layer.weight, layer.bias)
    assert (parts["mean"].item(), parts["variance"].item()) == (1.5, 0.25)
    assert layer_norm("norm", x, layer).value.tolist() == [[1, -1]]
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2, 0.5]))
        layer.bias.copy_(torch.tensor([0.1, 0.3]))
    found = layer_norm("norm", x, layer).value[0].tolist()
    assert found == pytest.approx([2.1, -0.2], abs=1e-7)


def test_a_pair_of_relus_is_the_absolute_value():
    for number in (-3.5, 0.0, 2.25):
        pair = relu("hidden", state("hidden.pre", [[number, -number]])).value
        assert pair.sum().item() == abs(number)


# --- sessions --------------------------------------------------------------------------------


def session_of(name: str, **more: Any) -> Any:
    return open_session(Options(opened=f"example:{name}", model=name, **more))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_session_walks_an_example(name: str):
    """Prompt, IDs, one pass; every state lies in a box of the map, in its order; then it ends."""
    walk = session_of(name).walk("generation")
    names = [walk.current.name]
    while walk.forward():
        names.append(walk.current.name)
    assert names[:4] == ["prompt", "tokens", "history", "context"]
    assert names[4:] == list(made(name))
    boxes = [stage.key for stage in map_of("generation", name).stages]
    steps = [0] * 3 + [1] * (len(names) - 3)
    walked = dict.fromkeys(
        stage_of("generation", n, step) for n, step in zip(names, steps, strict=True)
    )
    assert [key for key in boxes if key in walked] == list(walked)
    assert not walk.forward()
    assert walk.process.ended(1) == "the example ends here"
    assert walk.back()


def test_a_session_walks_back_and_forth():
    walk = session_of("money-bank-4").walk("generation")
    walk.seek(1, "blocks.0.residual2")
    last = walk.current.value
    walk.seek(0, "prompt")
    assert walk.current.value == "money at bank"
    walk.seek(1, "blocks.0.residual2")
    assert torch.equal(walk.current.value, last)


def test_another_prompt():
    """The words of the example in another order, or fewer of them."""
    walk = session_of("money-bank-2", prompt="bank money").walk("generation")
    walk.seek(1, "embedding")
    assert walk.current.value[0].tolist() == [[2, 1], [10, 0]]


@pytest.mark.parametrize(
    ("prompt", "word"), [("money at river", "river"), ("Money", "Money"), ("bank.", "bank.")]
)
def test_unknown_words_of_a_prompt(prompt: str, word: str):
    with pytest.raises(UsageError) as told:
        session_of("money-bank-4", prompt=prompt).walk("generation")
    assert str(told.value) == f"{word!r} is no word of this example: use money, at, bank"


def test_a_token_more_adds_a_row():
    """The width and the parameters stay, and so do the rows before it, which do not see it."""
    walks = [session_of("money-bank-4", prompt=p).walk("generation") for p in (BEFORE, AFTER)]
    for walk in walks:
        walk.seek(1)
        walk.finish_step()
    for name in ("embedding", f"{ATTENTION}message", "blocks.0.residual2"):
        short, long = (walk.fetch(name, 1) for walk in walks)
        assert (short.shape[-2], long.shape[-2]) == (3, 4)
        assert torch.equal(long[..., :3, :], short)
    axes = [{n: p.shape for n, p in walk.process.parameters.items()} for walk in walks]
    assert axes[0] == axes[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_no_training_map(name: str):
    with pytest.raises(UsageError) as told:
        session_of(name).walk("training")
    assert str(told.value) == "an example is a forward pass: it has no training map"


def test_an_example_that_there_is_not():
    with pytest.raises(UsageError, match=r"there is no example 'money-bank-3': use money-bank-2"):
        example_model("money-bank-3")


def test_examples_are_drained_as_they_are_walked():
    """`forward` is what the states come to."""
    for name in EXAMPLES:
        model = example_model(name)
        ids = torch.tensor([[0, 1, 2]])
        *_, last = each(model.states(ids))
        assert torch.equal(model(ids), last.value)
        assert torch.equal(drain(model.states(ids)).value, last.value)
