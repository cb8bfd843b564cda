"""A database as this program makes it, without the time that its migrations take."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from intercom.store.database import make_private, open_database


def new_database(path: Path) -> None:
    """Put an empty database of the newest schema at `path`, unless there is a file: migrations run once a process."""
    if not path.exists():
        make_private(path)
        path.write_bytes(_made())


@functools.cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "new.db"
        # Closed, its log is in the file.
        open_database(file).db.close()
        return file.read_bytes()
