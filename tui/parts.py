"""What the actions of the keys need of the app: its panes, the walk, and how things are said."""

from __future__ import annotations

from textual.app import App

from tui.glyphs import Glyphs
from tui.places import Place
from tui.prompt import Typing
from tui.walker import Walker
from tui.widgets.explain import ExplainPane
from tui.widgets.lines import Pane
from tui.widgets.map import MapPane
from tui.widgets.table import TensorTable

Trace = tuple[str, str, Place]  # map, model, and where on it


class Parts(App[int], inherit_bindings=False):
    """The app as its actions know it; what is drawn, and when, is `tui.app`'s.

    pane    the one that has the keys
    typing  what is being typed, here or on a screen above
    trail   the places from which enter was followed
    sought  the token that was looked for last
    """

    glyphs: Glyphs
    walker: Walker
    map_pane: MapPane
    table: TensorTable
    explain_pane: ExplainPane
    pane: Pane
    typing: Typing
    trail: list[Trace]
    sought: str = ""

    def say(self, text: str, warn: bool = False) -> None:
        """A sentence above the footer."""

    def show_prompt(self) -> None:
        """What is being typed, above the footer."""

    async def show_state(self) -> None:
        """Draw what is under the cursor, with its explanation."""

    async def go(self, place: Place) -> None:
        """To a state, and there to a cell. Raises UsageError where there is none."""
