"""Starts a server, once per machine and in the background, and reports whether it became ready."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import TYPE_CHECKING, Any

from intercom.agents.shim.options import Options, serve_command
from intercom.agents.shim.replies import Failure
from intercom.local import daemon, tunables
from intercom.local.lines import decode
from intercom.local.places import Places, private_directory

if TYPE_CHECKING:
    import subprocess

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

    def __init__(self, descriptor: int, lock: int) -> None:
        self.descriptor = descriptor
        self._lock = lock
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
        """Stop listening to it, and let another shim try."""
        os.close(self.descriptor)
        os.close(self._lock)


def claim(places: Places) -> int | None:
    """Take the right to start a server, as a descriptor for `start` or to close; None while another shim has it. Raises
    IpcError if the runtime directory is not trustworthy, and OSError if it is not writable."""
    private_directory(places.runtime_dir)
    lock = os.open(places.start_lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def start(options: Options, lock: int) -> Start:
    """Start a server in the background, with the right from `claim`. Raises OSError if the system lacks resources."""
    try:
        hear, tell = os.pipe()
        try:
            command = serve_command(options, "--background", "--ready-fd", str(tell), "--started-by", str(os.getpid()))
            daemon.spawn(command, environ=os.environ, keep=tell)
        except BaseException:
            os.close(hear)
            raise
        finally:
            os.close(tell)
        return Start(hear, lock)
    except BaseException:
        os.close(lock)
        raise


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
            env=tunables.added(daemon.for_server(os.environ)),
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


def _said(line: bytes) -> dict[str, Any]:
    try:
        said = decode(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
