"""Start a server: once per machine, in the background, and hear whether it got ready."""

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
    """The server said why it did not start; `again` when another may be there by now, `sandboxed` when it could not
    write."""

    def __init__(self, failure: Failure, *, again: bool = False, sandboxed: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.again = again
        self.sandboxed = sandboxed


class Start:
    """A server on its way; `descriptor` polls readable when there is news. Make one with `start`."""

    def __init__(self, descriptor: int, lock: int) -> None:
        self.descriptor = descriptor
        self._lock = lock
        self._said = b""

    def ready(self) -> bool:
        """Read the news: True when the server is ready, False when there is more to come.

        Raises NotReady when it said why not, and EOFError when it ended without a word.
        """
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
    """Take the right to start a server, as a descriptor to give to `start` or to close; None while another shim has it.

    Raises IpcError when the runtime directory is not to be trusted, and OSError when it can not be written.
    """
    private_directory(places.runtime_dir)
    lock = os.open(places.start_lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def start(options: Options, lock: int) -> Start:
    """Start a server in the background, with the right that `claim` gave; raises OSError when there is no room."""
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
    """Say which directory a server of this user could not write here, by trying; None when all is well.

    Whoever started the shim may have shut it, and so whatever it starts, out of the user's directories. Raises IpcError
    when a directory is not to be trusted.
    """
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
    """Start a server for this shim alone, as its child, over a socket pair whose closing ends it.

    Raises OSError when no process can be made.
    """
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
    """End a private server: gently, and after two seconds not so."""
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
