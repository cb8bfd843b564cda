"""Rooms on two nodes whose connections to PostgreSQL are ended under load: nothing is lost.

Part of the long chaos run. `tests/store/rooms/test_postgres.py` of the default suite has it for one store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio

from tests.chaos.test_rooms import LATE_SECONDS, LONG, SECONDS, SEED, assert_nothing_lost, rows, run
from tests.rooms.load import Ledger
from tests.rooms.node import Connect, Node, nodes
from tests.support.figures import Record, tell
from tests.support.postgres import PostgresServer

#: How often the connections are ended.
ENDINGS = 50 if LONG else 3


@pytest.mark.real_time(seconds=SECONDS)
async def test_connections_that_are_ended_lose_nothing(
    connect: Connect, postgres: PostgresServer, database: str, record_property: Record
) -> None:
    dice = random.Random(SEED)

    async def end(ledger: Ledger, _cluster: Sequence[Node]) -> None:
        for number in range(ENDINGS):
            # Every other time only those that write now.
            ended = postgres.end_connections(database, busy=number % 2 == 1)
            ledger.counts["connections to PostgreSQL ended"] += ended
            await trio.sleep(dice.uniform(0.2, 1.0))

    with nodes(2, postgres.url(database)) as cluster:
        ledger = await run(connect, cluster, end)
        tell(record_property, f"rooms, 2 nodes, connections ended, seed {SEED}", ledger.counts)
        assert_nothing_lost(ledger, rows(postgres, database))
    assert ledger.counts["connections to PostgreSQL ended"]
    assert max(max(ledger.delays), ledger.longest_pause) < LATE_SECONDS
