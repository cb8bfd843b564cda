"""The key agent: a small process that signs for one terminal, as ssh-agent does for one user; and asking for a PIN.

It is forked from the ctl process in which the PIN was typed, so the private key never passes through a file, an
argument or a pipe. It signs only for processes that the terminal's shell has just started itself. It signs no critical
decision: that needs the PIN. It signs an approval only if its card was shown in this terminal: between a look and a
decision, the database or a false server can put another card under the same id.

It ends with the shell, after a while without use, on `key lock`, and if the shell becomes another program. No other
process of the user can read its memory, as far as the system prevents that.

It uses the standard library alone, because every decision waits for it.
Tickets exist on Linux only: elsewhere the system does not identify a socket's peer well enough, and the PIN is asked
for each time.

The PIN never comes from an argument, the environment or a pipe. Other processes of this user can read the first two,
and write to the third.
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
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeGuard

from intercom.local.daemon import keep_private
from intercom.local.places import Places, private_directory
from intercom.model import signing
from intercom.model.errors import Unauthorized
from intercom.model.json_types import Json, JsonObject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
        return "the shell of this terminal cannot be looked at"
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


def sign(where: Places, stated: Mapping[str, Json]) -> str | None:
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


def _ask(path: str, question: Mapping[str, object]) -> JsonObject | None:
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
        watched: list[socket.socket | int] = [listener, leader]
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
        stated = asked.get("sign")
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

    def _may_sign(self, stated: Json) -> TypeGuard[JsonObject]:
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

    def _note_shown(self, subjects: Sequence[Json]) -> None:
        self._shown |= dict.fromkeys(each for each in subjects if isinstance(each, str))
        for oldest in list(self._shown)[:-_MOST_SHOWN]:
            del self._shown[oldest]

    def _is_of_here(self, pid: int) -> bool:
        return (
            self._is_same_leader()
            and terminal_of(pid) == self._terminal
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
        found = stat_of(self._terminal.leader)
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
    found = stat_of(pid)
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


def _read(peer: socket.socket) -> JsonObject:
    read = b""
    while not read.endswith(b"\n"):
        some = peer.recv(65536)
        if not some or len(read) > _MAX_REQUEST:
            return {}
        read += some
    found = json.loads(read)
    return found if isinstance(found, dict) else {}


def _tell(peer: socket.socket, answer: JsonObject) -> None:
    peer.sendall(json.dumps(answer).encode("ascii") + b"\n")


TERMINAL = "/dev/tty"
_LONGEST = 4096
ESC = b"\x1b"


class NoTerminal(Unauthorized):
    """Raised if this process has no controlling terminal."""


def ask_pin(prompt: str) -> str:
    """Read one line from the terminal without echo. Raises NoTerminal, and KeyboardInterrupt on Esc, or if the input
    ends."""
    with _terminal() as descriptor:
        before = termios.tcgetattr(descriptor)
        quiet = termios.tcgetattr(descriptor)
        quiet[3] = (quiet[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
        # Esc ends the line, too: without that it would be a character of the PIN that nobody sees.
        quiet[6][termios.VEOL] = ESC
        # Flush: input from before the question does not answer it.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, quiet)
        try:
            _write(descriptor, prompt)
            typed = read_line(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
            _write(descriptor, "\n")
    return typed.decode("utf-8", "surrogateescape")


def say(text: str) -> None:
    """Write lines to the terminal where the PIN is asked for. Raises NoTerminal."""
    with _terminal() as descriptor:
        _write(descriptor, text + "\n")


def has_terminal() -> bool:
    """Tell whether a PIN can be asked for."""
    try:
        with _terminal():
            return True
    except NoTerminal:
        return False


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise NoTerminal(
            "the PIN is read from a terminal, and there is none here: run this in a terminal of your own"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_line(descriptor: int) -> bytes:
    """Read one line from a terminal on which ESC ends the line too. Raises KeyboardInterrupt on Esc, or if the input
    ends."""
    read = bytearray()
    while not read.endswith(b"\n"):
        some = os.read(descriptor, _LONGEST)
        if not some or ESC in some:
            # The input ended before a whole line, or the person wants to leave.
            raise KeyboardInterrupt
        read += some
    return bytes(read[:-1])


def _write(descriptor: int, text: str) -> None:
    left = text.encode("utf-8", "backslashreplace")
    while left:
        left = left[os.write(descriptor, left) :]
