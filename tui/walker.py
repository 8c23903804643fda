"""The screen's side of a walk: where it stands, as the worker told, and jobs for the worker.

Jobs are done in order by one task, and `changed` is called when none is left, so that a held key
does not pile up drawings. Nothing here draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from engine.errors import TensorstepError
from engine.maps import GENERATION, TRAINING
from engine.progress import Progress
from engine.service.connection import Connection, WorkerDied, WorkerError
from engine.service.options import Options
from tui.cells import Slice
from tui.glyphs import Glyphs
from tui.pace import Pace
from tui.places import Place

TERMS = 200  # terms of an explanation worth fetching

Job = Callable[[], Awaitable[None]]
Say = Callable[[str, bool], None]


class Walker:
    """One screen's place in the walks of a worker.

    state     what the worker told of the state that is shown: see `engine.service.describe`
    standing  where the walk stands: step, stages passed, newest loss
    detour    the stored parameters looked at beside the walk: their names, the step, which
    say       shows one line, as a warning or not
    changed   draws what is new
    """

    def __init__(
        self,
        client: Connection,
        options: Options,
        kind: str,
        glyphs: Glyphs,
        say: Say,
        changed: Job,
    ):
        self.client = client
        self.glyphs = glyphs
        self.options = options
        self.kind = kind
        self.model = options.model
        self.say = say
        self.changed = changed
        self.ready = False
        self.trained: int | None = None  # steps of training behind what generates, if it is known
        self.corpus = self.note = ""  # its name, and what there is to know, as the worker tells
        self.pace = Pace()
        self.listener: Say | None = None  # who hears of work instead of the line above the footer
        self.working = False  # whether the worker tells of work that takes long
        self.state: dict[str, Any] | None = None
        self.standing: dict[str, Any] = {"step": 0, "stages": [], "loss": None, "losses": 0}
        self.standing["edits"] = []
        self.detour: tuple[list[str], int, int] | None = None
        self.jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._losses: dict[str, Any] = {"losses": [], "first": 1}
        self._losses_of: tuple[str, int] = ("", 0)  # model and number of steps they are of

    @property
    def walk(self) -> tuple[str, str]:
        """Which walk is shown: its map and model."""
        return self.kind, self.model

    async def run(self, arrive: Job) -> None:
        """Start the worker, `arrive`, then do jobs for ever.

        Raises TensorstepError where the worker cannot open what was asked for, fails or dies; any
        other mistake of the user is said, and the walk stays where it is.
        """
        self.client.on_death = lambda: self.jobs.put_nowait(self.notice_death)
        self.client.on_progress = self.tell
        await self.begin()
        await arrive()
        self.ready = True
        await self.changed()
        while True:
            job = await self.jobs.get()
            self.pace.restart()
            try:
                await job()
            except (WorkerDied, WorkerError):
                raise
            except TensorstepError as error:
                self.say(str(error), True)
            self.working = False
            if self.jobs.empty():
                await self.changed()

    async def begin(self) -> None:
        """Start the worker and stand at the beginning of the walk."""
        await self.client.start()
        told = await self.client.ask("open", options=self.options.to_json())
        self.corpus, self.note, self.trained = told["corpus"], told["note"], told["trained"]
        self.take(await self.ask("look"))

    async def start_over(self, options: Options, kind: str) -> None:
        """Open something else in place of what is walked, at its beginning."""
        told = await self.client.ask("open", options=options.to_json())
        self.options, self.kind, self.model = options, kind, options.model
        self.corpus, self.note, self.trained = told["corpus"], told["note"], told["trained"]
        self.detour = None
        self._losses_of = ("", 0)
        self.take(await self.ask("look"))
        self.say(self.note, False)

    def later(self, job: Job) -> None:
        """Queue what needs the worker; before it is ready there is nothing to walk."""
        if self.ready:
            self.jobs.put_nowait(job)
        else:
            self.say("still loading the model ...", False)

    def tell(self, progress: Progress) -> None:
        """Say how far the worker is."""
        self.working = True
        stop = "  escape: stop" if self.ready else ""
        (self.listener or self.say)(self.pace.line(progress, self.glyphs) + stop, False)

    def stop(self) -> None:
        """Give up what the worker is doing, and what was asked for after it."""
        while not self.jobs.empty():
            self.jobs.get_nowait()
        self.client.cancel()

    def look_again(self) -> None:
        """Queue a drawing: the view or the cursor has moved."""
        if self.ready:
            self.jobs.put_nowait(nothing)

    async def notice_death(self) -> None:
        """The job that raises WorkerDied, with its last words, where no other has met it."""
        await self.ask("look")

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask about the walk on the map and of the model that are shown."""
        return await self.client.ask(method, map=self.kind, model=self.model, **params)

    def take(self, answer: dict[str, Any]) -> None:
        """A state the worker told of is the one shown from now on."""
        self.state, self.standing = answer["state"], answer["standing"]

    # --- moving -------------------------------------------------------------------------------

    async def move(self, how: str, **params: Any) -> None:
        """Forward, back, by stage, by step, or to a place: see the worker's `move`."""
        if self.detour is not None and how in ("forward", "back"):
            await self.along_parameters(1 if how == "forward" else -1)
            return
        answer = await self.ask("move", how=how, **params)
        self.detour = None
        self.take(answer)
        self.say("" if answer["moved"] else why_not(how, answer["ended"], self.kind), False)
        if answer["beside"]:
            await self.look_beside(answer["state"]["name"], answer["state"]["step"])

    async def seek(self, place: Place) -> None:
        await self.move("seek", step=place.step, name=place.name)

    async def look_beside(self, name: str, step: int) -> None:
        """A parameter, or a part of a state, is shown, on which no cursor stands."""
        names = [name]
        if name.startswith("parameters."):
            names = (await self.ask("parameters"))["names"]
        self.detour = (names, step, names.index(name))
        self.say_beside()

    def say_beside(self) -> None:
        names, _, at = self.detour or ([], 0, 0)
        if len(names) > 1:
            which = f"parameter {at + 1} of {len(names)}, beside the walk: n, p others, "
        else:
            which = "beside the walk: "
        self.say(f"{which}escape back to it", False)

    async def open_stage(self, stage: str) -> None:
        """To the first state of a stage: in this step where it has one, else in step 0 or 1."""
        if stage in ("parameters", "checkpoint"):
            answer = await self.ask("parameters")
            self.detour = (answer["names"], answer["step"], -1)
            await self.along_parameters(1)
            return
        answer = await self.ask("move", how="to_stage", name=stage)
        self.detour = None
        self.take(answer)
        self.say("" if answer["moved"] else f"this walk has no state in {stage}", False)

    async def along_parameters(self, by: int) -> None:
        """To the next or previous stored parameter; past the last or first, back to the walk."""
        names, step, at = self.detour or ([], 0, 0)
        at += by
        if not 0 <= at < len(names):
            await self.back_to_walk()
            return
        self.detour = (names, step, at)
        self.take(await self.ask("look", name=names[at], step=step))
        self.say_beside()

    async def back_to_walk(self) -> None:
        self.detour = None
        self.take(await self.ask("look"))
        self.say("", False)

    async def other_map(self) -> None:
        await self.open(GENERATION if self.kind == TRAINING else TRAINING, self.model)

    async def open(self, kind: str, model: str) -> None:
        """The walk on another map or of another model, where it was left."""
        answer = await self.client.ask("look", map=kind, model=model)
        self.kind, self.model, self.detour = kind, model, None
        self.take(answer)
        self.say("", False)

    # --- what if ------------------------------------------------------------------------------

    async def edit(self, cell: list[int], value: str) -> None:
        """Set a cell of what is shown to another value; what follows from it is made again."""
        shown = self._shown
        await self.ask("edit", **shown, cell=cell, value=value)
        self.take(await self.ask("move", how="seek", **shown))
        self.say("edited: = shows before and difference, u takes it back", False)

    async def undo(self) -> None:
        """Take the last edit back."""
        answer = await self.ask("undo")
        self.detour = None
        self.take(answer)
        told = "the last edit is taken back" if answer["undone"] else "nothing was edited: w edits"
        self.say(told, False)

    # --- reading ------------------------------------------------------------------------------

    @property
    def _shown(self) -> dict[str, Any]:
        state = self.state or {}
        return {"name": state["name"], "step": state["step"]}

    async def cells(
        self,
        fixed: tuple[int, ...],
        rows: tuple[int, int],
        columns: tuple[int, int],
        order: tuple[int, bool] | None,
        view: str,
        turned: bool,
    ) -> Slice:
        """Rows and columns of what is shown, as the table has them (`turned`: the other way); the
        rows in the order of the values in a column, falling or rising, where that is asked for."""
        if turned:
            rows, columns = columns, rows
        ranked = None if order is None else (int(turned), *order)
        header, payload = await self.client.ask_bytes(
            "table",
            map=self.kind,
            model=self.model,
            **self._shown,
            fixed=fixed,
            rows=rows,
            columns=columns,
            order=ranked,
            view=view,
        )
        return Slice.of(header, payload, turned)

    async def summary(self, view: str) -> dict[str, Any]:
        """How the cells of what is shown are spread."""
        return await self.ask("summary", **self._shown, view=view)

    async def explanation(self, cell: list[int]) -> dict[str, Any]:
        return await self.ask("explain", **self._shown, cell=cell, most=TERMS)

    async def losses(self) -> dict[str, Any]:
        """The losses so far, fetched where there are new ones: `losses` and the `first` step."""
        made = (self.model, self.standing["losses"])
        if made != self._losses_of:
            self._losses, self._losses_of = await self.ask("losses"), made
        return self._losses


async def nothing() -> None:
    """The job that only draws."""


def why_not(how: str, ended: str | None, kind: str) -> str:
    """Why a move did not move."""
    if how in ("back", "back_stage", "back_step"):
        return "this is the beginning"
    if kind == TRAINING:
        return ended or "this is the end"
    return f"generation has ended ({ended})" if ended else "this is the end"
