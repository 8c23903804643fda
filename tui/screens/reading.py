"""A whole screen of lines over the walk, filled by the worker: what such screens have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.screen import ModalScreen

from engine.errors import TensorstepError
from engine.service.connection import WorkerDied, WorkerError
from tui.actions import Action, brief
from tui.glyphs import Glyphs
from tui.plain import shown
from tui.prompt import Prompt, Typing
from tui.walker import Walker
from tui.widgets.lines import DIM, HERE, WARN, Lines, line


class ReadingScreen(ModalScreen[None], inherit_bindings=False):
    """Lines on top, a body, and a foot: keys, a sentence, or what is being typed."""

    ACTIONS: tuple[Action, ...] = ()

    def __init__(self, walker: Walker, glyphs: Glyphs, typing: Typing):
        super().__init__()
        self.walker = walker
        self.glyphs = glyphs
        self.typing = typing
        self.said = ("", False)  # a sentence at the foot, and whether it is a warning
        self.shown = Lines(id="reading")

    def compose(self) -> ComposeResult:
        yield self.shown

    def on_mount(self) -> None:
        self.fetch()

    def on_resize(self) -> None:
        self.draw()

    # --- what each screen has of its own ------------------------------------------------------

    def fetch(self) -> None:
        """Ask the worker for what is shown."""

    def head(self, width: int) -> list[Text]:
        """The lines on top."""
        return []

    def body(self, width: int, room: int) -> list[Text]:
        """The lines between; those beyond `room` are not seen."""
        return []

    # --- the worker, typing, drawing ----------------------------------------------------------

    def later(self, job: Callable[[], Awaitable[None]]) -> None:
        """Queue what needs the worker; how far it is, and a mistake, are told at the foot."""

        async def told() -> None:
            self.walker.listener = self.note
            try:
                await job()
            except (WorkerDied, WorkerError):
                raise
            except TensorstepError as error:
                self.said = (str(error), True)
            finally:
                self.walker.listener = None
            self.draw()

        self.walker.later(told)

    def note(self, text: str, warn: bool = False) -> None:
        """A sentence at the foot, until the work is done."""
        before, self.said = self.said, (text, warn)
        self.draw()
        self.said = before

    def ask_for(self, question: str, hint: str, answered: Callable[[str | None], None]) -> None:
        """Have something typed at the foot."""
        self.typing.ask(Prompt(question, hint, answered), self.draw)

    def action_help(self) -> None:
        from tui.screens.help import key_lines
        from tui.screens.sheets import Pages

        self.app.push_screen(Pages("help", key_lines(self.ACTIONS)))

    def action_close(self) -> None:
        self.dismiss(None)

    def draw(self) -> None:
        if not self.is_attached:
            return
        width, height = self.app.size
        head = self.head(width)
        room = max(0, height - len(head) - 1)
        body = [*self.body(width, room), *[line()] * room][:room]
        self.shown.show([*head, *body, self.foot(width)])

    def foot(self, width: int) -> Text:
        typed = self.typing.line(self.glyphs, width)
        if typed is not None:
            return typed
        text, warn = self.said
        if text:
            return line((shown(text, self.glyphs.ascii), WARN if warn else DIM))
        parts: list[Any] = []
        for key, word in brief(self.ACTIONS):
            parts += [(key, HERE), (f" {word}  ", DIM)]
        return line(*parts)
