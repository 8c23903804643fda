"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_corpus, prepare
from engine.data.corpus import Corpus
from engine.progress import OFTEN, Meter, tracked

Told = list[tuple[str, int, int | None]]


class Clock:
    """Time that goes on only where the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("engine.progress.time", SimpleNamespace(monotonic=made.monotonic))
    return made


def slowly(items: Iterator[int] | range, clock: Clock, seconds: float) -> Iterator[int]:
    for item in items:
        clock.now += seconds
        yield item


@given(st.lists(st.integers(), max_size=20), st.booleans())
def test_all_items_come_in_their_order(items: list[int], heard: bool):
    tell = (lambda *_: None) if heard else None
    assert list(tracked(items, "counting", len(items), tell)) == items
    assert list(tracked(iter(items), "counting", None, tell)) == items


def test_what_takes_long_is_told_of(clock: Clock):
    """Once for each item that takes long: how many are done, and of how many."""
    told: Told = []
    items = slowly(range(4), clock, OFTEN * 2)
    assert list(tracked(items, "counting", 4, lambda *now: told.append(now))) == [0, 1, 2, 3]
    assert told == [("counting", done, 4) for done in (1, 2, 3, 4)]


def test_what_is_quick_is_not(clock: Clock):
    told: Told = []
    items = slowly(range(50), clock, OFTEN / 100)
    assert list(tracked(items, "counting", 50, lambda *now: told.append(now))) == list(range(50))
    assert told == []


def test_it_is_told_a_few_times_a_second(clock: Clock):
    """10 seconds of 1,000 items: about 4 a second, ever more of them done."""
    told: Told = []
    items = slowly(range(1000), clock, 0.01)
    assert len(list(tracked(items, "counting", None, lambda *now: told.append(now)))) == 1000
    assert 30 <= len(told) <= 40
    done = [count for _, count, _ in told]
    assert done == sorted(set(done))
    assert 0 < done[0] < done[-1] <= 1000
    assert {(what, total) for what, _, total in told} == {("counting", None)}


def test_work_that_is_stopped_stops_there(clock: Clock):
    """Whoever is told may stop it by raising: no further item is taken."""
    taken: list[int] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def items() -> Iterator[int]:
        for item in slowly(range(9), clock, 1.0):
            taken.append(item)
            yield item

    with pytest.raises(KeyboardInterrupt):
        list(tracked(items(), "counting", 9, stop))
    assert taken == [0]


def test_nothing_is_taken_before_it_is_asked_for():
    taken: list[int] = []
    items = tracked((taken.append(i) or i for i in range(9)), "counting", 9, lambda *_: None)
    assert taken == []
    assert next(items) == 0
    assert taken == [0]


def test_a_meter_counts_what_is_added(clock: Clock):
    told: Told = []
    meter = Meter("reading", 100, lambda *now: told.append(now))
    meter.add(30)
    clock.now += OFTEN * 2
    meter.add()
    meter.add(9)  # right after
    clock.now += OFTEN * 2
    meter.add(60)
    assert told == [("reading", 31, 100), ("reading", 100, 100)]
    Meter("unheard", None, None).add(5)


@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe:262"])
def test_preparation_tells_up_to_its_end(tokenizer: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.progress.OFTEN", -1.0)  # every time
    told: Told = []
    texts = [f"story number {i} of many, of many" for i in range(30)]
    quiet = prepare(Corpus("mine", texts), 4, tokenizer)
    loud = prepare(Corpus("mine", texts), 4, tokenizer, lambda *now: told.append(now))
    assert loud.audit == quiet.audit
    ends = {what: (done, total) for what, done, total in told}
    assert ends
    assert all(done == total for done, total in ends.values())


def test_reading_a_folder_tells_up_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.progress.OFTEN", -1.0)
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"story {i}")
    told: Told = []
    open_corpus(str(tmp_path), tell=lambda *now: told.append(now))
    assert told == [(f"reading {tmp_path.name}", done, 3) for done in (1, 2, 3)]
