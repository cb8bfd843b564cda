"""The token for MCP over HTTP. It is created on first use and never changed, because clients' files contain it.

Standard library only.
"""

from __future__ import annotations

import os
import secrets
import stat

from intercom.local.places import Places, private_directory
from intercom.model.errors import IpcError

#: A shorter token was not created here, and could be guessed.
_SHORTEST = 32


def token(where: Places) -> str:
    """Return the token of this user, text without spaces. Create it if there is none.

    Raises IpcError if the file is accessible to other users, holds no token, or cannot be created.
    """
    path = where.http_token_file
    try:
        private_directory(os.path.dirname(path))
        try:
            return _read(path)
        except FileNotFoundError:
            _make(path)
            return _read(path)
    except OSError as error:
        raise IpcError(f"cannot keep the token file {path} ({error.strerror}): check its directory") from None


def keep(where: Places, token: str) -> str | None:
    """Restore the token's file if it was removed, because clients' files contain this token.

    Returns a message, or None if there was nothing to do. An existing file is never changed. Raises IpcError if the
    file cannot be written.
    """
    path = where.http_token_file
    if os.path.lexists(path):
        return None
    try:
        private_directory(os.path.dirname(path))
        _make(path, token)
    except OSError as error:
        raise IpcError(f"cannot keep the token file {path} ({error.strerror}): check its directory") from None
    return f"the token file {path} was gone; it was written again"


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise IpcError(f"{path} is not a file of yours alone: run chmod 600 on it, or remove it for a new token")
        text = file.read(1000).strip()
    if len(text) < _SHORTEST or not text.isascii() or not text.isprintable() or " " in text:
        raise IpcError(f"{path} does not hold a token: remove it, and a new one is made")
    return text


def _make(path: str, token: str | None = None) -> None:
    """Write this token, or a new one. If another process does so at the same moment, its token is kept."""
    draft = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)
            file.write((token or secrets.token_hex(32)) + "\n")
            file.flush()
            os.fsync(descriptor)
        # A link instead of a rename: the first process wins, and no reader sees a partial token.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
