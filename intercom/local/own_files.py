"""Files that only this user writes, and the token for MCP over HTTP, which is one. Standard library only."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from intercom.local.places import Places, private_directory
from intercom.model.errors import ConfigError, IpcError

_MAX_FILE = 256 * 1024
#: A shorter token was not created here, and could be guessed.
_SHORTEST_TOKEN = 32


def read_own(path: Path, *, private: bool = False) -> bytes:
    """Read a file, not a link, that only its owner (this user or root) can write, or with `private` also read. Raises
    FileNotFoundError and ConfigError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}): it must be a file of yours, and no link"
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"{path} must be a file of yours: remove it")
        if found.st_mode & (0o077 if private else 0o022):
            raise ConfigError(f"{path} is open to other users: run chmod go-rwx on it")
        return file.read(_MAX_FILE)


def replace(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically."""
    with _draft(path, content, mode) as fresh:
        os.replace(fresh, path)


@contextlib.contextmanager
def _draft(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Write the content to a file beside `path`, which is gone at the end of the block."""
    fresh = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield fresh
    finally:
        with contextlib.suppress(OSError):
            os.unlink(fresh)


def http_token(where: Places) -> str:
    """Return the HTTP token of this user, text without spaces. Create it if there is none; it is never changed, because
    clients' files contain it.

    Raises IpcError if the file is accessible to other users, holds no token, or cannot be created.
    """
    path = Path(where.http_token_file)
    try:
        private_directory(str(path.parent))
        if not os.path.lexists(path):
            _create_token(path, secrets.token_hex(32))
        text = read_own(path, private=True).decode("ascii", "replace").strip()
    except OSError as error:
        raise IpcError(_cannot_keep(path, error)) from None
    except ConfigError as fault:
        raise IpcError(f"{fault.message}; without it a new token is made") from None
    if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise IpcError(f"{path} does not hold a token: remove it, and a new one is made")
    return text


def keep_http_token(where: Places, token: str) -> str | None:
    """Restore the token's file if it was removed, because clients' files contain this token.

    Returns a message, or None if there was nothing to do. An existing file is never changed. Raises IpcError if the
    file cannot be written.
    """
    path = Path(where.http_token_file)
    if os.path.lexists(path):
        return None
    try:
        _create_token(path, token)
    except OSError as error:
        raise IpcError(_cannot_keep(path, error)) from None
    return f"the token file {path} was gone; it was written again"


def _create_token(path: Path, token: str) -> None:
    """Write this token. If another process does so at the same moment, its token is kept."""
    private_directory(str(path.parent))
    # A link instead of a rename: the first process wins, and no reader sees a partial token.
    with _draft(path, f"{token}\n".encode("ascii"), 0o600) as fresh, contextlib.suppress(FileExistsError):
        os.link(fresh, path)


def _cannot_keep(path: Path, error: OSError) -> str:
    return f"cannot keep the token file {path} ({error.strerror}): check its directory"
