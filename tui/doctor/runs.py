"""Where runs are kept, and where they listen to those who attach."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from engine.service.sockets import TEMPORARY
from tui.doctor.machine import BAD, NOTE, OK, Finding, Machine, read

LITTLE = 1e9  # bytes free, below which a run's checkpoints may not fit
NETWORKS = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "gpfs", "beegfs", "afs"),
    *("fuse.sshfs", "fuse.ceph", "fuse.glusterfs"),
)
STARTED = "`tensorstep train` or `engine.watch` started it"


def run_folder(machine: Machine) -> Iterator[Finding]:
    """Whether runs can be kept there, and reached."""
    folder, mend = machine.runs, "set XDG_STATE_HOME to a folder on another disk"
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        what = f"runs are kept in {folder}, but {there} cannot be written"
        yield Finding("run folder", what, BAD, f"let yourself write there, or {mend}")
        return
    free = shutil.disk_usage(there).free
    what = f"runs are kept in {folder}, {free / 1e9:,.1f} GB are free"
    yield Finding("run folder", what, *((NOTE, mend) if free < LITTLE else (OK, "")))
    kind = file_system(read(machine.root / "proc/mounts"), there.resolve())
    if kind in NETWORKS:
        what = f"it is on a network file system ({kind}): locks there may reach nobody else"
        yield Finding("run folder", what, NOTE, "attach on the machine that trains, or " + mend)


def file_system(mounts: str, folder: Path) -> str:
    """The kind of file system a folder is on; empty where it is not known."""
    kind, deepest = "", -1
    for _, point, found, *_ in (line.split() for line in mounts.splitlines()):
        path = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point))
        if folder.is_relative_to(path) and len(path.parts) >= deepest:
            kind, deepest = found, len(path.parts)
    return kind


def attaching(machine: Machine) -> Iterator[Finding]:
    """Where a run listens, and which runs do."""
    where = machine.root / TEMPORARY.relative_to("/")
    folder = where / f"tensorstep-{os.getuid()}"
    can = f"a run can be attached to where {STARTED}"
    trouble, mend = unfit(folder)
    if trouble:
        what = f"{can}; but its socket is to be in {folder}, and {trouble}"
        yield Finding("attaching", what, BAD, mend)
    else:
        what = f"{can}; its socket is in {folder}, which only you can enter"
        yield Finding("attaching", what)


def unfit(folder: Path) -> tuple[str, str]:
    """Why there can be no sockets in a folder, and the mend; empty where there can be."""
    try:
        found = folder.lstat()
    except OSError:  # it is made, private, when the first run starts
        where = folder.parent
        if where.is_dir() and os.access(where, os.W_OK | os.X_OK):
            return "", ""
        return f"{where} cannot be written", f"let yourself write in {where}"
    if found.st_uid != os.getuid():
        return "it is somebody else's", "have its owner, or the administrator, remove it"
    if not stat.S_ISDIR(found.st_mode):
        return "that is no folder", f"`rm {folder}`"
    if found.st_mode & 0o077:
        return "others could enter it", f"`chmod 700 {folder}`"
    return "", ""
