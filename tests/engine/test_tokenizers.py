"""Tokenizers of every kind: cuts, numbers, texts again, saved and loaded, and side by side."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import (
    TensorstepError,
    UsageError,
    compare,
    load_tokenizer,
    open_tokenizer,
)
from engine.text.bpe import BPETokenizer
from engine.text.loading import fit_cut
from engine.text.tokenizer import Tokenizer, blocked, bounded

SHARED = Path(__file__).resolve().parents[3] / "shared"
GPT2 = SHARED / "data" / "gpt2_bpe"
LLAMA = SHARED / "models" / "stories260K"

SENTENCE = "Lily can't find 12 balls! \n\nNaïve dünya: 🎈 日本語.\n"
TEXTS = [SENTENCE, "The cat sat on the mat. The cats sat, and the cat ran to the other mat."]
HARD = {
    "emoji": "Hi 🎈👩‍👩‍👧‍👦🇹🇷 👍🏽!",
    "turkish": "Merhaba dünya! İstanbul'da ığdır, ŞİŞLİ ve çiçek.",
    "cjk": "日本語のテキスト。한국어 문장, 中文字符！",
    "combining": "e\u0301 a\u0308\u0323 ﬁ Å x\u0300\u0301\u0302 \u200d\u202e",
    "spaces": "a  b   c    d \t\t e\u00a0\u3000f     ",
    "newlines": "\n\n\na\n \n  b\r\n\r\n\tc\n\n",
    "special": "before <|endoftext|> after<|endoftext|><|endoftext|>",
    "control": "\x00\x01\x7f\x85\u2028\ufeff\ufffd\U0010ffff",
    "apostrophes": "I'll we've they're it's 'S don'T 1234567 3.14",
    "empty": "",
}

WORDS = [
    ("Lily can't find 12 balls!", ["lily", "can't", "find", "12", "balls", "!"]),
    ("LILY found!", ["lily", "found", "!"]),
    ("redder!", ["redder", "!"]),
    ("Lily found a red ball.", ["lily", "found", "a", "red", "ball", "."]),
]
CHARACTERS = [("redder!", ["r", "e", "d", "d", "e", "r", "!"])]
CL100K = [
    ("hello", [15339]),
    (" hello", [24748]),
    ("Hello, world!", [9906, 11, 1917, 0]),
    ("cat", [4719]),
    ("cats", [38552]),
    ("unbelievable", [359, 32898, 24694]),
    ("Merhaba dünya!", [27814, 10796, 64, 52119, 23741, 0]),
]
CL100K_PIECES = [
    ("unbelievable", ["un", "belie", "vable"]),
    ("Merhaba dünya!", ["Mer", "hab", "a", " dü", "nya", "!"]),
]


@cache
def here(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"../shared/{path.relative_to(SHARED)} is not here")
    return path


@cache
def cl100k() -> Tokenizer:
    return open_tokenizer("cl100k_base", list)


@cache
def trained() -> BPETokenizer:
    return BPETokenizer.train(TEXTS, 270)


@cache
def gpt2() -> Tokenizer:
    return load_tokenizer(here(GPT2))


@cache
def llama() -> Tokenizer:
    return load_tokenizer(here(LLAMA))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "words": cache(lambda: open_tokenizer("words", lambda: TEXTS)),
    "characters": cache(lambda: open_tokenizer("characters", lambda: TEXTS)),
    "bpe": trained,
    "cl100k_base": cl100k,
    "gpt2": gpt2,
    "stories260K": llama,
}
kinds = pytest.mark.parametrize("kind", KINDS)


def told_once(error: pytest.ExceptionInfo[TensorstepError]) -> str:
    """The sentence of an error: one line, no traceback in it."""
    sentence = str(error.value)
    assert sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    return sentence


# --- the reference facts ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "pieces"),
    [("words", *row) for row in WORDS]
    + [("characters", *row) for row in CHARACTERS]
    + [("cl100k_base", *row) for row in CL100K_PIECES],
)
def test_pieces_of_the_reference(kind: str, text: str, pieces: list[str]):
    tokenizer = open_tokenizer(kind, lambda: [text])
    (row,) = compare(text, [tokenizer])
    assert row["tokenizer"] == kind
    assert row["pieces"] == pieces
    assert row["bytes"] == [piece.encode().hex() for piece in pieces]
    assert row["count"] == len(row["ids"]) == len(pieces)
    assert [tokenizer.itos[i] for i in row["ids"]] == pieces


@pytest.mark.parametrize(("text", "ids"), CL100K)
def test_ids_of_the_reference(text: str, ids: list[int]):
    assert cl100k().encode(text) == ids
    (row,) = compare(text, [cl100k()])
    assert (row["ids"], row["count"]) == (ids, len(ids))
    assert cl100k().decode(ids) == text


def test_half_a_character_shows_its_bytes():
    """Three bytes of a rare character, none of them a character: e.g. \\xe2."""
    rows = compare("⟁", [trained(), cl100k()])
    assert rows[0]["pieces"] == ["\\xe2", "\\x9f", "\\x81"]
    assert rows[0]["bytes"] == ["e2", "9f", "81"]
    assert "".join(rows[1]["bytes"]) == "e29f81"
    assert rows[1]["count"] > 1


def test_side_by_side_in_the_order_asked_for_and_cut_short():
    rows = compare("The cat", [KINDS["characters"](), KINDS["words"]()], most=2)
    assert [row["tokenizer"] for row in rows] == ["characters", "words"]
    assert [row["pieces"] for row in rows] == [["T", "h"], ["the", "cat"]]
    assert [row["count"] for row in rows] == [7, 2]  # of all pieces
    assert [len(row["ids"]) for row in rows] == [len(row["bytes"]) for row in rows] == [2, 2]


# --- what every kind does ---------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("text", [*TEXTS, *HARD.values()], ids=lambda text: text[:9] or "empty")
def test_encode_pieces_and_decode_agree(kind: str, text: str):
    tokenizer = KINDS[kind]()
    ids, pieces = tokenizer.encode(text), tokenizer.pieces(text)
    assert len(ids) == len(pieces)
    assert all(0 <= i < len(tokenizer) for i in ids)
    joined = b"".join(pieces).decode()
    if kind == "words":
        assert joined == "".join(unicodedata.normalize("NFKC", text).lower().split())
    elif kind == "stories260K":
        assert joined == (f" {text}" if text else "")
    else:
        assert joined == text
    if kind not in ("words", "characters"):
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_known_texts_come_back_and_unknown_pieces_do_not(kind: str):
    tokenizer = KINDS[kind]()
    text = TEXTS[1]
    assert tokenizer.decode(tokenizer.encode(text)) == (text.lower() if kind == "words" else text)
    assert set(tokenizer.encode("Ω" + "\u2603")) == {tokenizer.unk_id}
    assert tokenizer.decode(tokenizer.encode("Ω")) == ""


@kinds
def test_vocabulary_and_special_ids(kind: str):
    tokenizer = KINDS[kind]()
    assert len(tokenizer.itos) == len(tokenizer)
    assert all(isinstance(name, str) and name for name in tokenizer.itos)
    special = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id]
    expected = {
        "words": [0, 1, 2, 3],
        "characters": [0, 1, 2, 3],
        "bpe": [0, 1, 2, None],
        "cl100k_base": [100277, 100257, 100257, None],
        "gpt2": [50257, 50256, 50256, None],
        "stories260K": [512, 1, 2, 0],
    }[kind]
    assert special == expected
    size = {"bpe": 270, "cl100k_base": 100278, "gpt2": 50258, "stories260K": 513}
    assert len(tokenizer) == size.get(kind, len(tokenizer))
    assert tokenizer.itos[tokenizer.pad_id] == "<PAD>"
    assert tokenizer.decode([i for i in special if i is not None]) == ""  # none is text
    assert tokenizer.name
    assert tokenizer.rule
    assert tokenizer.order


@kinds
def test_boundaries_and_what_is_never_generated(kind: str):
    tokenizer = KINDS[kind]()
    ids = tokenizer.encode("The cat")
    assert bounded(tokenizer, ids) == [tokenizer.bos_id, *ids, tokenizer.eos_id]
    assert tokenizer.decode(bounded(tokenizer, ids)) == tokenizer.decode(ids)
    names = {
        "words": {0: "<PAD>", 1: "<BOS>", 3: "<UNK>"},
        "characters": {0: "<PAD>", 1: "<BOS>", 3: "<UNK>"},
        "bpe": {0: "<PAD>", 1: "<BOS>"},
        "cl100k_base": {100277: "<PAD>"},  # its one boundary ends texts
        "gpt2": {50257: "<PAD>"},
        "stories260K": {512: "<PAD>", 1: "<s>", 0: "<unk>"},
    }
    assert blocked(tokenizer) == names[kind]


@kinds
@pytest.mark.parametrize("beyond", [-1, 0])
def test_ids_outside_are_told(kind: str, beyond: int):
    tokenizer = KINDS[kind]()
    wrong = beyond or len(tokenizer)
    with pytest.raises(IndexError, match=f"ID {wrong} is not in a vocabulary of {len(tokenizer)}"):
        tokenizer.decode([wrong])


@kinds
def test_every_id_of_the_vocabulary_can_be_decoded(kind: str):
    """A model may generate any of them, also those that an encoding leaves unused."""
    tokenizer = KINDS[kind]()
    last = range(max(0, len(tokenizer) - 300), len(tokenizer))
    assert all(isinstance(tokenizer.decode([i]), str) for i in last)


def test_special_tokens_are_left_out_of_texts():
    """100258 is <|fim_prefix|>, which is no text."""
    assert cl100k().decode([100258, 15339]) == "hello"


@kinds
def test_a_text_that_spells_special_tokens_is_plain_text(kind: str):
    tokenizer = KINDS[kind]()
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    for name in ("<PAD>", "<BOS>", "<EOS>", "<s>", "</s>", "<|endoftext|>"):
        assert not special & set(tokenizer.encode(f"a {name} b"))
        assert len(tokenizer.pieces(name)) > 1


@given(st.text(alphabet="a\u0301 \n\tΣσA'1.ﬁİ\u0307e\u0300\u1112\u1161"), st.integers(1, 4))
def test_long_texts_are_cut_in_blocks_and_no_piece_is_lost(text: str, block: int):
    """Blocks are of a million characters; here of a few. No block changes what a piece is."""
    for kind in ("words", "characters"):
        tokenizer = fit_cut(kind, [text])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("engine.text.cutting.BLOCK", block)
            in_blocks, fitted = tokenizer.encode(text), fit_cut(kind, [text])
        assert in_blocks == [tokenizer.itos.index(p.decode()) for p in tokenizer.pieces(text)]
        assert fitted.vocabulary == tokenizer.vocabulary


# --- byte-level BPE trained here --------------------------------------------------------------


@given(st.text() | st.text(alphabet="".join(HARD.values())))
@settings(max_examples=300)
def test_any_text_round_trips(text: str):
    tokenizer = trained()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.pieces(text)) == text.encode()
    assert len(ids) == len(tokenizer.pieces(text))


def test_training_is_deterministic_and_of_the_exact_size(tmp_path: Path):
    texts = [f"{a}{b} {b}{a}." for a in "abcdefgh" for b in "stuvwxyz"]  # every pair as frequent
    saved = []
    for turn in range(4):
        tokenizer = open_tokenizer("bpe:300", lambda: texts)
        assert len(tokenizer) == 300
        tokenizer.save(tmp_path / f"{turn}.json")
        saved.append((tmp_path / f"{turn}.json").read_bytes())
    assert set(saved) == {saved[0]}


def test_the_most_frequent_pair_is_merged_first():
    texts = ["abab ab cd"] * 3
    assert BPETokenizer.train(texts, 259).encode("ab cd") != [259]
    tokenizer = BPETokenizer.train(texts, 260)
    assert tokenizer.itos[259] == "ab"
    assert tokenizer.pieces("abcd") == [b"ab", b"c", b"d"]
    assert sorted(tokenizer.itos[3:259]) == sorted(
        bytes([byte]).decode(errors="backslashreplace") for byte in range(256)
    )


@pytest.mark.parametrize("size", [0, 1, 258])
def test_a_bpe_too_small_is_told(size: int):
    with pytest.raises(UsageError, match=f"a BPE of {size} entries is too small") as error:
        open_tokenizer(f"bpe:{size}", lambda: TEXTS)
    assert "259 or more" in told_once(error)


def test_a_bpe_larger_than_its_texts_give_is_told():
    """From "ab ab" come the 259 of every BPE, "ab" and " ab": 261."""
    with pytest.raises(UsageError, match=r"give a BPE of 261 entries, fewer than 5000") as error:
        open_tokenizer("bpe:5000", lambda: ["ab ab"])
    assert "ask for 261 or fewer" in told_once(error)
    assert len(open_tokenizer("bpe:261", lambda: ["ab ab"])) == 261
    # without a size it is of 1,000 at most: of as many as the texts give
    assert len(open_tokenizer("bpe", list)) == 259
    assert open_tokenizer("bpe", lambda: ["ab ab"]).name == "bpe:261"
