"""Every figure of the worked sentence: `reference/lily.json`, whose numbers stand here."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from engine import FixedDraw, SampledRows, Walk, tokenize
from tests.engine.test_models import IDS, TARGETS
from tests.engine.worked import (
    ATTENTION,
    ROWS,
    SENTENCE,
    X,
    Y,
    build,
    figure,
    generation,
    prepared,
    trace,
    training,
)

VOCABULARY = {
    **{"<PAD>": 0, "<BOS>": 1, "<EOS>": 2, "<UNK>": 3},
    **{".": 4, "a": 5, "ball": 6, "found": 7, "lily": 8, "red": 9},
}
CONTEXTS = [
    [0, 0, 0, 1],
    [0, 0, 1, 8],
    [0, 1, 8, 7],
    [1, 8, 7, 5],
    [8, 7, 5, 9],
    [7, 5, 9, 6],
    [5, 9, 6, 4],
]
ALL_TARGETS = [8, 7, 5, 9, 6, 4, 2]
BEFORE_ANY_STEP = [
    *(0.0, 0.0, 0.09116042405366898, 0.0, 0.1605144888162613, 0.0994604304432869),
    *(0.17081841826438904, 0.15768302977085114, 0.1321786642074585, 0.18818457424640656),
]
AFTER_ONE_STEP = [
    *(0.0, 0.0, 0.09041141718626022, 0.0, 0.15782228112220764, 0.10370539128780365),
    *(0.16826871037483215, 0.1550559550523758, 0.13043169677257538, 0.19430454075336456),
]


def near(number):
    """A figure that was computed again elsewhere, in another order of adding: to 1e-6."""
    return pytest.approx(number, abs=1e-6)


# --- text to windows -------------------------------------------------------------------------


def test_tokens_and_ids():
    ready = prepared()
    tokens = ["lily", "found", "a", "red", "ball", "."]
    assert tokenize(SENTENCE) == tokens
    assert ready.tokenizer.vocabulary.stoi == VOCABULARY
    assert ready.tokenizer.vocabulary.itos == list(VOCABULARY)
    assert ready.tokenizer.vocabulary.encode_tokens(tokens) == [1, 8, 7, 5, 9, 6, 4, 2]


def test_an_unknown_word():
    words = prepared().tokenizer.vocabulary
    assert words.encode_tokens(["blue"], boundaries=False) == [3]
    assert words.encode_tokens(["blue"]) == [1, 3, 2]


def test_states_of_the_preparation():
    made = trace(training("mlp"), 0)
    assert made[0, "stories"] == [SENTENCE]
    assert made[0, "split"] == ["train"]
    assert made[0, "tokens"] == ["lily", "found", "a", "red", "ball", "."]
    assert made[0, "vocabulary"] == list(VOCABULARY)
    assert made[0, "ids"].tolist() == [1, 8, 7, 5, 9, 6, 4, 2]
    assert made[0, "windows.contexts"][:].tolist() == CONTEXTS
    assert made[0, "windows.targets"].tolist() == ALL_TARGETS


@pytest.mark.parametrize(
    ("width", "context"), [(2, [9, 6]), (4, [7, 5, 9, 6]), (6, [1, 8, 7, 5, 9, 6])]
)
def test_contexts_by_width_before_target_6(width: int, context: list[int]):
    """The sixth target is the full stop."""
    windows = prepared(context=width).windows
    assert windows.targets[5].item() == VOCABULARY["."]
    assert windows.contexts[5].tolist() == context


def test_the_batch():
    made = trace(training("mlp"), 1)
    assert made[1, "batch.X"].tolist() == X == [CONTEXTS[row] for row in ROWS]
    assert made[1, "batch.y"].tolist() == Y == [ALL_TARGETS[row] for row in ROWS]


def test_batches_of_a_pass():
    """Seven windows in batches of two, the last one kept: 2, 2, 2, 1."""
    windows = prepared().windows
    sizes = [len(windows.contexts[at : at + 2]) for at in range(0, len(windows), 2)]
    assert sizes == [2, 2, 2, 1]


def test_two_sentences_are_one_document():
    ids = prepared(
        documents=["Lily found a ball. Lily found a red ball."]
    ).windows.stream.ids.tolist()
    assert [ids.count(VOCABULARY[token]) for token in ("<BOS>", "<EOS>", ".")] == [1, 1, 2]


# --- the window MLP --------------------------------------------------------------------------


def test_first_guess_of_the_mlp():
    """Of the context "<BOS> lily found a": it guesses red, the right one, with p = 0.144."""
    model = build("mlp")
    shares = torch.softmax(model(IDS), -1)[1]
    assert shares.argmax().item() == 9
    assert shares[9].item() == figure(0.1444295048713684)


def test_loss_of_the_mlp_before_and_after_one_step():
    trained = training("mlp")
    made = trace(trained, 1)
    assert made[1, "loss"].item() == figure(2.2983837127685547)
    assert F.cross_entropy(trained.model(IDS), TARGETS).item() == figure(2.2394907474517822)


def test_one_weight_through_one_step():
    walk = Walk(training("mlp"))
    walk.seek(1)
    cell = (9, 0)
    old, gradient, new = (
        walk.fetch(name, step)[cell].item()
        for name, step in (
            ("parameters.vocab_head.weight", 0),
            ("gradients.vocab_head.weight", 1),
            ("update.vocab_head.weight", 1),
        )
    )
    assert old == figure(-0.021635789424180984)
    assert gradient == near(0.010811314918100834)
    assert new == near(-0.02271692082285881)
    assert walk.fetch("gradients.norm", 1).item() == near(0.7641686797142029)


def test_rows_that_no_window_touches_get_no_gradient():
    """Over all seven windows: <PAD>, <EOS> and <UNK> are never looked up to any effect, but
    <EOS> is a target."""
    made = trace(training("mlp", rows=list(range(7))), 1)
    rows = made[1, "gradients.token_embedding.weight"]
    zero = {token for token, i in VOCABULARY.items() if not rows[i].any()}
    assert zero == {"<PAD>", "<EOS>", "<UNK>"}
    assert made[1, "gradients.vocab_head.weight"][VOCABULARY["<EOS>"]].any()


# --- attention -------------------------------------------------------------------------------


def test_attention_weights():
    made = trace(training("attention"), 1)
    expected = [0.0, 0.4611196219921112, 0.25964343547821045, 0.27923691272735596]
    assert made[1, "weights"][0, 0].tolist() == near(expected)
    assert made[1, "weights"][0, 0, 0] == 0


def test_loss_of_attention_before_and_after_one_step():
    trained = training("attention")
    assert trace(trained, 1)[1, "loss"].item() == pytest.approx(2.112, abs=5e-4)
    after = F.cross_entropy(trained.model(IDS), TARGETS).item()
    assert after == figure(2.0291149616241455)


@pytest.mark.parametrize("name", ATTENTION)
def test_the_loss_falls(name: str):
    walk = Walk(training(name))
    walk.seek(3)
    walk.seek(3, "loss")
    assert walk.losses == sorted(walk.losses, reverse=True)
    assert len(walk.losses) == 3


# --- generation with the MLP -----------------------------------------------------------------


@pytest.mark.parametrize(("steps", "shares"), [(0, BEFORE_ANY_STEP), (1, AFTER_ONE_STEP)])
def test_first_probabilities(steps: int, shares: list[float]):
    made = trace(generation("mlp", steps=steps), 1)
    assert made[1, "probabilities"][0].tolist() == near(shares)
    assert [i for i, share in enumerate(shares) if share == 0] == [0, 1, 3]


@pytest.mark.parametrize(("draw", "chosen"), [(0.0, 2), (0.1, 4), (0.45, 6), (0.8, 8), (1.0, 9)])
def test_choice_by_draw(draw: float, chosen: int):
    made = trace(generation("mlp", chooser=FixedDraw(draw)), 1)
    assert made[1, "choice"].item() == chosen


@pytest.mark.parametrize("steps", [0, 1])
def test_greedy_steps(steps: int):
    """Alike before and after the step of training."""
    made = trace(generation("mlp", steps=steps), 4)
    assert made[0, "history"].tolist() == [1, 8, 7]
    walked = [(made[t, "context"][0].tolist(), made[t, "choice"].item()) for t in range(1, 5)]
    assert walked == [
        ([0, 1, 8, 7], 9),
        ([1, 8, 7, 9], 9),
        ([8, 7, 9, 9], 4),
        ([7, 9, 9, 4], 7),
    ]


def test_sampled_batches_are_seeded_away_from_parameters():
    """Seed 11 draws the parameters, 10011 the batches."""
    generator = torch.Generator().manual_seed(10_011)
    expected = torch.randint(7, (2,), generator=generator).tolist()
    assert SampledRows(7, 2, 11).rows(1).tolist() == expected
