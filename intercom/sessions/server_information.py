"""What the server tells people about itself: what it runs with, and the entries with which clients find it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import trio
from attrs import field, frozen

from intercom._version import __version__
from intercom.model.config import Config
from intercom.model.errors import InvalidState, NotFound
from intercom.model.room_view import RoomOperations
from intercom.model.server_view import DEFAULT_PORT, ClientEntries, ClientEntry, HttpPort, ServerStatus, local_base

#: Makes the entry of each client; those over HTTP for this address, without a path. It may read files.
MakeEntries = Callable[[str], tuple[ClientEntry, ...]]


@frozen
class ServerInformation:
    """What a server knows of itself.

    `configuration` is the file, None for the defaults. `rooms_database` is a file or a URL without its password. `http`
    returns the status of the HTTP port. `rooms` are the rooms' calls, None without rooms; with `only_rooms`, the HTTP
    port serves nothing else. `make_entries` is None in a program that embeds the server.
    """

    config: Config
    started_at: datetime
    database: Path
    configuration: Path | None = None
    rooms_database: str | None = None
    http: Callable[[], HttpPort | None] = lambda: None
    rooms: RoomOperations | None = None
    only_rooms: bool = False
    has_page: bool = False
    make_entries: MakeEntries | None = field(default=None, repr=False)

    def status(self) -> ServerStatus:
        return ServerStatus(
            version=__version__,
            started_at=self.started_at,
            configuration=None if self.configuration is None else str(self.configuration),
            database=str(self.database),
            rooms_database=self.rooms_database,
            http=self.http(),
            has_gateway=self.config.gateway.enabled,
            has_page=self.has_page,
        )

    async def entries(self, name: str | None = None) -> ClientEntries:
        """Return the entries. Those over HTTP have another name for the agent each time."""
        if self.make_entries is None:
            raise InvalidState("this server runs inside another program, which connects its agents itself")
        if self.only_rooms:
            raise InvalidState(
                "this server serves only rooms: agent-intercom-ctl rooms instructions says how agents reach them"
            )
        base, remark = await self._http_base()
        made = await trio.to_thread.run_sync(partial(self.make_entries, base))
        found = tuple(each for each in made if name in (None, each.name))
        if not found:
            known = ", ".join(each.name for each in made)
            raise NotFound(f"no client is called {str(name)[:40]!r}; known: {known}")
        return ClientEntries(found, base, remark)

    async def _http_base(self) -> tuple[str, str]:
        """Return the address that clients over HTTP are given, and what is missing for it."""
        port = self.http()
        own = (port and port.base) or local_base(self.config.http_host, self.config.http_port or DEFAULT_PORT)
        if port is None:
            return own, "this server has no HTTP port: agent-intercom init --http --write sets one for its next start"
        if port.base is None:
            return own, f"the HTTP port is closed: {port.fault or 'it is being opened'}"
        public = await self._public_url()
        if public in (None, own):
            return own, ""
        parts = urlsplit(str(public))
        allowed = {each.lower() for each in self.config.http_allowed_hosts}
        if allowed & {parts.netloc.lower(), (parts.hostname or "").lower()}:
            return str(public), ""
        return own, (
            f"at {public} agents reach the rooms alone: add {parts.hostname} to http_allowed_hosts in the"
            " configuration, and they reach everything there"
        )

    async def _public_url(self) -> str | None:
        """Return the public address: the one that a person set, or that of the settings. None if there is none."""
        if self.rooms is None:
            return self.config.rooms.public_url
        address = await self.rooms.address()
        return address.url if address.is_set else self.config.rooms.public_url
