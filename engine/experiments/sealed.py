"""The test side of a split, sealed until everything that is to be chosen is chosen.

Whoever compares settings has sessions without a test side: it is taken out of them before anything
is read. It comes back only for a `Frozen` choice, which is on the disk by then and cannot be made
again with another content.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.data.split import TEST
from engine.errors import TensorstepError
from engine.models import StatesModel
from engine.runs import disk
from engine.service.session import Session

FILE = "choice.json"


class Frozen:
    """A choice that stands: settings and selected steps, as they were written down."""

    def __init__(self, folder: Path, choice: dict[str, Any]):
        """Write a choice down, or find that it was. Raises TensorstepError where another one was
        frozen here before: the test side has been seen since."""
        self.path = folder / FILE
        content = (json.dumps(choice, indent=1, sort_keys=True) + "\n").encode()
        if self.path.exists():
            if self.path.read_bytes() != content:
                raise TensorstepError(
                    f"{str(self.path)!r} holds another choice, after which the test stories were"
                    " read: give another --dir to choose anew"
                )
            return
        folder.mkdir(parents=True, exist_ok=True)
        disk.write_whole(self.path, content)


class Sealed:
    """The test side of a session, taken out of it."""

    def __init__(self, session: Session):
        self._session = session
        self._stream = session.prepared.streams.pop(TEST)

    def loss(self, frozen: Frozen, model: StatesModel, name: str) -> float | None:
        """The loss over the whole test side, by target count, once the choice stands."""
        if not isinstance(frozen, Frozen) or not frozen.path.exists():
            raise TensorstepError("the test side is sealed: freeze the choice first")
        streams = self._session.prepared.streams
        streams[TEST] = self._stream
        try:
            return self._session.split_loss(model, name, TEST)
        finally:
            del streams[TEST]
