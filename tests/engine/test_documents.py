"""Reading texts from outside: what is a document, and what is told about a file that is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import UsageError
from engine.data.documents import check_documents, read_documents


def written(folder: Path, content: bytes) -> str:
    file = folder / "text.txt"
    file.write_bytes(content)
    return str(file)


@pytest.mark.parametrize(
    ("content", "whole", "by_line"),
    [
        ("Lily found a ball.\nShe ran.\n", ["Lily found a ball.\nShe ran.\n"], 2),
        ("one\r\n\r\n  \r\ntwo\r\n", ["one\n\n  \ntwo\n"], ["one", "two"]),
        ("\ufefffirst line\nsecond", ["first line\nsecond"], ["first line", "second"]),
        ("no newline at the end", ["no newline at the end"], 1),
        ("naïve – ünïcode 🎈", ["naïve – ünïcode 🎈"], 1),
        ("a\u2028b\x0cc", ["a\u2028b\x0cc"], 1),  # only a line feed ends a line
        ("\x1b[31mred\x1b[0m [red] [/]", ["\x1b[31mred\x1b[0m [red] [/]"], 1),  # data, as it is
    ],
)
def test_documents_of_a_file(tmp_path: Path, content: str, whole: list[str], by_line):
    path = written(tmp_path, content.encode())
    assert read_documents(path) == whole
    lines = read_documents(path, lines=True)
    assert (len(lines) if isinstance(by_line, int) else lines) == by_line


def test_lines_without_a_token_are_no_documents(tmp_path: Path):
    path = written(tmp_path, "one\n\u200a\u3000\ntwo".encode())
    assert read_documents(path, lines=True) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: give --text a file with text in it"),
        (b"Lily\0found", "holds NUL bytes, so it is not text"),
        ("Lily found".encode("utf-16"), "holds NUL bytes, so it is not text"),
        (b"caf\xe9", r"is not UTF-8 \(byte 3 is 0xe9\): convert it, for example with iconv"),
        (b"\xef\xbb\xbfab\xff", r"is not UTF-8 \(byte 5 is 0xff\)"),
        (b" \n\t\r\n ", "holds no token: give a text with at least one word or mark"),
        (b"\xef\xbb\xbf", "holds no token"),
    ],
)
@pytest.mark.parametrize("lines", [False, True])
def test_a_file_that_is_no_text_is_told(tmp_path: Path, content: bytes, sentence: str, lines: bool):
    path = written(tmp_path, content)
    with pytest.raises(UsageError, match=sentence) as told:
        read_documents(path, lines)
    assert repr(path) in str(told.value)
    assert told.value.exit_code == 2
    assert "\n" not in str(told.value)


def test_no_file_a_directory_and_one_that_may_not_be_read(tmp_path: Path):
    missing = str(tmp_path / "missing.txt")
    with pytest.raises(UsageError, match=r"there is no file .*missing.txt': check the path"):
        read_documents(missing)
    with pytest.raises(UsageError, match="is a directory: give --text a UTF-8 text file"):
        read_documents(str(tmp_path))
    with pytest.raises(UsageError, match="cannot be read"):
        read_documents(str(tmp_path / ("x" * 5000)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path):
    path = written(tmp_path, b"secret")
    os.chmod(path, 0)
    with pytest.raises(UsageError, match=r"cannot be read \(Permission denied\)"):
        read_documents(path)


def test_a_name_with_markup_is_shown_as_it_is(tmp_path: Path):
    with pytest.raises(UsageError) as told:
        read_documents(str(tmp_path / "[red]\x1b[31m"))
    assert "[red]\\x1b[31m" in str(told.value)
    assert "\x1b" not in str(told.value)


@pytest.mark.parametrize("documents", [[], [""], [" ", "\n"]])
def test_documents_without_a_token(documents: list[str]):
    with pytest.raises(UsageError, match="the sentence holds no token"):
        check_documents(documents, "the sentence")


def test_what_is_no_regular_file_is_refused(tmp_path: Path):
    """A pipe could be read only once, a device for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        with pytest.raises(UsageError, match="is no regular file: save the text to one"):
            read_documents(path)
