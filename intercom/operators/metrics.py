"""`/healthz` and `/metrics`: whether this server does its work, and its figures for Prometheus.

`Counted` counts what has happened since the start. The gauges are collected when somebody asks.
"""

from __future__ import annotations

import collections
import json
import logging
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus

import trio
from attrs import define, field, frozen
from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from actors import Info as Tree
from actors import events
from intercom._version import __version__
from intercom.model.card import Card
from intercom.model.chat_status import ChatStatus, ConnectionState
from intercom.model.decision import Decision
from intercom.model.errors import ERROR_CODES, IntercomError
from intercom.model.gateway_view import DownstreamStatus, DownstreamView
from intercom.model.json_types import JsonObject
from intercom.model.metrics import (
    Answer,
    Committed,
    DecisionTakenBack,
    Delivered,
    DownstreamCalled,
    HttpFailed,
    Measure,
    Page,
    Settled,
    ToolCalled,
)
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService
from intercom.sessions.request_kinds import ELICITED, FORCE, GRANTED, INBOX
from intercom.sessions.session.steering import CHANNEL as STEERED
from intercom.store.requests import Counts, counts
from intercom.store.store_and_reader import PROBE_SECONDS, STORE_FAULTS, Store

#: The label for any name that matches no known pattern.
OTHER = "other"
#: Groups with few members, each with its own name. In other groups the members are sessions, paths or connections, of
#: which there may be thousands.
_NAMED = frozenset({"slack"})
_WORD = re.compile(r"[a-z][a-z_]{0,30}")


def family(name: str) -> str:
    """Return the label of an actor: `session` for `session/3f2a...`, `slack/outbox` for itself, "other" for any unknown
    form."""
    head, _, rest = name.partition("/")
    if not _WORD.fullmatch(head):
        return OTHER
    return name if head in _NAMED and _WORD.fullmatch(rest) else head


#: How many requests are remembered, so that a repeated report is counted once.
REMEMBERED = 500

_CALL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800, 3600, 86400)
_WAIT = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 43200, 86400)
_WAY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 86400)
_COMMIT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_WORKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_OUTCOMES = frozenset({"ok", "pending", "paused", "task", "cancelled", *ERROR_CODES})
_DECISIONS = frozenset({*(each.value for each in Decision), "expired", "interrupted"})
_STATUSES = frozenset(str(each.value) for each in HTTPStatus if each.value >= HTTPStatus.BAD_REQUEST)
#: The statuses of a downstream's calls, and what stands for them if the cache answers.
_CALL_STATUSES = frozenset(
    {"success", "error", "permission_denied", "rate_limited", "timeout", "disabled", "circuit_open"}
    | {"operator_denied", "workspace_refused", "cancelled", "interrupted", "cached"}
)
#: Those of calls that were sent.
_SENT = frozenset({"success", "error", "timeout", "cancelled"})
#: The channels over which people decide. Nobody knows whether a person answered a dialog of an agent's own client.
_PEOPLE = frozenset({Channel.CTL, Channel.WEB, Channel.SLACK, Channel.EMBED})
#: All that decides, and "none" for a request that ended undecided.
_CHANNELS = frozenset({*_PEOPLE, ELICITED, "policy", GRANTED, FORCE, "timeout", STEERED, INBOX, "none"})

#: The events of actors that are counted: the name of the metric, and its help text.
_EVENTS: dict[type, tuple[str, str]] = {
    events.ActorCrashed: ("actor_crashes", "Actors that ended with an exception."),
    events.ActorRestarted: ("actor_restarts", "Actors that were started again after a crash."),
    events.SupervisorGaveUp: ("supervisor_gave_up", "Supervisors that went over their restart limit."),
    events.MailboxOverflowed: ("mailbox_overflows", "Messages that a full mailbox refused or dropped."),
    events.DeadLettered: ("dead_letters", "Messages without a recipient."),
    events.StopOverran: ("actor_stops_overran", "Actors that did not stop in time and were cancelled."),
    events.StepTooLong: ("loop_blocked", "Steps that kept the event loop for more than 100 ms."),
}


class Counted:
    """Counts into `registry`. Both hooks may be called from any thread; neither waits nor raises."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(f"intercom_{name}", doc, labels, registry=registry)

        def histogram(name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"intercom_{name}", doc, labels, buckets=buckets, registry=registry)

        self._calls = counter("tool_calls", "Tool calls that ended, by outcome.", "tool", "outcome")
        self._call_seconds = histogram(
            "tool_call_seconds", "How long tool calls took, waiting for a person included.", _CALL, "tool"
        )
        self._verdicts = counter(
            "verdicts", "Requests that ended, by decision and channel; those that were taken back count too.",
            "kind", "decision", "channel",
        )  # fmt: skip
        self._taken_back = counter(
            "verdicts_taken_back", "Decisions that were taken back, with their labels in intercom_verdicts_total.",
            "kind", "decision", "channel",
        )  # fmt: skip
        self._decided = histogram(
            "decision_seconds",
            "How long requests waited that a person decided.",
            _WAIT,
            "kind",
        )
        self._delivered = histogram("delivery_seconds", "How long decisions took to reach their agent.", _WAY, "kind")
        self._commit_seconds = histogram("store_commit_seconds", "How long commits of the database took.", _COMMIT)
        self._commit_works = histogram("store_commit_changes", "How many changes went into one commit.", _WORKS)
        self._http_errors = counter("http_errors", "HTTP requests answered with an error, by status.", "status")
        self._downstream_calls = counter(
            "gateway_calls", "Calls of downstreams' tools, by how they ended.", "downstream", "status"
        )
        self._downstream_seconds = histogram(
            "gateway_call_seconds", "How long calls took that were sent to a downstream.", _CALL, "downstream"
        )
        self._of_actors = {event: counter(*named, "actor") for event, named in _EVENTS.items()}
        self._seen: OrderedDict[tuple[type, str], None] = OrderedDict()

    def measured(self, measure: Measure) -> None:
        """Count a measure of the work for agents and people."""
        match measure:
            case ToolCalled(tool, outcome, seconds):
                name = tool or "unknown"
                self._calls.labels(name, _known(outcome, _OUTCOMES)).inc()
                self._call_seconds.labels(name).observe(seconds)
            case Settled(request_id, kind, outcome, channel, seconds):
                if self._is_new(measure, request_id):
                    self._verdicts.labels(kind.value, _known(outcome, _DECISIONS), _known(channel, _CHANNELS)).inc()
                    if channel in _PEOPLE:
                        self._decided.labels(kind.value).observe(seconds)
            case DecisionTakenBack(request_id, verdict_id, kind, outcome, channel):
                if self._is_new(measure, verdict_id):
                    self._taken_back.labels(kind.value, _known(outcome, _DECISIONS), _known(channel, _CHANNELS)).inc()
                    # The next decision about the request is counted too.
                    self._seen.pop((Settled, request_id), None)
            case Delivered(request_id, kind, seconds):
                if self._is_new(measure, request_id):
                    self._delivered.labels(kind.value).observe(seconds)
            case Committed(works, seconds):
                self._commit_works.observe(works)
                self._commit_seconds.observe(seconds)
            case DownstreamCalled(downstream, status, seconds, is_cached):
                status = "cached" if is_cached else _known(status, _CALL_STATUSES)
                self._downstream_calls.labels(downstream, status).inc()
                if status in _SENT:
                    self._downstream_seconds.labels(downstream).observe(seconds)
            case HttpFailed(status):
                self._http_errors.labels(_known(str(status), _STATUSES)).inc()

    def happened(self, event: events.Event) -> None:
        """Count an event of an actor; the hook for a system's events."""
        counter = self._of_actors.get(type(event))
        if counter is not None:
            counter.labels(family(event.target if isinstance(event, events.DeadLettered) else event.name)).inc()

    def _is_new(self, measure: Measure, request_id: str) -> bool:
        """Return whether this is the first report: a restarted session may repeat the reports of its last run."""
        key = type(measure), request_id
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True


def _known(value: str, values: frozenset[str]) -> str:
    return value if value in values else OTHER


#: How long an answer is cached, in seconds. Anybody may ask, and each check costs the store an empty transaction.
GOOD_SECONDS = 1.0


@define
class Health:
    """Answers `/healthz`. `tree` returns the current actor tree, `life` identifies this server run, and `clock` is the
    wall clock in seconds."""

    tree: Callable[[], Tree]
    store: Store
    life: str
    clock: Callable[[], float]
    _one: trio.Lock = field(factory=trio.Lock, init=False)
    _known: tuple[float, list[str]] = field(default=(-math.inf, []), init=False)

    async def answer(self) -> Answer:
        """Return 200 and the status, or 503 and the faults. Faults are described in general terms, because anybody may
        read them."""
        async with self._one:
            asked, faults = self._known
            if trio.current_time() - asked >= GOOD_SECONDS:
                faults = await self._faults()
                self._known = trio.current_time(), faults
        status = "failing" if faults else "ok"
        said: JsonObject = {
            "status": status,
            "version": __version__,
            "life": self.life,
            "uptime_seconds": self._uptime(),
            "store": "failing" if _STORE in faults else "ok",
            "faults": faults,
        }
        return Answer(503 if faults else 200, "application/json", json.dumps(said).encode() + b"\n")

    async def _faults(self) -> list[str]:
        faults = [f"{name} is {state}" for name, state in _parts(self.tree()) if state != "running"]
        try:
            await self.store.transact(_nothing, timeout=PROBE_SECONDS)
        except STORE_FAULTS:
            faults.append(_STORE)
        return faults

    def _uptime(self) -> float:
        started = self.tree().started_at
        return 0.0 if started is None else round(max(0.0, self.clock() - started), 3)


_STORE = "the database cannot be written; see the server's log, or agent-intercom doctor"


def _nothing(_db: object) -> None:
    """Change nothing. The transaction succeeds only if the writer runs and the database is open for writing."""


def _parts(root: Tree) -> list[tuple[str, str]]:
    """Return the parts of the server with their state. Actors below them restart without any effect on health."""
    server = next((child for child in root.children if child.id == "server"), None)
    if server is None or server.state != "running":
        return [("the server", "starting or stopping")]
    return [(part.id, part.state) for part in server.children]


Metric = CounterMetricFamily | GaugeMetricFamily


@frozen
class Present:
    """The state at one moment. `counts` is None if the database could not be read, `chat` if no chat channel is set up.
    `own` holds figures of other parts, by the metric's name (without the prefix) and its help text. `downstreams` are
    those of the gateway."""

    at: datetime
    tree: Tree
    counts: Counts | None
    policies: int
    agents: int
    tools: int = 0
    chat: ChatStatus | None = None
    own: Mapping[tuple[str, str], float] = {}
    downstreams: Sequence[DownstreamView] = ()


class Moment(Collector):
    """Collects the `Present` in `now`; yields nothing until the first one."""

    now: Present | None = None

    def collect(self) -> Iterator[Metric]:
        if self.now is not None:
            yield from families(self.now)


def families(now: Present) -> Iterator[Metric]:
    """Yield all gauges of a moment."""
    yield from _actors(now.tree)
    yield _gauge("store_up", "Whether the database can be read.", float(now.counts is not None))
    if now.counts is not None:
        yield from _waiting(now.counts, now.policies, now.tools, now.at)
        yield from _standing(now.counts)
    yield _gauge("agents_connected", "Agents that are connected, or were a moment ago.", now.agents)
    yield from _channels(now)
    for (name, doc), value in now.own.items():
        yield _gauge(name, doc, value)
    if now.downstreams:
        yield from _downstreams(now.downstreams)


def _actors(tree: Tree) -> Iterator[Metric]:
    states: collections.Counter[tuple[str, ...]] = collections.Counter()
    waiting: defaultdict[tuple[str, ...], float] = defaultdict(float)
    longest: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for each in _all(tree):
        sort = family(each.name)
        states[sort, each.state] += 1
        waiting[(sort,)] += each.mailbox
        longest[(sort,)] = max(longest[(sort,)], each.mailbox)
    yield _labelled("actors", "Actors, by type and state.", ("actor", "state"), states.items())
    yield _labelled(
        "mailbox_messages", "Messages that wait in the mailboxes of a type of actor.", ("actor",), waiting.items()
    )
    yield _labelled(
        "mailbox_longest", "Messages that wait in the longest mailbox of a type of actor.", ("actor",), longest.items()
    )


def _all(info: Tree) -> Iterator[Tree]:
    yield info
    for child in info.children:
        yield from _all(child)


def _waiting(counts: Counts, policies: int, tools: int, at: datetime) -> Iterator[Metric]:
    pending = {(kind.value,): float(found.count) for kind, found in counts.pending.items()}
    pending[("policy",)] = float(policies)
    pending[("tools",)] = float(tools)
    yield _labelled("pending", "Requests that wait for a person, by kind.", ("kind",), pending.items())
    ages = {(kind.value,): _age(found.oldest, at) for kind, found in counts.pending.items() if found.oldest is not None}
    yield _labelled("pending_oldest_seconds", "How long the oldest of a kind has waited.", ("kind",), ages.items())


def _standing(counts: Counts) -> Iterator[Metric]:
    queued = {(kind.value,): float(found.count) for kind, found in counts.queued.items()}
    yield _labelled("queued", "Messages and tasks that were not delivered yet.", ("kind",), queued.items())
    agents = {(state.value,): float(number) for state, number in counts.agents.items()}
    yield _labelled("children", "Agents that people started, by state.", ("state",), agents.items())
    sessions = {(status.value,): float(number) for status, number in counts.sessions.items()}
    yield _labelled("sessions", "Sessions in the database, by status.", ("status",), sessions.items())


def _downstreams(found: Sequence[DownstreamView]) -> Iterator[Metric]:
    states = {(each.name, status.value): float(each.status is status) for each in found for status in DownstreamStatus}
    yield _labelled(
        "gateway_status",
        "Whether a downstream has this status: ready, degraded or offline.",
        ("downstream", "status"),
        states.items(),
    )
    circuits = {(each.name,): float(each.circuit == "closed") for each in found}
    yield _labelled(
        "gateway_circuit_closed", "Whether calls are sent to a downstream.", ("downstream",), circuits.items()
    )
    enabled = {(each.name,): float(each.is_enabled) for each in found}
    yield _labelled("gateway_enabled", "Whether nobody has disabled a downstream.", ("downstream",), enabled.items())
    running = {(each.name,): float(each.running) for each in found}
    yield _labelled("gateway_running", "Calls of a downstream that run.", ("downstream",), running.items())
    withheld = {(each.name,): float(len(each.withheld)) for each in found}
    yield _labelled(
        "gateway_withheld_tools", "Tools that are not as they were allowed.", ("downstream",), withheld.items()
    )


def _channels(now: Present) -> Iterator[Metric]:
    up = {(each.name,): float(each.state == "running") for each in _all(now.tree) if each.name in ("ctl", "web")}
    connection = outbox = None
    if now.chat is not None:
        connection, outbox = now.chat.connection, now.chat.outbox
        up[("slack",)] = float(connection is not None and connection.state is ConnectionState.UP)
    yield _labelled("channel_up", "Whether a channel can reach people.", ("channel",), up.items())
    if connection is not None:
        yield _counter("slack_reconnects", "Sockets to Slack opened after the first.", connection.reconnects)
        yield _gauge("slack_in_hand", "Envelopes from Slack that are being handled.", connection.in_hand)
    if outbox is not None:
        waiting = {(urgency,): float(number) for urgency, number in outbox.waiting.items()}
        yield _labelled(
            "outbox_waiting", "Messages not posted to Slack yet, by urgency.", ("urgency",), waiting.items()
        )
        yield _gauge("outbox_outdated", "Slack messages that are out of date.", outbox.updates)
        oldest = 0.0 if outbox.oldest is None else _age(outbox.oldest, now.at)
        yield _gauge("outbox_oldest_seconds", "How long the oldest message has waited to be posted.", oldest)
        yield _gauge("outbox_faults", "Slack channels with a problem now.", len(outbox.faults))


def _age(since: datetime, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds())


def _gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"intercom_{name}", doc, value=value)


def _counter(name: str, doc: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"intercom_{name}", doc, value=value)


def _labelled(
    name: str, doc: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(f"intercom_{name}", doc, labels=labels)
    for label, value in values:
        found.add_metric(label, value)
    return found


log = logging.getLogger(__name__)

#: How long the counts of the database may take, in seconds; Prometheus gives up a scrape after ten.
_COUNT_SECONDS = 5.0


@frozen
class Sources:
    """The sources of the gauges.

    `counts` counts in the database. `policies` counts policy changes that wait for a person, `agents` the connected
    agents. `chat` returns the status of the chat channel, None without one. `own` returns figures that other parts keep
    themselves. `downstreams` returns those of the gateway, and `tools` the cards of changed tools that wait for a
    person; both are None without a gateway.
    """

    tree: Callable[[], Tree]
    counts: Callable[[], Awaitable[Counts]]
    policies: Callable[[], int]
    agents: Callable[[], int]
    chat: Callable[[], Awaitable[ChatStatus | None]]
    now: Callable[[], datetime]
    own: Callable[[], Mapping[tuple[str, str], float]] = dict
    downstreams: Callable[[], Awaitable[Sequence[DownstreamView]]] | None = None
    tools: Callable[[], Awaitable[Sequence[Card]]] | None = None


@define
class Metrics:
    """One server's metrics. `counted` holds the two hooks that feed them."""

    registry: CollectorRegistry = field(factory=CollectorRegistry, init=False)
    counted: Counted = field(init=False)
    _moment: Moment = field(factory=Moment, init=False)
    _one: trio.Lock = field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.counted = Counted(self.registry)
        self.registry.register(self._moment)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        Info("intercom", "This server.", registry=self.registry).info({"version": __version__})

    async def answer(self, sources: Sources) -> Answer:
        """Return the metrics in the plain text format. A part that does not answer is omitted, and its `up` figure says
        so."""
        # Two answers at once would share the one `Moment`.
        async with self._one:
            self._moment.now = await present(sources)
            return Answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.registry))


async def present(sources: Sources) -> Present:
    """Collect the current state from all sources."""
    return Present(
        at=sources.now(),
        tree=sources.tree(),
        counts=await _counts(sources),
        policies=sources.policies(),
        tools=0 if sources.tools is None else len(await sources.tools()),
        agents=sources.agents(),
        chat=await sources.chat(),
        own=sources.own(),
        downstreams=await _downstreams_of(sources),
    )


async def _downstreams_of(sources: Sources) -> Sequence[DownstreamView]:
    if sources.downstreams is None:
        return ()
    try:
        with trio.fail_after(_COUNT_SECONDS):
            return await sources.downstreams()
    except (IntercomError, trio.TooSlowError) as failed:
        log.warning("the downstreams of the gateway could not be counted: %s", failed or "it took too long")
        return ()


async def _counts(sources: Sources) -> Counts | None:
    try:
        with trio.fail_after(_COUNT_SECONDS):
            return await sources.counts()
    except (IntercomError, trio.TooSlowError) as failed:
        log.warning("the database could not be counted: %s", failed or "it took too long")
        return None


def pages(
    metrics: Metrics,
    service: OperatorService,
    *,
    life: str,
    agents: Callable[[], int],
    own: Callable[[], Mapping[tuple[str, str], float]] = dict,
) -> Sequence[Page]:
    """Return `/healthz`, open to anybody, and `/metrics`. `agents` counts the connected agents. `own` returns figures
    that other parts keep themselves, by name and help text."""
    health = Health(service.tree, service.deps.store, life, service.system.clock)
    sources = Sources(
        tree=service.tree,
        counts=partial(service.reader.read, counts),
        policies=lambda: len(service.policy_registry.cards()),
        agents=agents,
        chat=service.chat_status,
        now=service.deps.now,
        own=own,
        downstreams=None if service.gateway is None else service.gateway.list,
        tools=None if service.gateway is None else service.gateway.cards,
    )
    return (Page("/healthz", health.answer, open=True), Page("/metrics", partial(metrics.answer, sources)))


def figures(
    *, up: bool, connections: int = 0, sessions: int = 0, agents: int = 0, requests: int = 0
) -> Mapping[tuple[str, str], float]:
    """Return each figure by the name and help text of its metric."""
    return {
        ("http_up", "Whether the port for HTTP is open."): float(up),
        ("http_connections", "Open HTTP connections."): connections,
        ("http_sessions", "HTTP sessions, in the protocol versions that have them."): sessions,
        ("http_agents", "HTTP agents known by their key, in the protocol version without sessions."): agents,
        ("http_requests", "HTTP requests being served, including calls that wait."): requests,
    }
