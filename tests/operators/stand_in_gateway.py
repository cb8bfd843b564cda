"""A stand-in for what people do with the gateway: downstreams in a dict, with the refusals that the real one gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve

from intercom.model.card import Card
from intercom.model.decision import Signature, Verdict
from intercom.model.errors import InvalidArguments, NotFound
from intercom.model.gateway_view import (
    BudgetView,
    CallLine,
    CallResult,
    CallTail,
    CheckedCall,
    DownstreamDetail,
    DownstreamStatus,
    DownstreamView,
    EvidenceFound,
    EvidenceLine,
    HandshakeAttempt,
    HealthReport,
    HealthStatus,
    LintFinding,
    LintLevel,
    RoleExplanation,
    ToolDecision,
    ToolView,
)
from intercom.model.json_types import JsonObject

START = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)

READY = DownstreamView(
    "github",
    "http",
    "https://mcp.example.org",
    DownstreamStatus.READY,
    "its handshake succeeded",
    START,
    circuit="closed",
    description="Issues\x1b[2J of ours",
    protocol_version="2026-07-28",
    handshake_seconds=0.25,
    calls=7,
    errors=1,
    mean_seconds=0.0123,
    last_call_at=START,
    tools=2,
    withheld=("delete_repo",),
)
OFFLINE = DownstreamView(
    "files",
    "stdio",
    "npx",
    DownstreamStatus.OFFLINE,
    "the connection could not be made: the process exited with status 1",
    START,
    circuit="open",
    last_error="the connection could not be made: the process exited with status 1 (it\x1b[2J broke)",
)
BUDGET = BudgetView(
    "github",
    requests_per_second=10.0,
    burst=20,
    concurrency=4,
    timeout_seconds=30.0,
    daily_calls=100,
    daily_cost=2.5,
    calls_today=7,
    cost_today=0.07,
    burst_left=19,
    concurrency_left=4,
    calls_left=93,
    cost_left=2.43,
    resets_at=START + timedelta(hours=12),
)
TOOLS = (
    ToolView(
        "delete_repo",
        "github__delete_repo",
        is_withheld=True,
        marks=('description tells the model when to call tools: "call this\x1b[2J first"',),
    ),
    ToolView("search", "github__search", "Search code", False, True, (), START, "kim", "ab" * 32),
)
HEALTHY = HealthReport(
    "github",
    START,
    HealthStatus.HEALTHY,
    "http",
    "https://mcp.example.org",
    (HandshakeAttempt("2026-07-28", 0.25), HandshakeAttempt("2025-11-25", 0.3, "it speaks 2026-07-28 instead")),
    0.25,
    0.02,
    "2026-07-28",
    "github\x1b[2J 1.0",
    ("tools",),
    ("search",),
)
UNHEALTHY = HealthReport(
    "files",
    START,
    HealthStatus.UNHEALTHY,
    "stdio",
    "npx",
    (HandshakeAttempt("2026-07-28 and older", 0.4, "the process exited with status 1"),),
    stderr="starting\nFatal:\x1b[2J no\n",
    output=("Welcome",),
    fault="exits",
    error="files cannot be used: the process exited with status 1",
    diagnosis="run its command in a terminal",
)
DEGRADED = evolve(HEALTHY, downstream="noisy", status=HealthStatus.DEGRADED, fault="noisy", diagnosis="make it quiet")


EVIDENCE = EvidenceLine("e1d2c3b4-0", START, "s-12345678", "github", "sea\x1b[2Jrch", "c-1", 29, True)


def evidence_export(id: str) -> JsonObject:
    """A kept result whose data is nested deeply, as JSON of others may be."""
    deep: JsonObject = {"text": "bottom"}
    for _ in range(60):
        deep = {"in": deep}
    return {
        "id": id,
        "timestamp": "2026-11-25T12:00:00.000000+00:00",
        "mcp_tool_name": "github",
        "mcp_method": "sea\x1b[2Jrch",
        "mcp_invocation_id": "c-1",
        "run_id": "s-12345678",
        "data": {"content": [{"type": "text", "text": "found\x1b[2J it"}], "structuredContent": deep},
        "metadata": {"redacted": True, "cache_key": "k"},
    }


def call_line(entry: int, **more: Any) -> CallLine:
    fields: dict[str, Any] = {"agent": "claude 1", "role": "dev", "downstream": "github", "tool": "search"}
    fields |= {"status": "success", "seconds": 0.012}
    return CallLine(entry, f"c-{entry}", START + timedelta(seconds=entry), **{**fields, **more})


class StandInGateway:
    """What it was asked to do stands in `acts`."""

    def __init__(self) -> None:
        self.views = {each.name: each for each in (OFFLINE, READY)}
        self.reports = {each.downstream: each for each in (HEALTHY, UNHEALTHY, DEGRADED)}
        self.calls: list[CallLine] = []
        self.acts: list[tuple[Any, ...]] = []
        self.fault_sentences: list[str] = []

    async def cards(self) -> tuple[Card, ...]:
        return ()

    async def find_card(self, prefix: str) -> Card | None:
        return None

    async def decide_card(self, card: Card, verdict: Verdict, admit: Any) -> Card:
        self.acts.append(("decide_card", card.id, verdict.decision))
        return card

    def _found(self, name: str) -> DownstreamView:
        if name not in self.views:
            raise NotFound(f"no MCP server is called {name!r}; there are: {', '.join(self.views)}")
        return self.views[name]

    async def list(self) -> Sequence[DownstreamView]:
        return [*self.views.values()]

    async def faults(self) -> Sequence[str]:
        return self.fault_sentences

    async def show(self, name: str, tool: str | None = None) -> DownstreamDetail:
        classes = {"read": ("get_*", "search")}
        tools = tuple(each for each in TOOLS if tool in (None, each.name))
        return DownstreamDetail(self._found(name), BUDGET, "all", "all", ("tools",), 1, 2, classes, tools, ("a fault",))

    async def test(self, name: str) -> HealthReport:
        if name not in self.reports:
            self._found(name)
        return self.reports[name]

    async def check(self, name: str, tool: str, arguments: str | None) -> CheckedCall:
        self._found(name)
        if tool == "serach":
            raise NotFound(f"{name} has no tool 'serach'; did you mean search?", code="unknown_tool")
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            raise InvalidArguments("the arguments are not JSON") from None
        given = dict(each.split("=", 1) for each in given) if isinstance(given, list) else given
        return CheckedCall(name, tool, json.dumps(given))

    async def call(self, name: str, tool: str, arguments: str | None, by: str, act: str | None = None) -> CallResult:
        self._found(name)
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            raise InvalidArguments("the arguments are not JSON") from None
        self.acts.append(("call", name, tool, given, by, act))
        block = {"type": "text", "text": f"found\x1b[2J {given}"}
        return CallResult(name, tool, "0f1e2d3c-1", 0.5, tool == "fail", {"content": [block]}, "", ("token",), 0.01)

    async def set_enabled(
        self, name: str, enabled: bool, by: str, signature: Signature | None = None
    ) -> DownstreamView:
        self.acts.append(("set_enabled", name, enabled, by))
        changed = evolve(self._found(name), is_enabled=enabled, disabled_by=None if enabled else by)
        self.views[name] = changed
        return changed

    async def tail(self, name: str | None = None, *, start: int | None = None, limit: int = 50) -> CallTail:
        found = [each for each in self.calls if name in (None, each.downstream) and each.entry > (start or 0)]
        shown = found[:limit] if start is not None else found[-limit:]
        return CallTail(tuple(shown), shown[-1].entry if shown else start or 0)

    async def evidence(
        self, ids: Sequence[str] = (), *, session: str = "", name: str = "", tool: str = "", limit: int = 50
    ) -> EvidenceFound:
        self.acts.append(("evidence", ids, session, name, tool, limit))
        if not ids:
            return EvidenceFound((EVIDENCE,) if name in ("", EVIDENCE.downstream) else ())
        if "nosuch" in ids:
            raise NotFound("no evidence has an id that begins with 'nosuch'")
        return EvidenceFound(exports=tuple(evidence_export(id) for id in ids))

    async def explain(self, role: str, name: str | None = None, tool: str | None = None) -> RoleExplanation:
        if role == "nobody":
            raise NotFound("no role is called 'nobody'; there are: dev")
        if name is not None and tool is not None:
            cell = ToolDecision(name, tool, "allow", "allow github.*")
            return RoleExplanation(role, (cell,), f"Allowed: the rule allow github.* decides about {name}.{tool}.")
        cells = [ToolDecision("github", "search", "allow", "allow github.*"), ToolDecision("files", "rm", "deny")]
        return RoleExplanation(role, tuple(each for each in cells if name in (None, each.downstream)))

    async def budgets(self) -> Sequence[BudgetView]:
        return [BudgetView("files", timeout_seconds=30.0), BUDGET]

    async def lint(self) -> Sequence[LintFinding]:
        return [LintFinding(LintLevel.FAULT, "a.json: is not JSON"), LintFinding(LintLevel.WARNING, "too\x1b[2J broad")]
