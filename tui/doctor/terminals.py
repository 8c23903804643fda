"""What the terminal can do, and what stands between: size, colours, characters, copying, tmux."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console

from tui.doctor.machine import BAD, NOTE, OK, Finding, Machine, Run
from tui.glyphs import glyphs_for
from tui.limits import SMALLEST

SLOW_ESCAPE = 50  # milliseconds from which the escape key feels slow
COLOURS = {"truecolor": "16 million", "256": "256", "standard": "16"}
TAKERS = "kitty, WezTerm, foot, Alacritty, Ghostty, Windows Terminal, iTerm2 and xterm once allowed"
RESET = r"\033[<u\033[?1049;1004;2004l\033[?25h"  # all that Textual switches on


def terminal(machine: Machine) -> Iterator[Finding]:
    term = machine.environment.get("TERM")
    name = f"TERM is {term}" if term else "TERM is not set"
    needed = f"{SMALLEST[0]}x{SMALLEST[1]}"
    if machine.size is None:
        what = f"{name}; this output is no terminal: the screen needs one, of {needed} or more"
        yield Finding("terminal", what, NOTE)
        return
    width, height = machine.size
    what = f"{name}, {width}x{height}"
    if term == "dumb":
        mend = "`export TERM=xterm-256color`, or `tensorstep states train --json` without a screen"
        yield Finding("terminal", f"{what}: no screen can be drawn", BAD, mend)
    elif width and height and (width < SMALLEST[0] or height < SMALLEST[1]):
        yield Finding("terminal", f"{what}: the screen needs {needed}", BAD, "enlarge it")
    elif not term:
        yield Finding("terminal", what, NOTE, "`export TERM=xterm-256color`")
    else:
        yield Finding("terminal", f"{what} ({needed} or more is needed)")


def colours(machine: Machine) -> Iterator[Finding]:
    """What the screen will use, as Textual and rich decide it."""
    environment = machine.environment
    if "NO_COLOR" in environment:
        yield Finding("colours", "none, bold and dim only: NO_COLOR is set")
        return
    console = Console(file=StringIO(), force_terminal=True, _environ=environment)
    colour_term = environment.get("COLORTERM")
    why = f"COLORTERM is {colour_term}" if colour_term else "COLORTERM is not set"
    why += f", TERM is {environment.get('TERM') or 'not set'}"
    count = COLOURS.get(console.color_system or "")
    if count is None:
        yield Finding("colours", f"not to be told: {why}", NOTE, "`export TERM=xterm-256color`")
    elif count == "16":
        mend = "`export TERM=xterm-256color`: nearly every terminal has 256 colours"
        yield Finding("colours", f"{count}: {why}", NOTE, mend)
    elif count == "256":
        what = f"{count}: {why}. That is enough; SSH does not forward COLORTERM"
        mend = "for 16 million, where the terminal has them: `export COLORTERM=truecolor`"
        yield Finding("colours", what, OK, mend)
    else:
        yield Finding("colours", f"{count}: {why}")


def characters(machine: Machine) -> Iterator[Finding]:
    environment = machine.environment
    names = ("TENSORSTEP_ASCII", "LC_ALL", "LC_CTYPE", "LANG")
    why = ", ".join(f"{name} is {environment[name]}" for name in names if environment.get(name))
    if not glyphs_for(environment).ascii:
        yield Finding("characters", f"Unicode: {why or 'no locale is set, UTF-8 is taken for it'}")
    elif environment.get("TENSORSTEP_ASCII"):
        yield Finding("characters", f"ASCII: {why}")
    else:
        yield Finding("characters", f"ASCII: {why}", NOTE, "`export LC_ALL=C.UTF-8`")


def copying(machine: Machine) -> Iterator[Finding]:
    """Whether the sequence OSC 52, by which `y` copies, may reach the terminal."""
    environment = machine.environment
    term = environment.get("TERM", "")
    apple = environment.get("TERM_PROGRAM") == "Apple_Terminal"
    if environment.get("TMUX"):
        yield tmux_copying(option(machine.run, "set-clipboard"))
    elif environment.get("STY"):
        mend = "work outside of screen, or in tmux"
        yield Finding("copying", "GNU screen does not hand OSC 52 on", NOTE, mend)
    elif term.startswith(("tmux", "screen")):
        what = f"TERM is {term}, so tmux or screen is around this: tmux hands OSC 52 on if told"
        yield Finding("copying", what, NOTE, "there: `tmux set -s set-clipboard on`")
    elif apple or environment.get("VTE_VERSION"):
        name = "macOS Terminal" if apple else "GNOME Terminal and its like"
        yield Finding("copying", f"{name}: OSC 52 is not taken", NOTE, f"use one of {TAKERS}")
    else:
        what = f"by OSC 52, also over SSH: taken by {TAKERS}; not by macOS and GNOME Terminal"
        yield Finding("copying", what)


def tmux_copying(setting: str | None) -> Finding:
    """Only `on` takes the sequence from a program; `external` is for tmux's own copies."""
    if setting == "on":
        return Finding("copying", f"tmux hands OSC 52 on, to be taken by {TAKERS}")
    mend = "in ~/.tmux.conf: `set -s set-clipboard on` (allow-passthrough is not needed)"
    told = f"set-clipboard is {setting}" if setting else "tmux does not tell set-clipboard"
    return Finding("copying", f"{told}: only with `on` OSC 52 leaves tmux", NOTE, mend)


def tmux(machine: Machine) -> Iterator[Finding]:
    if not machine.environment.get("TMUX"):
        return
    names = ("escape-time", "default-terminal", "set-clipboard", "focus-events")
    values = {name: option(machine.run, name) for name in names}
    if not any(values.values()):
        what = f"TMUX is {machine.environment['TMUX']}, but tmux does not answer"
        yield Finding("tmux", what, NOTE, "`unset TMUX`, where no tmux is around")
        return
    told = ", ".join(f"{name} {value or 'not told'}" for name, value in values.items())
    yield Finding("tmux", f"{machine.run(('tmux', '-V')) or 'tmux'}: {told}")
    escape, name = values["escape-time"] or "", values["default-terminal"]
    if escape.isdecimal() and int(escape) > SLOW_ESCAPE:
        mend = "in ~/.tmux.conf: `set -sg escape-time 10`"
        yield Finding("tmux", f"the escape key waits {escape} ms in tmux", NOTE, mend)
    if name and not name.endswith(("256color", "direct")):
        mend = "in ~/.tmux.conf: `set -g default-terminal tmux-256color`"
        yield Finding("tmux", f"default-terminal {name} has few colours", NOTE, mend)


def option(run: Run, name: str) -> str | None:
    """An option of tmux's server; older ones have some of them with the sessions."""
    return run(("tmux", "show", "-sv", name)) or run(("tmux", "show", "-gv", name))


def reset(machine: Machine) -> Iterator[Finding]:
    what = "what puts a terminal in order after a crash, also typed blind"
    yield Finding("reset", what, OK, rf"`reset`, or `stty sane; printf '{RESET}'` and enter")
