"""The handlers of the rooms' operator commands."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.json_types import JsonObject
from intercom.model.limits import BASE_URL_FORM, is_base_url
from intercom.model.room import DocumentVersion, Message, Room
from intercom.model.room_view import (
    DocumentView,
    Match,
    RoomAddress,
    RoomOperations,
    RoomTail,
    RoomToken,
    RoomView,
)
from intercom.operators.commands.caller_and_handler import Caller, handles, stripped
from intercom.operators.commands.command_table import LISTED
from intercom.operators.commands.json_forms import (
    document_entry,
    form,
    match_entries,
    plain,
    room_entries,
    room_message_entry,
    room_tail_entry,
    room_view_entry,
    under,
    version_entries,
)
from intercom.sessions.operator_service import OperatorService


def rooms_of(service: OperatorService) -> RoomOperations:
    """Return what people do in this server's rooms. Raises InvalidState if it has none."""
    if service.rooms is None:
        raise InvalidState(
            "this server has no rooms: set enabled under [rooms] in its configuration, or run agent-intercom rooms",
            code="no_rooms",
        )
    return service.rooms


@handles("rooms-list", room_entries)
async def rooms_list(
    service: OperatorService, caller: Caller, everything: bool = False, limit: int = LISTED
) -> Sequence[Room]:
    return await rooms_of(service).list(everything=everything, limit=limit)


@handles("rooms-show", room_view_entry)
async def rooms_show(service: OperatorService, caller: Caller, id: str) -> RoomView:
    return await rooms_of(service).show(id)


@handles("rooms-tail", room_tail_entry)
async def rooms_tail(
    service: OperatorService,
    caller: Caller,
    id: str,
    limit: int = LISTED,
    start: int | None = None,
    before: int | None = None,
) -> RoomTail:
    """Return the last `limit` messages of a room, also only those before the message number `before`, or those that
    follow the message number `start`."""
    return await rooms_of(service).tail(id, start=start, before=before, limit=limit)


@handles("rooms-doc", document_entry)
async def rooms_doc(
    service: OperatorService, caller: Caller, id: str, version: int | None = None, diff: bool = False
) -> DocumentView:
    """Return a version of a room's document; with `diff`, also what it changed."""
    return await rooms_of(service).document(id, version, diff=diff)


@handles("rooms-versions", version_entries)
async def rooms_versions(
    service: OperatorService, caller: Caller, id: str, limit: int = LISTED
) -> Sequence[DocumentVersion]:
    return await rooms_of(service).versions(id, limit)


@handles("rooms-instructions", under("text"))
async def rooms_instructions(service: OperatorService, caller: Caller) -> str:
    return await rooms_of(service).instructions()


@handles("rooms-create", form(Room, "room_id=id", "title", status="opened"))
async def rooms_create(service: OperatorService, caller: Caller, text: str, description: str = "") -> Room:
    return await rooms_of(service).create(text.strip(), description.strip(), caller.name, caller.act)


@handles("rooms-pin", form(Room, "room_id=id", "title", status="pinned a message of"))
async def rooms_pin(service: OperatorService, caller: Caller, id: str, message: int) -> Room:
    return await rooms_of(service).pin(id, message, caller.name, caller.act)


@handles("rooms-unpin", form(Room, "room_id=id", "title", status="took a pin away in"))
async def rooms_unpin(service: OperatorService, caller: Caller, id: str, message: int) -> Room:
    return await rooms_of(service).pin(id, message, caller.name, caller.act, remove=True)


@handles("rooms-search", match_entries)
async def rooms_search(service: OperatorService, caller: Caller, text: str, limit: int = LISTED) -> Sequence[Match]:
    return await rooms_of(service).search(text, limit)


@frozen
class Exported:
    """A whole room. `content` is text in markdown, or a JSON object."""

    format: str
    content: str | JsonObject


@handles("rooms-export", plain)
async def rooms_export(service: OperatorService, caller: Caller, id: str, format: str = "markdown") -> Exported:
    return Exported(format, await rooms_of(service).export(id, format))


@handles("rooms-url-show", plain)
async def rooms_url_show(service: OperatorService, caller: Caller) -> RoomAddress:
    return await rooms_of(service).address()


@handles("rooms-url", plain)
async def rooms_url(service: OperatorService, caller: Caller, url: str) -> RoomAddress:
    """Change the public address of the rooms; an empty `url` takes that of the settings again."""
    rooms, wanted = rooms_of(service), url.strip().rstrip("/")
    if wanted and not is_base_url(wanted):
        raise InvalidArguments(f"{url[:200]!r} is no address: give {BASE_URL_FORM}")
    # It says where agents send what they write. What is not on record is not changed.
    to = wanted or "that of the settings"
    who: JsonObject = {"url": wanted or None, "user": caller.name, "channel": caller.channel.value}
    await service.security_event(f"{caller.name} changed the address of the rooms to {to}", who)
    return await rooms.set_address(wanted or None, caller.name)


@handles("rooms-post", room_message_entry)
async def rooms_post(service: OperatorService, caller: Caller, id: str, text: str) -> Message:
    return await rooms_of(service).post(id, text, caller.name, caller.act)


@handles("rooms-pause", form(Room, "room_id=id", "title", status="paused"))
async def rooms_pause(service: OperatorService, caller: Caller, id: str, reason: str | None = None) -> Room:
    return await rooms_of(service).pause(id, stripped(reason), caller.name, caller.act)


@handles("rooms-resume", form(Room, "room_id=id", "title", status="resumed"))
async def rooms_resume(service: OperatorService, caller: Caller, id: str) -> Room:
    return await rooms_of(service).resume(id, caller.name, caller.act)


@handles("rooms-conclude", form(Room, "room_id=id", "title", "document_version=session_doc_version", status="closed"))
async def rooms_conclude(service: OperatorService, caller: Caller, id: str, text: str) -> Room:
    return await rooms_of(service).conclude(id, text, caller.name, caller.act)


@handles("rooms-reopen", form(Room, "room_id=id", "title", status="reopened"))
async def rooms_reopen(service: OperatorService, caller: Caller, id: str, reason: str | None = None) -> Room:
    return await rooms_of(service).reopen(id, stripped(reason), caller.name, caller.act)


@handles("rooms-token", plain)
async def rooms_token(service: OperatorService, caller: Caller, id: str) -> RoomToken:
    """Return a token with which the caller takes part in a room. It is shown once."""
    return await rooms_of(service).token(id, caller.name, caller.act)
