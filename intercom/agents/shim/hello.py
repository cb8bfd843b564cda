"""The first messages between shim and server (docs/reference/shim-wire.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from intercom._version import __version__
from intercom.agents.shim.options import Options
from intercom.local.lines import decode, encode
from intercom.local.places import Places

#: The version of the shim protocol, which differs from the package's.
WIRE = 1


class Word(NamedTuple):
    """A control line: its kind and its value. `kind` is empty for any other line."""

    kind: str
    value: dict[str, Any]


def hello(
    shim: str, options: Options, where: Places | None, delivered: Sequence[str], agents: Sequence[str] = ()
) -> bytes:
    """Return a shim's first line. Without `where` it has no token, which a private server does not need."""
    config = None if options.config is None else os.path.abspath(options.config)
    said = {
        "wire": WIRE,
        "version": __version__,
        "shim": shim,
        "pid": os.getpid(),
        "client_pid": os.getppid(),
        "cwd": _directory(),
        "workspace": None if options.workspace is None else os.path.abspath(options.workspace),
        "channel": options.channel,
        "session": options.session_id,
        "config": config,
        "config_digest": None if config is None else _digest(config),
        "token": "" if where is None else _token(where.token_file),
        "delivered": list(delivered),
        "agents": list(agents),
    }
    if options.role != "shim":
        said["role"] = options.role
    return encode({"intercom": {"hello": said}})


def word(line: bytes) -> Word:
    """Read a control line."""
    try:
        said = decode(line)["intercom"]
        ((kind, value),) = said.items()
        return Word(str(kind), value if isinstance(value, dict) else {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return Word("", {})


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # the directory was removed; the server refuses "/" as a workspace, with a message


def _digest(path: str) -> str | None:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _token(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, encoding="ascii", errors="replace") as file:
        return file.read(4096).strip()
