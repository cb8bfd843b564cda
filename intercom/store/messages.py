"""The protocol of the store's writer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from attrs import frozen

# What `work` gets. Whoever writes work for the store names the type by this module, and no library.
from sqlite_utils import Database as Database

from actors import Request

R = TypeVar("R")


@frozen
class Transact(Request[R], Generic[R]):
    """Ask: run `work(db)` in the writer's transaction, all or nothing, and answer with what it returned once that is on
    disk.

    `work` runs in the writer's thread, must be quick, must not begin, commit or roll back, and returns a plain value.
    An IntercomError or Refused that it raises undoes this work alone and is the answer. The answer is a DatabaseError,
    and nothing was written, when the database can not be written (disk full, locked, no permission, damaged); and
    InvalidArguments for text or a number that SQLite can not hold. Any other exception is a mistake in `work`: it is
    undone and logged, and the asker gets Down.
    """

    work: Callable[[Database], R]


@frozen
class Touch:
    """Tell, never ask: the agent of a session was heard of at `at`, calling `last_tool`.

    Only the latest of a session is kept. It is written with the next commit, or about a second later at most; a crash
    may lose it.
    """

    session_id: str
    at: datetime
    last_tool: str | None = None


@frozen
class Flush:
    """The writer's reminder to itself to write what it was told."""


@frozen
class Inspect:
    """Tell: look at the database's files, which other programs may have removed, replaced or cut. Sent every few
    seconds."""
