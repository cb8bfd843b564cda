"""The queries about rooms do the same on both databases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from attrs import evolve

from intercom.model.room import (
    Ack,
    DocumentVersion,
    Message,
    MessageType,
    RoomErrorCode,
    RoomId,
    RoomRefused,
    RoomStatus,
    TeamId,
    TeamRole,
)
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase
from intercom.store.rooms import Seen
from tests.support.room_databases import room_database

from . import cases
from .cases import NOW, after, id_of, new_room, say

ROOM = cases.room().id
ADA, BOB = cases.team_id("ada"), cases.team_id("bob")
UNKNOWN = id_of("unknown")
#: What a caller may send as an id.
NO_IDS = ["", "nonsense", "' or true --", UNKNOWN, "x" * 1000, "½", "{}", ROOM.replace("-", "")]


def texts(messages: tuple[Message, ...]) -> list[object]:
    return [each.content["text"] for each in messages]


# --- rooms -----------------------------------------------------------------------------------------------------------

FULL = cases.room(
    title="Ünïcode 🚂 'quoted' \"twice\" \\ % ? :name",
    description="two\nlines",
    updated_at=after(0.000001),
    status=RoomStatus.CLOSED,
    closed_at=after(1.5),
    last_sequence=2**40,
    session_doc_version=3,
    paused_at=after(2),
    paused_by="loop guard",
    pause_reason="too much",
    messages_since_progress=7,
    acts_since_person=9,
    conclusion="$1 \\1 & all",
    passcode_hash="ab",
    has_concluder=True,
)


@pytest.mark.parametrize("value", [cases.room(), FULL])
def test_a_room_is_read_as_it_was_written(room_db: RoomsDatabase, value: Any) -> None:
    rooms.create(room_db, value, cases.team())
    assert rooms.get(room_db, value.id) == value
    assert rooms.lock(room_db, value.id) == value
    assert rooms.members(room_db, value.id) == (cases.team(),)


def test_a_room_that_is_created_again_stays_as_it_is(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, "hello")
    rooms.create(room_db, cases.room(title="another"), cases.team(cursor=9))
    found = rooms.get(room_db, ROOM)
    assert found == cases.room(last_sequence=1)
    assert rooms.members(room_db, ROOM) == (cases.team(),)


@pytest.mark.parametrize("id", NO_IDS)
def test_any_text_may_be_asked_for_as_an_id(room_db: RoomsDatabase, id: str) -> None:
    new_room(room_db)
    assert rooms.get(room_db, id) is None
    assert rooms.team(room_db, ROOM, id) is None
    assert rooms.message_by_id(room_db, ROOM, id) is None
    with pytest.raises(RoomRefused, match="no session has the id") as refused:
        rooms.lock(room_db, id)
    assert refused.value.room_code is RoomErrorCode.NOT_FOUND


def test_columns_of_a_room_are_set_and_the_room_is_returned(room_db: RoomsDatabase) -> None:
    room = new_room(room_db)
    changes: dict[str, Any] = {
        "status": RoomStatus.CLOSED,
        "closed_at": after(3),
        "has_concluder": True,
        "paused_by": "ada",
        "messages_since_progress": 4,
    }
    assert rooms.set_room(room_db, ROOM, **changes) == evolve(room, **changes)
    assert rooms.set_room(room_db, ROOM, paused_by=None).paused_by is None
    assert rooms.get(room_db, ROOM) == evolve(room, **{**changes, "paused_by": None})
    with pytest.raises(RoomRefused):
        rooms.set_room(room_db, UNKNOWN, title="new")


# --- teams -----------------------------------------------------------------------------------------------------------


def test_teams_are_listed_in_the_order_in_which_they_joined(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    late = cases.team("late", joined_at=after(9), role=TeamRole.READER, cursor=3, left_at=after(10))
    soon = cases.team("soon", joined_at=after(5), dropped_at=after(8))
    assert rooms.add_team(room_db, late)
    assert rooms.add_team(room_db, soon)
    assert not rooms.add_team(room_db, evolve(soon, team_name="another"))
    assert rooms.members(room_db, ROOM) == (cases.team(), soon, late)
    assert rooms.team(room_db, ROOM, late.team_id) == late
    assert rooms.members(room_db, UNKNOWN) == ()


def test_columns_of_a_team_are_set_and_the_team_is_returned(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    rooms.add_team(room_db, cases.team("bob"))
    changed = cases.team(left_at=after(1), role=TeamRole.READER)
    assert rooms.set_team(room_db, ROOM, ADA, left_at=after(1), role=TeamRole.READER) == changed
    assert rooms.members(room_db, ROOM) == tuple(sorted((changed, cases.team("bob")), key=lambda team: team.team_id))
    with pytest.raises(RoomRefused) as refused:
        rooms.set_team(room_db, ROOM, UNKNOWN, left_at=None)
    assert refused.value.room_code is RoomErrorCode.UNAUTHORIZED


def test_polls_raise_what_is_known_of_teams_and_never_lower_it(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    for name in ("bob", "cid"):
        rooms.add_team(room_db, cases.team(name))

    def known() -> dict[str, tuple[datetime, int]]:
        return {team.team_name: (team.last_seen_at, team.cursor) for team in rooms.members(room_db, ROOM)}

    rooms.seen(room_db, ROOM, ())
    rooms.seen(room_db, ROOM, [Seen(ADA, after(5), 3), Seen(BOB, after(6), 2), Seen(TeamId(UNKNOWN), after(7), 1)])
    assert known() == {"ada": (after(5), 3), "bob": (after(6), 2), "cid": (NOW, 0)}
    # Each by itself, also if one batch has a team twice.
    rooms.seen(room_db, ROOM, [Seen(ADA, after(4), 9), Seen(BOB, after(8), 0), Seen(BOB, after(7), 1)])
    assert known() == {"ada": (after(5), 9), "bob": (after(8), 2), "cid": (NOW, 0)}
    rooms.seen(room_db, UNKNOWN, [Seen(ADA, after(99), 99)])
    assert known()["ada"] == (after(5), 9)


# --- the feed --------------------------------------------------------------------------------------------------------


def test_messages_get_the_next_numbers_of_their_room(room_db: RoomsDatabase) -> None:
    for name in ("room", "other"):
        new_room(room_db, name)
    say(room_db, "elsewhere", room="other")
    room = rooms.lock(room_db, ROOM)
    room, first = rooms.add_messages(room_db, room, [cases.message("a"), cases.message("b", sequence=77)])
    assert [each.sequence for each in first] == [1, 2]
    assert room.last_sequence == 2
    # The room as returned is good for more.
    room, second = rooms.add_messages(room_db, room, [cases.message("c")])
    assert [each.sequence for each in second] == [3]
    assert rooms.get(room_db, ROOM) == room == cases.room(last_sequence=3)
    assert rooms.after(room_db, ROOM, 0, 10) == (*first, *second)
    assert rooms.add_messages(room_db, room, ()) == (room, ())
    assert texts(rooms.after(room_db, id_of("room other"), 0, 10)) == ["elsewhere"]


CONTENTS: list[dict[str, Any]] = [
    {"text": "Ünïcode 🚂 ' \" \\ \n\t\r % ? :name {x} $1 \x01\x7f"},
    {"text": ""},
    {"event": "session_metadata_updated", "changes": {"title": {"from": "a", "to": None}}, "n": [1, 2.5, -3, True]},
    {},
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_message_is_read_as_it_was_written(room_db: RoomsDatabase, content: dict[str, Any]) -> None:
    room = new_room(room_db)
    by_nobody: dict[str, Any] = {"type": MessageType.SYSTEM, "posted_by_team_id": None, "author": None, "role": None}
    ours = cases.message("ours", content=content, **by_nobody)
    theirs = cases.message("theirs", content=content, key="k" * 200, author="ą", posted_at=after(0.25), id="any text")
    _, added = rooms.add_messages(room_db, room, [ours, theirs])
    assert rooms.after(room_db, ROOM, 0, 10) == added == (evolve(ours, sequence=1), evolve(theirs, sequence=2))


def test_a_message_is_found_by_its_id_and_by_its_key(room_db: RoomsDatabase) -> None:
    room = new_room(room_db)
    new_room(room_db, "other")
    _, (first, second, third) = rooms.add_messages(
        room_db,
        room,
        [
            cases.message("a", key="same"),
            cases.message("b", key="same", posted_by_team_id=BOB),
            cases.message("c", posted_by_team_id=None),
        ],
    )
    assert rooms.message_by_id(room_db, ROOM, third.id) == third
    assert rooms.message_by_id(room_db, id_of("room other"), third.id) is None
    assert rooms.messages_by_id(room_db, ROOM, [first.id, third.id, "no id"]) == {first.id: first, third.id: third}
    assert rooms.messages_by_id(room_db, id_of("room other"), [first.id, third.id]) == {}
    asked = [(ADA, "same"), (BOB, "another"), (ADA, "another '\"{}\\, ą")]
    assert rooms.messages_by_key(room_db, ROOM, asked) == {(ADA, "same"): first}
    assert rooms.messages_by_key(room_db, ROOM, [(BOB, "same")]) == {(BOB, "same"): second}
    assert rooms.messages_by_key(room_db, id_of("room other"), [(BOB, "same")]) == {}


def test_messages_without_a_key_do_not_collide(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    assert len(say(room_db, "a", "b", "c")) == 3


@pytest.mark.parametrize("twice", [{"id": id_of("message a")}, {"key": "same"}])
def test_a_message_that_is_in_the_feed_is_not_added_again(room_db: RoomsDatabase, twice: dict[str, str]) -> None:
    room = new_room(room_db)
    room, _ = rooms.add_messages(room_db, room, [cases.message("a", key="same")])
    with pytest.raises(Exception, match=r"(?i)unique"):
        rooms.add_messages(room_db, room, [cases.message("b", **twice)])


def test_the_feed_is_read_in_pages_from_both_ends(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    new_room(room_db, "other")
    say(room_db, *"abcdefg")
    say(room_db, "x", room="other")
    assert texts(rooms.after(room_db, ROOM, 0, 3)) == ["a", "b", "c"]
    assert texts(rooms.after(room_db, ROOM, 5, 3)) == ["f", "g"]
    assert rooms.after(room_db, ROOM, 7, 3) == ()
    assert texts(rooms.before(room_db, ROOM, None, 3)) == ["e", "f", "g"]
    assert texts(rooms.before(room_db, ROOM, 5, 3)) == ["b", "c", "d"]
    assert texts(rooms.before(room_db, ROOM, 2, 3)) == ["a"]
    assert rooms.before(room_db, ROOM, 1, 3) == ()


@pytest.mark.parametrize("cursor", [-(10**30), -1, 10**30])
def test_any_number_may_be_a_cursor(room_db: RoomsDatabase, cursor: int) -> None:
    new_room(room_db)
    say(room_db, *"abc")
    everything, nothing = ["a", "b", "c"], list[object]()
    assert texts(rooms.after(room_db, ROOM, cursor, 9)) == (everything if cursor < 0 else nothing)
    assert texts(rooms.before(room_db, ROOM, cursor, 9)) == (nothing if cursor < 0 else everything)
    assert rooms.document(room_db, ROOM, cursor) is None
    with pytest.raises(RoomRefused, match="has no message") as refused:
        rooms.add_ack(room_db, ROOM, cursor, cases.team(), NOW)
    assert refused.value.room_code is RoomErrorCode.NOT_FOUND


def test_acks_are_part_of_the_messages(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    rooms.add_team(room_db, cases.team("bob"))
    say(room_db, *"abc")
    ada, bob = Ack(ADA, "ada", after(2)), Ack(BOB, "bob", after(1))
    assert rooms.add_ack(room_db, ROOM, 2, cases.team(), after(2)).acks == (ada,)
    acknowledged = rooms.add_ack(room_db, ROOM, 2, cases.team("bob"), after(1))
    assert acknowledged.acks == (bob, ada)
    # Again: the first one counts.
    assert rooms.add_ack(room_db, ROOM, 2, cases.team(), after(9)) == acknowledged
    assert [each.acks for each in rooms.after(room_db, ROOM, 0, 10)] == [(), (bob, ada), ()]
    assert rooms.before(room_db, ROOM, 3, 1) == (acknowledged,)
    assert rooms.message_by_id(room_db, ROOM, acknowledged.id) == acknowledged


# --- the document ----------------------------------------------------------------------------------------------------


def test_a_new_rooms_document_is_empty(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    empty = DocumentVersion(ROOM, 0, "", None, "", NOW)
    assert rooms.document(room_db, ROOM) == empty
    assert rooms.document(room_db, ROOM, 0) == empty
    assert rooms.document(room_db, ROOM, 1) is None
    assert rooms.document(room_db, UNKNOWN) is None
    assert rooms.document(room_db, UNKNOWN, 0) is None
    assert rooms.document_history(room_db, ROOM, 10) == ()


def test_each_version_of_a_document_is_kept(room_db: RoomsDatabase) -> None:
    room = new_room(room_db)
    room = rooms.write_document(room_db, room, "# One\r\n", cases.team(), "ada", after(1), "act 1")
    assert room == cases.room(session_doc_version=1)
    room = rooms.write_document(room_db, room, "# Two 🚂\n", None, "eve (operator)", after(2), "act 2")
    assert rooms.get(room_db, ROOM) == room == cases.room(session_doc_version=2)
    first = DocumentVersion(ROOM, 1, "# One\r\n", ADA, "ada", after(1), "act 1")
    second = DocumentVersion(ROOM, 2, "# Two 🚂\n", None, "eve (operator)", after(2), "act 2")
    assert rooms.document(room_db, ROOM) == second
    assert rooms.document(room_db, ROOM, 1) == first
    assert rooms.document_by_act(room_db, ROOM, "act 1") == first
    assert rooms.document_by_act(room_db, ROOM, "act 3") is None
    bare = [evolve(each, content=None) for each in (second, first)]
    assert rooms.document_history(room_db, ROOM, 10) == tuple(bare)
    assert rooms.document_history(room_db, ROOM, 1) == (bare[0],)


@pytest.mark.parametrize("word", ["plain", "𠮷-𠮷", "example.com/a/b/c-d", "ü"])
def test_a_document_of_the_largest_size_is_stored(room_db: RoomsDatabase, word: str) -> None:
    room = new_room(room_db)
    # As many different words as there may be: the index must hold them, or leave some out.
    content = " ".join(f"{word}{number}" for number in range(2**20 // len(word)))[: 2**20]
    rooms.write_document(room_db, room, content, cases.team(), "ada", NOW, "act")
    found = rooms.document(room_db, ROOM)
    assert found is not None
    assert found.content == content


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_setting_is_set_and_removed(room_db: RoomsDatabase) -> None:
    assert rooms.setting(room_db, "public_url") is None
    for url in ("https://one.example", "https://two.example"):
        rooms.set_setting(room_db, "public_url", url)
        assert rooms.setting(room_db, "public_url") == url
    rooms.set_setting(room_db, "public_url", None)
    assert rooms.setting(room_db, "public_url") is None


def test_settings_are_found_by_the_beginning_of_their_names(room_db: RoomsDatabase) -> None:
    for name in ("rooms/a", "rooms/b", "rooms", "Rooms/c"):
        rooms.set_setting(room_db, name, f"value of {name}")
    assert rooms.settings_with_prefix(room_db, "rooms/") == {"a": "value of rooms/a", "b": "value of rooms/b"}
    assert rooms.settings_with_prefix(room_db, "rooms_") == {}


# --- looks through all rooms -----------------------------------------------------------------------------------------


def test_rooms_are_listed_newest_first_page_by_page(room_db: RoomsDatabase) -> None:
    # Two were created at one instant.
    made = [new_room(room_db, str(number), created_at=after(number // 2)) for number in range(7)]
    for number in (0, 3, 4):
        made[number] = rooms.set_room(room_db, made[number].id, status=RoomStatus.CLOSED)
    expected = sorted(made, key=lambda room: (room.created_at, room.id), reverse=True)

    def pages(status: RoomStatus | None) -> list[Any]:
        found: list[Any] = []
        before = None
        while page := rooms.list_rooms(room_db, status=status, limit=2, before=before):
            assert len(page) <= 2
            found += page
            before = page[-1].created_at, page[-1].id
        return found

    assert pages(None) == expected
    for status in RoomStatus:
        assert pages(status) == [room for room in expected if room.status is status]
    assert len(rooms.list_rooms(room_db, status=None, limit=2, before=(after(3), "nonsense"))) == 2


def test_ids_are_found_by_their_beginning(room_db: RoomsDatabase) -> None:
    ids = sorted(new_room(room_db, str(number)).id for number in range(40))
    for length in (0, 1, 2, 8, 9, 20, 35, 36):
        prefix = ids[7][:length]
        assert rooms.with_prefix(room_db, prefix, 50) == tuple(id for id in ids if id.startswith(prefix))
    assert rooms.with_prefix(room_db, "", 3) == tuple(ids[:3])
    for nonsense in ("x", "%", "_", "' or", "00000000_", ids[7] + "0"):
        assert rooms.with_prefix(room_db, nonsense, 50) == ()


def test_rooms_that_have_newer_messages_are_found_at_once(room_db: RoomsDatabase) -> None:
    ids = [new_room(room_db, name).id for name in "abc"]
    for name in "abc":
        say(room_db, "1", "2", "3", room=name)
    known = {ids[0]: 2, ids[1]: 3, RoomId(UNKNOWN): 0}
    assert rooms.advanced(room_db, known) == {ids[0]: 3}
    assert rooms.advanced(room_db, {}) == {}


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({}, True),
        ({"last_seen_at": after(-1)}, False),
        ({"left_at": after(1)}, False),
        ({"team_name": "Ada"}, False),
    ],
)
def test_a_team_is_found_that_is_active_in_another_room(
    room_db: RoomsDatabase, changes: dict[str, Any], is_found: bool
) -> None:
    new_room(room_db)
    other = cases.room("other")
    rooms.create(room_db, other, cases.team("ada", "other", **changes))
    expected = other if is_found else None
    assert rooms.active_elsewhere(room_db, "ada", ROOM, NOW) == expected
    assert rooms.active_elsewhere(room_db, "bob", ROOM, NOW) is None
    rooms.set_room(room_db, other.id, status=RoomStatus.CLOSED)
    assert rooms.active_elsewhere(room_db, "ada", ROOM, NOW) is None


# --- full text -------------------------------------------------------------------------------------------------------


def hits(db: RoomsDatabase, words: str, limit: int = 20) -> list[tuple[str, str, int | None]]:
    return [(hit.room.title, hit.where, hit.sequence) for hit in rooms.search(db, words, limit)]


def test_words_are_found_in_titles_documents_and_messages(room_db: RoomsDatabase) -> None:
    new_room(room_db, "a", title="Repair the zebra crossing", created_at=after(1))
    new_room(room_db, "b", title="B", description="about a Zebra", created_at=after(2))
    c = new_room(room_db, "c", title="C")
    rooms.write_document(room_db, c, "# Notes\n\nthe zebra is at the crossing", None, "eve", NOW, "act")
    say(room_db, "a zebra, and another ZEBRA", "no such animal", "zebra\ncrossing", room="b")
    assert hits(room_db, "zebra") == [
        ("B", "title", None),
        ("Repair the zebra crossing", "title", None),
        ("C", "document", None),
        ("B", "feed", 3),
        ("B", "feed", 1),
    ]
    # All words, in any order and case.
    assert hits(room_db, "Crossing ZEBRA") == [
        ("Repair the zebra crossing", "title", None),
        ("C", "document", None),
        ("B", "feed", 3),
    ]
    assert hits(room_db, "zebr") == []
    assert hits(room_db, "zebra giraffe") == []
    [found] = rooms.search(room_db, "animal", 5)
    assert (found.excerpt, found.room) == ("no such animal", rooms.get(room_db, id_of("room b")))


def test_the_newest_are_found_first_and_messages_keep_half_of_the_places(room_db: RoomsDatabase) -> None:
    for name in "abc":
        new_room(room_db, name, title=f"zebra {name}", created_at=after(ord(name)))
    for number in range(5):
        room = rooms.lock(room_db, id_of("room a"))
        rooms.add_messages(room_db, room, [cases.message(f"zebra {number}", "a", posted_at=after(number))])
    titles, feed = [(f"zebra {name}", "title", None) for name in "cba"], [("zebra a", "feed", 5 - n) for n in range(5)]
    assert hits(room_db, "zebra", 4) == titles[:2] + feed[:2]
    assert hits(room_db, "zebra", 7) == titles + feed[:4]
    assert hits(room_db, "zebra") == titles + feed
    assert hits(room_db, "zebra", 1) == titles[:1]
    assert hits(room_db, "zebra", 0) == []


def test_a_text_that_changes_is_found_by_its_new_words_only(room_db: RoomsDatabase) -> None:
    room = new_room(room_db, title="old title")
    room = rooms.write_document(room_db, room, "old text", None, "eve", NOW, "1")
    rooms.write_document(room_db, room, "new text", None, "eve", NOW, "2")
    rooms.set_room(room_db, ROOM, title="new title")
    rooms.set_room(room_db, ROOM, messages_since_progress=3)
    assert hits(room_db, "old") == []
    assert hits(room_db, "new") == [("new title", "title", None)]
    assert hits(room_db, "text") == [("new title", "document", None)]


def test_of_a_room_with_a_passcode_only_the_title_is_searched(room_db: RoomsDatabase) -> None:
    room = new_room(room_db, title="zebra", passcode_hash="ab")
    rooms.write_document(room_db, room, "a giraffe", None, "eve", NOW, "1")
    say(room_db, "a giraffe and a zebra")
    assert hits(room_db, "giraffe") == []
    assert hits(room_db, "zebra") == [("zebra", "title", None)]
    assert hits(room_db, "zebra giraffe") == []


QUERIES = [
    "",
    "   ",
    '"',
    '""',
    '"unbalanced',
    "zebra AND",
    "OR NOT NEAR(",
    "title:zebra",
    "session_doc : x",
    "zebra*",
    "^zebra",
    "-zebra",
    "(((",
    "{a b} : c",
    "a\0b",
    "half \ud800 pair",
    "'; drop table messages; --",
    "!!! &&& |||",
    "% _ ? :name $1",
    "word " * 5000,
    "w" * 100_000,
    "((" * 10_000,
    "🚂",
    "\\",
]


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_any_text_is_a_query(room_db: RoomsDatabase, query: str) -> None:
    new_room(room_db)
    say(room_db, "hello")
    assert rooms.search(room_db, query, 10) == ()


def test_marks_in_a_query_are_not_syntax(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, 'a "zebra" and NOT a giraffe')
    for query in ('"zebra" and', "zebra NOT giraffe", "(zebra)", "zebra !!!"):
        assert hits(room_db, query) == [("Title of room", "feed", 1)], query


@pytest.mark.parametrize("text", ["zebra " * 10_000, "x" * 60_000 + " zebra", "zebra\n\n" + "long words " * 5_000])
def test_an_excerpt_is_one_short_line(room_db: RoomsDatabase, text: str) -> None:
    room = new_room(room_db)
    rooms.write_document(room_db, room, text, None, "eve", NOW, "1")
    say(room_db, text)
    found = rooms.search(room_db, "zebra", 10)
    assert [hit.where for hit in found] == ["document", "feed"]
    for hit in found:
        assert 0 < len(hit.excerpt) <= 240
        assert "\n" not in hit.excerpt


def test_an_excerpt_is_around_the_first_of_the_words(room_db: RoomsDatabase) -> None:
    text = "some concrete words. " * 100 + "Look at that\n\tZEBRA\n and " + "the crossing, " * 100
    room = new_room(room_db)
    rooms.write_document(room_db, room, text, None, "eve", NOW, "1")
    say(room_db, text)
    for query in ("crossing zebra", "the-crossing zebra!", "zebra look"):
        for hit in rooms.search(room_db, query, 10):
            assert hit.excerpt.startswith(("…some ", "…concrete ", "…words. "))
            assert "Look at that ZEBRA and the crossing, the crossing" in hit.excerpt
            assert hit.excerpt.endswith("…")
    # "concrete" contains "crete", which is no word of the text.
    assert "Look at that ZEBRA" in rooms._excerpt(text, rooms._pattern(["crete", "zebra"]))


def test_repeated_words_are_asked_for_once(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, "qz " * 1000)
    once, often = [
        recorded(room_db, {"search": lambda db, _, query=query: rooms.search(db, query, 10)}, 0)
        for query in ("qz", "qz QZ " * 50)
    ]
    assert often == once


def test_a_phrase_that_repeats_itself_is_asked_for_once() -> None:
    with room_database(Dialect.SQLITE) as db:
        new_room(db)
        say(db, "qz " * 1000, "rooms.py qz", "py rooms")
        once, often = [
            recorded(db, {"search": lambda db, _, query=query: rooms.search(db, query, 10)}, 0)
            for query in ("qz", "-".join(["qz"] * 100))
        ]
        assert often == once
        # A mark that FTS5 takes for the end of a word.
        assert [sequence for _, _, sequence in hits(db, "qz\u0305qz\u0305qz")] == [2, 1]
        # The marks that it takes for a part of one.
        say(db, "e\u0301te\u0301")
        assert [sequence for _, _, sequence in hits(db, "e\u0301te\u0301-e\u0301te\u0301")] == [4]
        # Other phrases stay.
        assert [sequence for _, _, sequence in hits(db, "rooms.py")] == [2]


def test_eight_words_and_fifty_places_count(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, *[f"{number}: a b c d e f g h" for number in range(60)])
    assert len(hits(room_db, "a b c d e f g h missing", 500)) == 50
    assert hits(room_db, "a b c d e f g missing", 500) == []


def test_a_search_reads_a_bounded_part_of_hostile_texts(
    room_db: RoomsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    excerpt = rooms._excerpt

    def counted(text: str, pattern: re.Pattern[str]) -> str:
        given.append(len(text))
        return excerpt(text, pattern)

    monkeypatch.setattr(rooms, "_excerpt", counted)
    room = new_room(room_db)
    rooms.write_document(room_db, room, "qz " * 300_000, None, "eve", NOW, "1")
    rooms.add_messages(
        room_db, rooms.lock(room_db, ROOM), [cases.message("qz " * 21_000, id=str(number)) for number in range(60)]
    )
    statements = recorded(room_db, {"search": lambda db, _: rooms.search(db, "qz " * 32, 500)}, 0)
    assert given == [2**15] * 50
    # The time of these functions grows faster than the text.
    assert not [sql for sql, _ in statements if re.search("snippet|highlight|headline", sql)]


def test_half_a_surrogate_in_a_stored_text_does_not_break_a_page() -> None:
    """PostgreSQL does not store such a text."""
    with room_database(Dialect.SQLITE) as db:
        room = new_room(db)
        halved = cases.message("halved", content={"text": "the parser \ud800 lexer"})
        rooms.add_messages(db, room, [halved, cases.message("a parser")])
        assert [hit.excerpt for hit in rooms.search(db, "parser", 10)] == ["a parser", "the parser ? lexer"]


# --- how the queries are run -----------------------------------------------------------------------------------------


@pytest.fixture
def on_postgresql() -> Iterator[RoomsDatabase]:
    with room_database(Dialect.POSTGRESQL) as db:
        yield db


class Recorder:
    """A database that notes what it is asked."""

    def __init__(self, db: RoomsDatabase) -> None:
        self._db = db
        self.dialect = db.dialect
        self.statements: list[tuple[str, Any]] = []

    def execute(self, sql: str, values: Any = (), /) -> Any:
        self.statements.append((sql, values))
        return self._db.execute(sql, values)


#: One call of each function, in a room with some messages. `n` differs from call to call.
CALLS: dict[str, Any] = {
    "create": lambda db, n: rooms.create(db, cases.room(f"new {n}"), cases.team(room=f"new {n}")),
    "get": lambda db, n: rooms.get(db, ROOM),
    "lock": lambda db, n: rooms.lock(db, ROOM),
    "set_room": lambda db, n: rooms.set_room(db, ROOM, updated_at=after(n)),
    "team": lambda db, n: rooms.team(db, ROOM, ADA),
    "teams_by_id": lambda db, n: rooms.teams_by_id(db, ROOM, [ADA, BOB][: 1 + n % 2]),
    "members": lambda db, n: rooms.members(db, ROOM),
    "add_team": lambda db, n: rooms.add_team(db, cases.team(f"team {n}")),
    "set_team": lambda db, n: rooms.set_team(db, ROOM, ADA, left_at=after(n)),
    "seen": lambda db, n: rooms.seen(db, ROOM, [Seen(ADA, after(n), n), Seen(BOB, after(n), n)][: 1 + n % 2]),
    "add_messages": lambda db, n: say(db, *[f"{n} {place}" for place in range(1 + n)]),
    "message_by_id": lambda db, n: rooms.message_by_id(db, ROOM, id_of(f"message {n} 0")),
    "messages_by_id": lambda db, n: rooms.messages_by_id(db, ROOM, [id_of(f"message {n} {m}") for m in range(1 + n)]),
    "messages_by_key": lambda db, n: rooms.messages_by_key(db, ROOM, [(ADA, str(m)) for m in range(1 + n)]),
    "after": lambda db, n: rooms.after(db, ROOM, 0, 5 + n),
    "before": lambda db, n: (rooms.before(db, ROOM, None, 5 + n), rooms.before(db, ROOM, 3, 5 + n)),
    "add_ack": lambda db, n: rooms.add_ack(db, ROOM, 1, cases.team(), NOW),
    "document": lambda db, n: (rooms.document(db, ROOM), rooms.document(db, ROOM, 1)),
    "write_document": lambda db, n: rooms.write_document(
        db, rooms.lock(db, ROOM), "text", cases.team(), "ada", NOW, f"act {n}"
    ),
    "link_evidence": lambda db, n: rooms.link_evidence(db, cases.evidence(id_of(f"evidence {n}"))),
    "linked_evidence": lambda db, n: rooms.linked_evidence(db, ROOM, id_of(f"evidence {n}")),
    "linked_among": lambda db, n: rooms.linked_among(db, ROOM, [id_of(f"evidence {m}") for m in range(1 + n)]),
    "linked_ids": lambda db, n: rooms.linked_ids(db, ROOM),
    "document_by_act": lambda db, n: rooms.document_by_act(db, ROOM, "act 1"),
    "document_history": lambda db, n: rooms.document_history(db, ROOM, 5 + n),
}
#: Those that belong to no room, or look through all.
CROSSING: dict[str, Any] = {
    "setting": lambda db, n: rooms.setting(db, "x"),
    "set_setting": lambda db, n: (rooms.set_setting(db, "x", str(n)), rooms.set_setting(db, "x", None)),
    "settings_with_prefix": lambda db, n: rooms.settings_with_prefix(db, "x" * n),
    "list_rooms": lambda db, n: (
        rooms.list_rooms(db, status=None, limit=5 + n),
        rooms.list_rooms(db, status=RoomStatus.ACTIVE, limit=5 + n, before=(NOW, ROOM)),
    ),
    "with_prefix": lambda db, n: rooms.with_prefix(db, "ab"[:n], 5),
    "search": lambda db, n: rooms.search(db, "hello " * (n + 1), 5 + n),
    "advanced": lambda db, n: rooms.advanced(db, {ROOM: n, RoomId(id_of(str(n))): 0}),
    "paused_by": lambda db, n: rooms.paused_by(db, "loop guard"),
    "active_elsewhere": lambda db, n: rooms.active_elsewhere(db, "ada", UNKNOWN, NOW),
}


def test_the_calls_are_all_there_are() -> None:
    functions = {
        name
        for name, each in vars(rooms).items()
        if callable(each) and getattr(each, "__module__", "") == rooms.__name__ and name[0].islower() and name[0] != "_"
    }
    assert {*CALLS, *CROSSING} == functions


def recorded(db: RoomsDatabase, calls: dict[str, Any], number: int) -> list[tuple[str, Any]]:
    recorder = Recorder(db)
    for call in calls.values():
        call(recorder, number)
    return recorder.statements


def test_the_texts_of_statements_are_constant(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, "hello")
    calls = {**CALLS, **CROSSING}
    first = {sql for sql, _ in recorded(room_db, calls, 1)}
    assert {sql for sql, _ in recorded(room_db, calls, 2)} == first
    assert len(first) < 60


def test_a_page_takes_two_statements_however_long_it_is(room_db: RoomsDatabase) -> None:
    new_room(room_db)
    say(room_db, *[str(number) for number in range(50)])
    rooms.add_ack(room_db, ROOM, 7, cases.team(), NOW)
    assert len(recorded(room_db, {"after": lambda db, _: rooms.after(db, ROOM, 0, 100)}, 0)) == 2


def test_messages_reach_the_server_in_one_statement(on_postgresql: RoomsDatabase) -> None:
    room = new_room(on_postgresql)
    many = [cases.message(str(number)) for number in range(50)]
    assert len(recorded(on_postgresql, {"add": lambda db, _: rooms.add_messages(db, room, many)}, 0)) == 2


@pytest.mark.parametrize("name", ["messages_by_id", "messages_by_key"])
def test_a_few_messages_are_found_without_reading_the_feed(room_db: RoomsDatabase, name: str) -> None:
    """A group of posts is looked up so. Without statistics, as in a new database, both planners read the whole feed."""
    room = new_room(room_db)
    rooms.add_messages(room_db, room, [cases.message(str(number), key=str(number)) for number in range(3000)])
    ((sql, values), *_) = recorded(room_db, {name: CALLS[name]}, 3)
    if room_db.dialect is Dialect.SQLITE:
        plan = [step[3] for step in room_db.execute(f"explain query plan {sql}", values).fetchall()]
        assert any("(session_id=? AND id=?)" in each or "AND key=?)" in each for each in plan), plan
    else:
        (found,) = room_db.execute(f"explain (analyze, format json) {sql}", values).fetchone()
        plan = json.loads(found)[0]["Plan"]
        read = [each["Actual Rows"] * each["Actual Loops"] for each in nodes(plan) if "Relation Name" in each]
        assert read, plan
        assert max(read) <= 10, read


# --- the plans of PostgreSQL -----------------------------------------------------------------------------------------

#: How a table may be read: by an index.
_INDEXED = {"Index Scan", "Index Only Scan", "Bitmap Heap Scan"}
_FIRST_COLUMNS = """
    select index.relname, attribute.attname from pg_index
    join pg_class as index on index.oid = pg_index.indexrelid
    join pg_class as relation on relation.oid = pg_index.indrelid
    join pg_attribute as attribute on attribute.attrelid = relation.oid and attribute.attnum = pg_index.indkey[0]
    join pg_namespace on pg_namespace.oid = relation.relnamespace
    where pg_namespace.nspname = current_schema()
"""


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *[node for part in plan.get("Plans", ()) for node in nodes(part)]]


@pytest.mark.parametrize("name", CALLS)
def test_no_query_of_a_room_crosses_rooms(on_postgresql: RoomsDatabase, name: str) -> None:
    """Each names the room, and each table is read by an index that begins with the room's id: so the tables can be
    spread over several servers."""
    new_room(on_postgresql)
    rooms.add_team(on_postgresql, cases.team("bob"))
    for n in (10, 11):
        say(on_postgresql, *[f"{n} {place}" for place in range(20)])
    # The tables are so small that the planner would otherwise read all of them.
    on_postgresql.execute("set local enable_seqscan = off")
    first_column = dict(on_postgresql.execute(_FIRST_COLUMNS).fetchall())
    statements = recorded(on_postgresql, {name: CALLS[name]}, 1)
    assert statements
    for sql, values in statements:
        bound = values.values() if isinstance(values, dict) else values
        assert any(id_of(f"room {room}") in str(each) for each in bound for room in ("room", "new 1")), sql
        plan = on_postgresql.execute(f"explain (format json) {sql}", values).fetchone()[0]
        for node in nodes(json.loads(plan)[0]["Plan"]):
            if "Relation Name" in node and node["Node Type"] != "ModifyTable":
                assert node["Node Type"] in _INDEXED, (sql, node)
            if index := node.get("Index Name"):
                expected = "id" if re.match(r"(idx_)?sessions_", index) else "session_id"
                assert first_column[index] == expected, (sql, node)
