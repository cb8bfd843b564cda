"""Rooms, their teams, feeds and documents: the queries, the same on SQLite and on PostgreSQL.

Each function runs in a work of a `RoomStore`. A function that says "locked" needs `lock` before it in the same
transaction. All queries carry the room's id, except those in the last part, which look through all rooms.

The texts of statements are constant, so that each is prepared once for a connection.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeVar
from uuid import UUID

import attrs
from attrs import evolve, frozen

from intercom.model import clock
from intercom.model.room import (
    Ack,
    DocumentVersion,
    LinkedEvidence,
    Message,
    Room,
    RoomErrorCode,
    RoomId,
    RoomRefused,
    RoomStatus,
    Team,
    TeamId,
    no_such_room,
    not_a_member,
)
from intercom.store.room_database import Dialect, RoomsDatabase
from intercom.store.rows import Codec, Table, column, insert, json_text, value

T = TypeVar("T")

# `JsonObject` names a type that its own module has.
attrs.resolve_types(Message, localns={"Json": Any})
attrs.resolve_types(LinkedEvidence, localns={"Json": Any})

rooms = Table("sessions", Room)
_WITHOUT_DOCUMENT = Table("sessions", Room, elsewhere={"session_doc": lambda _db, _row: ""})
teams = Table("participants", Team, key="session_id, team_id")
#: `_with_acks` adds the acks, for a page at once.
_MESSAGES = Table("messages", Message, key="session_id, sequence", elsewhere={"acks": lambda _db, _row: ()})
_VERSIONS = Table("session_doc_history", DocumentVersion, key="session_id, version")
_VERSIONS_WITHOUT_CONTENT = Table("session_doc_history", DocumentVersion, elsewhere={"content": lambda _db, _row: None})
_EVIDENCE = Table(
    "linked_evidence", LinkedEvidence, key="session_id, evidence_id", codecs={"record": Codec(json_text, json.loads)}
)

#: The largest sequence that a column holds. Agents send any number as a cursor.
_LAST = 2**63 - 1

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOWEST, _HIGHEST = str(UUID(int=0)), str(UUID(int=2**128 - 1))

# --- rooms -----------------------------------------------------------------------------------------------------------


def create(db: RoomsDatabase, room: Room, convener: Team | None) -> None:
    """Insert a room, and the team that creates it; None for a person. Does nothing if both exist."""
    rooms.insert(db, room)
    if convener is not None:
        teams.insert(db, convener)


def get(db: RoomsDatabase, id: str) -> Room | None:
    """Return a room, or None. Any text may be asked for."""
    return rooms.get(db, id) if _may_exist(db, id) else None


def lock(db: RoomsDatabase, id: str) -> Room:
    """Return a room that no other transaction can lock until this one ends. Raises RoomRefused (not_found)."""
    # On SQLite there is only one writing transaction at a time.
    where = "id = ?" if db.dialect is Dialect.SQLITE else "id = ? for no key update"
    found = rooms.first(db, where, (id,)) if _may_exist(db, id) else None
    if found is None:
        raise no_such_room(id)
    return found


def set_room(db: RoomsDatabase, id: str, **columns: object) -> Room:
    """Set columns of a locked room and return it."""
    found = _update(db, rooms, "id = :id", {"id": id}, columns)
    if found is None:
        raise no_such_room(id)
    return found


# --- teams -----------------------------------------------------------------------------------------------------------


@frozen
class Seen:
    """A team polled at `at`, and has read up to `cursor`."""

    team_id: TeamId
    at: datetime
    cursor: int


def team(db: RoomsDatabase, room_id: str, team_id: str) -> Team | None:
    """Return a team of a room, or None. Any text may be asked for as the team's id."""
    if not _may_exist(db, team_id):
        return None
    return teams.first(db, "session_id = ? and team_id = ?", (room_id, team_id))


def teams_by_id(db: RoomsDatabase, room_id: str, ids: Collection[TeamId]) -> dict[TeamId, Team]:
    """Return those of these teams that have ever joined a room, by id."""
    if not ids:
        return {}
    if db.dialect is Dialect.SQLITE:
        where, asked = "session_id = ? and team_id in (select value from json_each(?))", json_text(list(ids))
    else:
        where, asked = "session_id = ? and team_id = any(cast(? as uuid[]))", _array(ids)
    return {team.team_id: team for team in teams.select(db, where, (room_id, asked))}


def members(db: RoomsDatabase, room_id: str) -> tuple[Team, ...]:
    """Return all teams that have ever joined a room, in the order in which they did."""
    return teams.select(db, "session_id = ? order by joined_at, team_id", (room_id,))


def add_team(db: RoomsDatabase, team: Team) -> bool:
    """Insert a team. Returns False and changes nothing if the room has it."""
    return teams.insert(db, team)


def set_team(db: RoomsDatabase, room_id: str, team_id: str, **columns: object) -> Team:
    """Set columns of a team and return it. Raises RoomRefused (unauthorized) if the room does not have it."""
    found = _update(
        db, teams, "session_id = :room_id and team_id = :team_id", {"room_id": room_id, "team_id": team_id}, columns
    )
    if found is None:
        raise not_a_member()
    return found


_SEEN = {
    Dialect.SQLITE: """
        update participants
        set last_seen_at = max(last_seen_at, :at), cursor = max(cursor, :cursor)
        where session_id = :room_id and team_id = :team_id and (last_seen_at < :at or cursor < :cursor)
    """,
    # The rows are locked in one order, so that two nodes cannot wait for each other.
    Dialect.POSTGRESQL: """
        with locked as (
            select team_id from participants
            where session_id = :room_id and team_id = any(cast(:team_ids as uuid[]))
            order by team_id for no key update
        )
        update participants as team
        set last_seen_at = greatest(team.last_seen_at, seen.at), cursor = greatest(team.cursor, seen.cursor)
        from locked
        join jsonb_to_recordset(cast(:seen as jsonb)) as seen (team_id uuid, at timestamptz, cursor bigint)
            on seen.team_id = locked.team_id
        where team.session_id = :room_id and team.team_id = locked.team_id
            and (team.last_seen_at < seen.at or team.cursor < seen.cursor)
    """,
}


def seen(db: RoomsDatabase, room_id: str, seen: Sequence[Seen]) -> None:
    """Raise when teams were last seen, and their cursors. What is higher already stays."""
    latest: dict[TeamId, Seen] = {}
    for each in seen:
        known = latest.get(each.team_id, each)
        latest[each.team_id] = Seen(each.team_id, max(known.at, each.at), max(known.cursor, each.cursor))
    found = [{"team_id": each.team_id, "at": clock.to_text(each.at), "cursor": each.cursor} for each in latest.values()]
    if db.dialect is Dialect.POSTGRESQL:
        if found:
            values = {"room_id": room_id, "team_ids": _array(latest), "seen": json_text(found)}
            db.execute(_SEEN[Dialect.POSTGRESQL], values)
        return
    for row in found:
        db.execute(_SEEN[Dialect.SQLITE], {"room_id": room_id, **row})


# --- the feed --------------------------------------------------------------------------------------------------------

_COLUMNS = ", ".join(_MESSAGES.columns.names)
_ADD = f"""
    insert into messages ({_COLUMNS})
    select {_COLUMNS} from jsonb_to_recordset(cast(:messages as jsonb)) as added (
        session_id uuid, sequence bigint, id text, posted_by_team_id uuid, author text, role text, type text,
        content jsonb, posted_at timestamptz, key text
    )
"""


def add_messages(db: RoomsDatabase, room: Room, messages: Sequence[Message]) -> tuple[Room, tuple[Message, ...]]:
    """Add messages to the feed of a locked room, in this order. They get the next sequences, whatever they have.

    Returns the room and the messages as they are then. None of the messages may be in the feed already: a work that is
    repeated looks first, by id or key.
    """
    if not messages:
        return room, ()
    first = room.last_sequence + 1
    added = tuple([evolve(each, sequence=first + place, acks=()) for place, each in enumerate(messages)])
    if db.dialect is Dialect.POSTGRESQL:
        # One trip to the server, however many they are.
        values = [{**_MESSAGES.columns.write(each), "content": each.content} for each in added]
        db.execute(_ADD, {"messages": json_text(values)})
    else:
        for each in added:
            _MESSAGES.insert(db, each)
    return set_room(db, room.id, last_sequence=added[-1].sequence), added


def message_by_id(db: RoomsDatabase, room_id: str, id: str) -> Message | None:
    """Return the message with this id, or None."""
    return _message(db, "session_id = ? and id = ?", (room_id, id))


_BY_ID = {
    Dialect.SQLITE: "session_id = :room_id and id in (select value from json_each(:asked))",
    Dialect.POSTGRESQL: """
        session_id = :room_id and id = any(array(select jsonb_array_elements_text(cast(:asked as jsonb))))
    """,
}
_BY_KEY = {
    # Only the index of messages with a key has keys, so the condition says that there is one.
    Dialect.SQLITE: """
        session_id = :room_id and key is not null and (posted_by_team_id, key) in (
            select json_extract(value, '$.team'), json_extract(value, '$.key') from json_each(:asked)
        )
    """,
    # With a join in place of the array, PostgreSQL may read the whole feed: it does not know how few are asked for.
    Dialect.POSTGRESQL: """
        session_id = :room_id and sequence = any(array(
            select found.sequence from jsonb_to_recordset(cast(:asked as jsonb)) as asked (team uuid, key text)
            cross join lateral (
                select sequence from messages
                where session_id = :room_id and posted_by_team_id = asked.team and key = asked.key limit 1
            ) as found
        ))
    """,
}


def messages_by_id(db: RoomsDatabase, room_id: str, ids: Collection[str]) -> dict[str, Message]:
    """Return those of these messages that the feed has, by id."""
    return {each.id: each for each in _among_messages(db, _BY_ID[db.dialect], room_id, list(ids))}


def messages_by_key(
    db: RoomsDatabase, room_id: str, keys: Collection[tuple[TeamId, str]]
) -> dict[tuple[TeamId, str], Message]:
    """Return the messages that these teams posted with these keys."""
    asked: list[object] = [{"team": team, "key": key} for team, key in keys]
    found = _among_messages(db, _BY_KEY[db.dialect], room_id, asked)
    return {(each.posted_by_team_id, each.key): each for each in found if each.posted_by_team_id and each.key}


def _among_messages(db: RoomsDatabase, where: str, room_id: str, asked: Sequence[object]) -> tuple[Message, ...]:
    if not asked:
        return ()
    # Not sorted by the database: SQLite would look through the whole feed, which it has in that order.
    found = _MESSAGES.select(db, where, {"room_id": room_id, "asked": json_text(asked)})
    return _with_acks(db, tuple(sorted(found, key=lambda each: each.sequence)))


def after(db: RoomsDatabase, room_id: str, sequence: int, limit: int) -> tuple[Message, ...]:
    """Return the first messages after this sequence, at most `limit`."""
    where = "session_id = ? and sequence > ? order by sequence limit ?"
    return _with_acks(db, _MESSAGES.select(db, where, (room_id, _in_range(sequence), limit)))


def before(db: RoomsDatabase, room_id: str, sequence: int | None, limit: int) -> tuple[Message, ...]:
    """Return the last messages before this sequence (None: of the feed), at most `limit`, oldest first."""
    if sequence is None:
        found = _MESSAGES.select(db, "session_id = ? order by sequence desc limit ?", (room_id, limit))
    else:
        where = "session_id = ? and sequence < ? order by sequence desc limit ?"
        found = _MESSAGES.select(db, where, (room_id, _in_range(sequence), limit))
    return _with_acks(db, found[::-1])


def add_ack(db: RoomsDatabase, room_id: str, sequence: int, team: Team, at: datetime) -> Message:
    """Record that a team has read a message, and return the message. A second ack of a team changes nothing. Raises
    RoomRefused (not_found) if the room has no such message."""
    where = "session_id = ? and sequence = ?"
    if _MESSAGES.first(db, where, (room_id, _in_range(sequence))) is None:
        raise RoomRefused(
            RoomErrorCode.NOT_FOUND,
            f"the session has no message {sequence}; acknowledge the cursor of one that you have read",
        )
    ack = {
        "session_id": room_id,
        "sequence": sequence,
        "team_id": team.team_id,
        "team_name": team.team_name,
        "at": clock.to_text(at),
    }
    insert(db, "message_acks", ack, conflict="(session_id, sequence, team_id) do nothing")
    found = _message(db, where, (room_id, sequence))
    assert found is not None, "messages are never deleted"
    return found


def _message(db: RoomsDatabase, where: str, values: Sequence[object]) -> Message | None:
    found = _MESSAGES.first(db, where, values)
    return None if found is None else _with_acks(db, (found,))[0]


def _with_acks(db: RoomsDatabase, page: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages of one room, in order, with their acks."""
    if not page:
        return page
    sql = (
        "select sequence, team_id, team_name, at from message_acks"
        " where session_id = ? and sequence >= ? and sequence <= ? order by sequence, at, team_id"
    )
    acks: dict[int, list[Ack]] = {}
    for sequence, team_id, team_name, at in db.execute(
        sql, (page[0].session_id, page[0].sequence, page[-1].sequence)
    ).fetchall():
        acks.setdefault(sequence, []).append(Ack(TeamId(team_id), team_name, clock.from_text(at)))
    if not acks:
        return page
    return tuple([evolve(each, acks=tuple(acks.get(each.sequence, ()))) for each in page])


# --- the document ----------------------------------------------------------------------------------------------------


def document(db: RoomsDatabase, room_id: str, version: int | None = None) -> DocumentVersion | None:
    """Return a version of the document (None: the current one). Version 0 is the empty document of a new room. Returns
    None if there is no such room or version."""
    if version is None:
        current = "(select session_doc_version from sessions where id = ?)"
        found = _VERSIONS.first(db, f"session_id = ? and version = {current}", (room_id, room_id))
    elif version == 0:
        found = None
    else:
        return _VERSIONS.first(db, "session_id = ? and version = ?", (room_id, _in_range(version)))
    if found is not None:
        return found
    room = get(db, room_id)
    return None if room is None else DocumentVersion(room.id, 0, "", None, "", room.created_at)


def write_document(
    db: RoomsDatabase, room: Room, content: str, team: Team | None, author: str, at: datetime, act: str
) -> Room:
    """Write the next version of a locked room's document, and return the room. `act` names the call, which writes one
    version only: a work that is repeated looks first, with `document_by_act`."""
    version = room.session_doc_version + 1
    written_by = None if team is None else team.team_id
    _VERSIONS.insert(db, DocumentVersion(room.id, version, content, written_by, author, at, act))
    return set_room(db, room.id, session_doc=content, session_doc_version=version)


def document_by_act(db: RoomsDatabase, room_id: str, act: str) -> DocumentVersion | None:
    """Return the version that this call wrote, or None."""
    return _VERSIONS.first(db, "session_id = ? and act = ?", (room_id, act))


def document_history(db: RoomsDatabase, room_id: str, limit: int) -> tuple[DocumentVersion, ...]:
    """Return the last versions without their content, newest first."""
    return _VERSIONS_WITHOUT_CONTENT.select(db, "session_id = ? order by version desc limit ?", (room_id, limit))


# --- evidence --------------------------------------------------------------------------------------------------------


def link_evidence(db: RoomsDatabase, linked: LinkedEvidence) -> bool:
    """Insert evidence into a room. Returns False and changes nothing if it is linked there already."""
    return _EVIDENCE.insert(db, linked)


def linked_evidence(db: RoomsDatabase, room_id: str, id: str) -> LinkedEvidence | None:
    """Return evidence that is linked in a room, or None. PostgreSQL refuses ids with a NUL or half a surrogate pair."""
    return _EVIDENCE.first(db, "session_id = ? and evidence_id = ?", (room_id, id))


def linked_among(db: RoomsDatabase, room_id: str, ids: Collection[str]) -> frozenset[str]:
    """Return those of these ids that are linked in a room. Any text may be asked for as the room's id."""
    if not _may_exist(db, room_id):
        return frozenset()
    # All of the room are read, because they are few. The primary key has them.
    found = column(db, "select evidence_id from linked_evidence where session_id = ?", (room_id,))
    return frozenset(found).intersection(ids)


def linked_ids(db: RoomsDatabase, room_id: str) -> tuple[str, ...]:
    """Return the ids of all evidence of a room, in the order in which it was linked."""
    sql = "select evidence_id from linked_evidence where session_id = ? order by linked_at, evidence_id"
    return tuple(column(db, sql, (room_id,)))


# --- settings that all nodes share -----------------------------------------------------------------------------------


def setting(db: RoomsDatabase, name: str) -> str | None:
    """Return the value of a setting, or None."""
    found = value(db, "select value from room_setting where name = ?", (name,))
    return None if found is None else str(found)


def set_setting(db: RoomsDatabase, name: str, value: str | None) -> None:
    """Set a setting; None removes it."""
    if value is None:
        db.execute("delete from room_setting where name = ?", (name,))
    else:
        conflict = "(name) do update set value = excluded.value"
        insert(db, "room_setting", {"name": name, "value": value}, conflict=conflict)


def settings_with_prefix(db: RoomsDatabase, prefix: str) -> dict[str, str]:
    """Return the settings whose names begin with this, by the rest of the name."""
    sql = "select name, value from room_setting where substr(name, 1, cast(? as int)) = ? order by name"
    return {name[len(prefix) :]: value for name, value in db.execute(sql, (len(prefix), prefix)).fetchall()}


# --- looks through all rooms -----------------------------------------------------------------------------------------


def list_rooms(
    db: RoomsDatabase, *, status: RoomStatus | None = None, limit: int, before: tuple[datetime, str] | None = None
) -> tuple[Room, ...]:
    """Return rooms without their documents, newest first, at most `limit`. `before` continues a list: the creation time
    and the id of its last room."""
    conditions: list[str] = []
    values: list[object] = []
    if status is not None:
        conditions.append("status = ?")
        values.append(status.value)
    if before is not None:
        at, id = before
        if _may_exist(db, id):
            conditions.append("(created_at, id) < (?, ?)")
            values += (at, id)
        else:
            conditions.append("created_at < ?")
            values.append(at)
    where = " and ".join(conditions) or "true"
    return _WITHOUT_DOCUMENT.select(db, f"{where} order by created_at desc, id desc limit ?", (*values, limit))


_ADVANCED = {
    Dialect.SQLITE: """
        select sessions.id, last_sequence from json_each(?) as known join sessions on sessions.id = known.key
        where last_sequence > known.value
    """,
    Dialect.POSTGRESQL: """
        select sessions.id, last_sequence
        from jsonb_each_text(cast(? as jsonb)) as known join sessions on sessions.id = cast(known.key as uuid)
        where last_sequence > cast(known.value as bigint)
    """,
}


def advanced(db: RoomsDatabase, known: Mapping[RoomId, int]) -> dict[RoomId, int]:
    """Return those of these rooms that have messages after the known sequence, with the sequence of their last one."""
    if not known:
        return {}
    return dict(db.execute(_ADVANCED[db.dialect], (json_text(dict(known)),)).fetchall())


def paused_by(db: RoomsDatabase, name: str) -> tuple[Room, ...]:
    """Return the open rooms that somebody of this name has paused, in the order in which they were."""
    return rooms.select(db, "paused_by = ? and status = 'active' order by paused_at, id", (name,))


def with_prefix(db: RoomsDatabase, prefix: str, limit: int) -> tuple[RoomId, ...]:
    """Return the ids of rooms that begin with `prefix`, sorted. Any text may be asked for."""
    first, last = prefix + _LOWEST[len(prefix) :], prefix + _HIGHEST[len(prefix) :]
    if _UUID.fullmatch(first) is None:
        return ()
    sql = "select id from sessions where id >= ? and id <= ? order by id limit ?"
    return tuple(column(db, sql, (first, last, limit)))


def active_elsewhere(db: RoomsDatabase, team_name: str, room_id: str, since: datetime) -> Room | None:
    """Return another open room in which a team of this name has polled since then and has not left, or None."""
    present = (
        "select session_id from participants"
        " where team_name = ? and session_id <> ? and left_at is null and last_seen_at >= ?"
    )
    where = f"status = 'active' and id in ({present}) order by created_at, id limit 1"
    return rooms.first(db, where, (team_name, room_id, since))


# Full text

#: The most words of a query that count, and places of an answer.
MOST_WORDS, MOST_PLACES = 8, 50
#: The longest query: what follows is not read. Over HTTP, no longer one arrives.
_QUERY = 500
#: The characters at the beginning of a text in which an excerpt is looked for.
_SEARCHED = 2**15
#: The characters of an excerpt: at most, and at most before the word.
_EXCERPT, _BEFORE = 240, 80
#: What SQLite's index has as one word: letters and digits, with the marks that can follow a letter.
_WORD = re.compile(r"(?:[^\W_]|[\u0300-\u0304\u0306-\u030c\u030f\u0311\u031b\u0323-\u0328\u032d\u032e\u0330\u0331])+")


@frozen
class Found:
    """A place where a search found all its words. `sequence` is that of the message, None outside the feed. The room is
    without its document."""

    room: Room
    where: Literal["feed", "document", "title"]
    sequence: int | None
    excerpt: str


# `snippet` and `ts_headline` are not used: anybody can choose texts and words for which they take seconds. The texts
# are read for the rows within the limit only.
_ON_SQLITE = {
    "about": f"""
        select sessions.id, substr(
            case when ? then sessions.title || ' ' || sessions.description else sessions.session_doc end, 1, {_SEARCHED}
        )
        from session_search join sessions on sessions.number = session_search.rowid
        where session_search match ? and (passcode_hash is null or ?) order by session_search.rowid desc limit ?
    """,
    "feed": """
        select session_id, sequence, content
        from message_search join messages on messages.number = message_search.rowid
        join sessions on sessions.id = messages.session_id
        where message_search match ? and passcode_hash is null order by message_search.rowid desc limit ?
    """,
}
_ON_POSTGRESQL = {
    "about": f"""
        with asked as (select plainto_tsquery('simple', ?) as words),
        hits as (
            select id, created_at, to_tsvector('simple', title || ' ' || description) @@ asked.words as is_title
            from sessions, asked
            where sessions.words @@ asked.words
                and (passcode_hash is null or to_tsvector('simple', title || ' ' || description) @@ asked.words)
            order by created_at desc, id desc limit ?
        )
        select id, case when is_title then 1 else 0 end,
            left(case when is_title then title || ' ' || description else session_doc end, {_SEARCHED})
        from hits join sessions using (id) order by hits.created_at desc, id desc
    """,
    "feed": """
        with asked as (select plainto_tsquery('simple', ?) as words),
        hits as (
            select session_id, sequence, messages.posted_at
            from asked, messages join sessions on sessions.id = messages.session_id
            where messages.words @@ asked.words and passcode_hash is null
            order by messages.posted_at desc, sequence desc limit ?
        )
        select session_id, sequence, content
        from hits join messages using (session_id, sequence) order by hits.posted_at desc, sequence desc
    """,
}


def search(db: RoomsDatabase, words: str, limit: int) -> tuple[Found, ...]:
    """Return where all of these words are: in rooms' titles and descriptions, in documents, then in messages; the
    newest first, at most `limit`, and never more than MOST_PLACES. Any text is a query: it has words, and no syntax.
    The first MOST_WORDS different words count.

    Of a room with a passcode, only the title and the description are searched.
    """
    text = words[:_QUERY].encode("utf-8", "ignore").decode().replace("\0", " ")
    asked = _different(text.split())[:MOST_WORDS]
    parts = _different(_WORD.findall(" ".join(asked)))[:MOST_WORDS]
    limit = min(limit, MOST_PLACES)
    if not parts or limit < 1:
        return ()
    if db.dialect is Dialect.SQLITE:
        query = " ".join([_for_sqlite(word) for word in asked])
        titles_only = f"{{title description}} : ({query})"
        in_titles = db.execute(_ON_SQLITE["about"], (1, titles_only, 1, limit)).fetchall()
        anywhere = db.execute(_ON_SQLITE["about"], (0, query, 0, limit)).fetchall()
        titles = {id for id, _ in in_titles}
        about = [(id, 1, text) for id, text in in_titles]
        about += [(id, 0, text) for id, text in anywhere if id not in titles]
        feed = db.execute(_ON_SQLITE["feed"], (query, limit)).fetchall()
    else:
        about = db.execute(_ON_POSTGRESQL["about"], (" ".join(asked), limit)).fetchall()
        about.sort(key=lambda hit: hit[1], reverse=True)
        feed = db.execute(_ON_POSTGRESQL["feed"], (" ".join(asked), limit)).fetchall()
    # Half of the places are for messages, if there are so many.
    about = about[: limit - min(len(feed), limit // 2)]
    feed = feed[: limit - len(about)]
    by_id = {room.id: room for room in _among(db, {hit[0] for hit in (*about, *feed)})}
    pattern = _pattern(parts)
    return (
        *[
            Found(by_id[id], "title" if is_title else "document", None, _excerpt(text, pattern))
            for id, is_title, text in about
        ],
        *[Found(by_id[id], "feed", sequence, _excerpt(_text(content), pattern)) for id, sequence, content in feed],
    )


def _different(words: Sequence[str]) -> list[str]:
    """Return the words without those that differ in case only from an earlier one."""
    found: dict[str, str] = {}
    for word in words:
        found.setdefault(word.lower(), word)
    return list(found.values())


def _for_sqlite(word: str) -> str:
    """Return a word in the query language of FTS5, which takes `a-b` as a phrase: `b` follows `a`.

    A phrase that repeats a word becomes its different words: for `a-a-a`, FTS5 would read each `a` of a text three
    times.
    """
    parts = _WORD.findall(word)
    different = _different(parts)
    # A word without any letter or digit has no effect in a query.
    quoted = [word] if len(different) == len(parts) else different
    return " ".join(['"' + each.replace('"', '""') + '"' for each in quoted])


def _pattern(parts: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that finds one of these words. It compares only where a word begins, so that any text takes
    linear time."""
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, parts))})(?![^\W_])", re.IGNORECASE)


def _text(content: str) -> str:
    """Return the beginning of a message's text. It is read here because SQLite's functions refuse half a surrogate."""
    return str(json.loads(content).get("text", ""))[:_SEARCHED]


def _excerpt(text: str, pattern: re.Pattern[str]) -> str:
    """Return some text in one line around the first of the words; the beginning, if none is in the part `text`. A word
    may be as long as a message."""
    found = pattern.search(text)
    at = 0 if found is None else found.start()
    start = max(0, at - _BEFORE)
    if start > 0:
        # Begin with a whole word, if one begins there.
        start = next((each.end() for each in re.finditer(r"\s+", text[start:at])), 0) + start
    line = ("…" if start > 0 else "") + " ".join(text[start : start + 2 * _EXCERPT].split())
    is_cut = len(line) > _EXCERPT or start + 2 * _EXCERPT < len(text)
    line = line[: _EXCERPT - 1] + "…" if is_cut else line
    # Half a surrogate cannot be sent.
    return line.encode("utf-8", "replace").decode()


# --- both databases --------------------------------------------------------------------------------------------------


def _among(db: RoomsDatabase, ids: Collection[RoomId]) -> tuple[Room, ...]:
    """Return these rooms without their documents."""
    if db.dialect is Dialect.SQLITE:
        return _WITHOUT_DOCUMENT.select(db, "id in (select value from json_each(?))", (json_text(list(ids)),))
    return _WITHOUT_DOCUMENT.select(db, "id = any(cast(? as uuid[]))", (_array(ids),))


def _array(ids: Collection[str]) -> str:
    """Return UUIDs as PostgreSQL reads an array."""
    return "{" + ",".join(ids) + "}"


def _may_exist(db: RoomsDatabase, id: str) -> bool:
    """Whether an id from outside can be compared with the database's: PostgreSQL refuses to read other texts."""
    return db.dialect is Dialect.SQLITE or _UUID.fullmatch(id) is not None


def _in_range(number: int) -> int:
    return max(-1, min(number, _LAST))


def _update(
    db: RoomsDatabase, table: Table[T], where: str, key: Mapping[str, object], columns: Mapping[str, object]
) -> T | None:
    """Set columns of one row, and return its value; None if there is no such row."""
    names = table.columns.names
    new = {f"new_{name}": _stored(each) for name, each in columns.items()}
    found = db.execute(_update_text(table.name, tuple(columns), where, names), {**key, **new}).fetchall()
    return table.columns.read(dict(zip(names, found[0], strict=True))) if found else None


@functools.cache
def _update_text(table: str, columns: tuple[str, ...], where: str, returned: tuple[str, ...]) -> str:
    sets = ", ".join(f"{name} = :new_{name}" for name in columns)
    return f"update {table} set {sets} where {where} returning {', '.join(returned)}"


def _stored(each: object) -> object:
    """Return a value of a field as its column holds it."""
    if isinstance(each, StrEnum):
        return each.value
    if isinstance(each, bool):
        return int(each)
    return clock.to_text(each) if isinstance(each, datetime) else each
