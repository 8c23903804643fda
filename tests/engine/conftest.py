"""One thread for torch: on a busy machine several wait for each other, eight times as long."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
