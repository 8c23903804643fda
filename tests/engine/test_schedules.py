"""Schedules: torch's own schedulers as the peer, and what is true of every one."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from engine import UsageError
from engine.runs.schedules import COSINE, KINDS, Schedule, schedule_of

LR = 0.4
STEPS = 60


def torch_s_factors(kind: str, warmup: int, steps: int, floor: float) -> list[float]:
    """The factors of steps 1 to `steps`, by torch's schedulers.

    torch counts how often `scheduler.step()` was called, from 0: its 0 is our step 1. So our
    warm-up to 1 at step `warmup` is a LinearLR of warmup - 1 calls that starts at 1 / warmup, and
    the fall from 1 at that step (or at step 1) to the floor at the last one is a scheduler of
    steps - warmup (or steps - 1) calls.
    """
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    begin = max(warmup, 1)
    scheduler: LRScheduler
    if kind == COSINE:
        scheduler = CosineAnnealingLR(optimizer, steps - begin, eta_min=floor * LR)
    else:
        scheduler = LinearLR(optimizer, 1.0, floor, steps - begin)
    if warmup > 1:
        for group in optimizer.param_groups:  # as the one before it left them
            group["lr"] = group["initial_lr"]
        rise = LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
        scheduler = SequentialLR(optimizer, [rise, scheduler], milestones=[warmup - 1])
    factors = []
    for _ in range(steps):
        factors.append(optimizer.param_groups[0]["lr"] / LR)
        optimizer.step()
        scheduler.step()
    return factors


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.75])
@pytest.mark.parametrize("warmup", [0, 1, 2, 7, 30, STEPS - 1])
@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_factors_are_torch_s(kind: str, warmup: int, floor: float):
    """torch goes from each factor to the next, so its own are off by some last bits."""
    schedule = schedule_of(f"{kind}:warmup={warmup},floor={floor}", STEPS)
    ours = [schedule.factor(step) for step in range(1, STEPS + 1)]
    assert ours == pytest.approx(torch_s_factors(kind, warmup, STEPS, floor), rel=1e-9, abs=1e-12)


def test_a_cosine_by_hand():
    """From 1 at step 2, the end of the warm-up, to 0.2 at step 10."""
    schedule = schedule_of("cosine:warmup=2,floor=0.2", 10)
    assert [schedule.factor(step) for step in (1, 2, 10, 11, 10**9)] == [0.5, 1.0, 0.2, 0.2, 0.2]
    assert schedule.factor(6) == pytest.approx(0.6)  # half of the way
    assert schedule.factor(4) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)


def test_a_line_by_hand():
    schedule = schedule_of("linear", 5)
    assert [schedule.factor(step) for step in range(1, 8)] == [1, 0.75, 0.5, 0.25, 0, 0, 0]


@pytest.mark.parametrize("steps", [1, 2, 1000])
def test_without_a_warm_up_the_constant_one_is_exactly_1(steps: int):
    schedule = schedule_of("constant", steps)
    assert schedule == Schedule()
    assert all(schedule.factor(step) == 1.0 for step in range(1, 2000))


def test_a_constant_one_after_a_warm_up():
    schedule = schedule_of("constant:warmup=4", 10)
    assert [schedule.factor(step) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert schedule.factor(10**6) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_of_one_step_has_the_whole_rate(kind: str):
    assert schedule_of(kind, 1).factor(1) == 1.0


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, int]:
    """A schedule, and the steps it is of."""
    kind = draw(st.sampled_from(KINDS))
    steps = draw(st.integers(1, 5000))
    warmup = draw(st.integers(0, steps - 1))
    if kind == "constant":
        return Schedule(kind, warmup), steps
    return Schedule(kind, warmup, steps, draw(st.floats(0, 1))), steps


@given(schedules())
def test_it_rises_to_1_and_then_never_rises(drawn: tuple[Schedule, int]):
    schedule, steps = drawn
    begin = max(schedule.warmup, 1)
    rise = [schedule.factor(step) for step in range(1, begin + 1)]
    fall = [schedule.factor(step) for step in range(begin, steps + 10)]
    assert rise[-1] == 1.0
    assert all(0 < factor <= 1 for factor in rise)
    assert rise == sorted(rise)
    assert all(schedule.floor <= factor <= 1 for factor in fall)
    assert fall == sorted(fall, reverse=True)
    assert fall[-1] == schedule.floor or steps == 1


@given(schedules())
def test_what_is_written_is_read(drawn: tuple[Schedule, int]):
    schedule, steps = drawn
    assert schedule_of(schedule.written, steps) == schedule


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("constant", "constant"),
        ("cosine", "cosine"),
        ("cosine:warmup=0,floor=0", "cosine"),
        ("cosine:floor=1e-1,warmup=10", "cosine:warmup=10,floor=0.1"),
        ("linear:floor=0.25", "linear:floor=0.25"),
        ("constant:warmup=7", "constant:warmup=7"),
    ],
)
def test_what_is_read_is_written(text: str, written: str):
    assert schedule_of(text, 100).written == written


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cos", "no schedule is called 'cos': use constant, linear, cosine, such as cosine:"),
        ("", "no schedule is called ''"),
        ("warmup=100", "no schedule is called 'warmup=100'"),
        ("Cosine", "no schedule is called 'Cosine'"),
        ("cosine:", "'' is not what the schedule 'cosine:' can be given: give warmup and floor"),
        ("cosine:rate=3", "'rate=3' is not what .* give warmup and floor once, such as cosine:w"),
        ("cosine:warmup=1,", "'' is not what"),
        ("cosine:warmup=1,warmup=1", "'warmup=1' is not what"),
        ("constant:floor=0.1", "'floor=0.1' is not .* give warmup once, such as constant:warmup=1"),
        ("linear:warmup", "warmup= of the schedule 'linear:warmup' is no number of steps"),
        ("linear:warmup=ten", "warmup=ten of .* is no number of steps: give 0 or more"),
        ("linear:warmup=1.5", r"warmup=1\.5 of .* is no number of steps"),
        ("linear:warmup=-1", "warmup=-1 of .* is no number of steps"),
        ("linear:warmup=nan", "warmup=nan of .* is no number of steps"),
        ("linear:warmup=100", "warmup=100 of .* leaves none of 100 steps .*: give less than 100"),
        ("constant:warmup=101", "warmup=101 of .* leaves none of 100 steps after it"),
        ("cosine:floor=low", "floor=low of .* is no share of .*: give a number from 0 to 1"),
        ("cosine:floor=-0.1", r"floor=-0\.1 of .* is no share"),
        ("cosine:floor=1.01", r"floor=1\.01 of .* is no share"),
        ("cosine:floor=nan", "floor=nan of .* is no share"),
        ("cosine:floor=inf", "floor=inf of .* is no share"),
    ],
)
def test_wrong_ones_are_told(text: str, sentence: str):
    with pytest.raises(UsageError, match=sentence) as told:
        schedule_of(text, 100)
    assert told.value.exit_code == 2


@given(st.text() | st.from_regex(r"(cosine|linear):(warmup|floor)=.*", fullmatch=True))
def test_whatever_is_written_is_read_or_told(text: str):
    try:
        schedule = schedule_of(text, 100)
    except UsageError:
        return
    assert schedule_of(schedule.written, 100) == schedule


def test_it_needs_no_torch():
    told = "import sys, engine.runs.schedules; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0
