"""A session: documents, models and walks from one set of options."""

from __future__ import annotations

import pytest
import torch

from engine import TensorstepError, UsageError
from engine.service.options import Options
from engine.service.session import Session
from tests.engine.test_models import SHAPES
from tests.engine.worked import EVERY_MODEL, build

EACH_MODEL = pytest.mark.parametrize("name", EVERY_MODEL)


@EACH_MODEL
def test_models_of_the_worked_sentence(name: str):
    """Seed 11 and the dimensions of the reference, whatever was drawn before."""
    session = Session(Options())
    torch.rand(3)
    for made in (session.model(name), session.model(name)):
        for mine, its in zip(made.parameters(), build(name).parameters(), strict=True):
            assert torch.equal(mine, its)


@EACH_MODEL
def test_worked_steps(name: str):
    walk = Session(Options()).walk("training", name)
    walk.seek(1, "batch.X")
    windows, runs = [[0, 1, 8, 7], [1, 8, 7, 5]], [[7, 5, 9, 6], [5, 9, 6, 4]]
    assert walk.current.value.tolist() == (runs if name == "transformer" else windows)
    walk.seek(2)
    model = build(name)
    ids, targets = walk.fetch("batch.X", 1), walk.fetch("batch.y", 1)
    logits = model(ids).flatten(0, -2)  # of a target at every position, or of one
    torch.nn.functional.cross_entropy(logits, targets.flatten()).backward()
    for key, parameter in model.named_parameters():
        expected = parameter - 0.1 * parameter.grad
        assert torch.allclose(walk.fetch(f"update.{key}", 1), expected, atol=1e-7)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_generation_uses_the_model_after_so_many_steps(steps: int):
    session = Session(Options(model="mlp", train_steps=steps))
    generation, training = session.walk("generation"), session.walk("training")
    assert generation.process.prompt == "Lily found"
    training.seek(steps + 1)
    for key in SHAPES["mlp"]:
        stored = generation.fetch(f"parameters.{key}", 0)
        assert torch.equal(stored, training.fetch(f"parameters.{key}", steps))


def test_own_text():
    """Vocabulary, windows, prompt and drawn batches of a sentence of one's own."""
    session = Session(Options(sentence="A cat sat. A cat ran!", batch=3, context=2, model="mlp"))
    assert session.prepared.tokenizer.itos[4:] == ["!", ".", "a", "cat", "ran", "sat"]
    walk = session.walk("training")
    walk.seek(2)
    generator = torch.Generator().manual_seed(10_011)
    rows = torch.randint(len(session.prepared.windows), (3,), generator=generator)
    assert torch.equal(walk.fetch("batch.y", 1), session.prepared.windows.targets[rows])
    assert walk.fetch("batch.X", 1).shape == (3, 2)
    assert session.walk("generation").process.prompt == "a cat"


def test_a_text_of_one_token_can_be_walked():
    """Two windows, one word to begin with."""
    session = Session(Options(sentence="hm"))
    for kind in ("training", "generation"):
        walk = session.walk(kind)
        walk.seek(1)
        while walk.cursor.step == 1 and walk.forward():
            assert walk.current.value is not None
    assert session.walk("generation").process.prompt == "hm"


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"width": 6}, {"token_embedding.weight": (10, 6), "W_Q.weight": (6, 6)}),
        ({"hidden": 5}, {"hidden_layer.weight": (5, 4), "W_V.weight": (2, 4)}),
    ],
)
def test_sizes_can_be_chosen(changes: dict, sizes: dict):
    parameters = dict(Session(Options(**changes)).model("attention").named_parameters())
    for key, size in sizes.items():
        assert tuple(parameters[key].shape) == size


@pytest.mark.parametrize("rows", [(7,), (0, 99), (-1,)])
def test_rows_that_are_not_there(rows: tuple[int, ...]):
    wrong = rows[-1]
    with pytest.raises(
        UsageError, match=f"there is no window {wrong}, the text gives windows 0 to 6"
    ):
        Session(Options(rows=rows))


def test_the_worked_rows_go_with_any_context_and_however_the_sentence_is_given():
    """Windows 2 and 3 of "Lily found a red ball.": before `a` and before `red`."""
    for options in (Options(context=2), Options(context=2, sentence="Lily found a red ball.")):
        walk = Session(options).walk("training")
        walk.seek(1)
        assert walk.fetch("batch.X", 1).tolist() == [[8, 7], [7, 5]]
        assert walk.fetch("batch.y", 1).tolist() == [5, 9]


def test_the_largest_seed():
    walk = Session(Options(seed=2**63 - 1, batch=2)).walk("training", "mlp")
    walk.seek(2)
    assert walk.fetch("batch.X", 1).shape == (2, 4)


@pytest.mark.parametrize(
    ("open_it", "sentence"),
    [
        (lambda s: s.walk("sideways"), "there is no sideways map: use training or generation"),
        (lambda s: s.walk("training", "rnn"), "no model is called 'rnn'"),
    ],
)
def test_maps_and_models_that_are_not_there(open_it, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        open_it(Session(Options()))


def test_heads_that_do_not_share_the_width():
    with pytest.raises(TensorstepError, match="3 heads do not share a width of 4 evenly"):
        Session(Options(heads=3)).walk("training", "multihead")


def test_a_prompt_of_unknown_words():
    with pytest.raises(UsageError, match="the prompt 'zebra' has no token of the vocabulary"):
        Session(Options(prompt="zebra")).walk("generation")


def test_a_step_of_training_is_held_whole(monkeypatch: pytest.MonkeyPatch):
    """However large the parameters are beside the budget: no state is made by a replay."""
    monkeypatch.setattr("engine.service.session.BUDGET", 2**19)
    session = Session(Options(model="mlp", corpus="storybook:40", width=64, hidden=256, context=16))
    walk = session.walk("training")
    walk.seek(1)
    walk.finish_step()

    def replayed(*_: object) -> None:
        raise AssertionError("a step was made again")

    monkeypatch.setattr(walk.history, "_replay", replayed)
    assert sum(each.nbytes for each in walk.process.parameters.values()) > 2**19
    for record in walk.records(1):
        assert record.value is not None
