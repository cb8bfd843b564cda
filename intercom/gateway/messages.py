"""The protocol between the parts of the gateway: what an actor of a downstream takes, and what they hand each other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import trio
from attrs import field, frozen

from actors import Request
from intercom.gateway.breaker import Breaker, Event, Failure
from intercom.gateway.budgets import Allowed, Remaining, Usage
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.pins import Mark
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json, JsonObject

#: The supervisor of the downstreams' actors, and the actor that reads their configuration.
DOWNSTREAMS = "downstreams"
GATEWAY = "gateway"


def downstream_name(name: str) -> str:
    """Return the name of the actor of a downstream."""
    return f"downstream/{name}"


class RpcError(Exception):
    """A JSON-RPC error, as a downstream or an agent's client gave it. `data` is None if it had none."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class CallFailed(Exception):
    """A request to a downstream has no answer. `failure` is what the breaker counts. `was_sent` says whether the
    downstream may have received it: what was not sent had no effect. `reason` is a clause for people, as in "the
    process exited with status 1"."""

    def __init__(self, failure: Failure, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.failure = failure
        self.reason = reason
        self.was_sent = was_sent


class GatewayRefused(IntercomError):
    """A call was refused before it was sent. `status` is that of its record, `retry_after` (seconds) when it may be
    repeated, None if repeating does not help. `request_id` is the request that a person has rejected, if one has."""

    def __init__(
        self,
        status: InvocationStatus,
        message: str,
        retry_after: float | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=status.value)
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id


class InvocationStatus(StrEnum):
    """How a call of a downstream's tool ended. The first four are the spec's."""

    SUCCESS = "success"
    ERROR = "error"
    PERMISSION_DENIED = "permission_denied"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    DISABLED = "disabled"
    CIRCUIT_OPEN = "circuit_open"
    OPERATOR_DENIED = "operator_denied"
    #: The agent has no workspace, and so no session.
    WORKSPACE_REFUSED = "workspace_refused"
    #: The agent cancelled it.
    CANCELLED = "cancelled"
    #: The server ended while it ran. Whether it had its effect is not known.
    INTERRUPTED = "interrupted"


class AgentPeer(Protocol):
    """The client behind an agent, as a downstream may reach it while one of the agent's requests runs."""

    @property
    def id(self) -> str:
        """Tells agents apart: no two connections have the same."""

    @property
    def capabilities(self) -> JsonObject:
        """The client's capabilities, as it declared them."""

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Never waits; a client that is gone or too slow misses it."""

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request and return its result. Raises RpcError, also if the client cannot be asked."""


class CallConnection(Protocol):
    """The connection to a downstream, as the task of a call uses it (`Connection`)."""

    @property
    def is_lost(self) -> bool:
        """Whether it works no more."""

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        call: str = "",
        agent: AgentPeer | None = None,
        progress_token: str | int | None = None,
        modern_agent: bool = False,
        limit: trio.CancelScope | None = None,
    ) -> JsonObject:
        """Send a request and return its result. Raises RpcError and CallFailed."""


@frozen
class Invoked:
    """The result of a request, as the downstream gave it. `remaining` is what is left of its budget, None for a request
    that is not counted; `cost` is what the call cost, in millionths."""

    result: JsonObject
    remaining: Remaining | None = None
    cost: int = 0


@frozen(eq=False)
class Run:
    """One call that was accepted. `allowed` is what it counts, None if it is not counted; `ends_at` is when its time is
    over, on Trio's clock. `attempts` says on how many connections it was tried, `was_sent` whether the downstream may
    have received it over an earlier one. It goes over `connection`, the actor's one with this `number`, None while that
    is made. `own` is the number of the agent's own connection, if it is on one."""

    admit: Admit
    allowed: Allowed | None
    ends_at: float
    config: DownstreamConfig
    attempts: int = 0
    was_sent: bool = False
    own: int | None = None
    connection: CallConnection | None = None
    number: int = 0

    def over(self, config: DownstreamConfig, connection: CallConnection, number: int, own: int | None) -> Run:
        """Return it for one more attempt, over this connection."""
        attempts = self.attempts + 1
        return Run(self.admit, self.allowed, self.ends_at, config, attempts, self.was_sent, own, connection, number)


@frozen(eq=False)
class Admit(Request[Run]):
    """Admit a request to the downstream, as soon as there is a connection for it.

    The actor checks the budget and the breaker (for `counts`), and raises GatewayRefused if they refuse; it raises
    CallFailed if the agent is gone before there is a connection. `call` names the request: no other may run under this
    name. `progress_token` is the agent's own token; its progress goes to `agent` under this token. `modern_agent` says
    that the agent speaks 2026-07-28.
    """

    call: str
    method: str
    params: JsonObject
    agent: AgentPeer | None = None
    progress_token: str | int | None = None
    modern_agent: bool = False
    counts: bool = True

    @property
    def tool(self) -> str:
        """The name of the tool that is called, empty for other requests."""
        return str(self.params.get("name", ""))


@frozen
class RequireAdmission(Request[None]):
    """Raise GatewayRefused if a call of this tool would be refused now: because the downstream is disabled, by the
    breaker, or by the budget. Nothing is counted."""

    tool: str


@frozen
class CallEnded:
    """A call has ended. `event` is for the breaker, None if it says nothing of the downstream. `error` continues "the
    last call ...". `was_sent` says whether the downstream may have received it."""

    run: Run
    event: Event | None
    seconds: float
    error: str | None = None
    was_sent: bool = True


@frozen
class AdmitAgain(Request[Run]):
    """Admit a call again whose connection was lost. As `Admit`, but it is counted already."""

    ended: CallEnded


@frozen
class Cancel:
    """The task that carried this call, or waited for its admission, has given up. `was_sent` as in `CallEnded`."""

    admit: Admit
    was_sent: bool


@frozen
class SignInChanged:
    """A person has signed in to the downstream, or out: connect again now, with what is stored."""


@frozen
class SetLogLevel:
    """Ask the downstream for log messages of this severity and above, if it logs."""

    level: str


@frozen
class Watch:
    """Have the downstream tell when one of the resources with these addresses changes, and no other."""

    addresses: frozenset[str]


@frozen
class ResourcesChanged:
    """Resources of a downstream that agents watch have changed."""

    name: str
    addresses: frozenset[str]


@frozen
class AgentGone:
    """An agent's connection is closed: a connection that only this agent used is closed too."""

    agent: str


@frozen
class Offer:
    """What a downstream offers agents now: its tools as allowed (pins applied), and its other lists. `capabilities` are
    what its server declared, `version` the protocol version in use; both are empty before the first handshake."""

    tools: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    capabilities: Mapping[str, Json] = field(factory=dict)
    version: str = ""
    instructions: str = ""


@frozen
class OfferChanged:
    """A downstream's offer has changed. The gateway's actor tells agents, and makes the catalog again."""

    name: str
    offer: Offer


@frozen
class Downstream:
    """The state of one downstream, for people."""

    config: DownstreamConfig
    enabled: bool
    breaker: Breaker
    offer: Offer
    usage: Usage
    remaining: Remaining
    calls: int = 0
    errors: int = 0
    running: int = 0
    mean_seconds: float | None = None
    last_call_at: datetime | None = None
    last_check_at: datetime | None = None
    last_error: str | None = None
    pid: int | None = None
    handshake_seconds: float | None = None
    since_seconds: float = 0.0
    withheld: tuple[str, ...] = ()
    marks: Mapping[str, tuple[Mark, ...]] = field(factory=dict)


@frozen
class Describe(Request[Downstream]):
    """Return the state of the downstream."""


@frozen
class SetEnabled(Request[Downstream]):
    """Enable the downstream, or disable it: a disabled one has no connection and refuses calls with `disabled`."""

    enabled: bool


@frozen
class Reload(Request[None]):
    """Read the gateway's directory now. Answered when its downstreams are started or ended."""


@frozen
class Configure:
    """Use this configuration from now on. The connection is made again if anything of it has changed."""

    config: DownstreamConfig


@frozen
class Allow:
    """A person has decided about the changed tools whose pins have this hash: offer them from now on, or keep
    withholding them."""

    sha256: str
    accepted: bool
