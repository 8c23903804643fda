"""How fast work goes and how long it will still take, by a clock that the test holds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.progress import Progress, tracked
from tui.glyphs import ASCII, UNICODE
from tui.pace import Pace, left


class Clock:
    def __init__(self, now: float = 1000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


class Work:
    """Told of at seconds from its beginning; gives the parts of the line."""

    def __init__(self, glyphs=UNICODE):
        self.clock = Clock()
        self.pace = Pace(self.clock)
        self.glyphs = glyphs

    def at(self, seconds: float, done: int, total: int | None, what: str = "reading") -> list[str]:
        self.clock.now = 1000.0 + seconds
        return self.pace.line(Progress(what, done, total), self.glyphs).split("  ")


def bar(full: int, glyphs=UNICODE) -> str:
    return glyphs.full * full + glyphs.rest * (20 - full)


def test_where_there_is_no_room_the_bar_goes_first():
    """And neither the count nor the time left."""
    work = Work()
    work.at(0, 0, 100)
    work.clock.now += 10
    whole = work.pace.line(Progress("reading", 50, 100), UNICODE, 80)
    narrow = work.pace.line(Progress("reading", 50, 100), UNICODE, len(whole) - 1)
    assert bar(10) in whole
    assert narrow == "  ".join(whole.split("  ")[:1] + whole.split("  ")[2:])
    assert narrow.endswith("left")


def test_rate_and_time_left():
    work = Work()
    assert work.at(0, 0, 1000) == ["reading", bar(0), "0 of 1,000"]
    assert work.at(2, 100, 1000) == ["reading", bar(2), "100 of 1,000", "50/s", "18 s left"]
    assert work.at(10, 500, 1000) == ["reading", bar(10), "500 of 1,000", "50/s", "10 s left"]
    assert work.at(20, 1000, 1000)[:4] == ["reading", bar(20), "1,000 of 1,000", "50/s"]


def test_what_was_done_before_it_was_first_told_of_is_not_counted_in_the_rate():
    work = Work()
    work.at(0, 5000, 10_000)
    assert work.at(4, 5200, 10_000)[3:] == ["50/s", "96 s left"]


def test_slow_work_has_a_digit_more():
    work = Work()
    work.at(0, 0, 100)
    assert work.at(10, 4, 100) == ["reading", bar(0), "4 of 100", "0.4/s", "4 min left"]
    assert work.at(20, 190, 1000)[3] == "9.5/s"
    assert work.at(20, 200, 1000)[3] == "10/s"


@pytest.mark.parametrize(
    ("done", "total", "full"),
    [(0, 3, 0), (1, 3, 6), (2, 3, 13), (3, 3, 20), (4, 3, 20), (999, 1000, 19), (1, 1000, 0)],
)
def test_the_bar(done: int, total: int, full: int):
    """Full only when all is done; never beyond."""
    assert Work().at(0, done, total)[1] == bar(full)


def test_an_unknown_total():
    """No bar and no time left."""
    work = Work()
    assert work.at(0, 0, None) == ["reading"]
    assert work.at(5, 61_000, None) == ["reading", "61,000", "12,200/s"]


def test_more_done_than_was_expected():
    work = Work()
    work.at(0, 0, 10)
    assert work.at(1, 20, 10)[3:] == ["20/s", "1 s left"]


def test_a_clock_that_stands_still_or_work_that_does():
    work = Work()
    work.at(0, 10, 100)
    assert work.at(0, 20, 100) == ["reading", bar(4), "20 of 100"]
    work.at(0, 10, 100)
    assert work.at(60, 20, 100, "writing") == ["writing", bar(4), "20 of 100"]
    assert work.at(90, 20, 100, "writing") == ["writing", bar(4), "20 of 100"]


def test_other_work_is_measured_anew():
    work = Work()
    work.at(0, 0, 1000)
    work.at(10, 900, 1000)
    assert work.at(12, 0, 50, "tokenizing") == ["tokenizing", bar(0), "0 of 50"]
    assert work.at(14, 40, 50, "tokenizing")[3:] == ["20/s", "1 s left"]


def test_the_same_work_from_the_beginning_is_measured_anew():
    """Once more the same kind of work: known by what is done being less than it was."""
    work = Work()
    work.at(0, 50, 1000)
    work.at(10, 900, 1000)
    assert work.at(100, 20, 1000) == ["reading", bar(0), "20 of 1,000"]
    assert work.at(102, 120, 1000)[3] == "50/s"


def test_the_same_work_again_though_first_told_of_later_than_before():
    """The second time its first telling says more than that of the first time."""
    work = Work()
    work.at(0, 10, 1000)
    work.at(10, 900, 1000)
    assert work.at(100, 20, 1000) == ["reading", bar(0), "20 of 1,000"]
    assert work.at(102, 120, 1000)[3:] == ["50/s", "18 s left"]


def test_ascii():
    work = Work(ASCII)
    work.at(0, 0, 1000)
    line = work.pace.line(Progress("reading", 250, 1000), ASCII)
    assert line == "reading  #####---------------  250 of 1,000"
    assert all("".join(work.at(t, 10 * t, 1000)).isascii() for t in range(1, 90))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 s"),
        (0.2, "1 s"),
        (1.6, "2 s"),
        (59, "59 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "60 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (36_000, "10 h"),
    ],
)
def test_times(seconds: float, words: str):
    assert left(seconds) == words


# --- who tells -------------------------------------------------------------------------------


def test_tracked_work_tells_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch):
    """The items pass as they are; between two tellings goes a quarter of a second."""
    clock = Clock()
    monkeypatch.setattr("engine.progress.time.monotonic", clock)
    told: list[tuple[str, int, int | None, float]] = []
    seen = []

    def tell(what: str, done: int, total: int | None) -> None:
        told.append((what, done, total, clock()))

    items = tracked(range(100), "reading", 100, tell)
    for item in items:
        seen.append(item)
        clock.now += 0.1
    assert seen == list(range(100))
    assert all((what, total) == ("reading", 100) for what, _, total, _ in told)
    done, times = [each[1] for each in told], [each[3] for each in told]
    assert done == [round((now - 1000) / 0.1) for now in times]
    gaps = [round(b - a, 3) for a, b in pairwise(times)]
    assert set(gaps) == {0.3}
    assert len(told) in (32, 33)


def test_tracked_work_of_which_nobody_is_told():
    assert list(tracked(iter("abc"), "x", None, None)) == ["a", "b", "c"]


def test_whoever_is_told_may_give_it_up(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr("engine.progress.time.monotonic", clock)

    def stop(what: str, done: int, total: int | None) -> None:
        raise InterruptedError(what)

    taken: list[int] = []

    def take() -> None:
        for item in tracked(range(10), "reading", 10, stop):
            taken.append(item)
            clock.now += 0.2

    with pytest.raises(InterruptedError, match="reading"):
        take()
    assert len(taken) == 2
