"""Training runs for tests: tiny ones, in real processes, with trouble where it is asked for.

A process that imports torch takes seconds to start. A nest is one that has it imported, and forks
a worker for each run: that is there at once, and is otherwise started as any other.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.runs import disk
from engine.runs.directory import RunDirectory
from engine.service.run_client import RunClient, reach
from engine.service.run_options import RunOptions

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds until what does not come is an error
STEPS = 30
TINY = {"corpus": "storybook:40", "context": 8, "batch": 64, "width": 8, "hidden": 16}
TIMES = ("targets_per_second", "time")  # of a line of metrics: never the same twice


def tiny(given: Mapping[str, Any] | None = None, **run: Any) -> RunOptions:
    """Options of a training that takes a tenth of a second."""
    values = {"steps": STEPS, "eval_every": 10, "checkpoint_every": 5, "sample_every": 10}
    values |= {"device": "cpu", **run}
    return RunOptions.by_protocol({**TINY, "model": "mlp", **(given or {})}, **values).check()


def made(path: Path, options: RunOptions | None = None) -> RunDirectory:
    """A run's directory, in which no process has worked yet."""
    options = options or tiny()
    run = RunDirectory(path)
    config = {"kind": "training", "name": path.name, "created": time.time()}
    run.create({**config, "steps": options.steps, "run": options.to_json()})
    return run


def change(run: RunDirectory, **given: Any) -> None:
    """Other options for when it goes on."""
    config = run.read_config()
    options = RunOptions.from_json(config["run"]).resumed_with(given)
    run.write_json(run.config, {**config, "steps": options.steps, "run": options.to_json()})


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for what a condition returns. Raises AssertionError where it does not come in time."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)
    return found


# --- what a run has left ------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one a line, all of them whole."""
    if not path.exists():
        return []
    content = path.read_bytes()
    assert not content or content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics without what depends on the clock."""
    return {name: value for name, value in row.items() if name not in TIMES}


def metrics(run: RunDirectory) -> list[dict[str, Any]]:
    return [numbers(row) for row in lines(run.metrics)]


def tensors(run: RunDirectory, step: int) -> dict[str, tuple[Any, ...]]:
    """What a checkpoint holds: type, shape and bytes of each tensor."""
    from safetensors.numpy import load_file

    found = load_file(run.checkpoints / f"step-{step:08d}" / "state.safetensors")
    return {name: (str(x.dtype), x.shape, x.tobytes()) for name, x in found.items()}


def leftovers(run: RunDirectory) -> list[Path]:
    """What was not written to its end."""
    return [*run.path.rglob(f"{disk.PART}*")]


def said(run: RunDirectory) -> str:
    return run.log.read_text("utf-8", "replace") if run.log.exists() else ""


def assert_same(run: RunDirectory, other: RunDirectory, steps: int = STEPS) -> None:
    """Both have made the same steps, with the same numbers, bit for bit."""
    assert [row["step"] for row in lines(run.metrics)] == list(range(1, steps + 1))
    assert metrics(run) == metrics(other)[:steps]
    assert tensors(run, steps) == tensors(other, steps)
    samples = [each for each in lines(other.samples) if each["step"] <= steps]
    assert lines(run.samples) == samples
    assert not leftovers(run)


# --- processes ----------------------------------------------------------------------------------


class Started:
    """A worker that a nest has started."""

    def __init__(self, nest: Nest, run: RunDirectory, pid: int):
        self.run = run
        self.pid = pid
        self._nest = nest
        self._code: int | None = None

    @property
    def code(self) -> int | None:
        """How it ended (-9: killed); None while it works."""
        if self._code is None:
            self._code = self._nest.ask({"poll": self.pid})["code"]
        return self._code

    def wait(self) -> int:
        until(lambda: self.code is not None, f"the end of the worker, which said\n{said(self.run)}")
        assert self.code is not None
        return self.code

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self.code is None:
            self.send(signal.SIGKILL)
            self.wait()

    def reaches(self, state: str) -> None:
        """Wait until `worker.json` has a state."""
        until(lambda: is_at(self.run, self.pid, state), f"{state}; it said\n{said(self.run)}")


def is_at(run: RunDirectory, pid: int, state: str) -> bool:
    worker = run.read_worker()
    return worker is not None and worker.pid == pid and worker.state == state


class Nest:
    """Starts workers by forking."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.runs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(self, run: RunDirectory, **trouble: Any) -> Started:
        """Start the worker of a run: see `Trouble`."""
        return Started(self, run, self.ask({"dir": str(run.path), **trouble})["pid"])

    def train(self, run: RunDirectory, **trouble: Any) -> int:
        """Have a worker train to its end. Returns its exit code."""
        return self.start(run, **trouble).wait()

    @contextmanager
    def working(self, run: RunDirectory, **trouble: Any) -> Iterator[Started]:
        """A worker that is killed, if it has not ended, when the block ends."""
        started = self.start(run, **trouble)
        try:
            yield started
        finally:
            started.kill()

    def __enter__(self) -> Nest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=PATIENCE)


@asynccontextmanager
async def attached(run: RunDirectory, read_only: bool = False) -> AsyncIterator[RunClient]:
    """A screen of a run, as soon as that listens."""
    client = RunClient(run, read_only)
    await reach(client)
    try:
        await client.open()
        yield client
    finally:
        await client.close()


# --- in the nest --------------------------------------------------------------------------------


class Trouble:
    """What happens to a worker.

    kill_at     it is killed at one of the moments of its writing: before a write, sync or rename,
                half-way in a write, and after each of these; counted from 0
    moments     a file that gets a line for each moment
    kill_in     it is killed in a step, at a state: [step, name]
    full        as long as this file exists the disk is full
    threads     how many torch computes in
    temporary   the folder in which that of the sockets is
    term_in     a SIGTERM comes in this method of the Control, while it holds its lock
    """

    def __init__(self, given: dict[str, Any]):
        self._kill_at = given.get("kill_at")
        self._moments = open(given["moments"], "w") if "moments" in given else None
        self._full = Path(given["full"]) if "full" in given else None
        self._passed = 0
        self._write, self._sync, self._rename = disk.write, disk.sync, disk.rename
        disk.write, disk.sync, disk.rename = self.write, self.sync, self.rename
        if "kill_in" in given:
            kill_in(*given["kill_in"])
        if "threads" in given:
            import torch

            torch.set_num_threads(given["threads"])
        if "temporary" in given:
            from engine.service import sockets

            sockets.TEMPORARY = Path(given["temporary"])
        if "term_in" in given:
            term_in(given["term_in"])

    def passes(self, what: str, where: str) -> None:
        if self._passed == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._passed += 1
        if self._moments is not None:
            print(what, where, file=self._moments, flush=True)

    def write(self, number: int, content: bytes) -> int:
        where = named(opened(number))
        self.passes("before write", where)
        half = len(content) // 2
        if self._full is not None and self._full.exists():
            os.write(number, content[:half])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._passed == self._kill_at:
            os.write(number, content[:half])
        self.passes("half-way in write", where)
        written = self._write(number, content)
        self.passes("after write", where)
        return written

    def sync(self, number: int) -> None:
        where = named(opened(number))
        self.passes("before sync", where)
        self._sync(number)
        self.passes("after sync", where)

    def rename(self, before: Path, after: Path) -> None:
        where = f"{named(before)} to {named(after)}"
        self.passes("before rename", where)
        self._rename(before, after)
        self.passes("after rename", where)


def opened(number: int) -> Path:
    """The file of a descriptor."""
    if sys.platform == "darwin":
        raw = fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024))
        return Path(os.fsdecode(raw.rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{number}"))


def named(path: Path) -> str:
    """What is written, the same for every step and run."""
    name = "run" if (path / "config.json").exists() else path.name
    parent = f"{named(path.parent)}/" if path.parent.name.startswith(disk.PART) else ""
    return parent + re.sub(rf"{re.escape(disk.PART)}(?!step).*", disk.PART, name).rstrip(
        "0123456789"
    )


def kill_in(step: int, name: str) -> None:
    """Kill this process when a step comes to a state."""
    from engine.service.steps import Steps

    plain = Steps.states

    def states(self: Any, number: int) -> Generator[Any, Any, Any]:
        inner = plain(self, number)
        try:
            state = next(inner)
            while True:
                if (number, state.name) == (step, name):
                    os.kill(os.getpid(), signal.SIGKILL)
                state = yield state
                state = inner.send(state)
        except StopIteration as stop:
            return stop.value

    Steps.states = states


def term_in(name: str) -> None:
    """A SIGTERM comes while the loop's thread holds Control's lock in one of its methods."""
    from engine.service.control import Control

    plain = getattr(Control, name)

    def method(self: Any, *given: Any) -> Any:
        lock, sent = self._lock, []

        class Lock:
            def __enter__(self) -> None:
                lock.__enter__()
                if not sent:
                    sent.append(True)
                    os.kill(os.getpid(), signal.SIGTERM)

            def __exit__(self, *ended: Any) -> None:
                lock.__exit__(*ended)

        if self.state == "running":
            self._lock = Lock()
        try:
            return plain(self, *given)
        finally:
            self._lock = lock

    setattr(Control, name, method)


def hatch(request: dict[str, Any]) -> int:
    """Be a worker."""
    from engine.service.run_worker import main

    os.setsid()
    run = RunDirectory(Path(request["dir"]))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(run.path)
    Trouble(request)
    return main([request["dir"]])


def nest() -> None:
    """Fork workers, and tell how they have ended, as long as somebody asks."""
    import engine.service.run_desk
    import engine.service.run_session
    import engine.service.training_run  # noqa: F401, torch and all that a worker imports late

    pids: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            pids.discard(pid)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            pid = os.fork()
            if not pid:
                code = 99
                try:
                    code = hatch(request)
                finally:
                    os._exit(code)
            pids.add(pid)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def fill(run: RunDirectory) -> dict[str, Any]:
    """Be a worker, and beside it somebody who fills its disk while it is paused, has it go on, and
    makes room when it cannot. Tells what came of it."""
    pid = os.fork()
    if not pid:
        os._exit(hatch({"dir": str(run.path)}))
    until(lambda: is_at(run, pid, "paused"), "a pause")
    ballast, full = run.path.parent / "ballast", False
    number = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    while not full:
        try:
            os.write(number, bytes(4096))
        except OSError:
            full = True
    os.close(number)

    async def go_on() -> dict[str, Any]:
        async with attached(run) as client:
            await client.ask("resume")
            while (status := await client.ask("status"))["state"] != "paused":
                pass
            return status

    why = asyncio.run(go_on())["why"]
    # it goes on trying: what it cannot finish is there for a moment
    until(lambda: not leftovers(run), "that what could not be written is gone")
    ballast.unlink()
    assert os.waitpid(pid, 0)[1] == 0, said(run)
    state = json.loads((run.checkpoints / f"step-{STEPS:08d}" / "state.json").read_bytes())
    parts = [*map(str, leftovers(run))]
    return {"why": why, "parts": parts, "metrics": lines(run.metrics), "sha256": state["sha256"]}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(fill(RunDirectory(Path(sys.argv[1])))))
    else:
        nest()
