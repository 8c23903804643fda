"""The published selection of TinyStories: its rows, its checksum, and what is kept of it. A table
of the test's own stands in for the hub."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import datasets
import pytest

from engine import open_corpus
from engine.data import tinystories
from engine.data.cache import write_cached
from engine.data.corpus import VocabularyRule
from engine.data.tinystories import Profile, raw_sha256, selected_rows
from tests.engine.offline import Network, alone, kept_files, refused

REVISION = "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"
FULL_SHA256 = "ecaf3b99879170311c1fcde645251b9793620f1f5bf57159210fb7ab7180a7b3"
ROWS = 2_119_719


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    alone(tmp_path, monkeypatch)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


class Table:
    """In the place of TinyStories: the text of row n says so."""

    def __init__(self, size: int = ROWS):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def select(self, rows: list[int]) -> list[dict[str, str]]:
        assert all(0 <= row < self.size for row in rows)
        return [{"text": f"Once upon a time, “row” {row}."} for row in rows]


def rule(stories: int) -> list[int]:
    """The rule again: pages of 100 drawn from their starts, sorted, and the first rows of them."""
    starts = [100 * page for page in range(21_197)]  # the last whole page begins at 2119600
    pages = random.Random(1701).sample(starts, math.ceil(stories / 100))
    return [start + i for start in sorted(pages) for i in range(100)][:stories]


@pytest.fixture
def asked(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the hub is asked for; a `Table` is what it gives."""
    calls: list[Any] = []

    def load(*place: Any) -> Table:
        calls.append(place)
        return Table()

    monkeypatch.setattr(tinystories, "load", load)
    return calls


@pytest.mark.parametrize("stories", [1, 100, 101, 480, 3000, 6000])
def test_rows_of_the_selection(stories: int):
    rows = selected_rows(stories)
    assert rows == rule(stories)
    assert len(set(rows)) == stories
    assert rows == sorted(rows)


def test_the_three_published_stories_are_in_the_full_selection():
    assert {1992490, 12400, 588307} <= set(selected_rows(6000))


def test_the_checksum_has_the_published_form():
    rows, texts = [3, 14], ['Lily said "hi".\n', "naïve"]
    lines = b'{"row_idx": 3, "text": "Lily said \\"hi\\".\\n"}\n'
    lines += b'{"row_idx": 14, "text": "na\xc3\xafve"}\n'
    assert raw_sha256(rows, texts) == hashlib.sha256(lines).hexdigest()
    assert tinystories.PROFILES["full"] == Profile("full", 6000, 4000, FULL_SHA256)


@pytest.mark.parametrize(
    ("name", "stories", "size"), [("smoke", 480, 1500), ("classroom", 3000, 3000)]
)
def test_a_selection_is_the_right_rows_and_is_kept(
    name: str, stories: int, size: int, asked: list[Any], network: Network
):
    corpus = open_corpus(f"tinystories:{name}")
    assert asked == [("roneneldan/TinyStories", None, REVISION, "train", False)]
    assert corpus.texts == [row["text"] for row in Table().select(rule(stories))]
    assert (corpus.name, corpus.rule) == (f"tinystories:{name}", VocabularyRule(size, 2, True))
    network.on = False
    assert open_corpus(f"tinystories:{name}").texts == corpus.texts
    assert open_corpus(f"tinystories:{name}", 5).texts == corpus.texts[:5]
    assert len(asked) == 1


def test_rows_that_are_not_the_published_ones_are_told(asked: list[Any]):
    told = refused("tinystories:full")
    assert "is not the published selection (its SHA-256 differs)" in told
    assert kept_files() == []


def test_a_table_of_another_size_is_told(asked: list[Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tinystories, "load", lambda *_: Table(1000))
    assert "has 1000 rows here, not the published 2119719" in refused("tinystories:smoke")
    assert kept_files() == []


def test_a_kept_selection_is_taken_only_if_it_is_right(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
):
    """Cut, altered, or whole but of other stories: it is fetched again."""
    lines = "".join(
        json.dumps({"row_idx": row, "text": text["text"]}, ensure_ascii=False) + "\n"
        for row, text in zip(rule(6000), Table().select(rule(6000)), strict=True)
    )
    checksum = hashlib.sha256(lines.encode()).hexdigest()
    monkeypatch.setitem(tinystories.PROFILES, "full", Profile("full", 6000, 4000, checksum))
    texts = open_corpus("tinystories:full").texts
    assert open_corpus("tinystories:full").texts == texts
    assert len(asked) == 1
    (path,) = kept_files()
    whole = path.read_bytes()
    for number, content in enumerate((whole[:-40], whole.replace(b"upon a", b"upon b"), b""), 2):
        path.write_bytes(content)
        assert open_corpus("tinystories:full").texts == texts
        assert len(asked) == number
        assert path.read_bytes() == whole
    for others in (texts[:-1], ["other", *texts[1:]]):
        write_cached(f"tinystories {REVISION} full", others)
        assert open_corpus("tinystories:full").texts == texts


def test_a_selection_without_a_network_is_told_fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def load(*_: Any) -> None:
        assert datasets.config.HF_HUB_OFFLINE  # the library is not to try the network
        raise ConnectionError("offline mode is enabled\nand more")

    monkeypatch.setattr(tinystories, "load", load)
    told = refused("tinystories:smoke")
    assert "the hub cannot be reached and 'roneneldan/TinyStories' was never fetched" in told
    assert kept_files() == []


@pytest.mark.parametrize("profile", ["full", "smoke"])
def test_a_full_disk_while_a_selection_is_kept(
    profile: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.data.cache.os.fsync", full)
    monkeypatch.setattr(tinystories, "is_right", lambda *_: True)
    assert "the disk is full" in refused(f"tinystories:{profile}")
    assert kept_files() == []
