"""The client: answers to whoever asked, sentences for mistakes, last words of a worker that dies.

Most workers here are a few lines of Python that speak the protocol, so that they start at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from engine.errors import TensorstepError
from engine.service.client import Client, ending
from engine.service.connection import WorkerDied, WorkerError

SPEAKS = """
import os, signal, sys, time
from engine.service.protocol import encode, read_frame

def asked():
    return read_frame(sys.stdin.buffer)

def say(header, payload=b""):
    sys.stdout.buffer.write(encode(header, payload))
    sys.stdout.buffer.flush()

def serve(answer):
    while (frame := asked()) is not None:
        answer(frame[0])
"""
ECHO = "serve(lambda r: say({'id': r['id'], 'result': r['params']}, r['method'].encode()))"
FOR_EVER = "signal.pause()"


def worker(body: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-c", SPEAKS + body)


@asynccontextmanager
async def started(body: str) -> AsyncIterator[Client]:
    client = Client(worker(body))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def dies(*words: str) -> Iterator[None]:
    """The block raises WorkerDied (and an exit code of 1) with these words in its sentence."""
    with pytest.raises(WorkerDied) as told:
        yield
    for word in words:
        assert word in str(told.value)
    assert told.value.exit_code == 1


async def ask(client: Client, method: str = "anything", **params: object) -> dict:
    """An answer, or an error: never a test that hangs."""
    return await asyncio.wait_for(client.ask(method, **params), 30)


def is_gone(pid: int) -> bool:
    """No such process, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- answers ---------------------------------------------------------------------------------


async def test_answers_and_bytes():
    async with started(ECHO) as client:
        assert await client.ask_bytes("look", name="é → 漢", step=3) == (
            {"name": "é → 漢", "step": 3},
            b"look",
        )
        assert await client.ask("look") == {}
        assert not is_gone(client.pid)


async def test_many_at_once_each_get_their_own():
    async with started(ECHO) as client:
        asked = [client.ask("count", number=number) for number in range(200)]
        answers = await asyncio.wait_for(asyncio.gather(*asked), 30)
        assert answers == [{"number": number} for number in range(200)]


async def test_requests_are_sent_in_the_order_they_were_asked():
    """The worker numbers them as they come."""
    numbered = """
count = 0
def answer(request):
    global count
    count += 1
    say({"id": request["id"], "result": {"place": count, **request["params"]}})
serve(answer)
"""
    async with started(numbered) as client:
        asked = [client.ask("count", number=number) for number in range(1, 50)]
        answers = await asyncio.wait_for(asyncio.gather(*asked), 30)
        assert answers == [{"place": number, "number": number} for number in range(1, 50)]


async def test_answers_that_come_in_another_order():
    turned = """
first, second = asked()[0], asked()[0]
for request in (second, first):
    say({"id": request["id"], "result": request["params"]})
asked()
"""
    async with started(turned) as client:
        answers = await asyncio.wait_for(
            asyncio.gather(client.ask("a", is_="first"), client.ask("b", is_="second")), 30
        )
        assert answers == [{"is_": "first"}, {"is_": "second"}]


async def test_an_answer_that_nobody_waits_for_any_more():
    """Who asked has given up: the late answer is dropped, the next one is not mixed up with it."""
    late = """
first = asked()[0]
second = asked()[0]
for request in (first, second):
    say({"id": request["id"], "result": request["params"]})
asked()
"""
    async with started(late) as client:
        given_up = asyncio.create_task(client.ask("a", number=1))
        await asyncio.sleep(0)  # so that it has asked
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert await ask(client, number=2) == {"number": 2}


async def test_an_answer_of_many_megabytes():
    large = "serve(lambda r: say({'id': r['id'], 'result': {}}, bytes(range(256)) * 20_000))"
    async with started(large) as client:
        assert (await client.ask_bytes("table"))[1] == bytes(range(256)) * 20_000


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2])
async def test_a_mistake_of_the_user(code: int):
    error = {"sentence": "no state is called 'x'", "exit_code": code}
    async with started(f"serve(lambda r: say({{'id': r['id'], 'error': {error}}}))") as client:
        with pytest.raises(TensorstepError, match=r"^no state is called 'x'$") as told:
            await ask(client)
        assert told.value.exit_code == code
        assert not isinstance(told.value, (WorkerError, WorkerDied))


async def test_a_failure_of_the_worker_comes_with_its_trace():
    error = {"sentence": "the worker failed: KeyError: 1", "exit_code": 1, "trace": "Traceback"}
    async with started(f"serve(lambda r: say({{'id': r['id'], 'error': {error}}}))") as client:
        for _ in range(2):  # and it goes on answering
            with pytest.raises(WorkerError, match=r"^the worker failed: KeyError: 1$") as told:
                await ask(client)
            assert (told.value.trace, told.value.exit_code) == ("Traceback", 1)


# --- a worker that dies ----------------------------------------------------------------------


async def test_last_words():
    body = """
asked()
for line in ("first", "", "second", "  CUDA error: \\x1b[31mout of memory", "good bye"):
    print(line, file=sys.stderr)
sys.exit(3)
"""
    async with started(body) as client:
        with dies("the worker died, exit code 3", "its last words: second / CUDA", "/ good bye"):
            await ask(client)
        with dies("the worker died, exit code 3"):  # asked again, told again
            await ask(client)


async def test_a_worker_that_says_nothing():
    async with started("asked(); sys.exit(0)") as client:
        with dies("the worker died, exit code 0; it said nothing"):
            await ask(client)


async def test_a_worker_that_is_killed():
    async with started(ECHO) as client:
        assert await ask(client) == {}
        os.kill(client.pid, signal.SIGKILL)
        with dies("the worker died, killed by SIGKILL"):
            await ask(client)


async def test_everybody_who_waits_is_told():
    async with started("asked(); asked(); asked(); sys.exit(9)") as client:
        asked = [client.ask("look") for _ in range(3)]
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
        assert [type(answer) for answer in answers] == [WorkerDied] * 3
        assert {str(answer) for answer in answers} == {
            "the worker died, exit code 9; it said nothing"
        }


async def test_a_worker_that_dies_in_the_middle_of_an_answer():
    half = """
request = asked()[0]
sys.stdout.buffer.write(encode({"id": request["id"], "result": {}}, b"cells")[:-2])
sys.stdout.buffer.flush()
sys.exit(4)
"""
    async with started(half) as client:
        with dies("the worker died, exit code 4"):
            await ask(client)


@pytest.mark.parametrize("then", ["sys.exit(0)", FOR_EVER], ids=["ends", "lives on"])
async def test_garbage_on_its_output(then: str):
    """Whether it ends then or not: what comes after garbage cannot be read."""
    body = f"asked(); print('Downloading: 100%', flush=True); {then}"
    async with started(body) as client:
        with dies("the worker died", "cannot be meant"):
            await ask(client)


@pytest.mark.parametrize(
    "answer",
    ["{}", "{'id': request['id']}", "{'id': [1], 'result': {}}", "{'id': None, 'error': 'x'}"],
)
async def test_answers_that_are_none(answer: str):
    """JSON in a frame, but no answer to anything that was asked: it is not waited for for ever."""
    body = f"request = asked()[0]; say({answer}); asked(); {FOR_EVER}"
    async with started(body) as client:
        with dies("the worker died", "is no answer"):
            await ask(client)


async def test_a_worker_that_cannot_be_started():
    client = Client(("/nowhere/python", "-c", "1"))
    with dies("the worker could not be started", "/nowhere/python"):
        await client.start()
    with dies("the worker was not started"):
        await ask(client)
    await client.close()


async def test_asking_before_the_start():
    client = Client()
    assert client.pid is None
    with dies("the worker was not started"):
        await ask(client)
    await client.close()


# --- the end ---------------------------------------------------------------------------------


async def test_close_ends_the_process():
    client = Client(worker(ECHO))
    await client.start()
    pid = client.pid
    assert await ask(client) == {}
    await client.close()
    assert is_gone(pid)
    with dies("the worker"):
        await ask(client)
    await client.close()  # a second time does no harm


async def test_close_leaves_no_zombie_of_a_worker_that_had_died():
    client = Client(worker("asked(); sys.exit(5)"))
    await client.start()
    pid = client.pid
    with dies("exit code 5"):
        await ask(client)
    await client.close()
    assert is_gone(pid)


async def test_close_ends_a_worker_that_does_not_listen():
    client = Client(worker(f"say({{'id': 1, 'result': {{}}}}); {FOR_EVER}"))
    await client.start()
    pid = client.pid
    assert await ask(client) == {}
    await client.close()
    assert is_gone(pid)


async def test_whoever_waits_when_it_is_closed_is_told():
    async with started("asked(); asked()") as client:
        waiting = asyncio.create_task(client.ask("look"))
        await asyncio.sleep(0)  # so that it has asked
        await client.close()
        with dies("the worker"):  # died or was closed, whatever it came to first
            await asyncio.wait_for(waiting, 30)


async def test_ctrl_c_and_hang_up_do_not_reach_the_worker():
    """It has a session of its own."""
    async with started(ECHO) as client:
        assert os.getsid(client.pid) == client.pid != os.getsid(0)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-222, "killed by signal 222"),
    ],
)
def test_how_a_process_ended(code: int, words: str):
    assert ending(code) == words


# --- the real worker -------------------------------------------------------------------------


async def test_a_folder_called_engine_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is not the engine, and neither is a module of its own called torch."""
    (tmp_path / "engine").mkdir()
    for name in ("engine/__init__.py", "torch.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    client = Client()
    await client.start()
    try:
        with pytest.raises(TensorstepError, match="nothing is open yet") as told:
            await ask(client, "look", map="training", model="mlp")
        assert told.value.exit_code == 2
    finally:
        await client.close()
