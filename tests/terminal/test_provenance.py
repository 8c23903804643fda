"""In a real terminal: one logit is followed to a token ID, and back to where it began."""

from __future__ import annotations

import re

import pytest

from tests.terminal.reading import states
from tests.terminal.terminal import DOWN, ENTER, RIGHT, TAB, Terminal

pytestmark = pytest.mark.terminal
BACKSPACE = "\x7f"
# what is cited, from the logit of red to the ID of lily in the first example's third slot; a hop is
# followed as the term and factor that `names` picks
HOPS = [
    "hidden[0,6]",
    "hidden.pre[0,6]",
    "residual[0,0,2]",
    "embedding[0,3,2]",
    "embedding.tokens[0,3,2]",
    "batch.X[0,3]",
    "windows.contexts[2,3]",
    "ids[2]",
]


def at(terminal: Terminal, cell: str) -> bool:
    """Whether that cell is under the cursor and explained."""
    index = cell[cell.index("[") :]  # a long name is left out under the table
    return f"{cell} = " in terminal.text and terminal.text.count(f"{index} = ") >= 2


def picked(terminal: Terminal) -> str:
    """What enter would follow: the one place that is marked in the explanation."""
    left = terminal.lines[1].find("EXPLANATION")
    return " ".join(
        text.strip().split(" @")[0]
        for _, x, text in terminal.reversed_text()
        if x >= left and "[" in text
    )


def pick(terminal: Terminal, cell: str) -> None:
    """Down and right until the cell is marked."""
    for _ in range(12):
        if picked(terminal) == cell:
            return
        before = picked(terminal)
        terminal.send(RIGHT)
        terminal.settle(0.05)
        if picked(terminal) in (before, cell):
            if picked(terminal) == cell:
                return
            terminal.press(DOWN, lambda t, before=before: picked(t) != before)
    raise AssertionError(f"{cell} is not cited on\n{terminal.text}")


@pytest.mark.parametrize("size", [(120, 40), (200, 50)])
def test_from_a_logit_to_a_token_id_and_back(size: tuple[int, int]) -> None:
    values = {(s["step"], s["name"]): s["values"] for s in states("train", "--steps", "1")}
    path = ["logits[0,9]", *HOPS]
    with Terminal(["--goto", "1:logits:0,9"], size=size) as terminal:
        terminal.wait_for(lambda t: at(t, path[0]))
        terminal.press(TAB, lambda t: picked(t) != "")
        for cell in path[1:]:
            pick(terminal, cell)
            terminal.press(ENTER, lambda t, cell=cell: at(t, cell))
            step = 0 if cell.startswith(("windows", "ids")) else 1
            name, index = re.fullmatch(r"(.*)\[([\d,]+)\]", cell).groups()
            value = values[step, name]
            for i in index.split(","):
                value = value[int(i)]
            told = next(line for line in terminal.lines if f"{cell} = " in line)
            number = told.split(f"{cell} = ")[1].split()[0]
            assert float(number) == pytest.approx(value, rel=1e-7)
            assert f"step {step} " in terminal.lines[0]
        assert values[0, "tokens"][1] in terminal.text  # the token that has this ID
        for cell in path[-2::-1]:
            terminal.press(BACKSPACE, lambda t, cell=cell: at(t, cell))
        assert "step 1 " in terminal.lines[0]
        terminal.press(BACKSPACE, "nothing to come back to")
        assert at(terminal, path[0])
        terminal.send("q")
        assert terminal.wait() == 0
        assert not terminal.modes.get(1049)
        assert terminal.settings_now == terminal.settings
