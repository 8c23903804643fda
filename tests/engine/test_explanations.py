"""Explanations, taken at their word: fetch what is cited, apply the rule, get the cell.

The rules stand here once more, in plain Python: which number each cited cell puts in, and how the
numbers make the cell. Nothing of `Explanation.total` or of a term's contribution is used.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import engine
from engine import SGD, FixedDraw, Walk
from engine.records import Record
from tests.engine.plain import plain
from tests.engine.test_models import IDS, SHAPES, TARGETS
from tests.engine.worked import (
    ATTENTION,
    EVERY_MODEL,
    MODELS,
    MORE_RULES,
    RULES,
    build,
    generation,
    training,
)

TOLERANCE = 1e-6
TEMPER = {"attention": 3**-0.5, "multihead": 2**-0.5}
ROLES = ("activation", "gradient", "optimizer")


def cell_of(value: Any, index: tuple[int, ...]) -> Any:
    """One cell of a fetched value; () of a whole tensor is its norm (of the gradients' norm)."""
    if isinstance(value, list):
        return value[index[0]]
    if isinstance(value, str):
        return value
    if index == () and value.dim():
        return math.sqrt(sum(x * x for x in value.double().flatten().tolist()))
    return value[index].item()


def random_cells(walk: Walk, steps: int, count: int, seed: int, roles: tuple[str, ...] = ROLES):
    """`count` cells of the walk's states and parts of updates over `steps` steps: one of each kind
    in the last of them, then any."""
    chance = random.Random(seed)
    records = [
        record
        for step in range(steps, 0, -1)
        for state in walk.records(step)
        if state.role in roles
        for record in [state, *(walk.record(f"{state.name}.{p}", step) for p in parts_of(state))]
    ]
    chosen = [record for record in records if record.step == steps]
    assert len(chosen) <= count
    for record in chosen + chance.choices(records, k=count - len(chosen)):
        yield record, tuple(chance.randrange(size) for size in record.shape)


def parts_of(record: Record) -> tuple[str, ...]:
    return record.operation.parts if record.role == "optimizer" else ()


class ByHand:
    """The rules, applied to what an explanation cites."""

    def __init__(self, walk: Walk, model: str, rule: Any = None, batch: int = 2):
        self.walk, self.model, self.rule, self.batch = walk, model, rule, batch

    def cell(self, record: Record, cell: tuple[int, ...]) -> tuple[float, float]:
        """The cell from the cited cells alone, and the sum of the parts' sizes."""
        found = record.explain(cell)
        assert found.value == cell_of(record.value, cell) or found.value != found.value
        terms = []
        for term in found.terms:
            for cited in (term.cited, *term.times):
                assert (cited.source, cited.step) != (record.name, record.step), "cites itself"
                there = cell_of(self.walk.fetch(cited.source, cited.step), cited.index)
                assert cited.value == pytest.approx(there, rel=1e-15, nan_ok=True), cited
            terms.append((term.cited, term.times))
        name = record.name
        if name.startswith("gradients.") and name != "gradients.norm":
            return added([self.received(cited, times, cell) for cited, times in terms])
        if name.startswith("update."):
            return added([self.moved(record, cited, times) for cited, times in terms])
        return self.forward(name, cell, terms)

    def forward(self, name: str, cell: tuple[int, ...], terms: list) -> tuple[float, float]:
        values = [cited.value for cited, _ in terms]
        if name == "gradients.norm":
            return math.sqrt(sum(x * x for x in values)), sum(x * x for x in values)
        if name in ("weights", "probabilities"):
            if max(values) == -math.inf:
                return 0.0, 0.0
            powers = [math.exp(x - max(values)) for x in values]
            return powers[cell[-1]] / math.fsum(powers), math.fsum(powers)
        if name == "loss.per_target":
            row = [cited.value for cited, _ in terms if cited.source == "logits"]
            (target,) = (cited.value for cited, _ in terms if cited.source == "batch.y")
            whole = math.fsum(math.exp(x) for x in row)
            return math.log(whole) - row[target], whole + abs(row[target])
        if name == "loss":
            return added([x / self.batch for x in values])
        if name == "scores.masked":
            return added([self.seen(cited, cell) for cited, _ in terms])
        if name == "logits.blocked":
            return added([-math.inf if cell[-1] in (0, 1, 3) else x for x in values])
        if name == "hidden":
            return added([x if x > 0 else 0.0 for x in values])
        if name == "scores":
            return added([x * TEMPER[self.model] for x in values])
        picks = [cited for cited, _ in terms if cited.source in ("batch.X", "context")]
        assert all(
            cited.index[0] == pick.value
            for pick in picks
            for cited, _ in terms
            if cited.source == "parameters.token_embedding.weight"
        )
        return added(
            [
                cited.value * math.prod(other.value for other in times)
                for cited, times in terms
                if cited not in picks
            ]
        )

    def seen(self, cited, cell: tuple[int, ...]) -> float:
        """A score counts; a key of <PAD> makes -inf, any other key nothing."""
        if cited.source == "scores":
            assert cited.index == cell
            return cited.value
        assert cited.index == (cell[0], cell[-1])
        return -math.inf if cited.value == 0 else 0.0

    def received(self, cited, times: tuple, cell: tuple[int, ...]) -> float:
        """What one term of the chain rule puts in, by the operation the gradient comes through."""
        if cited.source == "probabilities":
            return cited.value / self.batch
        if cited.source == "batch.y":
            return -1 / self.batch if cited.value == cell[-1] else 0.0
        if cited.source == "batch.X":
            assert cited.value == 0
            return 0.0
        through = cited.source.removeprefix("gradients.")
        assert through != cited.source
        if through == "hidden":
            return cited.value if times[0].value > 0 else 0.0
        if through == "scores":
            return cited.value * TEMPER[self.model]
        if through == "weights":
            mine, *other = times
            assert {each.source for each in times} == {"weights"}
            assert mine.index == cell
            if not other:  # of the cell itself
                assert cited.index == cell
                return cited.value * mine.value
            assert other[0].index == cited.index
            return -cited.value * mine.value * other[0].value
        return cited.value * math.prod(other.value for other in times)

    def moved(self, record: Record, cited, times: tuple) -> float:
        """What one term puts into an update, or into one of its parts."""
        rule, t, value = self.rule, record.step, cited.value
        parameter, _, part = record.name.removeprefix("update.").rpartition(".")
        if part not in (*rule.parts, ""):
            parameter, part = record.name.removeprefix("update."), "new"
        is_gradient = cited.source == f"gradients.{parameter}"
        if part in ("old", "grad"):
            return value
        if isinstance(rule, SGD):
            if part == "m":
                return value if is_gradient else rule.momentum * value
            return value if cited.source.startswith("parameters.") else -rule.lr * value
        (b1, b2), lr = rule.betas, rule.lr
        if part == "decay":
            return -lr * rule.weight_decay * value
        if part == "m":
            return (1 - b1) * value if is_gradient else b1 * value
        if part == "v":
            return (1 - b2) * value**2 if is_gradient else b2 * value
        if part == "m_hat":
            return value / (1 - b1**t)
        if part == "v_hat":
            return value / (1 - b2**t)
        if part == "step":
            m, v = value / (1 - b1**t), times[0].value / (1 - b2**t)
            return -lr * m / (math.sqrt(v) + rule.eps)
        return value


def added(parts: list[float]) -> tuple[float, float]:
    infinite = [part for part in parts if math.isinf(part)]
    if infinite:
        return sum(infinite), 1.0
    return math.fsum(parts), math.fsum(abs(part) for part in parts)


def check(hand: ByHand, record: Record, cell: tuple[int, ...]) -> None:
    by_hand, size = hand.cell(record, cell)
    found = record.explain(cell)
    where = (record.name, record.step, cell)
    if math.isfinite(found.value):
        assert abs(by_hand - found.value) <= TOLERANCE * size + 1e-30, where
        assert abs(found.total - found.value) <= TOLERANCE * found.size + 1e-30, where
    else:
        assert by_hand == found.value == found.total, where


# --- training --------------------------------------------------------------------------------


EVERY_RULE = {**RULES, **MORE_RULES}


@pytest.mark.parametrize("kind", EVERY_RULE)
@pytest.mark.parametrize("name", MODELS)
def test_random_cells_of_training(name: str, kind: str):
    """200 cells a model over three steps: activations, gradients, updates with all their parts."""
    rule = EVERY_RULE[kind]
    walk = Walk(training(name, rule))
    walk.seek(4)
    hand = ByHand(walk, name, rule)
    for record, cell in random_cells(walk, 3, 200, seed=17):
        check(hand, record, cell)


@pytest.mark.parametrize("kind", ["adamw", "momentum"])
@pytest.mark.parametrize("name", MODELS)
def test_random_cells_where_all_was_let_go_of(name: str, kind: str):
    """The same explanations out of replays: every cited value made again."""
    rule = EVERY_RULE[kind]
    roomy, tiny = (Walk(training(name, rule), budget) for budget in (2**28, 2_000))
    for walk in (roomy, tiny):
        walk.seek(3)
    chance = random.Random(5)
    for record in chance.sample(roomy.records(2), 12):
        cell = tuple(chance.randrange(size) for size in record.shape)
        assert tiny.record(record.name, 2).explain(cell) == record.explain(cell), record.name


@pytest.mark.parametrize("name", MODELS)
def test_every_cell_of_the_first_step(name: str):
    """Not only random ones: all cells of all states and gradients of step 1."""
    walk = Walk(training(name))
    walk.seek(2)
    hand = ByHand(walk, name, RULES["sgd"])
    small = [r for r in walk.records(1) if r.role in ROLES and math.prod(r.shape) <= 40]
    assert len(small) >= 20
    for record in small:
        for cell in torch.ones(record.shape).nonzero().tolist():
            check(hand, record, tuple(cell))


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_cell_adds_up(name: str, kind: str):
    """All cells of all states, gradients and updates of the worked sentence's first two steps: the
    total of the terms is the cell, each cited number stands where it is cited, and none is the
    cell itself."""
    walk = Walk(training(name, RULES[kind]))
    walk.seek(3)
    for record in [r for step in (1, 2) for r in walk.records(step) if r.role in ROLES]:
        for cell in torch.ones(record.shape).nonzero().tolist():
            found = record.explain(tuple(cell))
            where = (record.name, record.step, cell)
            for cited in (c for term in found.terms for c in (term.cited, *term.times)):
                assert (cited.source, cited.step) != (record.name, record.step), where
                there = cell_of(walk.fetch(cited.source, cited.step), cited.index)
                assert cited.value == pytest.approx(there, rel=1e-15, nan_ok=True), (where, cited)
            close = abs(found.total - found.value) <= TOLERANCE * found.size + 1e-30
            assert close or found.total == found.value, where


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_batch(name: str):
    """All seven windows at once, one of them nearly all padding."""
    walk = Walk(training(name, rows=list(range(7))))
    walk.seek(2)
    hand = ByHand(walk, name, RULES["sgd"], batch=7)
    for record, cell in random_cells(walk, 1, 100, seed=23):
        check(hand, record, cell)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_add_up_to_autograd_s_in_float64(name: str):
    """An independent float64 pass of plain PyTorch: every explained gradient is that one."""
    walk = Walk(training(name))
    walk.seek(2)
    model, kept = plain(name).double(), {}

    def keep(state: str, tensor: Tensor) -> Tensor:
        tensor.retain_grad()
        kept[state] = tensor
        return tensor

    F.cross_entropy(model(IDS, keep), TARGETS).backward()
    expected = {state: tensor.grad for state, tensor in kept.items()}
    expected |= {key: parameter.grad for key, parameter in model.named_parameters()}
    chance = random.Random(2)
    for state, gradient in expected.items():
        record = walk.record(f"gradients.{state}", 1)
        for _ in range(4):
            cell = tuple(chance.randrange(size) for size in gradient.shape)
            total = record.explain(cell).total
            assert total == pytest.approx(gradient[cell].item(), abs=1e-6), (state, cell)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_slopes(name: str):
    """Finite differences of a float64 loss: d loss / d one weight of every parameter."""
    walk = Walk(training(name))
    walk.seek(2)
    model = plain(name).double()
    nudge = 1e-6

    def loss_with(parameter: nn.Parameter, cell: tuple[int, ...], by: float) -> float:
        with torch.no_grad():
            parameter[cell] += by
            loss = F.cross_entropy(model(IDS), TARGETS).item()
            parameter[cell] -= by
        return loss

    for key, parameter in model.named_parameters():
        cell = (5, 1) if key == "token_embedding.weight" else (1,) * parameter.dim()
        above, below = (loss_with(parameter, cell, by) for by in (nudge, -nudge))
        total = walk.record(f"gradients.{key}", 1).explain(cell).total
        assert total == pytest.approx((above - below) / (2 * nudge), abs=1e-6), key


@pytest.mark.parametrize("name", MODELS)
def test_the_padding_row_gets_nothing(name: str):
    """<PAD> is looked up in the batch, but its row is never trained."""
    walk = Walk(training(name))
    walk.seek(2)
    for token, touched in ((0, False), (1, True), (2, False)):
        found = walk.record("gradients.token_embedding.weight", 1).explain((token, 0))
        assert bool(found.terms) == touched
        assert (found.total == 0) == (not touched)
        assert bool(found.note) == (not touched)


def test_formulas_name_what_they_are_made_of():
    walk = Walk(training("attention"))
    walk.seek(2)
    formulas = {record.name: record.explain((0,) * len(record.shape)).formula
                for record in walk.records(1)}  # fmt: skip
    assert formulas["q"] == "embedding · W_Q.weightᵀ"
    assert formulas["hidden.pre"] == "residual · hidden_layer.weightᵀ + hidden_layer.bias"
    assert formulas["scores"] == "scores.raw · 0.57735"
    assert formulas["weights"] == "softmax(scores.masked)"
    assert formulas["loss.per_target"] == "-ln softmax(logits)[batch.y]"
    assert formulas["gradients.hidden.pre"] == (
        "d loss / d hidden.pre = gradients.hidden where hidden.pre > 0, else 0"
    )
    assert formulas["gradients.logits"] == (
        "d loss / d logits = (probabilities - [c = batch.y]) / number of targets"
    )


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_no_formula_has_a_hole(name: str):
    """Neither formula nor note shows a `{}` that nobody filled, in either map."""
    for walk in (Walk(training(name)), Walk(generation(name))):
        walk.seek(2)
        for step in (0, 1):
            for record in walk.records(step):
                found = record.explain((0,) * len(record.shape))
                for text in (record.formula, found.formula, found.note):
                    assert "{" not in text, (record.name, text)


# --- preparation and generation --------------------------------------------------------------


def test_texts_and_ids_answer_with_their_rule():
    walk = Walk(training("mlp"))
    walk.seek(1)
    for record in walk.records(0):
        found = record.explain((0,) * len(record.shape))
        assert found.combine == "rule"
        assert found.total is None
        assert found.note, record.name
    contexts = walk.record("windows.contexts", 0)
    for (row, slot), source in (((3, 0), 0), ((3, 3), 3), ((1, 2), 0), ((6, 1), 4)):
        found = contexts.explain((row, slot))
        (term,) = found.terms
        assert (term.cited.source, term.cited.index) == ("ids", (source,))
        assert term.cited.value == found.value
    assert contexts.explain((0, 0)).terms == []  # <PAD>: read from nowhere
    for row in range(7):
        found = walk.record("windows.targets", 0).explain((row,))
        assert found.terms[0].cited.index == (row + 1,)
        assert found.terms[0].cited.value == found.value


@pytest.mark.parametrize("state", ["batch.X", "batch.y"])
def test_a_batch_cites_its_windows(state: str):
    walk = Walk(training("mlp"))
    walk.seek(2)
    table = {"batch.X": "windows.contexts", "batch.y": "windows.targets"}[state]
    record = walk.record(state, 1)
    for cell in torch.ones(record.shape).nonzero().tolist():
        found = record.explain(tuple(cell))
        (term,) = found.terms
        assert (term.cited.source, term.cited.step) == (table, 0)
        assert term.cited.index == ((2, 3)[cell[0]], *cell[1:])
        assert term.cited.value == found.value == found.total


@pytest.mark.parametrize("name", MODELS)
def test_random_cells_of_generation(name: str):
    walk = Walk(generation(name, chooser=FixedDraw(0.8)))
    walk.seek(4)
    hand = ByHand(walk, name)
    for record, cell in random_cells(walk, 3, 200, seed=29, roles=("activation",)):
        if record.operation.combine != "rule":
            check(hand, record, cell)


def test_rules_of_generation_cite_what_they_read():
    walk = Walk(generation("mlp", chooser=FixedDraw(0.8)))
    walk.seek(4)
    context = walk.record("context", 1)
    cited = [[t.cited.index for t in context.explain((0, slot)).terms] for slot in range(4)]
    assert cited == [[], [(0,)], [(1,)], [(2,)]]
    later = walk.record("context", 4).explain((0, 3)).terms[0].cited
    assert (later.source, later.step, later.index) == ("history", 3, (5,))
    history = walk.record("history", 2)
    for index, cited in (
        (4, ("choice", 2, ())),
        (3, ("history", 1, (3,))),
        (0, ("history", 1, (0,))),
    ):
        (term,) = history.explain((index,)).terms
        assert (term.cited.source, term.cited.step, term.cited.index) == cited
    for step in (1, 2, 3):
        for record in walk.records(step):
            if record.operation.combine == "rule":
                found = record.explain((0,) * len(record.shape))
                assert found.note, record.name
                for term in found.terms:
                    value = walk.fetch(term.cited.source, term.cited.step)
                    assert cell_of(value, term.cited.index) == term.cited.value


# --- padding, and numbers that are none ------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTION)
def test_a_row_without_a_visible_key_says_so(name: str):
    """A context of nothing but <PAD>: 0 everywhere, and the explanation is no division by 0."""
    ids = torch.tensor([[0, 0, 0, 0], [1, 8, 7, 5]])
    data = engine.TrainingData.of(ids, TARGETS)
    process = engine.Training(build(name), data, engine.FixedRows([0, 1]), keep_gradients=True)
    walk = Walk(process)
    walk.seek(2)
    lead = (0,) if name == "attention" else (0, 1)
    found = walk.record("weights", 1).explain((*lead, 0, 2))
    assert found.value == found.total == 0
    assert found.note == "no visible key: the row weighs 0 everywhere"
    hand = ByHand(walk, name, process.rule)
    for record, cell in random_cells(walk, 1, 120, seed=31):
        check(hand, record, cell)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_cells_that_are_no_numbers_are_explained_as_such(name: str, broken: float):
    """With one parameter that is not finite, a non-finite cell has the same non-finite total."""
    process = training(name)
    with torch.no_grad():
        process.model.hidden_layer.bias[2] = broken
    walk = Walk(process)
    walk.seek(2)
    chance = random.Random(1)
    for record in walk.records(1):
        if record.role in ROLES and record.operation.combine != "root":
            for _ in range(4):
                cell = tuple(chance.randrange(size) for size in record.shape)
                found = record.explain(cell)
                if not math.isfinite(found.value):
                    same = found.value == found.total or found.total != found.total
                    assert same, (record.name, cell, found.value, found.total)
                    assert math.isnan(found.total) == math.isnan(found.value)


@pytest.mark.parametrize("size", [1e30, -1e30])
def test_a_sum_beyond_the_cell_s_type_is_infinite_too(size: float):
    """1e30 · 1e30 is no float32; the total, in float64, says what the cell says."""
    process = training("mlp")
    with torch.no_grad():
        process.model.hidden_layer.bias.fill_(1e30)
        process.model.vocab_head.weight[3].fill_(size)
    walk = Walk(process)
    walk.seek(1, "logits")
    found = walk.current.explain((0, 3))
    assert found.value == found.total == math.copysign(math.inf, size)


# --- any shape -------------------------------------------------------------------------------


@given(
    name=st.sampled_from(MODELS),
    ids=st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=4), min_size=1, max_size=3),
    pads=st.integers(0, 3),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_any_batch(name: str, ids: list[list[int]], pads: int, data: st.DataObject):
    """Whatever the batch, a random cell of every state and gradient is what its terms say."""
    contexts = torch.tensor(ids)
    contexts[0, :pads] = 0
    targets = torch.tensor([row[0] for row in ids])
    windows = engine.TrainingData.of(contexts, targets)
    rows = engine.FixedRows(list(range(len(ids))))
    process = engine.Training(build(name), windows, rows, keep_gradients=True)
    walk = Walk(process)
    walk.seek(2)
    hand = ByHand(walk, name, process.rule, batch=len(ids))
    records = [record for record in walk.records(1) if record.role in ROLES]
    for record in data.draw(st.lists(st.sampled_from(records), min_size=3, max_size=6)):
        check(hand, record, tuple(data.draw(st.integers(0, n - 1)) for n in record.shape))


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "cell", "shape"),
    [
        ("weights", (0, 0, 4), [2, 1, 4]),
        ("weights", (-1, 0, 0), [2, 1, 4]),
        ("weights", (0, 0), [2, 1, 4]),
        ("weights", (), [2, 1, 4]),
        ("loss", (0,), []),
        ("gradients.W_Q.weight", (3, 0), [3, 4]),
        ("update.W_Q.weight", (0, 4), [3, 4]),
        ("update.W_Q.weight.new", (0, 4), [3, 4]),
        ("parameters.W_Q.weight", (9, 9), [3, 4]),
    ],
)
def test_cells_that_are_not_there_are_told(state: str, cell: tuple[int, ...], shape: list[int]):
    walk = Walk(training("attention"))
    walk.seek(2)
    with pytest.raises(IndexError) as told:
        walk.record(state, 1).explain(cell)
    assert str(told.value) == f"{state} has no cell {list(cell)}: its shape is {shape}"


@pytest.mark.parametrize("name", MODELS)
def test_parameters_explain_themselves_as_stored(name: str):
    walk = Walk(training(name))
    walk.seek(2)
    for key in SHAPES[name]:
        record = walk.record(f"parameters.{key}", 1)
        found = record.explain((0,) * len(record.shape))
        assert found.combine == "rule"
        assert found.value == walk.fetch(f"update.{key}", 1)[(0,) * len(record.shape)].item()
