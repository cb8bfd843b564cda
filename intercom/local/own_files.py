"""The user's own files and directories, independent of the environment. Standard library only.

Files that only this user writes; the token for MCP over HTTP is one. Files with a secret that is shared with other
programs. And the directories of configuration and state: an agent's client chooses the environment of its relay, and of
the server that the relay starts. So only two kinds of them count: those in the system's home directory of the user, and
those that a recognised operator has used. A file in that home directory lists the latter.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from intercom.local.places import APP, Places, places, private_directory, system_home
from intercom.model.errors import ConfigError, IpcError

_MAX_FILE = 256 * 1024
#: A shorter token was not created here, and could be guessed.
_SHORTEST_TOKEN = 32


def read_own(path: Path, *, private: bool = False) -> bytes:
    """Read a file, not a link, that only its owner (this user or root) can write; with `private`, that only this user
    can write and read. Raises FileNotFoundError and ConfigError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): it must be a file of yours, not a link") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        owners = {os.geteuid()} if private else {0, os.geteuid()}
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners:
            raise ConfigError(f"{path} must be a file of yours: remove it")
        if found.st_mode & (0o077 if private else 0o022):
            raise ConfigError(f"{path} is open to other users: run chmod go-rwx on it")
        return file.read(_MAX_FILE)


def read_shared(path: Path) -> bytes:
    """Read a file with a secret that this user shares with programs of others: it is this user's or root's, no other
    user can change it, and none can read it, except those of its group. A directory that keeps others out protects
    what is in it. A link is followed, because containers give secrets as links. Raises ConfigError and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"{path} must be a file of yours or root's: remove it, and write a new secret")
        if (found.st_mode & 0o022 and not _is_closed(path, 0o011)) or (
            found.st_mode & 0o004 and not _is_closed(path, 0o001)
        ):
            raise ConfigError(
                f"{path} is open to other users: run chmod go-rwx on it, or chmod 640 if its group has to read it, and"
                " write a new secret"
            )
        return file.read(_MAX_FILE)


def _is_closed(path: Path, bits: int) -> bool:
    """Whether a directory above this file lets in nobody of those whom `bits` stand for."""
    directories = (os.stat(each) for each in Path(os.path.realpath(path)).parents)
    return any(not each.st_mode & bits and each.st_uid in (0, os.geteuid()) for each in directories)


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
            create(path, _token_file(secrets.token_hex(32)))
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
        create(path, _token_file(token))
    except OSError as error:
        raise IpcError(_cannot_keep(path, error)) from None
    return f"the token file {path} was gone; it was written again"


def create(path: Path, content: bytes) -> None:
    """Write a private file, and its directory. If another process does so at the same moment, its content is kept.
    Raises OSError."""
    private_directory(str(path.parent))
    # A link instead of a rename: the first process wins, and no reader sees a partial file.
    with _draft(path, content, 0o600) as fresh, contextlib.suppress(FileExistsError):
        os.link(fresh, path)


def _token_file(token: str) -> bytes:
    return f"{token}\n".encode("ascii")


def _cannot_keep(path: Path, error: OSError) -> str:
    return f"cannot keep the token file {path} ({error.strerror}): check its directory"


# --- directories -----------------------------------------------------------------------------------------------------

#: How long another program may hold the lock of the list, in seconds: to change the list takes a millisecond.
_PATIENCE = 5.0
_HEAD = "# Directories of agent-intercom that its user has used, one a line.\n"


def default_places() -> Places | None:
    """Return the places of the user with an empty environment, or None for a uid unknown to the system."""
    home = system_home()
    return None if home is None else places(environ={"HOME": home})


def directories_file() -> Path | None:
    """Return the path of the list, or None for a uid unknown to the system."""
    home = system_home()
    return None if home is None else Path(home, ".local", "state", APP, "own-directories")


def own_directories() -> tuple[frozenset[str], str]:
    """Return the user's own directories and the fault of the list, or "". A list with a fault counts as empty."""
    default = default_places()
    if default is None:
        return frozenset(), ""
    found = {os.path.dirname(default.config_file), default.state_dir}
    try:
        return frozenset(found | _listed()), ""
    except ConfigError as fault:
        return frozenset(found), fault.message


def is_own(directory: str, own: frozenset[str]) -> bool:
    """Whether this directory is one of `own`, under any name."""
    real = os.path.realpath(directory)
    return any(os.path.realpath(each) == real for each in own)


def is_own_config(file: str, own: frozenset[str]) -> bool:
    """Whether this is the configuration file in one of `own`, under any name."""
    real = os.path.realpath(file)
    return any(os.path.realpath(os.path.join(each, "config.toml")) == real for each in own)


def operator_keys_files() -> tuple[Path, ...]:
    """Return the paths of operator keys files in the user's own directories. The files need not exist."""
    return tuple(Path(each, "operator-keys") for each in sorted(own_directories()[0]))


def record_directories(*directories: str) -> None:
    """Add directories to the user's own, and drop those that no longer exist. The caller has recognised an operator.

    Those that do not exist yet are made: the next caller would drop them. Raises ConfigError if the list is damaged or
    locked, and OSError if it cannot be written, or a directory cannot be made.
    """
    known = own_directories()[0]
    fresh = {each for each in directories if not is_own(each, known)}
    if not fresh:
        return
    for each in fresh:
        Path(each).mkdir(0o700, parents=True, exist_ok=True)
    with _changing() as listed:
        _write({each for each in listed if os.path.isdir(each)} | fresh)


def forget_directories(*directories: str) -> None:
    """Remove directories from the list. Raises as `record_directories` does."""
    if not _listed() & set(directories):
        return
    with _changing() as listed:
        _write(listed - set(directories))


@contextlib.contextmanager
def _changing() -> Iterator[set[str]]:
    """Yield what is listed; nobody else changes the list meanwhile."""
    file = directories_file()
    if file is None:
        raise ConfigError("this uid has no passwd entry: its own directories cannot be recorded")
    directory = os.open(private_directory(str(file.parent)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The list is replaced as a whole, so a lock on the file itself would be one on an old file.
        _lock(directory, file)
        yield _listed()
    finally:
        os.close(directory)


def _lock(directory: int, file: Path) -> None:
    """Lock the list's directory. Raises ConfigError if another program holds it for long: any one of the user's can."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise ConfigError(
                    f"another program keeps {file.parent} locked: see which with lslocks, end it, and try again"
                ) from None
            time.sleep(0.01)


def _listed() -> set[str]:
    file = directories_file()
    try:
        text = "" if file is None else read_own(file, private=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return set()
    return {line for line in text.splitlines() if os.path.isabs(line)}


def _write(directories: set[str]) -> None:
    file = directories_file()
    assert file is not None, "there is a list"
    kept = sorted(each for each in directories if each.isprintable())
    replace(file, (_HEAD + "".join(f"{each}\n" for each in kept)).encode("utf-8"))
