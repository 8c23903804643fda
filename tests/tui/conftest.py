"""The screen without a process or a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tui.desk import DeskClient
from tui import cells, cli, headless

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def a_plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal as most are, whatever the tests are run from."""
    for name in ("NO_COLOR", "TENSORSTEP_ASCII", "LC_ALL", "LC_CTYPE", "TEXTUAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `tensorstep` with these arguments, in this process, the worker too: exit code, standard
    output, standard error."""
    monkeypatch.setattr(headless, "Client", DeskClient)

    def run(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(each) for each in arguments])
        told = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, told.out, told.err

    return run


@pytest.fixture
def snap_compare(
    snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., bool]:
    """The plugin's, of stills without the digits in which processors differ: sums in another order
    are the same in six."""
    monkeypatch.setattr(cells, "DIGITS", 4)
    return snap_compare
