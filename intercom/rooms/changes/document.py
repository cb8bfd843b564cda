"""Writes to a room's document. Each makes a new version, and counts as progress for the loop guard."""

from __future__ import annotations

from datetime import datetime

from intercom.model.room import DocumentVersion, Room, RoomErrorCode, RoomId, RoomRefused
from intercom.rooms import document
from intercom.rooms.changes.author import DOCUMENT, Author, Written, check_size, writer
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase


def append(
    db: RoomsDatabase, room_id: RoomId, author: Author, text: str, section: str | None, now: datetime, act: str
) -> Written[DocumentVersion]:
    """Add a text at the end of the document, or of one of its sections."""
    room = rooms.lock(db, room_id)
    if (earlier := rooms.document_by_act(db, room.id, act)) is not None:
        return Written(earlier, room)
    author = writer(db, room, author)
    check_size("text", text, DOCUMENT)
    content = document.append(current_text(db, room), text, section)
    room = write_version(db, room, author, content, now, act)
    return Written(_version(room, author, content, now, act), room)


def update(
    db: RoomsDatabase,
    room_id: RoomId,
    author: Author,
    content: str,
    expected_version: int,
    section: str | None,
    now: datetime,
    act: str,
) -> Written[DocumentVersion]:
    """Replace the document, or one of its sections, if nobody has changed it since `expected_version`.

    Raises RoomRefused (version_conflict) with `current_version`, and with `diff` from the expected version to the
    current one if there was such a version.
    """
    room = rooms.lock(db, room_id)
    if (earlier := rooms.document_by_act(db, room.id, act)) is not None:
        return Written(earlier, room)
    author = writer(db, room, author)
    current = current_text(db, room)
    if expected_version != room.session_doc_version:
        _check_conflict(db, room, current, expected_version, section)
    if section is not None:
        content = document.replace_section(current, section, content)
    room = write_version(db, room, author, content, now, act)
    return Written(_version(room, author, content, now, act), room)


def current_text(db: RoomsDatabase, room: Room) -> str:
    """Return the document of a locked room."""
    found = rooms.document(db, room.id)
    return "" if found is None else found.content or ""


def write_version(db: RoomsDatabase, room: Room, author: Author, content: str, now: datetime, act: str) -> Room:
    """Write the next version of a locked room's document. Raises RoomRefused if it would be too large."""
    check_size("the document", content, DOCUMENT, empty=True)
    room = rooms.write_document(db, room, content, author.team, author.name, now, act)
    return rooms.set_room(db, room.id, messages_since_progress=0) if room.messages_since_progress else room


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
