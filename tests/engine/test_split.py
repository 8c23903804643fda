"""The split: which documents train, by a hash of their text."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import prepare
from engine.data.split import split_documents, split_of

SIDES = ("train", "validation", "test")


def side(text: str) -> str:
    """The rule once more: SHA-256 of '31415', NUL and the text, as a share of 2^64."""
    plain = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    digest = hashlib.sha256(b"31415" + b"\x00" + plain.encode("utf-8")).hexdigest()
    share = int(digest[:16], 16) / 2**64
    if share < 0.8:
        return "train"
    return "validation" if share < 0.9 else "test"


def in_order(texts: list[str], sides: list[str], name: str) -> list[str]:
    """The texts of one side, by the SHA-256 of each."""
    mine = [text for text, where in zip(texts, sides, strict=True) if where == name]
    return sorted(mine, key=lambda text: hashlib.sha256(text.lower().encode()).hexdigest())


words = st.text(alphabet="abcXYZé ﬁ\n\t.", max_size=30)


@given(words)
def test_side_of_a_text(text: str):
    assert split_of(text) == side(text)


@given(words)
def test_case_and_white_space_do_not_matter(text: str):
    loud = text.upper()
    assert split_of(f"  {loud}\n\n") == split_of(loud.lower().replace(" ", "\t "))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_few_documents_all_train(count: int):
    split = split_documents([f"story {i}" for i in range(count)])
    assert split.sides == ["train"] * count
    assert split.documents["train"] == list(range(count))
    assert split.how == f"{count} document{'s' * (count > 1)}: fewer than 10, so all train"


def test_many_documents_are_split_by_the_rule():
    texts = [f"This is story number {i}." for i in range(2000)]
    split = split_documents(texts)
    assert split.sides == [side(text) for text in texts]
    counts = [split.sides.count(name) for name in SIDES]
    assert split.how == "by SHA-256 of each text: {} train, {} validation, {} test".format(*counts)
    assert [count / 2000 for count in counts] == pytest.approx([0.8, 0.1, 0.1], abs=0.03)


def test_all_train_where_the_rule_leaves_none():
    texts = [text for i in range(500) if side(text := f"held out {i}") != "train"][:10]
    split = split_documents(texts)
    assert split.sides == ["train"] * 10
    assert "so all train" in split.how


def test_preparation_of_many_documents():
    """Vocabulary and windows are of training documents only; validation ones are held out."""
    texts = [f"word{'abcdefghij'[i % 10]} number {i}." for i in range(60)]
    sides = [side(text) for text in texts]
    assert set(sides) == set(SIDES)
    ready = prepare(texts, 4)
    states = {state.name: state.value for state in ready.data.preparation}
    assert states["stories"] == texts
    assert states["split"] == sides
    training, held_out, _ = (in_order(texts, sides, name) for name in SIDES)
    tokens = [text.lower().replace(".", " .").split() for text in training]
    assert states["tokens"] == [token for line in tokens for token in line]
    assert states["vocabulary"] == [
        "<PAD>",
        "<BOS>",
        "<EOS>",
        "<UNK>",
        *sorted({token for line in tokens for token in line}),
    ]
    assert len(states["windows.targets"]) == sum(len(line) + 1 for line in tokens)
    contexts, targets = ready.data.held_out
    assert len(contexts) == len(targets) == 5 * len(held_out)  # word, number, digits, ., <EOS>
    lines = [text.lower().replace(".", " .").split() for text in held_out]
    number = {token: i for i, token in enumerate(states["vocabulary"])}
    expected = [i for line in lines for i in [*(number.get(token, 3) for token in line), 2]]
    assert targets.tolist() == expected
