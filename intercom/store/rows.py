"""Rows and values: how enumerations, instants and JSON are written down, and the few shapes of query used everywhere.

Reads go straight to `execute`: the library's `query` wraps each in a savepoint, and its `insert` looks the table's
shape up every time.
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
    """Insert one row; False when the conflict clause left an earlier one in place.

    A row whose id is there already stays as it is, so that asking again after a lost answer does no harm.
    """
    columns = ", ".join(row)
    named = ", ".join(f":{name}" for name in row)
    sql = f"insert into {table} ({columns}) values ({named}) on conflict {conflict}"
    return changed(db, sql, row)


def one(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
    """The first row of a query, or None."""
    cursor = db.execute(sql, _bound(values))
    found = cursor.fetchone()
    return None if found is None else dict(zip(_columns(cursor.description), found, strict=True))


def every(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
    """All rows of a query."""
    cursor = db.execute(sql, _bound(values))
    columns = _columns(cursor.description)
    return [dict(zip(columns, found, strict=True)) for found in cursor.fetchall()]


def column(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """The first column of all rows of a query."""
    return [found[0] for found in db.execute(sql, _bound(values)).fetchall()]


def count(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
    """The number a `select count(*)` gives."""
    return int(db.execute(sql, _bound(values)).fetchone()[0])


def changed(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> bool:
    """Whether a write touched a row: the answer of every compare-and-set."""
    return affected(db, sql, values) > 0


def affected(db: Database, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
    """How many rows a write touched."""
    return db.execute(sql, _bound(values)).rowcount


def ids_with_prefix(db: Database, table: str, prefix: str, limit: int = 50) -> tuple[str, ...]:
    """The ids in a table that begin with `prefix` (taken literally), sorted, at most `limit`. A range on the primary
    key, so `%` and `_` mean themselves."""
    sql = f"select id from {table} where id >= ? and id < ? || char(1114111) order by id limit ?"
    return tuple(column(db, sql, (prefix, prefix, limit)))


def time_text(at: datetime | None) -> str | None:
    return None if at is None else clock.to_text(at)


def time_value(text: str | None) -> datetime | None:
    return None if text is None else clock.from_text(text)


def json_text(value: Any) -> str:
    """Compact JSON in ASCII: an agent's text may hold half a surrogate pair, which UTF-8 can not carry."""
    return json.dumps(value, separators=(",", ":"))


def holders(values: Sequence[Any]) -> str:
    """`?, ?, ?` for an `in (...)`."""
    return ", ".join("?" * len(values))


def _columns(description: Sequence[Sequence[Any]]) -> list[str]:
    return [entry[0] for entry in description]


def _bound(values: Sequence[Any] | Mapping[str, Any]) -> Any:
    return dict(values) if isinstance(values, Mapping) else tuple(values)
