"""The screen of a run: live, and, while it is paused, its next step as a walk in the map."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from textual.binding import BindingType

from engine.errors import TensorstepError
from engine.maps import MODULE, TRAINING, stage_named
from engine.runs.directory import ALIVE, ENDED, PAUSED, RUNNING, RunDirectory
from engine.service.connection import Connection, WorkerDied, WorkerError
from engine.service.options import Options
from engine.service.run_client import RunClient, reach
from tui.actions import ACTIONS, BINDINGS, RUN_ACTIONS, bindings
from tui.app import Tensorstep
from tui.glyphs import Glyphs
from tui.places import Place
from tui.plain import shown
from tui.prompt import Prompt
from tui.screens.live import LiveScreen
from tui.screens.sheets import Leaving
from tui.walker import Walker

EVERY = 0.5  # seconds between two looks at a run that is walked
KEEP, LEAVE, RESUME, STOP = "stay", "leave", "resume", "stop"


class RunWalker(Walker):
    """One screen's place in the walk of a paused run. `state` is None while that goes."""

    client: RunClient
    trained = 0  # steps that have ended
    is_ours = True  # whether the training is, or a loop that is watched

    async def begin(self) -> None:
        """Connect to the run."""
        await reach(self.client)
        facts = await self.client.open()
        self.corpus, self.is_ours = facts["corpus"], facts["kind"] == "training"

    async def show_walk(self) -> None:
        """The step that comes next, where this screen stood in it."""
        self.take(await self.ask("look"))
        status = await self.client.ask("status")
        self.trained, why = status["step"], status["why"]
        keys = "space lets it go on, L is the live screen"
        keys += ", f finishes the step" if self.is_ours else ""
        self.say(f"paused{f': {why}' if why else ''}  {keys}", bool(why))


class RunControl:
    """A run, as its live screen asks it: what is asked before it is connected waits."""

    def __init__(self, client: RunClient):
        self._client = client
        self.connected = asyncio.Event()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        await self.connected.wait()
        return await self._client.ask(method, **params)


class RunScreen(Tensorstep, inherit_bindings=False):
    """A run: the live screen, and the walk of its paused step."""

    BINDINGS: ClassVar[list[BindingType]] = [*BINDINGS, *bindings(RUN_ACTIONS)]

    def __init__(
        self,
        run: RunDirectory,
        read_only: bool = False,
        glyphs: Glyphs | None = None,
        debug: bool = False,
    ):
        self.run_directory = run
        self.read_only = read_only
        config = run.read_config()
        self.is_ours = config["kind"] == "training"
        walk = config["run"]["walk"] if self.is_ours else {"model": MODULE}
        client = RunClient(run, read_only)
        super().__init__(Options.from_json(walk), None, TRAINING, glyphs, client, debug)
        self.client = client
        self.control = RunControl(client)
        self.live: LiveScreen | None = None
        self.run_state = run.state()
        self.status: dict[str, Any] | None = None  # how the run stood when it was asked last
        self._asking = asyncio.Lock()

    def walker_for(self, client: Connection, options: Options, kind: str) -> Walker:
        return RunWalker(client, options, kind, self.glyphs, self.say, self.show_state)

    def footer(self, width: int) -> list[tuple[str, str]]:
        own = [("space", "go on"), ("L", "live")]
        return [*own, *super().footer(width - 18)]

    @property
    def source(self) -> str:
        return f"run {self.run_directory.name}"[:24]

    @property
    def trained(self) -> int:
        return self.walk_of_run.trained

    # --- beginning, ending --------------------------------------------------------------------

    def set_out(self) -> None:
        self.show_live(self.run_state in ALIVE)
        self.set_interval(EVERY, self.look_after)
        if self.run_state in ALIVE:
            self.call_after_refresh(self.start_walking)

    async def arrive(self) -> None:
        self.control.connected.set()

    def give_up(self, error: TensorstepError) -> None:
        """A run that has ended is still there to be read."""
        if isinstance(error, WorkerDied):
            self.show_live()
            if self.live is not None:
                self.live.lose(error)
        else:
            super().give_up(error)
        self.control.connected.set()  # who waits is told that it is gone

    # --- live, or walked ----------------------------------------------------------------------

    def show_live(self, is_alive: bool = True, status: dict[str, Any] | None = None) -> None:
        """The live screen over the walk; `status`: how the run stood when it was asked last."""
        if self.live is not None:
            return
        run = self.run_directory
        control = self.control if is_alive else None
        self.live = LiveScreen(
            run.path, run.name, self.glyphs, control, self.read_only, self.typing, status
        )
        self.push_screen(self.live)

    def on_live_keys_open_walk(self) -> None:
        self.walker.later(self.open_walk)

    async def open_walk(self) -> None:
        """The walk, as soon as there is something to see of it, in place of the live screen."""
        try:
            await self.walk_of_run.show_walk()
        except (WorkerDied, WorkerError):
            raise
        except TensorstepError as error:  # it goes on again, or all steps are done
            if self.live is not None:
                self.live.say(str(error), True)
            return
        await self.show_state()
        if self.live is not None:
            self.status = self.live.status
            self.live.dismiss(None)
            self.live = None

    async def show_state(self) -> None:
        try:
            await super().show_state()
        except (WorkerDied, WorkerError):
            raise
        except TensorstepError:  # the run was let go on meanwhile
            await self.look_after()

    @property
    def walk_of_run(self) -> RunWalker:
        walker = self.walker
        assert isinstance(walker, RunWalker)  # noqa: S101, made by `walker_for`
        return walker

    async def look_after(self) -> None:
        """While the step is walked: what others have done. Back to the live screen where the run
        goes on; to the walk as it is now, where it has come to stand still anew."""
        if self.live is not None or self._asking.locked() or not self.walker.ready:
            return
        async with self._asking:
            try:
                status = await self.client.ask("status")
            except TensorstepError:
                return
        self.device = status.get("device", self.device)
        before, self.status, self.run_state = self.status, status, status["state"]
        if self.run_state != PAUSED:
            self.show_live(status=status)
        elif before and before.get("stops") != status.get("stops"):  # it went on in between
            if status["why"] is not None:
                self.bell()
            self.walker.later(self.walk_of_run.show_walk)

    # --- keys ---------------------------------------------------------------------------------

    async def let_go_on(self) -> None:
        """Have the run go on; the live screen shows it."""
        async with self._asking:  # what comes next is heard, and rung for, by the live screen alone
            status = await self.client.ask("resume")
            # it may stand still again by now: the live screen is to hear that, not to know it
            self.show_live(status={**status, "state": RUNNING, "why": None})

    def action_resume(self) -> None:
        self.walker.later(self.let_go_on)

    def action_live(self) -> None:
        self.show_live(status=self.status)

    def action_finish_step(self) -> None:
        """To the first state of the next step."""

        async def job() -> None:
            await self.walker.seek(Place(self.walker.standing["step"] + 1))

        self.walker.later(job)

    def action_break_when(self) -> None:
        def answered(text: str | None) -> None:
            self.say("")
            if text is not None:
                self.walker.later(lambda: self.add_breakpoint(text))

        hint = "such as loss > 5, or grad_norm > 10"
        self.typing.ask(Prompt("pause when", hint, answered), self.show_prompt)

    async def add_breakpoint(self, text: str) -> None:
        count = len((await self.client.ask("breakpoints", add=text))["breakpoints"])
        self.say(
            f"{count} breakpoint{'' if count == 1 else 's'}: the live screen (L, B) lists them"
        )

    def action_other_model(self) -> None:
        self.say("a run has one model: open another with `tensorstep --model`")

    def action_help(self) -> None:
        from tui.screens.help import help_lines
        from tui.screens.sheets import Pages

        state = self.walker.state
        stage = stage_named(state["stage"], self.walker.model) if state else None
        keys = (*RUN_ACTIONS, *ACTIONS)
        self.push_screen(Pages("help", help_lines(stage, state, self.glyphs, keys)))

    def action_detach(self) -> None:
        self.exit(return_code=0)

    def on_live_keys_detach(self) -> None:
        self.action_detach()

    def on_live_keys_leave(self) -> None:
        self.action_leave()

    def action_leave(self) -> None:
        """Asks once what becomes of the run; of one that is not ours, or has ended, nothing."""
        state = self.run_directory.state()
        if state in ENDED or self.read_only or not self.is_ours:
            self.exit(return_code=0)
            return
        paused = state == PAUSED
        choices = [(LEAVE, "leave it paused" if paused else "leave it running")]
        if paused:
            choices.append((RESUME, "let it go on, and leave"))
        choices += [(STOP, "stop it: it saves first"), (KEEP, "stay")]
        name = shown(self.run_directory.name, self.glyphs.ascii)
        asked = Leaving(f"quit: the run {name}?", choices, LEAVE, verb="choose")
        self.push_screen(asked, self.left)

    def left(self, answer: str | None) -> None:
        """What was chosen for the run when it was to be left."""
        if answer is None or answer == KEEP:
            return
        if answer == LEAVE:
            self.exit(return_code=0)
            return
        method = {RESUME: "resume", STOP: "stop"}[answer]

        async def ask_and_leave() -> None:
            try:
                await self.client.ask(method)
            except TensorstepError as error:
                self.failure = None if isinstance(error, WorkerDied) else str(error)
            self.exit(return_code=0)

        self.run_worker(ask_and_leave())
