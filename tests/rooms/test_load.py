"""One room under load, over plain HTTP: nothing is lost, doubled or out of order, and calls that race each other end as
if they had come one by one.

`INTERCOM_ROOMS_LOAD=long` (or `INTERCOM_CHAOS=long`) makes it 100,000 messages.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio

from tests.rooms.load import Ledger, Team, conclude, team, text_of
from tests.rooms.node import Caller, Connect, Node, Refused, at, nodes
from tests.support.figures import Record, tell

LONG = "long" in (os.environ.get("INTERCOM_ROOMS_LOAD"), os.environ.get("INTERCOM_CHAOS"))
MESSAGES = 100_000 if LONG else 600
WRITERS = WAITERS = 20
#: How many calls race each other, and how often.
RACERS, RACES = 8, 5 if LONG else 3


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node on each kind of database, for all tests: each makes rooms of its own."""
    if request.param == "sqlite":
        with nodes() as (made,):
            yield made
        return
    from tests.support.postgres import shared_server

    server = shared_server()
    server.start()
    name = server.new_database()
    with nodes(database=server.url(name)) as (made,):
        yield made
    server.drop(name)


@pytest.mark.real_time(seconds=3600 if LONG else 240)
async def test_twenty_writers_and_twenty_waiters_agree_on_every_message(
    node: Node, connect: Connect, record_property: Record
) -> None:
    ledger = Ledger()
    convener = connect(node)
    room = await convener.create("load")
    writers = [await team(connect, ledger, [node], room, f"writer {number}") for number in range(WRITERS)]
    waiters = [await team(connect, ledger, [node], room, f"waiter {number}") for number in range(WAITERS)]
    began = trio.current_time()
    async with trio.open_nursery() as waiting:
        for number, waiter in enumerate(waiters):
            waiting.start_soon(partial(waiter.follow, room, sse=number % 2 == 1))
        async with trio.open_nursery() as writing:
            for writer in writers:
                writing.start_soon(writer.write, room, MESSAGES // WRITERS)
        ledger.counts["posts a second"] = round(MESSAGES / (trio.current_time() - began))
        await conclude(convener, room)
    feed = await convener.feed(room)
    ledger.judge(feed, WAITERS)
    tell(record_property, f"rooms, {MESSAGES:,} messages of {WRITERS} writers to {WAITERS} waiters", ledger.counts)
    assert not ledger.faults, "\n".join(ledger.faults[:20])
    assert len(ledger.acknowledged) == MESSAGES
    roster = (await convener.get(f"{at(room)}/participants"))["participants"]
    read = {(each["cursor"], each["unread"]) for each in roster if each["team_name"].startswith("waiter")}
    assert read == {(len(feed), 0)}


# --- races -----------------------------------------------------------------------------------------------------------


async def gathered(*calls: Any) -> list[Any]:
    """Make these calls at once; their answers, or the refusals."""
    answers: list[Any] = [None] * len(calls)

    async def make(number: int) -> None:
        try:
            answers[number] = await calls[number]()
        except Refused as refused:
            answers[number] = refused

    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(make, number)
    return answers


async def racers(connect: Connect, node: Node, room: str) -> list[Caller]:
    made = [connect(node) for _ in range(RACERS)]
    for number, caller in enumerate(made):
        await caller.join(room, f"racer {number}")
    return made


@pytest.mark.real_time
async def test_appends_that_race_are_all_in_the_document(node: Node, connect: Connect) -> None:
    convener = connect(node)
    room = await convener.create("append against append")
    teams = await racers(connect, node, room)
    lines: list[str] = []
    for race in range(RACES):
        mine = [f"- line {race} of {number}" for number in range(RACERS)]
        answers = await gathered(
            *(partial(each.post, f"{at(room)}/doc/append", text=text) for each, text in zip(teams, mine, strict=True))
        )
        assert sorted(answer["version"] for answer in answers) == list(range(len(lines) + 1, len(lines) + RACERS + 1))
        lines += mine
    document = await convener.document(room)
    assert document["version"] == len(lines)
    assert sorted(document["content"].split("\n")[: len(lines)]) == sorted(lines)


@pytest.mark.real_time
async def test_an_update_never_undoes_an_append_that_it_has_not_read(node: Node, connect: Connect) -> None:
    convener = connect(node)
    room = await convener.create("append against update")
    teams = await racers(connect, node, room)
    kept: list[str] = []
    conflicts: list[tuple[Refused, int]] = []

    async def append(caller: Caller, text: str) -> None:
        await caller.post(f"{at(room)}/doc/append", text=text)
        kept.append(text)

    async def update(caller: Caller, text: str) -> None:
        while True:
            read = await caller.document(room)
            content = f"{text}\n{read['content']}"
            try:
                await caller.post(f"{at(room)}/doc", content=content, expected_version=read["version"])
            except Refused as refused:
                conflicts.append((refused, read["version"]))
                continue
            kept.append(text)
            return

    for race in range(RACES):
        async with trio.open_nursery() as nursery:
            for number, caller in enumerate(teams):
                nursery.start_soon(update if number % 2 else append, caller, f"- line {race} of {number}")
    document = await convener.document(room)
    assert Counter(line for line in document["content"].split("\n") if line) == Counter(kept)
    assert document["version"] == len(kept) == RACES * RACERS
    assert conflicts, "there was a race"
    for refused, version in conflicts:
        assert (refused.status, refused.code) == (409, "version_conflict")
        assert refused.details["current_version"] > version


@pytest.mark.real_time
async def test_a_post_that_races_the_conclusion_is_before_it_or_refused(node: Node, connect: Connect) -> None:
    for race in range(RACES):
        ledger = Ledger()
        convener = connect(node)
        room = await convener.create(f"post against close {race}")
        writers = [await team(connect, ledger, [node], room, f"writer {number}") for number in range(RACERS)]
        waiters = [await team(connect, ledger, [node], room, f"waiter {number}") for number in range(3)]
        refused: list[Refused] = []

        async def write(writer: Team, room: str = room, refused: list[Refused] = refused) -> None:
            try:
                await writer.write(room)
            except Refused as closed:
                refused.append(closed)

        async with trio.open_nursery() as nursery:
            for waiter in waiters:
                nursery.start_soon(waiter.follow, room)
            for writer in writers:
                nursery.start_soon(write, writer)
            await trio.sleep(0.05 * (race + 1))
            await conclude(convener, room)
        feed = await convener.feed(room)
        ledger.judge(feed, len(waiters))
        assert not ledger.faults, "\n".join(ledger.faults[:20])
        assert ledger.acknowledged
        assert [(each.status, each.code) for each in refused] == [(403, "session_closed")] * RACERS
        assert text_of(feed[-1]) == "(session_concluded)"


@pytest.mark.real_time
async def test_conclusions_that_race_leave_one_which_is_the_last(node: Node, connect: Connect) -> None:
    for race in range(RACES):
        convener = connect(node)
        room = await convener.create(f"conclude against conclude {race}")
        teams = await racers(connect, node, room)
        await teams[0].post(f"{at(room)}/doc/append", text="# What we do\n\nIt is kept.")
        summaries = [f"## Conclusion\nracer {number} says $1 and \\1" for number in range(RACERS)]
        answers = await gathered(
            *(
                partial(each.post, f"{at(room)}/conclude", summary_section=text)
                for each, text in zip(teams, summaries, strict=True)
            )
        )
        assert {answer["status"] for answer in answers} == {"closed"}
        last = max(range(RACERS), key=lambda number: answers[number]["doc_version"])
        document = await convener.document(room)
        assert document["version"] == max(answer["doc_version"] for answer in answers)
        assert re.findall(r"^## Conclusion\n+(.*)", document["content"], re.MULTILINE) == [
            f"racer {last} says $1 and \\1"
        ]
        assert document["content"].startswith("# What we do\n\nIt is kept.")
        feed = await convener.feed(room)
        assert [each["cursor"] for each in feed] == list(range(1, len(feed) + 1))
        assert [text_of(each) for each in feed].count("(session_concluded)") == RACERS
