"""What is drawn in terminals of different kinds, what is never drawn, and how much."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from tests.terminal.terminal import DOWN, ENTER, ESCAPE, POINTER, TAB, Terminal

pytestmark = pytest.mark.terminal
READY = "stories[0] ="
LOADING = "loading the model"
SGR = re.compile(rb"\x1b\[([\d;:]*)m")


@pytest.mark.parametrize("modern", [False, True])
def test_resized_below_the_smallest_and_back(modern: bool) -> None:
    with Terminal(size=(120, 40), modern=modern) as terminal:
        terminal.wait_for(READY)
        terminal.resize((60, 15))
        terminal.wait_for("tensorstep needs 80x24, this is 60x15: enlarge it")
        assert READY not in terminal.text
        terminal.send("n")  # keys still count
        terminal.resize((20, 2))
        terminal.wait_for(lambda t: "tensorstep needs" in t.lines[0])
        terminal.resize((80, 24))
        terminal.wait_for(lambda t: "split[0] =" in t.text and "q quit" in t.lines[23])
        terminal.resize((200, 60))
        terminal.wait_for(lambda t: "TRAINING MAP" in t.text and "q quit" in t.lines[59])
        terminal.send("q")
        assert terminal.wait() == 0


def goto(terminal: Terminal, place: str, wanted: str) -> None:
    terminal.press(";", "go to STEP:STATE:CELL")
    terminal.press(place + ENTER, wanted)


def walked(terminal: Terminal) -> None:
    """Everything that draws: states, stages, help, sheets, panes, the loss curve, both maps."""
    terminal.press("nn", "tokens[0] =")
    terminal.press("NNN", "batch.X[0,0] =")
    terminal.press("?", "escape: close")
    terminal.press(ESCAPE, lambda t: "escape: close" not in t.text)
    terminal.press("o", "open another model")
    terminal.press(ESCAPE, lambda t: "open another model" not in t.text)
    goto(terminal, "2:weights:0,0,1", "weights[0,0,1] =")
    goto(terminal, "2:weights:9", "there is no cell")  # a warning
    terminal.send(TAB + DOWN + TAB + DOWN + TAB)
    goto(terminal, "1:update.W_Q.weight", "update.W_Q.weight[0,0] =")
    goto(terminal, "1:loss", "loss = ")
    terminal.press("m", "GENERATION MAP")
    terminal.press("NNNNN", "step 1")
    terminal.settle()


def colours(terminal: Terminal) -> set[int]:
    """Every colour ever set (ESC [ ... m): 30 to 49 and 90 to 107; 38 and 48: one of many."""
    numbers = {
        int(each or 0)
        for found in SGR.findall(bytes(terminal.raw))
        for each in re.split(b"[;:]", found)
    }
    return {number for number in numbers if 30 <= number <= 49 or 90 <= number <= 107}


def test_no_color_means_no_colour() -> None:
    with Terminal(env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for(READY)
        walked(terminal)
        assert terminal.reversed_text()  # the cursor is seen all the same
    assert colours(terminal) <= {39, 49}


def test_colours_are_the_terminals_own() -> None:
    """One accent and a warning out of the sixteen; no shade that another theme makes unreadable."""
    with Terminal() as terminal:
        terminal.wait_for(READY)
        walked(terminal)
    used = colours(terminal)
    assert used <= {33, 36, 39, 49} | {30, 47}, "yellow, cyan, the terminal's own two; typing"
    assert {33, 36} <= used


@pytest.mark.parametrize("env", [{"LANG": "C"}, {"LC_ALL": "C"}, {"LANG": "de_DE.ISO-8859-1"}])
def test_ascii_where_the_locale_is_not_utf_8(env: dict[str, str | None]) -> None:
    with Terminal(env=env) as terminal:
        terminal.wait_for(LOADING)
        terminal.press("?", "escape: close")
        terminal.settle(0.05)
    assert bytes(terminal.raw).isascii()


def test_ascii_on_request() -> None:
    """The text's own letters included."""
    with Terminal(["--ascii", "--sentence", "Lily found a red café."]) as terminal:
        terminal.wait_for("stories[0] = Lily found a red caf\\xe9.")
        walked(terminal)
    assert bytes(terminal.raw).isascii()


HOSTILE = (
    "a \x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b]52;c;cm0=\x07 [red]x[/] [/] [@click=app.quit]y[/]"
    " \x9b31m \x9d0;owned\x9c \u202eright\u202c \u2066in\u2069 z\u200bw b\bc d\x7fe \u2028f\vg\fh"
    " [link=file:///etc]l[/link] \U0001f600 e\u0301\n"
)
UNSEEN = "\u202e\u202c\u2066\u2069\u200b\u2028"
NEVER = (b"\x07", b"\x08", b"\x7f", b"\x0b", b"\x0c", b"\x1b]", b"\x1b[31m", b"\x1bP", b"\x1b_")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_hostile_text_is_shown_not_obeyed(size: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "evil\x1b[31m[red]\u202e.txt"
    file.write_text(HOSTILE, encoding="utf-8")
    with Terminal(["--text", str(file)], size=size) as terminal:
        terminal.wait_for("stories[0] =")
        if size[0] > 80:
            assert r"evil\e[31m[red]\u{202e}.txt" in terminal.lines[0]
        assert r"a \e[31mred\e[0m" in terminal.text
        goto(terminal, "0:tokens:4", "tokens[4] = m")  # a control sequence is only some tokens
        goto(terminal, "0:tokens:1", r"tokens[1] = \e")
        for i in range(45):  # every token under the cursor
            terminal.press("j", f"tokens[{i + 2}] =")
        for keys in ("n", "n", "n", "n", "n", "n"):
            terminal.press(keys, "")
            terminal.settle(0.1)
        goto(terminal, "1:logits:0,9", "logits[0,9] =")
        for keys in ("G", "m", "nnn"):
            terminal.send(keys)
            terminal.settle(0.1)
        terminal.press("?", "escape: close")
        terminal.press("q", lambda t: "escape: close" not in t.text)
        assert terminal.title == ""
        terminal.send("q")
        assert terminal.wait() == 0
    raw = POINTER.sub(b"", bytes(terminal.raw))
    assert not [each for each in NEVER if each in raw]
    assert not [c for c in raw.decode() if 0x80 <= ord(c) < 0xA0 or c in UNSEEN]


def test_a_key_costs_few_bytes() -> None:
    """Over SSH a key is to cost little: within a stage only what differs is drawn again. The bound
    is wide; benchmarks/keys.py tells the figure."""
    costs = []
    with Terminal(["--goto", "1:gradients.hidden.pre"], size=(120, 40)) as terminal:
        terminal.wait_for("gradients.hidden.pre[0,0] =")
        terminal.settle()
        for _ in range(9):
            before = len(terminal.raw)
            terminal.send("n")
            terminal.settle()
            costs.append(len(terminal.raw) - before)
        assert "gradients." in terminal.text
    assert min(costs) > 0
    assert statistics.median(costs) < 4096


def test_from_an_empty_folder_at_home_nowhere_and_without_a_network(tmp_path: Path) -> None:
    """Nothing is read from or left in the folder and the home, and no address is looked up or
    called, by either process."""
    here, home, hooks = (tmp_path / name for name in ("here", "home", "hooks"))
    for each in (here, home, hooks):
        each.mkdir()
    log = tmp_path / "calls"
    (hooks / "sitecustomize.py").write_text(f"""
import sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request"):
        print(event, arguments, file=open({str(log)!r}, "a"))
print(sys.argv, file=open({str(log) + ".started"!r}, "a"))
sys.addaudithook(hook)
""")
    (here / "engine.py").write_text("raise SystemExit('the folder is not to be imported from')")
    (here / "torch.py").write_text("raise SystemExit('the folder is not to be imported from')")
    env: dict[str, str | None] = {"HOME": str(home), "PYTHONPATH": str(hooks)}
    env |= {
        "XDG_CACHE_HOME": None,
        "XDG_CONFIG_HOME": None,
        "http_proxy": None,
        "https_proxy": None,
    }
    with Terminal(cwd=here, env=env) as terminal:
        terminal.wait_for(READY)
        terminal.press("nnN", "vocabulary[0] =")
        terminal.press("m", "GENERATION MAP")
        if Path("/proc/self/maps").exists():  # Linux; and only the worker has torch
            screen, worker = (Path(f"/proc/{pid}/maps") for pid in (terminal.pid, terminal.worker))
            assert "libtorch" in worker.read_text()
            assert "libtorch" not in screen.read_text()
        terminal.send("q")
        assert terminal.wait() == 0
    started = Path(f"{log}.started").read_text().splitlines()
    assert len(started) == 2, "both processes had the hook"
    assert not log.exists()
    assert not list(home.iterdir())
    assert sorted(each.name for each in here.iterdir()) == ["engine.py", "torch.py"]
