"""Text from outside is data: shown, never obeyed."""

from __future__ import annotations

import unicodedata

# Cc control, Cf format (bidirectional overrides, zero width), Cs surrogates, Co private, Cn
# unassigned, Zl and Zp line ends: all of them could move, hide or restyle what stands beside them.
HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e", "\0": "\\0"}


def shown(text: str, ascii_only: bool = False) -> str:
    """The text with every character that is not plainly visible written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(shown_character(character, ascii_only) for character in text)


def shown_character(character: str, ascii_only: bool) -> str:
    if character in NAMED:
        return NAMED[character]
    if unicodedata.category(character) in HIDDEN or (ascii_only and not character.isascii()):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
    return character
