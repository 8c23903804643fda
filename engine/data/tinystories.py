"""The published selection of TinyStories: which rows of the hub's dataset, by its stated rule.

TinyStories is by Ronen Eldan and Yuanzhi Li, licence CDLA-Sharing-1.0; it is fetched, not shipped.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine.data.cache import read_cached, write_cached
from engine.data.corpus import Corpus, VocabularyRule
from engine.data.hub import is_reachable, load, offline, told_of
from engine.errors import TensorstepError, UsageError
from engine.progress import Tell, tracked

ID = "roneneldan/TinyStories"
REVISION = "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"
ROWS = 2_119_719  # of its train split
PAGE = 100
SELECTION_SEED = 1701


@dataclass(frozen=True)
class Profile:
    """A size of the selection; only `full` has a published checksum."""

    name: str
    stories: int
    max_vocab: int
    sha256: str | None = None


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("smoke", 480, 1500),
        Profile("classroom", 3000, 3000),
        Profile(
            "full", 6000, 4000, "ecaf3b99879170311c1fcde645251b9793620f1f5bf57159210fb7ab7180a7b3"
        ),
    )
}


def check_profile(name: str) -> Profile:
    """The profile of that name. Raises UsageError where there is none."""
    if name not in PROFILES:
        raise UsageError(f"there is no tinystories:{name}: use {', '.join(PROFILES)}")
    return PROFILES[name]


def selected_rows(stories: int) -> list[int]:
    """The rows of a selection: so many pages of 100, drawn by `random.Random(1701)`, sorted; the
    first `stories` rows of them."""
    starts = range(0, ROWS - PAGE + 1, PAGE)
    pages = sorted(random.Random(SELECTION_SEED).sample(starts, -(-stories // PAGE)))  # noqa: S311
    return [start + i for start in pages for i in range(PAGE)][:stories]


def raw_sha256(rows: Sequence[int], texts: Sequence[str]) -> str:
    """The checksum of a selection in its published form: a line of JSON a row."""
    digest = hashlib.sha256()
    for row, text in zip(rows, texts, strict=True):
        line = json.dumps({"row_idx": row, "text": text}, ensure_ascii=False)
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def read_selection(profile: Profile, tell: Tell | None = None) -> Corpus:
    """The selection of a profile: from the cache, else from the hub (about 1 GB, once).

    Raises TensorstepError where the hub cannot be reached, or gives other rows than the published.
    """
    rows = selected_rows(profile.stories)
    key = f"tinystories {REVISION} {profile.name}"
    texts = read_cached(key)
    if texts is None or not is_right(profile, rows, texts):
        texts = fetch(rows, tell)
        if not is_right(profile, rows, texts):
            raise TensorstepError(
                f"what the hub gave for tinystories:{profile.name} is not the published selection"
                " (its SHA-256 differs): try again, the download may be broken"
            )
        write_cached(key, texts)
    rule = VocabularyRule(profile.max_vocab, 2, True)
    return Corpus(f"tinystories:{profile.name}", texts, rule=rule)


def is_right(profile: Profile, rows: Sequence[int], texts: Sequence[str]) -> bool:
    if len(texts) != len(rows):
        return False
    return profile.sha256 is None or raw_sha256(rows, texts) == profile.sha256


def fetch(rows: Sequence[int], tell: Tell | None) -> list[str]:
    """These rows of the dataset, in this order."""
    online = is_reachable()
    if online and tell is not None:
        tell(f"downloading {ID} (about 1 GB, once)", 0, None)
    with offline(not online), told_of(ID, online):
        table = load(ID, None, REVISION, "train", False)
        if len(table) != ROWS:
            raise TensorstepError(f"{ID!r} has {len(table)} rows here, not the published {ROWS}")
        chosen = table.select(rows)
        return [row["text"] for row in tracked(chosen, "reading stories", len(rows), tell)]
