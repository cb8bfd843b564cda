"""The rooms' tables: the same on both databases, keyed by room, on the reference page, migrated forward only."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from intercom.model.errors import DatabaseError
from intercom.store import room_schema, rooms, rows
from intercom.store.database import open_database
from intercom.store.room_database import Dialect, RoomsDatabase, SqliteDatabase
from intercom.store.room_schema import LATEST, MIGRATIONS, RoomMigration, migrate_postgresql
from intercom.store.schema import Migration, version
from tests.support.room_databases import room_database

from . import cases
from .cases import NOW, new_room, say

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rooms-database.md"
ROOM = cases.room().id


def tables(db: RoomsDatabase) -> dict[str, dict[str, bool]]:
    """The columns of each table, and whether they may be empty."""
    if db.dialect is Dialect.POSTGRESQL:
        found: dict[str, dict[str, bool]] = {}
        sql = (
            "select table_name, column_name, is_nullable from information_schema.columns"
            " where table_schema = current_schema()"
        )
        for table, column, nullable in db.execute(sql).fetchall():
            found.setdefault(table, {})[column] = nullable == "YES" and column != "words"
        return found
    sql = "select name from sqlite_master where type = 'table' and name not like 'sqlite%' and name not like '%search%'"
    return {
        table: {
            row["name"]: not row["notnull"] and not row["pk"]
            for row in rows.every(db, f"select * from pragma_table_info('{table}')")
        }
        for table in rows.column(db, sql)
    }


def test_both_databases_have_the_same_columns_but_for_full_text() -> None:
    with room_database(Dialect.SQLITE) as on_sqlite, room_database(Dialect.POSTGRESQL) as on_postgresql:
        sqlite, postgresql = tables(on_sqlite), tables(on_postgresql)
    for table in ("sessions", "messages"):
        assert not sqlite[table].pop("number")
        assert not postgresql[table].pop("words")
    assert sqlite == postgresql


def test_the_page_tells_of_every_table_and_column(room_db: RoomsDatabase) -> None:
    told: dict[str, dict[str, bool]] = {}
    for section in re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        columns = re.findall(r"^\| `(\w+)(\??)` \|", section, flags=re.MULTILINE)
        told[section.split("`")[1]] = {name: bool(mark) for name, mark in columns}
    others = {"words"} if room_db.dialect is Dialect.SQLITE else {"number"}
    for each in told.values():
        for name in others:
            each.pop(name, None)
    assert told == tables(room_db)


def test_the_page_tells_of_every_value_a_check_allows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for statement in room_schema.FIRST:
        for values in re.findall(r"in \(('[^)]*')\s*\)", statement):
            for value in values.split(","):
                assert f"`{value.strip().strip(chr(39))}`" in page


#: What identifies a row of each table, on PostgreSQL: the columns of its unique indexes.
_KEYS = """
    select relation.relname, array_to_string(array(
        select attribute.attname from unnest(pg_index.indkey) with ordinality as key (number, place)
        join pg_attribute as attribute on attribute.attrelid = relation.oid and attribute.attnum = key.number
        order by key.place
    ), ' ')
    from pg_index join pg_class as relation on relation.oid = pg_index.indrelid
    join pg_namespace on pg_namespace.oid = relation.relnamespace
    where pg_namespace.nspname = current_schema() and pg_index.indisunique
"""
_FOREIGN = """
    select conrelid, confrelid, pg_get_constraintdef(pg_constraint.oid) from pg_constraint where contype = 'f'
"""


def test_every_key_begins_with_the_rooms_id() -> None:
    with room_database(Dialect.POSTGRESQL) as db:
        keys = sorted(tuple(row) for row in db.execute(_KEYS).fetchall())
        foreign = [row[2] for row in db.execute(_FOREIGN).fetchall()]
    assert keys == [
        ("linked_evidence", "session_id evidence_id"),
        ("message_acks", "session_id sequence team_id"),
        ("messages", "session_id id"),
        ("messages", "session_id posted_by_team_id key"),
        ("messages", "session_id sequence"),
        ("participants", "session_id team_id"),
        ("room_setting", "name"),
        ("schema_version", "version"),
        ("session_doc_history", "session_id act"),
        ("session_doc_history", "session_id version"),
        ("sessions", "id"),
    ]
    assert foreign == ["FOREIGN KEY (session_id) REFERENCES sessions(id)"] * 5


@pytest.mark.parametrize(
    "wrong",
    [
        "update sessions set status = 'gone'",
        "update sessions set has_concluder = 2",
        "update participants set role = 'guest'",
        "update messages set type = 'note'",
        "update messages set sequence = 0",
        "update messages set role = 'guest'",
    ],
)
def test_a_value_the_model_does_not_know_is_kept_out(room_db: RoomsDatabase, wrong: str) -> None:
    new_room(room_db)
    say(room_db, "hello")
    with pytest.raises(Exception, match=r"(?i)check"):
        room_db.execute(wrong)


def test_nothing_is_stored_for_a_room_that_is_not_there(room_db: RoomsDatabase) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        rooms.add_team(room_db, cases.team())


# --- migrations ------------------------------------------------------------------------------------------------------


def test_the_numbers_have_no_gaps() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, LATEST + 1))


#: What a later program brings.
LATER = RoomMigration(LATEST + 1, "of a test", ["alter table sessions add column of_a_test {big} not null default 7"])


def test_an_older_sqlite_file_is_copied_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "rooms.db"
    old = open_database(path, migrations=room_schema.SQLITE)
    new_room(SqliteDatabase(old.db))
    old.db.close()

    def apply(db: Any) -> None:
        for statement in LATER.for_sqlite():
            db.execute(statement)

    opened = open_database(path, migrations=(*room_schema.SQLITE, Migration(LATER.number, LATER.name, apply)))
    assert opened.backed_up is not None
    assert version(opened.db) == LATEST + 1
    db = SqliteDatabase(opened.db)
    assert rooms.get(db, ROOM) == cases.room()
    assert rows.column(db, "select of_a_test from sessions") == [7]
    opened.db.close()
    # A program that does not know the column refuses.
    with pytest.raises(DatabaseError, match="upgrade agent-intercom") as refused:
        open_database(path, migrations=room_schema.SQLITE)
    assert refused.value.error_code == "version_mismatch"


def test_rows_keep_their_numbers_in_the_full_text_index(tmp_path: Path) -> None:
    opened = open_database(tmp_path / "rooms.db", migrations=room_schema.SQLITE).db
    db = SqliteDatabase(opened)
    new_room(db)
    say(db, *[f"word{number}" for number in range(50)])
    # A hidden row id would change if rows were missing.
    db.execute("delete from messages where sequence < 20")
    db.execute("vacuum")
    [found] = rooms.search(db, "word30", 5)
    assert found.sequence == 31
    opened.close()


@pytest.fixture
def connect(database_url: str) -> Any:
    """Opens connections to a PostgreSQL database without tables, in transactions."""
    from intercom.store.postgres import Server

    return Server.at(database_url).connect


def on_postgresql(connection: Any) -> RoomsDatabase:
    from intercom.store.postgres import PostgresDatabase

    return PostgresDatabase(connection)


def test_a_postgresql_database_is_brought_up_to_date(connect: Any) -> None:
    with connect() as connection:
        db = on_postgresql(connection)
        assert migrate_postgresql(db, NOW) == 0
        new_room(db)
        assert migrate_postgresql(db, NOW) == LATEST
    with connect() as connection:
        db = on_postgresql(connection)
        assert migrate_postgresql(db, NOW, (*MIGRATIONS, LATER)) == LATEST
        assert rooms.get(db, ROOM) == cases.room()
        assert rows.column(db, "select of_a_test from sessions") == [7]
        assert rows.column(db, "select version from schema_version order by version") == [*range(1, LATEST + 2)]
        with pytest.raises(DatabaseError, match="upgrade agent-intercom") as refused:
            migrate_postgresql(db, NOW)
    assert refused.value.error_code == "version_mismatch"


def test_a_migration_that_fails_leaves_nothing_behind_on_postgresql(connect: Any) -> None:
    broken = RoomMigration(LATEST + 1, "broken", ["create table half (id {id})", "select nonsense"])
    with connect() as connection:
        with pytest.raises(Exception, match="nonsense"):
            migrate_postgresql(on_postgresql(connection), NOW, (*MIGRATIONS, broken))
        connection.rollback()
        assert room_schema.version_on_postgresql(on_postgresql(connection)) == 0
        assert tables(on_postgresql(connection)) == {}


def test_another_programs_tables_are_left_alone_on_postgresql(connect: Any) -> None:
    with connect() as connection:
        connection.execute("create table messages (id integer)")
        with pytest.raises(DatabaseError, match="has a table messages of another program"):
            migrate_postgresql(on_postgresql(connection), NOW)
        # Other names do not matter.
        connection.execute("alter table messages rename to letters")
        assert migrate_postgresql(on_postgresql(connection), NOW) == 0


def test_nodes_that_start_at_once_migrate_once(connect: Any) -> None:
    def node(_number: int) -> int:
        with connect() as connection:
            return migrate_postgresql(on_postgresql(connection), NOW)

    with ThreadPoolExecutor(8) as threads:
        found = sorted(threads.map(node, range(8)))
    assert found == [0] + [LATEST] * 7
