"""Texts of the Hugging Face hub and of parquet files, through the library `datasets`."""

from __future__ import annotations

import errno
import os
import re
import socket
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.data.cache import no_room, read_cached, write_cached
from engine.data.corpus import EXPERIMENT, Corpus
from engine.data.documents import FIELD, check_documents, checked_characters
from engine.errors import TensorstepError, UsageError
from engine.progress import Tell, tracked

ONE_SPLIT = r"[\w.-]+(?:\[[^\]]*\])?"  # train, or a slice of it
SPEC = re.compile(
    r"hub:(?P<id>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?"
    rf"(?::(?P<split>{ONE_SPLIT}(?:\+{ONE_SPLIT})*)(?::(?P<field>[^:]+))?)?"
)
PATIENCE = 3.0  # seconds to find out whether the hub can be reached


@dataclass(frozen=True)
class HubSource:
    """Where texts are on the hub.

    spec    how it was named
    id      owner and name
    config  which part of a dataset that has several: hub:HuggingFaceTB/smollm-corpus/cosmopedia-v2
    """

    spec: str
    id: str
    config: str | None
    revision: str | None
    split: str
    field: str


def parse_hub(spec: str) -> HubSource:
    """`hub:ID[/CONFIG][@REVISION][:split][:field]`, read. Raises UsageError for anything else."""
    found = SPEC.fullmatch(spec)
    if found is None:
        raise UsageError(
            f"{spec!r} names nothing on the hub: write hub:ID[/CONFIG][@REVISION][:split][:field]"
        )
    return HubSource(
        spec,
        found["id"],
        found["config"],
        found["revision"],
        found["split"] or "train",
        found["field"] or FIELD,
    )


def read_hub(source: HubSource, limit: int | None = None, tell: Tell | None = None) -> Corpus:
    """The texts of a dataset on the hub; where only the first `limit` are wanted, no more than
    these are fetched. They are kept for when there is no network.

    Raises TensorstepError where the hub cannot be reached and nothing was kept.
    """
    key = f"{source.spec} {limit}"
    online = is_reachable()
    if not online:
        kept = read_cached(key)
        if kept is not None:
            return Corpus(source.id, kept, rule=EXPERIMENT)
    if tell is not None:
        tell(f"asking the hub for {source.id}", 0, None)
    streaming = limit is not None and online
    try:
        with offline(not online), told_of(source.id, online):
            rows = load(source.id, source.config, source.revision, source.split, streaming)
            texts = texts_of(islice(rows, limit), source.field, source.spec, limit, tell)
    except HubFailed:
        kept = read_cached(key)
        if kept is None:
            raise
        return Corpus(source.id, kept, rule=EXPERIMENT)
    if streaming:
        write_cached(key, texts)
    return Corpus(source.id, texts, rule=EXPERIMENT)


def read_parquet(path: str, field: str, limit: int | None, tell: Tell | None) -> list[str]:
    """The texts of a local parquet file. Raises UsageError for a file that is none."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            total = file.metadata.num_rows if limit is None else limit
            rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
            return texts_of(islice(rows, limit), field, path, total, tell)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path!r} is no parquet file: {first_line(error)}") from None


def load(id: str, config: str | None, revision: str | None, split: str, streaming: bool) -> Any:
    """The rows of a dataset, as `datasets` gives them."""
    return datasets_library().load_dataset(
        id, config, revision=revision, split=split, streaming=streaming
    )


def texts_of(
    rows: Iterable[dict[str, Any]], field: str, where: str, total: int | None, tell: Tell | None
) -> list[str]:
    """One field of each row. Raises UsageError for a row that does not have it as text."""
    texts = []
    for number, row in tracked(enumerate(rows), f"reading {Path(where).name}", total, tell):
        if field not in row:
            fields = ", ".join(map(repr, row))
            raise UsageError(f"{where!r} has no field {field!r}, but {fields}: name one of them")
        if not isinstance(row[field], str):
            raise UsageError(f"the field {field!r} of row {number} of {where!r} holds no text")
        texts.append(checked_characters(row[field], f"row {number} of {where!r}"))
    return check_documents(texts, repr(where))


def datasets_library() -> Any:
    """The library, without its bars, which would be drawn over the screen's."""
    import datasets

    datasets.disable_progress_bars()
    return datasets


def is_reachable() -> bool:
    """Whether the hub answers, found out quickly: `datasets` would try for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    if set(urllib.request.getproxies()) - {"no"}:
        return True  # the proxy has to find out
    place = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        port = place.port or (80 if place.scheme == "http" else 443)
        socket.create_connection((place.hostname or "", port), timeout=PATIENCE).close()
    except (OSError, ValueError):  # a port that is no number is a ValueError
        return False
    return True


class HubFailed(TensorstepError):
    """The hub, or the way to it, gave nothing."""


@contextmanager
def offline(on: bool) -> Iterator[None]:
    """Where `on`, the libraries take what they have kept at once, instead of trying the hub again
    and again; afterwards they may ask it again."""
    if not on:
        yield
        return
    import datasets
    import huggingface_hub

    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before


@contextmanager
def told_of(id: str, online: bool) -> Iterator[None]:
    """Whatever goes wrong with the hub, as one sentence."""
    try:
        yield
    except TensorstepError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_room(error) from None
        if not online:
            raise HubFailed(
                f"the hub cannot be reached and {id!r} was never fetched here: connect to the"
                " network once, or give a file"
            ) from None
        raise HubFailed(
            f"the hub does not give {id!r} ({first_line(error)}): check the network and the name,"
            " or give a file"
        ) from None
    except Exception as error:  # the hub's and the formats' own errors
        raise TensorstepError(f"{id!r} of the hub cannot be read: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
