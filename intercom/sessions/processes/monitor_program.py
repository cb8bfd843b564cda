"""The process monitor: a tiny program between the server and an agent that people started.

The server may be killed at any time, and the agent must not be affected. So this process keeps the newest output of the
agent in files, and records how it ended. It is the subreaper of the agent's processes: orphaned ones become its
children, so that none escapes.

It runs as a program, with the standard library alone and without `site`:
`python -I -S monitor_program.py DIRECTORY RUN LIMIT`. The server sends one JSON line on stdin, with what to run, after
it has recorded this process; without it nothing is run. One JSON line on stdout answers: the program's pid, or why it
did not start. `DIRECTORY/status.json` says the same, and how the program ended. SIGTERM is passed on to the program
while it runs. The monitor exits when the program and all its processes are gone, or at SIGTERM after the program's end.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
from typing import NoReturn, TypedDict

STREAMS = ("stdout", "stderr")
#: The most bytes that are read at once.
_CHUNK = 65536
#: This many chunks fill the largest pipe.
_PIPE_CHUNKS = 16
#: Seconds between two checks for remaining processes, once the program has ended.
_LOOK_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class Spec(TypedDict):
    """What to run: an absolute `program`, its `arguments` from its name on, `environment` and directory."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    cwd: str


class Ending(TypedDict):
    """How the program ended: its exit `code`, or the `signal` that killed it."""

    code: int | None
    signal: int | None
    oom: bool


class Status(TypedDict):
    """The monitor's report: the program's pid, or why it did not start (errno and file), and how it ended."""

    run: int
    pid: int | None
    error: tuple[int, str] | None
    exit: Ending | None


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
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    spec = _read_spec()
    if spec is None:
        return 0
    _adopt_descendants()
    return Monitor(arguments[0], int(arguments[1]), int(arguments[2])).run(spec)


def _read_spec() -> Spec | None:
    """Return what to run; None if the server exited before it said so: then nothing must be run."""
    said = b""
    while b"\n" not in said:
        piece = os.read(0, _CHUNK)
        if not piece:
            return None
        said += piece
    spec: Spec = json.loads(said)
    return spec


class Monitor:
    """The monitor of one run of a program."""

    def __init__(self, directory: str, run: int, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._status: Status = {"run": run, "pid": None, "error": None, "exit": None}
        self._kills = _oom_kills()
        self._readers: dict[int, Segments] = {}

    def run(self, spec: Spec) -> int:
        """Start the program, report it, and attend to it until it and all its processes are gone."""
        wake = _wake_on(signal.SIGCHLD, signal.SIGTERM)
        pipes = [os.pipe() for _ in STREAMS]
        writers = [writer for _, writer in pipes]
        try:
            self._status["pid"] = _start(spec, writers)
        except OSError as failed:
            self._status["error"] = (failed.errno or 0, os.fspath(failed.filename or ""))
        for writer in writers:
            os.close(writer)
        self._record()
        _answer(self._status)
        if self._status["pid"] is None:
            return 1
        for stream, (reader, _) in zip(STREAMS, pipes, strict=True):
            self._readers[reader] = Segments(self._directory, stream, self._limit)
        self._attend(wake, self._status["pid"])
        return 0

    def _attend(self, wake: int, pid: int) -> None:
        poll = select.poll()
        for reader in (wake, *self._readers):
            os.set_blocking(reader, False)
            poll.register(reader, select.POLLIN)
        while True:
            ended = self._status["exit"] is not None
            for reader, _ in poll.poll(_LOOK_SECONDS * 1000 if ended else None):
                if reader == wake:
                    if signal.SIGTERM in os.read(wake, _CHUNK):
                        if ended:
                            return  # the server has handled the rest
                        _ask_to_end(pid)
                elif not self._keep_output(reader):
                    poll.unregister(reader)
                    os.close(reader)
                    del self._readers[reader]
            if self._reap() and self._status["exit"] is not None and not self._readers:
                return

    def _keep_output(self, reader: int, chunks: int = 1) -> bool:
        """Store what can be read now, at most so many `chunks`; False at the end of the stream."""
        try:
            for _ in range(chunks):
                data = os.read(reader, _CHUNK)
                self._readers[reader].add(data)
                if not data:
                    return False
        except BlockingIOError:
            pass  # nothing more now
        except OSError:
            return False
        return True

    def _reap(self) -> bool:
        """Reap processes that have ended; True if none is left."""
        while True:
            try:
                pid, ending = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._status["pid"] and self._status["exit"] is None:
                # The last output first: the server reads it as soon as it sees the end. Not what another process keeps
                # writing into the pipe.
                for reader in self._readers:
                    self._keep_output(reader, _PIPE_CHUNKS)
                self._status["exit"] = _exit_of(ending, self._kills)
                self._record()

    def _record(self) -> None:
        """Write the status atomically."""
        path = os.path.join(self._directory, "status.json")
        try:
            with open(f"{path}.new", "w") as file:
                json.dump(self._status, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{path}.new", path)
        except OSError:
            pass  # no room: the end of the program will be unknown, and the server says so


def _start(spec: Spec, writers: list[int]) -> int:
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


def _become(spec: Spec, writers: list[int], tell: int) -> NoReturn:
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
    except BaseException as failed:
        fault = failed.errno or errno.EIO if isinstance(failed, OSError) else errno.EINVAL
        os.write(tell, f"{fault} {where}".encode(errors="replace"))
    os._exit(127)


def _ask_to_end(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGTERM)
    except OSError:
        pass


def _exit_of(ending: int, kills: int | None) -> Ending:
    killed = os.WTERMSIG(ending) if os.WIFSIGNALED(ending) else None
    now = _oom_kills() if killed == signal.SIGKILL else None
    oom = kills is not None and now is not None and now > kills
    return {"code": None if killed else os.WEXITSTATUS(ending), "signal": killed, "oom": oom}


def _oom_kills() -> int | None:
    """Return how often the system has killed a process of our control group for lack of memory; None if unknown."""
    try:
        with open("/proc/self/cgroup") as file:
            path = next(line.split(":", 2)[2].strip() for line in file if line.startswith("0::"))
        with open(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _answer(status: Status) -> None:
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
