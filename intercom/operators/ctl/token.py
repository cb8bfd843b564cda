"""The token file: the secret that a client of the local socket must present, besides having the same user id."""

from __future__ import annotations

import os
import secrets
import stat

from intercom.local.places import private_directory
from intercom.model.errors import IpcError


def new_token() -> str:
    """Return a random token of 64 hex digits."""
    return secrets.token_hex(32)


def write_token(path: str, token: str) -> None:
    """Write `token` to `path` with mode 0600, atomically; an earlier file is replaced. Raises IpcError if the directory
    is not private to this user or cannot be written."""
    try:
        private_directory(os.path.dirname(path))
        # A temporary file is renamed: no reader sees half a token, and a link at `path` is replaced, not followed.
        draft = f"{path}.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)
            file.write(token + "\n")
        os.replace(draft, path)
    except OSError as error:
        raise IpcError(f"can not write the token file {path} ({error.strerror}): check its directory") from None


def keep_token(path: str, token: str) -> str | None:
    """Write the token again if its file was removed, changed, or is not private to this user. Returns a sentence about
    it; None if nothing had to be done. Raises IpcError as `write_token`."""
    found = _token_at(path)
    if found == token:
        return None
    write_token(path, token)
    what = "was gone" if found is None else "did not hold this server's token"
    return f"the token file {path} {what}; it was written again"


def _token_at(path: str) -> str | None:
    """Read the token file; None if there is none, "" if it is not a private regular file of this user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return ""
        return file.read(1024).strip()
