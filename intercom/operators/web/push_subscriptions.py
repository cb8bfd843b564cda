"""What people do with push messages: a browser is subscribed, and one is taken off the list.

The server will send requests to what a browser names as its push service. So that must be an https address, and one of
the public internet: what `Destinations` allows is checked when it is named, and again at each connection.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import trio
from attrs import field, frozen

from intercom.model.errors import InvalidArguments
from intercom.model.visible_text import one_line
from intercom.model.web import PushSubscription
from intercom.operators.channel_actor import utc_now
from intercom.operators.web.push_encryption import BrowserKeys, ServerKey, server_key
from intercom.sessions.lookups import only
from intercom.store.store_and_reader import Reader, Store
from intercom.store.trust import push_subscriptions, subscription_id
from intercom.store.writer_messages import Database

#: The characters of an address (RFC 3986): two readers of it understand the same.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,2048}")
_LONGEST_LABEL: Final = 80
#: A host's name with a dot in it: in any other form the resolver may find a host of this network (`localhost.`).
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)+[A-Za-z0-9-]{1,63}")
#: Addresses of IPv6 that lead to one of IPv4 (RFC 6052).
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
#: All addresses of IPv6 that the internet has (RFC 4291). What is outside is of a network, whatever a list of private
#: ones says: such lists change.
_GLOBAL: Final = ipaddress.ip_network("2000::/3")
#: The end of an address of IPv6 that leads to one of IPv4 (ISATAP, RFC 5214), without the bit that varies.
_ISATAP: Final = 0x5EFE


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet: no private, loopback, link-local or multicast one, and none
    that leads to such a one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.sixtofour is not None or found.teredo is not None:
            return False
        is_isatap = found in _GLOBAL and (int(found) >> 32) & 0xFDFFFFFF == _ISATAP
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found in _NAT64 or is_isatap:
            found = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        elif found not in _GLOBAL:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


@frozen
class Destinations:
    """Where messages may be sent. Tests have another rule than the server."""

    scheme: str = "https"
    ports: frozenset[int] | None = frozenset({443})
    allows: Callable[[str], bool] = is_public

    def check(self, endpoint: str) -> None:
        """Raise InvalidArguments for an endpoint to which nothing may be sent. A name is looked up later, with each
        connection: it may lead elsewhere by then."""
        parts, host = _split(endpoint)
        if not host or parts.scheme != self.scheme or not _ADDRESS.fullmatch(endpoint):
            raise InvalidArguments(f"url must be the {self.scheme} address of a push service")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise InvalidArguments("url must be an address without a user and a fragment")
        if self.ports is not None and (parts.port or 443) not in self.ports:
            raise InvalidArguments("url must be at port 443")
        is_named = _is_address(host) or _NAME.fullmatch(host) is not None
        if not is_named or (_is_address(host) and not self.allows(host)):
            raise InvalidArguments("url must lead to a push service of the public internet, not into a private network")


def _split(endpoint: str) -> tuple[SplitResult, str]:
    """Return the parts of an address, and its host; an empty one for what is no address."""
    try:
        parts = urlsplit(endpoint)
        # It is read here, so that an impossible port is refused too.
        return parts, "" if parts.port == 0 else parts.hostname or ""
    except ValueError:
        return urlsplit(""), ""


def _is_address(host: str) -> bool:
    """Whether this stands for an IP address, in any of the forms that the system's resolver takes (0x7f.1)."""
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return host.rpartition(".")[2][:1].isdigit()


@frozen
class PushCalls:
    """Implements `PushOperations`. `key_file` is where the server's key is kept. `tell` announces a line on every
    channel."""

    store: Store
    reader: Reader
    key_file: Path
    now: Callable[[], datetime] = utc_now
    destinations: Destinations = field(factory=Destinations)
    tell: Callable[[str], None] = lambda line: None

    async def key(self) -> ServerKey:
        """Return the server's key; make it if there is none. Raises IpcError."""
        return await trio.to_thread.run_sync(server_key, self.key_file)

    async def public_key(self) -> str:
        return (await self.key()).public

    async def subscribe(
        self, endpoint: str, public: str, auth: str, label: str, by: str, channel: str
    ) -> PushSubscription:
        self.destinations.check(endpoint)
        BrowserKeys.read(public, auth)
        name = one_line(label)[:_LONGEST_LABEL] or "browser"
        made = PushSubscription(subscription_id(endpoint), endpoint, public, auth, by, channel, name, self.now())
        kept = await self.store.transact(partial(push_subscriptions.put, made=made))
        if kept.created_at == made.created_at:
            # It outlives the session at the page. Somebody who has that of another person is noticed here.
            self.tell(f"{by}'s {name} gets push messages from now on, over {kept.service}")
        return kept

    async def subscriptions(self) -> tuple[PushSubscription, ...]:
        return await self.reader.read(push_subscriptions.all)

    async def unsubscribe(self, prefix: str, by: str, channel: str) -> PushSubscription:
        return await self.store.transact(partial(_end, prefix=prefix, by=by, channel=channel, at=self.now()))

    async def forget(self, id: str) -> None:
        """Delete the subscription of a browser that its push service does not know any more."""
        await self.store.transact(
            partial(push_subscriptions.end, id=id, by="push service", channel="push", at=self.now())
        )


def _end(db: Database, prefix: str, by: str, channel: str, at: datetime) -> PushSubscription:
    ids = push_subscriptions.with_prefix(db, prefix) if prefix else ()
    ended = push_subscriptions.end(
        db, prefix if prefix in ids else only(list(ids), prefix, "push subscription"), by, channel, at
    )
    assert ended is not None, "read in the same transaction"
    return ended
