"""What the shim answers before a server is there is what the server would have said."""

from __future__ import annotations

import json

from intercom.agents import snapshot
from tests.support.trio_case import trio_test


@trio_test
async def test_the_shipped_answers_equal_the_live_ones() -> None:
    live = await snapshot.take()
    assert json.loads(snapshot.FILE.read_text()) == live, "run python -m intercom.agents.snapshot and commit the file"
