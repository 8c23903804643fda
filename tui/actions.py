"""The one registry of what a key does: it feeds the bindings, the footer and the help.

Every action has an id, by which its key can be remapped (`App.set_keymap`).
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True)
class Action:
    """keys as Textual names them, comma-separated; `shown` as the help prints them; `where` the
    pane it belongs to; `brief` for the footer, empty where the footer leaves it out."""

    id: str
    keys: str
    shown: str
    what: str
    where: str = "everywhere"
    brief: str = ""


ACTIONS = (
    Action("next", "n", "n", "next state", "walk", "next"),
    Action("previous", "p", "p", "previous state", "walk", "back"),
    Action("next_stage", "N", "N", "next stage", "walk", "stage"),
    Action("back_stage", "P", "P", "previous stage", "walk"),
    Action("next_step", "full_stop,right_square_bracket", ". ]", "next step", "walk", "step"),
    Action("back_step", "comma,left_square_bracket", ", [", "previous step", "walk"),
    Action("goto", "semicolon,colon", "; :", "go to STEP:STATE:CELL", "walk", "go"),
    Action("start", "0", "0", "back to the very first state", "walk"),
    Action("other_map", "m", "m", "the other map: training, generation", "everywhere", "map"),
    Action("other_model", "o", "o", "open another model", "everywhere", "model"),
    Action("explanation", "e", "e", "show or hide the explanation", "everywhere", "why"),
    Action(
        "help", "question_mark", "?", "help on what is shown, and all keys", "everywhere", "help"
    ),
    Action("redraw", "ctrl+l", "ctrl+l", "draw the screen again", "everywhere"),
    Action("leave", "q,ctrl+c", "q ctrl+c", "quit", "everywhere", "quit"),
    Action("pane_next", "tab", "tab", "next pane", "everywhere"),
    Action("pane_back", "shift+tab", "shift+tab", "previous pane", "everywhere"),
    Action("close", "escape", "escape", "close, cancel, back to the table", "everywhere"),
    Action(
        "up", "up,k", "arrows hjkl", "move by a cell, a stage or a line", "table, map, explanation"
    ),
    Action("down", "down,j", "", "", "table"),
    Action("left", "left,h", "", "", "table"),
    Action("right", "right,l", "", "", "table"),
    Action("page_up", "pageup", "pgup pgdn", "move by a page", "table, explanation"),
    Action("page_down", "pagedown", "", "", "table"),
    Action("row_start", "home", "home end", "first, last column", "table"),
    Action("row_end", "end", "", "", "table"),
    Action("top", "g", "g G", "first, last row", "table"),
    Action("bottom", "G", "", "", "table"),
    Action("slice_axis", "a", "a", "choose the axis that < > move along", "table"),
    Action("slice_back", "less_than_sign", "< >", "previous, next along that axis", "table"),
    Action("slice_next", "greater_than_sign", "", "", "table"),
    Action("enter", "enter", "enter", "open the chosen stage", "map"),
)

BINDINGS = [
    Binding(action.keys, action.id, action.what, show=False, id=action.id, priority=False)
    for action in ACTIONS
]


def footer() -> list[tuple[str, str]]:
    """Key and word of what the footer shows, in order."""
    return [(action.shown.split()[0], action.brief) for action in ACTIONS if action.brief]
