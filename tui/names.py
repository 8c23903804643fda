"""What is walked, in a word or two: for the top line."""

from __future__ import annotations

import os

from engine.service.options import EXAMPLE, MODULE_FACTORY, Options


def source_name(options: Options, corpus: str) -> str:
    """What is walked, in a word or two."""
    if options.opened is not None and (options.corpus is None or not corpus):
        return opened_name(options.opened)
    if options.text is not None:
        return options.text.rsplit("/", 1)[-1][:24]
    return corpus[:24] or ("lily" if options.worked else "loading")


def opened_name(opened: str) -> str:
    """What was opened: an example's name, a factory's, a folder's without those above it; one that
    ships, or on the hub, as it is written."""
    for before in (EXAMPLE, MODULE_FACTORY):
        if opened.startswith(before):
            return opened.removeprefix(before)
    return os.path.basename(os.path.abspath(opened)) if os.path.isdir(opened) else opened
