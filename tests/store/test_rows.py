"""How values are stored: what stands in the columns, and what is read when another program wrote there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, NewType

import pytest
from attrs import evolve, field, frozen
from sqlite_utils import Database

from intercom.store.rows import Codec, Columns, Part, Table, one
from tests.store.cases import NOW

Name = NewType("Name", str)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@frozen
class Item:
    label: str
    at: datetime | None = None


@frozen
class Value:
    id: str
    name: Name
    colour: Colour
    size: Size
    is_new: bool
    at: datetime
    data: Mapping[str, Any]
    items: tuple[Item, ...] = ()
    item: Item | None = None
    number: int | None = None
    inode: int | None = None
    origin: Item | None = None
    end: Item | None = None
    notes: tuple[str, ...] = field(default=())


TABLE = Table(
    "thing",
    Value,
    names={"at": "created_at"},
    codecs={"inode": Codec(str, int)},
    parts={
        "origin": Part(Columns(Item, names={"label": "origin_label", "at": "origin_at"}), "origin_label"),
        "end": Part(
            Columns(Item, names={"label": "end_label", "at": "end_at"}),
            "ended",
            flag=True,
            missing={"end_label": "none"},
        ),
    },
    elsewhere={"notes": lambda _db, row: (f"of {row['id']}",)},
)
TIME = "2026-03-01T12:00:00.000000+00:00"
PLAIN = Value("v", Name("n"), Colour.RED, Size.LARGE, True, NOW, {"a": [1, "\ud83d"]}, notes=("of v",))


@pytest.fixture
def db() -> Iterator[Database]:
    with closing(sqlite3.connect(":memory:")) as connection:
        found = Database(connection)
        found.execute(f"create table thing ({', '.join(TABLE.columns.names)}, extra, unique (id))")
        yield found


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        ({}, {"name": "n", "colour": "red", "size": 3, "is_new": 1, "created_at": TIME, "data": '{"a":[1,"\\ud83d"]}'}),
        ({"is_new": False}, {"is_new": 0}),
        # An empty default is null.
        ({}, {"items": None, "item": None, "number": None, "inode": None}),
        ({"data": {}}, {"data": "{}"}),
        (
            {"items": (Item("a", NOW), Item("b"))},
            {"items": f'[{{"label":"a","at":"{TIME}"}},{{"label":"b","at":null}}]'},
        ),
        ({"item": Item("a")}, {"item": '{"label":"a","at":null}'}),
        ({"inode": 2**64 - 1}, {"inode": "18446744073709551615"}),
        # Several columns for one field.
        ({}, {"origin_label": None, "origin_at": None, "end_label": "none", "end_at": None, "ended": 0}),
        ({"origin": Item("o", NOW)}, {"origin_label": "o", "origin_at": TIME}),
        ({"end": Item("e")}, {"end_label": "e", "end_at": None, "ended": 1}),
    ],
)
def test_a_value_is_stored_in_these_columns_and_read_back(
    db: Database, changes: dict[str, Any], columns: dict[str, object]
) -> None:
    value = evolve(PLAIN, **changes)
    assert TABLE.insert(db, value, extra="more")
    assert not TABLE.insert(db, evolve(value, name=Name("another")))
    row = one(db, "select * from thing")
    assert {name: row[name] for name in columns} == columns
    assert row["extra"] == "more"
    assert TABLE.get(db, "v") == value
    assert TABLE.select(db, "name = ? order by id", ("n",)) == (value,)
    assert TABLE.first(db, "name = :name", {"name": "nobody"}) is None


@pytest.mark.parametrize("found", [b"bytes", 7, 1.5, None])
def test_what_another_program_put_into_a_column_of_text_or_numbers_is_not_made_into_text(
    db: Database, found: object
) -> None:
    TABLE.insert(db, PLAIN)
    db.execute("update thing set name = ?, number = ?", (found, found))
    value = TABLE.get(db, "v")
    assert (value.name, value.number) == (found, found)


@pytest.mark.parametrize("column", ["colour", "created_at", "data"])
def test_a_column_that_cannot_be_read_is_an_error(db: Database, column: str) -> None:
    TABLE.insert(db, PLAIN)
    db.execute(f"update thing set {column} = 'nonsense'")
    with pytest.raises(ValueError, match=r"nonsense|Expecting value"):
        TABLE.get(db, "v")
