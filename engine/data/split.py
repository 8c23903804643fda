"""Which documents train and which are held out: decided by a hash of the text, so that the same
document always lands on the same side, whatever else is in the corpus."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from engine.errors import UsageError
from engine.progress import Tell, tracked

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SIDES = (TRAIN, VALIDATION, TEST)
DUPLICATE = "duplicate"
SPLIT_SEED = "31415"
ENOUGH = 10  # with fewer documents than this, all train


def normalized(text: str) -> str:
    """NFKC, lower case, every run of white space one space: what counts as the same document."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def split_of(text: str) -> str:
    """train (80%), validation (10%) or test (10%), by SHA-256 of seed, NUL and normalized text."""
    return side_of(normalized(text).encode())


def side_of(plain: bytes) -> str:
    digest = hashlib.sha256(SPLIT_SEED.encode() + b"\0" + plain).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return TRAIN if share < 0.80 else VALIDATION if share < 0.90 else TEST


@dataclass(frozen=True)
class Split:
    """Where each document went.

    sides      of each document as it was given: train, validation, test or duplicate
    documents  the numbers of the documents of each side, in the order in which they are read
    how        one sentence: how it was decided
    hashed     whether the hash decided
    """

    sides: list[str]
    documents: dict[str, list[int]]
    how: str
    hashed: bool

    @property
    def duplicates_dropped(self) -> int:
        return self.sides.count(DUPLICATE)


def split_documents(
    texts: list[str], sides: list[str] | None = None, tell: Tell | None = None
) -> Split:
    """Split documents. Of equal ones (normalized) the first stays; whole documents go to one side.

    sides  where the corpus says it itself; else the hash decides, and each side is read in the
           order of the first 16 hex digits of the SHA-256 of the normalized text, so that the order
           of a file does not matter. Fewer than 10 documents all train, in their order; so do all
           where the hash would leave none to train.

    Raises UsageError for a corpus that says itself that none trains.
    """
    told = tracked(texts, "looking for duplicates", len(texts), tell)
    plain = [normalized(text).encode("utf-8", "surrogatepass") for text in told]
    keys = [hashlib.sha256(each).hexdigest()[:16] for each in plain]
    first: dict[bytes, int] = {}
    for number, each in enumerate(plain):
        first.setdefault(each, number)
    kept = list(first.values())
    hashes = [side_of(plain[number]) for number in kept]
    hashed = sides is None and len(kept) >= ENOUGH and TRAIN in hashes
    if sides is not None:
        side = {number: sides[number] for number in kept}
    else:
        side = dict(zip(kept, hashes if hashed else [TRAIN] * len(kept), strict=True))
    order = sorted(kept, key=keys.__getitem__) if hashed else kept
    documents = {name: [n for n in order if side[n] == name] for name in SIDES}
    if not documents[TRAIN]:
        raise UsageError("no document of this corpus trains: it says so itself, give another")
    where = [side.get(number, DUPLICATE) for number in range(len(texts))]
    how = how_of(documents, hashed, sides is not None)
    dropped = where.count(DUPLICATE)
    how += f"; {dropped} dropped, equal to an earlier one" if dropped else ""
    return Split(where, documents, how, hashed)


def how_of(documents: dict[str, list[int]], hashed: bool, given: bool) -> str:
    """One sentence: how documents were split."""
    counts = ", ".join(f"{len(documents[name])} {name}" for name in SIDES)
    if given:
        return f"as the corpus says itself: {counts}"
    if hashed:
        return f"by SHA-256 of each text: {counts}"
    count = len(documents[TRAIN])
    if count >= ENOUGH:
        return "the hash rule leaves no document to train, so all train"
    those = "1 document" if count == 1 else f"{count} documents"
    return f"{those}: fewer than {ENOUGH}, so all train"
