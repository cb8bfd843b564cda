"""Servers without the second that their imports take: forks of one process that has loaded the program.

    process = server_forks.shared().start(["serve", "--ready-fd", str(tell)], environ, keep=[tell])

A fork is a process of its own with the words, environment, directory and descriptors that it is given, and runs the
program from its first line on. It differs from a program that was started in what the kernel says of it: its command
line, its first environment and its parent are those of the process that it was forked from. How a program is started
is tested with real starts: see `real_starts`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: In the environment of a relay, names the socket where the servers that it starts are forked.
VARIABLE = "INTERCOM_TEST_FORKS"
#: The program as tests run it.
WITH_FAULTS = "tests.support.program_with_faults"

#: Whether servers of tests are forked. Set by `tests/conftest.py` for the default suite.
enabled = False

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / "tests" / "support" / "program_with_faults.py"
#: Bytes of the longest request.
_LONGEST = 1 << 17
#: The number of the first descriptor that is out of the way of those that a request names.
_HIGH = 600


@contextlib.contextmanager
def real_starts() -> Iterator[None]:
    """Meanwhile, new homes and nodes start their servers as users do."""
    global enabled
    before, enabled = enabled, False
    yield
    enabled = before


class Forked:
    """A server that was forked, as `subprocess.Popen` has it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        #: None as long as it runs; negative for a signal.
        self.returncode: int | None = None
        # It brings the exit code. Several threads may wait, so it stays open as long as this is there.
        self._connection = connection
        self._reading = threading.Lock()
        weakref.finalize(self, connection.close)

    def poll(self) -> int | None:
        if self.returncode is None and self._has_ended(0.0):
            self._read_code()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired` if it runs longer than so many seconds."""
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(["a forked server"], timeout or 0.0)
            self._read_code()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        # Not `select`, which takes no descriptor above 1023.
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def _read_code(self) -> None:
        with self._reading:
            if self.returncode is None:
                said = self._connection.recv(64)
                assert said, "the process that servers are forked from has ended"
                self.returncode = int(said)


class ForkServer:
    """A process that has loaded the program, with this environment. It ends with the process that made it."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="ic-forks-", dir="/tmp")
        #: What `VARIABLE` is set to.
        self.address = f"{self._directory.name}/s"
        hear, tell = os.pipe()
        # It ends once its standard input does.
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), self.address, str(tell)],
            stdin=subprocess.PIPE,
            env={name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
            | {**(environ or {})},
            pass_fds=[tell],
        )
        os.close(tell)
        with os.fdopen(hear, "rb") as news:
            assert news.read(), "no process could be started to fork servers from"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        keep: Sequence[int] = (),
        stdout: int = 1,
        stderr: int = 2,
        cwd: str | Path = ".",
        program: str = WITH_FAULTS,
    ) -> Forked:
        """Run `main(words)` of a module, with these descriptors under the same numbers."""
        streams = {1: stdout, 2: stderr, **{number: number for number in keep}}
        return _ask(self.address, program, list(words), environ, streams, os.path.abspath(cwd))

    def close(self) -> None:
        """End it; what was forked from it stays."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()


class RealStarts:
    """Starts each server as a program, with the same calls."""

    address = None
    pid = None

    def start(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        keep: Sequence[int] = (),
        stdout: int = 1,
        stderr: int = 2,
        cwd: str | Path = ".",
        program: str = WITH_FAULTS,
    ) -> subprocess.Popen[bytes]:
        call = f"from {program} import main; raise SystemExit(main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(_ROOT)!r}); {call}", *words],
            env=environ,
            pass_fds=keep,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
        )

    def close(self) -> None:
        pass


Starts = ForkServer | RealStarts
Started = Forked | subprocess.Popen[bytes]


def starts(environ: Mapping[str, str] | None = None) -> Starts:
    """What a test starts servers with, and closes. `environ` is the first environment that a fork is seen to have."""
    return ForkServer(environ) if enabled else RealStarts()


def shared() -> Starts:
    """The same, one for all tests of this process: made when it is first needed, and closed at its end."""
    return _shared() if enabled else RealStarts()


@functools.cache
def _shared() -> ForkServer:
    made = ForkServer()
    atexit.register(made.close)
    return made


def spawn(command: Sequence[str], *, environ: Mapping[str, str], keep: Sequence[int]) -> None:
    """Stands in for `intercom.local.daemon.spawn` in a relay whose environment has `VARIABLE`."""
    from intercom.local import daemon

    # Before them are the interpreter, its options and the program.
    words = list(command[command.index(str(_PROGRAM)) + 1 :])
    with open(os.devnull, "r+b") as null:
        streams = {1: null.fileno(), 2: null.fileno(), **{number: number for number in keep}}
        _ask(os.environ[VARIABLE], WITH_FAULTS, words, daemon.server_environment(environ), streams, "/", detached=True)


def _ask(
    address: str,
    program: str,
    words: list[str],
    environ: Mapping[str, str],
    streams: Mapping[int, int],
    cwd: str,
    *,
    detached: bool = False,
) -> Forked:
    request = {"program": program, "words": words, "environ": dict(environ), "streams": list(streams), "cwd": cwd}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request | {"detached": detached}).encode()], list(streams.values()))
        return Forked(connection, int(connection.recv(64)))
    except BaseException:
        connection.close()
        raise


# --- the process that they are forked from ---------------------------------------------------------------------------


def _main(address: str, ready: int) -> None:
    sys.path[0] = str(_ROOT)
    _load()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    ended, tell = socket.socketpair()
    for each in (ended, tell):
        each.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # At the terminal it is for the tests.
    signal.signal(signal.SIGINT, lambda *_: None)
    os.write(ready, b"\n")
    os.close(ready)
    running: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([listener, ended, 0], [], [])
        if ended in readable:
            with contextlib.suppress(BlockingIOError):
                ended.recv(4096)
            _report(running)
        if listener in readable:
            connection, _ = listener.accept()
            _fork(connection, running)
        if 0 in readable:
            return


def _load() -> None:
    """Import all that a server may need, and keep it out of collections."""
    import intercom

    gc.disable()
    found = pkgutil.walk_packages(intercom.__path__, "intercom.")
    names = [each.name for each in found if not each.name.startswith("intercom.cli.")]
    commands = ("main", "serve", "rooms_server")
    for name in (WITH_FAULTS, "tests.support.faults", *names, *(f"intercom.cli.{each}" for each in commands)):
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()


def _report(running: dict[int, socket.socket]) -> None:
    """Tell the exit codes of those that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        # Whoever asked for it may have ended, or not want to know.
        with contextlib.suppress(OSError), running.pop(pid) as connection:
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _fork(connection: socket.socket, running: dict[int, socket.socket]) -> None:
    data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 16)
    if not data:
        connection.close()
        return
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _run(json.loads(data), descriptors)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    for each in descriptors:
        os.close(each)
    running[pid] = connection
    with contextlib.suppress(OSError):
        connection.send(str(pid).encode())


def _run(request: dict[str, Any], descriptors: list[int]) -> int:
    """Be the program; its exit code."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD, _HIGH) for each in descriptors]
        os.closerange(3, _HIGH)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        for number, each in zip(request["streams"], moved, strict=True):
            os.dup2(each, number)
            os.close(each)
        if request["detached"]:
            os.setsid()
            os.umask(0o077)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environ"])
        time.tzset()
        sys.argv = [request["program"], *request["words"]]
        code = importlib.import_module(request["program"]).main(request["words"])
        return code if isinstance(code, int) else 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
