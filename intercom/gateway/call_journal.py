"""The journal of the gateway's calls: JSON lines, written before a call is sent and when it has ended.

A line is one `write`, without a sync to disk: a killed server loses none, a power cut may lose the last seconds. The
journal says which calls were running when a server was killed, and which of the ended ones the audit log lacks. Lines
have an `event`:

- `begun`: the record of a call that is about to be sent.
- `finished`: the record of an ended call, as the audit log has it in the data of its entry.
- `recorded`: the audit log has the calls `ids`; `through` is the id of the newest entry of a call.

The file has mode 0600. A full one is renamed to `NAME.1`, that one to `NAME.2`, and so on; the oldest is deleted. A new
file begins with the lines of all calls that the audit log lacks, so none of them is deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from sys import intern
from typing import Final

from attrs import field, frozen

from intercom.gateway.messages import InvocationStatus
from intercom.local.own_files import read_own, replace
from intercom.local.places import private_directory
from intercom.model import clock
from intercom.model.errors import ConfigError, IntercomError, InvalidArguments
from intercom.model.json_types import Json, JsonObject

#: The size at which a file is full, in bytes (about 10,000 calls), and how many full ones are kept.
FULL: Final = 8 * 1024 * 1024
KEPT: Final = 4
#: How many of the latest calls `Recovery.recent` has at most.
RECENT: Final = 10_000

#: The largest file that is read, in bytes. The server never writes one this large.
_LARGEST: Final = 512 * 1024 * 1024
_KEY_BYTES: Final = 32
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_encode_sorted = json.JSONEncoder(separators=(",", ":"), sort_keys=True, check_circular=False).encode


class JournalError(IntercomError):
    """The journal cannot be read or written. A call that cannot be recorded is not sent."""

    code = "file_error"


@frozen
class Invocation:
    """The record of one call of a downstream's tool.

    `at` is when it began. `run_id` is the session, `tool` the downstream, `method` its tool, `call` the name that the
    agent's client gave the call. `args_hmac` are 64 hexadecimal digits: equal arguments have equal ones, and without
    this server's key nobody can try arguments against it. `request_id` is that of the request that a person decided.
    `status` and `seconds` are None while the call runs. `sent` says that the downstream may have received it; a
    `cached` result was not asked of it. `cost` is in millionths.
    """

    id: str
    at: datetime
    run_id: str
    agent_id: str
    agent_role: str
    tool: str
    method: str
    args_hmac: str
    call: str | None = None
    request_id: str | None = None
    sent: bool = False
    cached: bool = False
    cost: int = 0
    redaction_applied: bool = False
    seconds: float | None = None
    status: InvocationStatus | None = None
    error_message: str | None = None

    def record(self) -> JsonObject:
        """Return the record as the journal and the audit log have it."""
        return {
            "id": self.id,
            "at": clock.to_text(self.at),
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "agent_role": self.agent_role,
            "tool": self.tool,
            "method": self.method,
            "args_hmac": self.args_hmac,
            "call": self.call,
            "request_id": self.request_id,
            "sent": self.sent,
            "cached": self.cached,
            "cost": self.cost,
            "redaction_applied": self.redaction_applied,
            "seconds": self.seconds,
            "status": None if self.status is None else self.status.value,
            "error_message": self.error_message,
        }

    @staticmethod
    def of(record: Mapping[str, Json]) -> Invocation:
        """Return the invocation of a record. Raises ValueError if it is not what `record` returns."""
        try:
            at, status, seconds = record["at"], record["status"], record["seconds"]
            if not isinstance(at, str) or not isinstance(seconds, str | int | float | None):
                raise TypeError("a time of another type")
            make: Callable[..., Invocation] = Invocation
            found = make(
                at=clock.from_text(at),
                status=None if status is None else InvocationStatus(str(status)),
                seconds=None if seconds is None else float(seconds),
                **{name: record[name] for name in _PLAIN},
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError("this is not the record of a call") from error
        if any(not isinstance(getattr(found, name), kind) for name, kind in _PLAIN.items()):
            raise ValueError("a field of this record has a value of another type")
        if not 0 <= found.cost <= _MOST_COST or not 0 <= (found.seconds or 0) <= _MOST_SECONDS:
            raise ValueError("the cost or duration in this record is out of range")
        return found


#: Beyond these a record was not written by the server. NaN is out of range, too.
_MOST_COST: Final = 10**15
_MOST_SECONDS: Final = 1e9
_TEXT_OR_NONE: Final = (str, type(None))
#: The fields of an invocation that JSON has as they are.
_PLAIN: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("id", "run_id", "agent_id", "agent_role", "tool", "method", "args_hmac"), str),
    **dict.fromkeys(("call", "request_id", "error_message"), _TEXT_OR_NONE),
    "cost": int,
    **dict.fromkeys(("sent", "cached", "redaction_applied"), bool),
}


@frozen
class Earlier:
    """What is remembered of a call that an earlier server sent, to recognise that it is repeated."""

    id: str
    tool: str
    method: str
    args_hmac: str
    status: InvocationStatus


@frozen
class Recovery:
    """What the journal of earlier servers says.

    `unfinished` had begun and have no end. `unconfirmed` have ended, and no line says that the audit log has them; it
    may have them in an entry with an id above `through`. `recent` are the latest calls that were sent and have a name,
    by it; those without an end are `interrupted`. `is_torn`: a crash cut the last line short. `unreadable` counts other
    lines that are not ours.
    """

    unfinished: tuple[Invocation, ...] = ()
    unconfirmed: tuple[Invocation, ...] = ()
    through: int = 0
    recent: Mapping[str, Earlier] = field(factory=dict)
    is_torn: bool = False
    unreadable: int = 0


def arguments_key(file: Path) -> bytes:
    """Return the key of `arguments_hmac`, which belongs to this installation. Create the file if there is none.

    Call it while no other process may do so. Raises JournalError if the file is accessible to other users, holds no
    key, or cannot be created.
    """
    try:
        private_directory(str(file.parent))
        if not os.path.lexists(file):
            replace(file, f"{secrets.token_hex(_KEY_BYTES)}\n".encode("ascii"))
        key = bytes.fromhex(read_own(file, private=True).decode("ascii"))
    except OSError as error:
        raise JournalError(f"cannot keep the key file {file} ({_reason(error)}): check its directory") from None
    except ConfigError as fault:
        raise JournalError(f"{fault.message}; without it a new key is made") from None
    except IntercomError as fault:
        raise JournalError(fault.message) from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise JournalError(f"{file} does not hold a key: remove it, and a new one is made")
    return key


def arguments_hmac(key: bytes, arguments: object) -> str:
    """Return 64 hexadecimal digits: HMAC-SHA256 over canonical JSON (ASCII, sorted keys, no spaces).

    Raises InvalidArguments if the arguments are not JSON, or nested too deeply.
    """
    try:
        text = _encode_sorted(arguments)
    except (TypeError, ValueError):
        raise InvalidArguments("the arguments are not JSON; nothing was sent") from None
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deeply; nothing was sent") from None
    return hmac.digest(key, text.encode("ascii"), "sha256").hex()


class Journal:
    """The journal at `file`, written by one process at a time. Call `recover` first, and `close` at the end.

    The methods are not for several threads at once. They block for the time of a write to the page cache.
    """

    def __init__(self, file: Path, *, full: int = FULL, kept: int = KEPT) -> None:
        self._file = file
        self._full = full
        self._kept = kept
        self._lock = -1
        self._descriptor = -1
        self._size = 0
        self._starts_line = True
        #: The lines of the calls that the audit log may lack, by id: those that a new file begins with.
        self._unrecorded: dict[str, bytes] = {}

    @property
    def file(self) -> Path:
        return self._file

    def recover(self) -> Recovery:
        """Lock the journal, read what earlier servers have written, and open it for writing.

        Takes about half a second for 10,000 calls: run it in a thread. Raises JournalError if another process has the
        journal, or a file cannot be used. The journal is closed then, and may be recovered later.
        """
        self.close()
        try:
            private_directory(str(self._file.parent))
            self._take_lock()
            files = [path for path in (*reversed(self._older()), self._file) if os.path.lexists(path)]
            found = _Reading()
            # The last file has all calls that the audit log may lack, the one before it the other recent ones.
            for path in files[-2:]:
                found.read(_content(path))
            self._unrecorded = {
                id: _line("begun" if each.status is None else "finished", each) for id, each in found.unrecorded.items()
            }
            self._open()
        except OSError as error:
            self.close()
            raise self._cannot("be used", error) from None
        except IntercomError as fault:
            self.close()
            raise fault if isinstance(fault, JournalError) else JournalError(fault.message) from None
        return found.recovery()

    def begin(self, invocation: Invocation) -> None:
        """Write that a call is about to be sent. Raises JournalError if it cannot be written: do not send it then."""
        line = _line("begun", invocation)
        self._write(line)
        self._unrecorded[invocation.id] = line

    def finish(self, invocation: Invocation) -> None:
        """Write that a call has ended; it need not have begun. Raises JournalError if it cannot be written."""
        line = _line("finished", invocation)
        self._unrecorded[invocation.id] = line
        self._write(line)

    def confirm(self, ids: Iterable[str], through: int) -> None:
        """Write that the audit log has these ended calls, the newest in entry `through`. Then begin a new file if this
        one is full, or not in its place any more.

        Raises JournalError if that cannot be written. No call is lost by it: some may be looked up again at the next
        start.
        """
        named = list(ids)
        for id in named:
            self._unrecorded.pop(id, None)
        self._write(_encode({"event": "recorded", "through": through, "ids": named}).encode("ascii") + b"\n")
        try:
            if not self._is_in_place():
                self._begin_file(through, keep_old=False)
            elif self._size >= self._full:
                self._begin_file(through, keep_old=True)
        except OSError as error:
            raise self._cannot("be begun again", error) from None

    def close(self) -> None:
        """Close the files. A second call has no effect."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1

    # The files

    def _take_lock(self) -> None:
        lock = os.open(
            self._file.with_name(f"{self._file.name}.lock"),
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise JournalError(
                f"another server writes the journal {self._file}: stop it, or use another state directory"
            ) from None
        self._lock = lock

    def _older(self) -> list[Path]:
        """Return the names of the full files, newest first."""
        return [self._file.with_name(f"{self._file.name}.{number}") for number in range(1, self._kept + 1)]

    def _open(self) -> None:
        descriptor = os.open(
            self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600
        )
        try:
            self._size = _check(self._file, descriptor)
            self._starts_line = not self._size or os.pread(descriptor, 1, self._size - 1) == b"\n"
        except BaseException:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor

    def _is_in_place(self) -> bool:
        try:
            found = os.stat(self._file, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _begin_file(self, through: int, *, keep_old: bool) -> None:
        """Put a new file in place, with the lines of all calls that are not recorded. If it fails, the journal goes on
        in the old file."""
        mark = _encode({"event": "recorded", "through": through, "ids": []}).encode("ascii") + b"\n"
        draft = self._file.with_name(f".{self._file.name}.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(mark + b"".join(self._unrecorded.values()))
        if keep_old:
            names = [self._file, *self._older()]
            for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                if os.path.lexists(newer):
                    os.rename(newer, older)
        os.rename(draft, self._file)
        self._open()

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise JournalError(f"the journal {self._file} is not open: the server is starting or stopping")
        # After a line that was cut short, an empty one: so that only that line is lost.
        data = line if self._starts_line else b"\n" + line
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise self._cannot("be written", error) from None
        self._size += written
        self._starts_line = written == len(data)
        if not self._starts_line:
            raise JournalError(f"the journal {self._file} cannot be written (the disk is full): free some space")

    def _cannot(self, what: str, error: OSError) -> JournalError:
        return JournalError(f"the journal {self._file} cannot {what} ({_reason(error)}): check its directory and disk")


# --- reading ---------------------------------------------------------------------------------------------------------


class _Reading:
    """The state of the journal, made by reading its files, oldest first."""

    def __init__(self) -> None:
        self.unrecorded: dict[str, Invocation] = {}
        self._recorded: set[str] = set()
        self._recent: OrderedDict[str, Earlier] = OrderedDict()
        #: The calls that began and were refused before they were sent.
        self._unsent: set[str] = set()
        self._through = 0
        self._is_torn = False
        self._unreadable = 0

    def read(self, content: bytes) -> None:
        lines = content.split(b"\n")
        self._is_torn = bool(lines[-1])
        for line in filter(None, lines[:-1]):
            try:
                self._take(line)
            except (ValueError, TypeError, KeyError, RecursionError):
                self._unreadable += 1

    def _take(self, line: bytes) -> None:
        found = json.loads(line)
        event = found["event"]
        if event == "recorded":
            self._through = int(found["through"])
            for id in found["ids"]:
                self._recorded.add(id)
                self.unrecorded.pop(id, None)
            return
        invocation = Invocation.of(found)
        if event not in ("begun", "finished") or (event == "finished") != (invocation.status is not None):
            raise ValueError("the event of this line does not fit its record")
        if invocation.id not in self._recorded:
            # A new file repeats lines: the end of a call may precede its beginning.
            known = self.unrecorded.get(invocation.id)
            if known is None or known.status is None:
                self.unrecorded[invocation.id] = invocation
        if invocation.call is None:
            return
        if event == "finished" and not invocation.sent:
            self._forget(invocation.call, invocation.id)
        elif invocation.sent and invocation.id not in self._unsent:
            self._remember(invocation.call, invocation)

    def _forget(self, call: str, id: str) -> None:
        """A repetition of a call that was not sent is a first time."""
        self._unsent.add(id)
        known = self._recent.get(call)
        if known is not None and known.id == id:
            del self._recent[call]

    def _remember(self, call: str, invocation: Invocation) -> None:
        known = self._recent.get(call)
        if known is not None and known.id == invocation.id and invocation.status is None:
            return
        status = invocation.status or InvocationStatus.INTERRUPTED
        names = invocation.id, intern(invocation.tool), intern(invocation.method), invocation.args_hmac
        self._recent[call] = Earlier(*names, status)
        self._recent.move_to_end(call)
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def recovery(self) -> Recovery:
        found = self.unrecorded.values()
        return Recovery(
            tuple(each for each in found if each.status is None),
            tuple(each for each in found if each.status is not None),
            self._through,
            self._recent,
            self._is_torn,
            self._unreadable,
        )


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if _check(path, descriptor) > _LARGEST:
            raise JournalError(f"{path} is larger than any that the server writes: move it aside")
        return file.read(_LARGEST)


def _check(path: Path, descriptor: int) -> int:
    """Return the size of a file of this user alone. Raises JournalError for any other."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise JournalError(f"{path} is not a file of yours alone: run chmod 600 on it, or move it aside")
    return found.st_size


def _line(event: str, invocation: Invocation) -> bytes:
    record = invocation.record()
    if event == "begun":
        record["sent"] = True
    return _encode({"event": event, **record}).encode("ascii") + b"\n"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
