"""Fixtures of a real PostgreSQL."""

from __future__ import annotations

from tests.support.postgres import database, database_url, postgres

__all__ = ["database", "database_url", "postgres"]
