"""Windows: what a model sees (a context of w slots) and what it is to predict (the next token).

Windows never cross a document: a context that would begin before its document is padded on the
left. They are not stored: a batch gathers its contexts from one flat array of IDs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Contexts:
    """The contexts of all windows, [N, w], read like a tensor but gathered only where asked.

    Row n holds the w IDs before target n, `pad_id` where its document had not begun.
    """

    def __init__(self, ids: Tensor, ends: Tensor, begins: Tensor, width: int, pad_id: int):
        self.ids = ids  # [tokens] of all documents, one after another
        self.ends = ends  # [N] where the target of window n lies
        self.begins = begins  # [N] where its document begins
        self.pad_id = pad_id
        self.slots = torch.arange(-width, 0)
        self.shape = torch.Size((len(ends), width))
        self.dtype = ids.dtype
        self.device = ids.device

    def __getitem__(self, index: Any) -> Tensor:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        at = self.ends[rows][..., None] + self.slots[columns]
        inside = at >= self.begins[rows][..., None]
        found = torch.where(inside, self.ids[at.clamp(min=0)], self.pad_id)
        return found[..., 0] if isinstance(columns, int) else found

    def __len__(self) -> int:
        return self.shape[0]

    def numel(self) -> int:
        return self.shape.numel()


class Windows:
    """Contexts [N, w] and targets [N] of encoded documents, in reading order.

    A document of n IDs (boundaries included) gives n - 1 windows: each ID but the first is a
    target once.
    """

    def __init__(self, documents: list[list[int]], width: int, pad_id: int):
        lengths = torch.tensor([len(ids) for ids in documents], dtype=torch.long)
        flat = [i for ids in documents for i in ids]
        self.ids = torch.tensor(flat, dtype=torch.long)
        begins = lengths.cumsum(0) - lengths
        first = torch.zeros(len(flat), dtype=torch.bool)
        first[begins] = True
        ends = (~first).nonzero().flatten()
        document = torch.repeat_interleave(begins, lengths)
        self.contexts = Contexts(self.ids, ends, document[ends], width, pad_id)
        self.targets = self.ids[ends]

    def __len__(self) -> int:
        return len(self.targets)
