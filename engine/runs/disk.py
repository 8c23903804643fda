"""The few ways in which a run writes to its disk. Nothing half-written is ever taken for whole: a
line that was cut short is taken back, a file or folder is written under another name, synced and
renamed.

Every write, sync and rename of a run goes through here, so that tests can stop a process, or fill a
disk, at each of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
from pathlib import Path

PART = ".part-"  # what is being written begins with this
FULL = (errno.ENOSPC, errno.EDQUOT)


def write(number: int, content: bytes) -> int:
    """`os.write`: may write less than it was given."""
    return os.write(number, content)


def sync(number: int) -> None:
    """Wait until a file is on the disk itself."""
    os.fsync(number)


def rename(before: Path, after: Path) -> None:
    """Give a file or folder its name, in place of a file that had it."""
    before.replace(after)


def append(number: int, content: bytes) -> None:
    """Add to a file, all or nothing. Raises OSError where the disk does not take it."""
    size = os.fstat(number).st_size
    try:
        write_all(number, content)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(number, size)
        raise


def write_all(number: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[write(number, bytes(rest) if len(rest) < len(content) else content) :]


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(number, content)
        sync(number)
    finally:
        os.close(number)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or as it was before."""
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=PART)
    try:
        try:
            write_all(number, content)
            sync(number)
        finally:
            os.close(number)
        rename(Path(temporary), path)
        sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_folder(path: Path, files: dict[str, bytes]) -> None:
    """Write a new folder of files so that it is there whole or not at all."""
    temporary = path.parent / f"{PART}{secrets.token_hex(8)}"
    temporary.mkdir()  # with the rights that any folder gets: `mkdtemp` would keep others out
    try:
        for name, content in files.items():
            write_file(temporary / name, content)
        sync_folder(temporary)
        if path.exists():  # what stood there before is the same step, saved again
            shutil.rmtree(path)
        rename(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        sync(number)
    finally:
        os.close(number)


def sweep(folder: Path) -> None:
    """Take away what a process that was killed had not finished writing."""
    for left in folder.glob(f"{PART}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Whether there is no room left, which may change."""
    return error.errno in FULL
