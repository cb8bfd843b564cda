"""Slack's Web API over one kept-alive HTTP client: each call is done, refused, surely not done, or may have been."""

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

#: The longest answer that is read, in bytes. A page of history is the longest there is.
MAX_ANSWER = 16 * 2**20

#: With these the request surely never left.
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
    """The app-level token (Socket Mode) and the bot's (all else); `repr` shows neither. Empty means there is none.

    Raises ValueError, without the token, if one holds what no token holds.
    """

    app: str = field(repr=False)
    bot: str = field(repr=False)
    team_id: str = ""

    def __attrs_post_init__(self) -> None:
        for name, token in (("app-level", self.app), ("bot", self.bot)):
            if not _TOKEN.fullmatch(token):
                raise ValueError(f"the {name} token holds spaces or characters no token has; copy it again")


class WebApi:
    """One client of Slack's Web API, to be used as `async with WebApi(tokens) as web`, inside Trio.

    `base_url` is where the methods are: https, or http on the loopback; raises ValueError for others. `max_answer` is
    the most bytes read of an answer. `proxy` is how Slack is reached, and `ca_file` whose certificates are trusted in
    place of the usual ones; of both the environment says nothing. `transport` takes the place of the network in tests.
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
        #: What stood at the head of the last answer to `call`: the token's scopes, and Slack's time.
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
            # Whoever calls is told the same; a server that Slack is only a part of starts all the same.
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

        With `app` the app-level token is sent, else the bot's. `timeout` is for the whole call, in seconds. `params`
        that are None are left out; lists and objects (blocks, metadata, view) go as JSON within the form, which every
        method takes.

        Raises SlackRefused (Slack said no; nothing was done), RateLimited (nothing was done), Unreachable (`maybe_done`
        tells whether it may have been).
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
            # A proxy or a captive portal answered, or the answer was cut.
            raise Unreachable(f"no answer of slack's to {method} (HTTP {response.status_code})", maybe_done=True)
        return data

    async def upload(self, url: str, data: bytes, filename: str, *, timeout: float = 60.0) -> None:
        """Send a file's bytes to the address `files.getUploadURLExternal` gave. Uploading again does no harm.

        `filename` is for errors only: Slack knows the name already. Raises as `call` does.
        """
        what = f"the upload of {filename}"
        text = await outgoing.masked(data.decode(errors="surrogateescape"))
        data = text.encode(errors="surrogateescape")
        request = self._request(what, url, content=data, headers={"Content-Type": "application/octet-stream"})
        response, body = await self._send(what, request, timeout)
        judge(what, response, read(body))
        if response.status_code != 200:
            raise Unreachable(f"{what} failed (HTTP {response.status_code})", maybe_done=True)

    async def respond(self, response_url: str, body: dict[str, Any], *, timeout: float = 10.0) -> None:
        """Post to a `response_url`, which Slack gives with a command or a tap (5 times within 30 minutes).

        Raises as `call` does; SlackRefused once the address is used up.
        """
        what = "the response_url"
        request = self._request(what, response_url, json=await outgoing.masked(body))
        response, answer = await self._send(what, request, timeout)
        data = read(answer)
        judge(what, response, data)
        if response.status_code != 200:
            raise SlackRefused(what, (data or {}).get("error") or f"http_{response.status_code}")

    @asynccontextmanager
    async def upgraded(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        """The answer to a WebSocket handshake at a ws or wss address; its connection is closed at the end.

        Raises Unreachable if there is none or the address may not be used. Nothing times out here but by the caller.
        """
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
        """The client, made if there is none yet. Raises Unreachable when it can not be made: the certificates or the
        proxy of the configuration are at fault, and may be put right while we run; or whoever holds it open falls, and
        opens it again."""
        if not self._is_open:
            raise Unreachable("the connection to slack is closed just now", maybe_done=False)
        if self._client is None:
            failure: Exception | None = None
            try:
                verify = True if self._ca_file is None else ssl.create_default_context(cafile=self._ca_file)
                self._client = httpx2.AsyncClient(
                    # Whoever writes the environment must not be sent the tokens.
                    trust_env=False,
                    proxy=self._proxy,
                    verify=verify,
                    headers={"User-Agent": _AGENT},
                    # Slack cuts idle connections by itself; a client that gives up first only pays for handshakes.
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
        # Raised below and not here: a traceback would lead to the request, and so to the token.
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
            # Closed on the way; it says so in no other way.
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
    """How far a request came. `known` is False where the transport does not say."""

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
        # What came from a file or a person may hold half a character, which no form can carry.
        return value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, separators=(",", ":"))


def _told(failure: Exception | None) -> str:
    """What an error of the network says, on one line."""
    return " ".join(str(failure).split()) or type(failure).__name__
