"""Tokenizers in files: saved and loaded, of others, and what is told about a file that is none."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer as Library

from engine import (
    CutTokenizer,
    TensorstepError,
    UsageError,
    Vocabulary,
    load_tokenizer,
    open_tokenizer,
)
from engine.text.loading import check_name, fit_cut
from engine.text.tokenizer import blocked, bounded
from tests.engine.test_tokenizers import (
    GPT2,
    HARD,
    KINDS,
    LLAMA,
    SENTENCE,
    SHARED,
    TEXTS,
    cl100k,
    gpt2,
    here,
    kinds,
    llama,
    told_once,
    trained,
)

STORIES = SHARED / "data" / "tinystories" / "stories.jsonl"
GPT2_CUT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
hard = pytest.mark.parametrize("text", HARD.values(), ids=HARD.keys())


@cache
def stories(count: int) -> list[str]:
    lines = here(STORIES).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[:: len(lines) // count]][:count]


@cache
def plain_gpt2() -> tiktoken.Encoding:
    """GPT-2's encoding as tiktoken defines it, from the same two files."""
    folder = here(GPT2)
    ranks = data_gym_to_mergeable_bpe_ranks(str(folder / "vocab.bpe"), str(folder / "encoder.json"))
    return tiktoken.Encoding(
        "gpt2", pat_str=GPT2_CUT, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )


@kinds
def test_saved_and_loaded_again(kind: str, tmp_path: Path):
    tokenizer = KINDS[kind]()
    path = tmp_path / "saved.json"
    tokenizer.save(path)
    assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    loaded = load_tokenizer(path)
    for text in [*TEXTS, *HARD.values()]:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.pieces(text) == tokenizer.pieces(text)
    for name in ("pad_id", "bos_id", "eos_id", "unk_id"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert list(loaded.itos) == list(tokenizer.itos)


def test_a_saved_vocabulary_keeps_its_rule_and_order(tmp_path: Path):
    tokenizer = fit_cut("words", TEXTS, max_vocab=8, min_freq=2, by_count=True)
    assert tokenizer.itos[4:] == ["the", ".", "cat", "mat"]  # 4, 3, 2, 2 times
    tokenizer.save(tmp_path / "words.json")
    loaded = load_tokenizer(tmp_path / "words.json")
    assert loaded.vocabulary == tokenizer.vocabulary
    assert (loaded.name, loaded.order) == ("words", tokenizer.order)


def test_an_encoding_that_differs_from_the_saved_one_is_refused(tmp_path: Path):
    path = tmp_path / "encoding.json"
    cl100k().save(path)
    fields = json.loads(path.read_text())
    fields["sha256"] = "0" * 64
    path.write_text(json.dumps(fields))
    with pytest.raises(TensorstepError, match="is another than the saved one") as error:
        load_tokenizer(path)
    assert "'cl100k_base'" in told_once(error)


@pytest.mark.parametrize(
    "names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")], ids=lambda n: n[0]
)
def test_a_folder_with_both_files_and_with_one(names: tuple[str, str], tmp_path: Path):
    vocab, merges = names
    shutil.copy(here(GPT2) / "encoder.json", tmp_path / vocab)
    with pytest.raises(UsageError, match="holds no tokenizer: neither"):
        load_tokenizer(tmp_path)
    with pytest.raises(UsageError, match=f"lacks {merges}: a BPE needs both files") as error:
        load_tokenizer(tmp_path / vocab)
    told_once(error)
    shutil.copy(GPT2 / "vocab.bpe", tmp_path / merges)
    for path in (tmp_path, tmp_path / vocab, tmp_path / merges):
        assert load_tokenizer(path).encode(SENTENCE) == gpt2().encode(SENTENCE)
    assert open_tokenizer(str(tmp_path), list).encode("hello") == gpt2().encode("hello")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"hello", "is no tokenizer: it is not JSON"),
        (b"", "is no tokenizer: it is not JSON"),
        (b"\xff\xfe{", "is no tokenizer: it is not JSON"),
        (b"[" * 100_000, "is no tokenizer"),  # deeper than Python reads
        (b"[1, 2]", "is no tokenizer: it holds no JSON object"),
        (b'{"a": 1}', "is no tokenizer.json"),
        (b'{"model": {"type": "BPE"}}', "is no tokenizer.json"),
        (b'{"tensorstep": "words"}', "is no saved tokenizer"),
        (
            b'{"tensorstep": "runes", "order": "", "itos": [], "counts": {}}',
            "is no saved tokenizer",
        ),
        (
            b'{"tensorstep": "words", "order": "", "itos": ["a", "a"], "counts": {}}',
            "is no saved tokenizer: itos is no list of different tokens",
        ),
        (
            b'{"tensorstep": "words", "order": "", "itos": [1, 2], "counts": {}}',
            "is no saved tokenizer",
        ),
        (b'{"tensorstep": "tiktoken"}', "is no saved tokenizer"),
    ],
    ids=range(12),
)
def test_a_file_that_is_no_tokenizer_is_told(content: bytes, sentence: str, tmp_path: Path):
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence) as error:
        load_tokenizer(path)
    assert "some.json'" in told_once(error)


def test_a_folder_without_a_tokenizer_and_files_that_are_no_pair(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no tokenizer") as error:
        load_tokenizer(tmp_path)
    assert repr(str(tmp_path)) in told_once(error)
    with pytest.raises(UsageError, match="cannot be read") as error:
        load_tokenizer(tmp_path / "missing.json")
    told_once(error)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\nx y\n")
    with pytest.raises(UsageError, match="are no vocabulary and merges") as error:
        load_tokenizer(tmp_path)
    told_once(error)


def test_a_vocabulary_that_lacks_bytes_is_refused(tmp_path: Path):
    """With it, texts would lose the pieces that it cannot spell, and nobody would be told."""
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(UsageError) as error:
        load_tokenizer(tmp_path)
    told_once(error)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("word", "there is no tokenizer 'word': use words,"),
        ("gpt5", "there is no tokenizer 'gpt5': use words,"),
        ("", "there is no tokenizer '': use words,"),
        ("bpe:", "'bpe:' names no size: write bpe:SIZE"),
        ("bpe:x", "'bpe:x' names no size: write bpe:SIZE"),
        ("bpe:-1", "'bpe:-1' names no size: write bpe:SIZE"),
        ("/none/here", "there is no file '/none/here': check the path"),
        ("tokenizer.json", "there is no file 'tokenizer.json': check the path"),
    ],
)
def test_an_unknown_name_is_told(name: str, sentence: str):
    for ask in (check_name, lambda name: open_tokenizer(name, lambda: TEXTS)):
        with pytest.raises(UsageError) as error:
            ask(name)
        assert told_once(error).startswith(sentence)


# --- GPT-2 and a Llama from their files -------------------------------------------------------


@hard
def test_gpt2_on_hard_texts(text: str):
    expected, ids = plain_gpt2(), gpt2().encode(text)
    assert ids == expected.encode_ordinary(text)
    assert gpt2().encode(text, special=True) == expected.encode(text, allowed_special="all")
    assert gpt2().pieces(text) == [expected.decode_single_token_bytes(i) for i in ids]
    assert b"".join(gpt2().pieces(text)) == text.encode()


def test_gpt2_on_real_stories():
    texts = stories(1000)
    assert [gpt2().encode(text) for text in texts] == plain_gpt2().encode_ordinary_batch(texts)
    assert all(b"".join(gpt2().pieces(text)) == text.encode() for text in texts[:50])


def test_gpt2_has_the_same_piece_for_every_id():
    shown = [
        plain_gpt2().decode_single_token_bytes(i).decode(errors="backslashreplace")
        for i in range(50257)
    ]
    assert gpt2().itos[:50257] == shown


def test_the_end_of_a_text_is_a_token_only_where_it_is_asked_for():
    assert gpt2().encode("a<|endoftext|>b", special=True) == [64, 50256, 65]
    assert 50256 not in gpt2().encode("a<|endoftext|>b")
    assert cl100k().encode("a<|endoftext|>", special=True) == [64, 100257]
    assert trained().encode("<BOS>", special=True) == [1]


@hard
def test_a_llama_tokenizer_on_hard_texts(text: str):
    library = Library.from_file(str(here(LLAMA) / "tokenizer.json"))
    assert llama().encode(text) == library.encode(text, add_special_tokens=False).ids


def test_a_llama_tokenizer_on_its_story():
    text = (here(LLAMA) / "expected_greedy_200.txt").read_text(encoding="utf-8")
    ids = json.loads((LLAMA / "greedy200_token_ids.json").read_text())
    library = Library.from_file(str(LLAMA / "tokenizer.json"))
    found = llama().encode(text)
    assert found == library.encode(text, add_special_tokens=False).ids
    assert b"".join(llama().pieces(text)) == f" {text}".encode()
    assert llama().decode(found) == llama().decode(ids) == text  # ids begin with <s>


# --- characters without special tokens --------------------------------------------------------

LOGS = [
    "job=orders status=started\njob=orders status=completed\n",
    "job=users status=started\njob=users status=failed reason=timeout\n"
    "job=users status=retrying attempt=1\njob=users status=completed\n",
    "job=stock status=started\njob=stock status=completed\n",
    "job=invoices status=started\njob=invoices status=failed reason=timeout\n"
    "job=invoices status=retrying attempt=1\njob=invoices status=completed\n",
]


def test_characters_of_the_job_logs_without_special_tokens(tmp_path: Path):
    tokenizer = CutTokenizer("characters", Vocabulary.fit(map(list, LOGS), special=()))
    assert len(tokenizer) == 25
    assert tokenizer.itos == sorted(set("".join(LOGS)))
    assert tokenizer.itos[0] == "\n"
    assert tokenizer.encode("job=orde") == [12, 17, 5, 3, 17, 19, 7, 8]
    assert tokenizer.encode("job=user") == [12, 17, 5, 3, 22, 20, 8, 19]
    assert tokenizer.encode("ob=order") == [17, 5, 3, 17, 19, 7, 8, 19]
    assert tokenizer.encode("ob=users") == [17, 5, 3, 22, 20, 8, 19, 20]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (None,) * 4
    assert bounded(tokenizer, [12]) == [12]
    assert blocked(tokenizer) == {}
    for text in LOGS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(UsageError, match="'z' is not in a vocabulary without <UNK>") as error:
        tokenizer.encode("job=zebra")
    told_once(error)
    tokenizer.save(tmp_path / "characters.json")
    assert load_tokenizer(tmp_path / "characters.json").encode(LOGS[3]) == tokenizer.encode(LOGS[3])
