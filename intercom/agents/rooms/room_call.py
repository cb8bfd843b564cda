"""One call of a tool of rooms: its arguments are read, the service answers, and faults become refusals.

MCP and plain HTTP share this. They differ in where arguments come from, and in how an answer is sent.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import cast

import trio
from attrs import AttrsInstance, fields, frozen

from actors import Busy, Down, NotRunning
from intercom.agents import argument_schemas
from intercom.model.config import RoomsSettings
from intercom.model.errors import DatabaseError, IntercomError, InvalidArguments
from intercom.model.json_types import Json, JsonObject
from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms.export import Export
from intercom.rooms.tools.room_tool_table import RoomCalls
from intercom.rooms.tools.tool import DOCUMENT, MESSAGE_TEXT, Answer, RoomCaller, RoomTool, to_json
from intercom.store.store_and_reader import StoreUnavailable
from intercom.web_server.http_request import Refusal, unclear

log = logging.getLogger("intercom.rooms")

#: The longest error message, in characters.
LONGEST_MESSAGE = 3000
#: The size that every request may have, in bytes, besides the texts of its tool's arguments.
BASE_BYTES = 64 * 2**10
#: A larger request has at most this many strings, and BASE_BYTES outside them.
MOST_STRINGS = 1000

_NO_TOKEN = "send the token of your team as {how}: create_session and join_session give one"
_RESTARTING = "a part of the server is restarting, and nothing was lost: call again"
_FAILED = "the server failed on this call; the fault is in its log"
_FAULTS = (Down, NotRunning, Busy, StoreUnavailable, DatabaseError, trio.TooSlowError)


@frozen
class RoomsDeps:
    """What the transports of rooms need. `secret` is what callers have to show, None if nothing."""

    service: RoomCalls
    settings: RoomsSettings
    secret: str | None = None


def read(tool: RoomTool, given: Mapping[str, object], how: str) -> AttrsInstance:
    """Return the arguments of a call as the tool takes them. `how` says where a token is expected. Raises
    RoomRefused."""
    if tool.needs_token and not given.get("team_id"):
        raise RoomRefused(RoomErrorCode.UNAUTHORIZED, _NO_TOKEN.format(how=how))
    try:
        arguments = argument_schemas.read(tool.takes, given)
    except InvalidArguments as refused:
        raise RoomRefused(RoomErrorCode.INVALID_ARGUMENTS, refused.message, tool=tool.name) from None
    for name, text in _texts(given):
        if found := _NOT_STORABLE.search(text):
            message = f"{name}: text has a character that cannot be stored (U+{ord(found[0]):04X}): leave it out"
            raise RoomRefused(RoomErrorCode.INVALID_ARGUMENTS, message, tool=tool.name)
    return arguments


#: NUL, which PostgreSQL cannot store, and half surrogate pairs, which have no form in UTF-8.
_NOT_STORABLE = re.compile(r"[\0\ud800-\udfff]")


def _texts(given: Mapping[str, object], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of arguments that fit their schema, with their names. So they are nested as deep as that."""
    for name, value in given.items():
        if isinstance(value, str):
            yield within + name, value
        elif isinstance(value, Mapping):
            yield from _texts(value, f"{within}{name}.")


@functools.cache
def most_bytes(tool: RoomTool) -> int:
    """Return the largest request of this tool, in bytes of JSON: its texts are as long as allowed, all in escapes."""
    mosts: list[int] = [each.metadata.get("most", 0) for each in fields(tool.takes)]
    return BASE_BYTES + sum(map(_escaped, mosts))


def _escaped(most: int) -> int:
    """Return the bytes of a text of `most` characters in JSON, all in escapes: two for a character beyond U+FFFF. The
    text of a message and the document are limited in bytes, and no byte takes more than one escape."""
    return most * (6 if most in (MESSAGE_TEXT, DOCUMENT) else 12)


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def refuse_many_values(data: bytes) -> None:
    """Raise Refusal for a large request that is more than a few long texts. Nobody else is served while JSON is
    decoded, and a million small values take a hundred times as long as a text of that size."""
    if len(data) <= BASE_BYTES:
        return
    end = outside = 0
    for _ in range(MOST_STRINGS):
        start = data.find(b'"', end)
        outside += (len(data) if start < 0 else start) - end
        if outside > BASE_BYTES:
            break
        found = None if start < 0 else _STRING.match(data, start)
        if found is None:
            # This is the end, or a string without an end, which the decoder refuses at once.
            return
        end = found.end()
    raise unclear("the request has too many values: a large one consists of a few long texts")


def too_large(what: str, most: int) -> Refusal:
    """Return the refusal of a request of more than `most` bytes. `what` is its tool."""
    message = f"a request of {what} has at most {most} bytes: send less at once"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request_too_large", message, ((b"connection", b"close"),))


async def answer(
    service: RoomCalls,
    tool: RoomTool,
    arguments: AttrsInstance,
    token: str | None,
    remote: str,
    act: str | None = None,
    session: Callable[[], Awaitable[str]] | None = None,
) -> Answer:
    """Return the answer of the service. Raises RoomRefused, and nothing else. `act` names the call, if its client may
    repeat it under that name. `session` returns the agent's own session, if it has one on this server."""
    try:
        caller = RoomCaller(token, remote, act or str(uuid.uuid4()), session)
        answered: Answer = await service.call(tool, arguments, caller)
        return answered
    except RoomRefused:
        raise
    except Exception as failed:
        raise refusal(failed, tool.name) from None


def refusal(failed: Exception, what: str) -> RoomRefused:
    """Return the refusal for the caller of a failed call. `what` names the call in the log."""
    if isinstance(failed, RoomRefused):
        return failed
    if isinstance(failed, _FAULTS):
        log.warning("a call of %s could not be answered: %r", what, failed)
        return RoomRefused(RoomErrorCode.UNAVAILABLE, _RESTARTING)
    if isinstance(failed, IntercomError):
        return RoomRefused(RoomErrorCode.INVALID_ARGUMENTS, failed.message)
    log.error("a call of %s failed", what, exc_info=failed)
    return RoomRefused(RoomErrorCode.INTERNAL, _FAILED)


def stopping() -> RoomRefused:
    """Return the refusal of a wait that the server ends because it stops."""
    return RoomRefused(
        RoomErrorCode.UNAVAILABLE, "the server is restarting, and nothing was lost: wait again with the same cursor"
    )


def error_json(code: str, message: str, details: Mapping[str, Json] | None = None) -> JsonObject:
    """Return the error object that all transports of rooms share. A very long message is cut in the middle."""
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} [...] {message[-LONGEST_MESSAGE // 2 :]}"
    return {"error": {"code": code, "message": _sendable(message), "details": dict(details or {})}}


def refused_json(refused: RoomRefused) -> JsonObject:
    return error_json(refused.error_code, refused.message, cast(JsonObject, refused.details))


def content(answered: Answer) -> JsonObject:
    """Return an answer as JSON values."""
    assert not isinstance(answered, Export), "a whole room is sent in parts"
    return to_json(answered)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_text(value: JsonObject) -> str:
    """Write JSON, in a form that models read well and that takes few bytes."""
    return _encode(value)


def to_bytes(value: JsonObject) -> bytes:
    # Half a surrogate pair, which a client may have sent, has no bytes.
    return _encode(value).encode("utf-8", "replace")


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Waits:
    """The calls that wait now. When the server stops, it ends and answers them."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._are_over: trio.Event | None = None

    def add(self, scope: trio.CancelScope) -> None:
        """Note a call that is about to wait in this scope. It must be given back with `remove`."""
        self._scopes.add(scope)
        if self._are_over is not None:
            scope.cancel()

    def remove(self, scope: trio.CancelScope) -> None:
        self._scopes.discard(scope)
        if self._are_over is not None and not self._scopes:
            self._are_over.set()

    async def stop(self) -> None:
        """End all waits, and return once they are answered. Later ones end at once."""
        self._are_over = trio.Event()
        for scope in tuple(self._scopes):
            scope.cancel()
        if self._scopes:
            await self._are_over.wait()
