"""`tensorstep doctor`: what machine, terminal and system have and lack, and how to mend it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from engine.service.client import LAST_WORDS, ending
from tui.glyphs import glyphs_for
from tui.headless import WIDTH, print_json, takes_only_ascii, write_lines
from tui.limits import SMALLEST
from tui.plain import shown

OK, NOTE, BAD = "ok", "note", "bad"
TOPIC = 6  # the column at which a topic begins; a verdict stands before it
TEXT = 18  # and the one at which what was found begins
PATIENCE = 60  # seconds for torch, which may lie on a cold disk
SOON = 5  # seconds for other commands
SLOW_ESCAPE = 50  # milliseconds from which the escape key feels slow
LITTLE = 1e9  # bytes free, below which a run's checkpoints may not fit

COLOURS = {"truecolor": "16 million", "256": "256", "standard": "16"}
TAKERS = "kitty, WezTerm, foot, Alacritty, Ghostty, Windows Terminal, iTerm2 and xterm once allowed"
NETWORKS = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "gpfs", "beegfs", "afs"),
    *("fuse.sshfs", "fuse.ceph", "fuse.glusterfs"),
)
FOLDERS = ("etc", "run", "usr/local/lib", "usr/lib")  # of systemd's settings, the first one wins
BUS = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
YES = ("1", "yes", "y", "true", "t", "on")
HELD = "\ue000"  # a space at which no line may end; `shown` lets none of it through from outside
RESET = r"\033[<u\033[?1049;1004;2004l\033[?25h"  # all that Textual switches on
QUIETLY: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "capture_output": True,
    "text": True,
    "errors": "replace",
}
JOBS = {"SLURM_JOB_ID": "SLURM", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}

PROBE = """
import json, torch

def tried(name, what, bf16):
    try:
        torch.ones(2, device=name).sum().item()
        return {"name": name, "what": what, "bf16": bool(bf16()), "trouble": ""}
    except Exception as error:
        return {"name": name, "what": what, "bf16": False, "trouble": str(error).split("\\n")[0]}

def works(name):
    x = torch.ones(2, 2, dtype=torch.bfloat16, device=name)
    return (x @ x).sum().item() == 8

def native(number):
    with torch.cuda.device(number):
        return torch.cuda.is_bf16_supported(including_emulation=False)

devices = [
    tried(f"cuda:{k}", torch.cuda.get_device_name(k), lambda k=k: native(k))
    for k in range(torch.cuda.device_count())
]
if torch.backends.mps.is_available():
    devices.append(tried("mps", "Apple GPU", lambda: works("mps")))
devices.append(tried("cpu", torch.backends.cpu.get_cpu_capability(), lambda: works("cpu")))
print(json.dumps({
    "version": torch.__version__,
    "built_for": torch.version.cuda or torch.version.hip,
    "threads": torch.get_num_threads(),
    "devices": devices,
}))
"""

Run = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True)
class Finding:
    """One thing that was found: `verdict` is ok, note or bad; `mend` may be empty."""

    topic: str
    what: str
    verdict: str = OK
    mend: str = ""


@dataclass(frozen=True)
class Machine:
    """Everything that is looked at.

    run     what a command prints; None where it fails or is not there
    torch   what it says of itself (PROBE), or a sentence why it says nothing
    size    columns and lines of the terminal; None where the output is none
    runs    the folder in which runs are kept
    root    below which the system's own files are read
    """

    environment: Mapping[str, str]
    run: Run
    torch: Mapping[str, Any] | str
    size: tuple[int, int] | None
    cpus: int
    user: str
    runs: Path
    root: Path = Path("/")
    system: str = "Linux"


def print_doctor(as_json: bool) -> int:
    """Print what is found. Returns 1 where something stops tensorstep from working, else 0."""
    found = findings(this_machine())
    if as_json:
        print_json({"findings": [asdict(each) for each in found]})
    else:
        write_lines(lines_of(found, takes_only_ascii()), takes_only_ascii())
    return int(any(each.verdict == BAD for each in found))


def findings(machine: Machine) -> list[Finding]:
    """Everything there is to tell, topic by topic. Text from outside is shown, never obeyed."""
    found = [each for check in CHECKS for each in check(machine)]
    return [replace(each, what=shown(each.what), mend=shown(each.mend)) for each in found]


def lines_of(found: list[Finding], ascii_only: bool) -> list[str]:
    """Verdict, topic and text in columns, the mends below; at the end what it comes to."""
    lines, topic = [], ""
    for each in found:
        head = each.verdict.ljust(TOPIC) + (each.topic if each.topic != topic else "")
        topic = each.topic
        text = wrapped(shown(each.what, ascii_only))
        if each.mend:
            text += wrapped("mend: " + shown(each.mend, ascii_only))
        lines += [start.ljust(TEXT) + line for start, line in zip_first(head, text)]
    bad = sum(each.verdict == BAD for each in found)
    things = "one thing stops" if bad == 1 else f"{bad} things stop"
    end = (
        f"{things} tensorstep from working, marked bad"
        if bad
        else "nothing stops tensorstep from working"
    )
    return [*lines, "", end]


def zip_first(head: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(head if k == 0 else "", line) for k, line in enumerate(lines)]


def wrapped(text: str) -> list[str]:
    """In lines of the width that is left, counted in cells; a `command` stays in one of them."""
    held = re.sub("`.*?`", lambda command: command[0].replace(" ", HELD), text)
    lines = Text(held).wrap(Console(file=StringIO()), WIDTH - TEXT)
    return [line.plain.rstrip().replace(HELD, " ") for line in lines]


def versions(machine: Machine) -> Iterator[Finding]:
    names = ("tensorstep", "textual", "rich")
    parts = [f"{name} {version_of(name)}" for name in names]
    parts.insert(1, f"Python {platform.python_version()}")
    if not isinstance(machine.torch, str):
        parts.insert(2, f"torch {machine.torch['version']}")
    yield Finding("versions", f"{', '.join(parts)}; {platform.platform()}")
    if isinstance(machine.torch, str):
        mend = f"`{sys.executable} -m pip install --force-reinstall torch`"
        yield Finding("versions", machine.torch, BAD, mend)


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def device(machine: Machine) -> Iterator[Finding]:
    """Each device on which torch computes."""
    if isinstance(machine.torch, str):
        return
    devices = machine.torch["devices"]
    for each in devices:
        what = f"{each['name']}, {each['what']}"
        if each["trouble"]:
            mend = "`nvidia-smi` tells who uses it; CUDA_VISIBLE_DEVICES= does without it"
            yield Finding("device", f"{what}, does not answer: {each['trouble']}", NOTE, mend)
        else:
            yield Finding("device", f"{what}; bfloat16: {'yes' if each['bf16'] else 'no'}")
    if len(devices) == 1 and (machine.root / "proc/driver/nvidia/version").exists():
        made = machine.torch["built_for"]
        why = f"finds no GPU that its CUDA {made} can use" if made else "is a build without CUDA"
        mend = "`nvidia-smi` tells the driver's CUDA; pytorch.org has the torch that goes with it"
        yield Finding("device", f"there is an NVIDIA driver, but torch {why}", NOTE, mend)


def threads(machine: Machine) -> Iterator[Finding]:
    asked = machine.environment.get("OMP_NUM_THREADS")
    set_to = "is not set" if asked is None else f"is {asked}"
    what = f"this process may use {machine.cpus} of the CPUs; OMP_NUM_THREADS {set_to}"
    if isinstance(machine.torch, str):
        yield Finding("threads", what)
        return
    used = machine.torch["threads"]
    what = f"torch computes in {used} threads; {what}"
    if used > machine.cpus:
        mend = f"`export OMP_NUM_THREADS={machine.cpus}`"
        yield Finding("threads", f"{what}: they wait for each other", NOTE, mend)
    else:
        yield Finding("threads", what)


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


def detached(machine: Machine) -> Iterator[Finding]:
    """Whether a training outlives its terminal: what ends processes at logout."""
    for name, system in JOBS.items():
        if machine.environment.get(name):
            what = f"{system} job {machine.environment[name]}: all its processes end when it ends"
            yield Finding("detached", what, NOTE, "give the job the time that the training takes")
    if machine.system == "Darwin":
        yield Finding("detached", "macOS does not end detached processes at logout")
    elif not (machine.root / "run/systemd/system").exists():
        yield Finding("detached", "no systemd here that would end processes at logout")
    else:
        yield logging_out(machine)


def logging_out(machine: Machine) -> Finding:
    """What systemd does with processes of this shell when its user logs out."""
    linger = f"`loginctl enable-linger {machine.user}`"
    lingers = machine.run(("loginctl", "show-user", machine.user, "-p", "Linger")) == "Linger=yes"
    if "/user@" in read(machine.root / "proc/self/cgroup"):
        manager = f"this shell belongs to the user manager of {machine.user}"
        if lingers:
            return Finding("detached", f"{manager}, which stays after logout (Linger=yes)")
        what = f"{manager}, which ends all it has when the last session ends (Linger=no)"
        return Finding("detached", what, NOTE, linger)
    settings = logind_settings(machine.root)
    if "KillUserProcesses" not in settings:
        told = machine.run(("busctl", "get-property", *BUS, "KillUserProcesses"))
        settings["KillUserProcesses"] = ["yes" if told == "b true" else "no"]
    setting = f"KillUserProcesses={' '.join(settings['KillUserProcesses'])}"
    if not is_killed(settings, machine.user):
        what = f"detached processes of {machine.user} stay after logout ({setting})"
        return Finding("detached", what)
    what = f"systemd kills processes of {machine.user} at logout, detached ones too ({setting})"
    once = "" if lingers else f"once {linger}, then "
    return Finding(
        "detached", what, NOTE, once + "`systemd-run --user --scope tensorstep train ...`"
    )


def is_killed(settings: Mapping[str, list[str]], user: str) -> bool:
    """As logind decides it: who is excluded, then who is named, then the setting for all."""
    if user in settings.get("KillExcludeUsers", ["root"]):
        return False
    if settings.get("KillOnlyUsers"):
        return user in settings["KillOnlyUsers"]
    return settings.get("KillUserProcesses", ["no"])[-1].lower() in YES


def logind_settings(root: Path) -> dict[str, list[str]]:
    """What the section [Login] says: the first main file there is, then all others by name; one
    in /etc stands for those of its name elsewhere. Lists grow, an empty value clears them."""
    folders = [root / folder / "systemd" for folder in FOLDERS]
    files = [file for each in folders if (file := each / "logind.conf").exists()][:1]
    named = {
        file.name: file
        for each in reversed(folders)
        for file in sorted((each / "logind.conf.d").glob("*.conf"))
    }
    settings: dict[str, list[str]] = {}
    for file in [*files, *(named[name] for name in sorted(named))]:
        section = ""
        for line in (line.strip() for line in read(file).splitlines()):
            key, equals, value = (part.strip() for part in line.partition("="))
            if line.startswith("["):
                section = line
            elif section == "[Login]" and equals and not line.startswith(("#", ";")):
                settings[key] = [*settings.get(key, []), *value.split()] if value else []
    return settings


def run_folder(machine: Machine) -> Iterator[Finding]:
    """Whether runs can be kept there, and reached."""
    folder, mend = machine.runs, "set XDG_STATE_HOME to a folder on another disk"
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        what = f"runs are kept in {folder}, but {there} cannot be written"
        yield Finding("run folder", what, BAD, f"let yourself write there, or {mend}")
        return
    free = shutil.disk_usage(there).free
    what = f"runs are kept in {folder}, {free / 1e9:,.1f} GB are free"
    yield Finding("run folder", what, *((NOTE, mend) if free < LITTLE else (OK, "")))
    kind = file_system(read(machine.root / "proc/mounts"), there.resolve())
    if kind in NETWORKS:
        what = f"it is on a network file system ({kind}): locks and sockets there reach nobody else"
        yield Finding("run folder", what, NOTE, "attach on the machine that trains, or " + mend)


def file_system(mounts: str, folder: Path) -> str:
    """The kind of file system a folder is on; empty where it is not known."""
    kind, deepest = "", -1
    for _, point, found, *_ in (line.split() for line in mounts.splitlines()):
        path = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point))
        if folder.is_relative_to(path) and len(path.parts) >= deepest:
            kind, deepest = found, len(path.parts)
    return kind


def reset(machine: Machine) -> Iterator[Finding]:
    what = "what puts a terminal in order after a crash, also typed blind"
    yield Finding("reset", what, OK, rf"`reset`, or `stty sane; printf '{RESET}'` and enter")


CHECKS = (
    *(versions, device, threads, terminal, colours, characters, copying, tmux),
    *(detached, run_folder, reset),
)


def this_machine() -> Machine:
    from engine.runs.directory import runs_folder

    sizes = os.get_terminal_size(sys.stdout.fileno()) if sys.stdout.isatty() else None
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return Machine(
        environment=os.environ,
        run=run,
        torch=ask_torch(),
        size=None if sizes is None else (sizes.columns, sizes.lines),
        cpus=len(usable) or os.cpu_count() or 1,
        user=user_name(),
        runs=runs_folder(),
        system=platform.system(),
    )


def user_name() -> str:
    """Of the user this runs as, whatever the environment says."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container that does not know its user
        return str(os.getuid())


def ask_torch(command: Sequence[str] = (sys.executable, "-P", "-c", PROBE)) -> dict[str, Any] | str:
    """What torch says of itself, in a process of its own: the screen's never imports it."""
    try:
        done = subprocess.run(command, **QUIETLY, timeout=PATIENCE)  # noqa: S603 -- our own
    except subprocess.TimeoutExpired:
        return f"torch was not there after {PATIENCE} s"
    except OSError as error:
        return f"Python could not be started to ask torch: {error}"
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except (IndexError, ValueError):
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()][-LAST_WORDS:]
        how = ending(done.returncode)
        return f"torch does not work ({how}); its last words: {' / '.join(said) or 'none'}"


def run(command: Sequence[str]) -> str | None:
    """What a command prints; None where it fails or is not there."""
    try:
        done = subprocess.run(command, **QUIETLY, timeout=SOON)  # noqa: S603 -- our own
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def read(file: Path) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
