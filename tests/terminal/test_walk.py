"""The installed command in a real terminal: through both maps and back, numbers as `states` has
them."""

from __future__ import annotations

import random

import pytest

from tests.terminal.reading import Expected, State, Table, states, table_of
from tests.terminal.terminal import ENTER, Terminal

pytestmark = pytest.mark.terminal
SIZE = (120, 40)


@pytest.fixture(scope="module")
def training() -> list[State]:
    """Steps 0 and 1 of the worked sentence."""
    return states("train", "--steps", "1")


@pytest.fixture(scope="module")
def generation() -> list[State]:
    """Prompt and first token (more are made: a budget of one would end there)."""
    return [each for each in states("generate") if each["step"] < 2]


@pytest.fixture(scope="module")
def vocabulary(training: list[State]) -> list[str]:
    return next(each["values"] for each in training if each["name"] == "vocabulary")


def shown(terminal: Terminal, expected: Expected, state: State) -> Table:
    """Wait until the table shows a state as it should be (a frame may arrive in parts); read it."""
    found: list[Table] = []
    why: list[str] = ["another state, or no cells"]

    def right(terminal: Terminal) -> bool:
        table = table_of(terminal, state)
        if table is None:
            return False
        try:
            expected.check(state, table)
        except AssertionError as error:
            why.append(str(error))
            return False
        found.append(table)
        return True

    try:
        terminal.wait_for(right, patience=20)
    except AssertionError as error:
        wanted = f"{state['name']} of step {state['step']}"
        raise AssertionError(f"waited for {wanted}; seen: {why[-1]}; {error}") from None
    return found[-1]


def test_both_maps_forward_and_back_with_the_numbers_of_states(
    training: list[State], generation: list[State], vocabulary: list[str]
) -> None:
    expected = Expected(training, vocabulary)
    seen = 0
    with Terminal(size=SIZE, modern=True) as terminal:
        for state in training:  # every state of the preparation and of step 1
            seen += shown(terminal, expected, state).size
            terminal.send("n")
        terminal.wait_for("step 2")
        terminal.send("p" * len(training))
        shown(terminal, expected, training[0])
        terminal.press("p", "this is the beginning")
        terminal.send("m")
        generated = Expected(generation, vocabulary)
        for state in generation:  # the prompt and one token
            seen += shown(terminal, generated, state).size
            terminal.send("n")
        terminal.wait_for("step 2")
        terminal.send("m")  # and the training map is where it was left
        shown(terminal, expected, training[0])
        terminal.send("q")
        assert terminal.wait() == 0
    assert seen > 300


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_thirty_random_cells_by_goto(
    size: tuple[int, int], training: list[State], vocabulary: list[str]
) -> None:
    """Any cell, also one that has to be scrolled or sliced to: its labels, its written value under
    the cursor, and its digits."""
    draw = random.Random(30)
    numbers = [each for each in training if each["kind"] == "tensor" and each["step"] == 1]
    expected = Expected(training, vocabulary)
    with Terminal(size=size) as terminal:
        shown(terminal, expected, training[0])
        for _ in range(15):
            state = draw.choice(numbers)
            cell = tuple(draw.randrange(size) for size in state["shape"])
            index = ",".join(map(str, cell))
            terminal.press(";", "go to STEP")
            terminal.send(f"1:{state['name']}:{index}{ENTER}")
            terminal.wait_for(lambda t, s=state, c=cell: (f := table_of(t, s)) and f.cursor == c)
            terminal.wait_for(lambda t: len(t.reversed_text()) == 1)  # the prompt's cursor is gone
            shown(terminal, expected, state)
            value = state["values"]
            for i in cell:
                value = value[i]
            (under_cursor,) = (text for _, _, text in terminal.reversed_text())
            assert under_cursor.strip() == expected.text(state, value)
        terminal.send("q")
        assert terminal.wait() == 0


def test_keys_of_a_terminal_that_speaks_kittys_protocol() -> None:
    """Such a terminal, once asked, sends every key as a sequence, with its text."""
    with Terminal(modern=True) as terminal:
        terminal.wait_for("stories[0] =")
        terminal.press("\x1b[110;;110u", "split[0] =")  # n
        terminal.press("\x1b[110;2;78u", "tokens[0] =")  # N
        terminal.press("\x1b[112;;112u", "split[0] =")  # p
        terminal.press("\x1b[47;2;63u", "stage")  # ?
        terminal.wait_for("escape: close")
        terminal.press("\x1b[27u", lambda t: "escape: close" not in t.text)
        terminal.send("\x1b[99;5u")  # ctrl+c
        assert terminal.wait() == 0
