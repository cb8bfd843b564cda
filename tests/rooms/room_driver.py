"""Calls to one room on a connection, as its actor makes them: with a clock and an id for each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from attrs import evolve

from intercom.model.room import (
    Message,
    Room,
    RoomEvent,
    RoomId,
    RoomRefused,
    Team,
    TeamRole,
    new_token,
    team_of,
    token_hash,
)
from intercom.rooms import transactions
from intercom.rooms.message_budget import Budget
from intercom.rooms.roster import Thresholds
from intercom.rooms.transactions import Author, Joined, Post, Rules, Written
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: No guard, and none of the settings that are off by default.
RULES = Rules(Budget(0), Thresholds())
SAM = transactions.person("sam")


def act() -> str:
    """The id of a new call."""
    return str(uuid4())


class RoomDriver:
    """A new room of the team "Alex's Team", whose answer to its creation is `alex`."""

    def __init__(self, db: RoomsDatabase, **rules: Any) -> None:
        self.db = db
        self.now = START
        self.rules = evolve(RULES, **rules)
        token = new_token()
        self.room = new_room(token)
        self.id = self.room.id
        self.convener = new_team(self.room, token, "Alex's Team")
        self.alex = Joined(self.convener, token, resumed=False, cursor=0)
        self.open()

    def open(self) -> Written[None]:
        return transactions.open_room(self.db, room=self.room, convener=self.convener, rules=self.rules, now=self.now)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # --- reads -------------------------------------------------------------------------------------------------------

    def current(self) -> Room:
        return rooms.lock(self.db, self.id)

    def feed(self) -> tuple[Message, ...]:
        return rooms.after(self.db, self.id, 0, 10_000)

    def said(self) -> list[object]:
        """The feed in short: the texts of chat messages, and the events of the server's."""
        return [each.content.get("text") or RoomEvent(str(each.content["event"])) for each in self.feed()]

    def last(self) -> dict[str, Any]:
        """The content of the last message."""
        return self.feed()[-1].content

    def document(self, version: int | None = None) -> str:
        found = rooms.document(self.db, self.id, version)
        return "" if found is None or found.content is None else found.content

    def team(self, of: Joined) -> Team:
        found = rooms.team(self.db, self.id, of.team.team_id)
        assert found is not None
        return found

    # --- writes ------------------------------------------------------------------------------------------------------

    def join(self, name: str = "Bea's Team", *, token: str | None = None, **options: Any) -> Joined:
        """Join as a new team, or with a token as that team."""
        options = {"new_token": new_token(), "rules": self.rules, "now": self.now} | options
        return transactions.join(self.db, self.id, name=name, token=token, **options).answer

    def join_again(self, team: Joined, **options: Any) -> Joined:
        return self.join(token=team.token, **options)

    def leave(self, team: Joined) -> Written[Team]:
        return transactions.leave(self.db, self.id, author(team), self.rules, self.now, act())

    def post(self, by: Joined | Author, text: str, **options: Any) -> Message:
        """Post one message, and return it. Raises RoomRefused."""
        answer = self.group(a_post(by, text, **options)).answer[0]
        if isinstance(answer, RoomRefused):
            raise answer
        return answer

    def group(self, *posts: Post) -> Written[tuple[Message | RoomRefused, ...]]:
        return transactions.post(self.db, self.id, posts, self.rules, self.now)

    def append(self, by: Joined | Author, text: str, section: str | None = None, **options: Any) -> int:
        """Append to the document, and return the new version."""
        given = {"rules": self.rules, "now": self.now, "act": act()} | options
        return transactions.append(self.db, self.id, author(by), text, section, **given).answer.version

    def update(
        self, by: Joined | Author, content: str, expected: int, section: str | None = None, **options: Any
    ) -> int:
        given = {"rules": self.rules, "now": self.now, "act": act()} | options
        return transactions.update(self.db, self.id, author(by), content, expected, section, **given).answer.version

    def describe(self, by: Joined | Author, reason: str = "we know more now", **changed: Any) -> Written[Room]:
        changed = {"title": None, "description": None, "act": act()} | changed
        return transactions.metadata(
            self.db, self.id, author(by), reason=reason, rules=self.rules, now=self.now, **changed
        )

    def conclude(self, by: Joined | Author, summary: str = "All is done.", **options: Any) -> Written[Any]:
        given = {"rules": self.rules, "now": self.now, "act": act()} | options
        return transactions.conclude(self.db, self.id, author(by), summary, **given)

    def reopen(self, by: Joined | Author, reason: str | None = "one bug left", **options: Any) -> Written[Room]:
        return transactions.reopen(self.db, self.id, author(by), reason, self.now, **{"act": act()} | options)

    def pause(self, by: Joined | Author, reason: str | None = "lunch", **options: Any) -> Written[Room]:
        return transactions.pause(self.db, self.id, author(by), reason, self.now, **{"act": act()} | options)

    def resume(self, by: Joined | Author, **options: Any) -> Written[Room]:
        return transactions.resume(self.db, self.id, author(by), self.now, **{"act": act()} | options)

    def ack(self, by: Joined | Author, cursor: int) -> Message:
        return transactions.ack(self.db, self.id, author(by), cursor, self.now).answer


def new_room(token: str, title: str = "Ship the parser") -> Room:
    """A room that the team of this token creates."""
    return Room(RoomId(act()), title, "Two teams, one parser.", team_of(token), START, START)


def new_team(room: Room, token: str, name: str, role: TeamRole = TeamRole.MEMBER) -> Team:
    return Team(room.id, team_of(token), name, token_hash(token), START, START, role)


def author(by: Joined | Author) -> Author:
    return transactions.team_author(by.team) if isinstance(by, Joined) else by


def a_post(by: Joined | Author, text: str, *, id: str | None = None, key: str | None = None) -> Post:
    return Post(id or act(), author(by), text, key)
