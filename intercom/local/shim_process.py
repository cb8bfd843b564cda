"""The shim's process: its id, standard output and signals, and the launchers between it and its client.

A permission hook uses its standard output and signals in the same way. Standard library only, because the client waits
for the start. The id is random, and bound to the process, so that a server can tell that the shim is dead.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence

_CHANCE = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(r"[0-9a-f]{32}-(?P<namespace>[0-9]+)-(?P<pid>[0-9]+)-(?P<ticks>[0-9]+)")


def make_id() -> str:
    """Return an id for this process. Without `/proc` it consists of the random part only."""
    chance = os.urandom(16).hex()
    try:
        namespace, (_, ticks) = _namespace(), _stat(os.getpid())
        return f"{chance}-{namespace}-{os.getpid()}-{ticks}"
    except OSError:
        return chance


def is_id(text: str | None) -> bool:
    """Whether this is an id that `make_id` made, with or without a process in it."""
    return text is not None and (_ID.fullmatch(text) or _CHANCE.fullmatch(text)) is not None


def is_dead(id: str | None) -> bool:
    """Whether the process of this id has ended. False if that is unknown: for other texts, for ids without a process,
    and for processes of another PID namespace (a container)."""
    return _runs(id) is False


def is_alive(id: str | None) -> bool:
    """Whether the process of this id runs, stopped or not. False if that is unknown, as for `is_dead`."""
    return _runs(id) is True


def _runs(id: str | None) -> bool | None:
    """Whether the process of this id runs; None if that is unknown."""
    read = _ID.fullmatch(id or "")
    if read is None:
        return None
    try:
        if _namespace() != read["namespace"]:
            return None
    except OSError:
        # Without our own `/proc`, a missing entry proves nothing.
        return None
    try:
        state, ticks = _stat(int(read["pid"]))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return None
    # Another process may have this pid now. Ticks since boot are compared, because the wall clock can be set.
    return state not in "ZX" and ticks == read["ticks"]


def _namespace() -> str:
    """Return this process's PID namespace. Raises OSError also if `/proc` belongs to another namespace, as it may in a
    sandbox."""
    if os.readlink("/proc/self") != str(os.getpid()):
        raise OSError("/proc is of another PID namespace")
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _stat(pid: int) -> tuple[str, str]:
    """Return a process's state and its start time in clock ticks."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name in parentheses may contain any character.
        told = file.read().rpartition(b")")[2].split()
    return told[0].decode(), told[19].decode()


#: The parent of a program started through one is the launcher, not the process that wanted it.
LAUNCHERS = frozenset(
    {"bunx", "direnv", "env", "hatch", "mise", "nix", "npm", "npx", "pipx", "pnpm", "poetry", "uv", "uvx"}
)
_SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a command line starts another program and waits for it: `uvx tool`, `sh -c tool`."""
    # Some programs put their whole command line into the first argument.
    words = command[0].split() + list(command[1:]) if command else []
    names = [os.path.basename(word).removesuffix(".js").removesuffix("-cli") for word in words[:2]]
    if LAUNCHERS.intersection(names):
        return True
    return len(words) > 1 and names[0] in _SHELLS and words[1][:1] == "-" and words[1].endswith("c")


def claim_standard_output() -> int:
    """Reserve standard output for what the client reads, and return a descriptor of it. All other output goes to
    standard error."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def listen_for_signals(*numbers: signal.Signals) -> tuple[list[int], int]:
    """Note these signals, instead of ending the process. Returns the list that received signals are added to, and a
    descriptor that polls readable when one has arrived. Must run in the main thread."""
    received: list[int] = []
    wake, tell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda signum, _frame: received.append(signum))
    return received, wake
