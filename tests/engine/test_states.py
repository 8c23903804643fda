"""The protocol: who drives a generator of states decides what happens at each yield."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine import State, drain, each, patched, splice
from engine.ops import Operation, Rule, given, matmul, scale


class Counted(Operation):
    """Doubles, and counts how often it was asked to."""

    __slots__ = ("count",)

    def __init__(self):
        self.count = 0

    def compute(self, x: Tensor) -> Tensor:
        self.count += 1
        return 2 * x

    def explain(self, cell, operands, to):
        raise AssertionError("not asked for here")


def chain(operation: Operation):
    """x -> doubled -> an aside -> doubled again; returns the last state."""
    x = yield given("x", torch.tensor([1.0, 2.0]), ("N",), "given")
    once = yield State("once", operation, (x,), ("N",))
    yield State("aside", operation, (once,), ("N",), aside=True)
    return (yield State("twice", operation, (once,), ("N",)))


def test_drain_computes_all_but_asides():
    operation = Counted()
    assert drain(chain(operation)).value.tolist() == [4.0, 8.0]
    assert operation.count == 2


def test_each_hands_out_every_state_in_order():
    operation = Counted()
    states = list(each(chain(operation)))
    assert [state.name for state in states] == ["x", "once", "aside", "twice"]
    assert [state.computed for state in states] == [True, True, False, True]
    assert states[2].value.tolist() == [4.0, 8.0]
    assert states[2].value is states[2].value  # made once
    assert operation.count == 3


def test_a_driver_sends_what_it_likes():
    """Another State sent back is what the computation goes on with."""
    states = chain(Counted())
    x = next(states).finish()
    once = states.send(x)
    states.send(given("once", torch.tensor([10.0, 20.0]), ("N",), "made up"))
    last = states.send(once)
    assert last.value.tolist() == [20.0, 40.0]


def test_a_finished_state_lets_go_of_its_inputs():
    states = list(each(chain(Counted())))
    assert not any(state.inputs for state in states if not state.aside)


def test_a_state_again_is_not_computed_yet():
    """Two drivers of the same prepared state do not share what they make of it."""
    operation = Counted()
    x = given("x", torch.tensor([3.0]), ("N",), "given")
    state = State("once", operation, (x,), ("N",))
    first = state.again().finish()
    assert not state.computed
    second = state.again()
    assert not second.computed
    assert first.value.tolist() == second.value.tolist() == [6.0]
    assert x.again().value is x.value  # a given value is there from the start


def test_patched_puts_cells_in():
    edits = {"once": torch.tensor([2.0, 7.0])}
    assert drain(patched(chain(Counted()), edits)).value.tolist() == [4.0, 14.0]


def test_a_text_is_patched_as_a_whole():
    def read():
        text = yield given("text", "lily found", (), "as it was given")
        return text.value

    assert drain(patched(read(), {"text": "a red ball"})) == "a red ball"


def test_patched_tells_of_a_state_that_never_came():
    with pytest.raises(KeyError, match="no state is called elsewhere, nowhere"):
        drain(patched(chain(Counted()), {"nowhere": torch.zeros(2), "elsewhere": torch.zeros(2)}))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), ()])
def test_an_edit_has_the_shape_of_the_state(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"cannot replace \[2\]"):
        drain(patched(chain(Counted()), {"once": torch.zeros(shape)}))


def test_splice_keeps_equal_cells_and_their_gradient():
    made = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    spliced = splice(made * 1, torch.tensor([1.0, 5.0, 3.0]))
    assert spliced.tolist() == [1.0, 5.0, 3.0]
    (spliced * torch.tensor([7.0, 11.0, 13.0])).sum().backward()
    assert made.grad.tolist() == [7.0, 0.0, 13.0]


def test_splice_cuts_off_the_graph_of_what_is_put_in():
    """A tensor of an earlier pass, whose graph is gone, can be put in."""
    earlier = torch.tensor([4.0], requires_grad=True) * 2
    earlier.sum().backward()
    made = torch.tensor([1.0], requires_grad=True)
    splice(made * 1, earlier).sum().backward()
    assert made.grad.tolist() == [0.0]


def test_a_view_is_the_same_cells_in_another_order():
    x = given("x", torch.arange(6.0).view(2, 3), ("T", "k"), "given")
    assert x.T.value.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.T.axes == ("k", "T")
    row = x.view(lambda tensor: tensor[1:], ("1", "k"))
    assert row.value.tolist() == [[3, 4, 5]]
    assert row.T.value.tolist() == [[3], [4], [5]]
    assert row.T.T.axes == ("1", "k")
    product = matmul("product", row, x.T)
    assert product.value.tolist() == [[3 * 0 + 4 * 1 + 5 * 2, 3 * 3 + 4 * 4 + 5 * 5]]
    assert product.axes == ("1", "T")


def test_repr_says_what_it_is():
    x = given("x", torch.tensor([1.0]), ("N",), "given", role="data")
    assert repr(scale("scores", x, 2.0)) == "<scores [N] not computed>"
    assert repr(x) == "<x [N] data\ntensor([1.])>"
    assert repr(given("prompt", "Lily", (), "the prompt")) == "<prompt 'Lily'>"


def test_a_given_value_cannot_be_computed():
    with pytest.raises(TypeError, match="given, not computed"):
        _ = State("empty", Rule("nothing"), ()).value
