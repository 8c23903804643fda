"""`import engine`: every name, loaded on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import engine


def test_every_public_name_is_there():
    """`engine.X` for all of `engine.__all__`; any other name is told."""
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert dir(engine) == sorted(engine.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = engine.Nothing


@pytest.mark.parametrize("module", ["engine", "engine.maps", "engine.service.options"])
def test_importing_loads_no_torch(module: str):
    """The screen's side imports these: it must not wait for torch."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
