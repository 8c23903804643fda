"""While the worker loads, when it fails or dies, and with a real one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.service.client import Client
from engine.service.options import Options
from tests.tui.contract import expected_training
from tests.tui.desk import DeskClient
from tests.tui.screen import LARGE, PATIENCE, Screen, all_is_quiet, opened
from tui.actions import ACTIONS
from tui.app import Tensorstep
from tui.glyphs import UNICODE
from tui.places import Place

# --- loading ---------------------------------------------------------------------------------


@asynccontextmanager
async def loading(**more: Any) -> AsyncIterator[tuple[Screen, asyncio.Event]]:
    """A screen whose worker is not there until the event is set."""
    gate = asyncio.Event()
    async with opened(client=DeskClient(gate), **more) as screen:
        await screen.settle()
        yield screen, gate


async def loaded(screen: Screen, gate: asyncio.Event) -> None:
    gate.set()
    await screen.settle()


@pytest.mark.parametrize("size", [(80, 24), LARGE])
async def test_the_first_frame(size: tuple[int, int]):
    """Before anything is loaded: what it is, where on the map one will be, the keys."""
    async with loading(size=size) as (screen, gate):
        screen.check()
        assert "lily · one head · training map" in screen.lines[0]
        assert screen.said == "loading the model ..."
        assert "quit" in screen.lines[-1]
        await loaded(screen, gate)
        assert screen.place == (0, "stories")
        assert screen.said == ""


KEYS = [key for action in ACTIONS if action.id != "leave" for key in action.keys.split(",")]


async def test_every_key_while_it_loads():
    """None does any harm, all at once or one by one; then the walk begins at its beginning."""
    async with loading(size=LARGE) as (screen, gate):
        for key in KEYS:
            await screen.press(key)
            screen.check()
            await screen.press("escape")
        assert screen.said in ("", "loading the model ...", "still loading the model ...")
        await screen.press_at_once(*KEYS, "escape", "escape")
        await screen.press("n")
        assert screen.said == "still loading the model ..."
        if "EXPLANATION" not in screen.text:  # e was pressed an odd number of times
            await screen.press("e")
        await loaded(screen, gate)
        assert screen.place == (0, "stories")
        assert screen.said == ""
        await screen.press("n")
        assert screen.place == (0, "split")


async def test_questions_while_it_loads():
    """A place, a model or the other map that is asked for too early is not gone to later."""
    async with loading() as (screen, gate):
        await screen.goto("1:weights")
        assert screen.said == "still loading the model ..."
        await screen.goto("nonsense")
        assert "is no place" in screen.said
        await screen.press("o", "down", "enter", "m")
        assert screen.said == "still loading the model ..."
        await loaded(screen, gate)
        assert screen.place == (0, "stories")
        assert "one head · training map" in screen.lines[0]


async def test_resized_while_it_loads():
    async with loading() as (screen, gate):
        await screen.resize(60, 10)
        assert "needs 80x24" in screen.text
        await screen.resize(130, 45)
        assert screen.said == "loading the model ..."
        screen.check()
        await loaded(screen, gate)
        assert screen.place == (0, "stories")
        screen.check()


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_leaving_while_it_loads(key: str):
    async with loading() as (screen, _):
        screen.post(key)
        assert await screen.ended() == 0
        assert screen.app.failure is None


# --- failing ---------------------------------------------------------------------------------


async def test_what_cannot_be_opened():
    """The screen closes, the sentence is left for the command to tell."""
    async with opened(Options(rows=(7,))) as screen:
        assert await screen.ended() == 2
        assert screen.app.failure == (
            "--rows 7: there is no window 7, the text gives windows 0 to 6"
        )


@pytest.mark.parametrize("debug", [False, True])
async def test_a_worker_that_fails(debug: bool):
    """A bug of ours: the screen closes, exit code 1; with --debug its trace is told."""
    async with opened(debug=debug) as screen:

        def fail(*_: Any) -> None:
            raise ZeroDivisionError("by nothing")

        client = screen.app.walker.client
        assert isinstance(client, DeskClient)
        client.desk.answer = fail  # type: ignore[assignment]
        screen.post("n")
        assert await screen.ended() == 1
        failure = str(screen.app.failure)
        assert failure.endswith("the worker failed: ZeroDivisionError: by nothing")
        assert ("Traceback" in failure) == debug
        assert ("in fail" in failure) == debug


@asynccontextmanager
async def with_worker(client: Client, options: Options) -> AsyncIterator[Screen]:
    """The screen with a worker in a process of its own."""
    app = Tensorstep(options, client=client, glyphs=UNICODE)
    async with app.run_test(size=LARGE) as pilot:
        yield Screen(app, pilot)


SPEAKS = "import sys, os\nfrom engine.service.protocol import encode, read_frame\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('CUDA error', file=sys.stderr); sys.exit(9)", ("exit code 9", "CUDA error")),
        ("os.kill(os.getpid(), 11)", ("killed by SIGSEGV", "it said nothing")),
        ("print('Downloading: 100%')", ("cannot be meant",)),
    ],
)
async def test_a_worker_that_dies_at_once(body: str, words: tuple[str, ...]):
    client = Client((sys.executable, "-P", "-c", SPEAKS + body))
    async with with_worker(client, Options()) as screen:
        assert await screen.ended() == 1
        assert str(screen.app.failure).startswith("the worker died")
        for each in words:
            assert each in str(screen.app.failure)


async def test_a_worker_that_cannot_be_started():
    async with with_worker(Client(("/nowhere",)), Options()) as screen:
        assert await screen.ended() == 1
        assert "the worker could not be started" in str(screen.app.failure)


# --- the real worker -------------------------------------------------------------------------


class Watched(Client):
    """A real client that tells when nothing is asked of it any more."""

    def __init__(self) -> None:
        super().__init__()
        self.quiet = asyncio.Event()
        self.started = asyncio.Event()
        self.open_requests = 0

    async def start(self) -> None:
        await super().start()
        self.started.set()

    async def ask_bytes(self, method: str, **params: Any) -> tuple[dict[str, Any], bytes]:
        self.open_requests += 1
        self.quiet.clear()
        try:
            return await super().ask_bytes(method, **params)
        finally:
            self.open_requests -= 1
            if not self.open_requests:
                self.quiet.set()

    async def settle(self, screen: Screen) -> None:
        """Until all that was asked is answered and drawn."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await self.quiet.wait()
                await all_is_quiet()
                if not self.open_requests and screen.app.walker.jobs.empty():
                    break
        await screen.settle()


async def test_a_walk_with_a_real_worker_until_it_is_killed():
    """From the first frame to a number of its; then it dies while nobody asks, and the screen
    closes by itself with its last words."""
    client = Watched()
    async with with_worker(client, Options(model="mlp")) as screen:
        await client.settle(screen)
        while not screen.app.walker.ready:
            await client.settle(screen)
        assert screen.place == (0, "stories")
        for key in (*"NNNNNN", ".", "p", "n"):
            screen.post(key)
        await client.settle(screen)
        assert screen.place == (2, "embedding")
        screen.post("N")
        await client.settle(screen)
        value = expected_training("mlp", steps=2)[1]["flatten"][0, 0]
        assert screen.state == "flatten"
        assert screen.number == pytest.approx(float(value), abs=1e-6)
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await screen.ended() == 1
        assert str(screen.app.failure).startswith("the worker died, killed by SIGKILL")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_leaving_ends_the_real_worker():
    """Also while it loads."""
    client = Watched()
    async with with_worker(client, Options()) as screen:
        await asyncio.wait_for(client.started.wait(), PATIENCE)
        pid = client.pid
        assert pid is not None
        screen.post("q")
        assert await screen.ended() == 0
        assert screen.app.failure is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_signals(number: signal.Signals):
    async with opened(goto=Place(1, "q")) as screen:
        os.kill(os.getpid(), number)
        assert await screen.ended() == 128 + number
        assert screen.app.failure is None
