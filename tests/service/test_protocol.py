"""Frames: what is written is read again, and nothing else is taken for a frame."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.service.protocol import (
    LARGEST,
    LENGTHS,
    BrokenFrame,
    decode_header,
    decode_lengths,
    encode,
    read_frame,
)

# any text, lone surrogates too: they stand in file names that are not UTF-8
texts = st.text(alphabet=st.characters(exclude_categories=()))
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8
)
headers = st.dictionaries(texts, values, max_size=4)
frames = st.tuples(headers, st.binary(max_size=40))


class Trickle(io.RawIOBase):
    """A pipe that hands out one byte at a time."""

    def __init__(self, raw: bytes):
        self._raw = io.BytesIO(raw)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(min(size, 1))


def read_all(raw: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """The frames of a stream, to its clean end."""
    stream = io.BytesIO(raw)
    found = []
    while (frame := read_frame(stream)) is not None:
        found.append(frame)
    return found


@given(st.lists(frames, max_size=4))
def test_frames_are_read_as_they_were_written(written: list[tuple[dict[str, Any], bytes]]):
    assert read_all(b"".join(encode(*frame) for frame in written)) == written


@given(frames)
def test_bytes_that_come_one_by_one(frame: tuple[dict[str, Any], bytes]):
    stream = Trickle(encode(*frame))
    assert read_frame(stream) == frame
    assert read_frame(stream) is None


def test_the_layout_of_a_frame():
    """Two lengths of four bytes, the larger digits first, then JSON, then the payload."""
    raw = encode({"id": 1, "é": "→"}, b"\x01\x02\x03")
    text = '{"id":1,"é":"→"}'.encode()
    assert raw == len(text).to_bytes(4, "big") + b"\0\0\0\3" + text + b"\x01\x02\x03"


def test_an_empty_stream_is_a_clean_end():
    assert read_frame(io.BytesIO(b"")) is None


@given(frames, st.data())
def test_a_frame_cut_short_is_broken(frame: tuple[dict[str, Any], bytes], data: st.DataObject):
    raw = encode(*frame)
    kept = data.draw(st.integers(1, len(raw) - 1))
    with pytest.raises(BrokenFrame, match="bytes before the end of a frame"):
        read_frame(io.BytesIO(raw[:kept]))


@given(frames, st.integers(0, LENGTHS.size - 1), st.integers(1, 255))
def test_a_wrong_length_is_never_passed_over(
    frame: tuple[dict[str, Any], bytes], at: int, change: int
):
    """Whatever stands in a length instead: sooner or later the stream is known to be broken."""
    raw = bytearray(encode(*frame))
    raw[at] ^= change
    with pytest.raises(BrokenFrame):
        read_all(bytes(raw))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_broken_or_nothing(raw: bytes):
    """And where they are a frame it is what its lengths say, byte for byte."""
    stream = io.BytesIO(raw)
    try:
        found = read_frame(stream)
    except BrokenFrame:
        return
    if found is None:
        assert raw == b""
        return
    header, payload = LENGTHS.unpack(raw[: LENGTHS.size])
    end = LENGTHS.size + header
    assert found == (json.loads(raw[LENGTHS.size : end]), raw[end : end + payload])
    assert stream.tell() == end + payload


@given(st.binary(min_size=2, max_size=60))
def test_a_header_that_is_not_json(raw: bytes):
    try:
        meant = json.loads(raw)
    except ValueError:
        meant = None
    assume(not isinstance(meant, dict))
    with pytest.raises(BrokenFrame, match="a header is not"):
        read_frame(io.BytesIO(LENGTHS.pack(len(raw), 0) + raw))


@pytest.mark.parametrize(
    "raw",
    [b"[1]", b"null", b'"text"', b"12", b"{'id': 1}", b'{"id":', b"\xff\xfe{}", b"\xc3\x28", b""],
)
def test_headers_that_are_no_objects(raw: bytes):
    with pytest.raises(BrokenFrame):
        decode_header(raw)


def test_a_header_nested_too_deeply_is_broken():
    with pytest.raises(BrokenFrame):
        decode_header(b"[" * 1_000_000)


@pytest.mark.parametrize(
    ("header", "payload"),
    [(0, 0), (1, 0), (LARGEST + 1, 0), (2, LARGEST + 1), (2**32 - 1, 2**32 - 1)],
)
def test_lengths_that_cannot_be_meant(header: int, payload: int):
    """What somebody prints instead of a frame is told at once, not waited for."""
    with pytest.raises(BrokenFrame, match="cannot be meant"):
        decode_lengths(LENGTHS.pack(header, payload))
    with pytest.raises(BrokenFrame, match="cannot be meant"):
        read_frame(io.BytesIO(LENGTHS.pack(header, payload)))


def test_a_line_of_text_is_no_frame():
    with pytest.raises(BrokenFrame):
        read_frame(io.BytesIO(b"Downloading: 100%|##########| 5/5\n"))


def test_the_largest_lengths_are_allowed():
    assert decode_lengths(LENGTHS.pack(LARGEST, LARGEST)) == (LARGEST, LARGEST)
    assert decode_lengths(LENGTHS.pack(2, 0)) == (2, 0)
