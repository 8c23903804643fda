"""Reading texts from the outside: a sentence or a UTF-8 file. Knows no tensors."""

from __future__ import annotations

from pathlib import Path

from engine.errors import UsageError
from engine.text.words import tokenize

WORKED_SENTENCE = "Lily found a red ball."


def read_documents(path: str, lines: bool = False) -> list[str]:
    """The documents of a text file: the whole file one, or every line that is not blank one.

    A byte order mark and \\r\\n are taken as what they are. Raises UsageError, in one sentence, for
    a file that is missing, a directory, unreadable, empty, not UTF-8, binary, or without a token.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_dir() and not file.is_file():  # a pipe, a device
            raise UsageError(f"{path!r} is no regular file: save the text to one for --text")
        raw = file.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path!r}: check the path given to --text") from None
    except IsADirectoryError:
        raise UsageError(f"{path!r} is a directory: give --text a UTF-8 text file") from None
    except OSError as error:
        raise UsageError(f"{path!r} cannot be read ({error.strerror}): check it") from None
    if not raw:
        raise UsageError(f"{path!r} is empty: give --text a file with text in it")
    if b"\0" in raw:
        raise UsageError(f"{path!r} holds NUL bytes, so it is not text: give --text a UTF-8 file")
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path!r} is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x}):"
            " convert it, for example with iconv"
        ) from None
    text = text.replace("\r\n", "\n")
    documents = [line for line in text.split("\n") if line.strip()] if lines else [text]
    return check_documents(documents, repr(path))


def check_documents(documents: list[str], what: str) -> list[str]:
    """The documents that hold a token. Raises UsageError where none does."""
    kept = [document for document in documents if tokenize(document)]
    if not kept:
        raise UsageError(f"{what} holds no token: give a text with at least one word or mark")
    return kept
