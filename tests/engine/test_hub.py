"""Texts from the hub: what is asked for, kept, and told. A library of the test's own stands in for
the network; nothing here reaches it."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import UsageError, open_corpus
from engine.data import hub
from engine.data.cache import cache_folder
from engine.data.corpus import VocabularyRule
from engine.data.hub import HubSource, is_reachable, parse_hub
from tests.engine.offline import Network, alone, kept_files, refused

REVISION = "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    alone(tmp_path, monkeypatch)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


class Library:
    """In the place of `datasets`: gives rows, and remembers what it was asked for."""

    def __init__(self, rows: Any):
        self.rows, self.asked, self.taken = rows, [], 0

    def load_dataset(self, *place: Any, **options: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((place, options))
        return self._counted()

    def _counted(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            self.taken += 1
            if isinstance(row, Exception):
                raise row
            yield row


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library([{"text": f"story {i}", "body": f"body {i}", "n": i} for i in range(50)])
    monkeypatch.setattr(hub, "datasets_library", lambda: made)
    return made


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("hub:squad", ("squad", None, None, "train", "text")),
        (
            "hub:roneneldan/TinyStories",
            ("roneneldan/TinyStories", None, None, "train", "text"),
        ),
        ("hub:a/b@main", ("a/b", None, "main", "train", "text")),
        ("hub:a/b@refs/pr/3", ("a/b", None, "refs/pr/3", "train", "text")),
        ("hub:a/b:validation", ("a/b", None, None, "validation", "text")),
        ("hub:a/b:test:story", ("a/b", None, None, "test", "story")),
        ("hub:a/b:train:the story", ("a/b", None, None, "train", "the story")),
        ("hub:a/b:train[:5%]", ("a/b", None, None, "train[:5%]", "text")),
        ("hub:a/b:train[10:20]:body", ("a/b", None, None, "train[10:20]", "body")),
        ("hub:a/b:train+test", ("a/b", None, None, "train+test", "text")),
        (
            f"hub:HuggingFaceTB/smollm-corpus/cosmopedia-v2@{REVISION}:train:text",
            ("HuggingFaceTB/smollm-corpus", "cosmopedia-v2", REVISION, "train", "text"),
        ),
        ("hub:a-1/b.c_d/e-2", ("a-1/b.c_d", "e-2", None, "train", "text")),
    ],
)
def test_parts_of_a_name(spec: str, parts: tuple[str | None, ...]):
    assert parse_hub(spec) == HubSource(spec, *parts)


@pytest.mark.parametrize(
    "spec", ["hub:", "hub:a b", "hub:a/b/c/d", "hub:/b", "hub:a/b@", "hub:a/b:", "hub:a/b:c:d:e"]
)
def test_a_name_that_is_none(spec: str):
    with pytest.raises(UsageError, match="names nothing on the hub: write hub:ID") as error:
        parse_hub(spec)
    assert repr(spec) in str(error.value)


# --- reading ----------------------------------------------------------------------------------


def test_what_the_library_is_asked_for(network: Network, library: Library):
    corpus = open_corpus("hub:a/b/part@v2:test:body")
    assert library.asked == [
        (("a/b", "part"), {"revision": "v2", "split": "test", "streaming": False})
    ]
    assert corpus.texts == [f"body {i}" for i in range(50)]
    assert (corpus.name, corpus.rule) == ("a/b", VocabularyRule(4000, 2, True))


def test_only_the_rows_that_are_wanted_are_taken(network: Network, library: Library):
    assert open_corpus("hub:a/b", 7).texts == [f"story {i}" for i in range(7)]
    assert library.asked == [
        (("a/b", None), {"revision": None, "split": "train", "streaming": True})
    ]
    assert library.taken == 7


def test_rows_are_kept_for_when_there_is_no_network(network: Network, library: Library):
    texts = open_corpus("hub:a/b", 7).texts
    network.on = False
    library.rows = [RuntimeError("asked again")]
    assert open_corpus("hub:a/b", 7).texts == texts
    assert len(library.asked) == 1
    assert "asked again" in refused("hub:a/b", 8)  # others were not kept


def test_rows_that_were_kept_are_taken_where_the_hub_fails(network: Network, library: Library):
    """Behind a proxy the hub always looks reachable."""
    texts = open_corpus("hub:a/b", 7).texts
    library.rows = [ConnectionError("the proxy gave up")]
    assert open_corpus("hub:a/b", 7).texts == texts


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"body": "x"}, "has no field 'text', but 'body': name one of them"),
        ({"text": 3}, "the field 'text' of row 2 of 'hub:a/b' holds no text"),
        ({"text": "half \ud83c"}, "holds half a surrogate pair"),
        (ConnectionError("cut off\nin the middle"), "the hub does not give 'a/b' (cut off)"),
        (ValueError("bad bytes\nhere"), "'a/b' of the hub cannot be read: bad bytes"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    ],
    ids=range(6),
)
def test_a_bad_row_is_told_and_nothing_is_kept(
    network: Network, library: Library, row: Any, sentence: str
):
    library.rows = [{"text": "one"}, {"text": "two"}, row]
    for limit in (None, 3):
        assert sentence in refused("hub:a/b", limit)
    assert kept_files() == []
    assert open_corpus("hub:a/b", 2).texts == ["one", "two"]  # the bad one is not read


def test_without_a_network_one_sentence_and_fast(monkeypatch: pytest.MonkeyPatch):
    """The real library, told to be offline: it does not try for half a minute."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    begin = time.perf_counter()
    for limit in (None, 5):
        told = refused("hub:nobody-here/no-such-set", limit)
        assert "the hub cannot be reached and 'nobody-here/no-such-set' was never" in told
        assert "connect to the network once, or give a file" in told
    assert time.perf_counter() - begin < 10
    assert kept_files() == []


@pytest.mark.parametrize(
    "settings",
    [{}, {"no_proxy": "localhost"}, {"HF_ENDPOINT": "http://mirror:port"}],
    ids=["plain", "no_proxy", "endpoint"],
)
def test_whether_the_hub_answers_is_found_out(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """A list of hosts that need no proxy is no proxy; a port that is none is no hub."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert is_reachable() is False


def test_the_place_that_is_asked_is_the_one_of_the_settings(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def connect(place: Any, timeout: float) -> SimpleNamespace:
        asked.append(place)
        assert timeout <= 5
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(socket, "create_connection", connect)
    assert is_reachable()
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example:8080/hf")
    assert is_reachable()
    assert asked == [("huggingface.co", 443), ("mirror.example", 8080)]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not is_reachable()
    assert len(asked) == 2


# --- what is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_and_leaves_no_file(
    number: int, network: Network, library: Library, monkeypatch: pytest.MonkeyPatch
):
    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("engine.data.cache.os.fsync", full)
    told = refused("hub:a/b", 3)
    assert "the disk is full" in told
    assert repr(str(cache_folder())) in told
    assert kept_files() == []


def test_a_folder_that_cannot_be_written_is_told(network: Network, library: Library):
    cache_folder().parent.mkdir(parents=True)
    cache_folder().write_text("a file where the folder should be")
    assert "cannot be kept in" in refused("hub:a/b", 3)
