"""An explanation as text: what is cited, and the numbers it puts in."""

from __future__ import annotations

from typing import Any

from tui.cells import exact, written

RULES = {
    "softmax": "its own share of the sum",
    "cross-entropy": "ln of the sum, plus the constant",
    "root": "square root of the sum",
}


def indexed(name: str, cell: list[int]) -> str:
    """name[i,j]"""
    return f"{name}[{','.join(map(str, cell))}]" if cell else name


def number_of(value: Any) -> str:
    return value if isinstance(value, str) else written(value)


def share_of(term: dict[str, Any]) -> Any:
    """What a term puts in; an ID, which only chooses, stays a whole number."""
    whole = isinstance(term["value"], int) and term["contribution"] in (0, term["value"])
    return int(term["contribution"]) if whole else term["contribution"]


def total_of(found: dict[str, Any]) -> str | None:
    """The total with its rule; None where there is no arithmetic."""
    total = found["total"]
    if total is None or not found["terms"]:
        return None
    number = total if isinstance(total, str) else exact(float(total))
    return f"{number}  {RULES.get(found['combine'], 'sum')}"


def explanation_lines(found: dict[str, Any]) -> list[str]:
    """The whole explanation of one cell, for a reader without a screen."""
    value = found["value"]
    text = value if isinstance(value, str) else exact(value)
    lines = [f"{indexed(found['name'], found['cell'])} = {text}   step {found['step']}"]
    lines.append(f"  = {found['formula']}")
    if found["note"] and found["note"] != found["formula"]:
        lines.append(f"  {found['note']}")
    for term in found["terms"]:
        factors = [term, *term["times"]]
        values = " · ".join(number_of(each["value"]) for each in factors)
        names = " · ".join(
            indexed(each["source"], each["index"])
            + ("" if each["step"] == found["step"] else f" @{each['step']}")
            for each in factors
        )
        share = "" if found["combine"] == "rule" else number_of(share_of(term)).rjust(10)
        note = f"  {term['note']}" if term["note"] else ""
        lines.append(f"  {share}  {values}  {names}{note}")
    total = total_of(found)
    return [*lines, f"  {total}"] if total else lines
