"""Job logs: the six reference ones, and invented ones of the same format."""

from __future__ import annotations

import hashlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.logs import NAMES, REFERENCE, Log, accepts_log, job_log, reference_logs, write_logs

SHORT = "job={0} status=started\njob={0} status=completed\n"
LONG = (
    "job={0} status=started\n"
    "job={0} status=failed reason=timeout\n"
    "job={0} status=retrying attempt=1\n"
    "job={0} status=completed\n"
)
ABANDONED = (
    "job=carts7 status=started\n"
    "job=carts7 status=failed reason=disk\n"
    "job=carts7 status=retrying attempt=1\n"
    "job=carts7 status=failed reason=disk\n"
    "job=carts7 status=retrying attempt=2\n"
    "job=carts7 status=failed reason=disk\n"
    "job=carts7 status=abandoned\n"
)
LINE = re.compile(
    r"job=[a-z]+\d* status=(started|completed|abandoned|failed reason=[a-z]+|retrying attempt=\d)"
)


def test_the_reference_logs():
    assert reference_logs() == [
        Log("train-orders", "train", "job=orders status=started\njob=orders status=completed\n"),
        Log(
            "train-users",
            "train",
            "job=users status=started\njob=users status=failed reason=timeout\n"
            "job=users status=retrying attempt=1\njob=users status=completed\n",
        ),
        Log("train-stock", "train", "job=stock status=started\njob=stock status=completed\n"),
        Log(
            "train-invoices",
            "train",
            "job=invoices status=started\njob=invoices status=failed reason=timeout\n"
            "job=invoices status=retrying attempt=1\njob=invoices status=completed\n",
        ),
        Log(
            "validation-sales",
            "validation",
            "job=sales status=started\njob=sales status=completed\n",
        ),
        Log(
            "validation-products",
            "validation",
            "job=products status=started\njob=products status=failed reason=timeout\n"
            "job=products status=retrying attempt=1\njob=products status=completed\n",
        ),
    ]


def test_the_characters_of_the_training_logs():
    """25, the newline first."""
    letters = sorted(set("".join(log.text for log in reference_logs() if log.split == "train")))
    assert len(letters) == 25
    assert letters[0] == "\n"


def test_a_log_of_each_kind():
    assert job_log("anything", False) == SHORT.format("anything")
    assert job_log("anything", True) == LONG.format("anything")


def test_thousands_of_different_logs():
    logs = write_logs(10_000)
    assert len(set(logs)) == 10_000
    assert all(map(accepts_log, logs))
    for log in logs:
        lines = log.removesuffix("\n").split("\n")
        assert all(map(LINE.fullmatch, lines))
        assert len({line.partition(" ")[0] for line in lines}) == 1
        assert lines[0].endswith(" status=started")
        assert lines[-1].endswith((" status=completed", " status=abandoned"))


def test_what_is_among_them():
    logs = set(write_logs(3000))
    assert SHORT.format("carts") in logs
    assert LONG.format("carts") in logs
    assert any("attempt=3" in log for log in logs)
    assert any("status=abandoned" in log for log in logs)
    assert {reason for log in logs for reason in re.findall("reason=(.*)", log)} == {
        *("timeout", "network", "memory", "disk", "locked", "denied")
    }


def test_reference_jobs_are_not_invented_ones():
    """Else a held-out job could be among the training ones."""
    assert {name for _, _, name, _ in REFERENCE}.isdisjoint(NAMES)
    assert len(set(NAMES)) == len(NAMES) == 60
    assert all(re.fullmatch("[a-z]+", name) for name in NAMES)


def test_the_logs_are_the_same_everywhere():
    """A change of the tables changes the logs; where that is meant, put the new digest here."""
    digest = hashlib.sha256("\n".join(write_logs(1000)).encode()).hexdigest()
    assert digest == "da1e50c1a7ce841b2d769f89b2be381616f0f6df7c018b824c64266becc196de"


def test_a_longer_list_begins_with_the_shorter():
    assert write_logs(100) == write_logs(1000, seed=1)[:100]
    assert write_logs(0) == []
    assert write_logs(100) != write_logs(100, seed=2)


def test_too_many():
    with pytest.raises(ValueError, match="at most 50000"):
        write_logs(50_001)


@given(st.integers(0, 2**40), st.data())
def test_one_character_less(seed: int, data: st.DataObject):
    log = write_logs(1, seed)[0]
    assert accepts_log(log)
    i = data.draw(st.integers(0, len(log) - 1))
    assert not accepts_log(log[:i] + log[i + 1 :])


@pytest.mark.parametrize("text", [*(log.text for log in reference_logs()), ABANDONED])
def test_accepted(text: str):
    assert accepts_log(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "job=",
        "job=carts",
        "job=carts status=started\n",
        SHORT.format("carts")[:-1],
        SHORT.format("carts") + "\n",
        SHORT.format("carts") * 2,
        SHORT.format("carts") + SHORT.format("orders"),
        SHORT.format("Carts"),
        SHORT.format("unheardof"),
        SHORT.format(""),
        SHORT.format("carts1"),
        SHORT.format("carts02"),
        SHORT.format("carts100"),
        SHORT.format("carts\u0663"),  # a digit, but not an ASCII one
        SHORT.format("orders2"),  # a reference job has no number
        SHORT.format("carts").replace("\n", "\r\n"),
        SHORT.format("carts").replace("\n", "\x0b"),
        LONG.format("carts").replace("=1", "=2"),
        LONG.format("carts").replace("timeout", "boredom"),
        ABANDONED.replace("reason=disk", "reason=memory", 1),
        ABANDONED.replace("carts7", "carts8", 1),
        "\0" + SHORT.format("carts"),
        "job=" * 250_000,
        "job=" + "a" * 1_000_000,
        "job=carts status=started\n" * 40_000,
        "\0" * 1_000_000,
    ],
    ids=lambda text: f"{len(text)}-{text[:14]!a}",
)
def test_rejected_at_once(text: str):
    start = time.perf_counter()
    assert not accepts_log(text)
    assert time.perf_counter() - start < 1
