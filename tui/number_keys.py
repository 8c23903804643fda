"""What each key does with numbers: how they are shown, edited, followed, where they come from."""

from __future__ import annotations

import tempfile

from engine.errors import TensorstepError
from engine.maps import CACHED, EVERY_POSITION, GENERATION, MODULE
from tui.parts import Parts, Trace
from tui.places import Place
from tui.prompt import Prompt

PARTS = {"old", "grad", "m", "v", "m_hat", "v_hat", "decay", "step", "new"}  # of an update
CLIPBOARD = 50_000  # bytes: what tmux and most terminals still take in one go


class NumberKeys(Parts, inherit_bindings=False):
    """Actions on the cell under the cursor and on its table."""

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
        if self.table.order is not None:
            self.say("the rows are in their own order again")
        self.table.order = None
        self.table.row = answer["found"]
        self.table.moved()

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
        self.push_screen(Choice("copy", choices, "cell", "copy"), chosen)

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
        self.typing.ask(Prompt(question, hint, self.edit_as_typed), self.show_prompt)

    def edit_as_typed(self, text: str | None) -> None:
        self.say("")
        if text is not None:
            cell = self.table.cell
            self.walker.later(lambda: self.edit(cell, text))

    async def edit(self, cell: list[int], text: str) -> None:
        """Another value in a cell, on which the cursor stays, however the rows were sorted."""
        await self.walker.edit(cell, text)
        await self.show_state()
        self.table.put(cell)

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
        name = followed(state["name"], self.walker.model) if state is not None else None
        if state is None or name is None or not state["shape"]:
            self.say("follow a cell of a parameter, its gradient or its update")
        else:
            self.push_screen(
                FollowScreen(self.walker, self.glyphs, self.typing, name, self.table.cell)
            )

    def action_norms(self) -> None:
        from tui.screens.follow import NormsScreen

        if self.walker.ready:
            self.push_screen(NormsScreen(self.walker, self.glyphs, self.typing))

    def action_inside(self) -> None:
        from tui.screens.inside import InsideScreen

        if self.walker.model.removesuffix(CACHED) not in EVERY_POSITION:
            self.say("the lens reads a stream of blocks: open a transformer")
        elif self.walker.ready:
            self.push_screen(InsideScreen(self.walker, self.glyphs, self.typing))

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
        picking = self.pane is self.explain_pane and self.explain_pane.display
        link = self.explain_pane.link if picking else None
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
        step, name = state["step"], state["name"]
        if name.startswith("gradients."):
            wanted = lens_back(name, step)
        elif name.startswith("parameters."):  # the step that begins with it
            wanted = [(step + 1, f"gradients.{name.removeprefix('parameters.')}")]
        else:
            wanted = [(step, f"gradients.{name.removeprefix('update.')}")]
        _, _, place = self.here()
        for at, other in wanted:
            try:
                await self.go(Place(at, other, place.cell))
            except TensorstepError:
                continue
            return
        self.say(f"the loss has no gradient with respect to {name}")


def lens_back(name: str, step: int) -> list[tuple[int, str]]:
    """What a gradient may be of: a state of its step, or a parameter with which it began."""
    bare = name.removeprefix("gradients.").removeprefix("clipped.")
    return [(step, bare), (step - 1, f"parameters.{bare}")]


def followed(name: str, model: str = "") -> str | None:
    """The parameter that a state is, or is of; None for one that is of none."""
    for prefix in ("parameters.", "gradients.clipped.", "gradients.", "update."):
        if name.startswith(prefix):
            bare = name.removeprefix(prefix)
            whole, _, part = bare.rpartition(".")
            if model == MODULE:  # of these every gradient but the norm is of a parameter
                bare = whole if prefix == "update." and part in PARTS else bare
                other = name == "gradients.norm" or bare.startswith("modules.")
                return None if other else bare
            bare = whole if whole.count(".") and part not in ("weight", "bias") else bare
            return bare if bare.endswith((".weight", ".bias")) else None
    return None
