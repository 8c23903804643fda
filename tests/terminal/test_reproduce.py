"""`tensorstep reproduce` that is left before its end: what it had begun is saved and stops."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from engine.runs.directory import STOPPED, RunDirectory
from tests.terminal.terminal import CTRL_C, PATIENCE, Terminal

pytestmark = pytest.mark.terminal
LONG = ("reproduce", "tinystories", "--corpus", "storybook:60", "--steps", "1000000", "--dir")
MODULE = (sys.executable, "-P", "-m", "tui.cli")


def until_stopped(run: RunDirectory) -> None:
    """A file of another process: looked at until it says so."""
    end = time.monotonic() + PATIENCE
    while run.state() != STOPPED:
        assert time.monotonic() < end, run.state()
        time.sleep(0.05)


@pytest.mark.parametrize(
    "how",
    [
        "ctrl+c",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("SIGTERM", "SIGHUP", "SIGKILL")),
    ],
)
def test_its_run_stops_and_is_gone_on_with(how: str, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "kept" / "mlp-11")
    with Terminal([*LONG, str(tmp_path / "kept")], command=MODULE) as terminal:
        terminal.wait_for(lambda t: re.search(r"mlp, seed 11 .* [1-9]\d* of 1,000,000", t.text))
        if how == "ctrl+c":
            terminal.send(CTRL_C)
            assert terminal.wait() == 130
            said = "interrupted; its runs are saved: the same command goes on with them"
            assert said in " ".join(terminal.text.split())
        else:
            terminal.signal(signal.Signals[how])
            assert terminal.wait() == -signal.Signals[how]
    until_stopped(run)
    assert (run.path / "checkpoints").is_dir()
