"""The carrier of a local downstream: a child process that reads and writes JSON lines, and logs to standard error.

The process leads a session of its own. When the carrier ends, its standard input is closed; what then still runs of
its group and session is terminated, and killed. Only a process that left both on purpose can outlive the carrier. The
pid stays reserved until then, because the process is not reaped before: a signal cannot reach another group.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import trio
from attrs import define, field

from intercom.gateway.carrier import LONGEST_MESSAGE, CarrierDetail, CarrierLost
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.json_settings import plain as may_be_shown
from intercom.gateway.process_records import ProcessRecords, end_group
from intercom.local.wire import encode
from intercom.model.json_types import JsonObject
from intercom.workspace.command_runner import environment, plain

#: How long a process may take to end when its input is closed, and again when it is terminated (seconds).
GRACE_SECONDS: Final = 2.0
#: How long output may still come after the exit, and an exit after the end of the output (seconds).
LAST_WORDS_SECONDS: Final = 0.5
#: How much of standard error is kept, in bytes.
TAIL_BYTES: Final = 16 * 1024
#: The largest file of variables, in bytes.
ENV_FILE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
#: How many lines are handed over before other tasks run.
_LINES_A_TURN: Final = 50
#: A process that writes without a pause to standard error is read this often (seconds).
_FLOOD_PAUSE: Final = 0.01
#: The pause for each blank line, so that a flood of them takes a small part of the time (seconds).
_BLANK_PAUSE: Final = 1e-6


@asynccontextmanager
async def open_process(
    config: DownstreamConfig,
    environ: Mapping[str, str],
    *,
    records: ProcessRecords | None = None,
    longest: int = LONGEST_MESSAGE,
) -> AsyncIterator[ProcessCarrier]:
    """Start the program of a downstream whose configuration is expanded. When the block ends, its processes end.

    Of `environ` the program gets what every command gets, and `config.env_vars`. `config.env_file` and `config.env` add
    to that, the latter with priority. Without `config.cwd` it runs in the home directory. `records` notes the
    process while it runs. `longest` is the most bytes of a message.

    Raises CarrierLost if the program cannot be started.
    """
    process = await _start(config, environ)
    with nullcontext() if records is None else records.running(process.pid):
        async with _carried(process, longest) as carrier:
            yield carrier


@asynccontextmanager
async def _carried(process: trio.Process, longest: int) -> AsyncIterator[ProcessCarrier]:
    carrier = ProcessCarrier(process, longest)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            for task in (carrier.write_queue, carrier.read_errors, carrier.watch):
                nursery.start_soon(task)
            # A nursery would wrap what the block raises, and callers catch it by its type.
            try:
                yield carrier
            except Exception as error:
                failure = error
            finally:
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await carrier.end()
    if failure is not None:
        raise failure


@define(eq=False)
class _Unsent:
    """A message in the queue. `rest` is what is not yet written of it."""

    id: object
    rest: memoryview
    begun: bool
    written: bool = False
    over: trio.Event = field(factory=trio.Event)


class ProcessCarrier:
    """A running process as a `Carrier`. Made with `open_process`."""

    def __init__(self, process: trio.Process, longest: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert isinstance(process.stdin, trio.lowlevel.FdStream)
        assert isinstance(process.stdout, trio.lowlevel.FdStream)
        self._process = process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr
        self._queue: deque[_Unsent] = deque()
        self._queued = trio.Event()
        self._input_failed = trio.Event()
        self._lines: deque[bytes] = deque()
        self._handed_over = 0
        self._buffer = bytearray()
        self._longest = longest
        self._is_too_long = False
        self._output_ended = trio.Event()
        self._exited = trio.Event()
        self._exit_status: int | None = None
        self._tail = bytearray()
        self._errors_ended = trio.Event()
        self._closing = False

    # --- The carrier

    async def send(self, message: JsonObject) -> None:
        """Send one message. A message whose sending was cancelled is sent all the same, unless `cancel` withdraws it:
        a part of a line would break all later ones."""
        line = encode(message)
        if self._input_failed.is_set() or self._output_ended.is_set() or self._closing:
            raise CarrierLost(await self._reason())
        written = 0
        if not self._queue:
            written = self._write(line)
            if written == len(line):
                return
            if self._input_failed.is_set():
                raise CarrierLost(await self._reason())
        unsent = _Unsent(message.get("id"), memoryview(line)[written:], begun=written > 0)
        self._queue.append(unsent)
        self._queued.set()
        await unsent.over.wait()
        if not unsent.written:
            raise CarrierLost(await self._reason())

    def _write(self, line: bytes) -> int:
        """Write what the pipe takes at once. Most messages need no more than this."""
        try:
            return os.write(self._input.fileno(), line)
        except BlockingIOError:
            return 0
        except OSError:
            self._fail_input()
            return 0

    async def receive(self) -> bytes:
        """Return the next line that is not blank."""
        while not self._lines:
            if self._output_ended.is_set():
                raise CarrierLost(await self._reason())
            await self._fill()
        self._handed_over += 1
        if self._handed_over >= _LINES_A_TURN:
            self._handed_over = 0
            await trio.lowlevel.checkpoint()
        return self._lines.popleft()

    def cancel(self, id: int) -> bool:
        """Withdraw a request of which nothing is written yet."""
        for unsent in self._queue:
            if unsent.id == id and not unsent.begun:
                self._queue.remove(unsent)
                unsent.over.set()
                return True
        return False

    def negotiated(self, version: str) -> None:
        """Do nothing: lines are the same in all versions."""

    def detail(self) -> CarrierDetail:
        """Return the pid, the exit status and the end of standard error."""
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(self._tail) > TAIL_BYTES:
            tail = tail.partition(b"\n")[2] or tail
        return CarrierDetail(self._process.pid, self._status(), plain(tail).strip())

    # --- Reading

    async def _fill(self) -> None:
        """Read one piece of the output, and take its lines."""
        piece = await self._read()
        if not piece:
            # The last line may lack its end.
            self._take([bytes(self._buffer)])
            self._buffer.clear()
            self._output_ended.set()
            return
        *whole, rest = piece.split(b"\n")
        if not whole:
            self._buffer += piece
        else:
            whole[0] = bytes(self._buffer) + whole[0]
            self._buffer = bytearray(rest)
            blank = self._take(whole)
            if blank > 1000:
                await trio.sleep(blank * _BLANK_PAUSE)
        if len(self._buffer) > self._longest:
            self._buffer.clear()
            self._is_too_long = True
            self._output_ended.set()

    async def _read(self) -> bytes:
        """Return what the process has written, nothing at the end. It waits first: a stream's own `receive_some` lets
        all other tasks run before it looks, and again when there is nothing yet."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._output.fileno())
                return os.read(self._output.fileno(), _PIECE_BYTES)
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError):
                # It is closed: its number is no descriptor any more.
                return b""

    def _take(self, lines: list[bytes]) -> int:
        """Keep the lines for `receive`. Returns how many of them are blank."""
        found = [line for line in lines if line and not line.isspace()]
        if max(map(len, found), default=0) > self._longest:
            self._is_too_long = True
            self._output_ended.set()
            found = []
        self._lines.extend(found)
        return len(lines) - len(found)

    async def read_errors(self) -> None:
        """Read standard error to its end, and keep the end of it. A pipe that is not read stops the process."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while piece := await self._errors.receive_some(_PIECE_BYTES):
                self._tail += piece
                if len(self._tail) > 4 * TAIL_BYTES:
                    del self._tail[: -TAIL_BYTES - 1]
                if len(piece) == _PIECE_BYTES:
                    await trio.sleep(_FLOOD_PAUSE)
        self._errors_ended.set()

    async def _discard_output(self) -> None:
        """Read on, so that a process that still writes can end."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for piece in self._output:
                await trio.sleep(_FLOOD_PAUSE * len(piece) / _PIECE_BYTES)

    # --- Writing

    async def write_queue(self) -> None:
        """Write the messages that a full pipe did not take at once."""
        while True:
            await self._queued.wait()
            self._queued = trio.Event()
            while self._queue:
                unsent = self._queue[0]
                unsent.begun = True
                try:
                    await self._input.send_all(unsent.rest)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._fail_input()
                    break
                unsent.written = True
                self._queue.popleft()
                unsent.over.set()

    def _fail_input(self) -> None:
        self._input_failed.set()
        for unsent in self._queue:
            unsent.over.set()
        self._queue.clear()

    # --- The end

    async def watch(self) -> None:
        """Wait until the process exits or reads no more. What it wrote before is still read; then the output is closed,
        which one of its own processes may still hold open."""
        async with trio.open_nursery() as nursery:

            async def first(wait: trio.Event) -> None:
                await wait.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(first, self._input_failed)
            nursery.start_soon(first, self._exited)
            nursery.start_soon(self._await_exit)
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._output_ended.wait()
        await self._output.aclose()
        self._fail_input()
        await self._await_exit()

    async def _await_exit(self) -> None:
        await _exit_of(self._process)
        self._exited.set()

    def _status(self) -> int | None:
        """Return the exit status without reaping the process; None while it runs, or if it was ended from here."""
        if self._exit_status is None and not self._closing:
            self._exit_status = _peek(self._process)
        return self._exit_status

    async def _reason(self) -> str:
        if self._closing:
            return "the gateway closed it"
        if self._is_too_long:
            return f"the process sent a message of more than {self._longest / 2**20:g} MiB"
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._exited.wait()
        status = self._status()
        if status is None:
            stream = "input" if self._input_failed.is_set() and not self._output_ended.is_set() else "output"
            return f"the process closed its {stream}"
        if status >= 0:
            return f"the process exited with status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the process was ended by {name}"

    async def end(self) -> None:
        """End the process and all that is left of its group and session, and reap it. Takes a few times GRACE_SECONDS
        at most."""
        self._status()
        self._closing = True
        self._fail_input()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._discard_output)
            nursery.start_soon(self.read_errors)
            await self._input.aclose()
            with trio.move_on_after(GRACE_SECONDS):
                await self._await_exit()
            await end_group(self._process.pid, GRACE_SECONDS)
            # The last lines say why a process ended. One that escaped may hold the pipe open.
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await self._errors_ended.wait()
            nursery.cancel_scope.cancel()
        with trio.move_on_after(GRACE_SECONDS):
            await self._process.wait()
        await self._output.aclose()
        await self._errors.aclose()


async def _start(config: DownstreamConfig, environ: Mapping[str, str]) -> trio.Process:
    assert config.command is not None
    given = _environment(config, environ)
    home = given.get("HOME", "/")
    cwd = _expanded(config.cwd, home) if config.cwd else home
    if not _is_directory(cwd):
        if config.cwd:
            raise CarrierLost("the directory that cwd names does not exist")
        cwd = "/"
    command = _expanded(config.command, home)
    name = may_be_shown(os.path.basename(command))
    program = "its program" if name is None else f"the program {name}"
    try:
        return await trio.lowlevel.open_process(
            [command, *config.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=given,
            start_new_session=True,
        )
    except FileNotFoundError:
        # It is not said which of the two is missing.
        lacks = "does not exist, or the interpreter in its first line does not"
        raise CarrierLost(f"{program} {lacks if '/' in command else 'is in no directory of PATH'}") from None
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise CarrierLost(f"{program} is not executable: it needs a first line such as #!/bin/sh") from None
        raise CarrierLost(f"{program} cannot be started ({(error.strerror or 'unknown').lower()})") from None
    except ValueError:
        # It would contain the value.
        raise CarrierLost("its command, arguments or variables have a NUL character") from None


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)


def _expanded(path: str, home: str) -> str:
    """Expand `~`, and leave `~user` as it is."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _environment(config: DownstreamConfig, environ: Mapping[str, str]) -> dict[str, str]:
    given = environment(environ)
    given.update({name: environ[name] for name in config.env_vars if name in environ})
    if config.env_file:
        given.update(read_env_file(Path(_expanded(config.env_file, environ.get("HOME", "/")))))
    given.update(config.env)
    return given


def read_env_file(file: Path) -> dict[str, str]:
    """Read a file of variables, `NAME=value` on each line. Comments, `export` and quotes are as a shell has them, but
    nothing is expanded. Raises CarrierLost without the file's content."""
    try:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = stream.read(ENV_FILE_BYTES + 1) if is_file else b""
    except OSError as error:
        raise CarrierLost(f"the file that envFile names cannot be read ({(error.strerror or '').lower()})") from None
    if not is_file or len(content) > ENV_FILE_BYTES:
        raise CarrierLost(f"the file that envFile names is not a file of at most {ENV_FILE_BYTES} bytes")
    found: dict[str, str] = {}
    for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1):
        line = line.strip().removeprefix("export ").lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.rstrip(), value.strip()
        if not equals or not name or not name.replace("_", "a").isalnum() or "\0" in value:
            raise CarrierLost(f"line {number} of the file that envFile names is not NAME=value")
        quote = value[:1]
        if quote in ("'", '"') and (end := value.find(quote, 1)) > 0:
            value = value[1:end]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name] = value
    return found


# --- Processes


async def _exit_of(process: trio.Process) -> None:
    """Wait until a process has exited, without reaping it if the system can do that."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await process.wait()
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _peek(process: trio.Process) -> int | None:
    """Return the exit status of a process, or minus the signal that ended it, without reaping it."""
    if sys.platform == "darwin":
        return process.returncode
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.returncode
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
