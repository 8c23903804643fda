"""The help: what is under the cursor, then every key, from the registry of actions."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from engine.stages import Stage
from tui.actions import ACTIONS, Action
from tui.glyphs import Glyphs, folded
from tui.plain import shown
from tui.widgets.lines import DIM, HERE, STRONG, line, wrapped

WIDTH = 72
ROLES = {
    "data": "data: texts, IDs and windows, as they were given or cut",
    "parameter": "stored parameter: a number the model keeps; only the optimizer changes it",
    "activation": "activation: computed in this step from data and parameters, then forgotten",
    "gradient": "gradient: how the loss would change with this number",
    "optimizer": "optimizer: the new value of a stored parameter, and how it came about",
}
AXES = (
    "axes: B examples, w slots of a window, S slots seen as keys, d width, h hidden,"
    " k query and key width, v value width, H heads, C vocabulary, N in a row, 1 a single query"
)


def help_lines(
    stage: Stage | None,
    state: dict[str, Any] | None,
    glyphs: Glyphs,
    actions: tuple[Action, ...] = ACTIONS,
) -> list[Text]:
    """What the help shows while `state` is on the screen, with the keys of these actions."""
    lines: list[Text] = []
    if stage is not None and state is not None:
        words = [stage.sentence, *([stage.formula] if stage.formula else []), ROLES[state["role"]]]
        lines.append(line((shown(state["name"], glyphs.ascii), STRONG)))
        for text in (*words, AXES):
            lines += wrapped(folded(text) if glyphs.ascii else text, WIDTH)
        lines.append(line())
    return [*lines, *key_lines(actions)]


def key_lines(actions: tuple[Action, ...]) -> list[Text]:
    """What each key does, a line each."""
    lines = []
    for action in actions:
        if action.shown:
            key = (action.shown.ljust(15), HERE)
            where = f"   in: {action.where}" if action.where else ""
            lines.append(line(key, action.what, (where, DIM)))
    return lines
