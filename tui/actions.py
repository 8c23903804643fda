"""The one registry of what a key does: it feeds the bindings, the footer and the help.

Every action has an id, by which its key can be remapped (`App.set_keymap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from textual.binding import Binding


@dataclass(frozen=True)
class Action:
    """What a key does.

    keys   as Textual names them, comma-separated
    call   the app's action, with its argument where it takes one; the id, where empty
    shown  the keys as the help prints them; empty where another line of the help says it
    where  the panes it is for
    brief  its word in the footer; empty where the footer leaves it out
    wide   the footer shows it only where there is room
    """

    id: str
    keys: str
    shown: str
    what: str
    where: str = ""
    brief: str = ""
    call: str = ""
    wide: bool = False


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
    Action("sort", "s", "s", "rows by this column: largest, smallest first, as they are", "table"),
    Action("format", "percent_sign", "%", "four decimals, scientific, all digits", "table"),
    Action("heat", "i", "i", "heat: how large each number is among all", "table"),
    Action("copy", "y", "y", "copy the cell, its row, or all that is seen", "table"),
    Action(
        "what_if",
        "w",
        "w",
        "what if this cell were another: what follows is made again",
        brief="what if",
        wide=True,
    ),
    Action("undo", "u", "u", "take the last edit back"),
    Action("compare", "equals_sign", "=", "after the edits, before them, the difference", "table"),
    Action("follow", "F", "F", "follow this parameter over the steps", "table"),
    Action("norms", "V", "V", "every parameter at a glance: norms, update ratios"),
    Action("inside", "I", "I", "inside a transformer: logit lens, stream, contributions"),
    Action("slice_axis", "a", "a", "choose the axis that < and > move along", "table"),
    Action("slice_back", "less_than_sign", "< >", "back, on along it", "table", "", "slice(-1)"),
    Action("slice_next", "greater_than_sign", "", "next along the chosen axis", call="slice(1)"),
    Action(
        "enter",
        "enter",
        "enter",
        "to where the number comes from; in the map to the stage",
        brief="source",
        wide=True,
    ),
    Action("come_back", "backspace", "backspace", "back from there"),
    Action("gradient", "d", "d", "its gradient, and back", brief="gradient", wide=True),
    Action(
        "corpus", "C", "C", "the corpus: stories, tokens, windows, audit", brief="corpus", wide=True
    ),
    Action("find", "slash", "/", "find a token of the table, or a story", brief="find", wide=True),
    Action("tokenizers", "T", "T", "a text under several tokenizers", brief="tokens", wide=True),
    Action("suspend", "ctrl+z", "ctrl+z", "to the shell; fg comes back", call="suspend_process"),
    Action("redraw", "ctrl+l", "ctrl+l", "draw the screen again"),
    Action("help", "question_mark", "?", "this help", brief="help"),
    Action("leave", "q,ctrl+c", "q ctrl+c", "quit", brief="quit"),
)

RUN_ACTIONS = (  # in the walk of a paused run, beside those above
    Action("run.resume", "space,c", "space c", "let the run go on", call="resume"),
    Action("run.finish", "f", "f", "finish this step", call="finish_step"),
    Action("run.live", "L", "L", "the live screen of the run", call="live"),
    Action("run.break", "b", "b", "a breakpoint: pause when it holds", call="break_when"),
    Action("run.detach", "D", "D", "detach: the run stays as it is", call="detach"),
)
LIVE_ACTIONS = (
    Action("live.pause", "space", "space", "pause the run, or let it go on", "", "pause", "pause"),
    Action("live.left", "left", "left right", "the cursor, by a column", "", "", "move(-1)"),
    Action("live.right", "right", "", "right", call="move(1)"),
    Action("live.first", "home", "home end", "first step, newest step", call="first"),
    Action("live.last", "end", "", "newest step", call="newest"),
    Action("live.in", "plus,equals_sign", "+ -", "nearer, farther", "", "zoom", "zoom(1)"),
    Action("live.out", "minus", "", "farther", call="zoom(-1)"),
    Action("live.whole", "0", "0", "the whole run", call="whole"),
    Action("live.log", "l", "l", "logarithmic scale, or not", "", "log", "log_scale", True),
    Action("live.break", "b", "b", "a breakpoint: pause when it holds", "", "break", "break_when"),
    Action("live.breaks", "B", "B", "the breakpoints", "", "breaks", "breaks", True),
    Action("live.walk", "enter,m", "enter m", "the paused step in the map", "", "map", "walk"),
    Action("live.stop", "s", "s", "stop the run", "", "stop", "stop"),
    Action("live.detach", "D", "D", "detach: the run goes on", "", "detach", "detach"),
    Action("live.help", "question_mark", "?", "this help", "", "help", "help"),
    Action(
        "live.suspend",
        "ctrl+z",
        "ctrl+z",
        "to the shell; fg comes back",
        call="app.suspend_process",
    ),
    Action("live.redraw", "ctrl+l", "ctrl+l", "draw the screen again", call="redraw"),
    Action("live.leave", "q,ctrl+c", "q ctrl+c", "quit", "", "quit", "leave"),
)
CORPUS_ACTIONS = (
    Action("corpus.next", "n", "n p", "next story, the one before", brief="story", call="story(1)"),
    Action("corpus.back", "p", "", "the story before", call="story(-1)"),
    Action(
        "corpus.grow",
        "down,j,right,l",
        "down up",
        "grow the windows by a pair, or shrink them",
        brief="pair",
        call="target(1)",
    ),
    Action("corpus.shrink", "up,k,left,h", "", "shrink", call="target(-1)"),
    Action("corpus.page", "pagedown,space", "", "ten pairs", call="target(10)"),
    Action("corpus.page_back", "pageup", "", "ten fewer", call="target(-10)"),
    Action("corpus.first", "g,home", "g G", "the first pair, all of them", call="target_end(-1)"),
    Action("corpus.last", "G,end", "", "all pairs", call="target_end(1)"),
    Action(
        "corpus.longer",
        "greater_than_sign",
        "< >",
        "shorter, longer context",
        brief="slots",
        call="context(1)",
    ),
    Action("corpus.shorter", "less_than_sign", "", "shorter context", call="context(-1)"),
    Action(
        "corpus.read",
        "enter",
        "enter",
        "read the whole story, or its parts",
        brief="read",
        call="read",
    ),
    Action(
        "corpus.find",
        "slash",
        "/",
        "find a token or a text (#12: story 12); n, N: other matches",
        brief="find",
        call="find",
    ),
    Action("corpus.match", "N", "", "the match before", call="match_back"),
    Action("corpus.audit", "tab,a", "tab", "the audit", brief="audit", call="audit"),
    Action(
        "corpus.tokenizers",
        "T",
        "T",
        "this story under several tokenizers",
        brief="",
        call="tokenizers",
    ),
    Action("corpus.help", "question_mark", "?", "this help", brief="help", call="help"),
    Action(
        "corpus.close", "escape,q,ctrl+c", "escape", "back to the walk", brief="back", call="close"
    ),
)
FOLLOW_ACTIONS = (
    Action("follow.down", "down,j", "down up", "scroll", brief="scroll", call="scroll(1)"),
    Action("follow.up", "up,k", "", "scroll up", call="scroll(-1)"),
    Action("follow.page", "pagedown,space", "", "a page", call="scroll(10)"),
    Action("follow.page_up", "pageup", "", "a page up", call="scroll(-10)"),
    Action("follow.help", "question_mark", "?", "this help", brief="help", call="help"),
    Action("follow.close", "escape,q", "escape", "close", brief="close", call="close"),
)
INSIDE_ACTIONS = (
    Action("inside.page", "tab", "tab", "the next page", brief="page", call="page(1)"),
    Action("inside.page_back", "shift+tab", "", "the page before", call="page(-1)"),
    Action(
        "inside.left", "left,h", "left right", "position", brief="position", call="position(-1)"
    ),
    Action("inside.right", "right,l", "", "the next position", call="position(1)"),
    Action("inside.first", "home", "home end", "first, last position", call="end(-1)"),
    Action("inside.last", "end", "", "the last position", call="end(1)"),
    Action("inside.down", "down,j", "down up", "scroll", brief="scroll", call="scroll(1)"),
    Action("inside.up", "up,k", "", "scroll up", call="scroll(-1)"),
    Action("inside.page_down", "pagedown,space", "pgup pgdn", "ten lines", call="scroll(10)"),
    Action("inside.page_up", "pageup", "", "ten lines up", call="scroll(-10)"),
    Action(
        "inside.example", "greater_than_sign", "< >", "the example", brief="", call="example(1)"
    ),
    Action("inside.example_back", "less_than_sign", "", "the one before", call="example(-1)"),
    Action("inside.token", "slash", "/", "the logit of another token", brief="token", call="token"),
    Action("inside.help", "question_mark", "?", "this help", brief="help", call="help"),
    Action("inside.close", "escape,q,ctrl+c", "escape", "close", brief="close", call="close"),
)
COMPARE_ACTIONS = (
    Action(
        "compare.text",
        "semicolon,colon,slash",
        ";",
        "another text",
        brief="another text",
        call="other_text",
    ),
    Action("compare.down", "down,j", "down up", "scroll", brief="scroll", call="scroll(1)"),
    Action("compare.up", "up,k", "", "scroll up", call="scroll(-1)"),
    Action("compare.page", "pagedown,space", "", "a page", call="scroll(10)"),
    Action("compare.page_up", "pageup", "", "a page up", call="scroll(-10)"),
    Action("compare.help", "question_mark", "?", "this help", brief="help", call="help"),
    Action("compare.close", "escape,q,ctrl+c", "escape", "close", brief="close", call="close"),
)


def bindings(actions: tuple[Action, ...]) -> list[Binding]:
    """The actions as Textual binds them."""
    return [
        Binding(action.keys, action.call or action.id, action.what, show=False, id=action.id)
        for action in actions
    ]


BINDINGS = bindings(ACTIONS)


def brief(actions: tuple[Action, ...]) -> list[tuple[str, str]]:
    """Key and word of what a footer shows, in order."""
    return [(action.shown.split()[0], action.brief) for action in actions if action.brief]


@lru_cache(maxsize=8)
def footer(width: int) -> list[tuple[str, str]]:
    """The footer of the walk: what it always shows, and as much more as there is room for."""
    shown = {action.id for action in ACTIONS if not action.wide}
    for action in ACTIONS:
        more = shown | {action.id}
        if action.wide and room_of(more) <= width:
            shown = more
    return brief(tuple(action for action in ACTIONS if action.id in shown))


def room_of(ids: set[str]) -> int:
    """Cells that a footer of these actions takes."""
    shown = tuple(action for action in ACTIONS if action.id in ids)
    return sum(len(key) + len(word) + 3 for key, word in brief(shown)) - 2
