"""The token file: what a client of the local socket must know besides being the same user."""

from __future__ import annotations

import os
import secrets
import stat

from intercom.local.places import private_directory
from intercom.model.errors import IpcError


def new_token() -> str:
    """A token no one can guess, as 64 hex digits."""
    return secrets.token_hex(32)


def write_token(path: str, token: str) -> None:
    """Put `token` at `path` with mode 0600, whole or not at all, in place of what an earlier server left.

    Raises IpcError when the directory is not this user's alone, or can not be written.
    """
    try:
        private_directory(os.path.dirname(path))
        # Written beside and renamed: a reader never meets half a token, and a link at `path` is replaced, not followed.
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
    """Write the token again if its file was removed, changed, or is not this user's alone; a sentence about it, None
    where nothing had to be done. Raises IpcError as `write_token`."""
    found = _token_at(path)
    if found == token:
        return None
    write_token(path, token)
    what = "was gone" if found is None else "did not hold this server's token"
    return f"the token file {path} {what}; it was written again"


def _token_at(path: str) -> str | None:
    """What the file holds; None where there is none, and "" for what is no file of this user alone."""
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
