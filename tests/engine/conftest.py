"""Hypothesis without a clock (a busy machine is no failure), the same examples every time; and one
thread for torch: on a busy machine several wait for each other, up to eight times as long."""

from __future__ import annotations

import torch
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
torch.set_num_threads(1)
