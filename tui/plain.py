"""Text from outside is data: shown, never obeyed."""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len

# Cc control, Cf format (bidirectional overrides, zero width), Cs surrogates, Co private, Cn
# unassigned, Zl and Zp line ends: all of them could move, hide or restyle what stands beside them.
HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e", "\0": "\\0"}

# Marks and letters that are invisible, and those on whose width terminals do not agree: fillers,
# variation selectors, halves of a flag, skin tones.
UNSURE = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF)),
    (0xE0100, 0xE01EF),
)


def shown(text: str, ascii_only: bool = False) -> str:
    """The text with every character that is not plainly visible written as an escape; so is a
    mark with nothing before it to sit on."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    for character in text:
        mark = cell_len(character) == 0 and not (parts and len(parts[-1]) == 1)
        is_plain = not mark and is_visible(character) and (character.isascii() or not ascii_only)
        parts.append(character if is_plain else escaped(character))
    return "".join(parts)


def is_visible(character: str) -> bool:
    """Whether a terminal shows the character as itself, in the cells it is counted for."""
    code = ord(character)
    if unicodedata.category(character) in HIDDEN:
        return False
    return code < 0x300 or not any(first <= code <= last for first, last in UNSURE)


def escaped(character: str) -> str:
    if character in NAMED:
        return NAMED[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
