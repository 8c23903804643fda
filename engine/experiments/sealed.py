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
from engine.runs.directory import RunDirectory
from engine.service.session import Session

CHOICE = "choice.json"


class Frozen:
    """A choice that stands: of each run its selected step, its settings and its data, as they were
    written down."""

    def __init__(self, folder: Path, *chosen: Sealed):
        """Write what was chosen down, or find that it was; runs that are new are added. Raises
        TensorstepError where another choice was frozen here for one of them: the test side has
        been seen since."""
        self.path = folder / CHOICE
        before = self.choice if self.path.exists() else {}
        new = {each.name: each.choice for each in chosen}
        for name, choice in new.items():
            if before.get(name, choice) != choice:
                raise TensorstepError(
                    f"{str(self.path)!r} holds another choice of {name}, after which the test"
                    " stories were read: give another --dir to choose anew"
                )
        if new.keys() <= before.keys():
            return
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({**before, **new}, indent=1, sort_keys=True) + "\n"
        disk.write_whole(self.path, content.encode())

    @property
    def choice(self) -> dict[str, Any]:
        """As it is on the disk. Raises TensorstepError where it cannot be read."""
        try:
            found: dict[str, Any] = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            raise TensorstepError(
                f"{str(self.path)!r} cannot be read: give another --dir to choose anew"
            ) from None
        return found


def is_frozen(run: RunDirectory) -> bool:
    """Whether the choice that a run is part of stands."""
    for folder in (run.path, run.path.parent):
        if (folder / CHOICE).exists() and run.name in Frozen(folder).choice:
            return True
    return False


class Sealed:
    """The test side of a run's session, taken out of it.

    name, choice  of the run: what a frozen choice has to say of it
    """

    def __init__(self, session: Session, name: str, choice: dict[str, Any]):
        self.name = name
        self.choice = choice
        self._session = session
        self._stream = session.prepared.streams.pop(TEST)

    def loss(self, frozen: Frozen, model: StatesModel, name: str) -> float | None:
        """The loss over the whole test side, by target count, once the choice of this run
        stands. Raises TensorstepError before."""
        stands = isinstance(frozen, Frozen) and frozen.path.exists()
        if not stands or frozen.choice.get(self.name) != self.choice:
            raise TensorstepError("the test side is sealed: freeze the choice first")
        streams = self._session.prepared.streams
        streams[TEST] = self._stream
        try:
            return self._session.split_loss(model, name, TEST)
        finally:
            del streams[TEST]
