"""Batches of every step, as plain PyTorch draws them; and windows with a target at every place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from engine import (
    CutTokenizer,
    EpochRows,
    SampledRows,
    Sequences,
    UsageError,
    Vocabulary,
    Windows,
    open_corpus,
)

seeds = st.integers(0, 2**40)
steps = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(st.integers(1, 30), st.integers(1, 12), seeds, st.booleans(), steps)
def test_epochs_are_those_of_a_shuffling_loader(windows, batch, seed, drop_last, order):
    """Asked for in any order of steps, batch n is the n-th that a DataLoader reads."""
    if drop_last and windows < batch:
        with pytest.raises(UsageError, match=f"--batch {batch} with --drop-last leaves no batch"):
            EpochRows(windows, batch, seed, drop_last)
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        loader = DataLoader(range(windows), batch_size=batch, shuffle=True, drop_last=drop_last)
        read: list[list[int]] = []
        while len(read) < max(order):
            read += [rows.tolist() for rows in loader]
    rows = EpochRows(windows, batch, seed, drop_last)
    assert [rows.rows(step).tolist() for step in order] == [read[step - 1] for step in order]
    assert rows.batches == len(loader)


@given(st.integers(1, 10**6), st.integers(1, 40), seeds, steps)
def test_samples_are_those_of_a_seeded_generator(windows, batch, seed, order):
    generator = torch.Generator().manual_seed(seed + 10_000)
    drawn = [torch.randint(windows, (batch,), generator=generator) for _ in range(max(order))]
    rows = SampledRows(windows, batch, seed)
    assert all(torch.equal(rows.rows(step), drawn[step - 1]) for step in order)


def test_epochs_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    EpochRows(10, 4, 1).rows(30)
    assert torch.equal(before, torch.get_rng_state())


# --- a target at every position ---------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=6), st.integers(1, 10), st.data()
)
def test_sequences_are_the_naive_ones(documents: list[list[int]], length: int, data: st.DataObject):
    pairs = [
        (ids[at : at + length], ids[at + 1 : at + 1 + length])
        for ids in documents
        for at in range(len(ids) - length)
    ]
    sequences = Sequences(documents, length)
    assert len(sequences) == len(pairs)
    assert sequences.inputs.shape == sequences.targets.shape == (len(pairs), length)
    assert sequences.inputs.tolist() == [left for left, _ in pairs]
    assert sequences.targets.tolist() == [right for _, right in pairs]
    if pairs:
        row = data.draw(st.integers(0, len(pairs) - 1))
        column = data.draw(st.integers(0, length - 1))
        assert sequences.inputs[row].tolist() == pairs[row][0]
        assert sequences.targets[row, column].item() == pairs[row][1][column]
        assert sequences.inputs[[row, 0]].tolist() == [pairs[row][0], pairs[0][0]]


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=6), st.integers(1, 10))
def test_sequences_that_run_on_are_the_naive_ones(documents: list[list[int]], length: int):
    joined, begins, pairs = [i for ids in documents for i in ids], 0, []
    for ids in documents:
        for at in range(begins, begins + len(ids) - 1, length):  # while a target is left in it
            if at + length < len(joined):
                pairs.append((joined[at : at + length], joined[at + 1 : at + 1 + length]))
        begins += len(ids)
    found = Sequences(documents, length, run_on=True)
    assert found.inputs.tolist() == [left for left, _ in pairs]
    assert found.targets.tolist() == [right for _, right in pairs]
    for row in range(len(pairs)):
        assert joined[found.targets.source(row, length - 1)] == pairs[row][1][-1]


@pytest.mark.parametrize(("length", "windows"), [(32, [244, 127]), (24, [276, 143])])
def test_windows_of_the_job_logs(length: int, windows: list[int]):
    corpus = open_corpus("logs")
    sides = [
        [text for text, where in zip(corpus.texts, corpus.sides, strict=True) if where == side]
        for side in ("train", "validation")
    ]
    tokenizer = CutTokenizer("characters", Vocabulary.fit(map(list, sides[0]), special=()))
    encoded = [[tokenizer.encode(text) for text in side] for side in sides]
    assert [len(Sequences(documents, length)) for documents in encoded] == windows
    batch = Sequences(encoded[0], 8)
    users = len(encoded[0][0]) - 8  # the first of the second log
    assert batch.inputs[[0, users]].tolist() == [
        [12, 17, 5, 3, 17, 19, 7, 8],
        [12, 17, 5, 3, 22, 20, 8, 19],
    ]
    assert batch.targets[[0, users]].tolist() == [
        [17, 5, 3, 17, 19, 7, 8, 19],
        [17, 5, 3, 22, 20, 8, 19, 20],
    ]


def test_documents_without_a_window():
    """Of one ID there is nothing to predict; of none nothing at all."""
    assert len(Windows([[5], [], [7]], 3, 0)) == 0
    assert Windows([[5], [1, 2], []], 3, 0).contexts.tolist() == [[0, 0, 1]]
    assert Sequences([], 4).inputs.tolist() == []
