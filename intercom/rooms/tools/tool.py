"""A tool of rooms: its names, its description, its arguments and answer, and its place in plain HTTP.

The same tools are called over MCP and over plain HTTP. There `team_id` is the header `X-Team-ID`, and `session_id` is
part of the path.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from attrs import AttrsInstance, field, fields, frozen, has

from intercom.model import clock
from intercom.model.field_docs import doc
from intercom.model.json_types import Json, JsonObject
from intercom.rooms.export import Export
from intercom.rooms.transactions import author

#: The longest texts, in characters. What is written to a room has the limits of `author`, which measures the text of a
#: message and the document in bytes of UTF-8.
TITLE = author.TITLE
DESCRIPTION = author.DESCRIPTION
TEAM_NAME = author.TEAM_NAME
REASON = author.REASON
MESSAGE_TEXT = author.MESSAGE_TEXT
DOCUMENT = author.DOCUMENT
KEY = 200
QUERY = 500
#: A token is shorter, but a client may send anything as one.
TOKEN = 200
#: The largest cursor that a database can store.
MOST_CURSOR = 2**63 - 1
#: The entries on a page: by default, and at most.
PAGE, LARGEST_PAGE = 100, 500


@frozen
class RoomCaller:
    """Who calls. `token` is the team's, None if none was shown. `remote` is the address of the client's machine. `act`
    identifies the call, so that what it writes is written once. `session` returns the id of the agent's own session on
    this server; None for a team that does not call over an agent's connection."""

    token: str | None
    remote: str
    act: str
    session: Callable[[], Awaitable[str]] | None = field(default=None, eq=False, repr=False)


@frozen
class Route:
    """A method and a path of plain HTTP. The path may contain `{session_id}`."""

    method: str
    path: str


#: What a tool answers: a value of its class `result`, or without one a whole room.
Answer: TypeAlias = AttrsInstance | Export
Handler = Callable[[Any, Any, RoomCaller], Awaitable[Answer]]


@frozen
class RoomTool:
    """One tool.

    `takes` are its arguments, and `result` is the class of its answer; None if the answer is a whole room.
    `needs_token` says that only teams of the room may call it. `route` is its place in plain HTTP. `handle` (service,
    arguments, caller) returns the answer and raises RoomRefused. The three hints tell a client's user that the tool
    changes nothing, may replace what others wrote, and may be called again.
    """

    name: str
    title: str
    description: str
    takes: type[AttrsInstance]
    result: type[AttrsInstance] | None
    route: Route
    handle: Handler = field(repr=False)
    needs_token: bool = True
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


# --- arguments that many tools take ----------------------------------------------------------------------------------

SESSION_ID = doc("The id of the session.", min_length=1, most=TOKEN)
TEAM_ID = doc("Your team's token in this session, from create_session or join_session. Keep it secret.", most=TOKEN)


def clamp_page(entries: int) -> int:
    """Return a usable number of entries: one that is too large counts as the default."""
    return PAGE if entries > LARGEST_PAGE else max(1, entries)


def clamp_cursor(cursor: int) -> int:
    """Return a cursor that a database can compare."""
    return min(max(0, cursor), MOST_CURSOR)


def clamp_seconds(seconds: float) -> float:
    """Return a time to wait, in seconds. The service has an upper limit, which people set."""
    # max(0.0, nan) is 0.0, in this order of arguments.
    return min(max(0.0, seconds), 86_400.0)


# --- answers as JSON -------------------------------------------------------------------------------------------------


def nullable(text: str) -> Mapping[str, object]:
    """Return the metadata of an answer's field that is null if it has no value; other fields are left out then."""
    return doc(text, nullable=True)


def to_json(answer: AttrsInstance) -> JsonObject:
    """Write an answer as JSON values. Fields without a value are left out, unless they are `nullable`."""
    written: JsonObject = {}
    for name, is_nullable in _names(type(answer)):
        value = getattr(answer, name)
        if value is not None:
            written[name] = _plain(value)
        elif is_nullable:
            written[name] = None
    return written


@functools.cache
def _names(kind: type[AttrsInstance]) -> tuple[tuple[str, bool], ...]:
    return tuple((each.name, bool(each.metadata.get("nullable"))) for each in fields(kind))


def _plain(value: Any) -> Json:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str | int | float | dict):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return clock.to_text(value)
    assert has(type(value)), f"{type(value).__name__} is no part of an answer"
    return to_json(value)


#: How long a client should wait before it calls again, if the refusal does not say it, in seconds.
RETRY_SECONDS = 1


def retry_after(details: Mapping[str, object]) -> int:
    """Return the seconds after which a refused call may be repeated."""
    wanted = details.get("retry_after")
    return max(1, math.ceil(wanted)) if isinstance(wanted, int | float) else RETRY_SECONDS
