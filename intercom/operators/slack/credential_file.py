"""The credentials file for a machine without a keychain. It is read only if it is private to the user."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from intercom.local.places import private_directory
from intercom.model.errors import SlackError


def read(path: Path) -> dict[str, str]:
    """Return the credentials by name; empty if there is no file. Raises SlackError if the file is a link, belongs to
    another user, is open to others, or has other content."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SlackError(f"{path} can not be read ({(error.strerror or '').lower()}): log in to Slack again") from None
    try:
        _judge(path, os.fstat(handle))
        with open(handle, "rb", closefd=False) as stream:
            held = json.load(stream)
    except ValueError:
        held = None
    finally:
        os.close(handle)
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        raise SlackError(f"{path} holds no credentials: remove it, and log in to Slack again")
    return held


def write(path: Path, values: Mapping[str, str]) -> None:
    """Write the file with mode 0600, atomically. Empty values are omitted. Raises IpcError if its directory is not
    private to the user, OSError if it cannot be written."""
    private_directory(str(path.parent))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({name: value for name, value in values.items() if value}, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def remove(path: Path) -> bool:
    """Delete the file and return whether it existed. Raises OSError if it cannot be deleted."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _judge(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise SlackError(f"{path} is not a file of yours: remove it, and log in to Slack again")
    if found.st_mode & 0o077:
        # Credentials that others could read must count as known to them.
        raise SlackError(
            f"{path} is open to other users (mode {found.st_mode & 0o777:o}): run chmod 600 on it, and if others"
            " use this machine, make new tokens"
        )
