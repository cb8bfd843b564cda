"""Classification of SQLite errors: refusals with advice for people, and bugs in our own queries."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from intercom.model.errors import DatabaseError

_CODE = {
    "busy": sqlite3.SQLITE_BUSY,
    "locked": sqlite3.SQLITE_LOCKED,
    "full": sqlite3.SQLITE_FULL,
    "readonly": sqlite3.SQLITE_READONLY,
    "perm": sqlite3.SQLITE_PERM,
    "auth": sqlite3.SQLITE_AUTH,
    "cantopen": sqlite3.SQLITE_CANTOPEN,
    "ioerr": sqlite3.SQLITE_IOERR,
    "corrupt": sqlite3.SQLITE_CORRUPT,
    "notadb": sqlite3.SQLITE_NOTADB,
}


def refusal(error: sqlite3.Error, path: Path) -> DatabaseError | None:
    """Return the error that tells people what is wrong with the database at `path` and what to do. Returns None if
    the query is at fault, not the database: that is a bug in the program."""
    code = _primary(error)
    if code in (_CODE["busy"], _CODE["locked"]):
        words = f"the database {path} is locked by another program; close that program and try again"
    elif code == _CODE["full"]:
        words = f"the disk of the database {path} is full; free some space and try again, nothing was written"
    elif code in (_CODE["readonly"], _CODE["perm"], _CODE["auth"]):
        words = f"no permission to write the database {path}; make the file and its directory writable for this user"
    elif code == _CODE["cantopen"]:
        words = f"the database {path} can not be opened; check that its directory exists and this user may write there"
    elif code == _CODE["ioerr"]:
        words = f"the disk of the database {path} failed while reading or writing ({error}); check the disk"
    elif damaged(error):
        words = f"the database {path} is damaged; restart the server, which moves it aside and begins a new one"
    else:
        return None
    return DatabaseError(words, path=str(path))


def damaged(error: sqlite3.Error) -> bool:
    """Whether the error says that the file is not a sound database."""
    return _primary(error) in (_CODE["corrupt"], _CODE["notadb"])


def lasting(error: sqlite3.Error) -> bool:
    """Whether the error (no space, no permission, no disk) persists until somebody repairs the cause."""
    names = ("full", "readonly", "perm", "auth", "cantopen", "ioerr")
    return _primary(error) in [_CODE[name] for name in names]


def _primary(error: sqlite3.Error) -> int | None:
    # Extended codes keep the primary code in the low byte.
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
