"""HTTP with one remote downstream: its headers and token, redirects within its origin, and errors without secrets.

The environment has no influence: no proxy, no netrc, no certificates from variables. Nothing is logged. A redirect is
followed only within the same origin and with the same method, so no other host gets a header.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import httpx2
import trio

from intercom._version import __version__
from intercom.gateway.breaker import NEEDS_SIGN_IN, Failure
from intercom.gateway.carrier import CarrierLost
from intercom.gateway.downstream_config import DownstreamConfig

#: How long a server may take to accept a connection, and to take a part of a request (seconds).
CONNECT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 60.0
#: The longest body that is read to keep its connection, in bytes.
UNREAD_BYTES: Final = 65_536
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

_REDIRECTS: Final = 3
#: The timeouts of httpx. A response may take as long as its caller waits.
_TIMEOUT: Final = {"connect": CONNECT_SECONDS, "write": WRITE_SECONDS, "read": None, "pool": None}
_LIMITS: Final = httpx2.Limits(
    # Each request and each stream needs a connection, and their number is limited before.
    max_connections=None,
    max_keepalive_connections=16,
    # Most servers close idle connections after 5 s, and a request that meets this is lost.
    keepalive_expiry=4.0,
)
#: Ask after a silent minute whether the host is there, and give up after three questions without an answer.
_KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
#: With these errors the request was certainly not sent.
_NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)
#: How h11 and httpcore begin the errors of a connection that ended too early.
_ENDED_EARLY: Final = ("peer closed", "Server disconnected")


class ExchangeFailed(Exception):
    """A request got no usable response. `reason` is a clause for people. `was_sent` says whether the server may have
    received the request, and carried it out."""

    def __init__(self, failure: Failure, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.failure = failure
        self.reason = reason
        self.was_sent = was_sent


class NoToken:
    """There is no token to send. `reason` is a clause for people. It begins with NEEDS_SIGN_IN if a person must act;
    otherwise a later request may succeed. `may_try` says that a request without a token may succeed: nobody has signed
    in, and the server may not ask for it."""

    __slots__ = ("may_try", "reason")

    def __init__(self, reason: str, *, may_try: bool = False) -> None:
        self.reason = reason
        self.may_try = may_try


class TokenSource(Protocol):
    """Returns the access token of a downstream, and never asks a person for it.

    `refused` is a token that the server has just refused: another one is wanted, or none. Raises nothing.
    """

    async def __call__(self, refused: str | None = None) -> str | NoToken: ...


class Exchanger:
    """Sends requests to one remote downstream, as `async with Exchanger(config, token) as exchanger`.

    The configuration is expanded; its headers go with each request, below those of the protocol. `failed_status` is the
    status of the last response that was a failure, or None. Raises CarrierLost if the address cannot be used.
    """

    def __init__(self, config: DownstreamConfig, token: TokenSource | None) -> None:
        self.url = checked_url(config.base_url)
        self.failed_status: int | None = None
        self._headers = {**config.headers}
        self._token = token
        self._cookies = httpx2.Cookies()
        self._transport = open_transport()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await self._transport.aclose()

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, url: httpx2.URL | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its response, whose body is not read; its connection is freed with the block.

        The response may have any status. Raises ExchangeFailed, also for what breaks while the block reads.
        """
        failure: ExchangeFailed | None = None
        try:
            response = await self._send(method, headers, content, url or self.url)
            try:
                yield response
            finally:
                await response.aclose()
        except (httpx2.TransportError, httpx2.StreamError, OSError) as error:
            failure = ExchangeFailed(Failure.TRANSPORT, reason_of(error), was_sent=not isinstance(error, _NOT_SENT))
        if failure is not None:
            # Raised here, because the traceback of the first error has the headers.
            raise failure

    async def _send(
        self, method: str, headers: Mapping[str, str], content: bytes | None, url: httpx2.URL
    ) -> httpx2.Response:
        token, redirects, is_second = await self._bearer(None), 0, False
        missing = token if isinstance(token, NoToken) else None
        while True:
            sent = token if isinstance(token, str) else None
            request = self._request(method, headers, content, url, sent)
            response = await self._transport.handle_async_request(request)
            response.request = request
            if response.headers.get("set-cookie") is not None:
                # Load balancers keep a session on its server by a cookie.
                self._cookies.extract_cookies(response)
            if response.status_code == 401 and missing is not None:
                await response.aclose()
                self.failed_status = 401
                raise ExchangeFailed(Failure.TRANSPORT, missing.reason, was_sent=False)
            if response.status_code == 401 and sent is not None and not is_second:
                is_second = True
                await response.aclose()
                token = await self._bearer(sent)
                continue
            location = _redirect(response, method)
            if location is None or redirects == _REDIRECTS:
                if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                    await response.aclose()
                    raise ExchangeFailed(Failure.PROTOCOL, "the server compressed its response, which was not allowed")
                return response
            redirects, url = redirects + 1, location
            await response.aclose()

    async def _bearer(self, refused: str | None) -> str | NoToken | None:
        """Return the token to send. A NoToken says why the request goes without one, and may be refused."""
        if self._token is None:
            return None
        token = await self._token(refused)
        if isinstance(token, NoToken) and (refused is not None or not token.may_try):
            if refused is not None:
                self.failed_status = 401
            raise ExchangeFailed(Failure.TRANSPORT, token.reason, was_sent=False)
        return token

    def _request(
        self, method: str, headers: Mapping[str, str], content: bytes | None, url: httpx2.URL, token: str | None
    ) -> httpx2.Request:
        try:
            merged = httpx2.Headers({"user-agent": f"agent-intercom/{__version__}", **self._headers})
            # A compressed response could be a thousand times larger than what is received of it.
            merged["accept-encoding"] = "identity"
            merged.update(headers)
            if token is not None:
                merged["authorization"] = f"Bearer {token}"
            request = httpx2.Request(method, url, headers=merged, content=content, extensions={"timeout": _TIMEOUT})
        except (ValueError, TypeError):
            reason = "a header has characters that it must not have"
            raise ExchangeFailed(Failure.PROTOCOL, reason, was_sent=False) from None
        if self._cookies.jar:
            self._cookies.set_cookie_header(request)
        return request


def open_transport() -> httpx2.AsyncHTTPTransport:
    """Return a transport that the environment does not influence, and that notices a host that is gone."""
    return httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False, limits=_LIMITS, socket_options=_KEEPALIVE)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # To load the certificates takes 20 ms, which each downstream would cost again.
    return httpx2.create_ssl_context(trust_env=False)


def checked_url(address: str | None) -> httpx2.URL:
    """Return the address of a downstream. Raises CarrierLost if it is not an address of HTTP."""
    try:
        url = httpx2.URL(address or "")
        parts = urlsplit(address or "")
        fits = url.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not url.userinfo
    except (httpx2.InvalidURL, ValueError):  # or half of an IPv6 address
        fits = False
    if not fits:
        raise CarrierLost("its address is not one of HTTP: correct baseURL")
    return url


def is_same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether both have the same scheme, host and port. httpx leaves the port of a scheme out and lowers the host."""
    return (url.scheme, url.host, url.port) == (other.scheme, other.host, other.port)


def _redirect(response: httpx2.Response, method: str) -> httpx2.URL | None:
    """Where to send the request again, or None if this is no redirect that is followed."""
    status, location = response.status_code, response.headers.get("location")
    if location is None or status not in (301, 302, 303, 307, 308) or (method == "POST" and status not in (307, 308)):
        return None
    try:
        sent = response.request.url
        url = sent.join(location)
    except (httpx2.InvalidURL, ValueError):
        return None
    is_upgrade = sent.scheme == "http" and url.scheme == "https" and sent.port is url.port is None
    if url.userinfo or not (is_same_origin(sent, url) or (is_upgrade and sent.host == url.host)):
        return None
    return url


def content_type(response: httpx2.Response) -> str:
    """The type of the body, without parameters and in lower case."""
    value: str = response.headers.get("content-type", "")
    return value.partition(";")[0].strip().lower()


async def read_body(response: httpx2.Response, longest: int) -> bytes:
    """Read the body. Raises ExchangeFailed if it is longer than this many bytes."""
    body = bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > longest:
                raise ExchangeFailed(Failure.PROTOCOL, f"the server sent more than {longest} bytes at once")
    return bytes(body)


async def skip_body(response: httpx2.Response) -> None:
    """Read a short body, so that the connection can be used again. A long one is left."""
    async with aclosing(response.aiter_raw()) as chunks:
        await skip_chunks(chunks)


async def skip_chunks(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left of a body, unless it is long."""
    length = 0
    async for chunk in chunks:
        length += len(chunk)
        if length > UNREAD_BYTES:
            return


def reason_of_status(status: int) -> str:
    """Return what a status means, as a clause for people."""
    if status == 401:
        return f"{NEEDS_SIGN_IN}: the server answered HTTP 401"
    if status == 403:
        return "the server denies access (HTTP 403): check the headers of the downstream, or sign in with more scopes"
    if status in (404, 405):
        return f'no MCP server answers at the address (HTTP {status}): correct baseURL, or write "transport": "sse"'
    if status == 429:
        return "the server limits requests (HTTP 429)"
    if 300 <= status < 400:
        return f"the server redirects to another address, which is not followed (HTTP {status}): correct baseURL"
    return f"the server answered HTTP {status}"


def reason_of(error: BaseException) -> str:
    """Return why the network failed, as a clause for people, without what the other side wrote."""
    causes = list(_causes(error))
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
        return "the server's certificate is not trusted"
    if any(isinstance(each, ssl.SSLError) for each in causes):
        return "the server does not speak TLS as expected"
    if any(isinstance(each, socket.gaierror) for each in causes):
        return "the name of its host is not known"
    if any(isinstance(each, ConnectionRefusedError) for each in causes):
        return "nothing listens at the address"
    if isinstance(error, httpx2.ConnectTimeout):
        return f"the server did not accept a connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, httpx2.ConnectError):
        return "the server could not be reached"
    if isinstance(error, httpx2.TimeoutException):
        return f"the server did not read the request within {WRITE_SECONDS:g} s"
    if isinstance(error, httpx2.LocalProtocolError):
        return "a header has characters that it must not have"
    if isinstance(error, httpx2.RemoteProtocolError) and not str(error).startswith(_ENDED_EARLY):
        return "the server sent what is not HTTP"
    return "the connection broke before the response was complete"


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    rest = [error]
    while rest and len(found) < 50:
        each = rest.pop()
        found.append(each)
        if isinstance(each, BaseExceptionGroup):
            rest.extend(each.exceptions)
        rest.extend(cause for cause in (each.__cause__, each.__context__) if cause is not None and cause not in found)
    return found
