"""The holder of an unlocked key: a small process that signs for one terminal, as ssh-agent does for one user.

It is forked from the ctl process in which the PIN was typed, so the private key never passes through a file, an
argument or a pipe. It signs only for processes that the terminal's shell has just started itself. It signs no critical
decision: that needs the PIN. It signs an approval only if its card was shown in this terminal: between a look and a
decision, the database or a false server can put another card under the same id.

It ends with the shell, after a while without use, on `key lock`, and if the shell becomes another program. No other
process of the user can read its memory, as far as the system prevents that.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from intercom.cli import ticket
from intercom.cli.ticket import Terminal
from intercom.local.memory import keep_private
from intercom.local.places import Places, private_directory
from intercom.model import signing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: Seconds after its start within which a process must ask for the first time.
YOUNG = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")

#: Seconds that one peer has to ask.
_PATIENCE = 2.0
_MAX_REQUEST = 1024 * 1024
_CRITICAL = "critical"
#: The most shown cards that are remembered.
_MOST_SHOWN = 10_000


def start(where: Places, terminal: Terminal, key_id: str, private: Ed25519PrivateKey, idle_seconds: float) -> None:
    """Keep the key unlocked for this terminal, in place of any key before it. Raises OSError if that fails."""
    private_directory(where.runtime_dir)
    path = terminal.socket(where.runtime_dir)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    leader = os.pidfd_open(terminal.leader)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        before = os.umask(0o077)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(8)
        mine = os.stat(path).st_ino
        holder = Holder(terminal, key_id, private, idle_seconds, os.getpid())
        child = os.fork()
        if child == 0:
            _become(listener, leader, (path, mine), holder)
        os.waitpid(child, 0)
    finally:
        listener.close()
        os.close(leader)


def _become(
    listener: socket.socket,
    leader: int,
    bound: tuple[str, int],
    holder: Holder,
) -> NoReturn:
    """In the forked process: fork again, so that no parent waits for the holder, and serve. Never returns."""
    try:
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        os.chdir("/")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        kept = sorted({listener.fileno(), leader})
        for low, high in zip([2, *kept], [*kept, 4096], strict=True):
            os.closerange(low + 1, high)
        keep_private(lock=True)
        holder.serve(listener, leader)
        with contextlib.suppress(OSError):
            # Another holder may have replaced this socket: leave that one.
            if os.stat(bound[0]).st_ino == bound[1]:
                os.unlink(bound[0])
    finally:
        os._exit(0)


class Holder:
    """An unlocked key, its terminal, and when it expires. `clock` counts seconds, also while the machine sleeps."""

    def __init__(
        self,
        terminal: Terminal,
        key_id: str,
        private: Ed25519PrivateKey,
        idle_seconds: float,
        creator: int = 0,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._terminal = terminal
        self._key_id = key_id
        self._private = private
        self._idle = idle_seconds
        self._clock = clock
        self._until = clock() + idle_seconds
        # The process in which the PIN was typed may ask for longer: a `watch` goes on.
        self._known = {_name(creator)} if creator else set()
        self._shown: dict[str, None] = {}

    def serve(self, listener: socket.socket, leader: int) -> None:
        """Answer requests until the holder ends. `leader` becomes readable when the leader process ends."""
        watched: list[Any] = [listener, leader]
        while True:
            left = self._until - self._clock()
            if left <= 0:
                return
            ready, _, _ = select.select(watched, [], [], min(left, 30.0))
            if leader in ready or not self._is_same_leader():
                return
            if listener in ready:
                with contextlib.suppress(OSError, ValueError):
                    peer, _ = listener.accept()
                    with peer:
                        if not self.answer(peer):
                            return

    def answer(self, peer: socket.socket) -> bool:
        """Answer one peer. Returns False if the holder must end."""
        peer.settimeout(_PATIENCE)
        pid, uid = _peer(peer)
        if uid != os.geteuid():
            return True
        asked = _read(peer)
        if asked.get("lock") is True:
            _tell(peer, {"locked": True})
            return False
        if self._clock() >= self._until:
            # The time limit passed while the machine slept.
            return False
        if not self._is_of_here(pid):
            _tell(peer, {"refused": "this terminal's key signs for what its own shell has started"})
            return True
        if asked.get("key") is True:
            _tell(peer, {"key_id": self._key_id})
            return True
        shown = asked.get("shown")
        if isinstance(shown, list):
            self._note_shown(shown)
            _tell(peer, {"noted": True})
            return True
        stated: Any = asked.get("sign")
        if not self._may_sign(stated):
            _tell(peer, {"refused": "this needs the PIN"})
            return True
        value = self._private.sign(signing.statement(stated)).hex()
        # Check again: another process may have got this pid meanwhile.
        if not self._is_of_here(pid):
            return True
        self._until = self._clock() + self._idle
        _tell(peer, {"value": value})
        return True

    def _may_sign(self, stated: Any) -> bool:
        """Tell whether this is a statement for this key, and needs no PIN."""
        return (
            isinstance(stated, dict)
            and set(stated) == set(signing.STATED)
            and all(part is None or isinstance(part, str) for part in stated.values())
            and stated["method"] == signing.TICKET
            and stated["key_id"] == self._key_id
            and stated["risk"] != _CRITICAL
            and stated["decision"] not in signing.WITH_PIN
            and (stated["decision"] not in signing.LETS_PASS or stated["subject"] in self._shown)
        )

    def _note_shown(self, subjects: list[Any]) -> None:
        self._shown |= dict.fromkeys(each for each in subjects if isinstance(each, str))
        for oldest in list(self._shown)[:-_MOST_SHOWN]:
            del self._shown[oldest]

    def _is_of_here(self, pid: int) -> bool:
        return (
            self._is_same_leader()
            and ticket.terminal_of(pid) == self._terminal
            and not _is_traced(pid)
            and self._is_young(pid)
        )

    def _is_young(self, pid: int) -> bool:
        """Tell whether this process has just started, or first asked when it had. A ctl asks at once; an agent that the
        shell started has usually run for a while before it asks."""
        name = _name(pid)
        if name not in self._known and self._clock() - name[1] / _TICKS > YOUNG:
            return False
        self._known.add(name)
        return True

    def _is_same_leader(self) -> bool:
        found = ticket.stat_of(self._terminal.leader)
        if found is None or found.started != self._terminal.started:
            return False
        try:
            program = os.stat(f"/proc/{self._terminal.leader}/exe")
        except OSError:
            return False
        # A shell that replaces itself with another program (exec) is no longer the person's shell.
        return (program.st_dev, program.st_ino) == self._terminal.program and not _is_traced(self._terminal.leader)


def _name(pid: int) -> tuple[int, int]:
    """Return a process's pid and its start time, in ticks."""
    found = ticket.stat_of(pid)
    return (pid, 0 if found is None else found.started)


def _is_traced(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"TracerPid:"):
                    return int(line.split()[1]) != 0
    except OSError:
        return True
    return False


def _peer(peer: socket.socket) -> tuple[int, int]:
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def _read(peer: socket.socket) -> dict[str, Any]:
    read = b""
    while not read.endswith(b"\n"):
        some = peer.recv(65536)
        if not some or len(read) > _MAX_REQUEST:
            return {}
        read += some
    found = json.loads(read)
    return found if isinstance(found, dict) else {}


def _tell(peer: socket.socket, answer: dict[str, Any]) -> None:
    peer.sendall(json.dumps(answer).encode("ascii") + b"\n")


def can_hold() -> bool:
    """Tell whether this system supports a holder."""
    return sys.platform.startswith("linux") and hasattr(os, "pidfd_open")
