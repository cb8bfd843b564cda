from __future__ import annotations

from collections.abc import Iterator

import pytest

from intercom.store.database import Database
from tests.store.cases import database


@pytest.fixture
def db() -> Iterator[Database]:
    """A new database with the session "s1" in it."""
    with database() as made:
        yield made
