"""Rooms on several nodes and one PostgreSQL: kill what can be killed, lose nothing.

Teams write and wait at every node, over plain HTTP. A team whose call breaks repeats it at another node: a post with
its idempotency key, a wait with its cursor. Meanwhile nodes are killed, PostgreSQL is killed and restarted, or every
notification between the nodes is dropped. Then the judge (`tests/rooms/load.py`) compares what the teams were told with
the feed. `INTERCOM_CHAOS=long` makes it 50 kills of nodes and 10 restarts of PostgreSQL; only that run has
`run_connections.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio

from tests.rooms.load import Ledger, conclude, team
from tests.rooms.node import Connect, Node, nodes
from tests.support.figures import Record, tell
from tests.support.postgres import PostgresServer

LONG = os.environ.get("INTERCOM_CHAOS") == "long"
SEED = os.environ.get("INTERCOM_CHAOS_SEED", "1")
KILLS = 50 if LONG else 2
#: How many nodes there are where nodes are killed.
COUNTS = [2, 3] if LONG else [3]
RESTARTS = 10 if LONG else 1
#: How long the nodes run without notifications, in seconds.
DEAF_SECONDS = 60.0 if LONG else 3.0
WRITERS, WAITERS = (8, 8) if LONG else (4, 4)
#: The average pause between two posts of a writer, in seconds.
PAUSE = 0.05
#: The longest that a message may take to a waiter, and that a waiter may be without any, in seconds.
LATE_SECONDS = 15.0
#: The same where nodes look for messages once a second.
DEAF_LATE_SECONDS = 5.0
SECONDS = 3000 if LONG else 240

#: In place of the system's function, for all who connect after this: it notifies nobody, and counts.
_DEAF = """
create sequence public.dropped_notifications;
create function public.pg_notify(text, text) returns void language sql as
    $$ select nextval('public.dropped_notifications') $$;
"""

Trouble = Callable[[Ledger, Sequence[Node]], Awaitable[None]]


async def run(connect: Connect, cluster: Sequence[Node], trouble: Trouble) -> Ledger:
    """Let teams work at these nodes while there is trouble, and judge what they were told."""
    ledger = Ledger()
    convener = connect(cluster[0])
    room = await convener.create("chaos")
    writers = [
        await team(connect, ledger, cluster, room, f"writer {number}", patient=True) for number in range(WRITERS)
    ]
    waiters = [
        await team(connect, ledger, cluster, room, f"waiter {number}", patient=True) for number in range(WAITERS)
    ]
    over = trio.Event()
    async with trio.open_nursery() as waiting:
        for number, waiter in enumerate(waiters):
            waiting.start_soon(partial(waiter.follow, room, sse=number % 2 == 1))
        async with trio.open_nursery() as writing:
            for writer in writers:
                writing.start_soon(partial(writer.write, room, over=over, pause=PAUSE))
            await trio.sleep(1.0)
            await trouble(ledger, cluster)
            await trio.sleep(1.0)
            over.set()
        await conclude(convener, room)
    ledger.judge(await convener.feed(room), WAITERS)
    return ledger


def rows(postgres: PostgresServer, database: str) -> list[tuple[Any, ...]]:
    """The feed as the database has it."""
    query = "select sequence, key, content->>'text' from messages order by session_id, sequence"
    return postgres.execute(query, database=database)


def assert_nothing_lost(ledger: Ledger, found: Sequence[tuple[Any, ...]]) -> None:
    assert not ledger.faults, "\n".join(ledger.faults[:20])
    assert [sequence for sequence, _, _ in found] == list(range(1, len(found) + 1))
    keys = [key for _, key, _ in found if key is not None]
    assert len(set(keys)) == len(keys) == len(ledger.acknowledged)
    assert {text: sequence for sequence, key, text in found if key is not None} == ledger.acknowledged


@pytest.mark.real_time(seconds=SECONDS)
@pytest.mark.parametrize("count", COUNTS)
async def test_nodes_that_are_killed_lose_nothing(
    count: int, connect: Connect, postgres: PostgresServer, database: str, record_property: Record
) -> None:
    dice = random.Random(SEED)

    async def kill(ledger: Ledger, cluster: Sequence[Node]) -> None:
        for _ in range(KILLS):
            node = dice.choice(cluster)
            node.kill()
            ledger.counts["nodes killed"] += 1
            await trio.sleep(dice.uniform(0.0, 0.5))
            await trio.to_thread.run_sync(node.start)
            await trio.sleep(dice.uniform(0.0, 1.0))

    with nodes(count, postgres.url(database)) as cluster:
        ledger = await run(connect, cluster, kill)
        tell(record_property, f"rooms, {count} nodes, nodes killed, seed {SEED}", ledger.counts)
        assert_nothing_lost(ledger, rows(postgres, database))
    assert ledger.counts["nodes killed"] == KILLS
    assert ledger.counts["calls that broke, or found no node"], "calls were in progress"
    assert max(max(ledger.delays), ledger.longest_pause) < LATE_SECONDS


@pytest.mark.real_time(seconds=SECONDS)
async def test_a_database_that_restarts_under_load_loses_nothing(
    connect: Connect, postgres: PostgresServer, database: str, record_property: Record
) -> None:
    dice = random.Random(SEED)

    async def restart(ledger: Ledger, _cluster: Sequence[Node]) -> None:
        for number in range(RESTARTS):
            how = "killed" if number % 2 == 0 else "restarted"
            await trio.to_thread.run_sync(partial(postgres.restart, kill=how == "killed"))
            ledger.counts[f"PostgreSQL {how}"] += 1
            await trio.sleep(dice.uniform(1.0, 3.0))

    with nodes(2, postgres.url(database)) as cluster:
        ledger = await run(connect, cluster, restart)
        tell(record_property, f"rooms, 2 nodes, PostgreSQL restarted, seed {SEED}", ledger.counts)
        assert_nothing_lost(ledger, rows(postgres, database))
    assert max(max(ledger.delays), ledger.longest_pause) < LATE_SECONDS


@pytest.mark.real_time(seconds=SECONDS)
async def test_without_notifications_messages_come_within_seconds(
    connect: Connect, postgres: PostgresServer, database: str, record_property: Record
) -> None:
    postgres.execute(_DEAF, database=database)
    postgres.execute(f"alter database {database} set search_path = public, pg_catalog")

    async def wait(_ledger: Ledger, _cluster: Sequence[Node]) -> None:
        await trio.sleep(DEAF_SECONDS)

    with nodes(3, postgres.url(database)) as cluster:
        ledger = await run(connect, cluster, wait)
        ((dropped,),) = postgres.execute("select last_value from public.dropped_notifications", database=database)
        ledger.counts["notifications dropped"] = dropped
        tell(record_property, "rooms, 3 nodes, every notification dropped", ledger.counts)
        assert_nothing_lost(ledger, rows(postgres, database))
    assert dropped > 1
    assert max(max(ledger.delays), ledger.longest_pause) < DEAF_LATE_SECONDS
