"""The process monitor: a tiny program between the server and an agent that people started.

The server may be killed at any time, and the agent must not be affected. So this process keeps the newest output of the
agent in files, and records how it ended. It is the subreaper of the agent's processes: orphaned ones become its
children, so that none escapes.

It runs as a program, with the standard library alone and without `site`: `python -I -S keeper.py DIRECTORY RUN LIMIT`.
The server sends one JSON line on stdin, with what to run, after it has recorded this process; without it nothing is
run. One JSON line on stdout answers: the program's pid, or why it did not start. `DIRECTORY/status.json` says the same,
and how the program ended. SIGTERM is passed on to the program while it runs. The monitor exits when the program and all
its processes are gone, or at SIGTERM after the program's end.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

STREAMS = ("stdout", "stderr")
#: The most bytes that are read at once.
_CHUNK = 65536
#: This many chunks fill the largest pipe.
_PIPE_CHUNKS = 16
#: Seconds between two checks for remaining processes, once the program has ended.
_LOOK_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class Segments:
    """The newest output of one stream in files, named by their offsets in the stream. Two files of half the limit each
    are kept. Output that cannot be written (a full disk) is dropped: the agent must not block."""

    def __init__(self, directory: str, stream: str, limit: int) -> None:
        self._directory = directory
        self._stream = stream
        self._room = max(1, limit // 2)
        self._file = -1
        starts = segment_starts(directory, stream)
        self._start = starts[-1] if starts else 0
        try:
            self._size = os.stat(self._path(self._start)).st_size
        except OSError:
            self._size = 0

    def add(self, data: bytes) -> None:
        while data:
            if self._file < 0 or self._size >= self._room:
                self._next()
            piece, data = data[: self._room - self._size], data[self._room - self._size :]
            self._write(piece)
            self._size += len(piece)

    def _write(self, piece: bytes) -> None:
        try:
            while piece and self._file >= 0:
                piece = piece[os.write(self._file, piece) :]
        except OSError:
            pass  # the next segment still begins at the right offset

    def _next(self) -> None:
        if self._size >= self._room:
            self._start, self._size = self._start + self._size, 0
        if self._file >= 0:
            os.close(self._file)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(self._path(self._start), flags, 0o600)
            for old in segment_starts(self._directory, self._stream)[:-2]:
                os.unlink(self._path(old))
        except OSError:
            self._file = -1

    def _path(self, start: int) -> str:
        return os.path.join(self._directory, segment_name(self._stream, start))


def segment_name(stream: str, start: int) -> str:
    """Return the name of the file that holds a stream from byte `start` on."""
    return f"{stream}-{start:020d}.log"


def segment_starts(directory: str, stream: str) -> list[int]:
    """Return the offsets of the stream's files, in ascending order."""
    head, tail = f"{stream}-", ".log"
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    middles = [name[len(head) : -len(tail)] for name in names if name.startswith(head) and name.endswith(tail)]
    return sorted(int(middle) for middle in middles if middle.isascii() and middle.isdigit())


def main(arguments: list[str]) -> int:
    directory, run, limit = arguments[0], int(arguments[1]), int(arguments[2])
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    spec = _read_spec()
    if spec is None:
        return 0
    _adopt_descendants()
    wake = _wake_on(signal.SIGCHLD, signal.SIGTERM)
    kills = _oom_kills()
    streams = {stream: os.pipe() for stream in STREAMS}
    status: dict[str, Any] = {"run": run, "pid": None, "error": None, "exit": None}
    try:
        status["pid"] = _start(spec, [writer for _, writer in streams.values()])
    except OSError as failed:
        status["error"] = [failed.errno or 0, os.fspath(failed.filename or "")]
    for _, writer in streams.values():
        os.close(writer)
    _keep(directory, status)
    _tell(status)
    if status["pid"] is None:
        return 1
    _attend(directory, status, wake, {r: Segments(directory, name, limit) for name, (r, _) in streams.items()}, kills)
    return 0


def _read_spec() -> dict[str, Any] | None:
    """Return what to run; None if the server exited before it said so: then nothing must be run."""
    said = b""
    while b"\n" not in said:
        piece = os.read(0, _CHUNK)
        if not piece:
            return None
        said += piece
    spec: dict[str, Any] = json.loads(said)
    return spec


def _start(spec: dict[str, Any], writers: list[int]) -> int:
    """Start the program in a session of its own. Raises OSError if it cannot be run."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(spec, writers, tell)
    os.close(tell)
    with os.fdopen(hear, "rb") as news:
        said = news.read()
    if said:
        os.waitpid(pid, 0)
        number, _, name = said.decode(errors="replace").partition(" ")
        raise OSError(int(number), os.strerror(int(number)), name)
    return pid


def _become(spec: dict[str, Any], writers: list[int], tell: int) -> NoReturn:
    """In the new process: execute the program, or report why not."""
    where = ""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writers[0], 1)
        os.dup2(writers[1], 2)
        os.umask(0o022)
        where = spec["cwd"]
        os.chdir(where)
        where = spec["program"]
        os.execve(where, spec["arguments"], spec["environment"])
    except OSError as failed:
        os.write(tell, f"{failed.errno or errno.EIO} {where}".encode(errors="replace"))
    except BaseException:
        os.write(tell, f"{errno.EINVAL} {where}".encode(errors="replace"))
    os._exit(127)


def _attend(directory: str, status: dict[str, Any], wake: int, readers: dict[int, Segments], kills: int | None) -> None:
    """Keep the program's output until it and all its processes are gone."""
    poll = select.poll()
    for reader in (wake, *readers):
        os.set_blocking(reader, False)
        poll.register(reader, select.POLLIN)
    while True:
        ended = status["exit"] is not None
        for reader, _ in poll.poll(_LOOK_SECONDS * 1000 if ended else None):
            if reader == wake:
                if signal.SIGTERM in os.read(wake, _CHUNK) and _asked_to_end(status):
                    return
            elif not _pass_on(reader, readers[reader]):
                poll.unregister(reader)
                os.close(reader)
                del readers[reader]
        alone = _reap(directory, status, kills, readers)
        if alone and status["exit"] is not None and not readers:
            return


def _pass_on(reader: int, segments: Segments) -> bool:
    """Store what can be read now; False at the end of the stream."""
    try:
        data = os.read(reader, _CHUNK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    segments.add(data)
    return bool(data)


def _asked_to_end(status: dict[str, Any]) -> bool:
    """Handle SIGTERM. Returns whether to exit now: the program has ended, and the server has handled the rest."""
    if status["exit"] is not None:
        return True
    try:
        os.killpg(status["pid"], signal.SIGTERM)
    except OSError:
        pass
    return False


def _reap(directory: str, status: dict[str, Any], kills: int | None, readers: dict[int, Segments]) -> bool:
    """Reap processes that have ended; True if none is left."""
    while True:
        try:
            pid, ending = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        if pid == status["pid"] and status["exit"] is None:
            # The last output first: the server reads it as soon as it sees the end.
            for reader, segments in list(readers.items()):
                _drain(reader, segments)
            status["exit"] = _exit_of(ending, kills)
            _keep(directory, status)


def _drain(reader: int, segments: Segments) -> None:
    """Store what is in the pipe, but not what another process keeps writing into it."""
    try:
        for _ in range(_PIPE_CHUNKS):
            segments.add(os.read(reader, _CHUNK))
    except OSError:
        pass  # nothing more now


def _exit_of(ending: int, kills: int | None) -> dict[str, Any]:
    killed = os.WTERMSIG(ending) if os.WIFSIGNALED(ending) else None
    now = _oom_kills() if killed == signal.SIGKILL else None
    oom = kills is not None and now is not None and now > kills
    return {"code": None if killed else os.WEXITSTATUS(ending), "signal": killed, "oom": oom, "at": time.time()}


def _oom_kills() -> int | None:
    """Return how often the system has killed a process of our control group for lack of memory; None if unknown."""
    try:
        with open("/proc/self/cgroup") as file:
            path = next(line.split(":", 2)[2].strip() for line in file if line.startswith("0::"))
        with open(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _keep(directory: str, status: dict[str, Any]) -> None:
    """Write the status atomically."""
    path = os.path.join(directory, "status.json")
    try:
        with open(f"{path}.new", "w") as file:
            json.dump(status, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
    except OSError:
        pass  # no room: the end of the program will be unknown, and the server says so


def _tell(status: dict[str, Any]) -> None:
    """Answer the server, if it still runs, and close the connection to it."""
    try:
        os.write(1, json.dumps(status).encode() + b"\n")
    except OSError:
        pass
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _adopt_descendants() -> None:
    if not sys.platform.startswith("linux"):
        return
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # orphaned processes are then found by their environment


def _wake_on(*numbers: int) -> int:
    wake, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    return wake


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
