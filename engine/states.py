"""States, and the protocol by which a computation is stepped.

A computation is written once, as a Python generator. It yields each `State` it wants next, named
but not yet computed, and is sent back the state to go on with:

    scores = yield scale("scores", raw, factor)

Whoever drives the generator decides what happens at the yield: `drain` computes and sends back,
`each` also shows it to you, `patched` puts other values in, and a walk (`engine.walk`) records.
An `aside` is a state that nothing later needs: it stays uncomputed until somebody reads it.

Axes, one letter everywhere: B examples, T positions, w context slots of a window, S sources (slots
seen as keys), d width, h hidden, k query/key width, v value width, H heads, C vocabulary, N things
in a row (documents, tokens, windows), 1 a single query.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.ops.core import Operation

Axes = tuple[str, ...]
Called = TypeVar("Called", bound=Callable[..., Any])


class State:
    """One named value produced at one moment.

    name        what it is called: `scores.masked`, `gradients.W_Q.weight`
    operation   how it is computed and explained
    inputs      the states (or views of states) it is computed from, until a driver lets go of them
    parameters  the stored tensors it is computed with, in the order the operation takes them
    axes        one letter a dimension
    role        data, parameter, activation, gradient or optimizer
    aside       True where nothing later needs the value, so that it is computed only when read
    step        the step it belongs to, where that is not the one being walked
    """

    __slots__ = (
        "_value",
        "aside",
        "axes",
        "inputs",
        "name",
        "operation",
        "parameters",
        "replaced",
        "role",
        "step",
    )

    def __init__(
        self,
        name: str,
        operation: Operation,
        inputs: tuple[State | View, ...] = (),
        axes: Axes = (),
        parameters: tuple[Tensor, ...] = (),
        role: str = "activation",
        aside: bool = False,
        step: int | None = None,
        value: Any = None,
    ):
        self.name = name
        self.operation = operation
        self.inputs: tuple[State | View, ...] | None = inputs
        self.parameters = parameters
        self.axes = axes
        self.role = role
        self.aside = aside
        self.step = step
        self.replaced = False
        self._value = value

    @property
    def value(self) -> Any:
        """The tensor, number, text or list of texts; computed now if it was not yet."""
        if self._value is None:
            self.compute()
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        """Another value than the computed one: what follows goes on with it."""
        self._value = value
        self.replaced = True

    @property
    def computed(self) -> bool:
        return self._value is not None

    def compute(self) -> State:
        """Compute the value if there is none yet. Returns itself."""
        if self._value is None:
            if self.inputs is None:
                raise RuntimeError(
                    f"{self.name} was read too late, its parameters have changed since:"
                    " read it before asking for the next state, or use a Walk"
                )
            # `_value` where there is one: a property costs what a small tensor operation costs
            made = [i.value if i._value is None else i._value for i in self.inputs]
            self._value = self.operation.compute(*made, *self.parameters)
        return self

    def recall(self, value: Any) -> None:
        """Take a value that was computed before, bit for bit, instead of computing it again."""
        self._value = value

    def finish(self) -> State:
        """Compute, and let go of the inputs, so that they can be freed. Returns itself."""
        if self._value is None:
            self.compute()
        self.inputs = ()
        return self

    def expire(self) -> None:
        """What it would be computed from is about to change: not to be computed any more."""
        self.inputs = None

    def again(self) -> State:
        """The same state, not yet computed: for one that is yielded by several drivers."""
        fresh = object.__new__(State)
        for slot in State.__slots__:
            setattr(fresh, slot, getattr(self, slot))
        if self.inputs:
            fresh._value = None
        return fresh

    def view(self, index_map: IndexMap, axes: Axes) -> View:
        """The same cells in another arrangement: an operand, not a state."""
        return View(self, index_map, axes)

    @property
    def T(self) -> View:
        """The last two axes exchanged."""
        return View(self, transposed, (*self.axes[:-2], self.axes[-1], self.axes[-2]))

    def __repr__(self) -> str:
        axes = ", ".join(self.axes)
        if not self.computed:
            return f"<{self.name} [{axes}] not computed>"
        value = self._value
        if isinstance(value, Tensor):
            return f"<{self.name} [{axes}] {self.role}\n{value.detach()}>"
        return f"<{self.name} {value!r}>"


IndexMap = Callable[[Tensor], Tensor]


class View:
    """An operand: a state's cells in another arrangement (a slice, heads, a transposition).

    It remembers the arrangement, not numbers. To find where a cell came from, the numbers
    0, 1, 2, … in the state's shape are pushed through the same `index_map`.
    """

    __slots__ = ("_value", "axes", "index_map", "state")

    def __init__(self, state: State, index_map: IndexMap, axes: Axes):
        self.state = state
        self.index_map = index_map
        self.axes = axes
        self._value: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """The cells as arranged: made once, so that backward, too, passes here once."""
        if self._value is None:
            self._value = self.index_map(self.state.value)
        return self._value

    def view(self, index_map: IndexMap, axes: Axes) -> View:
        """The same cells, arranged once more."""
        inner = self.index_map
        return View(self.state, lambda tensor: index_map(inner(tensor)), axes)

    @property
    def T(self) -> View:
        return self.view(transposed, (*self.axes[:-2], self.axes[-1], self.axes[-2]))


def transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(-2, -1)


States = Generator[State, State, Any]
"""What a model, a trainer and a generator of text are: yields states, is sent states."""


def uncompiled(function: Called) -> Called:
    """torch.compile leaves the function as it is: nested generators of objects cannot be traced.

    As a decorator, torch.compiler.disable would load the whole compiler with this module: half of
    the time that a worker needs to begin.
    """

    @wraps(function)
    def called(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args)
        return function(*args)

    return cast(Called, called)


@uncompiled
def drain(states: States) -> Any:
    """Drive to the end, computing all but the asides; returns what the generator returns."""
    try:
        state = next(states)
        while True:
            if not state.aside:
                state.finish()
            state = states.send(state)
    except StopIteration as stop:
        return stop.value


def each(states: States) -> Iterator[State]:
    """Drive to the end, handing out every state as it is made: `for state in each(...)`.

    Read a state's value before asking for the next one: an optimizer changes parameters in place,
    and an aside that is read late says so instead of computing from changed numbers.
    """
    try:
        state = next(states)
        while True:
            if not state.aside:
                state.finish()
            yield state
            state = states.send(state)
    except StopIteration:
        return


def patched(states: States, edits: Mapping[str, Any]) -> States:
    """The same generator with other values: where `edits` names a state, its cells replace the
    computed ones. Drain it, walk it or step it as any other.

    Raises ValueError when an edit's shape is not the state's, and KeyError at the end when an
    edit named a state that never came.
    """
    unused = set(edits)
    try:
        state = next(states)
        while True:
            if state.name in edits:
                state.value = splice(state.value, edits[state.name])
                unused.discard(state.name)
            sent = yield state
            state = states.send(sent)
    except StopIteration as stop:
        if unused:
            raise KeyError(f"no state is called {', '.join(sorted(unused))}") from None
        return stop.value


def splice(made: Any, wanted: Any) -> Any:
    """`wanted` in place of `made`: cells that are equal stay the made ones, so that gradients flow
    through them bit for bit; edited cells are constants (their gradient stops there).

    Adding the difference would not be exact, and sending a tensor of an earlier pass would tie
    backward to a graph that is gone. A text is replaced as a whole.
    """
    if not isinstance(made, Tensor):
        return wanted
    if made.shape != wanted.shape:
        raise ValueError(f"an edit of shape {list(wanted.shape)} cannot replace {list(made.shape)}")
    return torch.where(wanted == made, made, wanted.detach().to(made.dtype))
