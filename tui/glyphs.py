"""The few drawing characters, in Unicode and in ASCII, and which of the two a terminal gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    here: str
    line: str
    bar: str
    band: str
    down_source: str
    up_source: str
    target: str
    arrow: str
    dots: str
    point: str
    times: str
    full: str
    rest: str
    space: str
    ascii: bool


UNICODE = Glyphs("▸", "─", "│", "┊", "╮", "╯", "◂", "→", "…", "•", "·", "━", "─", "␣", False)
ASCII = Glyphs(">", "-", "|", ":", "+", "+", "<", "->", "..", "*", "*", "#", "-", "_", True)
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def glyphs_for(environment: Mapping[str, str] | None = None) -> Glyphs:
    """ASCII where TENSORSTEP_ASCII is set, or where the locale plainly is not UTF-8."""
    values = os.environ if environment is None else environment
    if values.get("TENSORSTEP_ASCII"):
        return ASCII
    kind, general = values.get("LC_CTYPE", ""), values.get("LANG", "")
    if kind in COERCED and general:
        kind = ""  # put there by Python itself, in place of a locale that is not there (PEP 538)
    locale = values.get("LC_ALL") or kind or general
    if locale and "utf" not in locale.lower():
        return ASCII
    return UNICODE


FOLD = str.maketrans(
    {
        "·": "*",
        "Σ": "sum",
        "√": "sqrt",
        "ᵀ": "^T",
        "→": "->",
        "²": "^2",
        "≥": ">=",
        "∂": "d",
        "λ": "wd",
        "ε": "eps",
        "β": "beta",
        "…": "..",
        "×": "*",
        "•": "*",
        "▸": ">",
    }
)


def folded(text: str) -> str:
    """Our own words and formulas in ASCII (texts from outside are escaped instead, by `shown`)."""
    plain = text.translate(FOLD).replace("m\u0302", "mhat").replace("v\u0302", "vhat")
    return plain.encode("ascii", "replace").decode()
