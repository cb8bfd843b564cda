"""The ASGI application of the page: its files, and the API behind them."""

from __future__ import annotations

import gzip
import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import trio
from attrs import define, field, frozen
from starlette.types import Message, Receive, Scope, Send

from intercom._version import __version__
from intercom.local import processes
from intercom.local.processes import ProcessKey, Recognised, Who
from intercom.model.card import Card
from intercom.model.clock import to_text
from intercom.model.errors import IntercomError, InvalidArguments, IpcError, NotFound, Unauthorized
from intercom.model.json_types import Json, JsonObject
from intercom.model.process import Origin
from intercom.model.room import RoomRefused
from intercom.model.web_role import WebRole
from intercom.operators.authorization import Authorization, connected
from intercom.operators.commands.command_execution import WORK_SECONDS, CommandRequest, carry_out, refusals
from intercom.operators.commands.command_table import COMMANDS, MAX_REQUEST
from intercom.operators.commands.room_handlers import rooms_of
from intercom.operators.router_messages import Channel
from intercom.operators.web import api, events, room_events
from intercom.operators.web.events import EventLog
from intercom.operators.web.passkeys import (
    NAME,
    Proposals,
    origin_of,
    passkeys_entry,
    proposal_entry,
    read_proposal,
    require_key,
)
from intercom.operators.web.proxy import STREAM_SECONDS, Member, ProxyRules
from intercom.operators.web.sign_in import (
    SIGN_IN,
    BrowserSession,
    SignIns,
    may_use,
    require_role,
    set_cookie,
    shown_secrets,
)
from intercom.operators.web.tokens import ApiTokens, Program, bearer_token
from intercom.sessions.operator_service import OperatorService
from intercom.web_server.http_request import Refusal, answer, plain_form, read_body, wrong_method
from intercom.web_server.server import Connection

log = logging.getLogger("intercom.web")

SendPart = Callable[[bytes], Awaitable[None]]
#: Who sends a request.
Visitor = BrowserSession | Program | Member

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types service-worker"
)
_WITHOUT = ("camera", "geolocation", "microphone", "payment", "usb", "display-capture", "serial", "hid")
#: The headers of every answer.
SECURITY_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"permissions-policy",
        f"publickey-credentials-get=(self), {', '.join(f'{each}=()' for each in _WITHOUT)}".encode(),
    ),
)

# --- the files of the page -------------------------------------------------------------------------------------------

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
#: Where the built page is.
PAGE = Path(__file__).with_name("page")
_INDEX = "/index.html"
#: The addresses that the page shows itself, and the beginning of those with an id.
_VIEWS = ("/", "/inbox", "/sessions", "/log", "/rooms", "/server", "/settings")
_DEEP_VIEWS = ("/inbox/", "/sessions/", "/log/", "/rooms/", "/server/", "/settings/")
#: Files below this path have the hash of their content in their name.
_HASHED = "/assets/"
_SMALLEST_PACKED = 1024

_MISSING = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Agent Intercom</title></head><body>
<h1>The files of this page are missing</h1>
<p>Build them in a clone of the repository with <code>tox -e web</code>, and start the server again.
Until then, use <code>agent-intercom-ctl watch</code> in a terminal.</p>
</body></html>
"""


@frozen
class PageFile:
    """One file of the page, as it is sent; `packed` is the same for browsers that unpack gzip."""

    media: bytes
    body: bytes
    is_hashed: bool = False
    packed: bytes | None = None


def page_files(directory: Path = PAGE) -> dict[str, PageFile]:
    """Read the built page, by the path of each file. Links, and files of an unknown kind, are left out. Only what is
    found here is ever served: no path of a request reaches the file system. Blocks."""
    found = {_INDEX: PageFile(_MEDIA[".html"].encode(), _MISSING)}
    for above, _, names in os.walk(directory):
        for file in (Path(above, name) for name in names):
            media = _MEDIA.get(file.suffix)
            if media is None or not stat.S_ISREG(file.lstat().st_mode):
                continue
            path, body = f"/{file.relative_to(directory).as_posix()}", file.read_bytes()
            packed = gzip.compress(body, 6, mtime=0) if len(body) >= _SMALLEST_PACKED else None
            packed = packed if packed is not None and len(packed) < len(body) else None
            found[path] = PageFile(media.encode(), body, path.startswith(_HASHED), packed)
    return found


async def _show(file: PageFile, scope: Scope, send: Send) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise wrong_method(scope["path"][:200], "GET", "HEAD")
    accepted = dict(scope["headers"]).get(b"accept-encoding", b"")
    is_packed = file.packed is not None and b"gzip" in accepted
    body = file.packed if is_packed and file.packed is not None else file.body
    headers = [
        (b"content-type", file.media),
        (b"content-length", str(len(body)).encode()),
        # A file with its hash in its name never changes. The others are small, and lead to these.
        (b"cache-control", b"public, max-age=31536000, immutable" if file.is_hashed else b"no-store"),
        (b"vary", b"accept-encoding"),
    ]
    if is_packed:
        headers.append((b"content-encoding", b"gzip"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


# --- who may reach it ------------------------------------------------------------------------------------------------


#: The page's own name, and the address that leads there.
_NAMES = ("127.0.0.1", "localhost")


def own_hosts(port: int) -> frozenset[bytes]:
    """Return what a request to the page at this port has as its Host. A page that reaches this server under a name of
    its own (DNS rebinding) shows that name."""
    return frozenset(host.encode() for each in _NAMES for host in (f"{each}:{port}", *([each] if port == 80 else [])))


_wrong_host = partial(Refusal, HTTPStatus.MISDIRECTED_REQUEST, "host_refused")
_wrong_origin = partial(
    Refusal, HTTPStatus.FORBIDDEN, "origin_refused", "pages of another address may not call this server"
)
_signed_out = partial(
    Refusal, HTTPStatus.UNAUTHORIZED, "unauthorized", f"nobody is signed in in this browser, or not any more; {SIGN_IN}"
)
_ended = partial(
    Refusal,
    HTTPStatus.UNAUTHORIZED,
    "unauthorized",
    "the session or the token of this request ended while the request came, so nothing was done",
)
_left = partial(
    Refusal,
    HTTPStatus.UNAUTHORIZED,
    "unauthorized",
    "the client closed its connection before the system showed its process, so nothing was done: wait for the answer",
)
_no_csrf = partial(
    Refusal,
    HTTPStatus.FORBIDDEN,
    "unauthorized",
    "the header X-Intercom-CSRF is missing, or is not that of this session: ask /api/operator/me for it",
)
_not_json = partial(
    Refusal,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "invalid_arguments",
    "send a JSON object as Content-Type: application/json",
)
_failed = partial(
    Refusal, HTTPStatus.INTERNAL_SERVER_ERROR, "unavailable", "the server failed at this; its log says why, try again"
)

#: Pages of the same origin, and what a person types. Other local servers are of the same site.
_OWN_PAGES = (b"same-origin", b"none")
_SIGN_IN_REQUEST = CommandRequest("sign-in")
_NOT_SHOWN = "a program that the system does not show"
#: The largest request to sign in, in bytes: anybody on this machine can send one.
_MOST_SIGN_IN = 4096
_PASSKEY_REQUEST = CommandRequest("passkey")
_PASSKEYS = f"{api.BASE}/passkeys"
#: The stream of one room, below the API.
_ROOM_EVENTS = re.compile(r"/rooms/([0-9a-f-]{1,36})/events")
#: What only a POST reaches. Passkeys are listed and proposed at one path.
_POSTS = (f"{api.BASE}/sign-in", f"{api.BASE}/sign-out")
#: What only a person may send, and of that what is for those who have signed in with a link.
_FOR_PEOPLE = (*_POSTS, _PASSKEYS)
#: How many streams of events one session has. A browser opens six connections to a server: if streams took all of
#: them, no decision could be sent, and no page loaded.
MOST_STREAMS = 4
#: How many streams of events a person has whom the proxy has signed in, in all browsers together: the server does not
#: know which of them a request is from.
MOST_MEMBER_STREAMS = 16
#: How long a stream of events waits for the router, which may be restarting, in seconds.
_CAUGHT_UP_SECONDS = 10.0


@frozen
class SiteDeps:
    """The dependencies of the page. `find` finds the processes at the other end of a connection; it raises
    trio.TooSlowError. `tell` announces a line. `open_cards` are those that a stream begins with, once `caught_up`
    returns: a stream without them would look like an empty inbox."""

    service: OperatorService
    sign_ins: SignIns
    tokens: ApiTokens
    authorization: Authorization
    log: EventLog
    open_cards: Callable[[], Iterable[Card]]
    caught_up: Callable[[], Awaitable[None]]
    find: Callable[[Connection], Awaitable[frozenset[int]]]
    tell: Callable[[str], None]
    files: Mapping[str, PageFile]
    started_at: datetime
    proposals: Proposals
    proxy: ProxyRules | None = None


@define(eq=False)
class _OpenStream:
    """A stream of events that is open. `is_over` is set once newer ones have taken its place."""

    is_over: bool = False
    began_at: float = field(factory=trio.current_time)


@define(eq=False)
class WebSite:
    """The application of the page at this port."""

    deps: SiteDeps
    port: int
    _hosts: frozenset[bytes] = field(init=False)
    #: The people who have come through the proxy, by their names.
    _came: set[str] = field(init=False, factory=set)
    #: The open streams of each session and program, by its `key`; the oldest first.
    _streams: dict[str, list[_OpenStream]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._hosts = own_hosts(self.port)

    @property
    def is_streaming(self) -> bool:
        """Whether anybody has a stream of events open."""
        return bool(self._streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        refused: Refusal | None = None
        try:
            await self._serve(scope, receive, sent)
        except Refusal as refusal:
            refused = refusal
        except IntercomError as error:
            if not has_begun:
                await answer(sent, api.status_of(error), b"application/json", api.json_body(api.error_entry(error)))
        except Exception:
            log.exception("a request to %s failed", scope["path"][:200])
            refused = _failed()
        if refused is not None and not has_begun:
            await refused.send(sent, plain_form)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"]["connection"]
        # Nobody has signed in yet, so the connection stays limited.
        connection.answered = True
        headers = dict(scope["headers"])
        host, proxy, member = headers.get(b"host", b"").lower(), self.deps.proxy, None
        if proxy is not None and host == proxy.host and host not in self._hosts:
            member, origin = proxy.member(scope["headers"]), proxy.origin
        elif proxy is not None and proxy.has_sent(scope["headers"]):
            # Somebody behind the proxy has written another Host: no link and no token counts from there.
            raise _wrong_host("a request of the proxy counts under the public name only: pass on the browser's Host")
        elif host in self._hosts:
            # What a proxy would say does not count here.
            origin = b"http://" + host
        else:
            raise _wrong_host(
                "this server does not have that Host name: use the address in the link of agent-intercom-ctl web"
            )
        # A page of the same server under its other name is another page too.
        if any(name == b"origin" and value.lower() != origin for name, value in scope["headers"]):
            raise _wrong_origin()
        path: str = scope["path"]
        if path == api.BASE or path.startswith(f"{api.BASE}/"):
            if any(name == b"sec-fetch-site" and value not in _OWN_PAGES for name, value in scope["headers"]):
                raise _wrong_origin()
            await self._api(path, scope, receive, send, headers, member)
            return
        file = self.deps.files.get(path)
        if file is None and (path in _VIEWS or path.startswith(_DEEP_VIEWS)):
            file = self.deps.files[_INDEX]
        if file is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "not_found", "nothing is at this address; the page is at /")
        if member is None and host.partition(b":")[0] != NAME.encode() and scope["method"] in ("GET", "HEAD"):
            # Passkeys, and what the browser keeps for the page, are of its name.
            to = origin_of(self.port).encode() + quote(path, errors="replace").encode()
            await answer(send, HTTPStatus.TEMPORARY_REDIRECT, b"text/plain", b"", ((b"location", to),))
            return
        await _show(file, scope, send)

    # --- the API ---

    async def _api(
        self,
        path: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        member: Member | None,
    ) -> None:
        method = scope["method"]
        posts = path in _POSTS or path.startswith(api.COMMANDS_PATH) or (path == _PASSKEYS and method == "POST")
        if method != ("POST" if posts else "GET"):
            raise wrong_method(path[:200], "POST" if posts else "GET")
        # A proxy may show a token of its own. Under the public name only what it says of a person counts.
        shown = bearer_token(scope["headers"], self.port) if member is None else None
        if path in _FOR_PEOPLE and posts and shown is not None:
            raise Unauthorized("this is for people at the page: a token needs no sign-in, and makes no passkey")
        if path in _POSTS and member is not None:
            raise Unauthorized(
                f"{member.name} is signed in by the proxy: sign out there, and use a link on the machine where the"
                " server runs"
            )
        if path == f"{api.BASE}/sign-in":
            await self._sign_in(scope, receive, send)
            return
        session: Visitor
        if member is not None:
            session = await self._came_by_proxy(member)
        else:
            session = await (self._session(scope) if shown is None else self._program(shown))
        scope["state"]["connection"].authenticated = True
        if posts and not isinstance(session, Program) and not session.shows_csrf(headers.get(api.CSRF_HEADER)):
            raise _no_csrf()
        if path.startswith(api.COMMANDS_PATH):
            await self._command(path.removeprefix(api.COMMANDS_PATH), scope, receive, send, session)
            return
        match path.removeprefix(api.BASE):
            case "/me":
                await _json(send, self._me(session))
            case "/passkeys" if posts and not isinstance(session, Program):
                await self._propose(scope, receive, send, session)
            case "/passkeys":
                keys = self.deps.service.signatures.keyring.trusted()
                is_shown = may_use(session.role, COMMANDS["passkeys"])
                waiting = self.deps.proposals.waiting(keys) if is_shown else ()
                await _json(send, passkeys_entry(self._address(session), keys.values(), waiting))
            case "/commands":
                await _json(send, api.command_entries(session.role))
            case "/openapi.json":
                await _json(send, api.openapi(session.role))
            case "/events":
                await self._events(scope, receive, send, session, headers)
            case of_room if (found := _ROOM_EVENTS.fullmatch(of_room)) is not None:
                await self._room_events(found[1], scope, receive, send, session, headers)
            case "/sign-out":
                self.deps.sign_ins.end(shown_secrets(scope["headers"], self.port))
                self.deps.log.wake()
                gone = (b"set-cookie", set_cookie(self.port, ""))
                await send({"type": "http.response.start", "status": 204, "headers": [gone]})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            case _:
                raise Refusal(HTTPStatus.NOT_FOUND, "not_found", "the API has no such path: see its openapi.json")

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        data = await _read_json(scope, receive, _MOST_SIGN_IN)
        if data is None:
            return
        code = api.read_object(data).get("code")
        if not isinstance(code, str):
            raise InvalidArguments("code must be the code of a link")
        deps, connection = self.deps, scope["state"]["connection"]
        try:
            link = deps.sign_ins.redeem(code)
        except Unauthorized as refused:
            await self._show_again(code, scope)
            raise Refusal(HTTPStatus.UNAUTHORIZED, refused.error_code, refused.message) from None
        try:
            pids = await self._pids(connection)
            with refusals("sign-in"):
                origin = await deps.authorization.require_browser(_SIGN_IN_REQUEST, pids, link.name)
                who: JsonObject = {
                    "user": link.name,
                    "role": link.role.value,
                    "by": link.by,
                    "origin": origin.to_data(),
                }
                invited = "" if link.by == link.name else f" as {link.role.value}, with a link that {link.by} made"
                # A sign-in that is not on record gives no session.
                await deps.service.security_event(f"{link.name} signed in to the page{invited}", who)
        except Unauthorized:
            raise
        except IntercomError:
            # A passing failure: the same browser may try again with this link.
            deps.sign_ins.give_back(link)
            raise
        if deps.sign_ins.is_new_program(origin.executable):
            # A person whose link was used by somebody else learns it here.
            since = " for the first time since the server started, " if origin.executable else " "
            deps.tell(f"{link.name} signed in to the page{since}with {origin.describe() or _NOT_SHOWN}")
        try:
            secret, session = deps.sign_ins.begin(link, _keys(pids))
        except Unauthorized as refused:
            raise Refusal(HTTPStatus.UNAUTHORIZED, refused.error_code, refused.message) from None
        connection.authenticated = True
        await _json(send, self._me(session), (b"set-cookie", set_cookie(self.port, secret)))

    async def _show_again(self, code: str, scope: Scope) -> None:
        """If another browser has used this link, end its session, and tell people. A process that can read the file of
        a link may have been faster than the person's browser."""
        deps = self.deps
        if not deps.sign_ins.was_used(code):
            return
        try:
            pids = await self._pids(scope["state"]["connection"])
        except (IpcError, Refusal):
            pids = frozenset()
        name = deps.sign_ins.show_again(code, shown_secrets(scope["headers"], self.port), _keys(pids))
        if name is None:
            return
        deps.log.wake()
        origin = processes.origin(Channel.WEB.value, min(pids)) if pids else Origin(Channel.WEB.value)
        second = origin.describe() or _NOT_SHOWN
        summary = f"a link of {name} to the page was opened in two browsers, last with {second}: it signs in neither"
        deps.tell(summary)
        with refusals("sign-in"):
            await deps.service.security_event(summary, {"user": name, "origin": origin.to_data()})

    async def _session(self, scope: Scope) -> BrowserSession:
        """Return the session of a request. Raises Refusal if there is none, or if it is another process's. A session
        whose browser has ended is ended."""
        session = self.deps.sign_ins.find(shown_secrets(scope["headers"], self.port))
        if session is None:
            raise _signed_out()
        if not session.processes:
            return session
        pids = await self._pids(scope["state"]["connection"])
        if session.fits(_keys(pids)):
            return session
        if not any(map(processes.is_there, session.processes)):
            # The browser has ended, and the same one may have begun again with its old cookies. Nobody shows this
            # session any more for whom it counts.
            self.deps.sign_ins.end_session(session)
            self.deps.log.wake()
            raise _signed_out()
        by = f"process {min(pids)}" if pids else "a process that the system does not show"
        why = f"the session of {session.name} on the page was shown by {by}, which is not the browser that signed in"
        found = Recognised(Who.UNKNOWN, why, Origin(Channel.WEB.value, pid=min(pids, default=None)))
        await self.deps.authorization.report(CommandRequest("page"), found, session.name)
        raise Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", f"{why}; {SIGN_IN}")

    async def _program(self, shown: str) -> Program:
        """Return the program that shows this token. Raises Refusal if it does not count."""
        with refusals("token"):
            try:
                return await self.deps.tokens.find(shown)
            except Unauthorized as refused:
                challenge = ((b"www-authenticate", b"Bearer"),)
                found = Refusal(HTTPStatus.UNAUTHORIZED, refused.error_code, refused.message, challenge)
        raise found

    async def _came_by_proxy(self, member: Member) -> Member:
        """Record the first request of a person whom the proxy has signed in. One that is not on record does nothing."""
        if member.name not in self._came:
            with refusals("sign-in"):
                who: JsonObject = {"user": member.name, "role": member.role.value}
                await self.deps.service.security_event(f"{member.name} came to the page through the proxy", who)
            self._came.add(member.name)
        return member

    async def _pids(self, connection: Connection) -> frozenset[int]:
        """Return the processes at the other end of a connection, as far as the system shows them. Raises Refusal if the
        client is gone already."""
        if connection.processes is None:
            try:
                connection.processes = await self.deps.find(connection)
            except trio.TooSlowError:
                message = "the process of this connection could not be found just now; try again"
                raise IpcError(message, code="unavailable", retry_after=1.0) from None
        if not connection.processes and (connection.is_left or connection.is_full):
            # The system names no process of a closed connection, so it may have been an agent's. Nobody waits for the
            # answer: a tab may be closed at once too.
            raise _left()
        return connection.processes

    def _me(self, session: Visitor) -> JsonObject:
        csrf: JsonObject = {} if isinstance(session, Program) else {"csrf": session.csrf}
        return {
            "name": session.name,
            "role": session.role.value,
            **csrf,
            "server": {
                "version": __version__,
                "started_at": to_text(self.deps.started_at),
                "rooms": self.deps.service.rooms is not None,
            },
            "signing": {"required": self.deps.service.signatures.required},
        }

    async def _command(self, name: str, scope: Scope, receive: Receive, send: Send, session: Visitor) -> None:
        row = COMMANDS.get(name)
        if row is None:
            raise NotFound("there is no such command: see /api/operator/commands")
        require_role(session.role, row)
        if row.in_browser and isinstance(session, Program):
            raise Unauthorized(f"{row.name} is for people at the page: what it makes would outlive the token")
        data = await _read_json(scope, receive, MAX_REQUEST)
        if data is None:
            return
        request, origin = api.read_command(name, data), None
        with refusals(name):
            if row.acts:
                pids = await self._pids(scope["state"]["connection"])
                origin = await self.deps.authorization.require_browser(request, pids, session.name)
        self._require_lasting(session)
        with refusals(name), trio.fail_after(WORK_SECONDS):
            done: Json = await carry_out(self.deps.service, request, session.name, origin, Channel.WEB)
        await _json(send, {"data": done})

    def _address(self, session: Visitor) -> str:
        """Return the origin of the page that somebody looks at: passkeys are of one."""
        if isinstance(session, Member) and self.deps.proxy is not None:
            return self.deps.proxy.origin.decode()
        return origin_of(self.port)

    async def _propose(self, scope: Scope, receive: Receive, send: Send, session: BrowserSession | Member) -> None:
        """Keep a passkey that was made on the page until it is enrolled in a terminal. It manages no keys: who
        decides may have to sign, and who has the PIN of an operator key says whether this one counts."""
        if not session.role.includes(WebRole.OPERATOR):
            raise Unauthorized(f"your role is {session.role.value}: to propose a passkey needs the role operator")
        data = await _read_json(scope, receive, MAX_REQUEST)
        if data is None:
            return
        deps = self.deps
        passkey, name = read_proposal(self._address(session), api.read_object(data))
        require_key(deps.service.signatures.keyring.has_keys)
        with refusals("passkey"):
            pids = await self._pids(scope["state"]["connection"])
            origin = await deps.authorization.require_browser(_PASSKEY_REQUEST, pids, session.name)
        self._require_lasting(session)
        with refusals("passkey"):
            made = deps.proposals.propose(passkey, name, session.name)
            who: JsonObject = {"user": session.name, "key_id": made.key_id, "origin": origin.to_data()}
            await deps.service.security_event(f"{session.name} made passkey {made.key_id} on the page", who)
        await _json(send, proposal_entry(made))

    async def _events(
        self, scope: Scope, receive: Receive, send: Send, session: Visitor, headers: Mapping[bytes, bytes]
    ) -> None:
        deps, last = self.deps, _last_event(headers)
        with refusals("events"), trio.fail_after(_CAUGHT_UP_SECONDS):
            await deps.caught_up()

        async def stream(send_part: SendPart, lasts: Callable[[], bool]) -> None:
            await events.stream(deps.log, deps.open_cards, last, send_part, lasts)

        await self._stream(scope, receive, send, session, stream)

    async def _room_events(
        self,
        id: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        session: Visitor,
        headers: Mapping[bytes, bytes],
    ) -> None:
        rooms = rooms_of(self.deps.service)
        with refusals("events"), trio.fail_after(_CAUGHT_UP_SECONDS):
            begin = await room_events.beginning(rooms, id, _last_event(headers))

        async def stream(send_part: SendPart, lasts: Callable[[], bool]) -> None:
            # If the rooms' database does not answer for a while, the page comes back.
            with suppress(RoomRefused):
                await room_events.stream(rooms, begin, send_part, lasts)

        await self._stream(scope, receive, send, session, stream)

    async def _stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        session: Visitor,
        stream: Callable[[SendPart, Callable[[], bool]], Awaitable[None]],
    ) -> None:
        """Answer with what `stream` sends, until it ends or the browser is gone."""
        # The stream has no end.
        scope["state"]["connection"].is_listening = True
        told = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": told})

        async def send_part(part: bytes) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": True})

        with self._streaming(session) as opened:
            lasts = partial(self._lasts, opened, session)
            async with trio.open_nursery() as nursery:

                async def send_if_signed_in(part: bytes) -> None:
                    # It may have ended while the stream waited for this part.
                    if not lasts():
                        nursery.cancel_scope.cancel()
                        await trio.lowlevel.checkpoint()
                    await send_part(part)

                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                await stream(send_if_signed_in, lasts)
                nursery.cancel_scope.cancel()
        if opened.is_over:
            await send_part(events.line("elsewhere", {}))
        elif _is_spent(opened, session):
            await send_part(events.line("again", {}))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _lasts(self, opened: _OpenStream, session: Visitor) -> bool:
        return not opened.is_over and self._still_counts(session) and not _is_spent(opened, session)

    def _still_counts(self, session: Visitor) -> bool:
        """Whether who was found at the beginning of a request may still do something. The proxy says
        with each request that a person is signed in."""
        if isinstance(session, Program):
            return self.deps.tokens.lasts(session.token)
        return isinstance(session, Member) or self.deps.sign_ins.has(session)

    def _require_lasting(self, session: Visitor) -> None:
        """Raise Refusal if a session or a token has ended since the head of the request: its body may come late."""
        if not self._still_counts(session):
            raise _ended()

    @contextmanager
    def _streaming(self, session: Visitor) -> Iterator[_OpenStream]:
        """Count a stream of this session, and end the oldest ones if there are too many. Not the new one: an old one
        may be of a browser that is gone, which the system does not notice for hours behind a tunnel."""
        most = MOST_MEMBER_STREAMS if isinstance(session, Member) else MOST_STREAMS
        opened = _OpenStream()
        streams = self._streams.setdefault(session.key, [])
        streams.append(opened)
        for each in streams[:-most]:
            each.is_over = True
            self.deps.log.wake()
        try:
            yield opened
        finally:
            streams.remove(opened)
            if not streams:
                self._streams.pop(session.key, None)


def _is_spent(opened: _OpenStream, session: Visitor) -> bool:
    """Whether a stream has lasted as long as one does before the proxy is asked again."""
    return isinstance(session, Member) and trio.current_time() - opened.began_at >= STREAM_SECONDS


def _last_event(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"last-event-id", b"").decode("latin-1")


def _keys(pids: frozenset[int]) -> frozenset[ProcessKey]:
    return frozenset(key for pid in pids if (key := connected(pid).key) is not None)


async def _json(send: Send, data: Json, *headers: tuple[bytes, bytes]) -> None:
    await answer(send, HTTPStatus.OK, b"application/json", api.json_body(data), headers)


async def _read_json(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if its client is gone. Raises Refusal for one that is not JSON, too large or
    too slow. A form of another page cannot have this Content-Type."""
    media = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        raise _not_json()
    return (await read_body(scope, receive, most, setting=None)).data


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
