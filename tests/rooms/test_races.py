"""Calls to one room at the same time, on two nodes: their effect is that of one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from intercom.model.room import (
    Message,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    TeamRole,
    new_token,
)
from intercom.rooms import transactions
from intercom.rooms.transactions import Author, Post, Written
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase, RoomStore
from tests.rooms.room_driver import RULES, START, act, new_room, new_team
from tests.support.room_databases import running_store, store_at

R = TypeVar("R")
Work = Callable[[RoomsDatabase], Written[Any]]

#: How often each race is run, and how many calls of a kind are in it.
ROUNDS, CALLS = 10, 8

pytestmark = pytest.mark.real_time


class Race:
    """A room, and the nodes on which calls to it are made. On SQLite there is one."""

    def __init__(self, nodes: tuple[RoomStore, ...]) -> None:
        self.nodes = nodes
        self.id = RoomId("")
        self.alex = Author(None, "", TeamRole.MEMBER)

    async def begin(self) -> None:
        """Go on with a new room."""
        token = new_token()
        room = new_room(token)
        team = new_team(room, token, "Alex's Team")
        work = partial(transactions.open_room, room=room, convener=team, rules=RULES, now=START)
        await self.nodes[0].transact(room.id, work)
        self.id, self.alex = room.id, transactions.team_author(team)

    async def run(self, *works: Work) -> list[Any]:
        """Run these at the same time, each on the next node. Returns what they answered, or why they were refused."""
        answers: list[Any] = [None] * len(works)

        async def one(at: int, work: Work) -> None:
            try:
                written = await self.nodes[at % len(self.nodes)].transact(self.id, work)
                answers[at] = written.answer
            except RoomRefused as refused:
                answers[at] = refused.room_code

        async with trio.open_nursery() as nursery:
            for at, work in enumerate(works):
                nursery.start_soon(one, at, work)
        return answers

    async def read(self, work: Callable[..., R], *values: object) -> R:
        return await self.nodes[-1].read(lambda db: work(db, self.id, *values))

    async def feed(self) -> tuple[Message, ...]:
        feed = await self.read(rooms.after, 0, 1000)
        assert [each.sequence for each in feed] == list(range(1, len(feed) + 1))
        return feed

    async def document(self) -> str:
        found = await self.read(rooms.document)
        assert found is not None
        return found.content or ""

    def post(self, text: str, key: str | None = None) -> Work:
        return partial(
            transactions.post, room_id=self.id, posts=[Post(act(), self.alex, text, key)], rules=RULES, now=START
        )

    def append(self, text: str) -> Work:
        return partial(
            transactions.append,
            room_id=self.id,
            author=self.alex,
            text=text,
            section=None,
            rules=RULES,
            now=START,
            act=act(),
        )

    def update(self, content: str, expected: int) -> Work:
        return partial(
            transactions.update,
            room_id=self.id,
            author=self.alex,
            content=content,
            expected_version=expected,
            section=None,
            rules=RULES,
            now=START,
            act=act(),
        )

    def conclude(self, summary: str) -> Work:
        return partial(
            transactions.conclude, room_id=self.id, author=self.alex, summary=summary, rules=RULES, now=START, act=act()
        )

    def join(self, name: str) -> Work:
        return partial(
            transactions.join, room_id=self.id, name=name, token=None, new_token=new_token(), rules=RULES, now=START
        )


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
async def race(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Race]:
    if request.param is Dialect.SQLITE:
        async with running_store(Dialect.SQLITE, tmp_path) as store:
            yield Race((store,))
        return
    url = request.getfixturevalue("database_url")
    async with store_at(url) as one, store_at(url) as other:
        yield Race((one, other))


async def test_posts_have_one_order(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        texts = [f"{at}" for at in range(4 * CALLS)]
        answers = await race.run(*(race.post(text) for text in texts))
        feed = await race.feed()
        assert sorted(str(each.content["text"]) for each in feed) == sorted(texts)
        assert sorted((each for (each,) in answers), key=lambda each: each.sequence) == list(feed)


async def test_no_post_follows_a_close(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        posts = [race.post(f"{at}") for at in range(CALLS)]
        answers = await race.run(*posts[: CALLS // 2], race.conclude("Done."), *posts[CALLS // 2 :])
        del answers[CALLS // 2]
        feed = await race.feed()
        assert feed[-1].content["event"] == RoomEvent.CONCLUDED
        accepted = [each for (each,) in answers if isinstance(each, Message)]
        assert sorted(accepted, key=lambda each: each.sequence) == list(feed[:-1])
        refused = [each.room_code for (each,) in answers if isinstance(each, RoomRefused)]
        assert refused == [RoomErrorCode.SESSION_CLOSED] * (CALLS - len(accepted))


async def test_a_key_names_one_message_on_all_nodes(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.post("hello", key="1") for _ in range(CALLS)))
        (message,) = await race.feed()
        assert answers == [(message,)] * CALLS


async def test_no_append_is_lost(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.append(f"- line {at}") for at in range(CALLS)))
        assert sorted(each.version for each in answers) == list(range(1, CALLS + 1))
        lines = (await race.document()).split("\n")
        assert sorted(each for each in lines if each) == [f"- line {at}" for at in range(CALLS)]


async def test_an_update_does_not_undo_an_append(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        updated, appended = await race.run(race.update("the plan", 0), race.append("a finding"))
        assert "a finding" in await race.document()
        if updated is RoomErrorCode.VERSION_CONFLICT:
            assert appended.version == 1
        else:
            assert (updated.version, appended.version) == (1, 2)
            assert "the plan" in await race.document()


async def test_one_of_many_updates_succeeds(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.update(f"plan {at}", 0) for at in range(CALLS)))
        (done,) = [each for each in answers if each is not RoomErrorCode.VERSION_CONFLICT]
        assert (done.version, done.content) == (1, await race.document())


async def test_the_last_conclusion_stands(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.conclude(f"Done by {at}.") for at in range(CALLS)))
        last = max(range(CALLS), key=lambda at: answers[at].doc_version)
        content = await race.document()
        assert content.count("## Conclusion") == 1
        assert content.count("Done by") == 1
        assert f"Done by {last}." in content
        assert [each.content["doc_version"] for each in await race.feed()] == list(range(1, CALLS + 1))


async def test_the_same_conclusion_of_many_is_written_and_said_once(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.conclude("Done.") for _ in range(CALLS)))
        assert len(set(answers)) == 1
        assert [each.content["doc_version"] for each in await race.feed()] == [1]


async def test_teams_that_join_at_once_have_different_names(race: Race) -> None:
    for _ in range(ROUNDS):
        await race.begin()
        answers = await race.run(*(race.join("Bea's Team") for _ in range(CALLS)))
        assert len({each.team.team_name for each in answers}) == CALLS
        assert sorted(each.cursor for each in answers) == list(range(1, CALLS + 1))
