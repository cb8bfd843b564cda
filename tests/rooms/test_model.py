"""Any calls in any order have the effect on a room that they have on a model of it, a few lists in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import ClassVar

import pytest
from attrs import define, evolve, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from intercom.model.room import Message, RoomErrorCode, RoomEvent, RoomRefused, TeamRole, new_token
from intercom.rooms import document, roster, transactions
from intercom.rooms.message_budget import Budget
from intercom.rooms.transactions import Joined
from intercom.store import rooms
from intercom.store.room_database import Dialect
from intercom.store.rooms import Seen
from tests.rooms.room_driver import SAM, RoomDriver, a_post, act, author
from tests.support.room_databases import room_database

#: With this budget, the guard warns after 5 messages and pauses after 6.
BUDGET, WARNING = 6, 5
#: The same for messages and changes of the document without a person.
ACTS, ACTS_WARNING = 60, 48

NAMES = st.sampled_from(["Alex's Team", "Bea's Team", "BEA'S  TEAM"])
TEXTS = st.sampled_from(["one", "two\n", "## Notes\n\nthree", "$1 \\1 &"])
SECTIONS = st.sampled_from([None, "Notes", "Plan"])
#: Which of the teams acts: one of those that are there, or a person.
WHO = st.integers(0, 5)
PERSON = 5


@define
class TeamModel:
    joined: Joined
    name: str
    role: TeamRole
    cursor: int
    has_left: bool = False
    is_dropped: bool = False


@define
class RoomModel:
    feed: list[str | RoomEvent] = field(factory=list)
    versions: list[str] = field(factory=list)
    teams: list[TeamModel] = field(factory=list)
    keys: dict[tuple[str, str], tuple[str, Message]] = field(factory=dict)
    conclusion: str | None = None
    is_closed: bool = False
    is_paused: bool = False
    is_paused_by_person: bool = False
    count: int = 0
    acts: int = 0

    @property
    def content(self) -> str:
        return self.versions[-1] if self.versions else ""

    @property
    def is_mute(self) -> bool:
        """Whether the feed does not say any more who comes and goes."""
        return self.count >= 2 * BUDGET or self.acts >= 2 * ACTS

    def write(self, content: str, *, by_person: bool) -> None:
        if content != self.content:
            self.versions.append(content)
            self.done(by_person=by_person, is_progress=True)

    def say(self, said: str | RoomEvent, *, by_person: bool = False) -> None:
        self.feed.append(said)
        self.done(by_person=by_person)

    def done(self, *, by_person: bool, is_progress: bool = False) -> None:
        """Count what was done, as the guard does."""
        if by_person:
            self.count = self.acts = 0
            return
        self.count = 0 if is_progress else self.count + 1
        self.acts += 1
        if self.is_closed or self.is_paused:
            return
        warnings = (not is_progress and self.count == WARNING, self.acts == ACTS_WARNING)
        self.feed += [RoomEvent.LOOP_WARNING] * sum(warnings)
        if (not is_progress and self.count >= BUDGET) or self.acts >= ACTS:
            self.feed.append(RoomEvent.PAUSED)
            self.is_paused = True

    def goes_on(self) -> None:
        self.is_closed = self.is_paused = self.is_paused_by_person = False
        self.count = self.acts = 0

    def names(self, but: TeamModel | None = None) -> list[str]:
        return [each.name for each in self.teams if not each.has_left and each is not but]


class AnyRoom(RuleBasedStateMachine):
    dialect: ClassVar[Dialect] = Dialect.SQLITE

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        self.room = RoomDriver(self.open.enter_context(room_database(self.dialect)), budget=Budget(BUDGET))
        self.model = RoomModel()
        self.model.teams.append(TeamModel(self.room.alex, "Alex's Team", TeamRole.MEMBER, 0))
        #: Calls that were made, with what they answered.
        self.made: list[tuple[Callable[[], object], object]] = []
        self.before: tuple[Message, ...] = ()

    def teardown(self) -> None:
        self.open.close()

    # --- parts -------------------------------------------------------------------------------------------------------

    def who(self, index: int) -> TeamModel | None:
        return None if index == PERSON else self.model.teams[index % len(self.model.teams)]

    def may_write(self, team: TeamModel | None, *, closed: bool = False) -> RoomErrorCode | None:
        """Why a team cannot write now; None if it can."""
        if team is not None and team.has_left:
            return RoomErrorCode.UNAUTHORIZED
        if self.model.is_closed and not closed:
            return RoomErrorCode.SESSION_CLOSED
        return RoomErrorCode.READ_ONLY if team is not None and team.role is TeamRole.READER else None

    def may_decide(self, team: TeamModel | None, *, closed: bool = False) -> RoomErrorCode | None:
        """The same for what only the convener and people do."""
        code = self.may_write(team, closed=closed)
        is_allowed = team is None or team is self.model.teams[0]
        return code or (None if is_allowed else RoomErrorCode.FORBIDDEN)

    def make(self, code: RoomErrorCode | None, call: Callable[[], object], *, repeatable: bool = True) -> bool:
        """Make a call, which is refused if there is a code. Returns whether it was done."""
        self.room.wait(1)
        if code is not None:
            with pytest.raises(RoomRefused) as found:
                call()
            assert found.value.room_code is code
            return False
        answer = call()
        if repeatable:
            self.made.append((call, answer))
        return True

    # --- the roster --------------------------------------------------------------------------------------------------

    @rule(name=NAMES, replay_from=st.none() | st.integers(-1, 30))
    def join(self, name: str, replay_from: int | None) -> None:
        if len(self.model.teams) == PERSON:
            return
        token = new_token()
        self.make(None, lambda: self.room.join(name, new_token=token, replay_from=replay_from))
        role = TeamRole.READER if self.model.is_closed else TeamRole.MEMBER
        name = roster.distinct_name(name, self.model.names())
        if not (self.model.is_closed or self.model.is_mute):
            self.model.say(RoomEvent.TEAM_JOINED)
        end = len(self.model.feed)
        cursor = end if replay_from is None else min(max(replay_from, 0), end)
        joined = self.made[-1][1]
        assert isinstance(joined, Joined)
        assert joined.cursor == cursor
        self.model.teams.append(TeamModel(joined, name, role, cursor))

    @rule(who=WHO)
    def join_again(self, who: int) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        self.make(None, lambda: self.room.join_again(team.joined), repeatable=False)
        is_convener = team is self.model.teams[0]
        if team.has_left:
            team.name = roster.distinct_name(team.name, self.model.names(but=team))
        if self.model.is_closed:
            if team.has_left and not is_convener:
                team.role = TeamRole.READER
        elif team.role is TeamRole.READER:
            team.role = TeamRole.MEMBER
            if not self.model.is_mute:
                self.model.say(RoomEvent.TEAM_JOINED)
        elif (team.has_left or team.is_dropped) and not self.model.is_mute:
            self.model.say(RoomEvent.TEAM_REJOINED)
        team.has_left = team.is_dropped = False

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        same, by = act(), author(team.joined)
        is_said = team.role is not TeamRole.READER and not team.has_left and not self.model.is_mute
        call = lambda: (  # noqa: E731
            transactions.leave(self.room.db, self.room.id, by, self.room.rules, self.room.now, same).answer
        )
        self.make(None, call, repeatable=is_said)
        if is_said:
            self.model.say(RoomEvent.TEAM_LEFT)
        team.has_left = True

    @rule(who=WHO, is_gone=st.booleans())
    def drop(self, who: int, is_gone: bool) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        limit = self.room.now + timedelta(days=1 if is_gone else -1)
        written = transactions.drop(self.room.db, self.room.id, [team.joined.team.team_id], limit, self.room.now)
        is_done = is_gone and not (self.model.is_closed or team.has_left or team.is_dropped)
        assert bool(written.answer) == is_done
        if is_done:
            team.is_dropped = True
            if team.role is not TeamRole.READER:
                self.model.feed.append(RoomEvent.TEAM_DROPPED)

    @rule(who=WHO)
    def poll(self, who: int) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        id = team.joined.team.team_id
        code = RoomErrorCode.UNAUTHORIZED if team.has_left else None
        self.make(code, lambda: transactions.rejoined(self.room.db, self.room.id, id, self.room.now), repeatable=False)
        if code is None and team.is_dropped:
            team.is_dropped = False
            if team.role is not TeamRole.READER and not self.model.is_closed:
                self.model.feed.append(RoomEvent.TEAM_REJOINED)

    @rule(who=WHO, cursor=st.integers(0, 30))
    def read(self, who: int, cursor: int) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        cursor = min(cursor, len(self.model.feed))
        rooms.seen(self.room.db, self.room.id, [Seen(team.joined.team.team_id, self.room.now, cursor)])
        team.cursor = max(team.cursor, cursor)

    # --- the feed ----------------------------------------------------------------------------------------------------

    @rule(who=WHO, text=TEXTS, key=st.sampled_from([None, None, None, "a", "b"]))
    def post(self, who: int, text: str, key: str | None) -> None:
        team = self.who(who)
        by = SAM if team is None else team.joined
        same = act()
        call = lambda: self.room.post(by, text, id=same, key=key)  # noqa: E731
        if team is not None and not team.has_left and key is not None:
            used = self.model.keys.get((team.joined.token, key))
            if used is not None:
                code = None if used[0] == text else RoomErrorCode.CONFLICT
                if self.make(code, call, repeatable=False):
                    assert evolve(call(), acks=()) == used[1]
                return
        code = self.may_write(team)
        if code is None and team is not None and self.model.is_paused:
            code = RoomErrorCode.SESSION_PAUSED
        if not self.make(code, call):
            return
        message = self.made[-1][1]
        assert isinstance(message, Message)
        self.posted(team, text)
        if team is not None and key is not None:
            self.model.keys[team.joined.token, key] = (text, message)

    @rule(group=st.lists(st.tuples(WHO, TEXTS), min_size=2, max_size=8))
    def post_group(self, group: list[tuple[int, str]]) -> None:
        posts = []
        expected: list[RoomErrorCode | str] = []
        before = len(self.model.feed)
        for who, text in group:
            team = self.who(who)
            posts.append(a_post(SAM if team is None else team.joined, text))
            code = self.may_write(team)
            if code is None and team is not None and self.model.is_paused:
                code = RoomErrorCode.SESSION_PAUSED
            if code is None:
                self.posted(team, text)
            expected.append(text if code is None else code)
        written = self.room.group(*posts)
        found = [each.room_code if isinstance(each, RoomRefused) else each.content["text"] for each in written.answer]
        assert found == expected
        assert len(written.messages) == len(self.model.feed) - before

    def posted(self, team: TeamModel | None, text: str) -> None:
        self.model.say(text, by_person=team is None)

    @rule(who=WHO, cursor=st.integers(0, 30))
    def acknowledge(self, who: int, cursor: int) -> None:
        team = self.model.teams[who % len(self.model.teams)]
        code = self.may_write(team, closed=True)
        if code is None and not 0 < cursor <= len(self.model.feed):
            code = RoomErrorCode.NOT_FOUND
        if self.make(code, lambda: self.room.ack(team.joined, cursor), repeatable=False):
            found = self.room.feed()[cursor - 1]
            assert team.joined.team.team_id in [each.team_id for each in found.acks]

    # --- the document ------------------------------------------------------------------------------------------------

    @rule(who=WHO, text=TEXTS, section=SECTIONS)
    def append(self, who: int, text: str, section: str | None) -> None:
        team = self.who(who)
        by, same = SAM if team is None else team.joined, act()
        content = document.append(self.model.content, text, section)
        call = lambda: self.room.append(by, text, section, act=same)  # noqa: E731
        if self.make(self.may_write(team), call, repeatable=content != self.model.content):
            self.model.write(content, by_person=team is None)

    @rule(who=WHO, content=TEXTS, section=SECTIONS, behind=st.sampled_from([0, 0, 0, 1, 2, -1]))
    def update(self, who: int, content: str, section: str | None, behind: int) -> None:
        team = self.who(who)
        by, same = SAM if team is None else team.joined, act()
        expected = len(self.model.versions) - behind
        code = self.may_write(team)
        if code is None and behind and not self.only_others_changed(expected, section):
            code = RoomErrorCode.VERSION_CONFLICT
        call = lambda: self.room.update(by, content, expected, section, act=same)  # noqa: E731
        after = content if section is None else document.replace_section(self.model.content, section, content)
        if self.make(code, call, repeatable=after != self.model.content):
            self.model.write(after, by_person=team is None)

    def only_others_changed(self, version: int, section: str | None) -> bool:
        """Whether the section is now as it was in that version."""
        if section is None or not 0 <= version < len(self.model.versions):
            return False
        base = self.model.versions[version - 1] if version else ""
        return document.section_of(base, section) == document.section_of(self.model.content, section)

    # --- the room ----------------------------------------------------------------------------------------------------

    @rule(who=WHO, summary=TEXTS)
    def conclude(self, who: int, summary: str) -> None:
        team = self.who(who)
        by, same = SAM if team is None else team.joined, act()
        call = lambda: self.room.conclude(by, summary, act=same).answer.doc_version  # noqa: E731
        content = document.conclude(self.model.content, summary, self.model.conclusion)
        was_closed, is_changed = self.model.is_closed, content != self.model.content
        is_done = is_changed or not was_closed
        code = self.may_write(team, closed=True)
        is_spent = self.model.count >= BUDGET or self.model.acts >= ACTS
        if code is None and team is not None and self.model.is_paused_by_person:
            code = RoomErrorCode.SESSION_PAUSED
        if code is None and was_closed and is_done and team is not None and is_spent:
            code = RoomErrorCode.FORBIDDEN
        if self.make(code, call, repeatable=is_done) and is_done:
            self.model.is_closed, self.model.is_paused, self.model.is_paused_by_person = True, False, False
            if is_changed:
                self.model.versions.append(content)
            self.model.conclusion = document.conclusion_text(summary)
            self.model.feed.append(RoomEvent.CONCLUDED)
            self.model.done(by_person=team is None, is_progress=is_changed and not was_closed)

    @rule(who=WHO)
    def reopen(self, who: int) -> None:
        team = self.who(who)
        by, same = SAM if team is None else team.joined, act()
        is_done = self.model.is_closed or self.model.is_paused
        call = lambda: self.room.reopen(by, act=same) and None  # noqa: E731
        code = self.may_decide(team, closed=True)
        if code is None and team is not None and self.model.is_paused_by_person:
            code = RoomErrorCode.SESSION_PAUSED
        if self.make(code, call, repeatable=is_done) and is_done:
            self.model.feed.append(RoomEvent.REOPENED if self.model.is_closed else RoomEvent.RESUMED)
            self.model.goes_on()

    @rule(who=WHO)
    def pause(self, who: int) -> None:
        team = self.who(who)
        by, same, is_done = SAM if team is None else team.joined, act(), not self.model.is_paused
        call = lambda: self.room.pause(by, act=same) and None  # noqa: E731
        code = self.may_decide(team)
        if code is None and team is not None:
            code = RoomErrorCode.FORBIDDEN
        if self.make(code, call, repeatable=is_done) and is_done:
            self.model.feed.append(RoomEvent.PAUSED)
            self.model.is_paused = self.model.is_paused_by_person = True

    @rule(who=WHO)
    def resume(self, who: int) -> None:
        team = self.who(who)
        by, same, is_done = SAM if team is None else team.joined, act(), self.model.is_paused
        call = lambda: self.room.resume(by, act=same) and None  # noqa: E731
        code = self.may_decide(team)
        if code is None and team is not None and self.model.is_paused_by_person:
            code = RoomErrorCode.SESSION_PAUSED
        if self.make(code, call, repeatable=is_done) and is_done:
            self.model.feed.append(RoomEvent.RESUMED)
            self.model.goes_on()

    @rule(who=WHO)
    def describe(self, who: int) -> None:
        team = self.who(who)
        by, same = SAM if team is None else team.joined, act()
        call = lambda: self.room.describe(by, title=same, act=same) and None  # noqa: E731
        code = self.may_write(team)
        if code is None and team is not None and self.model.is_paused:
            code = RoomErrorCode.SESSION_PAUSED
        if self.make(code, call):
            self.model.say(RoomEvent.METADATA_UPDATED, by_person=team is None)

    # --- again -------------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 1_000_000))
    def repeat(self, which: int) -> None:
        """Make a call again, as after a lost answer, however late. It is answered as before, and changes nothing."""
        if self.made:
            call, answer = self.made[which % len(self.made)]
            again = call()
            if isinstance(answer, Message) and isinstance(again, Message):
                assert evolve(again, acks=()) == answer
            elif isinstance(answer, int):
                assert again == answer

    # --- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def the_feed_is_the_model_s(self) -> None:
        feed = self.room.feed()
        assert [each.sequence for each in feed] == list(range(1, len(self.model.feed) + 1))
        assert self.room.said() == self.model.feed
        assert self.room.current().last_sequence == len(feed)

    @invariant()
    def nothing_said_changes(self) -> None:
        feed = tuple([evolve(each, acks=()) for each in self.room.feed()])
        assert feed[: len(self.before)] == self.before
        self.before = feed

    @invariant()
    def the_document_is_the_model_s(self) -> None:
        history = rooms.document_history(self.room.db, self.room.id, 1000)
        assert [each.version for each in history] == list(range(len(self.model.versions), 0, -1))
        assert self.room.current().session_doc_version == len(self.model.versions)
        assert self.room.document() == self.model.content

    @invariant()
    def the_room_is_the_model_s(self) -> None:
        found = self.room.current()
        state = (found.is_closed, found.is_paused, found.messages_since_progress, found.acts_since_person)
        assert state == (self.model.is_closed, self.model.is_paused, self.model.count, self.model.acts)
        assert (found.closed_at is not None) == self.model.is_closed

    @invariant()
    def the_teams_are_the_model_s(self) -> None:
        for team in self.model.teams:
            found = self.room.team(team.joined)
            state = (found.team_name, found.role, found.cursor, found.left_at is not None)
            assert state == (team.name, team.role, team.cursor, team.has_left)
            assert team.has_left or (found.dropped_at is not None) == team.is_dropped


class AnyRoomOnPostgresql(AnyRoom):
    dialect = Dialect.POSTGRESQL


AnyRoom.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
AnyRoomOnPostgresql.TestCase.settings = settings(max_examples=8, stateful_step_count=40)
TestAnyRoom = AnyRoom.TestCase
TestAnyRoomOnPostgresql = AnyRoomOnPostgresql.TestCase
