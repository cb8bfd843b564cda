"""Fixtures of a real PostgreSQL, and of callers of rooms."""

from __future__ import annotations

from tests.rooms.node import connect
from tests.support.postgres import database, database_url, postgres

__all__ = ["connect", "database", "database_url", "postgres"]
