"""A terminal's ticket: whether this terminal can keep a key unlocked, and asking the one that does for a signature.

On the standard library alone, since it is what a decision waits for. The other end is `intercom.cli.key_holder`. On
Linux only: elsewhere the system does not tell a socket's peer well enough, and the PIN is asked for each time.
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

#: Seconds that the holder is waited for; then the PIN is asked for.
PATIENCE = 2.0

#: Programs that type into terminals for others: where one is above the session's leader, no ticket is kept.
_TYPISTS = frozenset({"tmux", "screen", "zellij", "dtach", "abduco", "expect", "script", "emacs", "nvim", "vim"})
#: Variables by which a terminal says that other programs can type there. Those of the leader count, which are set when
#: it starts; another process can add to its own, never take from those.
_TYPED_INTO = (
    *("TMUX", "STY", "ZELLIJ", "NVIM", "VIM_TERMINAL", "INSIDE_EMACS", "VSCODE_INJECTION", "VSCODE_IPC_HOOK_CLI"),
    *("KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "KONSOLE_DBUS_SERVICE"),
)
_TYPED_INTO_BY = {"TERM_PROGRAM": ("vscode", "tmux"), "TERMINAL_EMULATOR": ("JetBrains-JediTerm",)}
_LONGEST_LINE = 64


class Terminal(NamedTuple):
    """The POSIX session of a terminal: its leader, when that started (ticks since boot) and what file it runs (device,
    inode), and the device number of the terminal."""

    leader: int
    started: int
    program: tuple[int, int]
    device: int

    def socket(self, runtime_dir: str) -> str:
        """Where the holder of this terminal's key listens."""
        return os.path.join(runtime_dir, f"key-{self.leader}-{self.started}.sock")


class Stat(NamedTuple):
    """What a process's `stat` says of it."""

    name: str
    parent: int
    session: int
    device: int
    started: int


def stat_of(pid: int) -> Stat | None:
    """None for a process that is gone or hidden."""
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
    """The terminal of a process whose parent leads the session there; None for any other process.

    The leader is the shell at which a person types, and what it starts itself is what they typed. What an agent in the
    same terminal starts has the agent between it and the shell, whatever that is called.
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
    """The terminal of this process, where it can have a ticket at all."""
    return terminal_of(os.getpid()) if sys.platform.startswith("linux") else None


def why_none(terminal: Terminal | None) -> str:
    """Why a terminal keeps no ticket, half a sentence; empty where it may."""
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
    """The signature of a statement by the key that this terminal keeps unlocked; None where it keeps none, or the one
    that does will not sign this."""
    terminal = own_terminal()
    answer = None if terminal is None else _ask(terminal.socket(where.runtime_dir), {"sign": dict(stated)})
    value = None if answer is None else answer.get("value")
    return value if isinstance(value, str) else None


def key_of(where: Places) -> str | None:
    """The id of the key that this terminal keeps unlocked; None where it keeps none."""
    terminal = own_terminal()
    answer = None if terminal is None else _ask(terminal.socket(where.runtime_dir), {"key": True})
    found = None if answer is None else answer.get("key_id")
    return found if isinstance(found, str) else None


def note_shown(where: Places, subjects: list[str]) -> None:
    """Tell the key that this terminal keeps unlocked, if it does, which cards were shown here, each by its subject."""
    terminal = own_terminal() if subjects else None
    if terminal is not None:
        _ask(terminal.socket(where.runtime_dir), {"shown": subjects})


def lock(where: Places) -> int:
    """Let every terminal of this user forget its key; how many did."""
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
