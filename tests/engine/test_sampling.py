"""Which windows make a batch: a function of the step."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import FixedRows, SampledRows


def drawn(windows: int, batch: int, seed: int, steps: int) -> list[list[int]]:
    """What `torch.randint` on a generator seeded seed + 10000 gives, batch after batch."""
    generator = torch.Generator().manual_seed(seed + 10_000)
    return [torch.randint(windows, (batch,), generator=generator).tolist() for _ in range(steps)]


@given(
    st.integers(1, 50),
    st.integers(1, 6),
    st.integers(0, 2**40),
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
)
def test_batches_in_any_order(windows: int, batch: int, seed: int, order: list[int]):
    """Asked for in any order, forward, back and again, step n is always the n-th draw."""
    rows = SampledRows(windows, batch, seed)
    expected = drawn(windows, batch, seed, 12)
    assert [rows.rows(step).tolist() for step in order] == [expected[step - 1] for step in order]


def test_batches_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    SampledRows(10, 4, 1).rows(3)
    assert torch.equal(before, torch.get_rng_state())


def test_fixed_rows_are_the_same_in_every_step():
    rows = FixedRows([3, 1, 3])
    assert [rows.rows(step).tolist() for step in (1, 7, 2)] == [[3, 1, 3]] * 3
