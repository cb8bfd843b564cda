"""What has happened since the server started: counters and histograms."""

from __future__ import annotations

import re
from collections import OrderedDict
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Histogram

from actors import events
from intercom.model.decision import Decision
from intercom.model.errors import ERROR_CODES
from intercom.model.metrics import Committed, Delivered, HttpFailed, Measure, Settled, ToolCalled

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
REMEMBERED = 2_000

_CALL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800, 3600, 86400)
_WAIT = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 43200, 86400)
_WAY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 86400)
_COMMIT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_WORKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_OUTCOMES = frozenset({"ok", "pending", "paused", "task", "cancelled", *ERROR_CODES})
_DECISIONS = frozenset({*(each.value for each in Decision), "expired", "interrupted"})
_STATUSES = frozenset(str(each.value) for each in HTTPStatus if each.value >= HTTPStatus.BAD_REQUEST)
_CHANNELS = frozenset({"ctl", "slack", "web", "embed", "policy", "timeout", "steer", "none"})


class Counted:
    """Counts into `registry`. Both hooks may be called from any thread; neither waits nor raises."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"intercom_{name}", words, labels, registry=registry)

        def histogram(name: str, words: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"intercom_{name}", words, labels, buckets=buckets, registry=registry)

        self._calls = counter("tool_calls", "Tool calls that ended, by how.", "tool", "outcome")
        self._call_seconds = histogram(
            "tool_call_seconds", "How long tool calls took, waiting for a person included.", _CALL, "tool"
        )
        self._verdicts = counter(
            "verdicts", "Requests that came to their end, by the decision and where it came from.",
            "kind", "decision", "channel",
        )  # fmt: skip
        self._decided = histogram(
            "decision_seconds",
            "How long requests waited to be decided, the policy's left out.",
            _WAIT,
            "kind",
        )
        self._delivered = histogram("delivery_seconds", "How long decisions took to reach their agent.", _WAY, "kind")
        self._commit_seconds = histogram("store_commit_seconds", "How long commits of the database took.", _COMMIT)
        self._commit_works = histogram("store_commit_changes", "How many changes went into one commit.", _WORKS)
        self._http_errors = counter(
            "http_errors", "Requests over HTTP that were answered with an error, by its status.", "status"
        )
        self._crashes = counter("actor_crashes", "Actors that ended with an exception.", "actor")
        self._restarts = counter("actor_restarts", "Actors that were started again after a crash.", "actor")
        self._gave_up = counter("supervisor_gave_up", "Supervisors that went over their restart limit.", "actor")
        self._overflows = counter("mailbox_overflows", "Messages that a full mailbox refused or dropped.", "actor")
        self._dead = counter("dead_letters", "Messages that found nobody to handle them.", "actor")
        self._overran = counter("actor_stops_overran", "Actors that did not stop in time and were cancelled.", "actor")
        self._blocked = counter("loop_blocked", "Steps that kept the event loop for more than 100 ms.", "actor")
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
                    if channel != "policy":
                        self._decided.labels(kind.value).observe(seconds)
            case Delivered(request_id, kind, seconds):
                if self._is_new(measure, request_id):
                    self._delivered.labels(kind.value).observe(seconds)
            case Committed(works, seconds):
                self._commit_works.observe(works)
                self._commit_seconds.observe(seconds)
            case HttpFailed(status):
                self._http_errors.labels(_known(str(status), _STATUSES)).inc()

    def happened(self, event: events.Event) -> None:
        """Count an event of an actor; the hook for a system's events."""
        match event:
            case events.ActorCrashed(name):
                self._crashes.labels(family(name)).inc()
            case events.ActorRestarted(name):
                self._restarts.labels(family(name)).inc()
            case events.SupervisorGaveUp(name):
                self._gave_up.labels(family(name)).inc()
            case events.MailboxOverflowed(name):
                self._overflows.labels(family(name)).inc()
            case events.DeadLettered(name):
                self._dead.labels(family(name)).inc()
            case events.StopOverran(name):
                self._overran.labels(family(name)).inc()
            case events.StepTooLong(name):
                self._blocked.labels(family(name)).inc()

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
