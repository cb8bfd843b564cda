"""Starts a server in the background, once per machine, unless a sandbox would kill it with its agent."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from intercom.agents.shim.relay import Failure
from intercom.local import daemon
from intercom.local.places import Places, private_directory
from intercom.local.shim_process import is_launcher
from intercom.local.wire import decode
from intercom.model.json_types import JsonObject

if TYPE_CHECKING:
    import subprocess


def isolation(executable: str, package: str) -> tuple[str, ...]:
    """Return the interpreter's options for a server that a client's relay starts.

    The server takes nothing from the client's directory. From the environment it takes only what
    `intercom.local.daemon` passes: no PYTHON* variable, and no directory in one. It also ignores the user's site
    directory, unless Intercom is installed there and could not be imported otherwise.
    """
    import site

    try:
        own = site.getusersitepackages()
    except (OSError, KeyError):
        own = ""
    return ("-E", "-P") if own and package.startswith(own + "/") else ("-I",)


ISOLATED = isolation(sys.executable, __file__)
#: The default server command.
SERVER: tuple[str, ...] = (sys.executable, *ISOLATED, "-m", "intercom.cli.main", "serve")


class Options(NamedTuple):
    """The command line of a shim.

    `config` and `workspace` are paths as given, or None; `ipc_name` overrides the configuration's. `channel` is the id
    of the chat channel of the agent, `session_id` the session it was started for, `agent` its permanent name. `role` is
    "hook" for a client's permission hook. For tests, `server` replaces SERVER, to which `serve_command` adds, and
    `shipped` the package's file of shipped answers.
    """

    config: str | None = None
    workspace: str | None = None
    ipc_name: str | None = None
    server: Sequence[str] = ()
    shipped: str | None = None
    channel: str | None = None
    session_id: str | None = None
    role: str = "shim"
    agent: str | None = None


def serve_command(options: Options, *how: str) -> list[str]:
    """Return the command that starts a server for this shim; `how` holds additional options."""
    command = [*(options.server or SERVER), *how]
    if options.config is not None:
        import os

        command += ["--config", os.path.abspath(options.config)]
    if options.ipc_name is not None:
        command += ["--ipc-name", options.ipc_name]
    return command


_READ_ONLY = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


class NotReady(Exception):
    """The server reported why it did not start. `again` is set if another one may run by now, `sandboxed` if it could
    not write."""

    def __init__(self, failure: Failure, *, again: bool = False, sandboxed: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.again = again
        self.sandboxed = sandboxed


class Start:
    """A starting server; `descriptor` polls readable if there is news. Made with `start`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._said = b""

    def ready(self) -> bool:
        """Read the news. Returns True if the server is ready, False if there is more to come. Raises NotReady if the
        server reported why it is not, and EOFError if it ended without a report."""
        data = os.read(self.descriptor, 65536)
        self._said += data
        if b"\n" not in self._said:
            if not data:
                raise EOFError
            return False
        said = _said(self._said.partition(b"\n")[0])
        if said.get("ready") is True:
            return True
        error = said.get("error")
        if not isinstance(error, dict):
            raise EOFError
        failure = Failure(str(error.get("code", "unavailable")), str(error.get("message", "the server did not start")))
        raise NotReady(failure, again=bool(error.get("retry")), sandboxed=bool(error.get("sandboxed")))

    def close(self) -> None:
        """Stop listening to it."""
        os.close(self.descriptor)


def claim(places: Places) -> int | None:
    """Take the right to start a server, as a descriptor for `start` or to close; None while another process has it.
    Raises IpcError if the runtime directory is not trustworthy, and OSError if it is not writable."""
    private_directory(places.runtime_dir)
    lock = os.open(places.start_lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return lock


def is_claimed(places: Places) -> bool:
    """Whether a process has the right to start a server, and so one comes soon. What is no file of this user's does not
    count: where the runtime directory is in `/tmp`, another user may have put a pipe there."""
    try:
        lock = os.open(places.start_lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        found = os.fstat(lock)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def wait_until_started(places: Places, seconds: float) -> bool:
    """Wait until no server is being started here any more, at most so many seconds. Returns whether none is."""
    deadline = time.monotonic() + seconds
    while (claimed := is_claimed(places)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not claimed


def start(options: Options, claim: int | None) -> Start:
    """Start a server in the background. Raises OSError if the system lacks resources.

    The right from `claim`, if there is one, passes to the server, which has it until it is ready or has ended. So no
    other relay starts one before that, even if this process ends at once: a client may start a relay only to ask which
    protocol it speaks. The descriptor is closed here in any case.
    """
    inherited = [] if claim is None else [claim]
    try:
        hear, tell = os.pipe()
        inherited.append(tell)
        try:
            how = ["--background", "--ready-fd", str(tell), "--started-by", str(os.getpid())]
            how += [] if claim is None else ["--claim-fd", str(claim)]
            daemon.spawn(serve_command(options, *how), environ=os.environ, keep=inherited)
        except BaseException:
            os.close(hear)
            raise
        return Start(hear)
    finally:
        for descriptor in inherited:
            os.close(descriptor)


def sandboxed(places: Places) -> str | None:
    """Return the directory that a server of this user could not write to, by trying; None if there is none. The program
    that started the shim may deny it, and what it starts, the user's directories. Raises IpcError if a directory is not
    trustworthy."""
    for directory in (places.runtime_dir, places.state_dir):
        try:
            private_directory(directory)
            trial = os.path.join(directory, f".writable-{os.getpid()}")
            os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            os.unlink(trial)
        except OSError as error:
            if error.errno in _READ_ONLY:
                return directory
            raise
    return None


def start_private(options: Options) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a server for this shim alone, as its child process, over a socket pair. Closing the pair ends it. Raises
    OSError if no process can be made."""
    import subprocess  # slow to import, and hardly ever needed

    ours, theirs = socket.socketpair()
    with theirs:
        command = serve_command(options, "--private-fd", str(theirs.fileno()))
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=daemon.server_environment(os.environ),
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours, child


def end(child: subprocess.Popen[bytes]) -> None:
    """Terminate a private server, and kill it after two seconds."""
    import subprocess

    child.terminate()
    try:
        child.wait(2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _said(line: bytes) -> JsonObject:
    try:
        said = decode(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


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


class SandboxSigns(NamedTuple):
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


def doom(at: SandboxSigns) -> str | None:
    """Return why all processes started here end with the agent, as half a sentence; None if they do not.

    That is so if process 1 is a sandbox, the client, or a launcher of the client: the kernel ends all others with it. A
    container that exists for its client is excepted. Its files end or stay with it, so it gets its own server, which
    the next start finds again.
    """
    if not at.nested:
        return None
    if at.first in SANDBOXES:
        return f"this is a sandbox ({at.first}), which ends everything started in it"
    if at.image:
        return None
    own = [command for command in at.line if not _only_starts(command)]
    if at.is_first or (at.line and len(own) <= 1):
        return "the agent's client is the first process of its PID namespace, and all others end with it"
    return None


def look(proc: str = "/proc", root: str = "/", pid: int | None = None) -> SandboxSigns:
    """Inspect the namespace of process `pid` (default: this process). Without /proc, nothing is nested."""
    own = os.getpid() if pid is None else pid
    try:
        nested = os.readlink(f"{proc}/{own}/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return SandboxSigns(nested=False)
    if not nested:
        return SandboxSigns(nested=False)
    return SandboxSigns(True, _is_image(proc, root, own), _read(f"{proc}/1/comm").strip(), _line(proc, own), own == 1)


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
