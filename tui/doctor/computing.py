"""What computes here: versions, devices, threads."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from tui.doctor.machine import BAD, NOTE, Finding, Machine


def versions(machine: Machine) -> Iterator[Finding]:
    names = ("tensorstep", "textual", "rich")
    parts = [f"{name} {version_of(name)}" for name in names]
    parts.insert(1, f"Python {platform.python_version()}")
    if not isinstance(machine.torch, str):
        parts.insert(2, f"torch {machine.torch['version']}")
    yield Finding("versions", f"{', '.join(parts)}; {platform.platform()}")
    if isinstance(machine.torch, str):
        mend = f"`{sys.executable} -m pip install --force-reinstall torch`"
        yield Finding("versions", machine.torch, BAD, mend)


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def device(machine: Machine) -> Iterator[Finding]:
    """Each device on which torch computes."""
    if isinstance(machine.torch, str):
        return
    devices = machine.torch["devices"]
    for each in devices:
        what = f"{each['name']}, {each['what']}"
        if each["trouble"]:
            mend = "`nvidia-smi` tells who uses it; CUDA_VISIBLE_DEVICES= does without it"
            yield Finding("device", f"{what}, does not answer: {each['trouble']}", NOTE, mend)
        else:
            yield Finding("device", f"{what}; bfloat16: {'yes' if each['bf16'] else 'no'}")
    if len(devices) == 1 and (machine.root / "proc/driver/nvidia/version").exists():
        made = machine.torch["built_for"]
        why = f"finds no GPU that its CUDA {made} can use" if made else "is a build without CUDA"
        mend = "`nvidia-smi` tells the driver's CUDA; pytorch.org has the torch that goes with it"
        yield Finding("device", f"there is an NVIDIA driver, but torch {why}", NOTE, mend)


def threads(machine: Machine) -> Iterator[Finding]:
    asked = machine.environment.get("OMP_NUM_THREADS")
    set_to = "is not set" if asked is None else f"is {asked}"
    what = f"this process may use {machine.cpus} of the CPUs; OMP_NUM_THREADS {set_to}"
    if isinstance(machine.torch, str):
        yield Finding("threads", what)
        return
    used = machine.torch["threads"]
    what = f"torch computes in {used} threads; {what}"
    if used > machine.cpus:
        mend = f"`export OMP_NUM_THREADS={machine.cpus}`"
        yield Finding("threads", f"{what}: they wait for each other", NOTE, mend)
    else:
        yield Finding("threads", what)
