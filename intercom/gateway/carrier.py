"""What a connection needs of a transport: the protocol `Carrier`, and the values that a carrier hands over.

A carrier moves messages, and knows nothing of their meaning beyond the ids of requests. `stdio_carrier` has the one
for child processes, `http_carrier` those for HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

from attrs import frozen

from intercom.gateway.breaker import Failure
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.model.json_types import JsonObject

#: The longest message that a downstream may send, in bytes.
LONGEST_MESSAGE: Final = 16 * 1024 * 1024


class CarrierLost(Exception):
    """A carrier works no more. `reason` is a clause for people, as in "the process exited with status 1". It contains
    nothing that a person or a downstream wrote."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@frozen
class Received:
    """A message that came in the response to the request with this id. `data` is one JSON text."""

    data: bytes
    request: int


@frozen
class RequestFailed:
    """A request has no answer and will get none, but the carrier still works: a POST failed.

    `reason` is a clause as in `CarrierLost`. `was_sent` says whether the downstream may have received the request.
    """

    id: int
    failure: Failure
    reason: str
    was_sent: bool = True


#: What `Carrier.receive` returns. Bytes are a message that no single request is known for.
Incoming: TypeAlias = bytes | Received | RequestFailed


@frozen
class CarrierDetail:
    """What a carrier knows about its end, for people.

    `exit_status` is that of the process, or minus the signal that ended it; None while it runs. `stderr` is the end of
    what the process wrote there, without control characters. `output` has the last lines of the standard output that
    were no messages. Both may contain secrets: mask them before they are shown or stored. `http_status` is the status
    of the last response that was a failure.
    """

    pid: int | None = None
    exit_status: int | None = None
    stderr: str = ""
    output: tuple[str, ...] = ()
    http_status: int | None = None


class Carrier(Protocol):
    """Moves JSON messages to one downstream and back. An async context manager opens it, and ends everything that it
    began, in whatever way the block ends."""

    async def send(self, message: JsonObject) -> None:
        """Send one message; several tasks may send at once.

        A carrier over a stream returns when the message is written. One over HTTP returns when a task of its own has
        it, and later failures are a `RequestFailed`. If the call is cancelled, the message is sent whole or not at all.

        Raises CarrierLost if the message was not sent and no other can be. Raises ValueError if it is not JSON.
        """

    async def receive(self) -> Incoming:
        """Return what comes next: one JSON text (a message, or an array of messages), or the failure of a request.
        It need not be valid JSON. One task receives. Raises CarrierLost at the end, each time it is called."""

    def cancel(self, id: int) -> bool:
        """Withdraw a request whose answer is not wanted any more. Returns True if nothing more needs to be sent: the
        message was still unsent, or closing its response tells the downstream."""

    def negotiated(self, version: str) -> None:
        """Take note of the protocol version that both sides agreed on."""

    def detail(self) -> CarrierDetail:
        """Return what is known about the carrier's end so far."""


#: Opens a carrier for an expanded configuration. The block raises CarrierLost if it cannot be opened.
OpenCarrier: TypeAlias = Callable[[DownstreamConfig], AbstractAsyncContextManager[Carrier]]
