"""Counts the functions of `intercom` that this process enters, between two points."""

from __future__ import annotations

import inspect
import json
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

_ROOT = str(Path(__file__).resolve().parents[2]) + "/"
_PRODUCT = f"{_ROOT}intercom/"

#: When each function was entered first, by the clock that all processes share; None while nothing is counted. A
#: function is its file, its first line and its qualified name.
_entered: dict[tuple[str, int, str], int] | None = None


def install() -> None:
    """Trace this thread, and every one that starts from now on: a thread cannot be traced from another one later."""
    threading.settrace(_trace)
    sys.settrace(_trace)


def begin() -> None:
    """Count from now on, from nothing."""
    global _entered
    _entered = {}


def entered() -> str:
    """What was entered until now: a JSON list of file, first line, name and time."""
    found = dict(_entered or {})
    return json.dumps([[file.removeprefix(_ROOT), line, name, at] for (file, line, name), at in found.items()])


def listen(place: Path) -> None:
    """Let other processes `tell` this one, at this socket."""
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as lines:
                if lines.readline() == "begin\n":
                    begin()
                lines.write(entered() + "\n")

    threading.Thread(target=serve, name="walks", daemon=True).start()


def tell(place: Path, word: str) -> str:
    """Say `begin` or `entered` to the process that listens there. Returns what it has entered since it began."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place))
        with connection.makefile("rw") as lines:
            lines.write(word + "\n")
            lines.flush()
            return lines.readline()


def _trace(frame: FrameType, event: str, argument: object) -> None:
    # Called when a function begins or a coroutine goes on; as it returns None, no line is traced.
    found = _entered
    if found is None:
        return
    code = frame.f_code
    if not code.co_filename.startswith(_PRODUCT) or code.co_name.startswith("<"):
        return
    key = (code.co_filename, code.co_firstlineno, code.co_qualname)
    # The body of a class has no fast locals.
    if key not in found and code.co_flags & inspect.CO_OPTIMIZED and not _is_import(frame):
        found[key] = time.monotonic_ns()


def _is_import(frame: FrameType | None) -> bool:
    """Whether a module that is being loaded calls this."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False
