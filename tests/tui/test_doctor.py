"""What `tensorstep doctor` tells, on machines that are made up, and on this one."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
from wcwidth import wcswidth

from tui.doctor import findings, lines_of, print_doctor, probe
from tui.doctor.logout import is_killed
from tui.doctor.logout import logind_settings as settings_of
from tui.doctor.machine import Finding, Machine, Run
from tui.doctor.probe import ask_torch
from tui.doctor.runs import file_system
from tui.doctor.terminals import RESET

TORCH = {
    "version": "2.13.0+cpu",
    "built_for": None,
    "threads": 4,
    "devices": [{"name": "cpu", "what": "AVX2", "bf16": True, "trouble": ""}],
}
GPU = {"name": "cuda:0", "what": "NVIDIA H200", "bf16": True, "trouble": ""}
MOUNTS = "/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n"


def answers(told: Mapping[str, str]) -> Run:
    """Commands that answer so; all others are not there."""

    def run(command: Sequence[str]) -> str | None:
        return told.get(" ".join(command))

    return run


@pytest.fixture
def machine(tmp_path: Path):
    """A machine on which all is well, but for what is said to be otherwise."""
    root = tmp_path / "root"
    write(root / "proc/mounts", MOUNTS)
    write(root / "proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "tmp").mkdir()

    def make(
        environment: Mapping[str, str] | None = None,
        told: Mapping[str, str] | None = None,
        **others: Any,
    ) -> Machine:
        plain = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
        given: dict[str, Any] = {
            "environment": plain if environment is None else environment,
            "run": answers(told or {}),
            "torch": TORCH,
            "size": (100, 30),
            "cpus": 8,
            "user": "lily",
            "runs": tmp_path / "state" / "runs",
            "root": root,
        }
        return Machine(**(given | others))

    return make


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def of(topic: str, machine: Machine) -> list[Finding]:
    return [each for each in findings(machine) if each.topic == topic]


def only(topic: str, machine: Machine) -> Finding:
    (found,) = of(topic, machine)
    return found


# all of it


def test_every_topic_is_told_and_all_is_well(machine):
    found = findings(machine())
    topics = "versions device threads terminal colours characters copying detached run folder"
    assert " ".join(each.topic for each in found) == f"{topics} attaching reset"
    assert {each.verdict for each in found} == {"ok"}


def test_this_machine(capsys: pytest.CaptureFixture[str]):
    code = print_doctor(True)
    told = capsys.readouterr().out
    assert told.isascii()
    found = json.loads(told)["findings"]
    assert all(list(each) == ["topic", "what", "verdict", "mend"] for each in found)
    assert {each["verdict"] for each in found} <= {"ok", "note", "bad"}
    assert code == int("bad" in {each["verdict"] for each in found})
    text = {each["topic"]: each["what"] for each in reversed(found)}  # the first of each topic
    for name in ("tensorstep", "torch", "textual", "rich"):
        assert f"{name} {version(name)}" in text["versions"]
    assert f"Python {platform.python_version()}" in text["versions"]
    cpus = subprocess.run(
        ["nproc"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert f"may use {cpus.stdout.strip()} of" in text["threads"]
    assert text["terminal"].startswith("TERM is xterm-256color; this output is no terminal")


def test_torch_is_asked_in_another_process():
    told = ask_torch()
    assert isinstance(told, dict)
    code = "import torch; print(torch.__version__, torch.get_num_threads())"
    own = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{told['version']} {told['threads']}\n" == own.stdout
    last = told["devices"][-1]
    assert (last["name"], last["bf16"], last["trouble"]) == ("cpu", True, "")
    loaded = "import sys, tui.doctor; print([n for n in ('torch', 'numpy') if n in sys.modules])"
    own = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert own.stdout == "[]\n"


def test_readable_lines_are_aligned_and_fit(machine):
    environment = {"TERM": "screen", "TMUX": "/tmp/漢字" + "x" * 90, "LANG": "C"}
    found = findings(machine(environment, size=(60, 20), torch="torch does not work"))
    for ascii_only in (False, True):
        lines = lines_of(found, ascii_only)
        assert max(wcswidth(line) for line in lines) <= 79
        assert all(line.isascii() for line in lines) or not ascii_only
        *rows, blank, end = lines
        assert (blank, end) == ("", "2 things stop tensorstep from working, marked bad")
        assert {row[:6].strip() for row in rows} == {"", "ok", "note", "bad"}
        assert all(row[5] == row[17] == " " for row in rows)
    assert any(line.startswith("bad   terminal    TERM is screen, 60x20") for line in lines)


def test_commands_stay_in_one_line(machine):
    """So that they can be copied."""
    (found,) = of("reset", machine())
    command = found.mend.split("`")[3]
    assert any(f"`{command}`" in line for line in lines_of([found], True))


def test_nothing_from_outside_is_obeyed(machine, tmp_path: Path):
    nasty = "a\x1b[2J\x9b31m\n\u202eb"
    names = [
        "TERM",
        "COLORTERM",
        "OMP_NUM_THREADS",
        "TMUX",
        "SLURM_JOB_ID",
        "LC_ALL",
        "TERM_PROGRAM",
    ]
    devices = [GPU | {"what": nasty, "trouble": nasty}]
    torch = TORCH | {"version": nasty, "devices": devices}
    told = {"tmux show -sv escape-time": nasty, "tmux -V": nasty}
    others = {"user": nasty, "runs": tmp_path / nasty}
    found = findings(machine(dict.fromkeys(names, nasty), told, torch=torch, **others))
    found += findings(machine(torch=nasty))
    for each in found:
        assert each.what.isprintable()
        assert each.mend.isprintable()
    escaped = "a\\e[2J\\x9b31m\\n\\u{202e}b"
    for topic in ("versions", "device", "threads", "terminal", "colours", "tmux", "detached"):
        assert any(escaped in each.what for each in found if each.topic == topic), topic


# torch


def test_torch_that_does_not_work(machine):
    words = "import sys; sys.exit('OSError: libtorch.so: cannot open')"
    told = ask_torch((sys.executable, "-c", words))
    assert told == (
        "torch does not work (exit code 1); its last words: OSError: libtorch.so: cannot open"
    )
    first, second = of("versions", machine(torch=told))
    assert "torch" not in first.what.split(";")[0]
    assert (second.what, second.verdict) == (told, "bad")
    assert "pip install" in second.mend
    assert of("device", machine(torch=told)) == []
    assert only("threads", machine(torch=told)).what.startswith("this process may use 8")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import os; os.kill(os.getpid(), 9)", "(killed by SIGKILL); its last words: none"),
        ("print('no json')", "(exit code 0); its last words: none"),
        ("", "(exit code 0); its last words: none"),
    ],
)
def test_torch_that_says_nothing(code: str, sentence: str):
    assert ask_torch((sys.executable, "-c", code)) == f"torch does not work {sentence}"


def test_torch_that_takes_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "PATIENCE", 0.2)
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    assert ask_torch(command) == "torch was not there after 0.2 s"


def test_a_python_that_cannot_be_started():
    assert "could not be started" in str(ask_torch(("/no/such/python",)))


def test_devices(machine):
    cpu = TORCH["devices"][0]
    found = of("device", machine(torch=TORCH | {"devices": [GPU, cpu | {"bf16": False}]}))
    assert [each.what for each in found] == [
        "cuda:0, NVIDIA H200; bfloat16: yes",
        "cpu, AVX2; bfloat16: no",
    ]
    broken = GPU | {"trouble": "CUDA error: out of memory"}
    first, _ = of("device", machine(torch=TORCH | {"devices": [broken, cpu]}))
    assert (first.verdict, "out of memory" in first.what) == ("note", True)


@pytest.mark.parametrize(
    ("built_for", "why"), [(None, "without CUDA"), ("12.8", "its CUDA 12.8 can use")]
)
def test_a_gpu_that_torch_does_not_see(machine, built_for: str | None, why: str):
    made = machine(torch=TORCH | {"built_for": built_for})
    assert len(of("device", made)) == 1
    write(made.root / "proc/driver/nvidia/version", "NVRM version: 570\n")
    _, found = of("device", made)
    assert (found.verdict, why in found.what, "nvidia-smi" in found.mend) == ("note", True, True)


def test_threads(machine):
    found = only("threads", machine({"OMP_NUM_THREADS": "4"}, cpus=2))
    assert (found.verdict, found.mend) == ("note", "`export OMP_NUM_THREADS=2`")
    assert found.what.startswith("torch computes in 4 threads; this process may use 2 of the CPUs")
    assert "OMP_NUM_THREADS is 4" in found.what


# the terminal


@pytest.mark.parametrize(
    ("term", "size", "verdict"),
    [
        ("xterm-256color", (80, 24), "ok"),
        ("xterm-256color", (79, 24), "bad"),
        ("xterm-256color", (80, 23), "bad"),
        ("xterm-256color", (0, 0), "ok"),  # a terminal that does not know its size
        ("xterm-256color", None, "note"),
        ("dumb", (80, 24), "bad"),
        ("dumb", None, "note"),
        ("", (80, 24), "note"),
    ],
)
def test_the_terminal(machine, term: str, size: tuple[int, int] | None, verdict: str):
    assert only("terminal", machine({"TERM": term}, size=size)).verdict == verdict


@pytest.mark.parametrize(
    ("environment", "count", "verdict"),
    [
        ({"TERM": "xterm-256color"}, "256", "ok"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "16 million", "ok"),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, "16 million", "ok"),
        ({"TERM": "xterm-256color", "COLORTERM": "yes"}, "256", "ok"),
        ({"TERM": "xterm"}, "16", "note"),
        ({"TERM": "screen"}, "16", "note"),
        ({"TERM": "tmux-256color"}, "256", "ok"),
        ({}, "16", "note"),
        ({"TERM": "unknown"}, "not to be told", "note"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none", "ok"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "none", "ok"),  # as Textual takes it
    ],
)
def test_colours(machine, environment: dict[str, str], count: str, verdict: str):
    found = only("colours", machine(environment))
    assert found.what.split(":")[0].split(",")[0] == count
    assert found.verdict == verdict
    if count == "256":
        assert "SSH does not forward COLORTERM" in found.what
        assert "COLORTERM=truecolor" in found.mend


def test_colours_are_those_the_screen_has(machine, monkeypatch: pytest.MonkeyPatch):
    from textual.app import App

    counts = {"truecolor": 16_777_216, "256": 256, "standard": 16}
    for term in ("xterm", "xterm-256color", "xterm-16color", "xterm-kitty", "linux"):
        for colour_term in ("", "truecolor", "TrueColor", "1"):
            monkeypatch.setenv("TERM", term)
            monkeypatch.setenv("COLORTERM", colour_term)
            count = counts[App().console.color_system or ""]
            what = only("colours", machine(dict(os.environ))).what
            assert what.startswith("16 million:" if count > 256 else f"{count}:")


@pytest.mark.parametrize(
    ("environment", "start", "verdict"),
    [
        ({"LANG": "de_DE.UTF-8"}, "Unicode: LANG is de_DE.UTF-8", "ok"),
        ({}, "Unicode: no locale is set", "ok"),
        ({"LANG": "C"}, "ASCII: LANG is C", "note"),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "ASCII: LC_ALL is POSIX", "note"),
        ({"TENSORSTEP_ASCII": "1", "LANG": "C.UTF-8"}, "ASCII: TENSORSTEP_ASCII is 1", "ok"),
    ],
)
def test_characters(machine, environment: dict[str, str], start: str, verdict: str):
    found = only("characters", machine(environment))
    assert found.what.startswith(start)
    assert found.verdict == verdict
    assert bool(found.mend) == (verdict == "note")


@pytest.mark.parametrize(
    ("environment", "said", "verdict"),
    [
        ({"TERM": "xterm-256color"}, "OSC 52", "ok"),
        ({"TERM": "screen.xterm-256color", "STY": "7.pts-0"}, "GNU screen does not", "note"),
        ({"TERM": "tmux-256color"}, "tmux or screen is around", "note"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, "macOS Terminal", "note"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7006"}, "GNOME Terminal", "note"),
    ],
)
def test_copying(machine, environment: dict[str, str], said: str, verdict: str):
    found = only("copying", machine(environment))
    assert (said in found.what, found.verdict) == (True, verdict)


@pytest.mark.parametrize(
    ("setting", "verdict"), [("on", "ok"), ("external", "note"), ("off", "note"), ("", "note")]
)
def test_copying_in_tmux(machine, setting: str, verdict: str):
    told = {"tmux show -sv set-clipboard": setting}
    found = only("copying", machine({"TMUX": "/tmp/tmux-1/default,1,0"}, told))
    assert (found.verdict, "set -s set-clipboard on" in found.mend) == (verdict, verdict != "ok")


def test_tmux(machine):
    told = {
        "tmux -V": "tmux 3.3a",
        "tmux show -sv escape-time": "500",
        "tmux show -sv default-terminal": "screen",
        "tmux show -sv set-clipboard": "external",
        "tmux show -gv focus-events": "off",  # as in an older one: no option of the server
    }
    assert of("tmux", machine({}, told)) == []  # not in tmux
    all_told, escape, colours = of("tmux", machine({"TMUX": "/tmp/tmux-1/default,1,0"}, told))
    assert all_told.what == (
        "tmux 3.3a: escape-time 500, default-terminal screen, set-clipboard external,"
        " focus-events off"
    )
    assert (escape.verdict, "500 ms" in escape.what) == ("note", True)
    assert "set -sg escape-time 10" in escape.mend
    assert "default-terminal tmux-256color" in colours.mend


@pytest.mark.parametrize(("escape", "notes"), [("0", 0), ("50", 0), ("51", 1), ("x", 0)])
def test_the_escape_key_in_tmux(machine, escape: str, notes: int):
    told = {"tmux show -sv escape-time": escape}
    assert len(of("tmux", machine({"TMUX": "x"}, told))) == 1 + notes


def test_tmux_that_does_not_answer(machine):
    found = only("tmux", machine({"TMUX": "/tmp/gone,1,0"}))
    assert (found.verdict, "does not answer" in found.what) == ("note", True)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_real_tmux_takes_these_settings_and_tells_them(machine, tmp_path: Path):
    server = ("tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null")
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}

    def ask(*command: str) -> str:
        done = subprocess.run(
            [*server, *command], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def run(command: Sequence[str]) -> str | None:
        return ask(*command[1:]) if command[0] == "tmux" else None

    ask("new-session", "-d", "sleep 60")
    try:
        inside = machine({"TMUX": str(tmp_path)}, run=run)
        mends = [each.mend for each in (*of("tmux", inside), *of("copying", inside)) if each.mend]
        assert mends
        for mend in mends:
            ask(*mend.split("`")[1].split())
        assert "escape-time 10, " in of("tmux", inside)[0].what
        assert {each.verdict for each in of("tmux", inside) + of("copying", inside)} == {"ok"}
    finally:
        ask("kill-server")


# logging out


def test_a_system_that_kills_at_logout(machine):
    made = machine()
    assert only("detached", made).verdict == "ok"
    write(made.root / "etc/systemd/logind.conf", "[Login]\nKillUserProcesses=yes\n")
    found = only("detached", made)
    assert found.verdict == "note"
    assert "systemd kills processes of lily at logout, detached ones too" in found.what
    assert "KillUserProcesses=yes" in found.what
    assert found.mend == (
        "once `loginctl enable-linger lily`, then `systemd-run --user --scope tensorstep train ...`"
    )
    lingers = machine(told={"loginctl show-user lily -p Linger": "Linger=yes"})
    mend = only("detached", lingers).mend
    assert mend == "`systemd-run --user --scope tensorstep train ...`"


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({"etc/systemd/logind.conf": "[Login]\n; KillUserProcesses=yes\n"}, False),
        ({"etc/systemd/logind.conf": "KillUserProcesses=yes\n"}, False),  # of no section
        ({"etc/systemd/logind.conf": "[Other]\nKillUserProcesses=yes\n[Login]\n"}, False),
        ({"etc/systemd/logind.conf": "[Other]\nA=1\n\n[Login]\n KillUserProcesses = True"}, True),
        ({"usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=1"}, True),
        (
            {
                "etc/systemd/logind.conf": "[Login]\n",
                "usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=yes",  # not read then
            },
            False,
        ),
        (
            {
                "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no",
                "usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nKillUserProcesses=yes",
            },
            True,
        ),
        (
            {
                "etc/systemd/logind.conf.d/50-site.conf": "",  # hides the other of its name
                "usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nKillUserProcesses=yes",
            },
            False,
        ),
        (
            {
                "etc/systemd/logind.conf.d/10-a.conf": "[Login]\nKillUserProcesses=yes",
                "run/systemd/logind.conf.d/20-b.conf": "[Login]\nKillUserProcesses=off",
            },
            False,
        ),
        ({"etc/systemd/logind.conf.d/a.txt": "[Login]\nKillUserProcesses=yes"}, False),
    ],
)
def test_the_files_of_logind(tmp_path: Path, files: dict[str, str], kills: bool):
    for name, text in files.items():
        write(tmp_path / name, text)
    assert is_killed(settings_of(tmp_path), "lily") is kills


@pytest.mark.parametrize(
    ("lines", "killed"),
    [
        ("KillUserProcesses=yes", {"lily", "tom"}),
        ("KillUserProcesses=yes\nKillExcludeUsers=tom sue", {"lily", "root"}),
        ("KillUserProcesses=yes\nKillExcludeUsers=tom\nKillExcludeUsers=lily", {"root"}),
        ("KillUserProcesses=yes\nKillExcludeUsers=", {"lily", "tom", "root"}),
        ("KillUserProcesses=yes\nKillOnlyUsers=tom", {"tom"}),
        ("KillUserProcesses=no\nKillOnlyUsers=tom", {"tom"}),
        ("KillUserProcesses=yes\nKillOnlyUsers=tom\nKillOnlyUsers=", {"lily", "tom"}),
    ],
)
def test_whom_logind_kills(tmp_path: Path, lines: str, killed: set[str]):
    """As logind.conf(5) has it."""
    write(tmp_path / "etc/systemd/logind.conf", f"[Login]\n{lines}\n")
    settings = settings_of(tmp_path)
    assert {user for user in ("lily", "tom", "root") if is_killed(settings, user)} == killed


def test_what_logind_was_built_with(machine):
    """Where no file says it, logind itself is asked."""
    command = (
        "busctl get-property org.freedesktop.login1 /org/freedesktop/login1"
        " org.freedesktop.login1.Manager KillUserProcesses"
    )
    assert only("detached", machine(told={command: "b true"})).verdict == "note"
    assert only("detached", machine(told={command: "b false"})).verdict == "ok"


def test_a_shell_of_the_user_manager(machine):
    """As in tmux since 3.4, and in desktops' terminals."""
    cgroup = "0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope\n"
    write(machine().root / "proc/self/cgroup", cgroup)
    found = only("detached", machine())
    assert (found.verdict, found.mend) == ("note", "`loginctl enable-linger lily`")
    lingers = machine(told={"loginctl show-user lily -p Linger": "Linger=yes"})
    assert only("detached", lingers).verdict == "ok"


def test_other_systems(machine):
    assert "macOS" in only("detached", machine(system="Darwin")).what
    made = machine()
    shutil.rmtree(made.root / "run")
    assert "no systemd" in only("detached", made).what
    job, _ = of("detached", machine({"SLURM_JOB_ID": "4711"}))
    assert (job.verdict, job.what) == (
        "note",
        "SLURM job 4711: all its processes end when it ends",
    )


# where runs are kept


def test_the_run_folder(machine, tmp_path: Path):
    found = only("run folder", machine())
    free = os.statvfs(tmp_path)
    size = free.f_bavail * free.f_frsize / 1e9
    assert found.what.startswith(f"runs are kept in {tmp_path / 'state' / 'runs'}, ")
    told = float(found.what.split()[-4].replace(",", ""))
    assert told == pytest.approx(size, abs=1)
    assert not (tmp_path / "state").exists()  # it only looks


def test_a_run_folder_that_cannot_be_written(machine, tmp_path: Path):
    (tmp_path / "file").touch()
    found = only("run folder", machine(runs=tmp_path / "file" / "runs"))
    assert (found.verdict, "cannot be written" in found.what) == ("bad", True)
    assert "XDG_STATE_HOME" in found.mend


def test_a_full_disk(machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=5e7))
    found = only("run folder", machine())
    assert (found.verdict, "0.1 GB are free" in found.what) == ("note", True)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs"])
def test_a_network_file_system(machine, tmp_path: Path, kind: str):
    made = machine()
    write(made.root / "proc/mounts", f"{MOUNTS}server:/home {tmp_path} {kind} rw 0 0\n")
    _, found = of("run folder", made)
    assert (found.verdict, f"({kind})" in found.what) == ("note", True)


def test_which_file_system():
    mounts = (
        f"{MOUNTS}server:/home /home nfs4 rw 0 0\n/dev/sdb /home/lily/local xfs rw 0 0\n"
        "auto /mnt autofs rw 0 0\ntop:/ /mnt nfs rw 0 0\nshare /media/my\\040files cifs rw 0 0\n"
    )
    expected = {
        "/var/x": "ext4",
        "/home/lily/runs": "nfs4",
        "/homework": "ext4",  # another name that begins so
        "/home/lily/local/runs": "xfs",
        "/mnt/a": "nfs",  # the later one lies above
        "/media/my files/a": "cifs",
    }
    assert {folder: file_system(mounts, Path(folder)) for folder in expected} == expected
    assert file_system("", Path("/home")) == ""


# where runs listen


def test_the_folder_of_sockets(machine):
    """It is told, with which runs can be attached to; it is not made."""
    made = machine()
    folder = made.root / "tmp" / f"tensorstep-{os.getuid()}"
    for mode in (None, 0o700):
        if mode is not None:
            folder.mkdir(mode)
        found = only("attaching", made)
        assert found.verdict == "ok"
        assert "`tensorstep train` or `engine.watch` started it" in found.what
        assert f"its socket is in {folder}, which only you can enter" in found.what
        assert folder.exists() == (mode is not None)


@pytest.mark.parametrize("trouble", ["mode", "file", "link", "missing"])
def test_a_folder_of_sockets_that_is_not_private(machine, trouble: str):
    made = machine()
    where = made.root / "tmp"
    folder = where / f"tensorstep-{os.getuid()}"
    if trouble == "mode":
        folder.mkdir()
        folder.chmod(0o750)
    elif trouble == "file":
        folder.touch(0o600)
    elif trouble == "link":
        folder.symlink_to(made.root)
    else:
        where.rmdir()
    found = only("attaching", made)
    told, mend = {
        "mode": ("others could enter it", f"`chmod 700 {folder}`"),
        "file": ("that is no folder", f"`rm {folder}`"),
        "link": ("that is no folder", f"`rm {folder}`"),
        "missing": (f"{where} cannot be written", f"let yourself write in {where}"),
    }[trouble]
    assert found.verdict == "bad"
    assert f"its socket is to be in {folder}, and {told}" in found.what
    assert found.mend == mend


# after a crash


def test_the_sequence_that_resets_a_terminal():
    terminal = pyte.Screen(80, 24)
    before = set(terminal.mode)
    stream = pyte.Stream(terminal)
    stream.feed("\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?2004h")
    assert terminal.mode != before
    printed = subprocess.run(["printf", RESET], capture_output=True, text=True, check=True)
    stream.feed(printed.stdout.replace("\x1b[<u", ""))  # kitty's keys, of which pyte knows nothing
    assert printed.stdout.startswith("\x1b[<u")
    assert terminal.mode == before
    assert not terminal.cursor.hidden
