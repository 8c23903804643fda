"""The models: one generator of operations each, compared with plain PyTorch (`plain.py`)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import engine
from engine import TensorstepError, drain, each, patched
from tests.engine.plain import as_it_is, plain
from tests.engine.worked import ATTENTION, MODELS, SEED, X, Y, build, by_name, copied, same

IDS, TARGETS = torch.tensor(X), torch.tensor(Y)
HIDDEN = ("hidden.pre", "hidden", "logits")
NAMES = {
    "mlp": ("embedding", "flatten", *HIDDEN),
    "attention": (
        *("embedding.tokens", "embedding.positions", "embedding", "q", "K", "V", "scores.raw"),
        *("scores", "scores.masked", "weights", "message", "projection", "residual", *HIDDEN),
    ),
}
NAMES["multihead"] = NAMES["attention"]
EVERY_STATE = [(model, name) for model in MODELS for name in NAMES[model]]
SHAPES = {
    "mlp": {
        "token_embedding.weight": (10, 4),
        "hidden_layer.weight": (8, 16),
        "hidden_layer.bias": (8,),
        "vocab_head.weight": (10, 8),
        "vocab_head.bias": (10,),
    },
    "attention": {
        "token_embedding.weight": (10, 4),
        "position_embedding.weight": (4, 4),
        "W_Q.weight": (3, 4),
        "W_K.weight": (3, 4),
        "W_V.weight": (2, 4),
        "W_O.weight": (4, 2),
        "hidden_layer.weight": (8, 4),
        "hidden_layer.bias": (8,),
        "vocab_head.weight": (10, 8),
        "vocab_head.bias": (10,),
    },
}
SHAPES["multihead"] = SHAPES["attention"] | {
    f"W_{letter}.weight": (4, 4) for letter in ("Q", "K", "V", "O")
}


def gradients_of(model: torch.nn.Module, logits: Tensor) -> dict[str, Tensor]:
    """d mean cross-entropy / d every parameter; zero where nothing depends on one."""
    model.zero_grad()
    if logits.requires_grad:
        F.cross_entropy(logits, TARGETS).backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


def identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_drawn_in_the_published_order(name: str):
    """After the same seed, a plain construction in that order has the same numbers."""
    made = dict(build(name).named_parameters())
    assert {key: tuple(value.shape) for key, value in made.items()} == SHAPES[name]
    assert list(made) == list(SHAPES[name])
    assert identical(made, dict(plain(name).named_parameters()))
    assert made["token_embedding.weight"][0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_an_axis_a_dimension(name: str):
    axes = build(name).parameter_axes()
    assert {key: len(letters) for key, letters in axes.items()} == {
        key: len(shape) for key, shape in SHAPES[name].items()
    }
    assert axes["token_embedding.weight"] == ("C", "d")
    assert axes["vocab_head.weight"] == ("C", "h")
    assert axes["hidden_layer.bias"] == ("h",)


def test_defaults_of_several_heads():
    model = engine.MultiHeadAttentionLM(100, 16)
    assert model.W_Q.weight.shape == (64, 64)
    assert model.hidden_layer.weight.shape == (256, 64)
    assert model.heads == 4
    assert model.pad_id == 0


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_names_in_order(name: str):
    assert tuple(state.name for state in each(build(name).states(IDS))) == NAMES[name]


@pytest.mark.parametrize("name", MODELS)
def test_every_state_is_what_plain_torch_makes(name: str):
    seen = {}

    def note(state: str, tensor: Tensor) -> Tensor:
        seen[state] = copied(tensor)
        return tensor

    plain(name)(IDS, note)
    made = by_name(build(name).states(IDS))
    assert made.keys() == seen.keys()
    for state, value in made.items():
        assert same(value, seen[state]), state


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_plain_torch(name: str):
    model, other = build(name), plain(name)
    assert torch.equal(F.cross_entropy(model(IDS), TARGETS), F.cross_entropy(other(IDS), TARGETS))
    assert identical(gradients_of(model, model(IDS)), gradients_of(other, other(IDS)))


@pytest.mark.parametrize("name", MODELS)
def test_forward_is_the_drained_generator(name: str):
    """`forward` is inherited: it holds no arithmetic of its own."""
    model = build(name)
    assert type(model).forward is engine.StatesModel.forward
    assert torch.equal(model(IDS), drain(model.states(IDS)).value)


@pytest.mark.parametrize("name", MODELS)
def test_axes_fit_the_shapes(name: str):
    """One letter a dimension, and the same letter is the same size all over a pass."""
    sizes = {"B": 2, "w": 4, "S": 4, "1": 1, "d": 4, "h": 8, "C": 10, "w·d": 16, "H": 2}
    sizes |= {"k": 3, "v": 2} if name == "attention" else {"k": 2, "v": 2, "H·k": 4, "H·v": 4}
    for state in each(build(name).states(IDS)):
        assert tuple(state.value.shape) == tuple(sizes[letter] for letter in state.axes), state.name


def test_several_heads_are_scaled_dot_product_attention():
    """Against `F.scaled_dot_product_attention`, head by head."""
    model = build("multihead")
    made = by_name(model.states(IDS))
    q, K, V = (
        made[name].unflatten(-1, (2, 2)).transpose(1, 2).contiguous() for name in ("q", "K", "V")
    )
    visible = (IDS != 0)[:, None, None]
    message = F.scaled_dot_product_attention(q, K, V, attn_mask=visible)
    assert torch.allclose(made["message"], message, atol=1e-6)


def test_one_head_is_scaled_dot_product_attention():
    made = by_name(build("attention").states(IDS))
    visible = (IDS != 0)[:, None]
    message = F.scaled_dot_product_attention(made["q"], made["K"], made["V"], attn_mask=visible)
    assert torch.allclose(made["message"], message, atol=1e-6)


# --- one core: what is sent is what counts ----------------------------------------------------


@pytest.mark.parametrize(("name", "state"), EVERY_STATE)
def test_any_replaced_value_counts(name: str, state: str):
    """The logits and all gradients are those of plain PyTorch with the same cells put in."""
    model, other = build(name), plain(name)
    wanted = by_name(model.states(IDS))[state]
    torch.manual_seed(3)
    chosen = torch.rand(wanted.shape) < 0.3
    chosen.view(-1)[-1] = True
    wanted[chosen] = torch.randn(int(chosen.sum()))

    def put_in(made: str, tensor: Tensor) -> Tensor:
        if made != state:
            return tensor
        tensor = tensor.clone()
        tensor[chosen] = wanted[chosen]
        return tensor

    before = model(IDS)
    logits = drain(patched(model.states(IDS), {state: wanted})).value
    expected = other(IDS, put_in)
    assert torch.equal(logits, expected)
    assert not torch.equal(logits, before)
    assert identical(gradients_of(model, logits), gradients_of(other, expected))


@pytest.mark.parametrize(("name", "state"), EVERY_STATE)
def test_a_state_s_own_value_changes_nothing(name: str, state: str):
    """Bit for bit: logits and gradients."""
    model = build(name)
    own = {state: by_name(model.states(IDS))[state]}
    logits = drain(patched(model.states(IDS), own)).value
    assert torch.equal(logits, model(IDS))
    assert identical(gradients_of(model, logits), gradients_of(model, model(IDS)))


def test_a_state_sent_by_hand_is_used():
    """The protocol itself: another value in the state that is sent back."""
    model = build("attention")
    states = model.states(IDS)
    state = next(states)
    while True:
        state.finish()
        if state.name == "weights":
            state.value = torch.full_like(state.value, 0.25)
        try:
            state = states.send(state)
        except StopIteration as stop:
            logits = stop.value.value
            break
    expected = plain("attention")(
        IDS, lambda name, x: torch.full_like(x, 0.25) if name == "weights" else x
    )
    assert torch.equal(logits, expected)


# --- padding and order ------------------------------------------------------------------------


def contexts(words: int = 10, width: int = 4):
    """[1, width] IDs, some of them padding on the left."""
    return st.integers(0, width - 1).flatmap(
        lambda pads: st.lists(
            st.integers(1, words - 1), min_size=width - pads, max_size=width - pads
        ).map(lambda ids: torch.tensor([[0] * pads + ids]))
    )


@pytest.mark.parametrize("name", ATTENTION)
@given(ids=contexts())
def test_padding_is_not_seen(name: str, ids: Tensor):
    """Padded keys weigh exactly 0, the others add up to 1; what stands there does not matter."""
    model = build(name)
    weights = by_name(model.states(ids))["weights"]
    padded = (ids == 0).expand_as(weights)
    assert (weights[padded] == 0).all()
    assert (weights[~padded] > 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6)
    before = model(ids)
    with torch.no_grad():
        model.token_embedding.weight[0] = 1e6
    assert torch.equal(model(ids), before)


@pytest.mark.parametrize("name", ATTENTION)
@given(ids=contexts())
def test_details_of_a_whole_pass(name: str, ids: Tensor):
    """Future and padded keys weigh exactly 0, rows add up to 1 or (nothing visible) are 0, and
    the last row is `forward`."""
    model = build(name)
    details = model.forward_details(ids)
    weights = details["weights"]
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    hidden = (later | (ids == 0)[0]).expand_as(weights)
    assert torch.equal(details["attention_mask"].expand_as(weights), ~hidden)
    assert (weights[hidden] == 0).all()
    visible = (~hidden).any(-1)
    assert torch.allclose(weights.sum(-1), visible.float(), atol=1e-6)
    padded = ids[0] == 0  # such a query sees nothing, so it finds nothing
    messages = details["messages"]
    rows = messages[0] if name == "attention" else messages[0].transpose(0, 1)
    assert not rows[padded].any()
    assert torch.allclose(details["contextual"], details["X"] + details["updates"])
    assert torch.equal(details["logits"], details["logits_all"][:, -1])
    assert torch.allclose(details["logits"], model(ids), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("attention", {"Q": (2, 4, 3), "V": (2, 4, 2), "weights": (2, 4, 4)}),
        ("multihead", {"Q": (2, 4, 4), "V": (2, 4, 4), "weights": (2, 2, 4, 4)}),
    ],
)
def test_keys_and_shapes_of_details(name: str, shapes: dict[str, tuple[int, ...]]):
    details = build(name).forward_details(IDS)
    assert set(details) == {
        *("X", "Q", "K", "V", "scores", "masked_scores", "attention_mask", "weights"),
        *("messages", "updates", "contextual", "hidden", "logits_all", "logits"),
    }
    everywhere = {"X": (2, 4, 4), "hidden": (2, 4, 8), "logits_all": (2, 4, 10), "logits": (2, 10)}
    everywhere["scores"] = everywhere["masked_scores"] = shapes["weights"]
    everywhere["attention_mask"] = shapes["weights"]
    for key, shape in (everywhere | shapes).items():
        assert tuple(details[key].shape) == shape, key


@pytest.mark.parametrize("name", ATTENTION)
def test_every_row_of_details_is_a_context_of_its_own(name: str):
    """Row t is what `forward` says after the first t + 1 tokens alone."""
    model = build(name)
    ids = torch.tensor([[1, 8, 7, 5]])
    rows = model.forward_details(ids)["logits_all"][0]
    for t in range(4):
        assert torch.allclose(rows[t], model(ids[:, : t + 1])[0], atol=1e-6)


@pytest.mark.parametrize("name", ATTENTION)
@given(ids=contexts(), other=st.integers(1, 9), at=st.integers(1, 3))
def test_a_later_token_leaves_earlier_rows_alone(name: str, ids: Tensor, other: int, at: int):
    model = build(name)
    edited = ids.clone()
    edited[0, at] = other
    before, after = model.forward_details(ids), model.forward_details(edited)
    for key in ("X", "Q", "K", "V", "updates", "contextual", "hidden", "logits_all"):
        assert torch.equal(before[key][:, :at], after[key][:, :at]), key
    for key in ("weights", "attention_mask"):  # a later key is another one, but as invisible
        assert torch.equal(before[key][..., :at, :], after[key][..., :at, :]), key


@pytest.mark.parametrize("name", ATTENTION)
@given(ids=contexts(width=3))
def test_a_left_pad_more_changes_only_positions(name: str, ids: Tensor):
    """With the rows of the position table moved along with the slots, the answer is the same."""
    model = build(name)
    padded = F.pad(ids, (1, 0))
    table = model.position_embedding.weight
    with torch.no_grad():
        table[0] = table[1]  # so that what is moved away is not missed
        moved = table.roll(1, 0)
    before = model(ids)
    with torch.no_grad():
        table.copy_(moved)
    assert torch.allclose(model(padded), before, atol=1e-6)
    with torch.no_grad():
        table.zero_()
    assert torch.allclose(model(padded), model(ids), atol=1e-6)


@pytest.mark.parametrize("name", ATTENTION)
def test_a_fully_masked_row_is_0_and_so_are_its_gradients(name: str):
    """A context of nothing but padding next to a usual one: it finds nothing, nothing is NaN,
    and the usual one's gradients are what they are alone."""
    ids = torch.tensor([[0, 0, 0, 0], X[1]])
    data = engine.TrainingData.of(ids, torch.tensor([5, 9]))
    model = build(name)
    training = engine.Training(model, data, engine.FixedRows([0, 1]), keep_gradients=True)
    made = by_name(training.states(1))
    for state in ("weights", "message", "projection"):
        assert not made[state][0].any(), state
    for state in ("scores.masked", "scores", "scores.raw", "q", "K", "V"):
        assert not made[f"gradients.{state}"][0].any(), state
    for state, value in made.items():
        if state.startswith("gradients."):
            assert value.isfinite().all(), state
    alone = build(name)
    loss = F.cross_entropy(alone(ids[1:]), torch.tensor([9])) / 2  # its part of the mean
    loss.backward()
    for parameter in ("W_Q", "W_K", "W_V", "W_O"):
        expected = getattr(alone, parameter).weight.grad
        assert torch.allclose(made[f"gradients.{parameter}.weight"], expected, atol=1e-7)


@pytest.mark.parametrize("name", ATTENTION)
def test_another_padding_id(name: str):
    """`pad_id` is an option: with it the same keys are hidden as with 0."""
    torch.manual_seed(SEED)
    if name == "attention":
        model = engine.CausalAttentionLM(10, 4, 4, 3, 2, 8, pad_id=9)
    else:
        model = engine.MultiHeadAttentionLM(10, 4, 4, 8, 2, pad_id=9)
    weights = by_name(model.states(torch.tensor([[9, 0, 3, 9]])))["weights"]
    assert (weights[..., [0, 3]] == 0).all()
    assert (weights[..., [1, 2]] > 0).all()
    assert not model.token_embedding.weight[9].any()


# --- scoring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 512])
def test_evaluate_is_the_mean_loss(batch: int):
    """By target count, whatever the batch; nothing changes by it."""
    model = build("attention")
    windows = engine.Windows([[1, 8, 7, 5, 9, 6, 4, 2], [1, 5, 6, 2]], 4, 0)
    before = {name: copied(value) for name, value in model.named_parameters()}
    loss = engine.evaluate(model, windows.contexts, windows.targets, batch)
    logits = plain("attention")(windows.contexts[:], as_it_is)
    shares = torch.log_softmax(logits.double(), -1)
    expected = -shares[torch.arange(len(windows)), windows.targets].mean().item()
    assert loss == pytest.approx(expected, abs=1e-6)
    assert identical(before, dict(model.named_parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (torch.tensor([1, 2, 3, 4]), r"shape \[4\] do not fit: give \[batch, .*4\]"),
        (torch.tensor([[1, 2, 3, 4, 5]]), r"shape \[1, 5\] do not fit"),
        (torch.zeros(2, 0, dtype=torch.long), r"shape \[2, 0\] do not fit"),
        (torch.zeros(1, 1, 4, dtype=torch.long), r"shape \[1, 1, 4\] do not fit"),
        (torch.tensor([[1, 2, 3, 10]]), "ID 10 is not in a vocabulary of 10"),
        (torch.tensor([[1, -1, 3, 4]]), "ID -1 is not in a vocabulary of 10"),
        (torch.tensor([[-7, 2, 3, 99]]), "ID -7 is not in a vocabulary of 10"),
        (torch.tensor([[1.0, 2.0, 3.0, 4.0]]), "float32"),
    ],
)
def test_ids_that_do_not_fit_are_told(name: str, ids: Tensor, sentence: str):
    with pytest.raises(TensorstepError, match=sentence):
        build(name)(ids)


def test_the_mlp_takes_no_shorter_context():
    with pytest.raises(TensorstepError, match=r"shape \[1, 3\] do not fit: give \[batch, 4\]"):
        build("mlp")(torch.tensor([[1, 2, 3]]))


@pytest.mark.parametrize(("width", "heads"), [(4, 3), (4, 8), (4, 0), (4, -2)])
def test_heads_divide_the_width(width: int, heads: int):
    with pytest.raises(TensorstepError, match=f"{heads} heads do not share a width of {width}"):
        engine.MultiHeadAttentionLM(10, 4, width, 8, heads)


def test_a_model_without_states_says_so():
    with pytest.raises(TypeError, match="StatesModel does not say how it computes"):
        engine.StatesModel()(IDS)


@pytest.mark.parametrize("name", ATTENTION)
def test_temper_is_one_over_the_root_of_the_key_width(name: str):
    made = by_name(build(name).states(IDS))
    width = 3 if name == "attention" else 2
    assert torch.allclose(made["scores"], made["scores.raw"] / math.sqrt(width), rtol=1e-6)
