"""Hypothesis without a clock (a busy machine is no failure), the same examples every time: some of
them, or all (HYPOTHESIS_PROFILE=all, as .ci/run has it)."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("some", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("all", deadline=None, derandomize=True, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "some"))
