"""One request for the web server: its host and origin, its body, and how it is answered or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from http import HTTPStatus

import trio
from attrs import frozen
from starlette.types import Message, Receive, Scope, Send

Headers = Iterable[tuple[bytes, bytes]]


@frozen
class Refusal(Exception):
    """A refused request. `code` is one of the documented error codes."""

    status: HTTPStatus
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send, form: RefusalForm) -> None:
        """Send this as the response, of which nothing may have been sent before."""
        await answer(send, self.status, b"application/json", form(self), self.headers)


#: Returns the JSON body of a refusal: each protocol over HTTP has its own.
RefusalForm = Callable[[Refusal], bytes]


def plain_form(refusal: Refusal) -> bytes:
    return json.dumps({"error": {"code": refusal.code, "message": refusal.message}}).encode()


async def answer(
    send: Send, status: int, media_type: bytes, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a whole response."""
    told: list[tuple[bytes, bytes]] = [
        (b"content-type", media_type),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": told})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def unknown_path(path: str, known: tuple[str, ...]) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", f"nothing is at {path[:200]!r}; there are {', '.join(known)}")


def wrong_method(path: str, *allowed: str) -> Refusal:
    allow = (b"allow", ", ".join(allowed).encode())
    message = f"{path} takes {' and '.join(allowed)}"
    return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", message, (allow,))


def too_many(message: str, status: HTTPStatus = HTTPStatus.TOO_MANY_REQUESTS) -> Refusal:
    return Refusal(status, "busy", message, ((b"retry-after", b"5"),))


def unclear(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "invalid_arguments", message)


def remote_of(scope: Scope) -> str:
    """Return the address of the client's machine."""
    return scope["client"][0] if scope["client"] else ""


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@frozen
class HostRules:
    """Which Host and Origin headers are accepted. `hosts` and `origins` are the allowed values, in lower case. The
    hosts in `names` may have any port.

    A page that reaches this server under a name of its own (DNS rebinding) shows that name in Host, and a page of
    another site shows its site in Origin."""

    hosts: frozenset[bytes]
    names: frozenset[bytes]
    origins: frozenset[bytes]

    def knows_host(self, host: bytes | None) -> bool:
        if host is None:
            return False
        host = host.lower()
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(b":")
        return port.isdigit() and name in self.names

    def knows_origin(self, origin: bytes | None) -> bool:
        """Whether this Origin is allowed. A request without one does not come from another page."""
        return origin is None or origin.lower() in self.origins


#: The time limits between two parts of a request, and for all of it, in seconds.
PART_SECONDS = 20.0
WHOLE_SECONDS = 120.0


class Body:
    """A request that was read whole, as a replacement for `receive`; made with `read`. It returns the request once, and
    then waits for the client's disconnect, which sets `gone`."""

    __slots__ = ("_receive", "data", "gone")

    def __init__(self, receive: Receive, data: bytes | None) -> None:
        self._receive = receive
        self.data = data
        self.gone = data is None

    async def __call__(self) -> Message:
        if self.data is not None:
            # Not kept here: the receiver decides how long it needs the data.
            data, self.data = self.data, None
            return {"type": "http.request", "body": data, "more_body": False}
        if self.gone:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message


async def read_body(
    scope: Scope, receive: Receive, limit: int, *, setting: str | None = "http_max_request_bytes"
) -> Body:
    """Read a request. Raises Refusal if it is larger than `limit` bytes or too slow. `setting` is the setting of the
    configuration that sets the limit, if there is one."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > limit:
        raise _too_large(limit, setting)
    parts: list[bytes] = []
    taken = 0
    now = trio.current_time()
    end = now + WHOLE_SECONDS
    with trio.CancelScope() as patience:
        while True:
            patience.deadline = min(end, now + PART_SECONDS)
            message = await receive()
            if message["type"] == "http.disconnect":
                return Body(receive, None)
            part: bytes = message.get("body", b"")
            taken += len(part)
            if taken > limit:
                raise _too_large(limit, setting)
            if part:
                parts.append(part)
            if not message.get("more_body", False):
                return Body(receive, parts[0] if len(parts) == 1 else b"".join(parts))
            now = trio.current_time()
    raise Refusal(
        HTTPStatus.REQUEST_TIMEOUT,
        "request_too_slow",
        f"the request did not come within {PART_SECONDS:.0f} s a part and {WHOLE_SECONDS:.0f} s in all: send it again",
        ((b"connection", b"close"),),
    )


def _too_large(limit: int, setting: str | None) -> Refusal:
    # The web server reads on after the answer, for a sender that only then looks at it.
    more = "" if setting is None else f", or raise {setting} in the server's configuration"
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "request_too_large",
        f"the request has more than {limit} bytes: send less at once{more}",
        ((b"connection", b"close"),),
    )
