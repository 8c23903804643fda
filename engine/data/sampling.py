"""Which windows make the batch of a step: a function of the step alone, so that any step can be
made again."""

from __future__ import annotations

import torch
from torch import Tensor

SEED_OFFSET = 10_000  # batches are drawn from seed + 10000, parameters from seed


class FixedRows:
    """The same windows in every step."""

    def __init__(self, rows: list[int]):
        self._rows = torch.tensor(rows, dtype=torch.long)

    def rows(self, step: int) -> Tensor:
        return self._rows


class SampledRows:
    """Windows drawn with replacement, by `torch.randint` on a CPU generator of their own.

    The generator runs on from step to step; a step further back is reached by drawing again from
    the beginning (6,000 batches of 512 take a few milliseconds).
    """

    def __init__(self, windows: int, batch: int, seed: int):
        self.windows, self.batch, self.seed = windows, batch, seed
        self._drawn = 0
        self._last = torch.empty(0, dtype=torch.long)
        self._generator = torch.Generator()

    def rows(self, step: int) -> Tensor:
        """[B] window numbers of step 1, 2, ..."""
        if step < self._drawn or self._drawn == 0:
            self._generator.manual_seed(self.seed + SEED_OFFSET)
            self._drawn = 0
        while self._drawn < step:
            self._last = torch.randint(self.windows, (self.batch,), generator=self._generator)
            self._drawn += 1
        return self._last
