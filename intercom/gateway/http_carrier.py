"""Carriers of MCP over HTTP: streamable HTTP in each protocol version, and the older HTTP with SSE.

`open_http` opens the one that the configuration names. Each request is a POST in a task of its own, so one failed POST
fails one request. A session that the server has forgotten ends the carrier.

- Streamable HTTP connects with its first message. Below 2026-07-28 it keeps the session of `initialize`, reads a GET
  stream after the handshake, continues a broken stream by `Last-Event-ID`, and ends the session when it closes. At
  2026-07-28 it mirrors method, name and marked arguments into headers, and closing a POST cancels its request.
- HTTP with SSE reads all messages from one stream, and ends with it.

`http_exchange` has the HTTP below. No reason contains an address, a token or what a server wrote.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

import httpx2
import trio
from attrs import define, field
from mcp_types.jsonrpc import METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from intercom.gateway.breaker import Failure
from intercom.gateway.carrier import (
    LONGEST_MESSAGE,
    CarrierDetail,
    CarrierLost,
    Incoming,
    Received,
    RequestFailed,
)
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.event_stream import EventReader, EventTooLong
from intercom.gateway.http_exchange import (
    EVENTS,
    JSON,
    ExchangeFailed,
    Exchanger,
    TokenSource,
    content_type,
    is_same_origin,
    read_body,
    reason_of_status,
    skip_body,
    skip_chunks,
)
from intercom.gateway.http_messages import Answer, encoded, judge, mirrored_headers, note_marked, version_in
from intercom.model.json_types import JsonObject

log = logging.getLogger("intercom.gateway.http")

#: How long a notification or an answer may take to be accepted (seconds).
NOTICE_SECONDS: Final = 30.0
#: How long a POST may go on after its answer, or after its request was cancelled (seconds).
GRACE_SECONDS: Final = 2.0
#: How long the end of a session may take when the carrier closes (seconds).
GOODBYE_SECONDS: Final = 1.0
#: The time between two streams, and until a lost stream is continued (seconds).
_SHORTEST_PAUSE: Final = 0.05
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: How often a stream is continued without a new event before its request fails.
_RESUMPTIONS: Final = 3
#: How many notifications and answers may be under way at once.
_NOTICES: Final = 32
#: The longest body of an error (bytes).
_ERROR_BYTES: Final = 1_048_576
_SESSION: Final = "mcp-session-id"
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_INITIALIZE: Final = "initialize"
_INITIALIZED: Final = "notifications/initialized"
_FORGOTTEN: Final = "the server has forgotten the session"
#: A server that answers so has not carried the request out.
_REFUSED_BEFORE: Final = frozenset({401, 404, 405, 406, 411, 413, 415, 421, 426, 429, 431})


@asynccontextmanager
async def open_http(
    config: DownstreamConfig, token: TokenSource | None = None, *, longest: int = LONGEST_MESSAGE
) -> AsyncIterator[HttpCarrier]:
    """Open the carrier of a remote downstream, whose configuration is expanded. `longest` is the most bytes of a
    message. All connections and tasks end with the block.

    Raises CarrierLost if the address cannot be used, or if HTTP with SSE gets no stream. The caller limits the time.
    """
    failure: Exception | None = None
    async with Exchanger(config, token) as exchanger:
        make = SseCarrier if config.transport is Transport.SSE else StreamableCarrier
        carrier = make(exchanger, longest)
        async with trio.open_nursery() as nursery:
            # The nursery would wrap what the block raises, and its callers catch it by type.
            try:
                await nursery.start(carrier.run)
                await carrier.ready()
                yield carrier
            except Exception as error:
                failure = error
            finally:
                with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                    await carrier.goodbye()
                nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


class _SessionLost(Exception):
    """The server does not know the session any more."""


@define(eq=False)
class _Post:
    """The POST of a request. `is_modern` says whether closing it cancels the request, `has_begun` whether it may have
    been sent."""

    id: int
    method: str
    is_modern: bool
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    has_begun: bool = False
    #: Whether the answer is only a guess. Then its failure is delivered after it, in case it was none.
    is_guessed: bool = False


class HttpCarrier:
    """What both carriers have in common. Tasks below `run` send and read; `receive` takes from them one message at a
    time, so a message waits in the task of its stream, and the server waits for its reader."""

    def __init__(self, exchanger: Exchanger, longest: int) -> None:
        self._exchanger = exchanger
        self._longest = longest
        self._outgoing, self._incoming = trio.open_memory_channel[Incoming](0)
        self._posts: dict[int, _Post] = {}
        self._notices = trio.Semaphore(_NOTICES)
        self._lost = trio.Event()
        self._reason = "the connection was closed"
        self._tasks: trio.Nursery | None = None

    # --- for the connection

    async def send(self, message: JsonObject) -> None:
        """See Carrier. Returns for `notifications/initialized` when the server has accepted it, because no request may
        overtake it. At most 32 notifications and answers are under way; more have to wait."""
        content = encoded(message)
        self._require_tasks()
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str) and isinstance(id, int):
            post = self._posts[id] = _Post(id, method, version_in(message) in MODERN_PROTOCOL_VERSIONS)
            self._start(self._request, post, message, content)
        elif method == _INITIALIZED:
            await self._finish_handshake(message, content)
        else:
            await self._notices.acquire()
            try:
                self._start(self._notice_in_task, message, content)
            except CarrierLost:
                self._notices.release()
                raise

    async def receive(self) -> Incoming:
        """See Carrier."""
        try:
            return await self._incoming.receive()
        except trio.EndOfChannel:
            raise CarrierLost(self._reason) from None

    def cancel(self, id: int) -> bool:
        """See Carrier. Where closing the POST does not cancel, it stays open a moment, so that the notification
        arrives first."""
        post = self._posts.get(id)
        if post is None:
            return False
        if post.is_modern or not post.has_begun:
            post.scope.cancel()
            return True
        post.scope.deadline = trio.current_time() + GRACE_SECONDS
        return False

    def negotiated(self, version: str) -> None:
        """See Carrier."""

    def detail(self) -> CarrierDetail:
        """See Carrier."""
        return CarrierDetail(http_status=self._exchanger.failed_status)

    # --- for open_http

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the carrier's tasks until it is lost or cancelled. Never raises an Exception."""
        with self._outgoing:
            try:
                async with trio.open_nursery() as tasks:
                    self._tasks = tasks
                    task_status.started()
                    await self._lost.wait()
                    tasks.cancel_scope.cancel()
            finally:
                self._tasks = None

    async def ready(self) -> None:
        """Wait until messages can be sent. Raises CarrierLost."""

    async def goodbye(self) -> None:
        """Tell the server that the carrier closes, if it wants to know. Never raises an Exception."""

    # --- tasks

    def _require_tasks(self) -> trio.Nursery:
        if self._tasks is None or self._lost.is_set():
            raise CarrierLost(self._reason)
        return self._tasks

    def _start(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        self._require_tasks().start_soon(self._guarded, work, *args)

    async def _guarded(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run one task. What it raises ends this carrier, and nothing else."""
        try:
            await work(*args)
        except _SessionLost:
            self._lose(_FORGOTTEN)
        except CarrierLost as lost:
            self._lose(lost.reason)
        except Exception as error:
            # Its text may have what a server wrote.
            log.error("a task of an HTTP carrier failed: %s", type(error).__name__)
            self._lose("the gateway failed to handle what the server sent")

    def _lose(self, reason: str) -> None:
        if not self._lost.is_set():
            self._reason = reason
            self._lost.set()

    async def _request(self, post: _Post, message: JsonObject, content: bytes) -> None:
        """Send a request, and deliver its answer or its failure. After `cancel` nothing is delivered."""
        try:
            with post.scope:
                # Cancelled already, it is not sent.
                await trio.lowlevel.checkpoint()
                post.has_begun = True
                failed = None
                try:
                    await self._post(post, message, content)
                except ExchangeFailed as error:
                    failed = RequestFailed(post.id, error.failure, error.reason, error.was_sent)
                except (_SessionLost, CarrierLost):
                    raise
                except Exception as error:
                    log.error("a POST of an HTTP carrier failed: %s", type(error).__name__)
                    reason = "the gateway failed to handle the response"
                    failed = RequestFailed(post.id, Failure.PROTOCOL, reason)
                if failed is not None:
                    await self._outgoing.send(failed)
        finally:
            if self._posts.get(post.id) is post:
                del self._posts[post.id]

    async def _notice_in_task(self, message: JsonObject, content: bytes) -> None:
        try:
            await self._notice(message, content)
        except ExchangeFailed as error:
            # Nobody waits for it. The next request shows a lasting fault.
            log.info("a notification or an answer did not arrive: %s", error.reason)
        finally:
            self._notices.release()

    async def _notice(self, message: JsonObject, content: bytes) -> None:
        """Send a message that has no answer. Raises ExchangeFailed, also after 30 seconds."""
        with trio.move_on_after(NOTICE_SECONDS):
            await self._post_notice(message, content)
            return
        raise ExchangeFailed(Failure.TRANSPORT, f"the server did not accept it within {NOTICE_SECONDS:g} s")

    async def _finish_handshake(self, message: JsonObject, content: bytes) -> None:
        try:
            await self._notice(message, content)
        except ExchangeFailed as error:
            self._lose(f"the end of the handshake was not accepted: {error.reason}")
        except _SessionLost:
            self._lose(_FORGOTTEN)
        self._require_tasks()

    async def _post(self, post: _Post, message: JsonObject, content: bytes) -> None:
        """POST a request. Raises ExchangeFailed, and _SessionLost after it has delivered the failure."""
        raise NotImplementedError

    async def _post_notice(self, message: JsonObject, content: bytes) -> None:
        """POST another message. Raises ExchangeFailed and _SessionLost."""
        raise NotImplementedError

    # --- responses

    async def _read_events(self, response: httpx2.Response, reader: EventReader, post: _Post | None) -> bool:
        """Deliver the messages of a stream, until it ends or has the answer to the POST. Returns whether it has that.
        Raises ExchangeFailed."""
        reader.restart()
        try:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    for event in reader.feed(chunk):
                        if await self._take_event(event.name, event.data, post):
                            # Read to the end, so that the connection can be used again.
                            with trio.move_on_after(GRACE_SECONDS):
                                await skip_chunks(chunks)
                            return True
        except EventTooLong:
            raise ExchangeFailed(Failure.PROTOCOL, f"the server sent more than {self._longest} bytes at once") from None
        return False

    async def _take_event(self, name: bytes, data: bytes, post: _Post | None) -> bool:
        """Deliver an event. Returns whether it is the answer to the POST."""
        if name != b"message":
            return False
        if post is None:
            await self._outgoing.send(data)
            return False
        return await self._deliver(data, post)

    async def _deliver(self, data: bytes, post: _Post) -> bool:
        """Deliver a message that came with this POST. Returns whether it is the answer."""
        data, answer = judge(data, post.id)
        if answer is Answer.NO:
            await self._outgoing.send(Received(data, post.id))
            return False
        post.is_guessed = answer is Answer.GUESSED
        self._note_answer(post, data)
        await self._outgoing.send(Received(data, post.id))
        return True

    def _note_answer(self, post: _Post, data: bytes) -> None:
        """Learn from an answer what later requests need."""

    async def _raise_for_status(self, response: httpx2.Response, post: _Post | None, *, session: bool) -> None:
        """Handle a response that is no success: deliver a JSON-RPC error as the answer to the POST, or raise.

        `session` says whether the request named a session. Raises ExchangeFailed or _SessionLost.
        """
        status = self._exchanger.failed_status = response.status_code
        error = await _error_in(response) if content_type(response) == JSON else None
        if session and _is_session_lost(status, error):
            if post is not None:
                await self._outgoing.send(RequestFailed(post.id, Failure.TRANSPORT, _FORGOTTEN, was_sent=False))
            raise _SessionLost
        if error is None or post is None or status in (401, 403) or response.is_redirect:
            was_sent = status not in _REFUSED_BEFORE and not response.is_redirect
            raise ExchangeFailed(Failure.TRANSPORT, reason_of_status(status), was_sent=was_sent)
        answer = encoded({"jsonrpc": "2.0", "id": post.id, "error": error})
        await self._outgoing.send(Received(answer, post.id))


class StreamableCarrier(HttpCarrier):
    """The carrier for streamable HTTP."""

    def __init__(self, exchanger: Exchanger, longest: int) -> None:
        super().__init__(exchanger, longest)
        self._session: str | None = None
        self._version: str | None = None
        #: The arguments of tools that are mirrored into headers: a header's name by the path of its argument.
        self._marked: dict[str, dict[tuple[str, ...], str]] = {}

    def cancel(self, id: int) -> bool:
        """See Carrier."""
        # Without a POST there is nothing to withdraw, and this version has no notification for it.
        return super().cancel(id) or (id not in self._posts and self._version in MODERN_PROTOCOL_VERSIONS)

    def negotiated(self, version: str) -> None:
        """See Carrier."""
        self._version = version

    async def goodbye(self) -> None:
        """End the session."""
        if self._session is None or self._lost.is_set():
            return
        try:
            async with self._exchanger.exchange("DELETE", self._common_headers()) as response:
                await skip_body(response)
        except ExchangeFailed as error:
            log.info("a session was not ended: %s", error.reason)

    async def _finish_handshake(self, message: JsonObject, content: bytes) -> None:
        await super()._finish_handshake(message, content)
        self._start(self._listen)

    # --- headers

    def _common_headers(self) -> dict[str, str]:
        headers = {}
        if self._session is not None:
            headers[_SESSION] = self._session
        if self._version is not None:
            headers["mcp-protocol-version"] = self._version
        return headers

    def _headers(self, message: JsonObject) -> dict[str, str]:
        """The headers of a POST. Raises ExchangeFailed if a name cannot be written into one."""
        headers = {"accept": f"{JSON}, {EVENTS}", "content-type": JSON}
        version = version_in(message)
        if message.get("method") == _INITIALIZE:
            return headers
        if version is None:
            if self._version not in MODERN_PROTOCOL_VERSIONS:
                return headers | self._common_headers()
            version = self._version
        headers["mcp-protocol-version"] = version
        if version in MODERN_PROTOCOL_VERSIONS:
            try:
                headers |= mirrored_headers(message, self._marked)
            except ValueError:
                reason = "its name or an argument has characters that do not fit into a header"
                raise ExchangeFailed(Failure.PROTOCOL, reason, was_sent=False) from None
        return headers

    def _note_answer(self, post: _Post, data: bytes) -> None:
        if post.is_modern and post.method == "tools/list":
            note_marked(self._marked, data)

    # --- POST

    async def _post(self, post: _Post, message: JsonObject, content: bytes) -> None:
        if post.method == _INITIALIZE:
            self._session = self._version = None
        reader = EventReader(self._longest)
        failure = ExchangeFailed(Failure.TRANSPORT, "the stream ended before the answer")
        try:
            has_answer = await self._read_response(post, self._headers(message), content, reader)
        except ExchangeFailed as error:
            if error.failure is not Failure.TRANSPORT or reader.last_id is None:
                raise
            # Only an event has an id, so the request arrived, and its stream broke.
            failure, has_answer = error, False
        if not has_answer and reader.last_id is not None and not post.is_modern:
            has_answer = await self._resume(reader, post)
        if not has_answer or post.is_guessed:
            raise failure

    async def _read_response(self, post: _Post, headers: dict[str, str], content: bytes, reader: EventReader) -> bool:
        """Send the POST and deliver what comes with it. Returns whether the answer was in it."""
        async with self._exchanger.exchange("POST", headers, content) as response:
            if not response.is_success:
                await self._raise_for_status(response, post, session=_SESSION in headers)
                return True
            if post.method == _INITIALIZE:
                self._keep_session(response)
            kind = content_type(response)
            if kind == JSON:
                if await self._deliver(await read_body(response, self._longest), post):
                    return True
                raise ExchangeFailed(Failure.PROTOCOL, "the server answered without the answer to the request")
            if kind == EVENTS:
                return await self._read_events(response, reader, post)
            what = "without an answer" if response.status_code in (202, 204) else "with another kind of content"
            reason = f"the server accepted the request {what} (HTTP {response.status_code})"
            raise ExchangeFailed(Failure.PROTOCOL, reason)

    async def _resume(self, reader: EventReader, post: _Post) -> bool:
        """Continue the stream of a POST. Returns whether the answer came."""
        failures = 0
        while failures < _RESUMPTIONS:
            await trio.sleep(_pause(reader, failures))
            known = reader.last_id
            try:
                async with self._stream(reader) as response:
                    if response is None:
                        return False
                    if await self._read_events(response, reader, post):
                        return True
            except ExchangeFailed as error:
                if error.failure is not Failure.TRANSPORT:
                    raise
            failures = failures + 1 if reader.last_id == known else 0
        return False

    async def _post_notice(self, message: JsonObject, content: bytes) -> None:
        headers = self._headers(message)
        async with self._exchanger.exchange("POST", headers, content) as response:
            if not response.is_success:
                await self._raise_for_status(response, None, session=_SESSION in headers)
            await skip_body(response)

    def _keep_session(self, response: httpx2.Response) -> None:
        session = response.headers.get(_SESSION)
        if session is not None and not _SESSION_ID.fullmatch(session):
            raise ExchangeFailed(Failure.PROTOCOL, "the server gave a session id that no header can have")
        self._session = session

    # --- GET

    @asynccontextmanager
    async def _stream(self, reader: EventReader) -> AsyncIterator[httpx2.Response | None]:
        """Open a GET stream, after the last event if there was one. Yields None if the server does not offer that.
        Raises ExchangeFailed and _SessionLost."""
        headers = {"accept": EVENTS, "cache-control": "no-store", **self._common_headers()}
        if reader.last_id is not None:
            headers["last-event-id"] = reader.last_id
        async with self._exchanger.exchange("GET", headers) as response:
            if response.status_code == 404 and _SESSION in headers:
                raise _SessionLost
            if response.is_server_error or response.status_code == 429:
                raise ExchangeFailed(Failure.TRANSPORT, reason_of_status(response.status_code))
            is_stream = response.is_success and content_type(response) == EVENTS
            yield response if is_stream else None

    async def _listen(self) -> None:
        """Read what the server sends by itself, on a GET stream that is opened again whenever it ends."""
        reader = EventReader(self._longest)
        failures = 0
        while True:
            count = reader.count
            try:
                async with self._stream(reader) as response:
                    if response is None:
                        return
                    await self._read_events(response, reader, None)
            except ExchangeFailed as error:
                # Requests show whether the server is there.
                log.info("the GET stream ended: %s", error.reason)
            failures = failures + 1 if reader.count == count else 0
            await trio.sleep(_pause(reader, failures))


class SseCarrier(HttpCarrier):
    """The carrier for HTTP with SSE: all messages of the server come on one stream."""

    def __init__(self, exchanger: Exchanger, longest: int) -> None:
        super().__init__(exchanger, longest)
        self._endpoint: httpx2.URL | None = None
        self._is_ready = trio.Event()

    async def ready(self) -> None:
        """Open the stream, and wait until the server has said where messages are sent to."""
        self._start(self._read_stream)
        await self._is_ready.wait()
        if self._lost.is_set():
            raise CarrierLost(self._reason)

    def cancel(self, id: int) -> bool:
        """See Carrier. A notification must follow unless the request was not sent."""
        post = self._posts.get(id)
        if post is None or post.has_begun:
            return False
        post.scope.cancel()
        return True

    async def _read_stream(self) -> None:
        headers = {"accept": EVENTS, "cache-control": "no-store"}
        try:
            async with self._exchanger.exchange("GET", headers) as response:
                if not response.is_success:
                    await self._raise_for_status(response, None, session=False)
                if content_type(response) != EVENTS:
                    raise CarrierLost("the server offers no stream of events: correct baseURL or the transport")
                await self._read_events(response, EventReader(self._longest), None)
            raise CarrierLost("the server closed the stream")
        except ExchangeFailed as error:
            raise CarrierLost(error.reason) from None

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self._is_ready.set()

    async def _take_event(self, name: bytes, data: bytes, post: _Post | None) -> bool:
        if name != b"endpoint":
            return await super()._take_event(name, data, post)
        try:
            url = self._exchanger.url.join(data.decode())
        except (httpx2.InvalidURL, ValueError):
            raise CarrierLost("the server gave an address for messages that is not valid") from None
        if url.userinfo or not is_same_origin(url, self._exchanger.url):
            raise CarrierLost("the server gave an address for messages that is on another host")
        self._endpoint = url
        self._is_ready.set()
        return False

    async def _post(self, post: _Post, message: JsonObject, content: bytes) -> None:
        await self._post_to_endpoint(post, content)

    async def _post_notice(self, message: JsonObject, content: bytes) -> None:
        await self._post_to_endpoint(None, content)

    async def _post_to_endpoint(self, post: _Post | None, content: bytes) -> None:
        headers = {"accept": JSON, "content-type": JSON}
        async with self._exchanger.exchange("POST", headers, content, self._endpoint) as response:
            if not response.is_success:
                await self._raise_for_status(response, post, session=True)
            await skip_body(response)


def _is_session_lost(status: int, error: JsonObject | None) -> bool:
    """Whether a response to a request of a session says that there is no such session."""
    code, text = (error or {}).get("code"), (error or {}).get("message")
    if status == 404:
        return code != METHOD_NOT_FOUND
    # Servers of the TypeScript SDK's examples answer so.
    return status == 400 and code in (-32000, -32001, -32600) and isinstance(text, str) and "session" in text.lower()


async def _error_in(response: httpx2.Response) -> JsonObject | None:
    """Return the JSON-RPC error that a body has, if it has one."""
    try:
        message = json.loads(await read_body(response, _ERROR_BYTES))
    except (ValueError, RecursionError, ExchangeFailed):
        return None
    error = message.get("error") if isinstance(message, dict) else None
    return error if isinstance(error, dict) and isinstance(error.get("code"), int) else None


def _pause(reader: EventReader, failures: int) -> float:
    """How long to wait before the next stream (seconds): as the server says, and longer after each failure."""
    asked = _FIRST_PAUSE if reader.retry_seconds is None else reader.retry_seconds
    grown = _FIRST_PAUSE * 2.0 ** min(failures - 1, 6) if failures > 0 else 0.0
    return min(max(asked, grown, _SHORTEST_PAUSE), _LONGEST_PAUSE)
