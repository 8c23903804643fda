"""The audit, and what it counts: documents split, numbered and windowed, on real stories too."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import torch

from engine import (
    UsageError,
    open_corpus,
    prepare,
)
from engine.data.audit import audit_of
from engine.data.corpus import EXPERIMENT, Corpus, VocabularyRule
from engine.data.encoding import encode_corpus
from engine.data.preparation import Prepared
from engine.data.split import Split
from engine.service.options import Options
from engine.text.bpe import BPETokenizer

TINY = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinystories"
SIDES = ("train", "validation", "test")
NAMES = ("documents", "tokens", "unknown", "windows", "length_tokens")
SPECIAL = ["<PAD>", "<BOS>", "<EOS>", "<UNK>"]
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


def here(name: str) -> Path:
    if not (TINY / name).exists():
        pytest.skip("../shared/data/tinystories is not here")
    return TINY / name


@cache
def stories() -> list[str]:
    lines = here("stories.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@cache
def ready() -> Prepared:
    return prepare(open_corpus(str(here("stories.jsonl"))), 64)


# --- the rules once more, without the engine --------------------------------------------------


def same(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def side_of(text: str) -> str:
    digest = hashlib.sha256(b"31415\0" + same(text).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.8 else "validation" if share < 0.9 else "test"


def words(text: str) -> list[str]:
    """Cut character by character: letters with one inner apostrophe part, digits, single marks."""
    text = unicodedata.normalize("NFKC", text).lower()
    tokens, at = [], 0

    def run(begin: int, kind) -> int:
        while begin < len(text) and kind(text[begin]):
            begin += 1
        return begin

    while at < len(text):
        end = run(at, LETTERS.__contains__)
        if end > at:
            more = run(end + 1, LETTERS.__contains__) if text[end : end + 1] == "'" else 0
            end = more if more > end + 1 else end
        else:
            end = max(run(at, str.isdecimal), at + 1)
        if not text[at].isspace():
            tokens.append(text[at:end])
        at = end
    return tokens


class Expected:
    """The experiment's rules on documents, in plain Python."""

    def __init__(self, texts: list[str]):
        unique = list({same(text): text for text in reversed(texts)}.values())
        unique.sort(key=lambda text: hashlib.sha256(same(text).encode()).hexdigest()[:16])
        self.texts = {side: [t for t in unique if side_of(t) == side] for side in SIDES}
        cut = {side: [words(text) for text in self.texts[side]] for side in SIDES}
        counts = Counter(token for tokens in cut["train"] for token in tokens)
        frequent = [t for t in sorted(counts, key=lambda t: (-counts[t], t)) if counts[t] > 1]
        self.itos = [*SPECIAL, *frequent[: 4000 - 4]]
        ids = {token: i for i, token in enumerate(self.itos)}
        self.ids = {
            side: [[1, *(ids.get(t, 3) for t in tokens), 2] for tokens in cut[side]]
            for side in SIDES
        }
        lengths = {side: [len(tokens) for tokens in cut[side]] for side in SIDES}
        self.audit = {
            "documents": {side: len(self.texts[side]) for side in SIDES},
            "tokens": {side: sum(lengths[side]) for side in SIDES},
            "unknown": {side: sum(i.count(3) for i in self.ids[side]) for side in SIDES},
            "windows": {side: sum(n + 1 for n in lengths[side]) for side in SIDES},
            "duplicates_dropped": len(texts) - len(unique),
            "overlap": 0,
            "vocabulary_size": len(self.itos),
            "length_tokens": {
                side: {"min": min(n), "median": median(n), "max": max(n)}
                for side, n in lengths.items()
            },
        }


@cache
def expected() -> Expected:
    return Expected(stories())


def naive(documents: list[list[int]], width: int):
    """Contexts and targets of each document, as lists."""
    for ids in documents:
        contexts = [([0] * width + ids[:at])[-width:] for at in range(1, len(ids))]
        yield contexts, ids[1:]


# --- 6,200 real stories -----------------------------------------------------------------------


def test_audit_of_real_stories():
    assert len(stories()) == 6200
    assert ready().audit == expected().audit


def test_split_order_vocabulary_and_ids_of_real_stories():
    assert ready().tokenizer.itos == expected().itos
    assert len(ready().tokenizer) == 4000
    for side in SIDES:
        numbers = ready().split.documents[side]
        assert [stories()[n] for n in numbers] == expected().texts[side]
        stream = ready().streams[side]
        assert len(stream) == len(numbers)
        flat = [i for ids in expected().ids[side] for i in ids]
        assert stream.ids.tolist() == flat
        assert stream.lengths.tolist() == list(map(len, expected().ids[side]))


def test_no_story_is_on_two_sides():
    on = {side: {same(stories()[n]) for n in ready().split.documents[side]} for side in SIDES}
    assert sum(map(len, on.values())) == len(set().union(*on.values())) == 6200
    sides = ready().split.sides
    assert [sides.count(side) for side in SIDES] == [len(on[side]) for side in SIDES]


def test_duplicates_change_nothing_but_their_count():
    """The same stories, shouted, spaced out, and in another order."""
    chosen = [text for text in stories()[::50] if same(text.upper()) == same(text)]
    again = [
        *chosen[:30],
        *(text.upper() for text in chosen[30:60]),
        *("\n \t" + text.replace(" ", " \u00a0 ") + "\n\n" for text in chosen[60:90]),
    ]
    more = prepare(
        Corpus("more", [*stories()[3000:], *again, *stories()[:3000]], rule=EXPERIMENT), 64
    )
    assert more.audit == {**ready().audit, "duplicates_dropped": 90}
    assert more.tokenizer.itos == ready().tokenizer.itos
    for side in SIDES:
        assert torch.equal(more.streams[side].ids, ready().streams[side].ids)
        assert torch.equal(more.streams[side].starts, ready().streams[side].starts)


def test_the_three_published_stories():
    published = json.loads(here("three_stories.json").read_text(encoding="utf-8"))["stories"]
    audit = prepare([story["text"] for story in published], 8).audit
    assert audit["documents"] == {"train": 3, "validation": 0, "test": 0}
    assert audit["tokens"]["train"] == 60 + 133 + 300
    assert audit["windows"]["train"] == 61 + 134 + 301
    assert audit["unknown"]["train"] == 0
    assert audit["length_tokens"]["train"] == {"min": 60, "median": 133, "max": 300}


@pytest.mark.parametrize("width", [1, 2, 64, 2000])
def test_windows_of_real_stories(width: int):
    some = prepare(Corpus("some", stories()[::100], rule=EXPERIMENT), 4)
    assert len(some.corpus.texts) == 62
    for side in SIDES:
        windows = some.windows_of(side, width)
        stream = some.streams[side]
        documents = [stream.document(n).tolist() for n in range(len(stream))]
        assert documents
        first = 0
        for contexts, targets in naive(documents, width):
            rows = slice(first, first + len(targets))
            assert windows.contexts[rows].tolist() == contexts
            assert windows.targets[rows].tolist() == targets
            first += len(targets)
        assert len(windows) == first == some.audit["windows"][side]


# --- what the audit says ----------------------------------------------------------------------

TEXTS = [f"{'word ' * (i % 5)}story {'abcdefghij'[i % 10]} number {i}." for i in range(60)]


def states_of(prepared: Prepared) -> dict[str, torch.Tensor]:
    return {state.name: state.value for state in prepared.data.preparation}


@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe:270", "cl100k_base"])
def test_states_of_step_0_are_the_audit(tokenizer: str):
    prepared = prepare([*TEXTS, TEXTS[0].upper()], 4, tokenizer)
    states, audit = states_of(prepared), prepared.audit
    for name in NAMES[:-1]:
        assert states[f"audit.{name}"].tolist() == [audit[name][side] for side in SIDES]
    assert states["audit.length_tokens"].tolist() == [
        [audit["length_tokens"][side][figure] for figure in ("min", "median", "max")]
        for side in SIDES
    ]
    for name in ("duplicates_dropped", "overlap", "vocabulary_size"):
        assert states[f"audit.{name}"].item() == audit[name]
    assert audit["duplicates_dropped"] == 1
    assert audit["overlap"] == 0
    assert audit["documents"] == {side: list(map(side_of, TEXTS)).count(side) for side in SIDES}
    ids = {
        side: [prepared.tokenizer.encode(t) for t in TEXTS if side_of(t) == side] for side in SIDES
    }
    assert audit["tokens"] == {side: sum(map(len, ids[side])) for side in SIDES}
    assert audit["windows"] == {side: sum(len(i) + 1 for i in ids[side]) for side in SIDES}
    assert audit["vocabulary_size"] == len(prepared.tokenizer)


def test_a_bpe_is_trained_on_training_documents_only():
    prepared = prepare(TEXTS, 4, "bpe:280")
    alone = BPETokenizer.train([t for t in TEXTS if side_of(t) == "train"], 280)
    assert prepared.tokenizer.itos == alone.itos
    for side in SIDES:
        for n, document in enumerate(prepared.split.documents[side]):
            ids = prepared.streams[side].document(n).tolist()
            assert ids == [1, *alone.encode(TEXTS[document]), 2]


def test_a_corpus_of_one_document():
    prepared = prepare(["Lily found a red ball."], 4)
    none = {"min": None, "median": None, "max": None}
    assert prepared.audit == {
        "documents": {"train": 1, "validation": 0, "test": 0},
        "tokens": {"train": 6, "validation": 0, "test": 0},
        "unknown": {"train": 0, "validation": 0, "test": 0},
        "windows": {"train": 7, "validation": 0, "test": 0},
        "duplicates_dropped": 0,
        "overlap": 0,
        "vocabulary_size": 10,
        "length_tokens": {
            "train": {"min": 6, "median": 6, "max": 6},
            "validation": none,
            "test": none,
        },
    }
    assert not any(name.startswith("audit.") for name in states_of(prepared))  # nothing to compare
    assert prepared.data.held_out is None
    assert json.loads(json.dumps(prepared.audit, allow_nan=False)) == prepared.audit


def test_an_empty_validation_side():
    corpus = Corpus("mine", ["a b c", "a b c d", "a z"], ["train", "train", "test"])
    prepared = prepare(corpus, 4)
    assert prepared.audit["documents"] == {"train": 2, "validation": 0, "test": 1}
    assert prepared.audit["unknown"] == {"train": 0, "validation": 0, "test": 1}  # z
    assert prepared.audit["length_tokens"] == {
        "train": {"min": 3, "median": 3.5, "max": 4},
        "validation": {"min": None, "median": None, "max": None},
        "test": {"min": 2, "median": 2, "max": 2},
    }
    lengths = states_of(prepared)["audit.length_tokens"]
    assert lengths[0].tolist() == [3.0, 3.5, 4.0]
    assert lengths[1].isnan().all()
    assert lengths[2].tolist() == [2.0, 2.0, 2.0]
    assert states_of(prepared)["audit.windows"].tolist() == [9, 0, 3]
    assert len(prepared.windows_of("validation")) == 0
    assert prepared.data.held_out is None
    assert json.loads(json.dumps(prepared.audit, allow_nan=False)) == prepared.audit


def test_a_corpus_without_training_documents_is_told():
    with pytest.raises(UsageError, match="no document of this corpus trains"):
        prepare(Corpus("mine", ["a", "b"], ["test", "validation"]), 4)


def test_a_leak_is_counted():
    """A split made by hand that puts one story on two sides, in two spellings."""
    corpus = Corpus("leak", ["Lily ran.", "lily  RAN.", "Tom sat."])
    split = Split(
        ["train", "test", "train"], {"train": [0, 2], "validation": [], "test": [1]}, "", False
    )
    assert audit_of(corpus, split, encode_corpus(corpus, split))["overlap"] == 1
    assert prepare(corpus, 4).audit["overlap"] == 0


def test_a_vocabulary_larger_than_the_corpus_is_told(tmp_path: Path):
    """a, b and c come twice and more: with the special tokens 7."""
    path = tmp_path / "some.txt"
    path.write_text("a a a b b c c d")
    assert (
        len(prepare(Options(text=str(path), max_vocab=7, min_freq=2).check().open(), 4).tokenizer)
        == 7
    )
    for options, size in (
        (Options(text=str(path), max_vocab=9), 8),
        (Options(text=str(path), max_vocab=8, min_freq=2), 7),
    ):
        with pytest.raises(UsageError) as error:
            prepare(options.check().open(), 4)
        told = str(error.value)
        assert f"--max-vocab {options.max_vocab} is more than the corpus has: {size}" in told
        assert f"ask for {size} or fewer" in told
        assert "\n" not in told


def test_a_vocabulary_that_would_be_empty_is_told():
    with pytest.raises(UsageError, match="no token trains 5 times or more"):
        prepare(Corpus("mine", ["a b c"], rule=VocabularyRule(min_freq=5)), 4)
