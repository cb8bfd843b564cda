"""Conversion of values to columns, and the few query shapes used everywhere.

The functions call `execute`: the library's `query` opens a savepoint, and its `insert` inspects the table every time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlite_utils import Database

from intercom.model import clock

Row = dict[str, Any]


def insert(db: Database, table: str, row: Mapping[str, Any], *, conflict: str = "(id) do nothing") -> bool:
    """Insert one row. Returns False if the conflict clause kept an earlier row. By default a row with an existing id
    is left as it is, so repeating a call after a lost answer is safe."""
    columns = ", ".join(row)
    named = ", ".join(f":{name}" for name in row)
    sql = f"insert into {table} ({columns}) values ({named}) on conflict {conflict}"
    return changed(db, sql, row)


def one(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
    """Return the first row of a query, or None."""
    cursor = db.execute(sql, _bound(values))
    found = cursor.fetchone()
    return None if found is None else dict(zip(_columns(cursor.description), found, strict=True))


def every(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
    """Return all rows of a query."""
    cursor = db.execute(sql, _bound(values))
    columns = _columns(cursor.description)
    return [dict(zip(columns, found, strict=True)) for found in cursor.fetchall()]


def column(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """Return the first column of all rows of a query."""
    return [found[0] for found in db.execute(sql, _bound(values)).fetchall()]


def count(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
    """Return the first value of a query as a number, such as a `select count(*)`."""
    return int(db.execute(sql, _bound(values)).fetchone()[0])


def changed(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> bool:
    """Whether a write changed any row: the result of every compare-and-set."""
    return affected(db, sql, values) > 0


def affected(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
    """Run a write and return how many rows it changed."""
    return db.execute(sql, _bound(values)).rowcount


def ids_with_prefix(db: Database, table: str, prefix: str, limit: int = 50) -> tuple[str, ...]:
    """Return the ids in a table that begin with the literal `prefix`, sorted, at most `limit`. The query is a range
    on the primary key, so `%` and `_` have no special meaning."""
    sql = f"select id from {table} where id >= ? and id < ? || char(1114111) order by id limit ?"
    return tuple(column(db, sql, (prefix, prefix, limit)))


def time_text(at: datetime | None) -> str | None:
    return None if at is None else clock.to_text(at)


def time_value(text: str | None) -> datetime | None:
    return None if text is None else clock.from_text(text)


def json_text(value: Any) -> str:
    """Return compact ASCII JSON. An agent's text may hold half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(value, separators=(",", ":"))


def holders(values: Sequence[Any]) -> str:
    """Return placeholders, `?, ?, ?`, for an `in (...)`."""
    return ", ".join("?" * len(values))


def _columns(description: Sequence[Sequence[Any]]) -> list[str]:
    return [entry[0] for entry in description]


def _bound(values: Sequence[Any] | Mapping[str, Any]) -> Any:
    return dict(values) if isinstance(values, Mapping) else tuple(values)
