"""The file that holds the credentials where a machine has no keychain: private to the user, or it is not read."""

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
    """What the file holds by name; empty when there is none.

    Raises SlackError when it is a link, another user's, open to others, or holds something else.
    """
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
    """Write the file anew, mode 0600, all of it or nothing. Empty values are left out.

    Raises IpcError when its directory is not the user's alone, OSError when it can not be written.
    """
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
    """Delete the file; returns whether there was one. Raises OSError when it can not be deleted."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _judge(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise SlackError(f"{path} is not a file of yours: remove it, and log in to Slack again")
    if found.st_mode & 0o077:
        # What others could read has to count as known to them.
        raise SlackError(
            f"{path} is open to other users (mode {found.st_mode & 0o777:o}): run chmod 600 on it, and if others"
            " use this machine, make new tokens"
        )
