"""Work that takes long, as the walk shows it: how far it is, and escape, which gives it up. The
client's answers and its progress are held by the test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from engine.errors import TensorstepError
from engine.progress import Progress
from engine.service.options import Options
from tests.tui.desk import DeskClient
from tests.tui.screen import LARGE, SMALL, Screen, opened
from tests.tui.test_pace import Clock, bar
from tui.glyphs import ASCII, UNICODE
from tui.pace import Pace
from tui.places import Place

BOTH_SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
SEEKING = "making steps up to 5"


class HeldClient(DeskClient):
    """Holds the answers to some methods until the test lets them go, or they are cancelled.

    cancelled  how often it was asked to give up what is in hand
    """

    def __init__(self, *held: str):
        super().__init__()
        self.held = set(held)
        self.cancelled = 0
        self.asking: dict[str, int] = defaultdict(int)
        self._freed: asyncio.Future[None] | None = None

    async def ask_bytes(self, method: str, **params: Any) -> tuple[dict[str, Any], bytes]:
        kind = params.get("how", method)
        if kind in self.held:
            self.asking[kind] += 1
            self._freed = asyncio.get_running_loop().create_future()
            await self._freed
        return await super().ask_bytes(method, **params)

    def tell(self, done: int, total: int | None = 1000, what: str = SEEKING) -> None:
        self.on_progress(Progress(what, done, total))

    def let_go(self) -> None:
        assert self._freed is not None
        self._freed.set_result(None)

    def cancel(self) -> None:
        self.cancelled += 1
        if self._freed is not None and not self._freed.done():
            self._freed.set_exception(TensorstepError(f"stopped while {SEEKING}", 2))


async def seek(screen: Screen, place: str = "5") -> None:
    await screen.press(";")
    await screen.press_at_once(*place, "enter")


@BOTH_SIZES
async def test_how_far_it_is(size: tuple[int, int]):
    client, clock = HeldClient("seek"), Clock()
    async with opened(size=size, client=client) as screen:
        screen.app.walker.pace = Pace(clock)
        await seek(screen)
        assert client.asking["seek"] == 1
        client.tell(0)
        await screen.settle()
        assert screen.said == f"{SEEKING} {bar(0)} 0 of 1,000 escape: stop"
        clock.now += 10
        client.tell(250)
        await screen.settle()
        screen.check()
        assert screen.said == (f"{SEEKING} {bar(5)} 250 of 1,000 25/s 30 s left escape: stop")
        assert screen.place == (0, "stories")
        client.let_go()
        await screen.settle()
        assert screen.place == (5, "batch.X")
        assert screen.said == ""


async def test_ascii():
    client = HeldClient("seek")
    async with opened(client=client, glyphs=ASCII) as screen:
        await seek(screen)
        client.tell(500)
        await screen.settle()
        assert f"{SEEKING} {bar(10, ASCII)} 500 of 1,000" in screen.said
        assert screen.text.isascii()
        client.let_go()


async def test_a_hostile_name_of_what_is_done():
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        await seek(screen)
        client.tell(5, None, "reading \x1b[31m[red]\u202e\n.txt " + "long" * 100)
        await screen.settle()
        screen.check()
        assert "reading \\e[31m[red]\\u{202e}\\n.txt" in screen.said
        client.let_go()


@BOTH_SIZES
async def test_escape_stops_and_drops_what_was_asked_for_after_it(size: tuple[int, int]):
    client = HeldClient()
    async with opened(size=size, client=client, goto=Place(1, "hidden")) as screen:
        client.held.add("seek")
        await seek(screen)
        client.tell(10)
        await screen.press("n", "n", ".", "m")
        assert screen.place == (1, "hidden")
        await screen.press("escape")
        assert client.cancelled == 1
        assert screen.place == (1, "hidden")
        assert "training map" in screen.lines[0]
        assert screen.said == f"stopped while {SEEKING}"
        await screen.press("n")
        assert screen.place == (1, "logits")
        await screen.press("p", "p")
        assert screen.place == (1, "hidden.pre")
        assert client.asking["seek"] == 1


async def test_escape_and_keys_at_once():
    """Those before the escape are dropped, those after it are answered."""
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        await seek(screen)
        client.tell(10)
        await screen.press_at_once("n", "n", "n", "escape", "n")
        assert screen.place == (0, "split")
        assert client.cancelled == 1


async def test_keys_wait_for_work_that_is_not_stopped():
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        await seek(screen, "5:hidden")
        client.tell(10)
        await screen.press("n", "n", "p")
        assert screen.place == (0, "stories")
        client.let_go()
        await screen.settle()
        assert screen.place == (5, "logits")
        assert client.cancelled == 0


async def test_escape_stops_nothing_where_nothing_takes_long():
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        await screen.press("escape")
        await seek(screen)
        await screen.press("escape")  # nothing was told of yet: it closes, as ever
        assert client.cancelled == 0
        client.tell(10)
        client.let_go()
        await screen.settle()
        assert screen.place == (5, "batch.X")
        await screen.press("escape", "n", "escape")
        assert client.cancelled == 0
        assert screen.state != "batch.X"


async def test_work_that_is_done_is_over():
    """A key after it is no longer taken for a stop, whatever was told last."""
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        for place, step in (("5", 5), ("7", 7)):
            await seek(screen, place)
            client.tell(990)
            client.let_go()
            await screen.settle()
            assert screen.place == (step, "batch.X")
            await screen.press("escape")
            assert client.cancelled == 0
            assert screen.said == ""


async def test_the_same_work_again_is_measured_anew():
    """Stopped, and asked for once more after a while: not at the pace of the while in between."""
    client, clock = HeldClient("seek"), Clock()
    async with opened(client=client) as screen:
        screen.app.walker.pace = Pace(clock)
        await seek(screen)
        client.tell(10)
        clock.now += 10
        client.tell(110)
        await screen.press("escape")
        assert client.cancelled == 1
        clock.now += 1000
        await seek(screen)
        client.tell(120)
        clock.now += 10
        client.tell(220)
        await screen.settle()
        assert "220 of 1,000 10/s 78 s left escape: stop" in screen.said
        client.let_go()


async def test_a_second_escape_stops_once_more():
    client = HeldClient("seek")
    async with opened(client=client) as screen:
        for times in (1, 2):
            await seek(screen)
            client.tell(10)
            await screen.press("escape")
            assert client.cancelled == times
            assert "stopped while" in screen.said
            await screen.press("escape")
            assert client.cancelled == times
            assert screen.said == ""


async def test_progress_while_it_loads():
    """There is nothing to go back to: no key is named that stops it, and none does."""
    client = HeldClient("open")
    client.gate = asyncio.Event()
    async with opened(Options(corpus="storybook:12"), client=client) as screen:
        client.gate.set()
        await screen.settle()
        client.tell(500, 1000, "tokenizing")
        await screen.settle()
        assert screen.said == f"tokenizing {bar(10)} 500 of 1,000"
        await screen.press("n", "escape")
        assert client.cancelled == 0
        client.let_go()
        await screen.ready()
        assert screen.place == (0, "stories")
        assert screen.said == ""


@pytest.mark.parametrize(("method", "keys"), [("audit", "Ca"), ("tokenize", "T"), ("find", "C/")])
async def test_progress_under_the_browser(method: str, keys: str):
    """It is told where it is looked at, and is not left standing on the walk."""
    client = HeldClient(method)
    async with opened(Options(corpus="storybook:12"), client=client) as screen:
        before = screen.lines
        await screen.press(*("slash" if key == "/" else key for key in keys))
        if method == "find":
            await screen.press_at_once(*"pizza", "enter")
        assert client.asking[method] == 1
        client.tell(500, 1000, "tokenizing")
        await screen.settle()
        screen.check()
        assert "500 of 1,000" in screen.text
        client.let_go()
        await screen.settle()
        assert "500 of 1,000" not in screen.text
        while len(screen.app.screen_stack) > 1:
            await screen.press("escape")
        assert screen.lines == before


def test_the_bar_is_drawn_with_its_own_characters():
    assert bar(5) == UNICODE.full * 5 + UNICODE.rest * 15
