"""Plain HTTP for rooms: the application of /api/* and /agents.md, with access rules of its own.

A path and a method stand for a tool (`intercom.rooms.tools.room_tool_table`). A waiting call holds little memory: ten
thousand of them may wait at once.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import NoReturn, get_args, get_type_hints
from urllib.parse import parse_qsl, urlsplit

import trio
from attrs import AttrsInstance, field, frozen
from starlette.types import Receive, Scope, Send

from intercom.agents.http import access_rules
from intercom.agents.http.access_rules import shows_token, wrong_host, wrong_origin
from intercom.agents.rooms import openapi, room_call
from intercom.agents.rooms.mcp import RoomsMcp
from intercom.agents.rooms.room_call import RoomsDeps, Waits
from intercom.model.config import Config
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.model.metrics import HttpFailed, Measured
from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms import instructions
from intercom.rooms.export import Export
from intercom.rooms.tools import feed
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.rooms.tools.tool import Answer, RoomTool, retry_after
from intercom.web_server.http_request import LOOPBACK, Body, Refusal, answer, read_body, remote_of, wrong_method
from intercom.web_server.server import Connection

log = logging.getLogger("intercom.rooms")

#: When a stream of events begins if its result takes longer, and the interval of its comments, in seconds. An error
#: before its beginning has its HTTP status.
FIRST_COMMENT_SECONDS = 1.0
COMMENT_SECONDS = 15.0
#: The largest request, in bytes: a document of the largest size, written with many escapes.
MOST_BYTES = 8 * 2**20

INSTRUCTIONS = "/agents.md"
_PREFIX = "/api/"
_SESSIONS = "/api/sessions/"

Headers = Mapping[bytes, bytes]


def is_rooms_path(path: str) -> bool:
    """Whether this path belongs to the rooms."""
    return path.startswith(_PREFIX) or path in (INSTRUCTIONS, "/api")


# --- access rules ----------------------------------------------------------------------------------------------------


@frozen
class RoomRules:
    """The access rules of the rooms' paths.

    `names` are the allowed hosts, with any port, and `hosts` those with a certain port. IP addresses are always
    allowed: a page that wants to reach this server under its own name (DNS rebinding) needs a name. `origins` are the
    allowed origins of web pages, besides the server's own. `secret` is None if none is required.
    """

    names: frozenset[bytes]
    hosts: frozenset[bytes]
    origins: frozenset[bytes]
    public_url: Callable[[], str | None]
    secret: bytes | None = field(default=None, repr=False)

    def refuse(self, headers: Headers, *, open: bool = False) -> Refusal | None:
        """Return why a request with these headers is refused; None if it is accepted. `open` pages need no secret."""
        host = headers.get(b"host", b"").lower()
        name, is_address = _split_host(host)
        public_name, public_origin = _public(self.public_url())
        if not (is_address or name in self.names or host in self.hosts or (name and name == public_name)):
            return wrong_host()
        origin = headers.get(b"origin")
        if origin is not None:
            origin = origin.lower()
            own = (b"http://" + host, b"https://" + host, public_origin)
            if origin not in own and origin not in self.origins:
                return wrong_origin()
        if self.secret is None or open:
            return None
        shown = headers.get(b"authorization")
        if shows_token(shown, self.secret):
            return None
        return _no_secret("show the secret of this server" if shown is None else "that is not this server's secret")


def rules(config: Config, port: int, deps: RoomsDeps) -> RoomRules:
    """Return the rules for a server with this configuration at `port`."""
    general = access_rules.rules(config, port, None).hosts
    address = config.http_host.lower()
    own = {*LOOPBACK, f"[{address}]" if ":" in address else address}
    secret = None if deps.secret is None else deps.secret.encode()
    names = general.names | {each.encode() for each in own}
    return RoomRules(names, general.hosts, general.origins, deps.service.public_url, secret)


#: An IPv6 address in brackets, or a name or IPv4 address; then a port.
_HOST = re.compile(
    rb"(?:\[(?P<inner>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?)(?::(?P<port>[0-9]{0,5}))?"
)


@functools.lru_cache(maxsize=256)
def _split_host(host: bytes) -> tuple[bytes, bool]:
    """Return a Host without its port and final dot (empty if it is none), and whether it is an IP address. An IPv6
    address is in brackets, and has no zone. A port may be empty, as RFC 3986 says."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return b"", False
    if (inner := found["inner"]) is not None:
        try:
            IPv6Address(inner.decode("ascii"))
        except ValueError:
            return b"", False
        return b"[" + inner + b"]", True
    name = found["name"]
    try:
        IPv4Address(name.decode("ascii"))
    except ValueError:
        return name, False
    return name, True


@functools.lru_cache(maxsize=4)
def _public(url: str | None) -> tuple[bytes, bytes]:
    """Return the host name and the origin of the public URL; empty without one."""
    if url is None:
        return b"", b""
    parts = urlsplit(url.lower())
    return _split_host(parts.netloc.encode())[0], f"{parts.scheme}://{parts.netloc}".encode()


def _no_secret(why: str) -> Refusal:
    message = f"{why}: Authorization: Bearer SECRET; the person who runs the server has it"
    return Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", message, ((b"www-authenticate", b'Bearer realm="rooms"'),))


# --- paths -----------------------------------------------------------------------------------------------------------

Methods = dict[str, RoomTool]


def _paths() -> tuple[dict[str, Methods], dict[str, Methods]]:
    """Return the tools by path and method: the paths without a session, and what follows a session's id."""
    top: dict[str, Methods] = {}
    within: dict[str, Methods] = {}
    for tool in OVER_HTTP:
        before, id, after = tool.route.path.partition("{session_id}")
        methods = within.setdefault(after.removeprefix("/"), {}) if id else top.setdefault(before, {})
        methods[tool.route.method] = tool
        if tool.route.method == "GET":
            methods["HEAD"] = tool
    return top, within


_TOP, _WITHIN = _paths()


def find(path: str, method: str) -> tuple[RoomTool, str | None] | None:
    """Return the tool of a path and a method, and the session's id in the path; None if the path is none of theirs.
    Raises Refusal for another method."""
    session_id: str | None = None
    methods = _TOP.get(path)
    if methods is None and path.startswith(_SESSIONS):
        session_id, _, rest = path[len(_SESSIONS) :].partition("/")
        methods = _WITHIN.get(rest) if session_id else None
    if methods is None:
        return None
    tool = methods.get(method)
    if tool is None:
        raise _wrong_method(path, *methods)
    return tool, session_id


def _wrong_method(path: str, *allowed: str) -> Refusal:
    return wrong_method(path[:200], *sorted(allowed))


# --- arguments -------------------------------------------------------------------------------------------------------


def _whole(text: str) -> object:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else text
    except ValueError:
        # More digits than Python reads.
        return text


def _number(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return text if math.isnan(number) else number


def _truth(text: str) -> object:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


_READERS: dict[type, Callable[[str], object]] = {int: _whole, float: _number, bool: _truth}


@functools.cache
def _readers(kind: type[AttrsInstance]) -> dict[str, Callable[[str], object]]:
    """Return how the arguments that are no texts are read from a query. What cannot be read stays a text, so that it is
    refused with all other faults."""
    found: dict[str, Callable[[str], object]] = {}
    for name, hint in get_type_hints(kind).items():
        for part in get_args(hint) or (hint,):
            if part in _READERS:
                found[name] = _READERS[part]
    return found


def _read_query(query: bytes, kind: type[AttrsInstance]) -> dict[str, object]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise _invalid("the query of the URL cannot be read: at most 50 names, percent-encoded UTF-8") from None
    given: dict[str, object] = {}
    readers = _readers(kind)
    for name, text in pairs:
        if name in given:
            raise _invalid(f"{name[:60]} is given twice in the URL: give it once")
        if name == "team_id":
            raise _invalid("send your team_id in the header X-Team-ID: URLs are written to logs")
        read = readers.get(name)
        given[name] = text if read is None else None if text == "" else read(text)
    return given


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def _read_body(data: bytes, headers: Headers) -> dict[str, object]:
    """Return the JSON object of a request; an empty one counts as an empty object."""
    if not data.strip():
        return {}
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "send JSON as Content-Type: application/json (curl -H 'Content-Type: application/json')",
        )
    room_call.refuse_many_values(data)
    try:
        given = _decode(data.decode())
    except (ValueError, RecursionError) as fault:
        # What the decoder says names the place, and repeats nothing of the text.
        raise _invalid(f"the body is no JSON object in UTF-8: {str(fault)[:200]}") from None
    if not isinstance(given, dict):
        raise _invalid('the body must be a JSON object, like {"title": "..."}')
    return given


def _invalid(message: str) -> RoomRefused:
    return RoomRefused(RoomErrorCode.INVALID_ARGUMENTS, message)


@frozen
class Asked:
    """A request that was read. `streams` says that the client wants a stream of events."""

    tool: RoomTool
    arguments: AttrsInstance
    token: str | None
    remote: str
    streams: bool


def read_request(tool: RoomTool, session_id: str | None, scope: Scope, headers: Headers, data: bytes) -> Asked:
    """Read the arguments of a call, from the query of a GET or the body of a POST. Raises RoomRefused and Refusal."""
    if tool.route.method == "GET":
        given = _read_query(scope["query_string"], tool.takes)
    else:
        if scope["query_string"]:
            raise _invalid("a POST has its arguments in the body, as a JSON object, and none in the URL")
        given = _read_body(data, headers)
    if session_id is not None:
        if given.get("session_id") not in (None, session_id):
            raise _invalid("session_id is in the path already, with another value: leave it out of the arguments")
        given["session_id"] = session_id
    shown = headers.get(b"x-team-id")
    token = None if shown is None else shown.decode("latin-1")
    if session_id is not None:
        said = given.get("team_id")
        if token and said not in (None, "", token):
            raise _invalid("team_id is given twice with different values: send it in the header X-Team-ID only")
        if token:
            given["team_id"] = token
        elif isinstance(said, str) and said:
            token = said
    arguments = room_call.read(tool, given, "the header X-Team-ID")
    streams = tool is feed.WAIT and b"text/event-stream" in headers.get(b"accept", b"")
    return Asked(tool, arguments, token, remote_of(scope), streams)


async def _read_data(tool: RoomTool, scope: Scope, receive: Receive, limit: int) -> Body:
    """Read a request's body. Raises Refusal if it has more than `limit` bytes, or more than its tool takes."""
    most = room_call.most_bytes(tool)
    try:
        return await read_body(scope, receive, min(most, limit))
    except Refusal as refused:
        if refused.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE and most < limit:
            raise room_call.too_large(tool.name, most) from None
        raise


def _has_body(headers: Headers) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


# --- the application -------------------------------------------------------------------------------------------------

Log = Callable[[str, str], object]


class RoomsApp:
    """The application of the rooms' paths, with their access rules. `mcp` is that of /api/mcp, and `run` must be active
    while it serves. `limit` is the largest request, in bytes, and `measured` gets every error response."""

    def __init__(self, deps: RoomsDeps, rules: RoomRules, measured: Measured, limit: int) -> None:
        limit = min(limit, MOST_BYTES)
        self.rules = rules
        self.waits = Waits()
        self.mcp = RoomsMcp(deps, self.waits, measured, limit)
        self._deps = deps
        self._measured = measured
        self._limit = limit
        self._pages: dict[str, tuple[bytes, Callable[[str], bytes]]] = {
            INSTRUCTIONS: (b"text/markdown; charset=utf-8", self._instructions),
            "/api/mcp-config": (b"application/json", self._mcp_config),
            "/api/openapi.json": (b"application/json", self._openapi),
        }

    def run(self) -> AbstractAsyncContextManager[None]:
        """Hold the HTTP sessions of MCP while the block runs."""
        return self.mcp.run()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, connection: Connection, log_refused: Log
    ) -> None:
        """Serve a request of any path but MCP's. `log_refused` gets the path and code of one that the rules refuse."""
        try:
            asked = await self._read(scope, receive, send, connection, log_refused)
            if asked is None:
                return
            if asked.streams:
                await self._stream(asked, send, connection)
            elif asked.tool is feed.WAIT:
                await self._wait(asked, send, connection)
            else:
                await self._send(await self._answer(asked), send, connection)
        except RoomRefused as refused:
            await self._refuse(send, refused)
        except Refusal as refused:
            error = room_call.error_json(refused.code, refused.message)
            await self._fail(send, refused.status, error, refused.headers)
        except Exception as failed:
            await self._refuse(send, room_call.refusal(failed, scope["path"][:200]))

    async def _read(
        self, scope: Scope, receive: Receive, send: Send, connection: Connection, log_refused: Log
    ) -> Asked | None:
        """Return the call that a request makes; None if it was answered here, or its client is gone. Raises Refusal and
        RoomRefused."""
        path, headers = scope["path"], dict(scope["headers"])
        # The instructions say nothing that is secret, and agents are given their address alone.
        is_open = path == INSTRUCTIONS
        refusal = self.rules.refuse(headers, open=is_open)
        if refusal is not None:
            log_refused(path, refusal.code)
            raise refusal
        if is_open and self._has_secret:
            connection.answered = True
        else:
            connection.authenticated = True
        found = find(path, scope["method"])
        if found is None:
            await self._show(path, scope["method"], headers, send)
            return None
        data = b""
        if _has_body(headers):
            body = await _read_data(found[0], scope, receive, self._limit)
            if body.gone:
                return None
            data = body.data or b""
        asked = read_request(*found, scope, headers, data)
        # A waiting call holds as little as possible, and nobody reads the headers any more.
        scope["headers"] = []
        return asked

    async def _answer(self, asked: Asked) -> Answer:
        return await room_call.answer(self._deps.service, asked.tool, asked.arguments, asked.token, asked.remote)

    async def _wait(self, asked: Asked, send: Send, connection: Connection) -> None:
        """Answer a wait, unless its client is gone before."""
        waiting = trio.CancelScope()
        self.waits.add(waiting)
        connection.on_end = waiting.cancel
        try:
            if connection.ended:
                return
            with waiting:
                answered = await self._answer(asked)
            connection.on_end = None
            if connection.ended:
                return
            if waiting.cancelled_caught:
                await self._refuse(send, room_call.stopping())
            else:
                await self._send(answered, send, connection)
        finally:
            connection.on_end = None
            self.waits.remove(waiting)

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _send(self, answered: Answer, send: Send, connection: Connection) -> None:
        if not isinstance(answered, Export):
            await answer(send, 200, b"application/json", _line(room_call.content(answered)))
            return
        headers = [(b"content-type", answered.media_type.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(answered.parts) as parts:
            try:
                # The next part is made when the client has taken the last one.
                async for part in parts:
                    await send(
                        {"type": "http.response.body", "body": part.encode("utf-8", "replace"), "more_body": True}
                    )
                    if connection.broken:
                        return
            except IntercomError as failed:
                # Without its end the answer counts as cut off, which is all that can still be said.
                log.warning("an export of a room ended early: %s", failed.message)
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, send: Send, refused: RoomRefused) -> None:
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if refused.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            headers = ((b"retry-after", str(retry_after(refused.details)).encode()),)
        elif refused.status == HTTPStatus.UNAUTHORIZED:
            headers = ((b"www-authenticate", b'X-Team-ID realm="rooms"'),)
        await self._fail(send, refused.status, room_call.refused_json(refused), headers)

    async def _fail(self, send: Send, status: int, error: JsonObject, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._measured(HttpFailed(status))
        await answer(send, status, b"application/json", _line(error), headers)

    # --- a wait as a stream of events --------------------------------------------------------------------------------

    async def _stream(self, asked: Asked, send: Send, connection: Connection) -> None:
        """Answer a wait with a stream: comments while it waits, and then one event with the result."""
        result: list[Answer | RoomRefused] = []
        done = trio.Event()
        waiting = trio.CancelScope()

        async def wait() -> None:
            try:
                with waiting:
                    result.append(await self._answer(asked))
            except RoomRefused as refused:
                result.append(refused)
            done.set()

        begun = False
        self.waits.add(waiting)
        try:
            async with trio.open_nursery() as nursery:
                connection.on_end = nursery.cancel_scope.cancel
                if connection.ended:
                    nursery.cancel_scope.cancel()
                nursery.start_soon(wait)
                pause = FIRST_COMMENT_SECONDS
                while not done.is_set():
                    with trio.move_on_after(pause):
                        await done.wait()
                        break
                    if not begun:
                        begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
                    await send({"type": "http.response.body", "body": b": waiting\n\n", "more_body": True})
                    pause = COMMENT_SECONDS
            connection.on_end = None
            if connection.ended:
                return
            answered = result[0] if result else room_call.stopping()
            if isinstance(answered, RoomRefused) and not begun:
                await self._refuse(send, answered)
                return
            if not begun:
                await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
            await send({"type": "http.response.body", "body": _event(answered), "more_body": False})
        finally:
            connection.on_end = None
            self.waits.remove(waiting)

    # --- pages -------------------------------------------------------------------------------------------------------

    async def _show(self, path: str, method: str, headers: Headers, send: Send) -> None:
        page = self._pages.get(path)
        if page is None:
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                "not_found",
                f"nothing is at {path[:200]!r}: {INSTRUCTIONS} says what there is, and /api/openapi.json in full",
            )
        if method not in ("GET", "HEAD"):
            raise _wrong_method(path, "GET", "HEAD")
        media_type, make = page
        await answer(send, 200, media_type, make(self._base(headers)))

    def _base(self, headers: Headers) -> str:
        """Return the public URL; if nobody has set it, the address by which this client reached the server."""
        return self._deps.service.public_url() or f"http://{headers.get(b'host', b'').decode('latin-1')}"

    @property
    def _has_secret(self) -> bool:
        return self._deps.secret is not None

    def _instructions(self, base: str) -> bytes:
        return instructions.agents_md(base, secret=self._has_secret).encode()

    def _mcp_config(self, base: str) -> bytes:
        return _line(instructions.mcp_config(base, secret=self._has_secret))

    def _openapi(self, base: str) -> bytes:
        return _line(openapi.document(base, secret=self._has_secret))


_EVENTS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Proxies that collect responses would hold the comments back.
    (b"x-accel-buffering", b"no"),
]


def _line(value: JsonObject) -> bytes:
    """Write JSON with a newline at its end: in a terminal, the prompt does not follow it in the same line then."""
    return room_call.to_bytes(value) + b"\n"


def _event(answered: Answer | RoomRefused) -> bytes:
    if isinstance(answered, RoomRefused):
        return b"event: error\ndata: " + room_call.to_bytes(room_call.refused_json(answered)) + b"\n\n"
    return b"event: result\ndata: " + room_call.to_bytes(room_call.content(answered)) + b"\n\n"
