"""Runs one configured command in a workspace, bounded in time and output."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psutil
import trio
from attrs import frozen

from intercom.model.errors import FileError
from intercom.workspace.command_rules import words

#: Terminal escape sequences (ECMA-48): CSI, strings (OSC, DCS, SOS, PM, APC), and those of two characters.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x1b\x07\x9c]*(?:\x1b\\|\x07|\x9c)?|[ -/]+[0-~]|[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Output:
    """The bytes of both streams, in order of arrival. At most `limit` bytes are kept, half from the beginning and
    half from the end, since either may be the important one. `total` counts all bytes."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._first = (limit + 1) // 2
        self._last = max(limit - self._first, 1)
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes | bytearray) -> None:
        self.total += len(piece)
        room = self._first - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        # Cut rarely: a cut after every piece would move the whole buffer each time.
        if len(self._tail) > 2 * self._last:
            del self._tail[: -self._last]

    @property
    def is_cut(self) -> bool:
        return self.total > self._first + self._last

    def text(self, *, whole_lines: bool = False) -> str:
        """Return what was kept as plain text. A line says how much was cut out, if anything. With `whole_lines`, an
        unfinished last line is omitted, because masking cannot recognise half a secret."""
        if not self.is_cut:
            return _whole(plain(self._head + self._tail), whole_lines)
        head, tail = bytes(self._head), bytes(self._tail[-self._last :])
        # Cut between lines if possible: masking cannot recognise half a secret, nor decoding half a character.
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self.total - len(head) - len(tail)
        note = f"… {left_out:,} byte{'' if left_out == 1 else 's'} left out …"
        return _whole(f"{plain(head).rstrip()}\n{note}\n{plain(tail)}", whole_lines)


def plain(data: bytes | bytearray) -> str:
    """Decode bytes as UTF-8 text and remove terminal control sequences. Of an overwritten line (progress bars) the
    last version is kept. Invalid UTF-8 becomes replacement characters."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(_CONTROLS.sub("", line) for line in lines)


def _whole(text: str, whole_lines: bool) -> str:
    return text[: text.rfind("\n") + 1] if whole_lines else text


#: Seconds between terminating and killing a process group; and how long reading may take after that.
GRACE_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5
_POLL_SECONDS = 0.03

#: Output beyond the limit is read and dropped, so that a verbose command can finish; one that writes this much is
#: stopped.
FLOOD_BYTES = 64 * 1024 * 1024

#: The variables that a command gets. An allowlist, because the server's environment holds tokens.
_NAMES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
_PREFIXES = ("LC_", "XDG_")

#: Characters with a meaning to a shell, even quoted: a command with one of them is run by the shell.
_SHELL_ONLY = frozenset("*?[]~#!^%")


class Ending(StrEnum):
    EXITED = "exited"
    TIMED_OUT = "timed out"
    FLOODED = "flooded"


@frozen
class Ran:
    """How a command ended. `exit_code` is its own, or minus the signal that ended it; `seconds` is how long it ran."""

    ending: Ending
    exit_code: int
    seconds: float


@frozen
class Started:
    """A command's process, identified by pid and start time (seconds since the epoch), because pids are reused."""

    pid: int
    at: float


def program(command: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the program and arguments that run `command` as /bin/sh would. A single plain command whose program
    exists runs without a shell, any other as `/bin/sh -c` with this exact string."""
    plain = words(command)
    through_shell = ("/bin/sh", "-c", command)
    if plain is None or _SHELL_ONLY.intersection(command) or "=" in plain[0]:
        return through_shell
    if "/" not in plain[0] and shutil.which(plain[0], path=environ.get("PATH", os.defpath)) is None:
        # A shell builtin, or a mistake that the shell reports in its usual words.
        return through_shell
    return plain


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Select the variables of the server's environment that a command gets: no credentials."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in _NAMES or name.startswith(_PREFIXES) or (name.islower() and name.upper().endswith("_PROXY"))
    }
    # A relative entry would be resolved in the workspace, where an agent may have put a program of that name.
    places = [place for place in kept.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    kept["PATH"] = os.pathsep.join(places)
    # There is no person to page through output or type a password.
    return {**kept, "TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


async def run(
    command: str,
    root: Path,
    output: Output,
    *,
    timeout: float,
    environ: Mapping[str, str],
    on_output: Callable[[], None] = lambda: None,
    on_start: Callable[[Started], Awaitable[None]] | None = None,
) -> Ran:
    """Run `command` in the directory `root` until it ends, or for `timeout` seconds.

    What it writes, to either stream, goes to `output`, and `on_output` is called after each piece. `on_start` is
    awaited with the process once that exists; the command runs meanwhile, and the time counts.

    The command has no input, an environment of `environment(environ)`, and a session of its own. It may end, run out of
    time, or be cancelled with this call. Then the rest of its process group and session is terminated, and killed after
    `GRACE_SECONDS`. Only a process that left both can outlive the call. Raises FileError if the command cannot be
    started.
    """
    given = environment(environ)
    started = trio.current_time()
    try:
        process = await trio.lowlevel.open_process(
            program(command, given),
            cwd=root,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        what = command if error.filename is None else os.fspath(error.filename)
        raise FileError(f"{what} cannot be run: {(error.strerror or str(error)).lower()}") from None
    assert process.stdout is not None
    ending = Ending.TIMED_OUT
    try:
        with trio.move_on_after(timeout):
            if on_start is not None and (began := _began(process.pid)) is not None:
                await on_start(began)
            ending = await _attend(process, process.stdout, output, on_output)
    finally:
        ended = trio.current_time()
        with trio.CancelScope(shield=True):
            await _end_all(process)
            # Read the rest of the output. An escaped process may hold the pipe open; do not wait for it.
            with trio.move_on_after(_LAST_WORDS_SECONDS):
                await _read(process.stdout, output, on_output)
            await process.stdout.aclose()
    assert process.returncode is not None
    return Ran(ending, process.returncode, ended - started)


async def _attend(
    process: trio.Process, stream: trio.abc.ReceiveStream, output: Output, on_output: Callable[[], None]
) -> Ending:
    """Read the output until the command itself ends, even if another process still holds the pipe."""
    flooded = False
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            nonlocal flooded
            if await _read(stream, output, on_output):
                flooded = True
                nursery.cancel_scope.cancel()

        nursery.start_soon(read)
        await process.wait()
        nursery.cancel_scope.cancel()
    return Ending.FLOODED if flooded else Ending.EXITED


async def _read(stream: trio.abc.ReceiveStream, output: Output, on_output: Callable[[], None]) -> bool:
    """Read to the end of the stream. Returns True as soon as the output exceeds FLOOD_BYTES."""
    while output.total < FLOOD_BYTES:
        piece = await stream.receive_some(64 * 1024)
        if not piece:
            return False
        output.add(piece)
        on_output()
    return True


async def end_left(started: Started) -> bool:
    """End a command that an earlier server run left. Returns False if its process no longer exists."""
    if _began(started.pid) != started:
        return False
    await _end_session(started.pid, lambda: None)
    return True


def _began(pid: int) -> Started | None:
    try:
        return Started(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None


async def _end_all(process: trio.Process) -> None:
    """End all processes of the command and reap the command itself."""
    await _end_session(process.pid, process.poll)
    with trio.move_on_after(GRACE_SECONDS):
        await process.wait()


async def _end_session(leader: int, reap: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = _members(leader, reap)
        _signal(left, number)
        with trio.move_on_after(GRACE_SECONDS):
            while left:
                await trio.sleep(_POLL_SECONDS)
                left = _members(leader, reap)
                if number == signal.SIGKILL:
                    # A process may have started another before it was killed.
                    _signal(left, number)
        if not left:
            break


def _members(leader: int, reap: Callable[[], object]) -> list[int]:
    """Return the living processes of a command's group and session. The command's pid identifies both, and is not
    reused while either has members."""
    reap()
    found = []
    for pid in psutil.pids():
        try:
            if leader in (os.getsid(pid), os.getpgid(pid)):
                alive = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
                found += [pid] if alive else []
        except (OSError, psutil.Error):
            continue
    return found


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # The process has ended since, or runs as another user.
        with suppress(OSError):
            os.kill(pid, number)
