"""Windows: what a model sees and what it is to predict, gathered from one flat array of IDs.

Windows never cross a document (sequences that run on do), and are not stored: all that is kept is
the IDs of all documents, one after another, and where each begins. A batch gathers its rows; a
table of windows of any width costs nothing until it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


class Stream:
    """The IDs of encoded documents, one after another.

    ids     [tokens], boundaries included
    starts  [D + 1] where each document begins; the last is where the last ends
    """

    def __init__(self, ids: Tensor, starts: Tensor):
        self.ids = ids
        self.starts = starts

    @classmethod
    def of(cls, documents: Sequence[Sequence[int]]) -> Stream:
        lengths = torch.tensor([len(ids) for ids in documents], dtype=torch.long)
        flat = [i for ids in documents for i in ids]
        return cls(torch.tensor(flat, dtype=torch.long), offsets(lengths))

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> Tensor:
        """[D] IDs of each document."""
        return self.starts.diff()

    def document(self, number: int) -> Tensor:
        """The IDs of one document."""
        return self.ids[self.starts[number] : self.starts[number + 1]]


class Places:
    """Where the windows of a stream are: document d has `counts[d]`, each `stride` IDs on from the
    one before, numbered in reading order."""

    def __init__(self, stream: Stream, counts: Tensor, stride: int = 1):
        self._starts = stream.starts
        self._stride = stride
        self._firsts = offsets(counts)  # [D + 1] the first window of each document
        self.count = int(self._firsts[-1])

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """For windows by number: how far into its document each is, and where that begins."""
        document = torch.searchsorted(self._firsts, rows, right=True) - 1
        return (rows - self._firsts[document]) * self._stride, self._starts[document]


class Gathered:
    """A table that is read like a tensor but gathered only where asked: [N] or [N, columns]."""

    dtype = torch.long

    def __init__(self, stream: Stream, places: Places, columns: tuple[int, ...]):
        self.ids = stream.ids
        self.places = places
        self.shape = torch.Size((places.count, *columns))
        self.device = stream.ids.device

    def __len__(self) -> int:
        return self.shape[0]

    def numel(self) -> int:
        return self.shape.numel()

    def tolist(self) -> list[Any]:
        found: list[Any] = self[:].tolist()
        return found

    def rows(self, index: Any) -> Tensor:
        """The window numbers that an index of the first axis picks, checked as a tensor would."""
        if isinstance(index, slice):
            picked = range(*index.indices(len(self)))
            return torch.arange(len(picked)) * picked.step + picked.start
        rows = torch.as_tensor(index)
        if rows.dtype == torch.bool:
            rows = rows.nonzero().flatten()
        if rows.numel() and not -len(self) <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"there is no window {index}: there are {len(self)}")
        return rows.long() % max(1, len(self))

    def __getitem__(self, index: Any) -> Tensor:
        rows, *columns = index if isinstance(index, tuple) else (index,)
        if rows is Ellipsis:
            rows = slice(None)
        found = self.gather(self.rows(rows), *columns)
        return found[..., 0] if columns and isinstance(columns[0], int) else found

    def gather(self, rows: Tensor, columns: Any = slice(None)) -> Tensor:
        """These rows; of a table of two axes these columns, a single one as a column of its own."""
        raise NotImplementedError


class Contexts(Gathered):
    """The w IDs before each target, [N, w]; `pad_id` where the document had not begun."""

    def __init__(self, stream: Stream, places: Places, width: int, pad_id: int):
        super().__init__(stream, places, (width,))
        self.pad_id = pad_id

    @cached_property
    def slots(self) -> Tensor:
        """Where the slots are, counted from the target."""
        return torch.arange(-self.shape[1], 0)

    @cached_property
    def spans(self) -> Tensor:
        """Every run of w IDs of the stream, [.., w], as a view of it."""
        return self.ids.unfold(0, self.shape[1], 1)

    def gather(self, rows: Tensor, columns: Any = slice(None)) -> Tensor:
        within, begins = self.places.of(rows)
        first = begins + within + 1 - self.shape[1]
        if columns == slice(None) and rows.dim() == 1 and len(rows) and int(first.min()) >= 0:
            # a batch: whole runs are copied, which is quicker than cell by cell
            found = self.spans.index_select(0, first)
            return found.masked_fill_(self.slots < -(within + 1)[:, None], self.pad_id)
        before = (within + 1)[..., None] + self.slots[columns]
        at = (begins[..., None] + before).clamp_(min=0)
        # a flat selection is faster than an index of two axes
        ids = self.ids.index_select(0, at.flatten()).view(at.shape)
        return torch.where(before < 0, self.pad_id, ids)

    def source(self, row: int, slot: int) -> int | None:
        """Where in the stream a cell was read, or None for padding."""
        within, begins = self.places.of(torch.tensor(row))
        before = int(within) + 1 + slot - self.shape[1]
        return int(begins) + before if before >= 0 else None


class Targets(Gathered):
    """The ID that each window is to predict, [N]."""

    def __init__(self, stream: Stream, places: Places):
        super().__init__(stream, places, ())

    def gather(self, rows: Tensor, columns: Any = None) -> Tensor:
        within, begins = self.places.of(rows)
        return self.ids[begins + within + 1]

    def source(self, row: int) -> int:
        """Where in the stream a target was read."""
        within, begins = self.places.of(torch.tensor(row))
        return int(begins + within) + 1


class Windows:
    """Contexts [N, w] and targets [N] of documents, in reading order: one target a window.

    A document of n IDs (boundaries included) gives n - 1 windows: each ID but the first is a
    target once.
    """

    def __init__(self, documents: Stream | Sequence[Sequence[int]], width: int, pad_id: int):
        self.stream = documents if isinstance(documents, Stream) else Stream.of(documents)
        places = Places(self.stream, (self.stream.lengths - 1).clamp(min=0))
        self.contexts = Contexts(self.stream, places, width, pad_id)
        self.targets = Targets(self.stream, places)

    def __len__(self) -> int:
        return len(self.targets)


class Run(Gathered):
    """T IDs in a row from each window's place on, moved by `shift`: [N, T]."""

    def __init__(self, stream: Stream, places: Places, length: int, shift: int):
        super().__init__(stream, places, (length,))
        self.slots = torch.arange(shift, shift + length)

    def gather(self, rows: Tensor, columns: Any = slice(None)) -> Tensor:
        within, begins = self.places.of(rows)
        return self.ids[(begins + within)[..., None] + self.slots[columns]]

    def source(self, row: int, slot: int) -> int:
        """Where in the stream a cell was read."""
        within, begins = self.places.of(torch.tensor(row))
        return int(begins + within) + int(self.slots[slot])


class Sequences:
    """Inputs [N, T] and targets [N, T], the same moved on by one: a target at every position.

    Every run of T + 1 IDs inside a document is one of them; a document of n IDs gives n - T, a
    shorter one none. Where they run on, they begin with a document and every T IDs further on in
    it, and the last of them ends in the documents that follow: n - 1 targets give ⌈(n - 1) / T⌉ of
    them, each target of the document once. Nothing is padded: what would end after the last
    document is left out.
    """

    def __init__(
        self, documents: Stream | Sequence[Sequence[int]], length: int, run_on: bool = False
    ):
        self.stream = documents if isinstance(documents, Stream) else Stream.of(documents)
        places = Places(self.stream, (self.stream.lengths - length).clamp(min=0))
        if run_on:
            left = (len(self.stream.ids) - 1 - self.stream.starts[:-1]).clamp(min=0)
            needed = (self.stream.lengths + length - 2).clamp(min=0) // length
            places = Places(self.stream, torch.minimum(needed, left // length), length)
        self.inputs = Run(self.stream, places, length, 0)
        self.targets = Run(self.stream, places, length, 1)

    def __len__(self) -> int:
        return len(self.inputs)


def offsets(counts: Tensor) -> Tensor:
    """[n] counts -> [n + 1] where each begins, and the end."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
