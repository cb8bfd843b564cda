"""The messages that the store's writer accepts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from attrs import frozen

# Re-exported: authors of `work` functions import the type from here, so they do not depend on the library.
from sqlite_utils import Database as Database

from actors import Request

R = TypeVar("R")


@frozen
class Transact(Request[R], Generic[R]):
    """A request to run `work(db)` in the writer's transaction and return its result once that is on disk.

    `work` runs in the writer's thread. It must be quick, must not begin, commit or roll back, and returns plain data.

    - An IntercomError or Refused from `work` undoes this work alone and is raised to the caller.
    - DatabaseError: the database cannot be written (disk full, locked, no permission, damaged). Nothing was written.
    - InvalidArguments: SQLite cannot store a text or number.
    - Any other exception is a bug in `work`. It is undone and logged, and the caller gets Down.
    """

    work: Callable[[Database], R]


@frozen
class Touch:
    """A notification that a session's agent was active at `at` and called `last_tool`. Only the latest of each
    session is kept. It is written with the next commit, about a second later at most. A crash may lose it."""

    session_id: str
    at: datetime
    last_tool: str | None = None


@frozen
class Flush:
    """The writer's timer message: write the pending touches."""


@frozen
class Inspect:
    """A notification, sent every few seconds, to check whether other programs removed, replaced or cut the files."""
