"""The token for MCP over HTTP: made once, by whoever needs it first, and kept for good, since clients' files hold it.

Standard library only.
"""

from __future__ import annotations

import os
import secrets
import stat

from intercom.local.places import Places, private_directory
from intercom.model.errors import IpcError

#: A token that is shorter was not made here, and could be guessed.
_SHORTEST = 32


def token(where: Places) -> str:
    """The token of this user, made if there is none yet; text without spaces.

    Raises IpcError when the file is not this user's alone, holds no token, or can not be made.
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
        raise IpcError(f"can not keep the token file {path} ({error.strerror}): check its directory") from None


def keep(where: Places, token: str) -> str | None:
    """Put the token back if its file was removed, so that clients' files go on holding the right one; a sentence about
    it, None where nothing had to be done. A file that is there is its user's business.

    Raises IpcError when it can not be written.
    """
    path = where.http_token_file
    if os.path.lexists(path):
        return None
    try:
        private_directory(os.path.dirname(path))
        _make(path, token)
    except OSError as error:
        raise IpcError(f"can not keep the token file {path} ({error.strerror}): check its directory") from None
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
    """Put this token there, or a new one, unless somebody else does at this moment: then theirs stands."""
    draft = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)
            file.write((token or secrets.token_hex(32)) + "\n")
            file.flush()
            os.fsync(descriptor)
        # A link and no rename: the first who makes one wins, and nobody meets half a token.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
