from __future__ import annotations

from tests.support.postgres import database, database_url, postgres
from tests.support.room_databases import room_db, room_store

__all__ = ["database", "database_url", "postgres", "room_db", "room_store"]
