"""Slack's Web API over one kept-alive HTTP client: each call is done, refused, surely not done, or may have been."""

from __future__ import annotations

import ipaddress
import json
import logging
import platform
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx2
import trio
from attrs import field, frozen
from slack_sdk.version import __version__ as sdk_version

from intercom._version import __version__
from intercom.masking import Masker

#: An object of Slack's JSON.
Json = dict[str, Any]


class SlackApiError(Exception):
    """Slack did not do what was requested."""


class SlackRefused(SlackApiError):
    """Slack refused the request. `error` is Slack's code (`channel_not_found`), `data` the whole answer."""

    def __init__(self, method: str, error: str, data: Json | None = None) -> None:
        super().__init__(f"slack refused {method}: {error}")
        self.method = method
        self.error = error
        self.data = data or {}


class RateLimited(SlackApiError):
    """Slack did nothing because of too many requests; repeat in `retry_after` seconds."""

    def __init__(self, method: str, retry_after: float) -> None:
        super().__init__(f"slack limits {method}: ask again in {retry_after:g} s")
        self.method = method
        self.retry_after = retry_after


class Unreachable(SlackApiError):
    """No answer says whether the request was carried out. `maybe_done` is False if it certainly was not. `unanswered`
    means that no whole answer came, in time or before the connection broke, so it may still be carried out."""

    def __init__(self, why: str, *, maybe_done: bool, unanswered: bool = False) -> None:
        super().__init__(why)
        self.maybe_done = maybe_done
        self.unanswered = unanswered and maybe_done


class SocketLost(SlackApiError):
    """A Socket Mode socket can no longer be used."""


#: Seconds until a limited call may be repeated if Slack does not say.
_RETRY_AFTER = 1.0
_LONGEST_RETRY_AFTER = 3600.0

#: Slack's errors for a fault of its own: part of the request may have been done.
_BROKEN = frozenset({"fatal_error", "internal_error", "service_unavailable"})
_LIMITED = frozenset({"ratelimited", "rate_limited"})


def read(body: str | bytes) -> Json | None:
    """Parse the body as an object; None if it is no JSON object."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def judge(what: str, response: httpx2.Response, data: Json | None) -> None:
    """Raise an error if Slack did not carry out the call, or if that is unknown. Raises RateLimited, Unreachable or
    SlackRefused."""
    error = None if data is None or data.get("ok") is not False else str(data.get("error") or "unknown_error")
    if response.status_code == 429 or error in _LIMITED:
        raise RateLimited(what, _retry_after(response.headers.get("Retry-After")))
    if response.status_code >= 500 or response.status_code == 408 or error in _BROKEN:
        why = error or f"HTTP {response.status_code}"
        raise Unreachable(f"slack could not finish {what}: {why}", maybe_done=True)
    if error is not None:
        raise SlackRefused(what, error, data)
    if 300 <= response.status_code < 500:
        raise Unreachable(f"something else than slack answered {what} (HTTP {response.status_code})", maybe_done=False)


def _retry_after(given: str | None) -> float:
    text = (given or "").strip()
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return _RETRY_AFTER
    return min(float(text), _LONGEST_RETRY_AFTER)


SLACK = "https://slack.com/api/"

#: The environment variable with another address of the Web API: a local fake, or GovSlack.
VARIABLE = "INTERCOM_SLACK_API"

_SOCKETS = {"ws": "http", "wss": "https"}


def api_base(environ: Mapping[str, str]) -> str:
    """Return the base address of the Web API, with a trailing slash. Raises ValueError if the environment names an
    address that must not receive tokens."""
    given = environ.get(VARIABLE, "").strip()
    return checked_base(given) if given else SLACK


def checked_base(url: str) -> str:
    """Return the address as a base for methods. Raises ValueError unless it is https, or http on the loopback."""
    parts = _parts(url)
    if parts is None or parts.query or parts.fragment:
        raise ValueError("the address of Slack's API is not a plain URL; give one like https://slack.com/api/")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError(f"tokens are sent to {parts.hostname} over https only; plain http is for 127.0.0.1")
    return url.rstrip("/") + "/"


def may_follow(url: str, base: str) -> bool:
    """Return whether an address from Slack may be used: encrypted, or on the loopback if the API is there too."""
    parts = _parts(url)
    if parts is None or parts.scheme in ("https", "wss"):
        return parts is not None
    is_plain = urlsplit(base).scheme == "http"
    return parts.scheme in ("http", "ws") and is_plain and is_loopback(parts.hostname or "")


def _parts(url: str) -> SplitResult | None:
    """Return the parts of an address with a host and without a user; None if it is none."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname is not None and parts.username is None else None
    except ValueError:
        return None


def over_http(url: str) -> str:
    """Return the http(s) address that a ws(s) address is upgraded from; proxies are chosen by it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=_SOCKETS.get(parts.scheme, parts.scheme)))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its literal address or the name localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


class Api(Protocol):
    """The part of `WebApi` that the channel's actors use, so that tests can stand in for Slack."""

    async def call(self, method: str, *, timeout: float = ..., **params: Any) -> Json: ...

    async def upload(self, url: str, data: bytes, filename: str, /) -> None: ...

    async def respond(self, response_url: str, body: Json, /) -> None: ...


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
        keep_addresses_out_of_logs()
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

    async def call(self, method: str, *, app: bool = False, timeout: float = 10.0, **params: Any) -> Json:
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
        params = await masked(params)
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
        text = await masked(data.decode(errors="surrogateescape"))
        data = text.encode(errors="surrogateescape")
        request = self._request(what, url, content=data, headers={"Content-Type": "application/octet-stream"})
        response, body = await self._send(what, request, timeout)
        judge(what, response, read(body))
        if response.status_code != 200:
            raise Unreachable(f"{what} failed (HTTP {response.status_code})", maybe_done=True)

    async def respond(self, response_url: str, body: Json, *, timeout: float = 10.0) -> None:
        """Post to a `response_url`, which Slack gives with a command or a button action (5 times within 30 minutes).
        Raises as `call` does; SlackRefused once the address is used up."""
        what = "the response_url"
        request = self._request(what, response_url, json=await masked(body))
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
                why = f"the certificates or the proxy of the configuration cannot be used: {_told(failure)}"
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


# --- masking ----------------------------------------------------------------------------------------------------------


def keep_addresses_out_of_logs() -> None:
    """Make the HTTP library log hosts and method names only, no other paths and no queries. Repeated calls have no
    effect."""
    logger = logging.getLogger("httpx2")
    if _discreet not in logger.filters:
        logger.addFilter(_discreet)


def _discreet(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_place(arg) if _is_address(arg) else arg for arg in record.args)
    return True


def _is_address(arg: object) -> bool:
    return type(arg).__name__ == "URL" or (isinstance(arg, str) and "://" in arg)


def _place(address: object) -> str:
    parts = urlsplit(str(address))
    method = parts.path if parts.path.startswith("/api/") and not parts.query else "/…"
    return f"{parts.scheme}://{parts.hostname}{method}"


#: Fields with ids and addresses, which must arrive unchanged. No agent writes them.
LITERAL = frozenset(
    """action_id block_id callback_id channel channel_id client_id cursor envelope_id event_type external_id file hash
    id latest length limit oldest private_metadata response_action snippet_type thread_ts timestamp trigger_id ts type
    user users value version view_id
    """.split()  # noqa: SIM905
)

#: Texts up to this many characters are masked on the event loop; longer ones in a thread.
_ON_LOOP = 16_384


async def masked(value: Any) -> Any:
    """Return a JSON value or text with every secret in it masked."""
    if len(str(value)) > _ON_LOOP:
        return await trio.to_thread.run_sync(Masker().mask_all, value, LITERAL)
    return Masker().mask_all(value, LITERAL)


# --- what a refusal requires ------------------------------------------------------------------------------------------


class Remedy(Enum):
    """What a refusal requires.

    MEND: a person has to change something; until then nothing works in the channel. REDRAW: Slack rejects this content.
    RETHREAD: the thread does not exist. GONE: the message does not exist, or is not ours. LATER: unknown; it may pass.
    """

    MEND = "mend"
    REDRAW = "redraw"
    RETHREAD = "rethread"
    GONE = "gone"
    LATER = "later"


_SECRET_TOKEN = "run `agent-intercom slack login` again"
_APP = "install the app from `agent-intercom slack manifest` again, then log in again"
_POLICY = "ask an admin of the workspace to let the app post there"

#: Advice for each error that a person can fix.
ADVICE: dict[str, str] = {
    "access_denied": _POLICY,
    "account_inactive": _SECRET_TOKEN,
    "channel_not_found": "check the channel id in the config, and invite the app to the channel",
    "ekm_access_denied": _POLICY,
    "enterprise_is_restricted": _POLICY,
    "invalid_auth": _SECRET_TOKEN,
    "is_archived": "unarchive the channel, or choose another",
    "messages_tab_disabled": "choose a channel instead of the app's own messages",
    "missing_scope": _APP,
    "no_permission": _APP,
    "not_allowed_token_type": _APP,
    "not_authed": _SECRET_TOKEN,
    "not_in_channel": "invite the app to the channel",
    "org_login_required": _POLICY,
    "posting_to_channel_denied": _POLICY,
    "restricted_action": _POLICY,
    "restricted_action_non_threadable_channel": "choose a channel that has threads",
    "restricted_action_read_only_channel": _POLICY,
    "restricted_action_thread_locked": "unlock the thread",
    "restricted_action_thread_only_channel": "choose a channel where messages are allowed outside threads",
    "storage_limit_reached": "free storage in the Slack workspace",
    "team_access_not_granted": _POLICY,
    "team_not_found": _SECRET_TOKEN,
    "token_expired": _SECRET_TOKEN,
    "token_revoked": _SECRET_TOKEN,
    "two_factor_setup_required": _POLICY,
}

_OF_THE_CONTENT = frozenset(
    {
        "attachment_payload_limit_exceeded",
        "block_mismatch",
        "blocked_file_type",
        "file_uploads_disabled",
        "invalid_arg_name",
        "invalid_arguments",
        "invalid_array_arg",
        "invalid_attachments",
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_charset",
        "invalid_form_data",
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "malware_detected",
        "markdown_text_conflict",
        "message_too_long",
        "metadata_too_large",
        "missing_argument",
        "msg_blocks_too_long",
        "msg_too_long",
        "no_text",
        "snippet_too_large",
        "too_many_attachments",
        "unknown_snippet_type",
    }
)

_OF_THE_THREAD = frozenset(
    {"cannot_reply_to_message", "invalid_thread_ts", "invalid_ts", "message_not_found", "thread_not_found"}
)

_OF_THE_MESSAGE = frozenset({"cant_update_message", "edit_window_closed", "invalid_ts", "message_not_found"})


def remedy(error: str, *, updating: bool) -> Remedy:
    """Return the remedy if Slack answers a post, or an update, with `error`."""
    if error == "restricted_action_thread_locked":
        # Other threads of the channel take messages.
        return Remedy.LATER
    if error in ADVICE:
        return Remedy.MEND
    if error in _OF_THE_CONTENT:
        return Remedy.REDRAW
    if updating and error in _OF_THE_MESSAGE:
        return Remedy.GONE
    if not updating and error in _OF_THE_THREAD:
        return Remedy.RETHREAD
    return Remedy.LATER


def sentence(error: str, channel: str) -> str:
    """Return the problem in `channel` and its remedy, for people."""
    advice = ADVICE.get(error, "it is tried again every minute")
    return f"slack accepts nothing in channel {channel} ({error}); {advice}"
