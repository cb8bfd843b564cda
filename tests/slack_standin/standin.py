"""The stand-in itself: everything of it in one object, and how it is started. How to use it: see the package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from tests.slack_standin import limits, page
from tests.slack_standin.faults import Faults
from tests.slack_standin.listening import Port
from tests.slack_standin.people import People
from tests.slack_standin.sockets import Envelope, SocketMode
from tests.slack_standin.team import Channel, Json, Team, Upload, User
from tests.slack_standin.wire import Call, WebApi

T = TypeVar("T")

ALICE, BOB, MALLORY = "U0ALICE01", "U0BOB0001", "U0MALLORY"
CHANNEL, OTHER_CHANNEL, UNJOINED = "C0AGENTS1", "C0OTHER01", "C0UNJOIND"
APP_TOKEN, BOT_TOKEN = "xapp-1-A0APP0001-1-standin", "xoxb-1-1-standin"
USERS = (User(ALICE, "alice", "Alice Example"), User(BOB, "bob", "Bob Example"), User(MALLORY, "mallory", "Mallory"))


class Standin:
    """A running stand-in. Its methods are called in the Trio loop it runs in; over HTTP there is `/_control`."""

    def __init__(self, team: Team, nursery: trio.Nursery, **settings: Any) -> None:
        self.team = team
        self.faults = Faults()
        self.rates = limits.Rates(settings["rates"])
        self.socket_mode = SocketMode(
            team, self.faults, nursery, ack_within=settings["ack_within"], redeliver=settings["redeliver"]
        )
        self.socket_mode.lifetime = settings["lifetime"]
        self.people = People(team, self.socket_mode)
        self._web = WebApi(team, self.faults, self.rates, self.socket_mode, self.people, echo=settings["echo"])
        self._nursery = nursery
        routes: list[BaseRoute] = [
            Route("/api/{method:path}", self._web.api, methods=["GET", "POST"]),
            Route("/upload/v1/{key}", self._web.upload, methods=["POST", "PUT"]),
            Route("/response/{key}", self._web.response, methods=["POST"]),
            WebSocketRoute("/link/", self.socket_mode.connect),
            *page.routes(self),
        ]
        app = Starlette(routes=routes, exception_handlers={ClientDisconnect: _gone})
        self.port = Port(app, nursery, ping_interval=settings["ping_interval"])
        self.tap, self.submit, self.close_view = self.people.tap, self.people.submit, self.people.close_view
        self.command, self.say = self.people.command, self.people.say
        self.wait_for = team.wait_for
        self.drop_sockets, self.refresh = self.socket_mode.drop, self.socket_mode.refresh
        self.on, self.plan = self.faults.on, self.faults.plan

    # Where it is

    @property
    def url(self) -> str:
        return self.team.base_url

    @property
    def api_url(self) -> str:
        """What `INTERCOM_SLACK_API` or the SDK's `base_url` is set to."""
        return f"{self.team.base_url}/api/"

    @property
    def app_token(self) -> str:
        return self.team.app_token

    @property
    def bot_token(self) -> str:
        return self.team.bot_token

    # What one sees

    def messages(self, channel: str = CHANNEL) -> list[Json]:
        """Every message of a channel, replies too, oldest first, with metadata: what is there now."""
        return [dict(one) for one in self.team.channels[channel].messages.values()]

    def thread(self, channel: str, ts: str) -> list[Json]:
        """A thread: its root and the replies, oldest first."""
        kept = self.team.channels[channel].messages.values()
        return [dict(one) for one in kept if one.get("thread_ts", one["ts"]) == ts]

    def message(self, ts: str, channel: str = CHANNEL) -> Json:
        """One message as it is now; KeyError if there is none."""
        return dict(self.team.channels[channel].messages[ts])

    def ephemerals(self, user: str) -> list[Json]:
        """What was shown to this person alone."""
        return [one for one in self.team.ephemerals if one["to"] == user]

    def views(self, user: str) -> list[Json]:
        """The modals on this person's screen, the top one last."""
        return [one.view for one in self.team.modals.values() if one.user == user]

    def view_errors(self, user: str) -> dict[str, str]:
        """What this person's top modal complains of, by block_id ("" is the modal itself)."""
        found = [one.errors for one in self.team.modals.values() if one.user == user]
        return found[-1] if found else {}

    @property
    def files(self) -> list[Upload]:
        """Every upload begun: `.file` as files.info gives it, `.data` once it came, `.completed`."""
        return list(self.team.uploads.values())

    async def first(self, fits: Callable[[Json], object], channel: str = CHANNEL, seconds: float = 60) -> Json:
        """The first message that fits, waited for."""
        return (await self.wait_for(lambda: [one for one in self.messages(channel) if fits(one)], seconds))[0]

    async def card(self, words: str = "", channel: str = CHANNEL, seconds: float = 60) -> Json:
        """The message with buttons in which these words stand, waited for."""
        return await self.first(lambda one: words in text_of(one) and buttons(one), channel, seconds)

    async def shows(self, ts: str, words: str, channel: str = CHANNEL, seconds: float = 60) -> Json:
        """The message, once these words stand in it."""
        return await self.first(lambda one: one["ts"] == ts and words in text_of(one), channel, seconds)

    async def told(self, user: str, words: str) -> Json:
        """What one person alone was told with these words, waited for."""
        seen = await self.wait_for(
            lambda: [one for one in self.ephemerals(user) if words in f"{one['text']}{text_of(one)}"]
        )
        return seen[0]

    async def form(self, user: str, name: str) -> Json:
        """The form of this name on this person's screen, waited for."""
        return (
            await self.wait_for(lambda: [one for one in self.views(user) if one["callback_id"] == f"intercom_{name}"])
        )[-1]

    # What came in

    @property
    def calls(self) -> list[Call]:
        return self._web.calls

    def count(self, method: str, *, ok: bool | None = None) -> int:
        """How many calls of this method came in (those whose work went well, or did not)."""
        return sum(one.method == method and (ok is None or one.ok is ok) for one in self._web.calls)

    @property
    def envelopes(self) -> list[Envelope]:
        return self.socket_mode.envelopes

    @property
    def unanswered(self) -> list[Envelope]:
        """What missed an ack at least once: the person saw an error, or the event was sent again."""
        return self.socket_mode.unanswered

    async def connected(self, sockets: int = 1, seconds: float = 30) -> None:
        """Wait until so many sockets are open."""
        await self.wait_for(lambda: len(self.socket_mode.live()) >= sockets, seconds)

    async def acted_on(self, seconds: float = 30) -> None:
        """Wait until every envelope so far was acked or given up."""
        await self.wait_for(lambda: not self.socket_mode.pending, seconds)

    # The team

    def add_channel(
        self, channel: str, name: str, *, member: bool = True, private: bool = False, archived: bool = False
    ) -> Channel:
        kept = Channel(channel, name, member, private, archived)
        self.team.channels[channel] = kept
        return kept

    def add_user(self, user: str, name: str, real_name: str = "") -> User:
        self.team.users[user] = User(user, name, real_name or name)
        return self.team.users[user]

    # The network

    async def redeliver(self, envelope: Envelope) -> None:
        """Deliver an envelope once more, acked or not."""
        await self.socket_mode.again(envelope)

    def go_down(self) -> None:
        """Slack is out of reach: connections are cut and new ones refused. Nothing it holds is lost."""
        self.port.close()

    async def come_up(self) -> None:
        """In reach again, at the same address."""
        if not self.port.is_open:
            await self.port.open()

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Out of reach inside this block."""
        self.go_down()
        try:
            yield
        finally:
            await self.come_up()

    def later(self, seconds: float, do: Callable[[], Any]) -> None:
        """Do something after this long."""

        async def wait() -> None:
            await trio.sleep(seconds)
            answer = do()
            if hasattr(answer, "__await__"):
                await answer

        self._nursery.start_soon(wait)


def buttons(message: Json) -> list[str]:
    """The `action_id`s of a message's buttons."""
    rows = (block["elements"] for block in message.get("blocks") or () if block["type"] == "actions")
    return [element["action_id"] for row in rows for element in row]


def text_of(message: Json) -> str:
    """Every word that a message's blocks show."""
    return "\n".join(_texts(message.get("blocks") or ()))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("text"), str):
            yield node["text"]
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _texts(value)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the caller went away in the middle of its request: nobody hears this


@asynccontextmanager
async def serve(
    *,
    port: int = 0,
    rates: Mapping[str, tuple[float, int]] | None = None,
    ack_within: float = limits.ACK_WITHIN,
    redeliver: Sequence[float] = (0.0, 60.0, 300.0),
    echo: bool = True,
    ping_interval: float = 5.0,
    lifetime: float | None = None,
    app_token: str = APP_TOKEN,
    bot_token: str = BOT_TOKEN,
) -> AsyncIterator[Standin]:
    """Run a stand-in for Slack on a port of the loopback interface, in this Trio loop, until the block ends.

    Args:
        port: any free one when 0.
        rates: requests a second and burst by method; `limits.RATES` are Slack's. Off when not given.
        ack_within: seconds an ack may take.
        redeliver: seconds to wait before each delivery of an unacked envelope, counted from the time-out before; the
            first delivery, the first number, is at once. Slack's own for events.
        echo: whether the app is told of its own messages, as Slack does.
        ping_interval: seconds between the pings sent over each socket.
        lifetime: seconds a socket lives before Slack takes it away with a warning; for ever when None.
    """
    async with trio.open_nursery() as nursery:
        team = Team(app_token=app_token, bot_token=bot_token)
        settings = {"rates": rates or {}, "ack_within": ack_within, "redeliver": redeliver, "echo": echo}
        slack = Standin(team, nursery, **settings, ping_interval=ping_interval, lifetime=lifetime)
        for user in USERS:
            team.users[user.id] = user
        slack.add_channel(CHANNEL, "agents")
        slack.add_channel(OTHER_CHANNEL, "other")
        slack.add_channel(UNJOINED, "elsewhere", member=False)
        nursery.start_soon(slack.socket_mode.pump)
        await slack.port.open(port=port)
        team.base_url = f"http://127.0.0.1:{slack.port.number}"
        try:
            yield slack
        finally:
            slack.port.close()
            nursery.cancel_scope.cancel()
