"""Reading texts from files: UTF-8, one document a file, a line or a JSON object. Knows no tensors.

Whatever is no text is told in one sentence that names the file and, in JSON Lines, the line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

from engine.errors import UsageError
from engine.progress import Tell, tracked

WORKED_SENTENCE = "Lily found a red ball."
FIELD = "text"  # of a JSON object that holds the document
BOM = b"\xef\xbb\xbf"


def read_documents(path: str, lines: bool = False, option: str = "--text") -> list[str]:
    """The documents of a text file: the whole file one, or every line that is not blank one.

    A byte order mark and \\r\\n are taken as what they are. Raises UsageError, in one sentence, for
    a file that is missing, a directory, unreadable, empty, not UTF-8, binary, or without a token.
    """
    with opened(path, option) as file:
        raw = file.read()
    if not raw:
        raise UsageError(f"{path!r} is empty: give {option} a file with text in it")
    text = decoded(
        raw.removeprefix(BOM), path, option, skipped=len(raw) - len(raw.removeprefix(BOM))
    )
    text = text.replace("\r\n", "\n")
    documents = [line for line in text.split("\n") if line.strip()] if lines else [text]
    return check_documents(documents, repr(path))


def read_json_lines(
    path: str, field: str = FIELD, option: str = "--corpus", tell: Tell | None = None
) -> list[str]:
    """The documents of a JSON Lines file: the text in `field` of the object on each line.

    Blank lines and texts without a token are left out. Raises UsageError for a line that is no such
    object, with its number.
    """
    documents = []
    with opened(path, option) as file:
        for number, raw in tracked(enumerate(file, 1), f"reading {Path(path).name}", None, tell):
            line = raw.removeprefix(BOM) if number == 1 else raw
            if line.strip():
                where = f"line {number} of {path!r}"
                documents.append(text_of(decoded(line, where, option), field, where))
    return check_documents(documents, repr(path))


def text_of(line: str, field: str, where: str) -> str:
    """The text in a line of JSON."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise UsageError(f"{where} is not JSON ({reason}): mend or remove it") from None
    if not isinstance(found, dict) or field not in found:
        fields = f"it has {', '.join(map(repr, found))}" if isinstance(found, dict) else "no object"
        raise UsageError(f"{where} has no field {field!r} ({fields}): name it as PATH:FIELD")
    text = found[field]
    if not isinstance(text, str):
        raise UsageError(
            f"the field {field!r} on {where} holds no text: name another as PATH:FIELD"
        )
    return checked_characters(text, where)


def checked_characters(text: str, where: str) -> str:
    """The text, if it is one. Raises UsageError for NUL, and for half a surrogate pair, which is no
    character."""
    if "\0" in text:
        raise UsageError(f"{where} holds NUL, so it is not text: mend or remove it")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{where} holds half a surrogate pair (character {error.start}), which no UTF-8"
                " spells: mend or remove it"
            ) from None
    return text


def read_folder(path: str, option: str = "--corpus", tell: Tell | None = None) -> list[str]:
    """The documents of a folder: every .txt file in it and below, one each, in order of their
    paths; hidden ones are left out. Raises UsageError where there is none."""
    files = [
        file
        for file in sorted(Path(path).rglob("*.txt"))
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(path).parts)
    ]
    if not files:
        raise UsageError(f"the folder {path!r} holds no .txt file: give {option} one that does")
    documents: list[str] = []
    for file in tracked(files, f"reading {Path(path).name}", len(files), tell):
        if file.read_bytes().removeprefix(BOM).strip():  # one without a word is none
            documents += read_documents(str(file), option=option)
    return check_documents(documents, f"the folder {path!r}")


def opened(path: str, option: str) -> BinaryIO:
    """A regular file, to be read. Raises UsageError where it cannot be."""
    file = Path(path)
    try:
        if file.exists() and not file.is_dir() and not file.is_file():  # a pipe, a device
            raise UsageError(f"{path!r} is no regular file: save the text to one for {option}")
        return file.open("rb")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path!r}: check the path given to {option}") from None
    except IsADirectoryError:
        raise UsageError(f"{path!r} is a directory: give {option} a UTF-8 text file") from None
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path!r} cannot be read ({reason}): check it") from None


def decoded(raw: bytes, where: str, option: str, skipped: int = 0) -> str:
    """Bytes as UTF-8 text. Raises UsageError for bytes that are not text."""
    name = where if where.startswith("line ") else repr(where)
    if b"\0" in raw:
        raise UsageError(f"{name} holds NUL bytes, so it is not text: give {option} a UTF-8 file")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 (byte {error.start + skipped} is 0x{raw[error.start]:02x}):"
            " convert it, for example with iconv"
        ) from None


def check_documents(documents: list[str], what: str) -> list[str]:
    """The documents that hold a token: anything but white space. Raises UsageError where none
    does."""
    kept = [document for document in documents if document.strip()]
    if not kept:
        raise UsageError(f"{what} holds no token: give a text with at least one word or mark")
    return kept
