"""The metrics of a loop that is not ours: taken where the loop runs, at next to no cost, and
written a little later by another thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.runs import disk
from engine.runs.metrics import MetricsFile, written

RECENT = 1000  # losses that a walk shows
SHARE = 0.001  # of the loop's time that may go into norms of gradients while nobody is attached
BANDWIDTH = 5e11  # bytes a second: what reading gradients is taken to cost on another device

Taken = tuple[Any, Any, Any, float | None, int]  # loss, lr, grad_norm, targets, time in ns


class Rows:
    """One line a call of `add`, steps from 1 on.

    count    how many there are in the file
    last     the last of them
    losses   the last ones
    trouble  what was not finite, and where, as long as it is not
    """

    def __init__(self, path: Path):
        self._file = MetricsFile(path)
        self._taken: deque[Taken | None] = deque()
        self.add = self._taken.append  # None: the loop stood still
        self.count = 0
        self.last: dict[str, float | None] = {}
        self.losses: deque[float] = deque(maxlen=RECENT)
        self.trouble: str | None = None
        self._lock = threading.Lock()
        self._lines = b""  # made, and not on the disk yet
        self._before: int | None = None  # when the step before ended
        self._lr: tuple[Any, str] = (None, "null")  # the last one, and how it is written

    def write(self) -> None:
        """Write what was taken. A full disk is tried again the next time; raises OSError where it
        does not take it for another reason."""
        with self._lock:
            taken = [self._taken.popleft() for _ in range(len(self._taken))]
            if taken:
                self._lines += self._made(taken).encode()
            if not self._lines:
                return
            try:
                self._file.add_lines(self._lines)
            except OSError as error:
                if not disk.is_full(error):
                    raise
            else:
                self._lines = b""

    def close(self) -> None:
        with self._lock:
            self._file.sync()
            self._file.close()

    def _made(self, taken: list[Taken | None]) -> str:
        """The lines of what was taken. Every microsecond here is one that the loop waits for."""
        rows = [row for row in taken if row is not None]
        losses = numbers([row[0] for row in rows])
        norms = numbers([row[2] for row in rows])
        lines = []
        at, speed = 0, None
        for row in taken:
            if row is None:
                self._before = None
                continue
            _, lr, _, targets, now = row
            loss, norm = losses[at], norms[at]
            at += 1
            self.count += 1
            if lr is not self._lr[0]:
                self._lr = lr, text_of(number(lr))
            speed = self._speed(targets, now)
            lines.append(
                f'{{"step": {self.count}, "loss": {text_of(loss)}, "lr": {self._lr[1]},'
                f' "grad_norm": {text_of(norm)}, "targets_per_second": {text_of(speed)},'
                f' "time": {now // 1_000_000_000}.{now // 1_000_000 % 1000:03d}}}\n'
            )
            if (loss is not None and loss - loss != 0) or (norm is not None and norm - norm != 0):
                self._tell_trouble(loss, norm)
            elif self.trouble:
                self.trouble = None
            self._before = now
        if rows:
            self._remember(rows[-1], losses, norms[-1], speed)
        return "".join(lines)

    def _remember(
        self, row: Taken, losses: list[float | None], norm: float | None, speed: float | None
    ) -> None:
        self.losses.extend(math.nan if each is None else each for each in losses)
        self.last = {
            "step": self.count,
            "loss": losses[-1],
            "lr": number(row[1]),
            "grad_norm": norm,
            "targets_per_second": speed,
            "time": row[4] / 1e9,
        }

    def _speed(self, targets: float | None, now: int) -> float | None:
        if targets is None or self._before is None or now <= self._before:
            return None
        return float(targets) * 1e9 / (now - self._before)

    def _tell_trouble(self, loss: float | None, norm: float | None) -> None:
        if self.trouble is None:
            named = {"loss": loss, "grad_norm": norm}
            bad = [
                f"{name} is {value}"
                for name, value in named.items()
                if value is not None and not math.isfinite(value)
            ]
            self.trouble = f"{' and '.join(bad)} at step {self.count}"


def text_of(value: float | None) -> str:
    """A number as `json.dumps` writes it; see `metrics.written`."""
    if value is None:
        return "null"
    return repr(value) if value - value == 0 else f'"{written(value)}"'


def taken(value: Any) -> Any:
    """A number that may be a tensor, as it stands now. What is on another device is waited for
    later: a copy, for a loop may go on adding to its own."""
    if value is None or type(value) is float:
        return value
    if not isinstance(value, Tensor):
        return float(value)
    if hasattr(value, "to_local"):
        value = value.to_local()
    if value.numel() != 1:  # a loss for each device
        value = value.detach().mean()
    return value.item() if value.is_cpu else Elsewhere(value)


class Elsewhere:
    """A number on another device, in the stream that makes it. One that `overflows` is not known
    where it is not finite."""

    __slots__ = ("overflows", "stream", "value")

    def __init__(self, value: Tensor):
        self.value = value.detach().clone().reshape(())
        self.overflows = False
        self.stream = torch.cuda.current_stream(value.device) if value.is_cuda else None


def numbers(values: list[Any]) -> list[float | None]:
    """The values as floats: those of a device are fetched together."""
    waiting = [k for k, value in enumerate(values) if type(value) is Elsewhere]
    if not waiting:
        return values
    last = values[waiting[-1]]
    if last.stream is not None:
        last.stream.record_event().synchronize()
    tensors = [values[k].value for k in waiting]
    alike = all((t.dtype, t.device) == (tensors[0].dtype, tensors[0].device) for t in tensors)
    found = torch.stack(tensors).tolist() if alike else [tensor.item() for tensor in tensors]
    for k, value in zip(waiting, found, strict=True):
        lost = values[k].overflows and not math.isfinite(value)
        values[k] = None if lost else float(value)
    return values


def number(value: Any) -> float | None:
    return numbers([value])[0]


class GradientNorm:
    """The norm of all gradients, measured as often as costs next to nothing."""

    def __init__(self, optimizer: Any):
        # of sharded gradients one process has only its share
        sharded = any(hasattr(each, "to_local") for each in parameters_of(optimizer))
        self._known = not sharded
        self._next = 0.0 if self._known else math.inf
        self._elsewhere = 0.0  # seconds that the device is taken to need

    def due(self, attended: bool) -> bool:
        """Whether to measure now: every time while a screen is attached."""
        return time.perf_counter() >= (0.0 if attended and self._known else self._next)

    def measure(self, optimizer: Any) -> Any:
        """The norm, without the scale that the optimizer is told of; None where there is none."""
        began = time.perf_counter()
        found = self._norm(optimizer)
        now = time.perf_counter()
        self._next = now + (now - began + self._elsewhere) / SHARE
        return found

    def _norm(self, optimizer: Any) -> Any:
        gradients = [each.grad for each in parameters_of(optimizer) if each.grad is not None]
        self._elsewhere = 0.0
        if not gradients or any(each.layout != torch.strided for each in gradients):
            return None
        if not gradients[0].is_cpu:
            self._elsewhere = sum(each.nbytes for each in gradients) / BANDWIDTH
        with torch.no_grad():
            norm = nn.utils.get_total_norm(gradients)
            scale = getattr(optimizer, "grad_scale", None)
            if scale is not None:
                norm = norm / scale.to(norm.device)
        found = taken(norm)
        if getattr(optimizer, "found_inf", None) is not None:  # a scaler makes such steps none
            if type(found) is Elsewhere:
                found.overflows = True
            elif not math.isfinite(found):
                return None
        return found


def parameters_of(optimizer: Any) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
