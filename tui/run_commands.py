"""The commands of training runs: `train`, `attach`, `runs` and `stop`."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from engine.errors import TensorstepError, UsageError
from engine.runs.directory import (
    ALIVE,
    ELSEWHERE,
    ENDED,
    FINISHED,
    RunDirectory,
    named_run,
    new_run,
    run_named,
    runs_folder,
    runs_in,
)
from engine.service.connection import WorkerDied
from engine.service.options import Options
from engine.service.run_client import RunClient, reach
from engine.service.run_options import RunOptions
from tui.following import follow, leave
from tui.plain import shown
from tui.run_arguments import RUN, check_train

# -P: a folder called `engine` where the user happens to stand is not the engine
COMMAND = (sys.executable, "-P", "-m", "engine.service.run_worker")
WALK = {each.name for each in fields(Options)}
ENDINGS = {"died": "has died", "failed": "has failed", "stopped": "was stopped"}
ENDINGS |= {"finished": "has finished", "elsewhere": "is on another host"}
STOPPING = 60.0  # seconds in which a run ends its step and saves


def train(given: argparse.Namespace, open_screen: Any) -> int:
    """Start a run, or go on with one, and watch it. Returns the exit code.

    open_screen  opens the live screen of a run, and returns the exit code
    """
    values = {key: value for key, value in vars(given).items() if value is not None}
    check_train(values)
    run = resumed(values) if "resume" in values else started(values)
    try:
        wait_for(run, launch(run))
        if "no_screen" in values:
            return follow(run, "json" in values)
    except KeyboardInterrupt:
        return leave(run)
    return int(open_screen(run, read_only=False))


def started(values: dict[str, Any]) -> RunDirectory:
    """A new run's directory, with its config. Raises UsageError for options that cannot be used."""
    options = run_options(values).check()
    if values.get("run_dir") == "":
        raise UsageError("--run-dir names no directory: give one")
    if "run_dir" in values:
        run = RunDirectory(Path(values["run_dir"]).expanduser())
    else:
        run = new_run(values.get("name"), options.walk.model)
    config = {"kind": "training", "name": values.get("name") or run.path.name}
    config |= {"created": time.time(), "steps": options.steps, "run": options.to_json()}
    run.create(config)
    return run


def resumed(values: dict[str, Any]) -> RunDirectory:
    """The directory of a run that is to go on. Raises TensorstepError where it cannot."""
    run = run_named(values["resume"])
    config = run.read_config()
    if config["kind"] != "training":
        raise UsageError(
            f"{run.name!r} is a loop of your own, which was watched: start it again yourself"
        )
    if run.state() in ALIVE:
        raise UsageError(
            f"the run {run.name!r} is going: `tensorstep attach {run.handle}` shows it"
        )
    own = {key: value for key, value in values.items() if key in WALK}
    if "no_clip" in values:
        own["clip"] = None
    options = RunOptions.from_json(config["run"]).resumed_with({**own, **run_values(values)})
    if run.state() == FINISHED and options.steps <= config["run"]["steps"]:
        raise UsageError(
            f"the run {run.name!r} has done all its {options.steps} steps: give more --steps"
        )
    if options.to_json() != config["run"]:
        run.write_json(run.config, {**config, "steps": options.steps, "run": options.to_json()})
    return run


def run_options(values: dict[str, Any]) -> RunOptions:
    """What a new run is started with, of what was given."""
    walk = {key: value for key, value in values.items() if key in WALK and key not in RUN}
    if "no_clip" in values:
        walk["clip"] = None
    return RunOptions.by_protocol(walk, **run_values(values))


def run_values(values: dict[str, Any]) -> dict[str, Any]:
    """What was given of a run's own options."""
    given = {name: values[name] for name in RUN if name in values}
    if "breaks" in given:
        given["breaks"] = tuple(given["breaks"])
    if "edits" in given:
        given["edits"] = tuple(
            f"{edit.place.step}:{edit.place.name}:{','.join(map(str, edit.place.cell or ()))}"
            f"={edit.value}"
            for edit in given["edits"]
        )
    return given


def launch(run: RunDirectory) -> subprocess.Popen[bytes]:
    """Start the process that trains: in a session of its own, so that a hang-up is not for it."""
    with run.log.open("ab") as log:
        return subprocess.Popen(  # noqa: S603, its command is ours
            [*COMMAND, str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=run.path,
        )


def wait_for(run: RunDirectory, process: subprocess.Popen[bytes]) -> None:
    """Until the process listens. Raises TensorstepError where it ends instead."""
    while process.poll() is None:
        worker = run.read_worker()
        if worker is not None and worker.pid == process.pid:
            return
        time.sleep(0.02)
    worker = run.read_worker()
    if worker is not None and worker.pid == process.pid and worker.state == "finished":
        return
    lines = run.log.read_text("utf-8", "replace").splitlines()
    raise TensorstepError(
        f"the run {run.name!r} did not start: {lines[-1] if lines else 'it said nothing'}"
    )


def chosen_run(name: str | None) -> RunDirectory:
    """The run that is to be attached to: by name, or the newest one that goes on. Raises
    TensorstepError where there is none, or where it is on another host."""
    if name is not None:
        if name.isdigit() and not named_run(name).exists:
            raise UsageError(
                f"process {name} cannot be attached to: only runs can, which `tensorstep train` or"
                " engine.watch started; `tensorstep runs` lists them"
            )
        run = run_named(name)
    else:
        found = next((run for run in runs_in(runs_folder()) if run.state() in ALIVE), None)
        if found is None:
            raise UsageError(
                "no run is going: `tensorstep train` starts one, `tensorstep runs` lists those that"
                " have ended"
            )
        run = found
    worker = run.read_worker()
    if run.state() == ELSEWHERE and worker is not None:
        raise TensorstepError(
            f"the run {run.name!r} is on {worker.host}: attach there, for example by"
            f" `ssh {worker.host}`"
        )
    return run


def stop(name: str) -> int:
    """Have a run save and end; waits until it has. Returns the exit code."""
    run = chosen_run(name)
    if run.state() not in ALIVE:
        raise UsageError(f"the run {run.name!r} does not go on: it {ENDINGS[run.state()]}")

    async def ask() -> None:
        client = RunClient(run)
        await reach(client)
        try:
            await client.open()
            await client.ask("stop")
        except WorkerDied:  # so soon
            pass
        finally:
            await client.close()

    asyncio.run(ask())
    until = time.monotonic() + STOPPING
    while run.state() not in ENDED:
        if time.monotonic() > until:
            raise TensorstepError(
                f"the run {run.name!r} was asked to stop and is still in its step:"
                " `tensorstep runs` tells when it has ended"
            )
        time.sleep(0.05)
    standing = run.standing()
    print(f"{shown(run.name)} is {standing['state']} at step {standing['step']}")
    return 0


COLUMNS = ("name", "state", "step", "loss", "age", "host", "pid", "dir")


def print_runs(folder: str | None, as_json: bool) -> int:
    """List the runs. Returns the exit code."""
    import json

    where = Path(folder).expanduser() if folder else runs_folder()
    if folder and not where.is_dir():
        raise UsageError(f"there is no folder {folder!r}: give one that has runs")
    rows = [run.standing() for run in runs_in(where)]
    if as_json:
        print(json.dumps(rows))
        return 0
    if not rows:
        print(f"no run is in {shown(str(where))}: `tensorstep train` starts one")
        return 0
    table = [[written(name, row[name]) for name in COLUMNS] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(COLUMNS, *table, strict=True)]
    for line in [list(COLUMNS), *table]:
        cells = (
            text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)
        )
        print("  ".join(cells).rstrip())
    return 0


def written(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "loss" and isinstance(value, float):
        return f"{value:.4f}"
    if name == "age":
        return aged(value)
    if name == "dir":
        home = str(Path.home())
        value = value.replace(home, "~", 1) if value.startswith(home + os.sep) else value
    return shown(str(value))


def aged(seconds: float) -> str:
    """How long ago: 12 s, 3 min, 2 h, 5 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
