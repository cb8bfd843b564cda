"""Detects whether a server started here would end with its agent: a sandbox ends all processes in it."""

from __future__ import annotations

import os
from typing import NamedTuple

from intercom.local.launchers import is_launcher

#: The number of the machine's own PID namespace, which the kernel reserves for it.
_FIRST_NAMESPACE = "pid:[4026531836]"
#: Sandbox programs, by the names that the kernel keeps: 15 characters at most.
SANDBOXES = frozenset(
    name[:15] for name in ("bwrap", "codex-linux-sandbox", "firejail", "flatpak-bwrap", "minijail0", "nsjail")
)
#: First processes of a container that only wait for the process they start.
_INITS = frozenset({"catatonit", "docker-init", "dumb-init", "podman-init", "tini", "tini-static"})
#: The most ancestors to look at; real processes have fewer.
_LONGEST_LINE = 64

Command = tuple[str, ...]


class Surroundings(NamedTuple):
    """What a process can see of its PID namespace.

    `nested` says that it is not the machine's own. `image` says that the root directory is a container's, with its own
    files. `first` is the name of process 1. `line` holds the command lines of the ancestors, the nearest first; it is
    empty unless it ends with process 1. `is_first` says that this process is process 1.
    """

    nested: bool
    image: bool = False
    first: str = ""
    line: tuple[Command, ...] = ()
    is_first: bool = False


def doom(at: Surroundings) -> str | None:
    """Return why all processes started here end with the agent, as half a sentence; None if they do not.

    That is so if process 1 is a sandbox, the client, or a launcher of the client: the kernel ends all others with it. A
    container that exists for its client is excepted. Its files end or stay with it, so it gets its own server, which
    the next start finds again.
    """
    if not at.nested:
        return None
    if at.first in SANDBOXES:
        return f"this is a sandbox ({at.first}), which ends all that was started in it"
    if at.image:
        return None
    own = [command for command in at.line if not _only_starts(command)]
    if at.is_first or (at.line and len(own) <= 1):
        return "the agent's client is the first process of its PID namespace, and all others end with it"
    return None


def look(proc: str = "/proc", root: str = "/", pid: int | None = None) -> Surroundings:
    """Inspect the namespace of process `pid` (default: this process). Without /proc, nothing is nested."""
    own = os.getpid() if pid is None else pid
    try:
        nested = os.readlink(f"{proc}/{own}/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return Surroundings(nested=False)
    if not nested:
        return Surroundings(nested=False)
    return Surroundings(True, _is_image(proc, root, own), _read(f"{proc}/1/comm").strip(), _line(proc, own), own == 1)


def _only_starts(command: Command) -> bool:
    return is_launcher(command) or (bool(command) and os.path.basename(command[0]) in _INITS)


def _line(proc: str, pid: int) -> tuple[Command, ...]:
    line: list[Command] = []
    while pid != 1 and len(line) < _LONGEST_LINE:
        pid = _parent(proc, pid)
        if pid <= 0:
            # Started from outside the namespace, and not by its first process.
            return ()
        line.append(tuple(_read(f"{proc}/{pid}/cmdline").rstrip("\0").split("\0")))
    return tuple(line)


def _parent(proc: str, pid: int) -> int:
    for text in _read(f"{proc}/{pid}/status").splitlines():
        name, _, value = text.partition(":")
        if name == "PPid":
            return int(value)
    return 0


def _is_image(proc: str, root: str, pid: int) -> bool:
    if any(os.path.exists(os.path.join(root, mark)) for mark in (".dockerenv", "run/.containerenv")):
        return True
    for text in _read(f"{proc}/{pid}/mountinfo").splitlines():
        # "... root mount-point options [optional fields] - type source options"
        words = text.split(" ")
        if len(words) > 4 and words[4] == "/" and "-" in words:
            return words[words.index("-") + 1] in ("overlay", "fuse.fuse-overlayfs")
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
