"""The first line of the screen: what is walked, and where."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from engine.maps import GENERATION, title_of
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, STRONG, line

NAME = "tensorstep  "


def top_line(
    walker: Walker, source: str, trained: int | None, device: str, glyphs: Glyphs, width: int
) -> Text:
    """Source, model, map, step, stage; at the right the newest loss, and where it is computed.

    trained  after how many steps of training a text is generated, if that is known
    """
    parts = [source, title_of(walker.model), f"{walker.kind} map"]
    after = ""
    if trained is not None and (walker.kind == GENERATION or walker.options.opened):
        after = f"after {trained:,} training step{'' if trained == 1 else 's'}"
        parts.append(after)
    if walker.state is not None:
        parts += [f"step {walker.state['step']}", walker.state["stage"]]
    if walker.standing["edits"]:
        count = len(walker.standing["edits"])
        parts.append(f"what if: {count} edit{'' if count == 1 else 's'}")
    loss = loss_of(walker)
    right = f"loss {loss}  {device}" if loss else device
    dot = " - " if glyphs.ascii else " · "
    room = width - len(NAME) - len(right) - 2
    left = shown(dot.join(parts), glyphs.ascii)
    while cell_len(left) > room and len(parts) > 1:
        # what is said first is known best; of what was opened, how long it was trained
        parts.remove(after if walker.options.opened and after in parts else parts[0])
        left = shown(dot.join(parts), glyphs.ascii)
    gap = max(1, room - cell_len(left) + 1)
    return line((NAME, HERE), (left, STRONG), " " * gap, (right, DIM))


def loss_of(walker: Walker) -> str:
    """The newest loss; nothing where what is looked at beside the walk is of another step."""
    loss = walker.standing["loss"]
    if loss is None or (
        walker.state is not None and walker.state["step"] != walker.standing["step"]
    ):
        return ""
    return f"{loss:.4f}" if isinstance(loss, float) else str(loss)
