"""Frames between the screen and a worker: a JSON header, then raw bytes. No pickle, no torch.

A frame is two lengths (4 bytes each, big-endian), the header in UTF-8 JSON, the payload. A request
has `id`, `method` and `params`; its answer has the same `id` and either `result` or `error`
(`sentence`, `exit_code`, and `trace` where the worker itself failed). The payload holds the cells
of a table, row after row, little-endian.

Before an answer that takes long come frames with its `id` and `progress`: `what`, `done`, `total`
(null where it is not known). A request with the method `cancel` and the `id` of another asks to
give that one up; it has no answer of its own.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">II")
LARGEST = 2**30  # a length beyond this is a broken frame, not a table


class BrokenFrame(Exception):
    """What was read is no frame: the other side wrote something else, or stopped halfway."""


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame."""
    written = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    text = written.encode("utf-8", "surrogatepass")  # a file name need not be UTF-8
    return LENGTHS.pack(len(text), len(payload)) + text + payload


def decode_lengths(raw: bytes) -> tuple[int, int]:
    """Lengths of header and payload. Raises BrokenFrame where they cannot be meant."""
    header, payload = LENGTHS.unpack(raw)
    if not 2 <= header <= LARGEST or payload > LARGEST:
        raise BrokenFrame(f"a frame of {header} + {payload} bytes cannot be meant")
    return header, payload


def decode_header(raw: bytes) -> dict[str, Any]:
    """The header. Raises BrokenFrame where it is not a JSON object."""
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"a header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise BrokenFrame("a header is not a JSON object")
    return header


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame, or None at a clean end. Raises BrokenFrame for anything else."""
    lengths = read_exactly(stream, LENGTHS.size, at_start=True)
    if lengths is None:
        return None
    header, payload = decode_lengths(lengths)
    return decode_header(read_exactly(stream, header) or b""), read_exactly(stream, payload) or b""


def read_exactly(stream: BinaryIO, count: int, at_start: bool = False) -> bytes | None:
    """`count` bytes; None where the stream ends before the first and that is allowed."""
    parts, missing = [], count
    while missing:
        part = stream.read(missing)
        if not part:
            if at_start and missing == count:
                return None
            raise BrokenFrame(f"the other side stopped {missing} bytes before the end of a frame")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
