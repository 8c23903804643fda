"""The vocabulary: which token has which ID."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import BOS, EOS, PAD, SPECIAL_TOKENS, UNK, Vocabulary, tokenize

words = st.text(alphabet="abcd", min_size=1, max_size=2)
documents = st.lists(st.lists(words, max_size=12), max_size=5)


def test_special_tokens():
    assert SPECIAL_TOKENS == (PAD, BOS, EOS, UNK) == ("<PAD>", "<BOS>", "<EOS>", "<UNK>")


def test_constructor_takes_the_fields_in_order():
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a"], {"<PAD>": 0, "a": 4}, {"a": 2}, 9, 2)
    assert vocabulary.itos[4] == "a"
    assert vocabulary.stoi["a"] == 4
    assert (vocabulary.counts, vocabulary.max_vocab, vocabulary.min_freq) == ({"a": 2}, 9, 2)
    assert len(vocabulary) == 5


@given(documents, st.integers(1, 3), st.none() | st.integers(0, 12), st.booleans())
def test_fit_takes_the_most_frequent(texts, min_freq: int, limit: int | None, by_count: bool):
    """Compared with a count by hand: limit, least frequency, both orders."""
    vocabulary = Vocabulary.fit(texts, limit, min_freq, by_count)
    counts = Counter(token for text in texts for token in text)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    kept = [token for token in ranked if counts[token] >= min_freq]
    if limit is not None:
        kept = kept[: max(0, limit - 4)]
    assert vocabulary.itos == list(SPECIAL_TOKENS) + (kept if by_count else sorted(kept))
    assert vocabulary.counts == counts
    assert {vocabulary.itos[i]: i for i in range(len(vocabulary))} == vocabulary.stoi


@given(documents, st.lists(words, max_size=10))
def test_ids_and_back(texts, tokens: list[str]):
    """Every known token comes back, every unknown one as <UNK>, with boundaries around."""
    vocabulary = Vocabulary.fit(texts)
    known = {token for text in texts for token in text}
    shown = [token if token in known else UNK for token in tokens]
    ids = vocabulary.encode_tokens(tokens)
    assert (ids[0], ids[-1]) == (vocabulary.bos_id, vocabulary.eos_id)
    assert ids[1:-1] == vocabulary.encode_tokens(tokens, boundaries=False)
    assert vocabulary.decode_ids(ids, skip_special=False) == [BOS, *shown, EOS]
    assert vocabulary.decode_ids(ids) == [token for token in tokens if token in known]


def test_markup_of_special_tokens_in_a_text_is_no_special_token():
    """A text that says <PAD> gives the tokens < pad >, not ID 0."""
    tokens = tokenize("<PAD> <EOS>")
    assert tokens == ["<", "pad", ">", "<", "eos", ">"]
    ids = Vocabulary.fit([tokens]).encode_tokens(tokens, boundaries=False)
    assert min(ids) >= len(SPECIAL_TOKENS)


@pytest.mark.parametrize("wrong", [-1, 6, 10_000])
@pytest.mark.parametrize("skip_special", [True, False])
def test_ids_outside_are_told(wrong: int, skip_special: bool):
    vocabulary = Vocabulary.fit([["a", "b"]])
    with pytest.raises(IndexError, match=f"ID {wrong} is not in a vocabulary of 6"):
        vocabulary.decode_ids([4, wrong], skip_special)
