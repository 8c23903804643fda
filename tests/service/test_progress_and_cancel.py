"""Progress before an answer, and giving up: by small workers that speak the protocol, and by the
real one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.errors import TensorstepError
from engine.progress import Progress
from engine.service.client import Client
from engine.service.connection import WorkerDied
from engine.service.options import Options
from tests.service.test_client import FOR_EVER, ask, dies, started
from tests.tui.desk import DeskClient

TELL = """
def tell(request, what, done, total, **more):
    say({"id": request["id"], "progress": {"what": what, "done": done, "total": total, **more}})
"""
MLP = {"map": "training", "model": "mlp"}


# --- progress --------------------------------------------------------------------------------


async def test_progress_arrives_before_the_answer():
    body = f"""{TELL}
def answer(request):
    for done in range(0, 30, 10):
        tell(request, "training", done, 30)
    say({{"id": request["id"], "result": request["params"]}}, b"cells")
serve(answer)
"""
    async with started(body) as client:
        told: list[Progress] = []
        answered: list[bool] = []
        client.on_progress = lambda progress: (told.append(progress), answered.append(asked.done()))
        asked = asyncio.ensure_future(client.ask_bytes("move", step=3))
        assert await asyncio.wait_for(asked, 30) == ({"step": 3}, b"cells")
        assert told == [Progress("training", done, 30) for done in (0, 10, 20)]
        assert answered == [False] * 3


async def test_progress_whose_end_is_not_known():
    body = f"""{TELL}
def answer(request):
    tell(request, "reading é \\x1b[31m", 7, None, more=[1])
    say({{"id": request["id"], "result": {{}}}})
serve(answer)
"""
    async with started(body) as client:
        told: list[Progress] = []
        client.on_progress = told.append
        assert await ask(client) == {}
        assert told == [Progress("reading é \x1b[31m", 7, None)]


async def test_progress_between_the_answers_of_many():
    """Each gets its own answer, whatever was told in between; a payload is passed over."""
    body = f"""{TELL}
def answer(request):
    say({{"id": request["id"], "progress": {{"what": "x", "done": 1, "total": 2}}}}, b"bytes" * 50)
    tell({{"id": request["id"] + 1}}, "another", 1, 2)
    say({{"id": request["id"], "result": request["params"]}})
serve(answer)
"""
    async with started(body) as client:
        told: list[Progress] = []
        client.on_progress = told.append
        asked = [client.ask("count", number=number) for number in range(50)]
        answers = await asyncio.wait_for(asyncio.gather(*asked), 30)
        assert answers == [{"number": number} for number in range(50)]
        assert told == [Progress("x", 1, 2), Progress("another", 1, 2)] * 50


async def test_progress_before_an_error():
    error = {"sentence": "stopped while x", "exit_code": 2}
    body = f"""{TELL}
def answer(request):
    tell(request, "x", 1, 2)
    say({{"id": request["id"], "error": {error}}})
serve(answer)
"""
    async with started(body) as client:
        told: list[Progress] = []
        client.on_progress = told.append
        for _ in range(2):
            with pytest.raises(TensorstepError, match=r"^stopped while x$") as raised:
                await ask(client)
            assert raised.value.exit_code == 2
        assert told == [Progress("x", 1, 2)] * 2


async def test_nobody_has_to_listen():
    body = f"{TELL}\nserve(lambda r: (tell(r, 'x', 1, 2), say({{'id': r['id'], 'result': {{}}}})))"
    async with started(body) as client:
        assert await ask(client) == {}


@pytest.mark.parametrize(
    "progress",
    [
        *("None", "[]", "'x'", "3", "{}", "{'what': 'x'}", "{'done': 3}"),
        "{'what': 3, 'done': 3, 'total': 3}",
        "{'what': 'x', 'done': '3', 'total': 3}",
        "{'what': 'x', 'done': None, 'total': 3}",
        "{'what': 'x', 'done': 0.5, 'total': 3}",
    ],
)
async def test_progress_that_is_none(progress: str):
    """A broken frame: the worker is ended, whoever waits is told."""
    body = f"""
request = asked()[0]
say({{"id": request["id"], "progress": {progress}}})
say({{"id": request["id"], "result": {{}}}})
asked()
{FOR_EVER}
"""
    async with started(body) as client:
        told: list[Progress] = []
        client.on_progress = told.append
        with dies("the worker died", "is no progress"):
            await ask(client)
        assert told == []
        with pytest.raises(ProcessLookupError):
            os.kill(client.pid or 0, 0)


# --- giving up -------------------------------------------------------------------------------

KEEPS = """
seen = []
while (frame := asked()) is not None:
    header = frame[0]
    seen.append([header["id"], header["method"], *sorted(set(header) - {"id", "method"})])
    if header["method"] == "list":
        say({"id": header["id"], "result": {"seen": seen}})
    if header["method"] == "cancel":
        error = {"sentence": "stopped while waiting", "exit_code": 2}
        say({"id": header["id"], "error": error})
"""


async def test_cancel_sends_the_id_in_hand():
    """Of several that wait it is the first asked, which the worker is busy with."""
    async with started(KEEPS) as client:
        waiting = [asyncio.ensure_future(client.ask("wait")) for _ in range(3)]
        await asyncio.sleep(0)  # so that they have asked
        client.cancel()
        with pytest.raises(TensorstepError, match="stopped while waiting") as told:
            await asyncio.wait_for(waiting[0], 30)
        assert told.value.exit_code == 2
        assert not isinstance(told.value, WorkerDied)
        client.cancel()
        with pytest.raises(TensorstepError, match="stopped while waiting"):
            await asyncio.wait_for(waiting[1], 30)
        found = await ask(client, "list")
        assert found["seen"] == [
            *([number, "wait", "params"] for number in (1, 2, 3)),
            [1, "cancel"],
            [2, "cancel"],
            [4, "list", "params"],
        ]
        assert not waiting[2].done()
        waiting[2].cancel()


async def test_nothing_is_given_up_where_nothing_is_asked():
    async with started(KEEPS) as client:
        client.cancel()
        assert (await ask(client, "list"))["seen"] == [[1, "list", "params"]]
        client.cancel()
        assert len((await ask(client, "list"))["seen"]) == 2
    client.cancel()  # closed


async def test_cancel_before_the_start():
    client = Client()
    client.cancel()
    await client.close()


async def test_cancel_of_a_worker_that_is_dead():
    async with started("asked(); sys.exit(3)") as client:
        with dies("exit code 3"):
            await ask(client)
        client.cancel()
        with dies("exit code 3"):
            await ask(client)


# --- the real worker -------------------------------------------------------------------------


@asynccontextmanager
async def working(options: Options) -> AsyncIterator[Client]:
    client = Client()
    await client.start()
    try:
        await ask(client, "open", options=options.to_json())
        yield client
    finally:
        await client.close()


def place(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["state"]["step"], answer["state"]["name"]


async def test_a_far_seek_is_stopped():
    """At the first sign of progress; the cursor is where it was, the worker answers, and the walk
    goes on to the same numbers as one that nobody stopped."""
    async with working(Options(model="mlp")) as client:
        await ask(client, "move", **MLP, how="seek", step=1, name="hidden")
        before = await ask(client, "dump", **MLP, max_values=100)
        told: list[Progress] = []

        def stop(progress: Progress) -> None:
            told.append(progress)
            client.cancel()

        client.on_progress = stop
        with pytest.raises(TensorstepError, match=r"^stopped while \S") as raised:
            await ask(client, "move", **MLP, how="seek", step=100_000)
        assert type(raised.value) is TensorstepError
        assert raised.value.exit_code == 2
        assert told[0].what in str(raised.value)
        assert told[0].total == 100_000 - 1
        assert 0 < told[0].done < 100_000
        client.on_progress = told.append
        assert await ask(client, "dump", **MLP, max_values=100) == before
        assert place(await ask(client, "look", **MLP)) == (1, "hidden")
        assert place(await ask(client, "move", **MLP, how="forward")) == (1, "logits")
        found = await ask(client, "move", **MLP, how="seek", step=3, name="loss")
        assert place(found) == (3, "loss")
        stopped = await ask(client, "dump", **MLP, max_values=100)
    desk = DeskClient()
    await desk.ask("open", options=Options(model="mlp").to_json())
    await desk.ask("move", **MLP, how="seek", step=3, name="loss")
    assert await desk.ask("dump", **MLP, max_values=100) == stopped


async def test_only_the_one_in_hand_is_given_up():
    """Those asked after it are answered; a cancel that comes when the answer is on its way does no
    harm; the next far seek is not stopped by the last cancel."""
    async with working(Options(model="mlp")) as client:
        for _ in range(50):
            asked = asyncio.ensure_future(client.ask("look", **MLP))
            await asyncio.sleep(0)
            client.cancel()
            assert place(await asyncio.wait_for(asked, 30)) == (0, "stories")
        found = await ask(client, "move", **MLP, how="seek", step=1, name="loss")
        assert place(found) == (1, "loss")
        client.on_progress = lambda progress: client.cancel()
        far = asyncio.ensure_future(client.ask("move", **MLP, how="seek", step=100_000))
        after = asyncio.ensure_future(client.ask("look", **MLP))
        with pytest.raises(TensorstepError, match="stopped while"):
            await asyncio.wait_for(far, 30)
        assert place(await asyncio.wait_for(after, 30)) == (1, "loss")
        told: list[Progress] = []
        first = asyncio.Event()

        def listen(progress: Progress) -> None:
            told.append(progress)
            if len(told) > 1:
                first.set()

        client.on_progress = listen
        again = asyncio.ensure_future(client.ask("move", **MLP, how="seek", step=100_000))
        await asyncio.wait_for(first.wait(), 30)
        assert not again.done()
        client.cancel()
        with pytest.raises(TensorstepError, match="stopped while"):
            await asyncio.wait_for(again, 30)
        assert json.dumps(told[0].what) in json.dumps([each.what for each in told[1:]])
        assert told[1].done > told[0].done
