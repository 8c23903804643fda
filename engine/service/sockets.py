"""Sockets of runs: in a folder that only their user can enter, with names short enough for a
socket, and nobody else is answered."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import sys
from pathlib import Path

from engine.errors import TensorstepError

TEMPORARY = Path("/tmp")  # noqa: S108, whose the folder in it is is checked; TMPDIR may be too long


def socket_folder() -> Path:
    """The user's folder for sockets, made where it is missing. It is not in XDG_RUNTIME_DIR, which
    goes when its user logs out: the runs do not.

    Raises TensorstepError where somebody else could enter it.
    """
    folder = TEMPORARY / f"tensorstep-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise TensorstepError(
            f"there can be no folder for sockets at {str(folder)!r} ({error.strerror}): make room"
            " for it there"
        ) from None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.getuid():
        raise TensorstepError(
            f"others could enter {str(folder)!r}, where sockets are to be: remove it, or, if it is"
            " yours, `chmod 700` it"
        )
    return folder


def listen(directory: Path) -> socket.socket:
    """A socket for the run in a directory, of which there is one at a time."""
    name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:12]
    path = socket_folder() / name
    path.unlink(missing_ok=True)  # of a process that was killed: the directory is locked by us
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen()
    except OSError as error:
        listening.close()
        raise TensorstepError(
            f"no socket can be made at {str(path)!r} ({error.strerror}): make room for it there"
        ) from None
    return listening


def is_own(connected: socket.socket) -> bool:
    """Whether the process at the other end is the same user's."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, uid, _ = struct.unpack("3i", raw)
    else:  # macOS and the BSDs: struct xucred of LOCAL_PEERCRED; its second field is the user
        raw = connected.getsockopt(0, 1, 76)
        _, uid = struct.unpack("Ii", raw[:8])
    return bool(uid == os.getuid())
