"""Looking at a database without changing it: what version it has, and whether its pages hang together."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from attrs import frozen
from sqlite_utils import Database

from intercom.model.errors import DatabaseError
from intercom.store import faults, migrations


@frozen
class Examined:
    """`schema` is the database's, `latest` the one this program brings it to; `size` in bytes, with the log's."""

    schema: int
    latest: int
    size: int


def examine(path: str | os.PathLike[str]) -> Examined:
    """Look at the database `path`, which must exist; a server may be using it meanwhile.

    Raises DatabaseError, saying what to do: it can not be opened or read, is locked, damaged, another program's, or
    (code version_mismatch) of a newer schema.
    """
    file = Path(path)
    try:
        db = Database(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0))
        try:
            sound = db.execute("pragma quick_check(1)").fetchone()[0] == "ok"
            schema = migrations.version(db)
        finally:
            db.close()
    except sqlite3.Error as error:
        refused = faults.refusal(error, file)
        if refused is None:
            raise
        raise refused from error
    if not sound:
        raise DatabaseError(
            f"the database {file} is damaged; restart the server, which moves it aside and begins a new one",
            path=str(file),
        )
    if schema > migrations.LATEST:
        raise DatabaseError(
            f"the database {file} was written by a newer version (schema {schema}, this program knows"
            f" {migrations.LATEST}); upgrade agent-intercom or set [database] path to another file",
            code="version_mismatch",
        )
    log = file.with_name(file.name + "-wal")
    size = file.stat().st_size + (log.stat().st_size if log.exists() else 0)
    return Examined(schema, migrations.LATEST, size)
