"""Whether a training outlives its terminal: what ends processes at logout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tui.doctor.machine import NOTE, Finding, Machine, read

FOLDERS = ("etc", "run", "usr/local/lib", "usr/lib")  # of systemd's settings, the first one wins
BUS = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
YES = ("1", "yes", "y", "true", "t", "on")
JOBS = {"SLURM_JOB_ID": "SLURM", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}


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
