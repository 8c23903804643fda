"""Corpora from files and by name: what their documents are, and what is told about bad ones."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine import UsageError, open_corpus, prepare
from engine.data.corpus import VocabularyRule, check_spec
from engine.data.documents import read_json_lines
from engine.data.storybook import write_stories
from engine.service.options import Options

EVERY = VocabularyRule(None, 1, False)
EXPERIMENT = VocabularyRule(4000, 2, True)
LOGS = [
    ("train", "job=orders status=started\njob=orders status=completed\n"),
    (
        "train",
        "job=users status=started\njob=users status=failed reason=timeout\n"
        "job=users status=retrying attempt=1\njob=users status=completed\n",
    ),
    ("train", "job=stock status=started\njob=stock status=completed\n"),
    (
        "train",
        "job=invoices status=started\njob=invoices status=failed reason=timeout\n"
        "job=invoices status=retrying attempt=1\njob=invoices status=completed\n",
    ),
    ("validation", "job=sales status=started\njob=sales status=completed\n"),
    (
        "validation",
        "job=products status=started\njob=products status=failed reason=timeout\n"
        "job=products status=retrying attempt=1\njob=products status=completed\n",
    ),
]


def written(folder: Path, content: bytes, name: str = "some.jsonl") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def refused(spec: str, limit: int | None = None) -> str:
    """The one sentence that is told about a corpus."""
    with pytest.raises(UsageError) as error:
        open_corpus(spec, limit)
    sentence = str(error.value)
    assert error.value.exit_code == 2
    assert sentence
    assert "\n" not in sentence
    return sentence


# --- JSON Lines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b'{"text": "one"}\n{"text": "two"}\n', ["one", "two"]),
        (b'{"text": "one"}\n{"text": "no newline"}', ["one", "no newline"]),
        (b'\xef\xbb\xbf{"text": "a mark before"}\n', ["a mark before"]),
        (b'{"text": "one"}\r\n\r\n{"text": "two"}\r\n', ["one", "two"]),
        (b'\n  \n{"text": "one"}\n\t\n\n{"text": "two"}\n\n', ["one", "two"]),
        (b'{"text": "one"}\n{"text": ""}\n{"text": " \\n"}\n', ["one"]),  # no token, no document
        (b'{"id": 7, "text": "a\\r\\nb\\u0007\\u2028", "n": NaN}\n', ["a\r\nb\x07\u2028"]),
        ('{"text": "naïve 🎈 \\ud83c\\udf88"}\n'.encode(), ["naïve 🎈 🎈"]),
        ('{"text": "a\u2028b\u0085"}\n{"text": "c"}\n'.encode(), ["a\u2028b\u0085", "c"]),
    ],
    ids=["two", "end", "bom", "crlf", "blank", "empty", "fields", "unicode", "separators"],
)
def test_documents_of_json_lines(content: bytes, texts: list[str], tmp_path: Path):
    corpus = open_corpus(written(tmp_path, content))
    assert (corpus.texts, corpus.name, corpus.rule) == (texts, "some.jsonl", EXPERIMENT)
    assert corpus.sides is None


GOOD = b'{"text": "one"}\n\n'  # a line that is right and a blank one: the third is wrong


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"text": "cut', "is not JSON"),
        (b"hello", "is not JSON"),
        (b"{'text': 'one'}", "is not JSON"),
        (b'{"text": "one"} {"text": "two"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"text": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"body": "one", "id": 3}', "has no field 'text' (it has 'body', 'id')"),
        (b"{}", "has no field 'text'"),
        (b'["text"]', "has no field 'text'"),
        (b'"text"', "has no field 'text'"),
        (b"null", "has no field 'text'"),
        (b'{"text": 3}', "holds no text"),
        (b'{"text": null}', "holds no text"),
        (b'{"text": ["one"]}', "holds no text"),
        (b'{"text": "half \\ud83c"}', "holds half a surrogate pair (character 5)"),
        (b'{"text": "o\0ne"}', "holds NUL bytes"),
        (b'{"text": "o\\u0000ne"}', "holds NUL, so it is not text"),
        (b'{"text": "caf\xe9"}', "is not UTF-8 (byte 13 is 0xe9)"),
    ],
    ids=range(18),
)
def test_a_bad_line_is_told_by_its_number(line: bytes, sentence: str, tmp_path: Path):
    path = written(tmp_path, GOOD + line + b'\n{"text": "three"}\n')
    told = refused(path)
    assert sentence in told
    assert f"line 3 of {path!r}" in told


def test_another_field_of_json_lines(tmp_path: Path):
    path = written(tmp_path, b'{"text": "one", "body": "other", "a b": "third"}\n')
    assert open_corpus(f"{path}:body").texts == ["other"]
    assert open_corpus(f"{path}:a b").texts == ["third"]
    assert open_corpus(path).texts == ["one"]
    told = refused(f"{path}:title")
    assert "line 1" in told
    assert "has no field 'title' (it has 'text', 'body', 'a b')" in told
    colon = written(tmp_path, b'{"text": "colon"}\n', "a:b.jsonl")
    assert open_corpus(colon).texts == ["colon"]
    assert open_corpus(f"{colon}:text").texts == ["colon"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"text": " "}\n'])
def test_json_lines_without_a_document(content: bytes, tmp_path: Path):
    assert "holds no token" in refused(written(tmp_path, content))


def test_progress_of_reading_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.progress.OFTEN", -1.0)
    path = written(tmp_path, b'{"text": "one"}\n' * 3)
    heard: list[tuple[str, int, int | None]] = []
    read_json_lines(path, tell=lambda *told: heard.append(told))
    assert heard == [("reading some.jsonl", done, None) for done in (1, 2, 3)]


@pytest.mark.slow
def test_one_line_of_50_mb(tmp_path: Path):
    words = "once upon a time there was a little girl named lily and she loved to play . "
    text = words * (50_000_000 // len(words))
    path = written(tmp_path, json.dumps({"text": text}).encode() + b"\n")
    begin = time.perf_counter()
    ready = prepare(open_corpus(path), 4)
    assert time.perf_counter() - begin < 20
    assert len(ready.tokenizer) == 4 + len(set(words.split()))
    assert len(ready.windows) == len(text.split()) + 1
    assert ready.windows.contexts[-1].tolist() == ready.tokenizer.encode("loved to play .")


# --- folders ----------------------------------------------------------------------------------


def test_documents_of_a_folder(tmp_path: Path):
    """Every .txt, in the order of paths, whole; hidden ones and other kinds are left out."""
    for name, text in {
        "b.txt": "second",
        "a.txt": "\ufefffirst\r\nline",
        "c/a.txt": "third",
        "c/d/a.txt": "fourth",
        "z.txt": "last",
        "empty.txt": "",
        ".hidden.txt": "no",
        ".git/a.txt": "no",
        "c/.x/a.txt": "no",
        "notes.md": "no",
        "data.jsonl": '{"text": "no"}',
    }.items():
        written(tmp_path / "my texts", text.encode(), name)
    (tmp_path / "my texts" / "folder.txt").mkdir()
    corpus = open_corpus(str(tmp_path / "my texts"))
    assert corpus.texts == ["first\nline", "second", "third", "fourth", "last"]
    assert (corpus.name, corpus.rule) == ("my texts", EXPERIMENT)
    assert open_corpus(str(tmp_path / "my texts"), 2).texts == ["first\nline", "second"]


def test_a_blank_file_in_a_folder_is_no_document_as_an_empty_one_is_none(tmp_path: Path):
    written(tmp_path, b"one", "a.txt")
    written(tmp_path, b"", "b.txt")
    written(tmp_path, b"\n", "c.txt")
    assert open_corpus(str(tmp_path)).texts == ["one"]


def test_a_hidden_folder_that_is_named_is_read(tmp_path: Path):
    written(tmp_path / ".mine", b"one", "a.txt")
    assert open_corpus(str(tmp_path / ".mine")).texts == ["one"]


def test_folders_without_a_document(tmp_path: Path):
    assert "holds no .txt file" in refused(str(tmp_path))
    written(tmp_path, b"", "a.txt")
    assert "holds no token" in refused(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"caf\xe9", "is not UTF-8"), (b"a\0b", "holds NUL bytes")],
)
def test_a_bad_file_in_a_folder_is_named(content: bytes, sentence: str, tmp_path: Path):
    written(tmp_path, b"one", "a.txt")
    path = written(tmp_path, content, "b/c.txt")
    told = refused(str(tmp_path))
    assert sentence in told
    assert repr(path) in told


# --- text files -------------------------------------------------------------------------------


def test_a_text_file_whole_and_by_lines(tmp_path: Path):
    path = written(tmp_path, "\ufeffone\r\n\r\ntwo\r\n".encode(), "some.txt")
    assert open_corpus(path).texts == ["one\n\ntwo\n"]
    corpus = open_corpus(path, lines=True)
    assert (corpus.texts, corpus.rule) == (["one", "two"], EVERY)
    assert open_corpus(path, 1, lines=True).texts == ["one"]


# --- parquet ----------------------------------------------------------------------------------

TABLE = pa.table({"text": ["one", "", "naïve\n🎈"], "body": ["x", "y", "z"], "n": [1, 2, 3]})


@pytest.mark.parametrize(
    "name", ["some.parquet", "stories [1].parquet", "a*.parquet", "a::b.parquet"]
)
def test_documents_of_parquet(name: str, tmp_path: Path):
    """Whatever the file is called: its name is no pattern."""
    path = str(tmp_path / name)
    pq.write_table(TABLE, path)
    pq.write_table(pa.table({"text": ["another file"]}), tmp_path / "ab.parquet")
    corpus = open_corpus(path)
    assert (corpus.texts, corpus.name, corpus.rule) == (["one", "naïve\n🎈"], name, EXPERIMENT)
    assert open_corpus(f"{path}:body").texts == ["x", "y", "z"]
    assert open_corpus(f"{path}:body", 2).texts == ["x", "y"]


def test_a_field_that_parquet_lacks_or_that_is_no_text(tmp_path: Path):
    path = str(tmp_path / "some.parquet")
    pq.write_table(TABLE, path)
    assert "has no field 'title', but 'text', 'body', 'n'" in refused(f"{path}:title")
    assert "the field 'n' of row 0" in refused(f"{path}:n")
    pq.write_table(pa.table({"text": ["one", None]}), path)
    assert "the field 'text' of row 1" in refused(path)


def test_a_parquet_file_without_rows(tmp_path: Path):
    path = str(tmp_path / "none.parquet")
    pq.write_table(TABLE.slice(0, 0), path)
    assert "holds no token" in refused(path)


@pytest.mark.parametrize("keep", [0, 3, 40, -20], ids=["empty", "head", "start", "cut"])
def test_a_broken_parquet_file(keep: int, tmp_path: Path):
    path = tmp_path / "some.parquet"
    pq.write_table(TABLE, path)
    path.write_bytes(path.read_bytes()[:keep])
    told = refused(str(path))
    assert f"{str(path)!r} is no parquet file" in told
    path.write_bytes(b"hello, this is text\n" * 50)
    assert "is no parquet file" in refused(str(path))


# --- by name ----------------------------------------------------------------------------------


def test_the_storybook_by_count_and_seed():
    corpus = open_corpus("storybook:40:7")
    assert corpus.texts == write_stories(40, 7)
    assert len(set(corpus.texts)) == 40
    assert (corpus.name, corpus.rule, corpus.sides) == ("storybook", EXPERIMENT, None)
    assert open_corpus("storybook:40").texts == write_stories(40, 1) != corpus.texts
    assert open_corpus("storybook:40:7", 3).texts == corpus.texts[:3]
    assert len(open_corpus("storybook").texts) == 6000


def test_job_logs_are_the_reference_sequences_with_their_own_split():
    corpus = open_corpus("logs")
    assert list(zip(corpus.sides, corpus.texts, strict=True)) == LOGS
    assert corpus.rule == EVERY
    ready = prepare(corpus, 8, "characters")
    assert ready.split.sides == ["train"] * 4 + ["validation"] * 2
    assert ready.split.documents == {"train": [0, 1, 2, 3], "validation": [4, 5], "test": []}
    assert ready.split.how == "as the corpus says itself: 4 train, 2 validation, 0 test"
    # the 25 characters of those that train; those held out hold none besides
    assert ready.tokenizer.itos[4:] == sorted(set("".join(text for _, text in LOGS[:4])))
    assert len(ready.tokenizer) == 29
    limited = open_corpus("logs", 5)
    assert list(zip(limited.sides, limited.texts, strict=True)) == LOGS[:5]


def test_invented_job_logs_by_count_and_seed():
    corpus = open_corpus("logs:30:2")
    assert len(set(corpus.texts)) == 30
    assert corpus.sides is None
    assert open_corpus("logs:30").texts != corpus.texts == open_corpus("logs:30:2").texts
    assert open_corpus("logs:10:2").texts == corpus.texts[:10]


@pytest.mark.parametrize("spec", ["storybook:0", "logs:0", "logs:0:3", "logs:50001", "logs:60000"])
def test_a_count_that_cannot_be_given_is_told(spec: str):
    """None at all, or more logs than there are."""
    assert spec.partition(":")[0] in refused(spec)


@pytest.mark.parametrize(
    "spec", ["stories", "", "none.jsonl", "none.jsonl:body", "none.parquet", "a\nb", "tinystories"]
)
def test_an_unknown_corpus_is_told(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    told = refused(spec)
    assert "there is no corpus and no file" in told
    assert "storybook, logs, tinystories:full, hub:ID, or a path" in told
    with pytest.raises(UsageError, match="there is no corpus"):
        check_spec(spec)


@pytest.mark.parametrize("spec", ["storybook:", "storybook:x", "storybook:1:2:3", "logs:-1"])
def test_a_count_that_is_none_is_told(spec: str):
    assert repr(spec) in refused(spec)
    with pytest.raises(UsageError):
        check_spec(spec)


def test_a_selection_and_a_hub_name_that_there_are_not():
    assert refused("tinystories:huge") == (
        "there is no tinystories:huge: use smoke, classroom, full"
    )
    assert "names nothing on the hub" in refused("hub:")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path):
    path = written(tmp_path, b'{"text": "secret"}\n')
    os.chmod(path, 0)
    assert "cannot be read (Permission denied)" in refused(path)


def test_only_so_many_documents_are_opened(tmp_path: Path):
    path = written(tmp_path, b"".join(b'{"text": "story %d"}\n' % i for i in range(30)))
    corpus = Options(corpus=path, documents=12).check().open()
    assert corpus.texts == [f"story {i}" for i in range(12)]
    assert len(Options(corpus=path, documents=99).open().texts) == 30
    with pytest.raises(UsageError, match="--documents 0 is too small: give 1 or more"):
        Options(corpus=path, documents=0).check()
    with pytest.raises(UsageError, match="--documents goes with --corpus SPEC or --text FILE"):
        Options(documents=3).check()
