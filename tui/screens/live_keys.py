"""What the keys of a run's live screen do: the view of its curves, and the run itself."""

from __future__ import annotations

from typing import Any, Protocol

from textual.message import Message
from textual.screen import ModalScreen

from engine.runs.curves import Curves
from engine.runs.directory import ENDED, PAUSED
from tui.actions import LIVE_ACTIONS
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Prompt, Typing
from tui.widgets.curve import AXIS
from tui.widgets.run_curve import View


class Control(Protocol):
    """The process of a run."""

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request. Raises TensorstepError; WorkerDied where it is gone."""
        ...


class LiveKeys(ModalScreen[None], inherit_bindings=False):
    """The live screen as its keys know it; what is pulled and drawn is `tui.screens.live`'s.

    control  None for a run that has no process
    said     a sentence above the footer, and whether it is a warning
    status   what the process told last
    """

    class OpenWalk(Message):
        """The step at which the run has been paused is to be looked at in the map."""

    class Detach(Message):
        """The screen is to be left, the run goes on."""

    class Leave(Message):
        """The screen is to be left."""

    control: Control | None
    curves: Curves
    glyphs: Glyphs
    is_log: bool
    read_only: bool
    said: tuple[str, bool]
    status: dict[str, Any] | None
    typing: Typing
    view: View

    def draw(self) -> None:
        """Make the lines anew."""

    async def ask(self, method: str, **params: Any) -> None:
        """Ask the run for something; how it stands then is shown, and so is a mistake."""

    @property
    def state(self) -> str:
        return str((self.status or {}).get("state", ""))

    # --- keys: the view -----------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self.view.move(by, len(self.curves), self.app.size.width - AXIS)
        self.draw()

    def action_first(self) -> None:
        self.view.put(1, len(self.curves))
        self.draw()

    def action_newest(self) -> None:
        self.view.at = None
        self.draw()

    def action_zoom(self, by: int) -> None:
        self.view.zoom(by, len(self.curves))
        self.draw()

    def action_whole(self) -> None:
        self.view.span = None
        self.draw()

    def action_log_scale(self) -> None:
        self.is_log = not self.is_log
        self.draw()

    def action_help(self) -> None:
        from tui.screens.help import key_lines
        from tui.screens.sheets import Pages

        self.app.push_screen(Pages("help", key_lines(LIVE_ACTIONS)))

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_leave(self) -> None:
        self.post_message(self.Leave())

    def action_detach(self) -> None:
        self.post_message(self.Detach())

    # --- keys: the run ------------------------------------------------------------------------

    def say(self, text: str, warn: bool = False) -> None:
        """A sentence above the footer, until the next key for the run."""
        self.said = (text, warn)
        self.draw()

    @property
    def can_change(self) -> bool:
        """Whether the run takes what is asked of it."""
        return not self.read_only and self.control is not None and self.state not in ENDED

    def is_refused(self, changes: bool = True) -> bool:
        """Whether the run takes no such key; then it is told why."""
        self.say("")
        if changes and self.read_only:
            self.say("attached with --read-only: attach without it to pause, stop or change it")
        elif self.control is None:
            self.say("the run has no process here: what it did can be read, and nothing be changed")
        elif self.state in ENDED:
            self.say(f"the run has {self.state}")
        elif self.status is None:
            self.say("the run has not answered yet: press it again in a moment")
        return self.said != ("", False)

    def request(self, method: str, **params: Any) -> None:
        self.run_worker(self.ask(method, **params))
        self.draw()

    def action_pause(self) -> None:
        if not self.is_refused():
            self.request("resume" if self.state == PAUSED else "pause")

    def action_walk(self) -> None:
        if self.is_refused(changes=False):
            return
        if self.state == PAUSED:
            self.post_message(self.OpenWalk())
        else:
            self.say("only a paused step can be walked: space pauses the run")

    def action_break_when(self) -> None:
        def answered(text: str | None) -> None:
            if text is not None:
                self.say(f"pauses when {text}: B lists all")
                self.request("breakpoints", add=text)

        if not self.is_refused():
            prompt = Prompt("pause when", "such as loss > 5 or grad_norm > 10", answered)
            self.typing.ask(prompt, self.draw)

    def action_breaks(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(text: str | None) -> None:
            now = (self.status or {}).get("breakpoints", [])
            if text in now:  # another screen may have removed it
                self.request("breakpoints", remove=now.index(text))

        if self.is_refused():
            return
        found: list[str] = (self.status or {}).get("breakpoints", [])
        if not found:
            self.say("there are no breakpoints: b sets one")
            return
        choices = [(text, shown(text, self.glyphs.ascii)) for text in found]
        self.app.push_screen(Choice("breakpoints", choices, found[0], verb="remove"), chosen)

    def action_stop(self) -> None:
        from tui.screens.sheets import Choice

        def chosen(answer: str | None) -> None:
            if answer == "stop":
                self.request("stop")

        if not self.is_refused():
            choices = [("stay", "let it go on"), ("stop", "stop the run")]
            self.app.push_screen(Choice("stop this run?", choices, "stay", verb="choose"), chosen)
