"""The one registry of what a key does: it feeds the bindings, the footer and the help.

Every action has an id, by which its key can be remapped (`App.set_keymap`).
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True)
class Action:
    """What a key does.

    keys   as Textual names them, comma-separated
    call   the app's action, with its argument where it takes one; the id, where empty
    shown  the keys as the help prints them; empty where another line of the help says it
    where  the panes it is for
    brief  its word in the footer; empty where the footer leaves it out
    """

    id: str
    keys: str
    shown: str
    what: str
    where: str = ""
    brief: str = ""
    call: str = ""


ACTIONS = (
    Action("next", "n", "n", "next state", brief="next"),
    Action("previous", "p", "p", "previous state", brief="back"),
    Action("next_stage", "N", "N", "next stage", brief="stage"),
    Action("back_stage", "P", "P", "previous stage"),
    Action("next_step", "full_stop,right_square_bracket", ". ]", "next step", brief="step"),
    Action("back_step", "comma,left_square_bracket", ", [", "previous step"),
    Action("goto", "semicolon,colon", "; :", "go to STEP:STATE:CELL", brief="go"),
    Action("start", "0", "0", "back to the very first state"),
    Action("other_map", "m", "m", "the other map: training, generation", brief="map"),
    Action("other_model", "o", "o", "open another model", brief="model"),
    Action("explanation", "e", "e", "show or hide the explanation", brief="why"),
    Action("pane_next", "tab", "tab shift+tab", "next pane, the one before", call="pane(1)"),
    Action("pane_back", "shift+tab", "", "previous pane", call="pane(-1)"),
    Action("close", "escape", "escape", "close, cancel, back to the table and the walk"),
    Action(
        "up", "up,k", "arrows hjkl", "a cell, a stage, a line", "every pane", "", "vertical(-1)"
    ),
    Action("down", "down,j", "", "down", call="vertical(1)"),
    Action("left", "left,h", "", "left", call="horizontal(-1)"),
    Action("right", "right,l", "", "right", call="horizontal(1)"),
    Action("page_up", "pageup", "pgup pgdn", "a page", "table, explanation", "", "page(-1)"),
    Action("page_down", "pagedown", "", "a page down", call="page(1)"),
    Action("column_first", "home", "home end", "first, last column", "table", "", "column_end(-1)"),
    Action("column_last", "end", "", "last column", call="column_end(1)"),
    Action("row_first", "g", "g G", "first, last row", "table", "", "row_end(-1)"),
    Action("row_last", "G", "", "last row", call="row_end(1)"),
    Action("slice_axis", "a", "a", "choose the axis that < and > move along", "table"),
    Action("slice_back", "less_than_sign", "< >", "back, on along it", "table", "", "slice(-1)"),
    Action("slice_next", "greater_than_sign", "", "next along the chosen axis", call="slice(1)"),
    Action("enter", "enter", "enter", "open the chosen stage", "map"),
    Action("redraw", "ctrl+l", "ctrl+l", "draw the screen again"),
    Action("help", "question_mark", "?", "this help", brief="help"),
    Action("leave", "q,ctrl+c", "q ctrl+c", "quit", brief="quit"),
)

BINDINGS = [
    Binding(action.keys, action.call or action.id, action.what, show=False, id=action.id)
    for action in ACTIONS
]


def footer() -> list[tuple[str, str]]:
    """Key and word of what the footer shows, in order."""
    return [(action.shown.split()[0], action.brief) for action in ACTIONS if action.brief]
