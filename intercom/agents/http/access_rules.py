"""The access rules of agents over HTTP: whether a request may pass, who it says it is, and how it is refused."""

from __future__ import annotations

import hmac
import json
import re
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl

import mcp_types as types
from attrs import field, frozen

from intercom.agents import message_stream, role_token
from intercom.model.config import Config
from intercom.model.limits import AGENT_NAME, AGENT_NAME_FORM, CHANNEL_ID, PATH
from intercom.web_server.http_request import LOOPBACK, Headers, HostRules, Refusal, unclear

#: What each part of an identity looks like, and the refusal of anything else.
_PARTS = {
    "session_id": (r"[A-Za-z0-9-]{1,64}", "session_id is not a session's id: letters, digits and dashes, 64 at most"),
    "agent": (AGENT_NAME, f"agent is not {AGENT_NAME_FORM}"),
    "channel_id": (CHANNEL_ID, "channel_id is not a Slack channel's id: it looks like C0123456789"),
    "workspace": (rf"/[^\0]{{0,{PATH - 1}}}", "workspace is not a directory's absolute path"),
}
_HEADERS = {f"x-intercom-{name.replace('_', '-')}".encode(): name for name in _PARTS}


@frozen
class Identity:
    """What one connection says of itself. `session_id` claims that session and takes precedence over `agent`, the
    stable key of an agent. An anonymous client has neither, and can only use the ids it was given. `role_token` is the
    SHA-256 of its role token, if it shows one."""

    session_id: str | None = None
    agent: str | None = None
    channel_id: str | None = None
    workspace: str | None = None
    role_token: str | None = field(default=None, repr=False)

    @property
    def is_named(self) -> bool:
        return self.session_id is not None or self.agent is not None


NOBODY = Identity()


def read_identity(query: bytes, headers: Headers) -> Identity:
    """Return the identity in a request's query string and headers. Raises Refusal if it is unusable."""
    headers = tuple(headers)
    said: dict[str, str] = {}
    for name, value in (*_query(query), *_in_headers(headers)):
        if said.setdefault(name, value) != value:
            raise unclear(
                f"{name} is given twice with different values: give it once, in the URL or in its X-Intercom header"
            )
    for name, value in said.items():
        pattern, fault = _PARTS[name]
        if re.fullmatch(pattern, value) is None:
            raise unclear(fault)
    shown = {value for name, value in headers if name == role_token.HEADER}
    if shown:
        said["role_token"] = _role_token(shown)
    return Identity(**said) if said else NOBODY


def _role_token(shown: set[bytes]) -> str:
    if len(shown) > 1:
        raise unclear("the header Intercom-Role-Token is given twice with different values: give it once")
    try:
        return role_token.hashed(shown.pop().decode("latin-1"))
    except ValueError as fault:
        raise unclear(str(fault)) from None


def _query(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        found = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise unclear("the query of the URL cannot be read: at most 50 names, percent-encoded UTF-8") from None
    return [(name, value) for name, value in found if name in _PARTS]


def _in_headers(headers: Headers) -> list[tuple[str, str]]:
    try:
        return [(_HEADERS[name], value.decode()) for name, value in headers if name in _HEADERS]
    except UnicodeDecodeError:
        raise unclear("an X-Intercom header is not UTF-8") from None


@frozen
class RpcRefusal(Refusal):
    """A refusal of a message with a JSON-RPC code of its own."""

    rpc: int = types.INVALID_REQUEST


def rpc_form(refusal: Refusal) -> bytes:
    """Return a refusal as a JSON-RPC error, which clients of MCP expect."""
    rpc = refusal.rpc if isinstance(refusal, RpcRefusal) else types.INVALID_REQUEST
    error = {"code": rpc, "message": refusal.message, "data": {"error_code": refusal.code}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


_SCHEME = b"bearer "


@frozen
class Rules:
    """The access rules. `token` is None if none is required."""

    hosts: HostRules
    token: bytes | None = field(repr=False)

    def refuse(self, headers: Headers, *, open: bool = False) -> Refusal | None:
        """Return why a request with these headers is refused; None if it is accepted. `open` pages need no token."""
        host = origin = shown = None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                # The last of several counts; this gives an attacker nothing.
                shown = value
        if not self.hosts.knows_host(host):
            return wrong_host()
        if not self.hosts.knows_origin(origin):
            return wrong_origin()
        if self.token is None or open or shows_token(shown, self.token):
            return None
        return _no_token() if shown is None else _wrong_token()


def rules(config: Config, port: int, token: str | None) -> Rules:
    """Return the rules for a server with this configuration at `port`. The configuration may lift the `token`."""
    address = config.http_host.lower()
    own = {*LOOPBACK, f"[{address}]" if ":" in address else address}
    allowed = {each.lower() for each in config.http_allowed_hosts}
    names = {each for each in allowed if ":" not in each.rpartition("]")[2]}
    origins = {f"http://{each}:{port}" for each in own} | {each.lower() for each in config.http_allowed_origins}
    hosts, known, pages = (
        frozenset(text.encode() for text in texts)
        for texts in (own | allowed | {f"{each}:{port}" for each in own}, names, origins)
    )
    is_required = token is not None and config.http_token_required
    return Rules(HostRules(hosts, known, pages), token=token.encode() if token is not None and is_required else None)


def shows_token(shown: bytes | None, token: bytes) -> bool:
    """Whether a header contains the token. The comparison takes constant time."""
    given = shown[len(_SCHEME) :].strip() if shown is not None and shown[: len(_SCHEME)].lower() == _SCHEME else b""
    return hmac.compare_digest(given, token)


# A new one each time: an exception object that is raised again collects traceback frames.
wrong_host = partial(
    Refusal,
    HTTPStatus.MISDIRECTED_REQUEST,
    "host_refused",
    "this server does not have that Host name: use the address it listens on, or add the name to"
    " http_allowed_hosts in its configuration",
)
wrong_origin = partial(
    Refusal,
    HTTPStatus.FORBIDDEN,
    "origin_refused",
    "pages of that Origin may not call this server: add it to http_allowed_origins in its configuration if it is yours",
)
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="agent-intercom"'),)
_no_token, _wrong_token = (
    partial(Refusal, HTTPStatus.UNAUTHORIZED, "unauthorized", why, _CHALLENGE)
    for why in (
        "show the token: Authorization: Bearer and the content of the file http.token in the state directory",
        "that is not this server's token: it is in the file http.token in the state directory",
    )
)


def fault_of(unread: message_stream.NotAMessage) -> types.JSONRPCError:
    """Return the error for the sender of what is not a message."""
    return unread.answer or message_stream.refuse_line(None, types.INVALID_REQUEST, "not a JSON-RPC 2.0 message")


def require_initialize(method: str, data: bytes | None) -> None:
    """Raise Refusal for a message that opens no session, so that it cannot replace another session."""
    if method == "POST" and data is not None:
        try:
            message = message_stream.read(data)
        except message_stream.NotAMessage as unread:
            fault = fault_of(unread).error
            raise RpcRefusal(HTTPStatus.BAD_REQUEST, "invalid_arguments", fault.message, rpc=fault.code) from None
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            return
    raise unclear("a request outside a session opens one with initialize: send its Mcp-Session-Id with all others")


def cancelled(data: bytes | None) -> str | int | None:
    """Return the id of the request that this message cancels, if it does."""
    if data is None or b"cancelled" not in data:
        return None
    try:
        return message_stream.cancelled(message_stream.read(data))
    except message_stream.NotAMessage:
        return None
