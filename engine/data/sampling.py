"""Which windows make the batch of a step: a function of the step alone, so that any step can be
made again."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.errors import UsageError

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


class EpochRows:
    """Every window once an epoch, in a new order each time: what
    `DataLoader(shuffle=True, batch_size=batch, drop_last=drop_last)` reads, epoch after epoch,
    driven by the global generator of `torch.manual_seed(seed)`.

    An epoch takes two draws from that generator, of which the second seeds its order; the first
    is for the loader's workers. The last batch of an epoch is smaller, or (`drop_last`) left out.

    state   where the generator stands instead, as `torch.get_rng_state` tells it: of a loader that
            is driven after a model was initialised
    others  how many loaders are read through before each epoch, to evaluate: each takes a draw
    """

    def __init__(
        self,
        windows: int,
        batch: int,
        seed: int,
        drop_last: bool = False,
        state: Tensor | None = None,
        others: int = 0,
    ):
        self.windows, self.batch, self.seed = windows, batch, seed
        whole, rest = divmod(windows, batch)
        self.batches = whole if drop_last else whole + (rest > 0)  # of an epoch
        if not self.batches:
            raise UsageError(
                f"--batch {batch} with --drop-last leaves no batch of {windows} windows:"
                " give a smaller batch"
            )
        self._others = others
        self._seeds: list[int] = []
        self._generator = torch.Generator().manual_seed(seed)
        if state is not None:
            self._generator.set_state(state)
        self._order = torch.empty(0, dtype=torch.long)
        self._epoch = -1

    def rows(self, step: int) -> Tensor:
        """[B] window numbers of step 1, 2, ..."""
        epoch, batch = divmod(step - 1, self.batches)
        if epoch != self._epoch:
            self._order, self._epoch = self._shuffled(epoch), epoch
        return self._order[batch * self.batch : (batch + 1) * self.batch]

    def _shuffled(self, epoch: int) -> Tensor:
        while len(self._seeds) <= epoch:
            *_, seed = (self._draw() for _ in range(self._others + 2))
            self._seeds.append(seed)
        order = torch.Generator().manual_seed(self._seeds[epoch])
        return torch.randperm(self.windows, generator=order)

    def _draw(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self._generator))
