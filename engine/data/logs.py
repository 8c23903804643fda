"""Fictional job logs: six reference jobs, and as many invented ones as are asked for."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from engine.data.split import TRAIN, VALIDATION

STARTED, COMPLETED, ABANDONED = "status=started", "status=completed", "status=abandoned"
REASONS = ("timeout", "network", "memory", "disk", "locked", "denied")
ATTEMPTS = 3  # no job is tried again more often
NUMBERS = 99  # orders, orders2, ..., orders99
MOST = 50_000  # so many different logs are quickly found

# id, split, name, long
REFERENCE: tuple[tuple[str, str, str, bool], ...] = (
    ("train-orders", TRAIN, "orders", False),
    ("train-users", TRAIN, "users", True),
    ("train-stock", TRAIN, "stock", False),
    ("train-invoices", TRAIN, "invoices", True),
    ("validation-sales", VALIDATION, "sales", False),
    ("validation-products", VALIDATION, "products", True),
)

# none of the reference jobs is among them: two of those are held out
WORDS = """
  accounts addresses alerts archive audits backup badges banners billing bookings budgets cache
  carts catalog charts claims clients comments contacts coupons credits customers deliveries
  devices digest discounts events exports feeds forecasts forms gifts imports inbox index labels
  ledger letters loans mailing members menus metrics notices parcels partners payments photos
  prices quotes ratings receipts refunds rentals reports returns reviews routes samples tickets
"""
NAMES = tuple(WORDS.split())
NAME = re.compile(r"([a-z]+)([0-9]*)")


@dataclass(frozen=True)
class Log:
    """A reference log and the split it belongs to."""

    id: str
    split: str
    text: str


def history(reason: str, attempts: int, completed: bool) -> tuple[str, ...]:
    """The events of a job that failed for this reason until the last of so many attempts."""
    failed = f"status=failed reason={reason}"
    retried = [(failed, f"status=retrying attempt={i}") for i in range(1, attempts + 1)]
    end = (COMPLETED,) if completed else (failed, ABANDONED)
    return (STARTED, *(event for pair in retried for event in pair), *end)


SHORT = (STARTED, COMPLETED)
LONG = history("timeout", 1, True)
HISTORIES = tuple(
    dict.fromkeys(
        history(reason, attempts, completed)
        for attempts in range(ATTEMPTS + 1)
        for reason in REASONS
        for completed in (True, False)
    )
)


def render(name: str, events: tuple[str, ...]) -> str:
    """The log of a job: a line for each event."""
    return "".join(f"job={name} {event}\n" for event in events)


def job_log(name: str, long: bool) -> str:
    """The log of a job that completed at once, or (long) after one timeout."""
    return render(name, LONG if long else SHORT)


def reference_logs() -> list[Log]:
    """The six reference logs, in their order."""
    return [Log(id_, split, job_log(name, long)) for id_, split, name, long in REFERENCE]


def write_logs(count: int, seed: int = 1) -> list[str]:
    """So many logs, all different; a longer list of the same seed begins with the shorter.

    Raises ValueError for more than 50,000.
    """
    if count > MOST:
        raise ValueError(f"{count} different logs are too many: ask for at most {MOST}")
    draw = random.Random(seed).random  # noqa: S311 -- its numbers are the same on every Python
    logs: dict[str, None] = {}
    while len(logs) < count:
        name = NAMES[int(draw() * len(NAMES))]
        number = int(draw() * NUMBERS) + 1 if draw() < 0.5 else 1
        events = HISTORIES[int(draw() * len(HISTORIES))]
        if draw() < 0.5:  # half the jobs are of the two reference kinds
            events = LONG if draw() < 0.5 else SHORT
        logs[render(name if number == 1 else f"{name}{number}", events)] = None
    return list(logs)


def accepts_log(text: str) -> bool:
    """Whether this is a log that `write_logs` can write, or a reference log."""
    head = text[:100].partition(" ")[0]
    name = head.removeprefix("job=")
    if not is_name(name):
        return False
    return any(text == render(name, events) for events in HISTORIES)


def is_name(name: str) -> bool:
    """Whether a job can be called this: orders, or parcels7."""
    parts = NAME.fullmatch(name)
    if parts is None:
        return False
    word, number = parts.groups()
    if not number:
        return word in NAMES or any(word == known for _, _, known, _ in REFERENCE)
    return word in NAMES and number in map(str, range(2, NUMBERS + 1))
