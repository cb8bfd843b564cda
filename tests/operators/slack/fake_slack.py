"""A Slack in memory, on the test's clock: just the methods that the server calls, with faults on order."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from intercom.operators.slack.web_api import RateLimited, SlackApiError, SlackRefused, Unreachable
from tests.operators.slack.payloads import ANNA, BERT
from tests.operators.stand_in_service import START

#: What Slack's clock says when the test's says 0.
EPOCH = START.timestamp()


@frozen
class Fault:
    """Raise `error` in place of the answer, after `wait` seconds; `done` says that what was asked happened all the
    same, `later` seconds after it was asked."""

    error: SlackApiError
    done: bool = False
    wait: float = 0.0
    later: float = 0.0


LOST = Fault(Unreachable("the answer was lost", maybe_done=True), done=True)
LATE = Fault(
    Unreachable("slack did not answer within 10 s", maybe_done=True, unanswered=True), done=True, wait=10.0, later=15.0
)
RESET = Fault(Unreachable("connection reset", maybe_done=True, unanswered=True), done=True, wait=0.5, later=15.0)
BROKEN = Fault(Unreachable("slack could not finish: HTTP 500", maybe_done=True))
NO_NETWORK = Fault(Unreachable("no network", maybe_done=False))


def limited(seconds: float) -> Fault:
    return Fault(RateLimited("method", seconds))


def refusing(error: str) -> Fault:
    return Fault(SlackRefused("method", error))


@define
class Message:
    ts: str
    channel: str
    text: str
    blocks: list[Any]
    metadata: Any
    thread_ts: str | None
    at: float
    file: str | None = None
    history: list[str] = field(factory=list)

    @property
    def client_id(self) -> str | None:
        return None if self.metadata is None else str(self.metadata["event_payload"]["client_id"])


Judge = Callable[[str, dict[str, Any]], Fault | None]


class FakeSlack:
    """`judge(method, params)` decides on the fault of a call. `faults` are raised by the next calls of a method, one
    each, and `slow` is how much longer its calls take, in seconds. `per_second` limits posts in a channel as Slack
    does. `responses` were given to response_urls."""

    def __init__(self, *, per_second: bool = False, latency: float = 0.05, page: int = 3) -> None:
        self.messages: list[Message] = []
        self.calls: list[tuple[float, str, dict[str, Any]]] = []
        self.uploads: dict[str, bytes] = {}
        self.judge: Judge = lambda method, params: None
        self.limited = 0
        self.faults: dict[str, list[Exception]] = {}
        self.slow: dict[str, float] = {}
        self.responses: list[dict[str, Any]] = []
        self._per_second = per_second
        self._latency = latency
        self._page = page
        self._last: dict[str, float] = {}
        self._number = 0
        self._coming: list[tuple[float, Callable[[], object]]] = []

    # what tests look at

    def texts(self) -> list[str]:
        """What stands in Slack, in the order it was posted."""
        return [message.text for message in self.messages]

    def methods(self) -> Counter[str]:
        return Counter(method for _, method, _ in self.calls)

    def made(self, method: str) -> list[dict[str, Any]]:
        return [params for _, name, params in self.calls if name == method]

    def delete(self, text: str) -> None:
        self.messages = [message for message in self.messages if message.text != text]

    # what the server calls

    async def call(self, method: str, /, *, app: bool = False, timeout: float = 10.0, **params: Any) -> dict[str, Any]:
        params = copy.deepcopy({name: value for name, value in params.items() if value is not None})
        self.calls.append((trio.current_time(), method, params))
        await trio.sleep(self._latency + self.slow.get(method, 0.0))
        self.catch_up()
        if self.faults.get(method):
            raise self.faults[method].pop(0)
        fault = self.judge(method, params)
        work: Callable[[], dict[str, Any]] = partial(getattr(self, "_" + method.replace(".", "_")), **params)
        if fault is None:
            return {"ok": True, **work()}
        if fault.done and fault.later:
            self._coming.append((trio.current_time() + fault.later, work))
        elif fault.done:
            work()
        await trio.sleep(fault.wait)
        raise fault.error

    def catch_up(self) -> None:
        """Do what was to be done later and is due, in the order it was asked."""
        due = [work for at, work in self._coming if at <= trio.current_time()]
        self._coming = [(at, work) for at, work in self._coming if at > trio.current_time()]
        for work in due:
            # Nobody waits for the answer any more, be it a refusal.
            with suppress(SlackApiError):
                work()

    async def respond(self, response_url: str, body: dict[str, Any]) -> None:
        if self.faults.get("respond"):
            raise self.faults["respond"].pop(0)
        self.responses.append(body)

    async def upload(self, url: str, data: bytes, filename: str, /) -> None:
        await self.call("upload", url=url, data=data)

    def _users_info(self, user: str) -> dict[str, Any]:
        return {"user": {"id": user, "name": {ANNA: "anna", BERT: "bert"}[user]}}

    def _chat_postEphemeral(self, **_: Any) -> dict[str, Any]:
        return {}

    def _views_open(self, **_: Any) -> dict[str, Any]:
        return {}

    def _upload(self, url: str, data: bytes) -> dict[str, Any]:
        self.uploads[url.removeprefix("https://files/")] = data
        return {}

    def _chat_postMessage(self, channel: str, text: str, metadata: Any, **params: Any) -> dict[str, Any]:
        last = self._last.get(channel, -1.0)
        if self._per_second and trio.current_time() - last < 0.999:
            self.limited += 1
            raise RateLimited("chat.postMessage", 1.0)
        self._last[channel] = trio.current_time()
        thread_ts = params.get("thread_ts")
        if thread_ts is not None and not any(m.ts == thread_ts and m.channel == channel for m in self.messages):
            raise SlackRefused("chat.postMessage", "thread_not_found")
        return {"ts": self._add(channel, text, params.get("blocks") or [], metadata, thread_ts).ts}

    def _chat_update(self, channel: str, ts: str, text: str, **params: Any) -> dict[str, Any]:
        message = self._message(channel, ts)
        message.history.append(message.text)
        message.text, message.blocks, message.metadata = text, params["blocks"], params["metadata"]
        return {"ts": ts}

    def _conversations_history(self, channel: str, oldest: str, cursor: str = "0", **_: Any) -> dict[str, Any]:
        return self._listed([m for m in self.messages if m.channel == channel and not m.thread_ts], oldest, cursor)

    def _conversations_replies(self, channel: str, ts: str, oldest: str, cursor: str = "0", **_: Any) -> dict[str, Any]:
        found = [m for m in self.messages if m.channel == channel and ts in (m.ts, m.thread_ts)]
        if not found:
            raise SlackRefused("conversations.replies", "thread_not_found")
        return self._listed(found, oldest, cursor)

    def _files_getUploadURLExternal(self, filename: str, length: int, **_: Any) -> dict[str, Any]:
        self._number += 1
        return {"upload_url": f"https://files/F{self._number}", "file_id": f"F{self._number}"}

    def _files_completeUploadExternal(self, files: Any, channel_id: str, **params: Any) -> dict[str, Any]:
        (file,) = files
        assert file["id"] in self.uploads
        if any(message.file == file["id"] for message in self.messages):
            raise SlackRefused("files.completeUploadExternal", "file_already_shared")
        made = self._add(channel_id, file["title"], [], None, params.get("thread_ts"))
        made.file = file["id"]
        return {"files": [{"id": file["id"]}]}

    def _files_info(self, file: str) -> dict[str, Any]:
        if file not in self.uploads:
            raise SlackRefused("files.info", "file_not_found")
        shares: dict[str, Any] = {}
        for message in self.messages:
            if message.file == file:
                shares = {"public": {message.channel: [{"ts": message.ts}]}}
        return {"file": {"id": file, "shares": shares}}

    def _add(self, channel: str, text: str, blocks: list[Any], metadata: Any, thread: str | None) -> Message:
        self._number += 1
        ts = f"{EPOCH + trio.current_time():.0f}.{self._number:06d}"
        message = Message(ts, channel, text, blocks, metadata, thread, trio.current_time())
        self.messages.append(message)
        return message

    def _message(self, channel: str, ts: str) -> Message:
        for message in self.messages:
            if message.channel == channel and message.ts == ts:
                return message
        raise SlackRefused("chat.update", "message_not_found")

    def _listed(self, found: list[Message], oldest: str, cursor: str) -> dict[str, Any]:
        found = [message for message in found if float(message.ts) >= float(oldest)]
        begin = int(cursor)
        told = [{"ts": message.ts, "text": message.text, "metadata": message.metadata} for message in reversed(found)][
            begin : begin + self._page
        ]
        more = begin + self._page < len(found)
        return {"messages": told, "response_metadata": {"next_cursor": str(begin + self._page) if more else ""}}
