"""Each write to a room, on both databases: what it says in the feed, whom it refuses, and that it may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
from attrs import evolve

from intercom.model.room import (
    MessageType,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    RoomStatus,
    TeamRole,
    new_token,
)
from intercom.rooms import transactions
from intercom.rooms.message_budget import Budget
from intercom.rooms.transactions import Author, ConclusionClaim, Joined
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase
from tests.rooms.room_driver import RULES, SAM, RoomDriver, a_post, act, author, new_room, new_team
from tests.support.room_databases import room_database

JOINED, LEFT, DROPPED, REJOINED = (
    RoomEvent.TEAM_JOINED,
    RoomEvent.TEAM_LEFT,
    RoomEvent.TEAM_DROPPED,
    RoomEvent.TEAM_REJOINED,
)


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def db(request: pytest.FixtureRequest) -> Iterator[RoomsDatabase]:
    with room_database(request.param) as db:
        yield db


@pytest.fixture
def room(db: RoomsDatabase) -> RoomDriver:
    return RoomDriver(db)


def refused(code: RoomErrorCode, call: Callable[[], object]) -> RoomRefused:
    """Make a call that is refused with this code, and return the refusal."""
    with pytest.raises(RoomRefused) as found:
        call()
    assert found.value.room_code is code, found.value
    return found.value


# --- create and describe ---------------------------------------------------------------------------------------------


def test_a_new_room_has_its_convener_and_an_empty_feed(room: RoomDriver) -> None:
    assert room.current() == room.room
    assert room.team(room.alex) == room.convener
    assert room.feed() == ()
    assert (room.current().session_doc_version, room.document()) == (0, "")


def test_a_room_is_created_once(room: RoomDriver) -> None:
    room.post(room.alex, "hello")
    written = room.open()
    assert written.room.last_sequence == 1
    assert rooms.members(room.db, room.id) == (room.convener,)


@pytest.mark.parametrize(
    ("part", "text"), [("title", ""), ("title", " \n"), ("title", "x" * 201), ("description", "x" * 20_001)]
)
def test_a_room_has_a_title_and_a_description_that_fit(db: RoomsDatabase, part: str, text: str) -> None:
    token = new_token()
    made = evolve(new_room(token), **{part: text})
    convener = new_team(made, token, "Alex's Team")
    fault = refused(
        RoomErrorCode.INVALID_ARGUMENTS,
        lambda: transactions.open_room(db, room=made, convener=convener, rules=RULES, now=made.created_at),
    )
    assert part in fault.message
    assert rooms.get(db, made.id) is None


def test_new_metadata_are_said_in_the_feed_with_what_changed(room: RoomDriver) -> None:
    room.wait(60)
    written = room.describe(room.alex, title="Ship the lexer", description=room.room.description, reason="it is late")
    assert room.last() == {
        "event": "session_metadata_updated",
        "by": "Alex's Team",
        "changes": {"title": {"from": "Ship the parser", "to": "Ship the lexer"}},
        "reason": "it is late",
    }
    (message,) = written.messages
    assert (message.type, message.posted_by_team_id, message.author) == (MessageType.SYSTEM, None, None)
    assert message.posted_at == room.now
    found = room.current()
    assert (found.title, found.description, found.updated_at) == ("Ship the lexer", room.room.description, room.now)
    assert found == written.answer == written.room


def test_metadata_that_are_the_same_are_no_change(room: RoomDriver) -> None:
    room.describe(room.alex, title=room.room.title, description=room.room.description)
    assert (room.feed(), room.current()) == ((), room.room)


def test_metadata_are_changed_once_by_one_act(room: RoomDriver) -> None:
    same = act()
    room.describe(room.alex, title="Ship the lexer", act=same)
    room.describe(room.alex, title="Ship all")
    again = room.describe(room.alex, title="Ship the lexer", act=same)
    assert (again.answer.title, len(room.feed())) == ("Ship all", 2)


@pytest.mark.parametrize(
    "changed", [{}, {"title": ""}, {"title": "new", "reason": " "}, {"title": "x" * 201}, {"description": "x" * 20_001}]
)
def test_metadata_need_a_change_and_a_reason(room: RoomDriver, changed: dict[str, str]) -> None:
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.describe(room.alex, **changed))
    assert room.current() == room.room


def test_only_the_convener_changes_metadata_if_people_want_that(db: RoomsDatabase) -> None:
    room = RoomDriver(db, convener_only_metadata=True)
    bea = room.join()
    fault = refused(RoomErrorCode.FORBIDDEN, lambda: room.describe(bea, title="Mine"))
    assert "Alex's Team" in fault.message
    room.describe(room.alex, title="Ours")
    room.describe(SAM, title="Sam's")
    assert room.current().title == "Sam's"


def test_metadata_change_once_in_an_interval_if_people_want_that(db: RoomsDatabase) -> None:
    room = RoomDriver(db, metadata_interval_seconds=1800)
    room.describe(room.alex, title="One")
    room.wait(0.5)
    room.describe(room.alex, title="Two")
    room.wait(600.5)
    fault = refused(RoomErrorCode.RATE_LIMITED, lambda: room.describe(room.alex, title="Three"))
    assert fault.details == {"retry_after": 1200}
    room.describe(room.alex, title="Two")
    room.describe(SAM, title="Three")
    room.wait(1800)
    room.describe(room.alex, title="Four")
    assert room.current().title == "Four"


# --- join and leave --------------------------------------------------------------------------------------------------


def test_a_team_that_joins_is_said_and_reads_from_the_end(room: RoomDriver) -> None:
    room.post(room.alex, "hello")
    room.wait(5)
    bea = room.join("Bea's Team")
    assert room.last() == {"event": "team_joined", "team": "Bea's Team"}
    assert (bea.cursor, bea.resumed) == (2, False)
    found = room.team(bea)
    assert found == bea.team
    assert (found.role, found.cursor, found.joined_at, found.last_seen_at) == (TeamRole.MEMBER, 2, room.now, room.now)


def test_a_team_joins_once_with_one_new_token(room: RoomDriver) -> None:
    token = new_token()
    first, again = room.join(new_token=token), room.join(new_token=token)
    assert first == again
    assert room.said() == [JOINED]


def test_present_teams_have_different_names(room: RoomDriver) -> None:
    second = room.join("alex's  team")
    assert second.team.team_name != "alex's  team"
    assert room.last()["team"] == second.team.team_name
    room.leave(room.alex)
    assert room.join("Alex's Team").team.team_name == "Alex's Team"


@pytest.mark.parametrize("name", ["", " ", "x" * 101])
def test_a_team_has_a_name_that_fits(room: RoomDriver, name: str) -> None:
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.join(name))
    assert len(rooms.members(room.db, room.id)) == 1


def test_a_team_continues_with_its_token_and_nothing_is_said(room: RoomDriver) -> None:
    bea = room.join()
    room.post(room.alex, "hello")
    room.wait(30)
    again = room.join_again(bea, name="another name")
    assert (again.resumed, again.token, again.cursor) == (True, bea.token, 1)
    assert again.team == evolve(bea.team, last_seen_at=room.now) == room.team(bea)
    assert room.said() == [JOINED, "hello"]


@pytest.mark.parametrize(("replay_from", "cursor"), [(0, 0), (1, 1), (-5, 0), (2**70, 2)])
def test_a_team_may_read_from_where_it_wants(room: RoomDriver, replay_from: int, cursor: int) -> None:
    room.post(room.alex, "hello")
    bea = room.join(replay_from=replay_from)
    assert (bea.cursor, room.team(bea).cursor) == (cursor, cursor)
    assert room.join_again(room.alex, replay_from=replay_from).cursor == cursor


def test_a_token_opens_its_own_room_only(room: RoomDriver) -> None:
    other = RoomDriver(room.db)
    for token in (other.alex.token, new_token(), room.alex.team.team_id + ".guess", "no token", ""):
        refused(RoomErrorCode.UNAUTHORIZED, lambda token=token: room.join(token=token))
    refused(RoomErrorCode.UNAUTHORIZED, lambda: room.post(other.alex, "hello"))
    refused(RoomErrorCode.UNAUTHORIZED, lambda: room.append(other.alex, "hello"))
    refused(RoomErrorCode.UNAUTHORIZED, lambda: room.leave(other.alex))
    assert room.feed() == other.feed() == ()


def test_an_unknown_room_is_not_found(room: RoomDriver) -> None:
    for id in (act(), "no id"):
        room.id = RoomId(id)
        for call in (
            room.join,
            lambda: room.post(SAM, "hello"),
            lambda: room.append(SAM, "x"),
            lambda: room.pause(SAM),
        ):
            refused(RoomErrorCode.NOT_FOUND, call)


def test_a_team_that_leaves_is_said_and_stays_in_the_roster(room: RoomDriver) -> None:
    bea = room.join()
    room.wait(5)
    room.leave(bea)
    assert room.last() == {"event": "team_left", "team": "Bea's Team"}
    assert room.team(bea) == evolve(bea.team, left_at=room.now)
    room.wait(5)
    assert room.leave(bea).messages == ()
    assert room.said() == [JOINED, LEFT]


def test_a_team_that_has_left_can_only_join(room: RoomDriver) -> None:
    bea = room.join()
    room.leave(bea)
    for call in writes(room, bea).values():
        refused(RoomErrorCode.UNAUTHORIZED, call)
    again = room.join_again(bea)
    assert room.last() == {"event": "team_rejoined", "team": "Bea's Team"}
    assert again.team == bea.team
    assert room.post(again, "back").sequence == 4


def test_a_leave_that_is_repeated_late_does_not_end_the_next_visit(room: RoomDriver) -> None:
    bea, same = room.join(), act()
    transactions.leave(room.db, room.id, author(bea), RULES, room.now, same)
    room.join_again(bea)
    transactions.leave(room.db, room.id, author(bea), RULES, room.now, same)
    assert room.team(bea).left_at is None
    assert room.said() == [JOINED, LEFT, REJOINED]


def test_a_team_that_comes_back_finds_its_name_taken(room: RoomDriver) -> None:
    bea = room.join("Bea's Team")
    room.leave(bea)
    room.join("Bea's Team")
    again = room.join_again(bea)
    assert again.team.team_name != "Bea's Team"
    assert room.last() == {"event": "team_rejoined", "team": again.team.team_name}
    assert room.join_again(bea).team.team_name == again.team.team_name


def test_a_team_is_in_one_room_at_a_time_if_people_want_that(db: RoomsDatabase) -> None:
    room, other = RoomDriver(db, one_room_at_a_time=True), RoomDriver(db)
    other.leave(other.alex)
    bea = other.join("Bea's Team")
    fault = refused(RoomErrorCode.CONFLICT, lambda: room.join("Bea's  Team"))
    assert fault.details == {"session_id": other.id}
    refused(RoomErrorCode.CONFLICT, lambda: RoomDriver(db, one_room_at_a_time=True))
    other.leave(bea)
    mine = room.join("Bea's Team")
    assert room.join_again(mine).resumed
    assert room.said() == [JOINED]


# --- gone and back ---------------------------------------------------------------------------------------------------


def test_a_team_that_is_gone_is_said_once(room: RoomDriver) -> None:
    bea, cleo = room.join("Bea's Team"), room.join("Cleo's Team")
    room.leave(cleo)
    limit = room.now + timedelta(seconds=1)
    room.wait(61)
    gone = (bea.team.team_id, cleo.team.team_id)
    written = transactions.drop(room.db, room.id, gone, limit, room.now)
    assert written.answer == (evolve(bea.team, dropped_at=room.now),)
    assert [each.content for each in written.messages] == [{"event": "team_dropped", "team": "Bea's Team"}]
    assert transactions.drop(room.db, room.id, gone, limit, room.now).answer == ()
    assert room.said() == [JOINED, JOINED, LEFT, DROPPED]


def test_a_team_that_another_node_saw_is_not_gone(room: RoomDriver) -> None:
    bea = room.join()
    written = transactions.drop(room.db, room.id, [bea.team.team_id], room.now, room.now)
    assert (written.answer, written.messages) == ((), ())


def test_a_team_that_polls_again_is_said_once(room: RoomDriver) -> None:
    bea = room.join()
    later = room.now + timedelta(seconds=61)
    transactions.drop(room.db, room.id, [bea.team.team_id], later, later)
    room.wait(100)
    for _ in range(2):
        assert transactions.rejoined(room.db, room.id, bea.team.team_id, room.now).answer.last_seen_at == room.now
    assert room.last() == {"event": "team_rejoined", "team": "Bea's Team"}
    assert room.said() == [JOINED, DROPPED, REJOINED]
    transactions.drop(room.db, room.id, [bea.team.team_id], later + timedelta(seconds=200), later)
    room.join_again(bea)
    assert room.said()[3:] == [DROPPED, REJOINED]
    assert room.team(bea).dropped_at is None


def test_nobody_is_gone_from_a_closed_room(room: RoomDriver) -> None:
    bea = room.join()
    room.conclude(room.alex)
    later = room.now + timedelta(seconds=61)
    assert transactions.drop(room.db, room.id, [bea.team.team_id], later, later).answer == ()
    assert room.last()["event"] == "session_concluded"


# --- the feed --------------------------------------------------------------------------------------------------------


def test_posts_of_a_group_have_the_next_sequences(room: RoomDriver) -> None:
    bea = room.join()
    written = room.group(*(a_post(by, f"{at}") for at, by in enumerate([bea, room.alex, bea, SAM])))
    assert [each.sequence for each in written.messages] == [2, 3, 4, 5]
    assert written.answer == written.messages == room.feed()[1:]
    assert written.room == room.current()
    first, person = written.messages[0], written.messages[3]
    assert (first.type, first.content, first.posted_at) == (MessageType.CHAT, {"text": "0"}, room.now)
    assert (first.posted_by_team_id, first.author, first.role) == (bea.team.team_id, "Bea's Team", TeamRole.MEMBER)
    assert (person.posted_by_team_id, person.author, person.role) == (None, "sam", TeamRole.OPERATOR)


def test_a_post_is_written_once(room: RoomDriver) -> None:
    post = a_post(room.alex, "hello")
    first = room.group(post)
    again = room.group(a_post(room.alex, "new"), post, post)
    assert again.answer[1] == again.answer[2] == first.answer[0]
    twice = room.group(other := a_post(SAM, "twice"), other)
    assert twice.answer[0] == twice.answer[1]
    assert room.said() == ["hello", "new", "twice"]


def test_a_key_names_one_message_of_a_team(room: RoomDriver) -> None:
    bea = room.join()
    first = room.post(room.alex, "hello", key="1")
    assert room.post(room.alex, "hello", key="1") == first
    assert room.post(bea, "hello", key="1") != first
    fault = refused(RoomErrorCode.CONFLICT, lambda: room.post(room.alex, "good bye", key="1"))
    assert "new key" in fault.message
    assert room.said() == [JOINED, "hello", "hello"]


def test_a_key_is_used_once_in_a_group(room: RoomDriver) -> None:
    first, same, other = room.group(*(a_post(room.alex, text, key="1") for text in ("a", "a", "b"))).answer
    assert first == same
    assert isinstance(other, RoomRefused)
    assert room.said() == ["a"]


def test_a_post_that_is_refused_does_not_stop_the_others(room: RoomDriver) -> None:
    bea = room.join()
    room.leave(bea)
    answers = room.group(a_post(bea, "late"), a_post(room.alex, ""), a_post(room.alex, "fine")).answer
    codes = [each.room_code if isinstance(each, RoomRefused) else each.content for each in answers]
    assert codes == [RoomErrorCode.UNAUTHORIZED, RoomErrorCode.INVALID_ARGUMENTS, {"text": "fine"}]


def test_a_text_has_at_most_64_kibibytes(room: RoomDriver) -> None:
    room.post(room.alex, "ä" * 2**15)
    fault = refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.post(room.alex, "ä" * 2**15 + "x"))
    assert "65536 bytes" in fault.message


def test_an_author_is_whom_the_database_says(room: RoomDriver) -> None:
    bea = room.join()
    message = room.post(Author(bea.team, "Alex's Team", TeamRole.OPERATOR), "I am Alex")
    assert (message.author, message.role) == ("Bea's Team", TeamRole.MEMBER)
    room.pause(SAM)
    liar = Author(evolve(bea.team, role=TeamRole.OPERATOR), "sam", TeamRole.OPERATOR)
    refused(RoomErrorCode.SESSION_PAUSED, lambda: room.post(liar, "I am Sam"))
    refused(RoomErrorCode.FORBIDDEN, lambda: room.resume(liar))


def test_an_ack_is_part_of_its_message(room: RoomDriver) -> None:
    bea = room.join()
    sent = room.post(room.alex, "hello")
    found = room.ack(bea, sent.sequence)
    room.wait(5)
    assert room.ack(bea, sent.sequence) == found == room.feed()[-1]
    assert [(each.team_id, each.team_name) for each in found.acks] == [(bea.team.team_id, "Bea's Team")]
    refused(RoomErrorCode.NOT_FOUND, lambda: room.ack(bea, 3))
    refused(RoomErrorCode.FORBIDDEN, lambda: room.ack(SAM, 2))
    room.conclude(room.alex)
    assert len(room.ack(bea, 3).acks) == 1


# --- the loop guard --------------------------------------------------------------------------------------------------


def test_the_guard_warns_and_then_pauses(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5, warn_at=0.8))
    written = room.group(*(a_post(room.alex, f"{at}") for at in range(7)))
    assert room.said() == ["0", "1", "2", "3", RoomEvent.LOOP_WARNING, "4", RoomEvent.PAUSED]
    warning, paused = room.feed()[4].content, room.feed()[6].content
    assert (warning["messages"], warning["budget"]) == (4, 5)
    assert "conclude" in str(warning["advice"])
    assert paused["by"] == transactions.LOOP_GUARD == room.current().paused_by
    assert paused["reason"] == room.current().pause_reason
    assert [isinstance(each, RoomRefused) for each in written.answer] == [False] * 5 + [True] * 2
    assert written.room == room.current()


def test_a_group_that_runs_again_warns_once(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5))
    posts = [a_post(room.alex, f"{at}") for at in range(5)]
    first, again = room.group(*posts), room.group(*posts)
    assert again.answer == first.answer
    assert (again.messages, again.room) == ((), first.room)


def test_a_person_or_a_change_of_the_document_starts_the_count_again(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5))
    for progress in (
        lambda: room.post(SAM, "go on"),
        lambda: room.append(room.alex, "a finding"),
        lambda: room.update(room.alex, "all", room.current().session_doc_version),
    ):
        room.group(*(a_post(room.alex, "x") for _ in range(4)))
        assert room.current().messages_since_progress == 4
        progress()
        assert room.current().messages_since_progress == 0
    assert not room.current().is_paused


def test_a_pause_of_the_guard_is_lifted_and_the_count_begins_again(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(3))
    for _ in range(2):
        answers = room.group(*(a_post(room.alex, "x") for _ in range(4))).answer
        assert [isinstance(each, RoomRefused) for each in answers] == [False, False, False, True]
        room.resume(room.alex)
        assert room.last() == {"event": "session_resumed", "by": "Alex's Team"}


def test_progress_alone_lifts_no_pause(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(1))
    room.post(room.alex, "x")
    room.post(SAM, "what do you do")
    room.append(room.alex, "a finding")
    assert room.current().is_paused
    assert room.current().messages_since_progress == 0


def test_without_a_budget_there_is_no_guard(room: RoomDriver) -> None:
    room.group(*(a_post(room.alex, "x") for _ in range(500)))
    assert room.said() == ["x"] * 500


def test_a_write_that_leaves_the_document_as_it_is_makes_no_version_and_is_no_progress(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5))
    assert room.update(room.alex, "", 0) == 0
    first = act()
    assert room.append(room.alex, "x", "Notes", act=first) == 1
    room.group(*(a_post(room.alex, "x") for _ in range(3)))
    before = room.current()
    assert room.append(room.alex, "## Notes", "Notes") == 1
    assert room.update(room.alex, room.document(), 1) == 1
    assert room.update(room.alex, "x", 1, "Notes") == 1
    assert room.update(SAM, room.document(), 1) == 1
    assert room.current() == before
    assert before.messages_since_progress == 3
    assert room.append(room.alex, "y", "Notes") == 2
    assert room.append(room.alex, "x", "Notes", act=first) == 1


def test_changes_of_the_document_without_end_pause_the_room(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(3))
    for at in range(15):
        room.post(room.alex, "thanks")
        room.update(room.alex, f"{at}", at)
    assert room.said()[-3:] == ["thanks", "thanks", RoomEvent.PAUSED]
    assert room.said().count(RoomEvent.LOOP_WARNING) == 1
    assert "a message of a person" in str(room.current().pause_reason)
    assert room.current().acts_since_person == 30
    assert room.update(room.alex, "the document can be written", 15) == 16
    room.reopen(room.alex)
    assert (room.current().is_paused, room.current().acts_since_person) == (False, 0)


def test_a_person_starts_the_count_of_changes_again(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(1))
    for at in range(4):
        for part in range(6):
            room.append(room.alex, f"{at} {part}")
        assert room.current().acts_since_person == 6
        if at % 2:
            room.append(SAM, f"{at}")
        else:
            room.post(SAM, "go on")
        assert room.current().acts_since_person == 0


def test_new_metadata_count_as_messages(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5))
    for at in range(5):
        room.describe(room.alex, title=f"title {at}")
    assert room.said()[3:] == [
        RoomEvent.METADATA_UPDATED,
        RoomEvent.LOOP_WARNING,
        RoomEvent.METADATA_UPDATED,
        RoomEvent.PAUSED,
    ]
    refused(RoomErrorCode.SESSION_PAUSED, lambda: room.describe(room.alex, title="more talk"))
    room.describe(SAM, title="Sam's")
    assert (room.current().title, room.current().messages_since_progress) == ("Sam's", 0)


def test_a_team_that_leaves_and_joins_in_turns_pauses_the_room_and_is_not_heard_for_ever(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(5))
    bea = room.join()
    for _ in range(20):
        room.leave(bea)
        room.join_again(bea)
    assert [each for each in room.said() if each not in (LEFT, REJOINED)] == [
        JOINED,
        RoomEvent.LOOP_WARNING,
        RoomEvent.PAUSED,
    ]
    assert len(room.feed()) == 12
    assert room.team(bea).left_at is None
    late = room.join("Late Team")
    assert late.team.role is TeamRole.MEMBER
    room.resume(SAM)
    room.leave(late)
    assert room.last() == {"event": "team_left", "team": "Late Team"}


def test_what_the_server_and_people_do_is_not_counted(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(2))
    later = room.now + timedelta(days=1)
    transactions.drop(db, room.id, [room.alex.team.team_id], later, room.now)
    transactions.rejoined(db, room.id, room.alex.team.team_id, room.now)
    room.join("Sam", role=TeamRole.OPERATOR)
    room.join("Conclusion agent", role=TeamRole.CONCLUDER)
    assert room.said() == [DROPPED, REJOINED, JOINED, JOINED]
    assert room.current().messages_since_progress == 0


# --- pause -----------------------------------------------------------------------------------------------------------


def test_a_paused_room_takes_posts_of_people_only(room: RoomDriver) -> None:
    room.pause(SAM, "lunch")
    assert room.last() == {"event": "session_paused", "by": "sam", "reason": "lunch"}
    fault = refused(RoomErrorCode.SESSION_PAUSED, lambda: room.post(room.alex, "hello"))
    assert "lunch" in fault.message
    assert fault.details == {"paused_by": "sam", "reason": "lunch"}
    room.post(SAM, "back at two")
    operator = room.join("Sam at a phone", role=TeamRole.OPERATOR)
    room.post(operator, "make it three")
    room.append(room.alex, "lunch at one")
    refused(RoomErrorCode.SESSION_PAUSED, lambda: room.describe(room.alex, title="hello"))
    room.resume(SAM)
    assert room.post(room.alex, "hello").sequence == 6


def test_a_room_is_paused_and_resumed_once(room: RoomDriver) -> None:
    pausing, resuming = act(), act()
    room.pause(SAM, None, act=pausing)
    assert room.last() == {"event": "session_paused", "by": "sam"}
    room.pause(transactions.person("kit"), "lunch")
    assert room.current().paused_by == "sam"
    room.resume(SAM, act=resuming)
    room.resume(SAM)
    room.pause(SAM, act=pausing)
    assert not room.current().is_paused
    room.pause(SAM)
    room.resume(SAM, act=resuming)
    assert room.current().is_paused
    assert room.said() == [RoomEvent.PAUSED, RoomEvent.RESUMED, RoomEvent.PAUSED]


def test_only_people_pause_and_end_their_pause(room: RoomDriver) -> None:
    """The convener reopened a room that a person had paused, and concluded it."""
    bea = room.join()
    refused(RoomErrorCode.FORBIDDEN, lambda: room.pause(bea))
    refused(RoomErrorCode.FORBIDDEN, lambda: room.pause(room.alex))
    room.pause(SAM)
    refused(RoomErrorCode.FORBIDDEN, lambda: room.resume(bea))
    refused(RoomErrorCode.FORBIDDEN, lambda: room.reopen(bea))
    for ends in (room.resume, room.reopen, room.conclude):
        refused(RoomErrorCode.SESSION_PAUSED, partial(ends, room.alex))
    assert room.current().is_paused
    room.resume(SAM)
    room.conclude(bea)
    refused(RoomErrorCode.FORBIDDEN, lambda: room.reopen(bea))
    assert room.current().is_closed


# --- the document ----------------------------------------------------------------------------------------------------


def test_each_write_makes_a_version_with_its_author(room: RoomDriver) -> None:
    bea = room.join()
    assert room.append(room.alex, "one") == 1
    assert room.append(bea, "two", "Notes") == 2
    assert room.update(SAM, "three", 2) == 3
    found = rooms.document_history(room.db, room.id, 10)
    assert [(each.version, each.author, each.written_by_team_id) for each in found] == [
        (3, "sam", None),
        (2, "Bea's Team", bea.team.team_id),
        (1, "Alex's Team", room.alex.team.team_id),
    ]
    assert room.document() == "three"
    assert "two" in room.document(2)
    assert room.said() == [JOINED]


def test_an_act_writes_one_version(room: RoomDriver) -> None:
    first, second = act(), act()
    room.append(room.alex, "one", act=first)
    room.update(room.alex, "two", 1, act=second)
    assert room.append(room.alex, "one", act=first) == 1
    assert room.update(room.alex, "two", 1, act=second) == 2
    assert (room.document(), room.current().session_doc_version) == ("two", 2)


def test_an_update_of_an_old_version_is_a_conflict_with_a_diff(room: RoomDriver) -> None:
    room.append(room.alex, "one")
    room.append(room.alex, "two")
    fault = refused(RoomErrorCode.VERSION_CONFLICT, lambda: room.update(room.alex, "mine", 1))
    assert fault.details["current_version"] == 2
    assert "+two" in str(fault.details["diff"])
    assert fault.status == 409
    fault = refused(RoomErrorCode.VERSION_CONFLICT, lambda: room.update(room.alex, "mine", 0))
    assert "+one" in str(fault.details["diff"])
    for unknown in (3, -1, 2**70):
        fault = refused(RoomErrorCode.VERSION_CONFLICT, lambda unknown=unknown: room.update(SAM, "mine", unknown))
        assert fault.details == {"current_version": 2}
    assert room.current().session_doc_version == 2


def test_a_section_conflicts_only_with_itself(room: RoomDriver) -> None:
    room.update(room.alex, "## Plan\n\nfirst\n\n## Notes\n\nnone\n", 0)
    room.update(room.alex, "some", 1, "Notes")
    assert room.update(room.alex, "second", 1, "Plan") == 3
    assert "second" in room.document()
    assert "some" in room.document()
    fault = refused(RoomErrorCode.VERSION_CONFLICT, lambda: room.update(room.alex, "third", 1, "Plan"))
    assert "'Plan'" in fault.message
    assert room.update(room.alex, "third", 3, "Plan") == 4


def test_a_document_has_at_most_a_mebibyte(room: RoomDriver) -> None:
    room.update(room.alex, "x" * 2**20, 0)
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.append(room.alex, "more"))
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.conclude(room.alex))
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.update(room.alex, "ä" * 2**19 + "x", 1))
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.append(room.alex, " "))
    assert room.current().session_doc_version == 1
    assert not room.current().is_closed
    assert room.update(room.alex, "", 1) == 2


# --- the conclusion --------------------------------------------------------------------------------------------------


def test_a_conclusion_closes_the_room_and_is_said(room: RoomDriver) -> None:
    room.append(room.alex, "a finding")
    room.wait(60)
    written = room.conclude(room.alex, "## Conclusion\nIt costs $1 & \\1.")
    assert (written.answer.closed_at, written.answer.doc_version) == (room.now, 2)
    assert room.last() == {"event": "session_concluded", "by": "Alex's Team", "doc_version": 2}
    found = room.current()
    assert (found.status, found.closed_at, found.session_doc_version) == (RoomStatus.CLOSED, room.now, 2)
    assert "a finding" in room.document()
    assert "It costs $1 & \\1." in room.document()
    assert room.document().count("## Conclusion") == 1
    assert found == written.room


def test_a_conclusion_can_be_replaced(room: RoomDriver) -> None:
    bea = room.join()
    first = room.conclude(room.alex, "Almost.\n\n## Left\n\nall").answer
    room.wait(60)
    second = room.conclude(bea, "Done.").answer
    assert (second.closed_at, second.doc_version) == (first.closed_at, 2)
    assert "Almost" not in room.document()
    assert "## Left" not in room.document()
    assert room.said() == [JOINED, RoomEvent.CONCLUDED, RoomEvent.CONCLUDED]
    assert room.current().closed_at == first.closed_at


def test_the_same_conclusion_again_changes_nothing(room: RoomDriver) -> None:
    first = room.conclude(room.alex, "Done.")
    before = room.current(), room.feed()
    room.wait(60)
    again = room.conclude(room.alex, "Done.")
    assert (again.answer, again.messages) == (first.answer, ())
    assert (room.current(), room.feed()) == before


def test_teams_replace_a_conclusion_only_so_often(db: RoomsDatabase) -> None:
    room = RoomDriver(db, budget=Budget(3))
    for at in range(4):
        room.conclude(room.alex, f"Done {at}.")
    fault = refused(RoomErrorCode.FORBIDDEN, lambda: room.conclude(room.alex, "Done 4."))
    assert "ask a person" in fault.message
    assert room.conclude(room.alex, "Done 3.").answer.doc_version == 4
    assert room.said() == [RoomEvent.CONCLUDED] * 4
    room.conclude(SAM, "Done, says Sam.")
    room.conclude(room.alex, "Really.")
    assert room.said() == [RoomEvent.CONCLUDED] * 6


def test_a_reopened_room_is_concluded_with_the_same_summary(room: RoomDriver) -> None:
    same = act()
    room.conclude(room.alex, "Done.")
    room.reopen(room.alex)
    assert room.conclude(room.alex, "Done.", act=same).answer.doc_version == 1
    assert room.current().is_closed
    room.reopen(room.alex)
    assert room.conclude(room.alex, "Done.", act=same).answer.doc_version == 1
    assert not room.current().is_closed


def test_a_conclusion_is_claimed_once_until_the_room_is_reopened(room: RoomDriver) -> None:
    def claim(act: str) -> ConclusionClaim:
        return transactions.claim_conclusion(room.db, room.id, act, room.now)

    # A lost answer, and another server.
    assert (claim("one"), claim("one"), claim("two")) == (
        ConclusionClaim("one"),
        ConclusionClaim("one"),
        ConclusionClaim(wait=300),
    )
    transactions.release_conclusion(room.db, room.id, "one")
    assert claim("two") == ConclusionClaim("two")
    room.wait(100)
    transactions.release_conclusion(room.db, room.id, "one")
    assert (claim("three"), transactions.is_conclusion_started(room.db, room.id)) == (ConclusionClaim(wait=200), False)
    assert [each.id for each in transactions.conclusions_starting(room.db)] == [room.id]
    # The server that began has ended: another goes on with the same act.
    room.wait(200)
    assert (claim("three"), claim("four")) == (ConclusionClaim("two"), ConclusionClaim(wait=300))
    transactions.conclusion_started(room.db, room.id, "two")
    transactions.release_conclusion(room.db, room.id, "two")
    assert (claim("five"), transactions.is_conclusion_started(room.db, room.id)) == (ConclusionClaim(), True)
    assert transactions.conclusions_starting(room.db) == ()
    room.conclude(room.alex)
    assert claim("six") == ConclusionClaim()
    room.reopen(room.alex)
    assert claim("six") == ConclusionClaim("six")


def test_a_conclusion_is_written_once_by_one_act(room: RoomDriver) -> None:
    same = act()
    first = room.conclude(room.alex, "Done.", act=same)
    room.conclude(room.alex, "Really done.")
    assert room.conclude(room.alex, "Done.", act=same).answer == first.answer
    assert "Really" in room.document()
    assert len(room.feed()) == 2


def test_only_the_convener_concludes_if_people_want_that(db: RoomsDatabase) -> None:
    room = RoomDriver(db, convener_only_conclude=True)
    bea = room.join()
    refused(RoomErrorCode.FORBIDDEN, lambda: room.conclude(bea))
    refused(RoomErrorCode.INVALID_ARGUMENTS, lambda: room.conclude(room.alex, ""))
    assert not room.current().is_closed
    room.conclude(room.alex)
    room.conclude(SAM)
    refused(RoomErrorCode.FORBIDDEN, lambda: room.conclude(bea))


def test_a_conclusion_ends_a_pause(room: RoomDriver) -> None:
    room.pause(SAM)
    room.conclude(SAM)
    room.reopen(room.alex)
    assert not room.current().is_paused
    room.post(room.alex, "hello")


def test_a_room_is_reopened_and_concluded_anew(room: RoomDriver) -> None:
    room.conclude(room.alex, "Almost.")
    same = act()
    room.reopen(room.alex, "one bug left", act=same)
    assert room.last() == {"event": "session_reopened", "by": "Alex's Team", "reason": "one bug left"}
    assert (room.current().status, room.current().closed_at) == (RoomStatus.ACTIVE, None)
    assert "Almost." in room.document()
    room.reopen(SAM, None)
    room.post(room.alex, "fixed")
    room.wait(60)
    assert room.conclude(room.alex, "Done.").answer.closed_at == room.now
    assert "Almost." not in room.document()
    room.reopen(room.alex, act=same)
    assert room.current().is_closed
    assert room.said() == [RoomEvent.CONCLUDED, RoomEvent.REOPENED, "fixed", RoomEvent.CONCLUDED]


def test_the_convener_lifts_a_pause_of_the_guard_with_reopen_too(room: RoomDriver) -> None:
    rooms.set_room(room.db, room.id, paused_at=room.now, paused_by=transactions.LOOP_GUARD)
    room.reopen(room.alex, "lunch is over")
    assert room.last() == {"event": "session_resumed", "by": "Alex's Team", "reason": "lunch is over"}
    assert not room.current().is_paused


# --- closed rooms and readers ----------------------------------------------------------------------------------------


def writes(room: RoomDriver, team: Joined) -> dict[str, Callable[[], object]]:
    """The writes that need a membership, but for `leave`."""
    return {
        "post": lambda: room.post(team, "hello"),
        "append": lambda: room.append(team, "hello"),
        "update": lambda: room.update(team, "hello", room.current().session_doc_version),
        "describe": lambda: room.describe(team, title="new"),
        "pause": lambda: room.pause(team),
        "resume": lambda: room.resume(team),
        "conclude": lambda: room.conclude(team),
        "reopen": lambda: room.reopen(team),
        "ack": lambda: room.ack(team, 1),
    }


@pytest.mark.parametrize("write", ["post", "append", "update", "describe", "pause", "resume"])
def test_a_closed_room_refuses(room: RoomDriver, write: str) -> None:
    room.conclude(room.alex)
    before = room.current(), room.feed()
    fault = refused(RoomErrorCode.SESSION_CLOSED, writes(room, room.alex)[write])
    assert fault.status == 403
    for other in (SAM, room.join("Late Team")):
        refused(RoomErrorCode.SESSION_CLOSED, lambda other=other: room.post(other, "hello"))
    assert (room.current(), room.feed()) == before


def test_a_post_that_got_in_is_answered_after_the_close(room: RoomDriver) -> None:
    post = a_post(room.alex, "hello", key="1")
    first = room.group(post).answer[0]
    room.conclude(room.alex)
    assert room.group(post).answer == (first,)
    assert room.post(room.alex, "hello", key="1") == first


def test_a_team_that_joins_a_closed_room_only_reads(room: RoomDriver) -> None:
    room.conclude(room.alex)
    reader = room.join("Bea's Team")
    assert (reader.team.role, reader.cursor) == (TeamRole.READER, 1)
    room.reopen(room.alex)
    for write, call in writes(room, reader).items():
        fault = refused(RoomErrorCode.READ_ONLY, call)
        assert "join_session" in fault.message, write
    assert room.said() == [RoomEvent.CONCLUDED, RoomEvent.REOPENED]


def test_a_reader_becomes_a_member_when_it_joins_again(room: RoomDriver) -> None:
    room.conclude(room.alex)
    reader = room.join("Bea's Team")
    assert room.join_again(reader).team.role is TeamRole.READER
    room.reopen(room.alex)
    again = room.join_again(reader)
    assert (again.team.role, again.cursor) == (TeamRole.MEMBER, 1)
    assert room.last() == {"event": "team_joined", "team": "Bea's Team"}
    room.post(reader, "hello")


def test_nothing_is_said_of_a_reader(room: RoomDriver) -> None:
    room.conclude(room.alex)
    reader, other = room.join("Bea's Team"), room.join("Cleo's Team")
    room.leave(reader)
    room.reopen(room.alex)
    later = room.now + timedelta(seconds=61)
    assert len(transactions.drop(room.db, room.id, [other.team.team_id], later, later).answer) == 1
    transactions.rejoined(room.db, room.id, other.team.team_id, later)
    assert room.said() == [RoomEvent.CONCLUDED, RoomEvent.REOPENED]


def test_members_of_a_closed_room_stay_members_unless_they_leave(room: RoomDriver) -> None:
    bea, cleo = room.join("Bea's Team"), room.join("Cleo's Team")
    room.conclude(room.alex)
    for team in (bea, room.alex):
        room.leave(team)
    assert room.said()[-2:] == [LEFT, LEFT]
    roles = [room.join_again(team).team.role for team in (room.alex, bea, cleo)]
    assert roles == [TeamRole.MEMBER, TeamRole.READER, TeamRole.MEMBER]
    assert room.said()[-2:] == [LEFT, LEFT]
    room.reopen(room.alex)
    assert room.post(cleo, "hello").sequence == room.current().last_sequence


# --- what only people do ---------------------------------------------------------------------------------------------


def test_a_person_opens_a_room_without_a_team_and_the_feed_says_who(db: RoomsDatabase) -> None:
    room, made = new_room(new_token()), act()
    for _ in range(2):
        written = transactions.open_by_person(db, room=room, author=SAM, now=room.created_at, act=made)
        assert (written.room.title, written.room.last_sequence) == (room.title, 1)
    assert [each.content for each in rooms.after(db, room.id, 0, 10)] == [{"event": "session_created", "by": "sam"}]
    assert rooms.members(db, room.id) == ()
    refused(
        RoomErrorCode.INVALID_ARGUMENTS,
        lambda: transactions.open_by_person(
            db, room=evolve(new_room(new_token()), title=""), author=SAM, now=room.created_at, act=act()
        ),
    )


def test_a_person_pins_messages_once_and_all_are_told(room: RoomDriver) -> None:
    first, second = room.post(room.alex, "one"), room.post(room.alex, "two")

    def pin(number: int, *, remove: bool = False, by: Author = SAM, id: str | None = None) -> None:
        transactions.pin(room.db, room.id, by, number, remove, room.now, id or act())

    same = act()
    for _ in range(2):
        pin(second.sequence, id=same)
    pin(first.sequence)
    pin(first.sequence)
    assert transactions.pins(room.db, room.id) == (2, 1)
    assert room.last() == {"event": "message_pinned", "by": "sam", "cursor": 1}
    pin(second.sequence, remove=True)
    pin(second.sequence, remove=True)
    assert transactions.pins(room.db, room.id) == (1,)
    assert room.said()[2:] == [RoomEvent.PINNED, RoomEvent.PINNED, RoomEvent.UNPINNED]
    refused(RoomErrorCode.NOT_FOUND, lambda: pin(99))
    refused(RoomErrorCode.FORBIDDEN, lambda: pin(2, by=author(room.alex)))
    room.conclude(room.alex)
    pin(first.sequence, remove=True)
    assert transactions.pins(room.db, room.id) == ()


def test_only_so_many_messages_are_pinned(room: RoomDriver) -> None:
    room.post(room.alex, "one")
    rooms.set_setting(room.db, f"rooms/pins/{room.id}", str(list(range(2, 52))))
    refused(RoomErrorCode.CONFLICT, lambda: transactions.pin(room.db, room.id, SAM, 1, False, room.now, act()))
