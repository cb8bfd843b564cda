"""A server at one moment, made up: with something of everything there is to tell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from actors import Info
from intercom.model.card import Card, CardKind
from intercom.model.chat_status import ChatStatus, ConnectionState, ConnectionStatus, OutboxStatus
from intercom.model.gateway_view import DownstreamStatus, DownstreamView
from intercom.model.process import AgentProcessState
from intercom.model.session import SessionStatus
from intercom.operators import metrics
from intercom.operators.metrics import Sources
from intercom.store.requests import Counts, Waiting

AT = datetime(2026, 11, 22, 4, 0, tzinfo=UTC)
SESSIONS = tuple(
    Info(f"session/{number}", f"session/{number}", "SessionActor", "running", mailbox=number) for number in range(3)
)
TREE = Info(
    "root",
    "root",
    "Supervisor",
    "running",
    children=(
        Info("store", "store", "Writer", "running", mailbox=7),
        Info("ctl", "ctl", "CtlListener", "down"),
        Info("sessions", "sessions", "DynamicSupervisor", "running", children=SESSIONS),
    ),
)
CENSUS = Counts(
    {CardKind.APPROVAL: Waiting(2, AT - timedelta(minutes=5)), CardKind.PROMPT: Waiting()},
    {CardKind.STEER: Waiting(4, AT), CardKind.TASK: Waiting()},
    {SessionStatus.ACTIVE: 3, SessionStatus.PAUSED: 0},
    {AgentProcessState.RUNNING: 2, AgentProcessState.WAITING: 1},
)
CHAT = ChatStatus(
    "C0123456789",
    ConnectionStatus(ConnectionState.UP, AT, reconnects=4, last_error=None, last_heard=None, in_hand=1),
    OutboxStatus({"card": 2, "log": 0}, 1, AT - timedelta(seconds=9), {"C0": "x"}, None),
)


async def _counts() -> Counts:
    return CENSUS


DOWNSTREAMS = (
    DownstreamView(
        "github",
        "http",
        "https://mcp.example.org",
        DownstreamStatus.READY,
        "it answers",
        AT,
        circuit="closed",
        running=2,
    ),
    DownstreamView(
        "files",
        "stdio",
        "npx",
        DownstreamStatus.OFFLINE,
        "kim has disabled it",
        AT,
        is_enabled=False,
        circuit="open",
        withheld=("write_file",),
    ),
)


async def _downstreams() -> Sequence[DownstreamView]:
    return DOWNSTREAMS


async def _tool_cards() -> Sequence[Card]:
    return (Card("tools-1", CardKind.TOOLS, "", "", "files offers other tools", AT),)


async def _chat() -> ChatStatus | None:
    return CHAT


SOURCES = Sources(
    tree=lambda: TREE,
    counts=_counts,
    policies=lambda: 1,
    agents=lambda: 5,
    chat=_chat,
    now=lambda: AT,
    own=lambda: metrics.figures(up=True, sessions=12),
    downstreams=_downstreams,
    tools=_tool_cards,
)
