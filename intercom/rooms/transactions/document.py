"""Writes to a room's document. Each that changes the text makes a new version, which the loop guard counts as progress.

A write that leaves the text as it is makes no version, is no progress, and is answered with the current version.
`evidence` are the records that the text links, by id: they are linked with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from intercom.model.json_types import JsonObject
from intercom.model.room import DocumentVersion, Room, RoomErrorCode, RoomId, RoomRefused
from intercom.rooms import document
from intercom.rooms.transactions import loop_guard
from intercom.rooms.transactions.author import DOCUMENT, Author, Rules, Written, check_size, link, writer
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase


def append(
    db: RoomsDatabase,
    room_id: RoomId,
    author: Author,
    text: str,
    section: str | None,
    rules: Rules,
    now: datetime,
    act: str,
    evidence: Mapping[str, JsonObject] | None = None,
) -> Written[DocumentVersion]:
    """Add a text at the end of the document, or of one of its sections."""
    room = rooms.lock(db, room_id)
    if (earlier := rooms.document_by_act(db, room.id, act)) is not None:
        return Written(earlier, room)
    author = writer(db, room, author)
    check_size("text", text, DOCUMENT)
    current = current_version(db, room)
    content = document.append(current.content or "", text, section)
    link(db, room, author, evidence or {}, now)
    return _write(db, room, author, current, content, rules, now, act)


def update(
    db: RoomsDatabase,
    room_id: RoomId,
    author: Author,
    content: str,
    expected_version: int,
    section: str | None,
    rules: Rules,
    now: datetime,
    act: str,
    evidence: Mapping[str, JsonObject] | None = None,
) -> Written[DocumentVersion]:
    """Replace the document, or one of its sections, if nobody has changed it since `expected_version`.

    Raises RoomRefused (version_conflict) with `current_version`, and with `diff` from the expected version to the
    current one if there was such a version.
    """
    room = rooms.lock(db, room_id)
    if (earlier := rooms.document_by_act(db, room.id, act)) is not None:
        return Written(earlier, room)
    author = writer(db, room, author)
    current = current_version(db, room)
    text = current.content or ""
    if expected_version != room.session_doc_version:
        _check_conflict(db, room, text, expected_version, section)
    if section is not None:
        content = document.replace_section(text, section, content)
    link(db, room, author, evidence or {}, now)
    return _write(db, room, author, current, content, rules, now, act)


def current_version(db: RoomsDatabase, room: Room) -> DocumentVersion:
    """Return the document of a locked room, with its text."""
    found = rooms.document(db, room.id)
    assert found is not None, "the room is there"
    return found


def write_version(db: RoomsDatabase, room: Room, author: Author, content: str, now: datetime, act: str) -> Room:
    """Write the next version of a locked room's document. Raises RoomRefused if it would be too large."""
    check_size("the document", content, DOCUMENT, empty=True)
    return rooms.write_document(db, room, content, author.team, author.name, now, act)


def _write(
    db: RoomsDatabase,
    room: Room,
    author: Author,
    current: DocumentVersion,
    content: str,
    rules: Rules,
    now: datetime,
    act: str,
) -> Written[DocumentVersion]:
    """Write the next version and count it, unless the text is that of the current version."""
    if content == (current.content or ""):
        return Written(current, room)
    room = write_version(db, room, author, content, now, act)
    counted = loop_guard.count(room, author, rules, now, act, is_progress=True)
    room, messages = rooms.add_messages(db, room, counted.messages)
    room = loop_guard.with_columns(db, room, counted)
    return Written(_version(room, author, content, now, act), room, messages)


def _check_conflict(db: RoomsDatabase, room: Room, current: str, expected: int, section: str | None) -> None:
    """Raise version_conflict, unless only other sections have changed since the expected version."""
    version = room.session_doc_version
    base = _text_at(db, room, expected)
    if base is None:
        raise RoomRefused(
            RoomErrorCode.VERSION_CONFLICT,
            f"the document has no version {expected}, its version is {version}: read it with read_session_doc",
            current_version=version,
        )
    if section is not None and document.section_of(base, section) == document.section_of(current, section):
        return
    what = "the document" if section is None else f"the section {section[:80]!r} of the document"
    raise RoomRefused(
        RoomErrorCode.VERSION_CONFLICT,
        f"{what} has changed since version {expected}, and its version is {version}: put your change into the current"
        " text (read_session_doc, or the diff in the details) and update again",
        current_version=version,
        diff=document.diff(base, current, f"version {expected}", f"version {version}"),
    )


def _text_at(db: RoomsDatabase, room: Room, version: int) -> str | None:
    """Return the text of an earlier version, or None if there was no such version. Version 0 is the empty document."""
    if version == 0:
        return ""
    found = rooms.document(db, room.id, version) if 0 < version < room.session_doc_version else None
    return None if found is None else found.content


def _version(room: Room, author: Author, content: str, now: datetime, act: str) -> DocumentVersion:
    team = None if author.team is None else author.team.team_id
    return DocumentVersion(room.id, room.session_doc_version, content, team, author.name, now, act)
