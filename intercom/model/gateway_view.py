"""What people see of the gateway, and what they can do with it. Values, and the protocol of the service behind ctl.

A *downstream* is an MCP server behind the gateway. Costs are in the unit in which people write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from attrs import field, frozen

from intercom.model.card import Card
from intercom.model.decision import Signature, Verdict
from intercom.model.json_types import JsonObject


class DownstreamStatus(StrEnum):
    """Whether a downstream can be used. One that is disabled is offline."""

    READY = "ready"
    DEGRADED = "degraded"
    OFFLINE = "offline"


@frozen
class BudgetView:
    """The limits of a downstream, what is used of them, and what is left. None where there is no limit.

    `burst` calls may come at once if there is a rate. The limits of a day start again at `resets_at`.
    """

    downstream: str
    requests_per_second: float | None = None
    burst: int | None = None
    concurrency: int | None = None
    timeout_seconds: float | None = None
    daily_calls: int | None = None
    daily_cost: float | None = None
    calls_today: int = 0
    cost_today: float = 0.0
    running: int = 0
    burst_left: int | None = None
    concurrency_left: int | None = None
    calls_left: int | None = None
    cost_left: float | None = None
    resets_at: datetime | None = None


@frozen
class DownstreamView:
    """A downstream as `list` shows it. Its status is the same `since` that time, for the `reason`.

    `target` is its program or its host. `calls` and `errors` are those since the server started, `mean_seconds` is of
    the last 100 calls. `tools` is the number of tools that agents may have; `withheld` names those that nobody gets,
    because they are not as they were allowed. `disabled_by` is the person who disabled it. `needs_sign_in` says that it
    works again only when a person has signed in to it.
    """

    name: str
    transport: str
    target: str
    status: DownstreamStatus
    reason: str
    since: datetime
    is_enabled: bool = True
    disabled_by: str | None = None
    circuit: str = ""
    description: str = ""
    protocol_version: str = ""
    pid: int | None = None
    handshake_seconds: float | None = None
    calls: int = 0
    errors: int = 0
    running: int = 0
    mean_seconds: float | None = None
    last_call_at: datetime | None = None
    last_check_at: datetime | None = None
    last_error: str | None = None
    tools: int = 0
    withheld: tuple[str, ...] = ()
    needs_sign_in: bool = False


@frozen
class DownstreamList:
    """All downstreams by name. `faults` are those of the gateway's files, in sentences. `is_live` is False if no server
    runs: then this is what the files say."""

    downstreams: tuple[DownstreamView, ...]
    faults: tuple[str, ...] = ()
    is_live: bool = True


@frozen
class ParameterView:
    """An argument of a tool, as its schema says. `type` is for people: "string", "integer or null", "one of a, b"."""

    name: str
    type: str
    is_required: bool
    description: str = ""


@frozen
class ToolView:
    """A tool of a downstream. `name` is its own, `exposed_name` the one that agents call.

    `marks` are sentences about hidden characters and instructions in its definition. It was allowed, as its pin has it,
    at `allowed_at` by `allowed_by`; `sha256` is the pin's. `parameters` are only known of a tool that is shown alone.
    """

    name: str
    exposed_name: str
    description: str = ""
    is_withheld: bool = False
    is_read_only: bool = False
    marks: tuple[str, ...] = ()
    allowed_at: datetime | None = None
    allowed_by: str | None = None
    sha256: str | None = None
    parameters: tuple[ParameterView, ...] = ()


@frozen
class DownstreamDetail:
    """All about one downstream. `faults` are those of its file, which keeps running as it was before them."""

    summary: DownstreamView
    budget: BudgetView
    sharing: str
    expose: str
    capabilities: tuple[str, ...] = ()
    resources: int = 0
    prompts: int = 0
    classes: Mapping[str, tuple[str, ...]] = field(factory=dict)
    tools: tuple[ToolView, ...] = ()
    faults: tuple[str, ...] = ()


class HealthStatus(StrEnum):
    """The result of a test. A degraded downstream works, but something should be done."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@frozen
class HandshakeAttempt:
    """One handshake of a test, in seconds with the start of the program. `fault` says why it failed."""

    version: str
    seconds: float
    fault: str | None = None


@frozen
class HealthReport:
    """The result of a test, over connections that were made for it.

    `attempts` has a handshake in each protocol version. The first one that succeeds is that of the gateway itself. The
    other fields are about that connection. `list_seconds` is the time for all its lists. `stderr` is the end of what
    its program logged, and `output` the last lines of its output that were no messages; both are masked. `fault` names
    what is wrong, for programs, and `error` says it. `diagnosis` says what to do.
    """

    downstream: str
    at: datetime
    status: HealthStatus
    transport: str
    target: str
    attempts: tuple[HandshakeAttempt, ...] = ()
    handshake_seconds: float | None = None
    list_seconds: float | None = None
    protocol_version: str | None = None
    server: str | None = None
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    resources: int = 0
    prompts: int = 0
    stderr: str = ""
    output: tuple[str, ...] = ()
    fault: str | None = None
    error: str | None = None
    diagnosis: str | None = None


@frozen
class CheckedCall:
    """A person's own call that can be made, as far as is known. `arguments` is one JSON object."""

    downstream: str
    tool: str
    arguments: str


@frozen
class CallResult:
    """The result of a person's own call. `result` is the downstream's, with secrets masked; None if it is too long to
    be shown whole: `text` is its beginning then. `invocation_id` is that of its record."""

    downstream: str
    tool: str
    invocation_id: str
    seconds: float
    is_error: bool
    result: Mapping[str, Any] | None
    text: str = ""
    redacted: tuple[str, ...] = ()
    cost: float = 0.0


@frozen
class CallLine:
    """One recorded call. `entry` numbers it in the audit log. `decided_by` says who decided about it and over which
    channel, if somebody was asked; `request_id` is that of the card. `client` is the name that the session's client
    claims."""

    entry: int
    id: str
    at: datetime
    agent: str
    role: str
    downstream: str
    tool: str
    status: str
    seconds: float | None = None
    is_cached: bool = False
    is_redacted: bool = False
    cost: float = 0.0
    error: str | None = None
    session_id: str = ""
    request_id: str | None = None
    decided_by: str | None = None
    client: str = ""


@frozen
class CallTail:
    """Some recorded calls, the oldest first. `end` is the number of the last entry: later ones come after it."""

    calls: tuple[CallLine, ...]
    end: int


@frozen
class ToolDecision:
    """What a role may do with one tool: `effect` is allow, ask or deny. `rule` decides, None if none names the tool."""

    downstream: str
    tool: str
    effect: str
    rule: str | None = None


@frozen
class RoleExplanation:
    """What a role may do. `text` explains it for people; it is empty for more than one tool."""

    role: str
    decisions: tuple[ToolDecision, ...]
    text: str = ""


@frozen
class EvidenceLine:
    """A kept result without its data, which has `size` bytes as JSON. `invocation_id` is that of the call's record."""

    id: str
    at: datetime
    session_id: str
    downstream: str
    tool: str
    invocation_id: str
    size: int
    is_redacted: bool = False


@frozen
class EvidenceFound:
    """Kept results: a list of them, newest first; or, if single ones were asked for, these in full, in that order.

    `exports` are JSON objects as a finding refers to them.
    """

    lines: tuple[EvidenceLine, ...] = ()
    exports: tuple[JsonObject, ...] = ()


class LintLevel(StrEnum):
    """A fault stops something from working; a warning is a likely mistake."""

    FAULT = "fault"
    WARNING = "warning"


@frozen
class LintFinding:
    """Something about the gateway's files that a person should look at."""

    level: LintLevel
    text: str


class GatewayOperations(Protocol):
    """What people do with the gateway.

    `name` is the name of a downstream. Raises NotFound for one that is not configured. `by` is the person's name. `act`
    names the action: repeated, it is answered as the first time, and done once; None is always a new one.
    """

    async def cards(self) -> tuple[Card, ...]:
        """Return the cards of changed tools that wait for a person, oldest first."""
        ...

    async def find_card(self, prefix: str) -> Card | None:
        """Return a card of changed tools, open or closed, by its id or a unique start of it."""
        ...

    async def decide_card(
        self, card: Card, verdict: Verdict, admit: Callable[[Verdict, Card, datetime], Signature | None]
    ) -> Card:
        """Answer such a card. `admit` checks the signature. The first verdict wins: raises AlreadyDecided for others,
        and what `admit` raises."""
        ...

    async def list(self) -> Sequence[DownstreamView]:
        """Return all downstreams by name."""
        ...

    async def faults(self) -> Sequence[str]:
        """Return the faults of the gateway's files, in sentences; first the one because of which nobody has a role."""
        ...

    async def show(self, name: str, tool: str | None = None) -> DownstreamDetail:
        """Return all about a downstream. Long descriptions of its tools are cut, and end with "..."; that of `tool` is
        whole, and then there is no other tool. Raises NotFound."""
        ...

    async def test(self, name: str) -> HealthReport:
        """Make a new connection to a downstream, in both protocol versions, and say what is wrong and what to do."""
        ...

    async def check(self, name: str, tool: str, arguments: str | None) -> CheckedCall:
        """Check a person's own call before they sign it. `arguments` is a JSON object, a JSON list of NAME=VALUE, or
        one NAME=VALUE. Nothing is sent. Raises what `call` raises for a call that is refused."""
        ...

    async def call(self, name: str, tool: str, arguments: str | None, by: str, act: str | None = None) -> CallResult:
        """Call a tool for a person. `arguments` are as `check` takes them.

        No role counts, and nobody is asked. Budget and breaker count, and the call is recorded. Raises InvalidArguments
        for arguments that are none, and IntercomError for a call that was refused, failed, or may have been made by an
        earlier server.
        """
        ...

    async def set_enabled(
        self, name: str, enabled: bool, by: str, signature: Signature | None = None
    ) -> DownstreamView:
        """Disable a downstream until it is enabled again, also over restarts. Raises InvalidState if its file disables
        it."""
        ...

    async def tail(self, name: str | None = None, *, start: int | None = None, limit: int = 50) -> CallTail:
        """Return the first `limit` calls after the entry `start`; without it, the newest ones."""
        ...

    async def evidence(
        self, ids: Sequence[str] = (), *, session: str = "", name: str = "", tool: str = "", limit: int = 50
    ) -> EvidenceFound:
        """Return the kept results with these ids, or unique starts of them. Without ids, list the newest `limit`: of
        sessions whose id begins with `session`, of a downstream, and of a tool of it, if these are given. Raises
        NotFound and Ambiguous for an id, and InvalidArguments for too many."""
        ...

    async def explain(self, role: str, name: str | None = None, tool: str | None = None) -> RoleExplanation:
        """Explain what a role may do with a tool; without `tool`, with all tools of a downstream; without `name`, of
        all downstreams. Raises NotFound for an unknown role or downstream, if no single tool is named."""
        ...

    async def budgets(self) -> Sequence[BudgetView]: ...

    async def lint(self) -> Sequence[LintFinding]:
        """Return the faults of the gateway's files, then what is likely a mistake in them."""
        ...
