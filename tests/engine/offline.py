"""What keeps tests of the hub off the network and out of the user's own caches."""

from __future__ import annotations

import os
from pathlib import Path

import datasets
import huggingface_hub
import pytest

from engine import TensorstepError, open_corpus
from engine.data import hub, tinystories
from engine.data.cache import cache_folder


def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of the test's own, no proxies, and libraries that are online again afterwards."""
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert cache_folder().is_relative_to(tmp_path)


class Network:
    """Whether the hub is thought to be reachable: `on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.on = True
        for module in (hub, tinystories):
            monkeypatch.setattr(module, "is_reachable", lambda: self.on)


def refused(spec: str, limit: int | None = None) -> str:
    """The one sentence that is told about a corpus."""
    with pytest.raises(TensorstepError) as error:
        open_corpus(spec, limit)
    assert "\n" not in str(error.value)
    return str(error.value)


def kept_files() -> list[Path]:
    return list(cache_folder().rglob("*")) if cache_folder().exists() else []
