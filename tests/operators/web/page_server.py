"""The page's listener over a stand-in service, and a browser that speaks to it by hand.

Whatever is answered with success is checked against the document of the API.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from actors import ChildSpec, Supervisor, System
from actors.events import Event
from intercom.local.places import Places, places
from intercom.model.card import Card
from intercom.model.session import SessionMode
from intercom.model.web import SignInLink
from intercom.model.web_role import WebRole
from intercom.operators.card_router import CardRouter
from intercom.operators.channel_actor import utc_now
from intercom.operators.web.listener import WebDeps, WebLinks, WebListener
from intercom.operators.web.sign_in import SignIns
from intercom.operators.web.tokens import ApiTokens
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer import Writer
from tests.operators.answers import check_answer, check_event
from tests.operators.ctl_server import environ
from tests.operators.stand_in_service import START, StandInAgents, StandInService
from tests.support.database import new_database
from tests.support.http_responses import Response, ResponseReader, request

API = "/api/operator"


@define
class Clock:
    at: Any = field(default=START)

    def __call__(self) -> Any:
        return self.at


@frozen
class PageServer:
    system: System
    service: StandInService
    places: Places
    sign_ins: SignIns
    tokens: ApiTokens
    #: The push messages, if a test has some.
    push: Any = None

    @property
    def links(self) -> WebLinks:
        return WebLinks(self.system.named("web"), self.tokens, self.push)

    def tell(self, shown: Any) -> None:
        """Tell the router what a session would."""
        self.system.named("card_router").tell(shown)

    async def link(self, role: WebRole = WebRole.ADMIN, by: str = "") -> SignInLink:
        return await self.links.sign_in_link("kim", role=role, by=by, with_file=True)

    async def code(self, role: WebRole = WebRole.ADMIN, by: str = "") -> str:
        return (await self.link(role, by)).url.rpartition("=")[2]

    @property
    def port(self) -> int:
        assert self.sign_ins.port is not None, "a link was asked for before"
        return self.sign_ins.port

    async def browser(self, role: WebRole = WebRole.ADMIN) -> Browser:
        """A browser in which a person of this role is signed in."""
        code = await self.code(role)
        browser = Browser(self.port)
        await browser.sign_in(code)
        return browser


@define
class Browser:
    """Sends requests as the page does; each on a connection of its own. `before_body` is awaited once the server has
    read the head of a request and asks for the body."""

    port: int
    cookie: str = ""
    csrf: str = ""
    me: dict[str, Any] = field(factory=dict)
    before_body: Callable[[], Awaitable[object]] | None = field(default=None, kw_only=True)

    async def sign_in(self, code: str) -> Response:
        done = await self.post("/sign-in", {"code": code})
        if done.status == 200:
            self.me = done.json()
            self.csrf = self.me["csrf"]
            self.cookie = done.headers["set-cookie"].partition(";")[0]
        return done

    def headers(self, **more: str | None) -> dict[str, str]:
        told: dict[str, str | None] = {
            "Host": f"localhost:{self.port}",
            "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie or None,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {name: value for name, value in told.items() if value is not None}

    async def get(self, path: str, **more: str | None) -> Response:
        return _checked("get", path, await self.raw(request("GET", path, self.headers(**more))))

    async def post(self, path: str, data: Any, **more: str | None) -> Response:
        """Post JSON, or bytes as they are, below the API."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        told: dict[str, str | None] = {
            "Origin": f"http://localhost:{self.port}",
            "Content-Type": "application/json",
            "X-Intercom-CSRF": self.csrf or None,
        }
        answer = await self.raw(request("POST", API + path, self.headers(**told | more), body))
        return _checked("post", API + path, answer)

    async def command(self, name: str, **fields: Any) -> Response:
        return await self.post(f"/commands/{name}", fields)

    async def raw(self, sent: bytes) -> Response:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            if self.before_body is not None:
                head, _, sent = sent.partition(b"\r\n\r\n")
                await stream.send_all(head + b"\r\nExpect: 100-continue\r\n\r\n")
                asked = await stream.receive_some(65536)
                assert asked.startswith(b"HTTP/1.1 100"), asked
                await self.before_body()
            await stream.send_all(sent)
            reader = ResponseReader()
            while (answer := reader.next()) is None:
                reader.feed(await stream.receive_some(65536))
            return answer

    @contextlib.asynccontextmanager
    async def events(
        self, last: str | None = None, *, path: str = "/events", reads_little: bool = False
    ) -> AsyncIterator[Stream]:
        """The stream of events, or another one; with `reads_little`, the system keeps little of it for this reader."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            if reads_little:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await stream.send_all(request("GET", f"{API}{path}", self.headers(Last_Event_ID=last)))
            yield Stream(stream, path)


def _checked(method: str, path: str, answer: Response) -> Response:
    """Check an answer against the document of the API, if it has this path."""
    if answer.status == 200:
        check_answer(method, path, answer)
    return answer


#: The secret of the proxy, and its address.
SECRET = "s" * 32
PUBLIC_HOST = "intercom.example.org"


@define
class ProxiedBrowser(Browser):
    """A browser behind the proxy, which adds its two headers."""

    who: str = "kim"
    host: str = PUBLIC_HOST
    more: dict[str, str] = field(factory=dict)

    def headers(self, **more: str | None) -> dict[str, str]:
        told = {"Host": self.host, "X-Intercom-Proxy-Secret": SECRET, "X-Forwarded-User": self.who, **self.more}
        origin = {"Origin": f"https://{self.host}"} if "Content-Type" in more else {}
        return {**super().headers(**more), **origin, **told}

    async def come(self) -> ProxiedBrowser:
        self.me = (await self.get(f"{API}/me")).json()
        self.csrf = self.me["csrf"]
        return self


def proxied(server: PageServer, who: str = "kim", host: str = PUBLIC_HOST) -> ProxiedBrowser:
    return ProxiedBrowser(server.port, who=who, host=host)


@define
class Stream:
    """Server-sent events as they come. The framing of HTTP stands on lines of its own, and is no field of an event."""

    stream: trio.SocketStream
    path: str = "/events"
    _rest: bytes = b""

    async def next(self) -> tuple[str, dict[str, Any], str | None]:
        """The name, the data and the id of the next event. Raises EOFError at the end."""
        while True:
            event, found, rest = self._rest.partition(b"\n\n")
            if not found:
                # The last events may come together with the end.
                if self._rest.endswith(b"\r\n0\r\n\r\n") or not (more := await self.stream.receive_some(65536)):
                    raise EOFError
                self._rest += more
                continue
            self._rest = rest
            lines = event.decode().replace("\r", "").split("\n")
            fields = dict(line.split(": ", 1) for line in lines if line[:1].isalpha() and ": " in line)
            if "event" in fields:
                data = json.loads(fields["data"])
                check_event(self.path, fields["event"], data)
                return fields["event"], data, fields.get("id")

    async def until_end(self) -> None:
        """Read until the server has hung up."""
        with contextlib.suppress(EOFError, trio.BrokenResourceError):
            while True:
                await self.next()

    async def until_ready(self) -> tuple[list[tuple[str, Any]], str]:
        """The events before `ready`, each with its id or text, and the id of `ready`."""
        found: list[tuple[str, Any]] = []
        while True:
            name, data, id = await self.next()
            if name == "ready":
                assert id is not None
                return found, id
            found.append((name, data.get("request_id") or data.get("text")))


@contextlib.asynccontextmanager
async def page_server(
    directory: Path,
    service: StandInService | None = None,
    *,
    on_event: Callable[[Event], object] | None = None,
    has_store: bool = False,
    **options: Any,
) -> AsyncIterator[PageServer]:
    """A server at `directory` with this service; `options` are of `WebDeps`. Nobody is an agent, unless the service
    says so. With `has_store` it has a database, which tokens need."""
    service = service or StandInService()
    where = places(environ=environ(directory))
    clock = options.pop("clock", utc_now)
    sign_ins = SignIns(clock)
    options.setdefault("agents", StandInAgents(service))
    # Made when the system starts, which its store needs to be made.
    children: list[ChildSpec] = []
    system = System([ChildSpec("server", lambda: Supervisor(children), shutdown=None)], on_event=on_event)
    database = directory / "page.db"
    reader = Reader(database)
    tokens = ApiTokens(Store(system.named("store")), reader, clock)
    deps = WebDeps(service, sign_ins, tokens, where, **options)  # type: ignore[arg-type]

    async def open_cards() -> Sequence[Card]:
        return await service.pending()

    async def mode_of(session_id: str) -> SessionMode | None:
        found = service.all_sessions.get(session_id)
        return None if found is None else found.mode

    if has_store:
        new_database(database)
        children.append(ChildSpec("store", lambda: Writer(database)))
    children += [
        ChildSpec("card_router", lambda: CardRouter(open_cards, mode_of)),
        ChildSpec("web", lambda: WebListener(deps)),
    ]
    async with system:
        yield PageServer(system, service, where, sign_ins, tokens)
    reader.close()
