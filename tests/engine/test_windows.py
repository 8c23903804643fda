"""Windows of documents, compared with lists made by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import Windows

PAD = 0
lengths = st.lists(st.integers(1, 9), max_size=6)
widths = st.sampled_from([1, 2, 4, 64])


def documents_of(sizes: list[int]) -> list[list[int]]:
    """Documents of IDs that occur once in all, so that a crossing would be seen."""
    numbers = iter(range(1, sum(sizes) + 1))
    return [[next(numbers) for _ in range(size)] for size in sizes]


def naive(documents: list[list[int]], width: int) -> tuple[list[list[int]], list[int]]:
    contexts, targets = [], []
    for ids in documents:
        for at in range(1, len(ids)):
            before = ids[:at][-width:]
            contexts.append([PAD] * (width - len(before)) + before)
            targets.append(ids[at])
    return contexts, targets


@given(lengths, widths)
def test_windows_are_the_naive_ones(sizes: list[int], width: int):
    documents = documents_of(sizes)
    windows = Windows(documents, width, PAD)
    contexts, targets = naive(documents, width)
    assert len(windows) == len(windows.contexts) == len(targets)
    assert windows.contexts.shape == (len(targets), width)
    assert windows.contexts[:].tolist() == contexts
    assert windows.targets.tolist() == targets


@given(lengths, widths)
def test_a_window_holds_only_its_own_document(sizes: list[int], width: int):
    documents = documents_of(sizes)
    windows = Windows(documents, width, PAD)
    for context, target in zip(windows.contexts[:].tolist(), windows.targets.tolist(), strict=True):
        (home,) = (ids for ids in documents if target in ids)
        assert set(context) <= {PAD, *home}


@given(lengths.filter(lambda sizes: sum(sizes) > len(sizes)), widths, st.data())
def test_contexts_are_read_like_a_tensor(sizes: list[int], width: int, data: st.DataObject):
    """Any row, cell, slice or choice of rows is what a stored table would give."""
    contexts = Windows(documents_of(sizes), width, PAD).contexts
    stored = torch.tensor(naive(documents_of(sizes), width)[0])
    n = len(stored)
    row = data.draw(st.integers(0, n - 1))
    column = data.draw(st.integers(0, width - 1))
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4)))
    rows, columns = data.draw(st.slices(n)), data.draw(st.slices(width))
    rows = slice(rows.start, rows.stop)  # a tensor steps forward only
    columns = slice(columns.start, columns.stop)
    for index in (row, chosen, rows, (row, column), (rows, columns), (chosen, column)):
        assert contexts[index].tolist() == stored[index].tolist()
    assert contexts[row, column].item() == stored[row, column]
    assert contexts.numel() == stored.numel()
    assert contexts.dtype == stored.dtype


@given(lengths, widths)
def test_windows_one_at_a_time(sizes: list[int], width: int):
    """A batch of one window, whether its context begins before the first document or not."""
    windows = Windows(documents_of(sizes), width, PAD)
    contexts, targets = naive(documents_of(sizes), width)
    for row in range(len(windows)):
        chosen = torch.tensor([row, len(windows) - 1])
        assert windows.contexts[chosen].tolist() == [contexts[row], contexts[-1]]
        assert windows.targets[chosen].tolist() == [targets[row], targets[-1]]


@pytest.mark.parametrize(
    ("width", "context"), [(2, [9, 6]), (4, [7, 5, 9, 6]), (6, [1, 8, 7, 5, 9, 6])]
)
def test_contexts_by_width(width: int, context: list[int]):
    """The worked sentence: what stands before the full stop (target 6 counted from 1)."""
    windows = Windows([[1, 8, 7, 5, 9, 6, 4, 2]], width, PAD)
    row = windows.targets.tolist().index(4)
    assert windows.contexts[row].tolist() == context


def test_no_document_no_window():
    windows = Windows([], 4, PAD)
    assert len(windows) == 0
    assert windows.contexts[:].tolist() == []
