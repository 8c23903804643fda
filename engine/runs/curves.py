"""The curves of a run: its metrics file read as it grows, and what stands in any range of steps.

A long run has millions of lines: they are taken apart by one regular expression, many at a time.
Of each block of steps the extremes and the sum are kept, so that a column of a plot is exact,
however many steps it stands for, and a spike of a single step is never averaged away.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

BLOCK = 256  # steps
CHUNK = 2**17  # bytes read at once: a few milliseconds of work
TAIL = 2**16  # bytes at the end that are read first
RECENT = 100  # lines
MARK = 256  # bytes before the first unread one: where they differ, the file was cut
SETTLED = 1 - 1e-13  # a weight that is 1 but for rounding
SMOOTHING = 0.98  # how much of the mean stays when a value comes: it looks back about 50 steps

NUMBERS = ("loss", "lr", "grad_norm", "targets_per_second", "time")
VALUE = r"([^,}\n]++)"  # nothing to come back to: half the time
LINE = re.compile(
    (
        r'^\{"step": \d++, '
        + ", ".join(f'"{name}": {VALUE}' for name in NUMBERS)
        + rf'(?:, "val_loss": {VALUE})?\}}\n'
    ).encode(),
    re.MULTILINE,
)
UNKNOWN = -math.nan  # null: told from a number that went bad by its sign
WORDS = {b"null": UNKNOWN, b'"nan"': math.nan, b'"inf"': math.inf, b'"-inf"': -math.inf}


class Column(NamedTuple):
    """A range of steps: extremes and mean of the finite values (nan, where there are none), and
    whether others are not finite."""

    first: int
    last: int
    low: float
    high: float
    mean: float
    nonfinite: bool


class Series:
    """One number a step, and of every whole block of steps what a column asks for."""

    def __init__(self) -> None:
        self.values = array("d")
        self._lows, self._highs, self._sums = array("d"), array("d"), array("d")
        self._odd, self._unknown = array("H"), array("H")  # how many are not finite, not known

    def at(self, step: int) -> float:
        """The value of a step, which are counted from 1; nan where there is none."""
        return self.values[step - 1] if 1 <= step <= len(self.values) else math.nan

    def _sum_up(self) -> None:
        """Measure the blocks that are whole by now; of a series nobody draws, none."""
        for begin in range(BLOCK * len(self._lows), len(self.values) - BLOCK + 1, BLOCK):
            low, high, total, odd, unknown = measured(self.values[begin : begin + BLOCK])
            self._lows.append(low)
            self._highs.append(high)
            self._sums.append(total)
            self._odd.append(odd)
            self._unknown.append(unknown)

    def column(self, first: int, last: int) -> Column:
        """What steps `first` to `last` have."""
        self._sum_up()
        begin, end = first - 1, last
        blocks = range(-(-begin // BLOCK), end // BLOCK)
        if len(blocks) < 2:
            low, high, total, odd, unknown = measured(self.values[begin:end])
        else:
            whole = slice(blocks.start, blocks.stop)
            low, high = min(self._lows[whole]), max(self._highs[whole])
            total, odd = sum(self._sums[whole]), sum(self._odd[whole])
            unknown = sum(self._unknown[whole])
            for a, b in ((begin, blocks.start * BLOCK), (blocks.stop * BLOCK, end)):
                if a < b:
                    more = measured(self.values[a:b])
                    low, high = min(low, more[0]), max(high, more[1])
                    total, odd, unknown = total + more[2], odd + more[3], unknown + more[4]
        finite = end - begin - odd - unknown
        if not finite:
            return Column(first, last, math.nan, math.nan, math.nan, odd > 0)
        mean = max(low, min(high, total / finite))  # rounding may bring it out of them
        return Column(first, last, low, high, mean, odd > 0)


def measured(values: Sequence[float]) -> tuple[float, float, float, int, int]:
    """Lowest, highest and sum of the finite values, and how many are not finite, and not known."""
    total = sum(values)
    if math.isfinite(total):  # one that is not finite would have made it so
        return min(values), max(values), total, 0, 0
    finite = [value for value in values if math.isfinite(value)]
    unknown = sum(value != value and math.copysign(1, value) < 0 for value in values)
    odd = len(values) - len(finite) - unknown
    if not finite:
        return math.inf, -math.inf, 0.0, odd, unknown
    return min(finite), max(finite), sum(finite), odd, unknown


class Curves:
    """The metrics of a run, as far as they have been read; the nth line is of step n.

    A line that cannot be read counts as a step of which nothing is known (nan), and so does a
    number that is null.

    recent    the last whole lines of the file, also those that are not read yet
    smoothed  the exponential mean of the loss, divided by the weight of what has come so far; a
              loss that is not finite does not enter it
    """

    def __init__(self, path: Path):
        self._path = path
        self._begin()

    def _begin(self) -> None:
        """Nothing has been read."""
        self._size = 0
        self.recent: list[dict[str, Any]] = []
        self._at = 0  # of the first unread byte: the beginning of a line
        self._mark = b""
        self.loss, self.smoothed, self.lr, self.grad_norm = Series(), Series(), Series(), Series()
        self.targets_per_second, self.time = Series(), Series()
        self.val_loss: tuple[list[int], list[float]] = ([], [])  # steps, values
        self._level = self._weight = 0.0

    def __len__(self) -> int:
        """How many steps have been read."""
        return len(self.loss.values)

    @property
    def last(self) -> dict[str, Any]:
        """The last whole line of the file, empty where there is none."""
        return self.recent[-1] if self.recent else {}

    @property
    def progress(self) -> tuple[int, int]:
        """How many bytes have been read, and how many there are."""
        return self._at, self._size

    # --- reading ------------------------------------------------------------------------------

    def read(self, budget_s: float | None = 0.05) -> bool:
        """Read the lines that are new, for about so many seconds. Returns whether that was all.

        Where the file was cut, it is read from the beginning again.
        """
        ends = math.inf if budget_s is None else time.perf_counter() + budget_s
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not self._goes_on(file, size):
                    self._begin()
                if size != self._size:
                    self._size = size
                    self._read_end(file)
                while self._read_lines(file):
                    if time.perf_counter() >= ends:
                        return self._at >= size
        except OSError:  # not there yet, or for a moment out of reach
            return True
        return True

    def _goes_on(self, file: BinaryIO, size: int) -> bool:
        """Whether what was read still stands before what is unread."""
        if size < self._at:
            return False
        file.seek(self._at - len(self._mark))
        return file.read(len(self._mark)) == self._mark

    def _read_end(self, file: BinaryIO) -> None:
        """The last lines, before all the others."""
        lines = whole_lines(file, self._size, TAIL)[-RECENT:]
        self.recent = [fields for fields in map(fields_of, lines) if fields]

    def _read_lines(self, file: BinaryIO) -> bool:
        """Read some lines more. Returns whether there was a whole one."""
        file.seek(self._at)
        content, end = b"", 0
        while not end:
            more = file.read(CHUNK)
            if not more:
                return False  # at the end, or the last line is torn
            content += more
            end = content.rfind(b"\n") + 1
        lines = content[:end]
        self._at += end
        self._mark = (self._mark + lines[-MARK:])[-MARK:]
        self._take(lines)
        return True

    def _take(self, lines: bytes) -> None:
        """The numbers of whole lines."""
        rows: list[tuple[bytes, ...]] = LINE.findall(lines)
        if len(rows) != lines.count(b"\n"):  # some are not as they should be
            rows = [values_of(each) for each in lines.split(b"\n")[:-1]]
        *columns, validation = zip(*rows, strict=True)
        step = len(self) + 1
        if any(validation):
            for at, value in enumerate(validation, step):
                if value not in (b"", b"null"):
                    self.val_loss[0].append(at)
                    self.val_loss[1].append(number_of(value))
        for name, column in zip(NUMBERS, columns, strict=True):
            getattr(self, name).values.extend(numbers_of(column))
        self.smoothed.values.extend(self._smooth(self.loss.values[step - 1 :]))

    def _smooth(self, losses: array[float]) -> list[float]:
        """The exponential mean at each of the next losses."""
        stays, comes = SMOOTHING, 1 - SMOOTHING
        level, weight, smoothed = self._level, self._weight, []
        if weight > SETTLED and math.isfinite(sum(losses)):  # a long run: nearly always
            smoothed = [level := stays * level + comes * loss for loss in losses]
        else:
            for loss in losses:
                if math.isfinite(loss):
                    level = stays * level + comes * loss
                    weight = stays * weight + comes
                smoothed.append(level / weight if weight else math.nan)
        self._level, self._weight = level, weight
        return smoothed

    # --- what is drawn ------------------------------------------------------------------------

    def columns(self, series: str, first: int, last: int, count: int) -> list[Column]:
        """Steps `first` to `last` (as far as they are read) in at most `count` columns: see
        `column_of`; where there are fewer steps, each has its own."""
        numbers: Series = getattr(self, series)
        first, last = max(1, first), min(last, len(numbers.values))
        if count < 1 or last < first:
            return []
        each = steps_a_column(first, last, count)
        begins = range((first - 1) // each * each + 1, last + 1, each)
        return [numbers.column(max(first, a), min(last, a + each - 1)) for a in begins]


def steps_a_column(first: int, last: int, count: int) -> int:
    """How many steps a column has: a power of two, so that the columns of the past stay as they are
    while a run goes on, and cost no byte of a slow line."""
    each = 1
    while (last - 1) // each - (first - 1) // each >= count:
        each *= 2
    return each


def column_of(step: int, first: int, last: int, count: int) -> int:
    """Which of the columns of `Curves.columns` a step stands in, counted from 0."""
    each = steps_a_column(first, last, count)
    return (step - 1) // each - (first - 1) // each


def whole_lines(file: BinaryIO, size: int, most: int) -> list[bytes]:
    """The whole lines in the last `most` bytes of a file of that size."""
    begin = max(0, size - most)
    file.seek(max(0, begin - 1))
    content = file.read(most + 1 if begin else size)
    if begin:  # the line that ends there is whole, where its end is the byte before
        content = content.partition(b"\n")[2]
    return content.split(b"\n")[:-1]


def last_lines(path: Path, most: int) -> list[bytes]:
    """The whole lines in the last `most` bytes of a file; none where it is not there."""
    try:
        with path.open("rb") as file:
            return whole_lines(file, os.fstat(file.fileno()).st_size, most)
    except OSError:
        return []


def fields_of(text: bytes) -> dict[str, Any]:
    """A line's fields, empty where it cannot be read."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def values_of(text: bytes) -> tuple[bytes, ...]:
    """A line's numbers as they are written, and the validation loss, empty for none."""
    found = LINE.match(text + b"\n")
    if found is not None:
        return found.groups(b"")
    fields = fields_of(text)
    return tuple(json.dumps(fields.get(name)).encode() for name in (*NUMBERS, "val_loss"))


def numbers_of(written: Sequence[bytes]) -> array[float]:
    """Numbers, as `number_of` reads each."""
    try:
        return array("d", map(float, written))
    except ValueError:
        return array("d", map(number_of, written))


def number_of(written: Any) -> float:
    """A number as JSON has it, or as it stands in a line; nan where it is none."""
    try:
        return WORDS[written] if written in WORDS else float(written)
    except (TypeError, ValueError, OverflowError):
        return math.nan
