"""What each key does: the app's actions, by which `tui.actions` names them."""

from __future__ import annotations

import tempfile
from typing import Any

from textual import events
from textual.app import App

from engine.errors import TensorstepError, UsageError
from engine.maps import GENERATION, MODEL_STAGES, MODEL_TITLES, STAGES
from tui.glyphs import Glyphs
from tui.places import Place, place_of
from tui.prompt import Prompt
from tui.walker import Walker
from tui.widgets.explain import ExplainPane
from tui.widgets.lines import Pane
from tui.widgets.map import MapPane
from tui.widgets.table import TensorTable

CLIPBOARD = 50_000  # bytes: what tmux and most terminals still take in one go
Trace = tuple[str, str, Place]  # map, model, and where on it


class Keys(App[int], inherit_bindings=False):
    """The app as far as keys go; what is drawn, and when, is `tui.app`'s.

    pane    the one that has the keys
    prompt  what is being typed into the line above the footer
    trail   the places from which enter was followed
    sought  the token that was looked for last
    """

    glyphs: Glyphs
    walker: Walker
    map_pane: MapPane
    table: TensorTable
    explain_pane: ExplainPane
    pane: Pane
    prompt: Prompt | None = None
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

    # --- moving through the walk --------------------------------------------------------------

    def move(self, how: str, **params: Any) -> None:
        self.walker.later(lambda: self.walker.move(how, **params))

    def action_next(self) -> None:
        self.move("forward")

    def action_previous(self) -> None:
        self.move("back")

    def action_next_stage(self) -> None:
        self.move("next_stage")

    def action_back_stage(self) -> None:
        self.move("back_stage")

    def action_next_step(self) -> None:
        self.move("next_step")

    def action_back_step(self) -> None:
        self.move("back_step")

    def action_start(self) -> None:
        self.move("seek", step=0)

    def action_goto(self) -> None:
        hint = "such as 1:weights:0,0,2, or 3:loss, or 1:parameters.W_Q.weight, or 2"
        self.prompt = Prompt("go to STEP:STATE:CELL", hint, self.go_as_typed)
        self.show_prompt()

    def go_as_typed(self, text: str | None) -> None:
        self.say("")
        if text is None:
            return
        try:
            place = self.place_typed(text)
        except UsageError as error:
            self.say(str(error), warn=True)
        else:
            self.walker.later(lambda: self.go(place))

    def place_typed(self, text: str) -> Place:
        """The place written; I,J alone is a cell of what is shown. Raises UsageError."""
        state = self.walker.state
        if state is not None and "," in text and ":" not in text:
            text = f"{state['step']}:{state['name']}:{text}"
        return place_of(text)

    def on_key(self, event: events.Key) -> None:
        """While something is typed, every key goes there, before any key that does something."""
        if self.prompt is not None and self.prompt.open:
            event.prevent_default().stop()
            self.prompt.take(event.key, event.character)
            self.show_prompt()

    def on_paste(self, event: events.Paste) -> None:
        if self.prompt is not None and self.prompt.open:
            self.prompt.type(event.text)
            self.show_prompt()

    def on_map_pane_chosen(self, event: MapPane.Chosen) -> None:
        self.give_keys(self.table)
        self.walker.later(lambda: self.walker.open_stage(event.stage))

    def action_other_map(self) -> None:
        self.walker.later(self.walker.other_map)

    def action_other_model(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(model: str | None) -> None:
            if model is not None and model != self.walker.model:
                self.walker.later(lambda: self.walker.open(self.walker.kind, model))

        choices = [(key, MODEL_TITLES[key]) for key in MODEL_STAGES]
        self.push_screen(Choice("open another model", choices, self.walker.model), chosen)

    def action_corpus(self) -> None:
        self.open_corpus(finding=False)

    def action_find(self) -> None:
        """In a table of all tokens one of them, else a token or a story of the corpus."""
        if not self.table.has_tokens:
            self.open_corpus(finding=True)
            return
        self.prompt = Prompt("find token", "then / and enter: the next one", self.find_token)
        self.show_prompt()

    def find_token(self, text: str | None) -> None:
        self.say("")
        self.sought = text or self.sought
        if self.sought:
            self.walker.later(self.go_to_token)

    async def go_to_token(self) -> None:
        after = self.table.row if self.table.order is None else -1
        answer = await self.walker.client.ask("find_token", text=self.sought, after=after)
        if answer["found"] is None:
            self.say(f"no token of the vocabulary holds {self.sought!r}")
            return
        self.table.order = None
        self.table.row = answer["found"]
        self.table.moved()

    def open_corpus(self, finding: bool) -> None:
        from tui.screens.corpus import CorpusScreen

        if self.walker.ready:
            self.push_screen(CorpusScreen(self.walker, self.glyphs, finding))

    def action_tokenizers(self) -> None:
        from tui.screens.compare import CompareScreen

        if self.walker.ready:
            text = self.walker.options.prompt if self.walker.kind == GENERATION else None
            self.push_screen(CompareScreen(self.walker, self.glyphs, text))

    # --- panes and cells ----------------------------------------------------------------------

    def give_keys(self, pane: Pane) -> None:
        """From now on the arrows move in this pane."""
        self.pane.activate(False)
        self.pane = pane
        pane.activate(True)

    def action_pane(self, by: int) -> None:
        """The keys to the next pane, or the one before."""
        panes: list[Pane] = [self.map_pane, self.table, self.explain_pane]
        panes = [pane for pane in panes if pane.display]
        self.give_keys(panes[(panes.index(self.pane) + by) % len(panes)])

    def action_close(self) -> None:
        if self.walker.working:
            self.walker.stop()
            return
        self.give_keys(self.table)
        self.say("")
        if self.walker.detour is not None:
            self.walker.later(self.walker.back_to_walk)

    def action_explanation(self) -> None:
        self.explain_pane.toggle_class("hidden")
        if self.pane is self.explain_pane:
            self.give_keys(self.table)
        self.walker.look_again()

    def action_vertical(self, by: int) -> None:
        """Up or down in whichever pane has the keys."""
        if self.pane is self.map_pane:
            self.map_pane.move(by)
        elif self.pane is self.explain_pane:
            self.explain_pane.turn(by)
        else:
            self.table.move(down=by)

    def action_horizontal(self, by: int) -> None:
        if self.pane is self.map_pane:
            self.map_pane.move(by)
        elif self.pane is self.explain_pane:
            self.explain_pane.turn_factor(by)
        else:
            self.table.move(right=by)

    def action_page(self, by: int) -> None:
        on_explanation = self.pane is self.explain_pane
        page = self.explain_pane.size.height - 1 if on_explanation else self.table.rows_seen
        self.action_vertical(by * max(1, page))

    def action_column_end(self, by: int) -> None:
        """To the first or last column."""
        self.table.move(right=by * self.table.width)

    def action_row_end(self, by: int) -> None:
        """To the first or last row."""
        self.table.move(down=by * self.table.height)

    def action_slice_axis(self) -> None:
        self.table.choose_axis()

    def action_slice(self, by: int) -> None:
        self.table.move_slice(by)

    def action_sort(self) -> None:
        self.table.sort()

    def action_format(self) -> None:
        self.table.change_format()
        self.say(
            {"plain": "four decimals", "scientific": "scientific", "exact": "all digits"}[
                self.table.format
            ]
        )

    def action_heat(self) -> None:
        self.table.change_heat()

    def action_copy(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(what: str | None) -> None:
            if what is not None:
                self.copy_text(self.table.rows_as_text(what))

        choices = [
            ("cell", "this cell"),
            ("row", "this row, as far as it is seen"),
            ("all", "all that is seen"),
        ]
        self.push_screen(Choice("copy", choices, "cell"), chosen)

    def copy_text(self, text: str) -> None:
        """To the terminal's clipboard (OSC 52), or to a file where it is too much for that."""
        if len(text.encode()) <= CLIPBOARD:
            self.copy_to_clipboard(text)
            self.say("sent to the terminal's clipboard (OSC 52); not every terminal takes it")
            return
        with tempfile.NamedTemporaryFile(
            "w", prefix="tensorstep-", suffix=".tsv", delete=False
        ) as file:
            file.write(text + "\n")
        self.say(f"too much for a terminal's clipboard: written to {file.name}")

    def action_what_if(self) -> None:
        state = self.walker.state
        if state is None or state["kind"] == "text":
            self.say("a text cannot be edited: edit the IDs that are made of it")
            return
        cell = ",".join(map(str, self.table.cell))
        question = f"{state['name']}[{cell}] =" if cell else f"{state['name']} ="
        hint = "another number, or a token where it is an ID"
        self.prompt = Prompt(question, hint, self.edit_as_typed)
        self.show_prompt()

    def edit_as_typed(self, text: str | None) -> None:
        self.say("")
        if text is not None:
            cell = self.table.cell
            self.walker.later(lambda: self.walker.edit(cell, text))

    def action_undo(self) -> None:
        self.walker.later(self.walker.undo)

    def action_compare(self) -> None:
        if not self.walker.standing["edits"]:
            self.say("nothing was edited: w edits the cell under the cursor")
            return
        shows = self.table.change_view()
        self.say("after - before" if shows == "difference" else f"{shows} the edits")

    def action_follow(self) -> None:
        from tui.screens.follow import FollowScreen

        state = self.walker.state
        name = followed(state["name"]) if state is not None else None
        if state is None or name is None or not state["shape"]:
            self.say("follow a cell of a parameter, its gradient or its update")
        else:
            self.push_screen(FollowScreen(self.walker, self.glyphs, name, self.table.cell))

    def action_norms(self) -> None:
        from tui.screens.follow import NormsScreen

        if self.walker.ready:
            self.push_screen(NormsScreen(self.walker, self.glyphs))

    # --- where a number comes from ----------------------------------------------------------

    def action_enter(self) -> None:
        """Open the chosen stage; else go to the operand that is picked, or to the first one."""
        if self.pane is self.map_pane:
            self.map_pane.choose()
        elif self.pane is not self.explain_pane or not self.explain_pane.unfold():
            self.walker.later(self.follow)

    async def follow(self) -> None:
        """To the cell that is cited, from which backspace comes back."""
        await self.show_state()  # the explanation of the cell that is under the cursor now
        link = self.explain_pane.link if self.explain_pane.display else None
        if link is None:
            found = await self.walker.explanation(self.table.cell)
            link = found["terms"][0] if found["terms"] else None
        if link is None:
            self.say("this is where it begins: nothing else is cited")
            return
        here = self.here()
        await self.go(Place(link["step"], link["source"], tuple(link["index"])))
        self.trail.append(here)

    def action_come_back(self) -> None:
        self.walker.later(self.come_back)

    async def come_back(self) -> None:
        """To where enter was pressed last."""
        if not self.trail:
            self.say("nothing to come back to: enter follows a number first")
            return
        kind, model, place = self.trail.pop()
        if (kind, model) != self.walker.walk:
            await self.walker.open(kind, model)
        await self.go(place)

    def here(self) -> Trace:
        """The cell under the cursor, as a place to come back to."""
        state = self.walker.state or {}
        return (*self.walker.walk, Place(state["step"], state["name"], tuple(self.table.cell)))

    def action_gradient(self) -> None:
        self.walker.later(self.through_the_lens)

    async def through_the_lens(self) -> None:
        """From a number to how the loss would change with it, and back; the cell stays."""
        state = self.walker.state or {}
        if self.walker.kind == GENERATION:
            self.say("gradients are of the training map: m goes there")
            return
        step, name = max(1, state["step"]), state["name"]
        if name.startswith("gradients."):
            names = lens_back(name)
        else:
            bare = name.removeprefix("parameters.").removeprefix("update.")
            names = [f"gradients.{bare}"]
        _, _, place = self.here()
        for wanted in names:
            try:
                await self.go(Place(step, wanted, place.cell))
            except TensorstepError:
                continue
            return
        self.say(f"the loss has no gradient with respect to {name}")

    # --- help, leaving ------------------------------------------------------------------------

    def action_help(self) -> None:
        from tui.screens.help import help_lines
        from tui.screens.sheets import Pages

        state = self.walker.state
        stage = STAGES[state["stage"]] if state else None
        self.push_screen(Pages("help", help_lines(stage, state, self.glyphs)))

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_leave(self) -> None:
        self.exit(return_code=0)


def lens_back(name: str) -> list[str]:
    """What a gradient is of: a state of the step, or a stored parameter."""
    bare = name.removeprefix("gradients.").removeprefix("clipped.")
    return [bare, f"parameters.{bare}"]


def followed(name: str) -> str | None:
    """The parameter that a state is, or is of; None for one that is of none."""
    for prefix in ("parameters.", "gradients.clipped.", "gradients.", "update."):
        if name.startswith(prefix):
            bare = name.removeprefix(prefix)
            whole, _, part = bare.rpartition(".")
            return whole if whole.count(".") and part not in ("weight", "bias") else bare
    return None
