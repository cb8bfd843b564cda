"""A terminal's ticket: whether this terminal can keep a key unlocked, and requests for signatures to its holder.

It uses the standard library alone, because every decision waits for it. The other end is `intercom.cli.key_holder`.
Tickets exist on Linux only: elsewhere the system does not identify a socket's peer well enough, and the PIN is asked
for each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from intercom.local.places import Places

#: Seconds to wait for the holder; after that, the PIN is asked for.
PATIENCE = 2.0

#: Programs that type into terminals for others: if one is above the session's leader, no ticket is kept.
_TYPISTS = frozenset({"tmux", "screen", "zellij", "dtach", "abduco", "expect", "script", "emacs", "nvim", "vim"})
#: Variables that say that other programs can type into the terminal. Only the leader's count, which are set at its
#: start: another process cannot remove them.
_TYPED_INTO = (
    *("TMUX", "STY", "ZELLIJ", "NVIM", "VIM_TERMINAL", "INSIDE_EMACS", "VSCODE_INJECTION", "VSCODE_IPC_HOOK_CLI"),
    *("KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "KONSOLE_DBUS_SERVICE"),
)
_TYPED_INTO_BY = {"TERM_PROGRAM": ("vscode", "tmux"), "TERMINAL_EMULATOR": ("JetBrains-JediTerm",)}
_LONGEST_LINE = 64


class Terminal(NamedTuple):
    """The POSIX session of a terminal: its leader, the leader's start (ticks since boot), the file that the leader runs
    (device, inode), and the terminal's device number."""

    leader: int
    started: int
    program: tuple[int, int]
    device: int

    def socket(self, runtime_dir: str) -> str:
        """Return the socket path of the holder of this terminal's key."""
        return os.path.join(runtime_dir, f"key-{self.leader}-{self.started}.sock")


class Stat(NamedTuple):
    """The fields that we use of a process's `stat`."""

    name: str
    parent: int
    session: int
    device: int
    started: int


def stat_of(pid: int) -> Stat | None:
    """Read a process's `stat`. Returns None if the process is gone or hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return None
    fields = after.split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    name = before.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(name, int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19]))


def terminal_of(pid: int) -> Terminal | None:
    """Return the terminal of a process whose parent leads the session there; None for any other process.

    The leader is the shell at which a person types, and what it starts itself is what they typed. A process that an
    agent starts in the same terminal has the agent between it and the shell.
    """
    own = stat_of(pid)
    if own is None or own.device == 0 or own.session != own.parent:
        return None
    leader = stat_of(own.session)
    if leader is None or leader.session != own.session or leader.device != own.device:
        return None
    try:
        program = os.stat(f"/proc/{own.session}/exe")
    except OSError:
        return None
    return Terminal(own.session, leader.started, (program.st_dev, program.st_ino), own.device)


def own_terminal() -> Terminal | None:
    """Return this process's terminal, or None if it cannot have a ticket."""
    return terminal_of(os.getpid()) if sys.platform.startswith("linux") else None


def why_none(terminal: Terminal | None) -> str:
    """Say why a terminal keeps no ticket, in half a sentence; empty if it may."""
    if not sys.platform.startswith("linux"):
        return "this system does not tell well enough who asks for a signature"
    if terminal is None:
        return "this command was not started by the shell of a terminal itself"
    environ = _environ(terminal.leader)
    if environ is None:
        return "the shell of this terminal can not be looked at"
    for name in _TYPED_INTO:
        if name in environ:
            return f"other programs can type into this terminal ({name} is set)"
    for name, values in _TYPED_INTO_BY.items():
        if environ.get(name) in values:
            return f"other programs can type into this terminal ({name} is {environ[name]})"
    pid = terminal.leader
    for _ in range(_LONGEST_LINE):
        found = stat_of(pid)
        if found is None:
            break
        if (typist := found.name.split(":")[0].strip().lower()) in _TYPISTS:
            return f"other programs can type into this terminal (it is one of {typist})"
        pid = found.parent
    return ""


def sign(where: Places, stated: Mapping[str, Any]) -> str | None:
    """Return the statement's signature by this terminal's unlocked key; None if it keeps none, or its holder
    refuses."""
    terminal = own_terminal()
    answer = None if terminal is None else _ask(terminal.socket(where.runtime_dir), {"sign": dict(stated)})
    value = None if answer is None else answer.get("value")
    return value if isinstance(value, str) else None


def key_of(where: Places) -> str | None:
    """Return the id of the key that this terminal keeps unlocked; None if it keeps none."""
    terminal = own_terminal()
    answer = None if terminal is None else _ask(terminal.socket(where.runtime_dir), {"key": True})
    found = None if answer is None else answer.get("key_id")
    return found if isinstance(found, str) else None


def note_shown(where: Places, subjects: list[str]) -> None:
    """Tell the holder of this terminal's key, if there is one, which cards were shown here, each by its subject."""
    terminal = own_terminal() if subjects else None
    if terminal is not None:
        _ask(terminal.socket(where.runtime_dir), {"shown": subjects})


def lock(where: Places) -> int:
    """Lock the key of every terminal of this user. Returns how many there were."""
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(where.runtime_dir) if name.startswith("key-") and name.endswith(".sock")]
        return sum(_ask(os.path.join(where.runtime_dir, name), {"lock": True}) is not None for name in names)
    return 0


def _ask(path: str, question: Mapping[str, Any]) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(PATIENCE)
        try:
            asked.connect(path)
            asked.sendall(json.dumps(question).encode("ascii") + b"\n")
            read = b""
            while not read.endswith(b"\n"):
                some = asked.recv(65536)
                if not some:
                    return None
                read += some
            answer = json.loads(read)
        except (OSError, ValueError):
            return None
    return answer if isinstance(answer, dict) else None


def _environ(pid: int) -> dict[str, str] | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            parts = file.read().split(b"\0")
    except OSError:
        return None
    pairs = (part.partition(b"=") for part in parts if b"=" in part)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
