"""A client of Slack's Web API over one HTTP connection pool. Each call is done, refused, not done, or perhaps done."""

from __future__ import annotations

import json
import logging
import platform
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import trio
from attrs import field, frozen
from slack_sdk.version import __version__ as sdk_version

from intercom._version import __version__
from intercom.operators.slack import discretion, outgoing
from intercom.operators.slack.addresses import SLACK, checked_base, may_follow, over_http
from intercom.operators.slack.answers import judge, read
from intercom.operators.slack.errors import RateLimited, SlackError, SlackRefused, Unreachable

__all__ = ["RateLimited", "SlackError", "SlackRefused", "SlackTokens", "Unreachable", "WebApi"]

log = logging.getLogger(__name__)

#: The longest answer that is read, in bytes; a page of history is the longest in practice.
MAX_ANSWER = 16 * 2**20

#: With these errors the request was certainly not sent.
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

_AGENT = f"agent-intercom/{__version__} slackclient/{sdk_version} Python/{platform.python_version()}"

_TOKEN = re.compile(r"[\x21-\x7e]*")


@frozen
class SlackTokens:
    """The app-level token (Socket Mode) and the bot token (all other calls); an empty string stands for none. `repr`
    shows neither. Raises ValueError, without the token, if one contains characters that no token has."""

    app: str = field(repr=False)
    bot: str = field(repr=False)
    team_id: str = ""

    def __attrs_post_init__(self) -> None:
        for name, token in (("app-level", self.app), ("bot", self.bot)):
            if not _TOKEN.fullmatch(token):
                raise ValueError(f"the {name} token holds spaces or characters no token has; copy it again")


class WebApi:
    """A client of Slack's Web API, used as `async with WebApi(tokens) as web` under Trio.

    `base_url` is the address of the methods: https, or http on the loopback; raises ValueError for others. `max_answer`
    limits the bytes of an answer. `proxy` is the proxy, and `ca_file` replaces the usual trusted certificates. The
    environment influences neither. `transport` replaces the network in tests.
    """

    def __init__(
        self,
        tokens: SlackTokens,
        *,
        base_url: str = SLACK,
        max_answer: int = MAX_ANSWER,
        transport: httpx2.AsyncBaseTransport | None = None,
        proxy: str | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self.base_url = checked_base(base_url)
        #: The headers of the last answer to `call`, with the token's scopes and Slack's time.
        self.heard: Mapping[str, str] = {}
        self._tokens = tokens
        self._max_answer = max_answer
        self._transport = transport
        self._proxy = proxy
        self._ca_file = ca_file
        self._is_open = False
        self._client: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<WebApi {self.base_url}>"

    async def __aenter__(self) -> Self:
        discretion.keep_addresses_out_of_logs()
        self._is_open = True
        try:
            self._open_client()
        except Unreachable as fault:
            # Each call raises the same error; the server must start even without Slack.
            log.warning("%s", fault)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._is_open = False
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def call(self, method: str, *, app: bool = False, timeout: float = 10.0, **params: Any) -> dict[str, Any]:
        """Call a method (`chat.postMessage`) and return its answer, which says `"ok": True`.

        With `app` the app-level token is sent, otherwise the bot's. `timeout` limits the whole call, in seconds.
        `params` that are None are omitted. Lists and objects (blocks, metadata, view) are sent as JSON within the form,
        which every method accepts.

        Raises SlackRefused or RateLimited if nothing was done, and Unreachable, whose `maybe_done` says whether it may
        have been.
        """
        token = self._tokens.app if app else self._tokens.bot
        if not token:
            raise SlackRefused(method, "not_authed")
        params = await outgoing.masked(params)
        request = self._open_client().build_request(
            "POST", self.base_url + method, data=_form(params), headers={"Authorization": f"Bearer {token}"}
        )
        response, body = await self._send(method, request, timeout)
        self.heard = response.headers
        data = read(body)
        judge(method, response, data)
        if data is None or data.get("ok") is not True:
            # A proxy or a captive portal answered, or the answer was cut off.
            raise Unreachable(f"no answer of slack's to {method} (HTTP {response.status_code})", maybe_done=True)
        return data

    async def upload(self, url: str, data: bytes, filename: str, *, timeout: float = 60.0) -> None:
        """Send a file's bytes to the address from `files.getUploadURLExternal`. A repetition does no harm. `filename`
        is for errors only, because Slack has the name already. Raises as `call` does."""
        what = f"the upload of {filename}"
        text = await outgoing.masked(data.decode(errors="surrogateescape"))
        data = text.encode(errors="surrogateescape")
        request = self._request(what, url, content=data, headers={"Content-Type": "application/octet-stream"})
        response, body = await self._send(what, request, timeout)
        judge(what, response, read(body))
        if response.status_code != 200:
            raise Unreachable(f"{what} failed (HTTP {response.status_code})", maybe_done=True)

    async def respond(self, response_url: str, body: dict[str, Any], *, timeout: float = 10.0) -> None:
        """Post to a `response_url`, which Slack gives with a command or a button action (5 times within 30 minutes).
        Raises as `call` does; SlackRefused once the address is used up."""
        what = "the response_url"
        request = self._request(what, response_url, json=await outgoing.masked(body))
        response, answer = await self._send(what, request, timeout)
        data = read(answer)
        judge(what, response, data)
        if response.status_code != 200:
            raise SlackRefused(what, (data or {}).get("error") or f"http_{response.status_code}")

    @asynccontextmanager
    async def upgraded(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        """Yield the answer to a WebSocket handshake at a ws or wss address; its connection is closed at the end. Raises
        Unreachable if there is none or the address may not be used. The caller sets the time limit."""
        if not may_follow(url, self.base_url):
            raise Unreachable("the socket's address is neither wss nor on the loopback", maybe_done=False)
        client = self._open_client()
        failure: Exception | None = None
        try:
            request = client.build_request("GET", over_http(url), headers=headers, timeout=None)
            response = await client.send(request, stream=True)
        except (httpx2.TransportError, httpx2.InvalidURL, OSError) as exc:
            failure = exc
        except RuntimeError as exc:
            if not client.is_closed:
                raise
            failure = exc
        if failure is not None:
            raise Unreachable(f"the socket could not be opened: {_told(failure)}", maybe_done=False)
        try:
            yield response
        finally:
            await response.aclose()

    def _open_client(self) -> httpx2.AsyncClient:
        """Return the client; create it if there is none.

        Raises Unreachable if it cannot be created, because the configured certificates or proxy are unusable, or
        because the actor that holds it open has crashed. Both may be corrected at run time, so each call tries again.
        """
        if not self._is_open:
            raise Unreachable("the connection to slack is closed just now", maybe_done=False)
        if self._client is None:
            failure: Exception | None = None
            try:
                verify = True if self._ca_file is None else ssl.create_default_context(cafile=self._ca_file)
                self._client = httpx2.AsyncClient(
                    # The environment could redirect the tokens to another host.
                    trust_env=False,
                    proxy=self._proxy,
                    verify=verify,
                    headers={"User-Agent": _AGENT},
                    # Slack closes idle connections itself; a client that closes earlier only pays for more handshakes.
                    limits=httpx2.Limits(max_connections=32, max_keepalive_connections=8, keepalive_expiry=120.0),
                    transport=self._transport,
                )
            except Exception as fault:
                failure = fault
            if self._client is None:
                why = f"the certificates or the proxy of the configuration can not be used: {_told(failure)}"
                raise Unreachable(why, maybe_done=False)
        return self._client

    def _request(self, what: str, url: str, **how: Any) -> httpx2.Request:
        client = self._open_client()
        try:
            if may_follow(url, self.base_url):
                return client.build_request("POST", url, **how)
        except httpx2.InvalidURL:
            pass
        raise Unreachable(f"the address for {what} is neither https nor on the loopback", maybe_done=False)

    async def _send(self, what: str, request: httpx2.Request, timeout: float) -> tuple[httpx2.Response, bytes]:
        client = self._open_client()
        journey = _Journey()
        request.extensions = {"timeout": httpx2.Timeout(timeout).as_dict(), "trace": journey.went}
        failure: Exception | None = None
        # Raised below, outside the handler: a traceback would reference the request, and so the token.
        try:
            with trio.fail_after(timeout):
                response = await client.send(request, stream=True)
                try:
                    return response, await self._body(what, response)
                finally:
                    await response.aclose()
        except (httpx2.TransportError, httpx2.DecodingError, OSError, trio.TooSlowError) as exc:
            failure = exc
        except RuntimeError as exc:
            # The client was closed during the request; nothing else signals it.
            if not client.is_closed:
                raise
            failure = exc
        maybe_done = not isinstance(failure, _NOT_SENT) and (journey.sending or not journey.known)
        if isinstance(failure, trio.TooSlowError | httpx2.TimeoutException):
            why = f"slack did not answer {what} within {timeout:g} s"
        else:
            why = f"slack could not be reached for {what}: {_told(failure)}"
        raise Unreachable(why, maybe_done=maybe_done, unanswered=True)

    async def _body(self, what: str, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._max_answer:
                raise Unreachable(f"slack's answer to {what} is longer than {self._max_answer} bytes", maybe_done=True)
        return bytes(body)


class _Journey:
    """How far a request got. `known` is False if the transport does not report it."""

    def __init__(self) -> None:
        self.known = False
        self.sending = False

    async def went(self, event: str, _info: Mapping[str, Any]) -> None:
        self.known = True
        if event.endswith("send_request_headers.started"):
            self.sending = True


def _form(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: _field(value) for name, value in params.items() if value is not None}


def _field(value: Any) -> str:
    if isinstance(value, str):
        # Text of a file or a person may contain half a surrogate pair, which no form can carry.
        return value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, separators=(",", ":"))


def _told(failure: Exception | None) -> str:
    """Return the text of a network error, on one line."""
    return " ".join(str(failure).split()) or type(failure).__name__
