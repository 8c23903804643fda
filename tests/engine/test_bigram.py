"""The table: logits are a row of it, and its gradients are those of plain PyTorch."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import engine
from engine import Generation, TensorstepError, Walk, drain, each
from engine.maps import map_of, stage_of
from engine.models import BigramLM, evaluate
from engine.service.options import Options
from engine.service.session import Session
from tests.engine.worked import ROWS, RULES, SEED, X, Y, by_name, prepared

IDS, TARGETS = torch.tensor(X), torch.tensor(Y)


def build(words: int = 10, context: int = 4) -> BigramLM:
    torch.manual_seed(SEED)
    return BigramLM(words, context)


def training(rule=None, rows: list[int] | None = None) -> engine.Training:
    batches = engine.FixedRows(rows or ROWS)
    return engine.Training(build(), prepared().data, batches, rule, keep_gradients=True)


def walked(steps: int = 1) -> Walk:
    walk = Walk(training())
    walk.seek(steps + 1)
    return walk


def test_one_parameter_drawn_after_the_seed():
    torch.manual_seed(SEED)
    table = torch.randn(10, 10)
    model = build()
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "table.weight": (10, 10)
    }
    assert torch.equal(model.table.weight, table)
    assert model.parameter_axes() == {"table.weight": ("C", "C")}
    assert not model.every_position


def test_states():
    """One state: the row of the last ID."""
    model = build()
    (state,) = each(model.states(IDS))
    assert (state.name, state.axes, state.role) == ("logits", ("B", "C"), "activation")
    assert torch.equal(state.value, model.table.weight[[7, 5]])
    assert torch.equal(model(IDS), state.value)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_only_the_last_id_counts(ids: list[int]):
    """However short the context."""
    model = build()
    assert torch.equal(model(torch.tensor([ids]))[0], model.table.weight[ids[-1]])


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (torch.zeros(1, 5, dtype=torch.long), "do not fit: give [batch, at most 4]"),
        (torch.zeros(4, dtype=torch.long), "do not fit: give [batch, at most 4]"),
        (torch.tensor([[10]]), "ID 10 is not in a vocabulary of 10"),
        (torch.tensor([[-1]]), "ID -1 is not in a vocabulary of 10"),
        (torch.zeros(1, 4), "are no IDs: give whole numbers (int64)"),
    ],
)
def test_ids_that_do_not_fit(ids: Tensor, sentence: str):
    with pytest.raises(TensorstepError) as told:
        build()(ids)
    assert sentence in str(told.value)


# --- gradients and training ------------------------------------------------------------------


def test_gradients_are_those_of_plain_torch():
    """Of the mean loss: p - [target] over the batch, at the rows that were used; 0 elsewhere."""
    made = by_name(training().states(1))
    torch.manual_seed(SEED)
    table = torch.randn(10, 10, requires_grad=True)
    F.cross_entropy(table[[7, 5]], TARGETS).backward()
    assert torch.equal(made["gradients.table.weight"], table.grad)
    by_hand = torch.zeros(10, 10)
    for row, target in ((7, 5), (5, 9)):
        by_hand[row] = table.detach()[row].softmax(-1) / 2
        by_hand[row, target] -= 0.5
    assert torch.allclose(made["gradients.table.weight"], by_hand, atol=1e-7)
    assert torch.allclose(made["gradients.logits"], by_hand[[7, 5]], atol=1e-7)


@pytest.mark.parametrize("kind", RULES)
def test_training_is_the_plain_loop(kind: str):
    """Bit for bit, losses and table, over ten steps on all seven windows."""
    process = training(RULES[kind], rows=list(range(7)))
    losses = [drain(process.states(step)).value.item() for step in range(1, 11)]
    windows = prepared().windows
    last, targets = windows.contexts[:][:, -1], windows.targets[:]
    torch.manual_seed(SEED)
    table = torch.nn.Parameter(torch.randn(10, 10))
    optimizer = (
        torch.optim.SGD([table], lr=0.1)
        if kind == "sgd"
        else torch.optim.AdamW([table], lr=0.02, weight_decay=0.1)
    )
    for loss in losses:
        optimizer.zero_grad()
        found = F.cross_entropy(F.embedding(last, table), targets)
        found.backward()
        optimizer.step()
        assert found.item() == loss
    assert torch.equal(process.model.table.weight, table)
    assert evaluate(process.model, windows.contexts, targets) < losses[0]


def test_names_of_a_step():
    assert [record.name for record in walked().records(1)] == [
        *("batch.X", "batch.y", "logits", "probabilities", "loss.per_target", "loss"),
        *("gradients.logits", "gradients.table.weight", "gradients.norm", "update.table.weight"),
    ]


# --- explanations ----------------------------------------------------------------------------


def test_every_cell_explains_itself():
    """States, gradients and updates: every total is its cell."""
    walk = walked()
    for record in walk.records(1):
        if record.role in ("activation", "gradient", "optimizer"):
            for cell in itertools.product(*map(range, record.shape)):
                found = record.explain(cell)
                cited = {t.cited.source for t in found.terms}
                assert record.name not in cited
                assert abs(found.total - found.value) <= 1e-6 * found.size + 1e-30, record.name


def test_a_logit_is_one_cell_of_the_table():
    """The last ID picks the row; nothing else of the context is cited."""
    walk = walked()  # which has to live as long as its records
    found = walk.record("logits", 1).explain((1, 3))
    assert found.formula == "row batch.X of table.weight"
    (number, row) = found.terms
    assert (number.cited.source, number.cited.index) == ("parameters.table.weight", (5, 3))
    assert (row.cited.source, row.cited.index, row.cited.value) == ("batch.X", (1, 3), 5)
    assert found.total == found.value


@pytest.mark.parametrize(("row", "used"), [(7, 1), (5, 1), (8, 0)])
def test_the_gradient_of_a_row(row: int, used: int):
    walk = walked()
    found = walk.record("gradients.table.weight", 1).explain((row, 5))
    assert len(found.terms) == used
    assert (found.total == 0) == (not used)
    assert (found.note == "nothing in this batch depends on this cell") == (not used)


# --- maps, sessions, text --------------------------------------------------------------------


def test_the_map_has_one_box_between_batch_and_loss():
    keys = [stage.key for stage in map_of("training", "bigram").stages]
    assert keys[keys.index("batch") + 1 : keys.index("loss")] == ["logits"]
    assert stage_of("training", "logits", 1) == "logits"


def test_a_session_trains_it():
    """`--model bigram`, on the worked sentence."""
    walk = Session(Options(model="bigram")).walk("training")
    walk.seek(1, "loss")
    expected = drain(training().states(1)).value
    assert torch.equal(walk.current.value, expected)


def test_greedy_text():
    """From each token the likeliest one after it."""
    process = Generation(build(), prepared().tokenizer, "Lily", 6)
    ids = list(process.ids)
    drain(engine.generate(process))
    table = build().table.weight.detach().clone()
    table[:, [0, 1, 3]] = -torch.inf
    for _ in range(6):
        ids.append(int(table[ids[-1]].argmax()))
        if ids[-1] == 2:
            break
    assert process.ids == ids
