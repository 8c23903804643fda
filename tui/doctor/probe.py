"""Asks torch, and the commands of the system, in processes of their own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from engine.service.client import LAST_WORDS, ending
from tui.doctor.machine import Machine

PATIENCE = 60  # seconds for torch, which may lie on a cold disk
SOON = 5  # seconds for other commands
QUIETLY: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "capture_output": True,
    "text": True,
    "errors": "replace",
}

PROBE = """
import json, torch

def tried(name, what, bf16):
    try:
        torch.ones(2, device=name).sum().item()
        return {"name": name, "what": what, "bf16": bool(bf16()), "trouble": ""}
    except Exception as error:
        return {"name": name, "what": what, "bf16": False, "trouble": str(error).split("\\n")[0]}

def works(name):
    x = torch.ones(2, 2, dtype=torch.bfloat16, device=name)
    return (x @ x).sum().item() == 8

def native(number):
    with torch.cuda.device(number):
        return torch.cuda.is_bf16_supported(including_emulation=False)

devices = [
    tried(f"cuda:{k}", torch.cuda.get_device_name(k), lambda k=k: native(k))
    for k in range(torch.cuda.device_count())
]
if torch.backends.mps.is_available():
    devices.append(tried("mps", "Apple GPU", lambda: works("mps")))
devices.append(tried("cpu", torch.backends.cpu.get_cpu_capability(), lambda: works("cpu")))
print(json.dumps({
    "version": torch.__version__,
    "built_for": torch.version.cuda or torch.version.hip,
    "threads": torch.get_num_threads(),
    "devices": devices,
}))
"""


def this_machine() -> Machine:
    from engine.runs.directory import runs_folder

    sizes = os.get_terminal_size(sys.stdout.fileno()) if sys.stdout.isatty() else None
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return Machine(
        environment=os.environ,
        run=run,
        torch=ask_torch(),
        size=None if sizes is None else (sizes.columns, sizes.lines),
        cpus=len(usable) or os.cpu_count() or 1,
        user=user_name(),
        runs=runs_folder(),
        system=platform.system(),
    )


def user_name() -> str:
    """Of the user this runs as, whatever the environment says."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container that does not know its user
        return str(os.getuid())


def ask_torch(command: Sequence[str] = (sys.executable, "-P", "-c", PROBE)) -> dict[str, Any] | str:
    """What torch says of itself, in a process of its own: the screen's never imports it."""
    try:
        done = subprocess.run(command, **QUIETLY, timeout=PATIENCE)  # noqa: S603 -- our own
    except subprocess.TimeoutExpired:
        return f"torch was not there after {PATIENCE} s"
    except OSError as error:
        return f"Python could not be started to ask torch: {error}"
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (IndexError, ValueError):
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()][-LAST_WORDS:]
        how = ending(done.returncode)
        return f"torch does not work ({how}); its last words: {' / '.join(said) or 'none'}"


def run(command: Sequence[str]) -> str | None:
    """What a command prints; None where it fails or is not there."""
    try:
        done = subprocess.run(command, **QUIETLY, timeout=SOON)  # noqa: S603 -- our own
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
