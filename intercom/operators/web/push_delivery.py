"""One attempt to send a push message: a request to the push service that a browser has named.

It goes to allowed addresses only. Loaded when the first message is sent: httpcore2 takes a while to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

import httpcore2
import trio
from attrs import frozen

from intercom.model.errors import InvalidArguments
from intercom.model.web import PushSubscription
from intercom.operators.web.push_encryption import BrowserKeys, ServerKey, encrypt
from intercom.operators.web.push_subscriptions import Destinations

#: How long a push service keeps a message for a browser that is away, in seconds.
KEPT_SECONDS: Final = 4 * 3600
#: The time limit of one attempt, in seconds.
_ATTEMPT_SECONDS: Final = 20.0


class Outcome(Enum):
    """How an attempt ended. GONE: the browser has unsubscribed. LATER: it may work in a while. REFUSED: it will not."""

    SENT = "sent"
    GONE = "gone"
    LATER = "later"
    REFUSED = "refused"


@frozen
class Attempt:
    """The end of one attempt, with why it failed, and how long its push service asks to wait, in seconds."""

    outcome: Outcome
    why: str = ""
    after: float = 0.0


class _NotAllowed(Exception):
    """A push service's name leads to an address to which nothing may be sent."""


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses only. A name is looked up here, once, and what was checked is connected to: an
    answer that changes between the two (DNS rebinding) changes nothing."""

    def __init__(self, allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self._network = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore2.ConnectError(f"its name cannot be looked up ({error.strerror})") from None
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        if not addresses or not all(map(self._allows, addresses)):
            raise _NotAllowed
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)


async def send(
    subscription: PushSubscription,
    text: bytes,
    key: ServerKey,
    destinations: Destinations,
    contact: str | None,
    now: datetime,
) -> Attempt:
    """Send a message to a browser's push service, once. Redirects are not followed."""
    try:
        destinations.check(subscription.endpoint)
        body = encrypt(text, BrowserKeys.read(subscription.public, subscription.auth))
    except InvalidArguments as fault:
        return Attempt(Outcome.REFUSED, fault.message)
    headers: dict[bytes | str, bytes | str] = {
        "Host": urlsplit(subscription.endpoint).netloc,
        "Authorization": key.authorization(subscription.endpoint, contact, now),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(body)),
        "TTL": str(KEPT_SECONDS),
        "Urgency": "high",
        # One that a browser has not got yet is replaced by the next one, which tells how many wait in all.
        "Topic": "waiting",
    }
    try:
        with trio.fail_after(_ATTEMPT_SECONDS):
            network = _CheckedNetwork(destinations.allows)
            async with (
                httpcore2.AsyncConnectionPool(network_backend=network) as pool,
                pool.stream("POST", subscription.endpoint, headers=headers, content=body) as response,
            ):
                return _outcome(response.status, response.headers, now)
    except _NotAllowed:
        return Attempt(Outcome.REFUSED, "its name leads into a private network")
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, trio.TooSlowError) as fault:
        return Attempt(Outcome.LATER, type(fault).__name__)
    except (httpcore2.UnsupportedProtocol, ValueError, OSError) as fault:
        return Attempt(Outcome.REFUSED, type(fault).__name__)


def _outcome(status: int, headers: Iterable[tuple[bytes, bytes]], now: datetime) -> Attempt:
    why = f"it answered {status}"
    if 200 <= status < 300:
        return Attempt(Outcome.SENT)
    if status in (404, 410):
        return Attempt(Outcome.GONE, why)
    if status == 429 or status >= 500:
        said = next((value for name, value in headers if name.lower() == b"retry-after"), b"")
        return Attempt(Outcome.LATER, why, _seconds(said.decode("latin-1"), now))
    return Attempt(Outcome.REFUSED, why)


def _seconds(text: str, now: datetime) -> float:
    """Return how long a Retry-After asks to wait, in seconds; 0 for one that says nothing."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
