"""Texts that were fetched once, kept for the next time and for when there is no network.

A file is written under a temporary name, synced and renamed, and read only if the SHA-256 in its
first line is that of the rest: nothing half-written or damaged is ever taken for whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from engine.errors import TensorstepError


def cache_folder() -> Path:
    """Where fetched texts are kept: the user's cache folder for this program."""
    from platformdirs import user_cache_path

    return user_cache_path("tensorstep") / "corpora"


def cache_file(key: str) -> Path:
    return cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.jsonl"


def read_cached(key: str) -> list[str] | None:
    """The texts kept under a key, or None where there are none or they are not whole."""
    try:
        head, _, body = cache_file(key).read_bytes().partition(b"\n")
        fields = json.loads(head)
        if fields["key"] != key or fields["sha256"] != hashlib.sha256(body).hexdigest():
            return None
        return [json.loads(line) for line in body.splitlines()]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_cached(key: str, texts: Iterable[str]) -> None:
    """Keep texts under a key. Raises TensorstepError where the disk does not take them."""
    body = "".join(json.dumps(text) + "\n" for text in texts).encode()
    head = json.dumps({"key": key, "sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"
    try:
        write_whole(cache_file(key), head + body)
    except OSError as error:
        raise no_room(error) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def no_room(error: OSError) -> TensorstepError:
    """What is told where fetched texts cannot be kept."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TensorstepError(
            f"the disk is full, so what was fetched cannot be kept in {str(cache_folder())!r}:"
            " free some room, or let XDG_CACHE_HOME and HF_HOME name folders elsewhere"
        )
    return TensorstepError(
        f"what was fetched cannot be kept in {str(cache_folder())!r} ({error.strerror}): check it"
    )
