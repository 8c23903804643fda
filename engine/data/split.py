"""Which documents train and which are held out: decided by a hash of the text, so that the same
document always lands on the same side, whatever else is in the corpus."""

from __future__ import annotations

import hashlib
import re
import unicodedata

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLIT_SEED = "31415"
ENOUGH = 10  # with fewer documents than this, all train


def normalized(text: str) -> str:
    """NFKC, lower case, every run of white space one space: what counts as the same document."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).lower()).strip()


def split_of(text: str) -> str:
    """train (80%), validation (10%) or test (10%), by SHA-256 of seed, NUL and normalized text."""
    digest = hashlib.sha256(f"{SPLIT_SEED}\0{normalized(text)}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return TRAIN if share < 0.80 else VALIDATION if share < 0.90 else TEST


def split_documents(texts: list[str]) -> tuple[list[str], str]:
    """The split of each document, and one sentence that says how it was decided.

    Fewer than 10 documents all train. Where the hash would leave none to train, all train too.
    """
    if len(texts) < ENOUGH:
        count = "1 document" if len(texts) == 1 else f"{len(texts)} documents"
        return [TRAIN] * len(texts), f"{count}: fewer than {ENOUGH}, so all train"
    splits = [split_of(text) for text in texts]
    if TRAIN not in splits:
        return [TRAIN] * len(texts), "the hash rule leaves no document to train, so all train"
    counts = ", ".join(f"{splits.count(name)} {name}" for name in (TRAIN, VALIDATION, TEST))
    return splits, f"by SHA-256 of each text: {counts}"
