"""How the next token is chosen: the options of whatever writes."""

from __future__ import annotations

import argparse
from typing import Any

FILTERS = ("temperature", "top_k", "top_p")
DRAWS = (*FILTERS, "draw", "draw_seed")


def add_filters(made: argparse.ArgumentParser) -> None:
    """What happens to the logits before one is drawn."""
    add = made.add_argument
    add("--temperature", type=float, metavar="T", help="draw; below 1 the likely become likelier")
    add("--top-k", type=int, metavar="K", help="draw among the K most probable")
    add("--top-p", type=float, metavar="P", help="draw among the fewest that have P together")


def add_draws(made: argparse.ArgumentParser) -> None:
    """Drawing, where it is not the most probable token that is chosen."""
    add_filters(made)
    add = made.add_argument
    add("--draw", type=float, metavar="X", help="the same draw, 0 to 1, for every token")
    add("--draw-seed", type=int, metavar="N", help="of the draws (0, where tokens are drawn)")


def drawn(values: dict[str, Any]) -> dict[str, Any]:
    """Where the logits are changed before one is chosen, tokens are drawn: by seed 0 where nothing
    else is said."""
    said = "draw" in values or "draw_seed" in values
    return {"draw_seed": 0} if any(name in values for name in FILTERS) and not said else {}
