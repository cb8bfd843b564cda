"""docs/reference/database.md tells of every table and column, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

from intercom.store import rows
from intercom.store.database import Database

from . import cases

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "database.md"


def test_the_page_tells_of_every_table_and_column() -> None:
    told: dict[str, dict[str, bool]] = {}
    for section in re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        columns = re.findall(r"^\| `(\w+)(\??)` \|", section, flags=re.MULTILINE)
        told[section.split("`")[1]] = {name: bool(mark) for name, mark in columns}
    with cases.database() as db:
        tables = rows.column(db, "select name from sqlite_master where type = 'table' and name not like 'sqlite%'")
        found = {
            table: {
                row["name"]: not row["notnull"] and not row["pk"]
                for row in rows.every(db, f"select * from pragma_table_info('{table}')")
            }
            for table in tables
        }
    assert told == found


def test_the_page_tells_of_every_value_a_check_allows(db: Database) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for sql in rows.column(db, "select sql from sqlite_master where type = 'table'"):
        for values in re.findall(r"in \(('[^)]*')\s*\)", sql):
            for value in values.split(","):
                assert f"`{value.strip().strip(chr(39))}`" in page
