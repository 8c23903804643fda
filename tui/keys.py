"""What each key does: the app's actions, by which `tui.actions` names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual import events

from engine.errors import UsageError
from engine.maps import (
    CACHED,
    EVERY_POSITION,
    EXAMPLES,
    GENERATION,
    MODEL_STAGES,
    stage_named,
    title_of,
)
from tui.drawing_arguments import DRAWS
from tui.number_keys import NumberKeys
from tui.opened_arguments import WORKED, elsewhere, options_of_shipped
from tui.places import Place, place_of
from tui.prompt import Prompt
from tui.widgets.lines import Pane
from tui.widgets.map import MapPane


class Keys(NumberKeys, inherit_bindings=False):
    """Actions on the walk, the panes and the screens above."""

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
        prompt = Prompt("go to STEP:STATE:CELL", hint, self.go_as_typed)
        self.typing.ask(prompt, self.show_prompt)

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
        if self.typing.take(event.key, event.character):
            event.prevent_default().stop()

    def on_paste(self, event: events.Paste) -> None:
        self.typing.paste(event.text)

    def on_map_pane_chosen(self, event: MapPane.Chosen) -> None:
        self.give_keys(self.table)
        self.walker.later(lambda: self.walker.open_stage(event.stage))

    def action_other_map(self) -> None:
        self.walker.later(self.walker.other_map)

    def action_other_model(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(key: str | None) -> None:
            if key in models and key != self.walker.model:
                self.walker.later(lambda: self.walker.open(self.walker.kind, str(key)))
            elif key is not None and key != self.walker.model:
                self.walker.later(lambda: self.open_instead(str(key)))

        models = self.models
        options, titles = self.walker.options, dict(elsewhere())
        here = titles.pop(options.opened or (WORKED if options.worked else ""), None)
        own = {options.model: here} if options.opened and here else {}
        choices = [*[(key, own.get(key, title_of(key))) for key in models], *titles.items()]
        self.push_screen(Choice("open another model", choices, self.walker.model), chosen)

    async def open_instead(self, key: str) -> None:
        """Something that ships, in place of what is walked; tokens are chosen as before."""
        options, kind = options_of_shipped(key)
        draws = {name: getattr(self.walker.options, name) for name in DRAWS}
        await self.walker.start_over(replace(options, **draws), kind)
        self.trail.clear()

    @property
    def models(self) -> list[str]:
        """What can be opened in place of what is shown."""
        options = self.walker.options
        if options.opened is None:
            models = list(MODEL_STAGES)
        else:
            models = list(EXAMPLES) if options.model in EXAMPLES else [options.model]
        if self.walker.kind == GENERATION:
            models += [f"{model}{CACHED}" for model in models if model in EVERY_POSITION]
        return models

    def action_corpus(self) -> None:
        self.open_corpus(finding=False)

    def action_find(self) -> None:
        """In a table of all tokens one of them, else a token or a story of the corpus."""
        if not self.table.has_tokens:
            self.open_corpus(finding=True)
            return
        self.typing.ask(
            Prompt("find token", "then / and enter: the next one", self.find_token),
            self.show_prompt,
        )

    def open_corpus(self, finding: bool) -> None:
        from tui.screens.corpus import CorpusScreen

        if self.walker.ready:
            browser = CorpusScreen(self.walker, self.glyphs, self.typing)
            self.push_screen(browser)
            if finding:
                browser.action_find()

    def action_tokenizers(self) -> None:
        from tui.screens.compare import CompareScreen

        if self.walker.ready:
            text = self.walker.options.prompt if self.walker.kind == GENERATION else None
            self.push_screen(CompareScreen(self.walker, self.glyphs, self.typing, text))

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
        if self.walker.working and self.walker.ready:
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

    # --- help, leaving ------------------------------------------------------------------------

    def action_help(self) -> None:
        from tui.screens.help import help_lines
        from tui.screens.sheets import Pages

        state = self.walker.state
        stage = stage_named(state["stage"], self.walker.model) if state else None
        self.push_screen(Pages("help", help_lines(stage, state, self.glyphs)))

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_leave(self) -> None:
        self.exit(return_code=0)
