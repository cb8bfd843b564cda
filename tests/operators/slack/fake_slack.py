"""A Slack in memory, on the test's clock: just the methods that the server calls, with faults on order."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from attrs import frozen

from intercom.operators.slack.web_api import RateLimited, SlackApiError, SlackRefused, Unreachable
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL
from tests.operators.stand_in_service import START
from tests.slack_standin import files
from tests.slack_standin.limits import Rates
from tests.slack_standin.methods import METHODS
from tests.slack_standin.team import Channel, SlackRefuses, Team, User

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


@frozen
class Message:
    """A message as it stands there now; `history` is what it said before, `at` when it was posted."""

    kept: dict[str, Any]
    channel: str
    history: list[str]

    @property
    def ts(self) -> str:
        return str(self.kept["ts"])

    @property
    def at(self) -> float:
        return float(self.ts) - EPOCH

    @property
    def text(self) -> str:
        return str(self.kept["files"][0]["title"] if "files" in self.kept else self.kept["text"])

    @property
    def blocks(self) -> list[Any]:
        return [{name: each[name] for name in each if name != "block_id"} for each in self.kept.get("blocks", ())]

    @property
    def thread_ts(self) -> str | None:
        thread = self.kept.get("thread_ts")
        return None if thread == self.ts else thread

    @property
    def client_id(self) -> str | None:
        metadata = self.kept.get("metadata")
        return None if metadata is None else str(metadata["event_payload"]["client_id"])


Judge = Callable[[str, dict[str, Any]], Fault | None]


class FakeSlack:
    """`judge(method, params)` decides on the fault of a call. `faults` are raised by the next calls of a method, one
    each, and `slow` is how much longer its calls take, in seconds. `per_second` limits posts in a channel as Slack
    does. `responses` were given to response_urls. What calls do is what the stand-in does."""

    def __init__(self, *, per_second: bool = False, latency: float = 0.05, page: int = 3) -> None:
        self.team = Team(app_token="", bot_token="", epoch=EPOCH)
        self.team.channels = {id: Channel(id, id) for id in ("C1", "C2", CHANNEL)}
        self.team.users |= {id: User(id, name, name) for id, name in ((ANNA, "anna"), (BERT, "bert"))}
        self.calls: list[tuple[float, str, dict[str, Any]]] = []
        self.judge: Judge = lambda method, params: None
        self.limited = 0
        self.faults: dict[str, list[Exception]] = {}
        self.slow: dict[str, float] = {}
        self.responses: list[dict[str, Any]] = []
        # A little more, as the clock's fractions do not add up.
        self._rates = Rates({"chat.postMessage": (1.001, 1)} if per_second else {})
        self._latency = latency
        self._page = page
        self._history: defaultdict[str, list[str]] = defaultdict(list)
        self._coming: list[tuple[float, Callable[[], object]]] = []

    # what tests look at

    @property
    def messages(self) -> list[Message]:
        """What stands in Slack, in the order it was posted."""
        kept = [(one, id) for id, channel in self.team.channels.items() for one in channel.messages.values()]
        return [Message(one, id, self._history[one["ts"]]) for one, id in sorted(kept, key=lambda each: each[0]["ts"])]

    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def methods(self) -> Counter[str]:
        return Counter(method for _, method, _ in self.calls)

    def made(self, method: str) -> list[dict[str, Any]]:
        return [params for _, name, params in self.calls if name == method]

    def delete(self, text: str) -> None:
        for message in self.messages:
            if message.text == text:
                del self.team.channels[message.channel].messages[message.ts]

    # what the server calls

    async def call(self, method: str, /, *, app: bool = False, timeout: float = 10.0, **params: Any) -> dict[str, Any]:
        params = copy.deepcopy({name: value for name, value in params.items() if value is not None})
        self.calls.append((trio.current_time(), method, params))
        await trio.sleep(self._latency + self.slow.get(method, 0.0))
        self.catch_up()
        if self.faults.get(method):
            raise self.faults[method].pop(0)
        fault = self.judge(method, params)
        work = partial(self._do, method, params)
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

    def _do(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "chat.postEphemeral" | "views.open":
                return {}
            case "upload":
                files.receive(self.team, params["url"], params["data"])
                return {}
            case "chat.postMessage" if self._rates.wait(method, params):
                self.limited += 1
                raise RateLimited(method, 1.0)
        changed = self.team.channels[params["channel"]].messages.get(params["ts"]) if method == "chat.update" else None
        before = None if changed is None else changed["text"]
        try:
            answer = METHODS[method].do(self.team, {**params, "limit": self._page})
        except SlackRefuses as refusal:
            raise SlackRefused(method, refusal.body["error"]) from None
        if before is not None:
            self._history[params["ts"]].append(before)
        return answer
