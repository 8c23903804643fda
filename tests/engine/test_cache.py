"""Fetched texts kept on disk: whole, or not taken at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.data.cache import cache_file, cache_folder, read_cached, write_cached

TEXTS = ["one", "two\nlines\r\n", "naïve 🎈\u2028\0", ""]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert cache_folder().is_relative_to(tmp_path)
    return cache_folder()


def test_texts_are_kept_as_they_are(folder: Path):
    assert read_cached("some key") is None
    write_cached("some key", TEXTS)
    assert read_cached("some key") == TEXTS
    assert read_cached("another key") is None
    assert list(folder.iterdir()) == [cache_file("some key")]  # nothing temporary is left
    write_cached("some key", TEXTS[:1])
    assert read_cached("some key") == TEXTS[:1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:20],
        lambda raw: b"",
        lambda raw: raw.replace(b"one", b"two"),
        lambda raw: raw + b'"more"\n',
        lambda raw: b"[1]\n" + raw,
        lambda raw: raw.replace(b"some key", b"same key"),
    ],
    ids=["byte", "half", "head", "empty", "altered", "longer", "first line", "key"],
)
def test_what_is_not_whole_is_not_taken(damage: Any):
    write_cached("some key", TEXTS)
    path = cache_file("some key")
    path.write_bytes(damage(path.read_bytes()))
    assert read_cached("some key") is None
