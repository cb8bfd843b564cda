"""The actor `web`: opens the page's port when a person asks for it, and tells the page what waits.

The page is at localhost, for which browsers have passkeys, and not at an IP address, for which they have none. Browsers
look for localhost at both of loopback's addresses, so both are opened: another program could take the other one.

Nothing listens before, with two exceptions: a configured port that a proxy or programs with a token come to, and the
port of an earlier server in which somebody was signed in, so that their open page comes back. The web server and the
files of the page are loaded then too, in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import field, frozen

from actors import Name, Refused, Request, ask
from intercom.local import own_files
from intercom.local.places import Places, private_directory
from intercom.model.card import Card, Notice
from intercom.model.config import WebSettings
from intercom.model.errors import ConfigError, IntercomError, IpcError
from intercom.model.json_types import JsonObject
from intercom.model.web import (
    ApiToken,
    NewToken,
    PageMember,
    PagePeople,
    ProposedPasskey,
    PushOperations,
    SignedIn,
    SignInLink,
)
from intercom.model.web_role import WebRole
from intercom.operators.authorization import Agents, Authorization, NoAgents
from intercom.operators.channel_actor import ChannelActor, utc_now
from intercom.operators.router_messages import Channel
from intercom.operators.web.events import EventLog
from intercom.operators.web.passkeys import Proposals, origin_of, port_of
from intercom.operators.web.sign_in import LINK_LIFE, LONGEST_LIFE, BrowserSession, SignIns, new_secret
from intercom.operators.web.tokens import TOKEN_DAYS, ApiTokens
from intercom.sessions.operator_service import OperatorService
from intercom.store.store_and_reader import STORE_FAULTS

if TYPE_CHECKING:
    from intercom.operators.web.site import PageFile, WebSite
    from intercom.web_server.acceptor import Acceptor

log = logging.getLogger("intercom.web")

#: The addresses of loopback. A system may lack the second one.
HOST, HOST_IPV6 = "127.0.0.1", "::1"
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
#: The first of the ports that systems give away by themselves.
_FIRST_FREE_PORT = 32768
#: How often another free port is looked for, if the second address has the first one's port in use.
_ATTEMPTS = 8
#: The most connections at once.
MOST_CONNECTIONS = 512
#: The first and the longest pause between two attempts to open the port again after a crash, in seconds.
_RETRY_SECONDS = (0.1, 30.0)
#: How long a link may take to be made: the first one loads the web server.
_LINK_SECONDS = 30.0


@frozen
class MakeLink(Request[SignInLink]):
    """Make a link for this person, and open the port if it is not open. `by` is who asks for it."""

    name: str
    role: WebRole
    by: str
    with_file: bool


@frozen
class ListProposals(Request[tuple[ProposedPasskey, ...]]):
    """List the passkeys that wait for their enrolment."""


@frozen
class ListPeople(Request[PagePeople]):
    """List who may use the page, and who is signed in there."""


@frozen
class SignOut(Request[SignedIn]):
    """Sign somebody out in the browser whose id begins like this. `by` is who asks for it."""

    prefix: str
    by: str


@frozen
class OpenPage(Request[str]):
    """Open the port if it is not open. The answer is the page's address."""


@frozen
class IsNeeded(Request[bool]):
    """Ask whether somebody counts on the page or its API while no agent is there: who cannot start a server."""


@frozen
class EndStreams:
    """End the streams of those who do not count any more."""


@frozen
class WebLinks:
    """The calls of the operator service to the actor `web`, and about the tokens of programs; implements
    `WebOperations`."""

    actor: Name
    api_tokens: ApiTokens
    push: PushOperations

    async def sign_in_link(
        self, name: str, *, role: WebRole = WebRole.ADMIN, by: str = "", with_file: bool = False
    ) -> SignInLink:
        return await ask(self.actor, MakeLink(name, role, by or name, with_file), timeout=_LINK_SECONDS)

    async def proposed_passkeys(self) -> tuple[ProposedPasskey, ...]:
        return await ask(self.actor, ListProposals())

    async def people(self) -> PagePeople:
        return await ask(self.actor, ListPeople())

    async def sign_out(self, prefix: str, by: str) -> SignedIn:
        return await ask(self.actor, SignOut(prefix, by))

    async def add_token(self, name: str, role: WebRole, days: int | None, by: str) -> NewToken:
        url = await ask(self.actor, OpenPage(), timeout=_LINK_SECONDS)
        text, token = await self.api_tokens.add(name, role, days or TOKEN_DAYS, by)
        return NewToken(token, text, url)

    async def tokens(self) -> tuple[ApiToken, ...]:
        return await self.api_tokens.every()

    async def revoke_token(self, name: str, by: str) -> ApiToken:
        revoked = await self.api_tokens.revoke(name, by)
        self.actor.tell(EndStreams())
        return revoked


@frozen
class WebDeps:
    """The dependencies of the page. `port` is the configured one, 0 for a free one. `agents` tracks the agent
    processes; with `trust_agent_processes` they may decide. `started_at` is when the server started. `settings` say who
    may come through a proxy, which shows `proxy_secret`; None without a proxy."""

    service: OperatorService
    sign_ins: SignIns
    tokens: ApiTokens
    places: Places
    port: int = 0
    agents: Agents = field(factory=NoAgents)
    trust_agent_processes: bool = False
    now: Callable[[], datetime] = utc_now
    started_at: datetime = field(factory=utc_now)
    settings: WebSettings = field(factory=WebSettings)
    proxy_secret: str | None = field(default=None, repr=False)
    proposals: Proposals = field(init=False)
    card_router: str = "card_router"

    @proposals.default
    def _no_proposals(self) -> Proposals:
        return Proposals(self.sign_ins.now)


class WebListener(ChannelActor):
    """Serves the page; registered as `web`.

    After a crash it opens the same port again, and the same browsers are signed in. Open pages begin their events
    again: those of an earlier run mean nothing.
    """

    refusals = (Refused, IntercomError)

    def __init__(self, deps: WebDeps) -> None:
        super().__init__(deps.service, Channel.WEB, deps.card_router, deps.now)
        self._deps = deps
        self._log = EventLog()
        self._is_open = self._has_left_port = False
        self._sites: list[WebSite] = []
        self._authorization = Authorization(
            deps.agents,
            deps.service.security_event,
            self.announce,
            deps.service.is_new_terminal,
            trusting=deps.trust_agent_processes,
            channel=Channel.WEB,
        )

    def on_start(self) -> None:
        self.spawn(self._authorization.keep_telling)
        self._remove_files()
        if self._deps.settings.public_url is not None and self._deps.proxy_secret is None:
            log.warning(
                "nobody reaches the page at %s: an agent's client started this server, so the proxy's secret must be in"
                " the proxy_secret_file under [web]",
                self._deps.settings.public_url,
            )
        if self._deps.sign_ins.port is not None:
            self.spawn(self._open_again)
        elif self._deps.port:
            self.spawn(self._open_for_others)
        elif self._earlier_port():
            self.spawn(self._open_again)

    async def on_receive(self, message: object) -> object:
        if isinstance(message, MakeLink):
            await self._open()
            return await self._link(message)
        if isinstance(message, OpenPage):
            await self._open()
            return origin_of(self._deps.sign_ins.port or 0)
        if isinstance(message, IsNeeded):
            return await self._is_needed()
        if isinstance(message, EndStreams):
            self._log.wake()
            return None
        if isinstance(message, ListProposals):
            return self._deps.proposals.waiting(self.service.signatures.keyring.trusted())
        if isinstance(message, ListPeople):
            return self._people()
        if isinstance(message, SignOut):
            return await self._sign_out(message)
        return super().on_receive(message)

    def on_stop(self) -> None:
        self._remove_files()
        if self._has_left_port and not self._deps.sign_ins.every():
            # Nobody's open page looks for the next server.
            with contextlib.suppress(OSError):
                os.unlink(self._deps.places.web_port_file)

    def publish(self, shown: Card | Notice) -> None:
        self._log.publish(shown)

    # --- the port ---

    async def _open_for_others(self) -> None:
        """Open the configured port if somebody comes there without a link, or an open page looks for it."""
        try:
            is_wanted = await self._is_expected()
        except IntercomError as fault:
            log.warning("%s; the page's port is opened when a person asks for it", fault)
            return
        if is_wanted:
            await self._open_again(self._tell_of_another)
        elif self._earlier_port() == self._deps.port:
            await self._open_again()

    async def _is_expected(self) -> bool:
        """Whether somebody comes to the configured port without a link: the proxy, or a program with a token."""
        if self._deps.proxy_secret is not None:
            return True
        return self._deps.port != 0 and bool(await self._deps.tokens.every())

    async def _is_needed(self) -> bool:
        """Whether a browser is signed in, a stream of events is open, or somebody comes without a link.

        A stream ends with its sign-in or token, and a sign-in ends hours after the last request, or after a week. So a
        forgotten tab does not keep the server for ever."""
        is_here = bool(self._deps.sign_ins.every()) or any(each.is_streaming for each in self._sites)
        return is_here or await self._is_expected()

    async def _tell_of_another(self, fault: IpcError) -> None:
        """Tell people that the port is not ours: who comes there without a link shows a secret with each request."""
        summary = f"{fault}; whatever has that port is shown the secrets of the proxy and of programs with tokens"
        self.announce(summary)
        try:
            await self.service.security_event(summary, {"port": self._deps.port})
        except STORE_FAULTS as unrecorded:
            log.warning("%s", unrecorded)

    async def _open_again(self, failed: Callable[[IpcError], Awaitable[None]] | None = None) -> None:
        """Open the port of an earlier run of this actor, the configured one, or an earlier server's, until it works.
        `failed` is told of the first attempt that did not."""
        pause, longest = _RETRY_SECONDS
        while not self._is_open:
            try:
                await self._open()
            except IpcError as fault:
                log.warning("%s; it is tried again", fault)
                if failed is not None:
                    await failed(fault)
                    failed = None
                await trio.sleep(pause)
                pause = min(longest, pause * 2)

    async def _open(self) -> None:
        """Open the port, and begin to serve it; nothing if it is open. Raises IpcError if that does not work."""
        files = await trio.to_thread.run_sync(_load)
        if self._is_open:
            # Another task was faster.
            return
        from intercom.operators.web.proxy import rules_of
        from intercom.operators.web.site import SECURITY_HEADERS, SiteDeps, WebSite
        from intercom.web_server.acceptor import Acceptor, ConnectionProcesses, why_not_open
        from intercom.web_server.server import HttpServer

        deps = self._deps
        wanted = deps.port if deps.sign_ins.port is None else deps.sign_ins.port
        # Passkeys work at the port where they were made. Otherwise open pages look for an earlier server at its port.
        passkeys = None if wanted else port_of(self.service.signatures.keyring.trusted().values())
        usual = 0 if wanted else passkeys or self._earlier_port() or 0
        try:
            listeners = _open_both(usual) if usual else None
        except OSError as error:
            why = why_not_open(error, port="port under [web]", host=HOST)
            users = "your passkeys work" if passkeys else "the page was before"
            log.warning("port %d, at which %s, cannot be opened (%s): another one is taken", usual, users, why)
            listeners = None
        try:
            listeners = listeners or _open_both(wanted)
        except OSError as error:
            why = why_not_open(error, port="port under [web]", host=HOST)
            raise IpcError(f"the page cannot be served: port {wanted} on {HOST} cannot be opened ({why})") from None
        _, port = listeners[0].socket.getsockname()[:2]
        deps.sign_ins.port = port
        site = SiteDeps(
            service=self.service,
            sign_ins=deps.sign_ins,
            tokens=deps.tokens,
            authorization=self._authorization,
            log=self._log,
            open_cards=self.open_cards.values,
            caught_up=self.is_caught_up.wait,
            find=ConnectionProcesses().find,
            tell=self.announce,
            files=files,
            started_at=deps.started_at,
            proposals=deps.proposals,
            proxy=rules_of(deps.settings, deps.proxy_secret),
        )
        for listener in listeners:
            self._sites.append(WebSite(site, port))
            server = HttpServer(self._sites[-1], headers=SECURITY_HEADERS)
            self.spawn(_serve, listener, Acceptor(server, MOST_CONNECTIONS))
        self._is_open = True
        self.subscribe_soon()
        log.info("the page at %s", origin_of(port))

    # --- people ---

    def _people(self) -> PagePeople:
        settings = self._deps.settings
        members = tuple(PageMember(name, role) for name, role in sorted(settings.members.items()))
        return PagePeople(settings.public_url, members, tuple(map(_signed_in, self._deps.sign_ins.every())))

    async def _sign_out(self, asked: SignOut) -> SignedIn:
        session = self._deps.sign_ins.end_from_elsewhere(asked.prefix)
        self._log.wake()
        who: JsonObject = {"user": asked.by, "for": session.name, "role": session.role.value}
        try:
            await self.service.security_event(f"{asked.by} signed {session.name} out of the page in a browser", who)
        except STORE_FAULTS as fault:
            message = f"{session.name} is signed out there, but that could not be recorded: {fault}"
            raise IpcError(message, code="unavailable") from None
        return _signed_in(session)

    # --- links ---

    async def _link(self, asked: MakeLink) -> SignInLink:
        sign_ins, code = self._deps.sign_ins, new_secret()
        url = f"{origin_of(sign_ins.port or 0)}/#sign-in={code}"
        file = await self._write_file(url) if asked.with_file else None
        if asked.by != asked.name:
            who: JsonObject = {"user": asked.by, "for": asked.name, "role": asked.role.value}
            # A link for somebody else that is not on record is not given.
            await self.service.security_event(f"{asked.by} made a link to the page for {asked.name}", who)
        link = sign_ins.issue(asked.name, asked.role, code, asked.by)
        await self._leave_port()
        if file is not None:
            self.spawn(_remove_later, partial(Path(file).unlink, missing_ok=True))
        return SignInLink(url, link.expires_at, file)

    async def _write_file(self, url: str) -> str:
        """Write the file that leads to this address, and return its path. Raises IpcError."""
        places = self._deps.places
        file = Path(places.runtime_dir, f"{places.ipc_name}{_LINK_FILE}{os.urandom(8).hex()}.html")
        try:
            private_directory(places.runtime_dir)
            await trio.to_thread.run_sync(own_files.replace, file, _redirection(url))
        except OSError as error:
            raise IpcError(f"cannot write {file} ({error.strerror}): check its directory") from None
        return str(file)

    async def _leave_port(self) -> None:
        """Leave the port to the next server, so that a page which is open then finds it."""
        places, sign_ins = self._deps.places, self._deps.sign_ins
        left = f"{sign_ins.port} {int(sign_ins.now().timestamp())}\n".encode()
        try:
            private_directory(places.runtime_dir)
            await trio.to_thread.run_sync(own_files.replace, Path(places.web_port_file), left)
            self._has_left_port = True
        except (IpcError, OSError) as fault:
            log.warning("an open page will not find the next server by itself: %s", fault)

    def _earlier_port(self) -> int | None:
        """Return the port that an earlier server has left, if somebody it signed in may still look for it.

        Every program of the user's can write the file. A browser lets what was once loaded from a port act on the page
        there, so a port counts only if it is the configured one, or one that systems give away by themselves."""
        try:
            port, at = map(int, own_files.read_own(Path(self._deps.places.web_port_file), private=True).split())
            left_at = datetime.fromtimestamp(at, UTC)
        except (OSError, ConfigError, ValueError, OverflowError):
            return None
        is_ours = port == self._deps.port or _FIRST_FREE_PORT <= port < 65536
        age = self._deps.sign_ins.now() - left_at
        return port if is_ours and timedelta(0) <= age <= LONGEST_LIFE else None

    def _remove_files(self) -> None:
        """Remove the files of links that an earlier run has left."""
        places = self._deps.places
        for file in Path(places.runtime_dir).glob(f"{places.ipc_name}{_LINK_FILE}*.html"):
            with contextlib.suppress(OSError):
                file.unlink()


def _signed_in(session: BrowserSession) -> SignedIn:
    return SignedIn(session.id, session.name, session.role, session.began_at, session.used_at)


_LINK_FILE = ".web-"


def _load() -> dict[str, PageFile]:
    """Load the web server and the page. Blocks."""
    importlib.import_module("intercom.web_server.acceptor")
    site = importlib.import_module("intercom.operators.web.site")
    files: dict[str, PageFile] = site.page_files()
    return files


def _open_both(wanted: int) -> tuple[trio.SocketListener, ...]:
    """Open this port at both of loopback's addresses; 0 takes a free one. Raises OSError if one of them is taken."""
    from intercom.web_server.acceptor import open_port

    for attempt in range(1, _ATTEMPTS + 1):
        first = open_port(HOST, wanted)
        try:
            return first, open_port(HOST_IPV6, first.socket.getsockname()[1])
        except OSError as error:
            if error.errno in _NO_IPV6:
                return (first,)
            first.socket.close()
            if wanted or error.errno != errno.EADDRINUSE or attempt == _ATTEMPTS:
                raise
        except BaseException:
            first.socket.close()
            raise
    raise AssertionError("the last attempt returns or raises")


async def _serve(listener: trio.SocketListener, port: Acceptor) -> None:
    async with listener:
        await port.serve(listener)


def _redirection(url: str) -> bytes:
    """Return a file that leads a browser to this address."""
    to = escape(url, quote=True)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={to}"><title>Agent Intercom</title></head>'
        f'<body><p><a href="{to}">Open the page</a></p></body></html>\n'
    ).encode("ascii")


async def _remove_later(remove: Callable[[], None]) -> None:
    """Remove the file of a link once that is too old. Not once it is used: if somebody was faster than the person's
    browser, that has to find the file, and show the link too."""
    await trio.sleep(LINK_LIFE.total_seconds())
    remove()
