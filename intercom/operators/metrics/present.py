"""The gauges of the current state, read again for each answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from actors import Info
from intercom.operators.metrics.family import family
from intercom.store.census import Census

Metric = CounterMetricFamily | GaugeMetricFamily


@frozen
class Present:
    """The state at one moment. `census` is None if the database could not be read, `chat` if no chat channel is set up.
    `own` holds figures of other parts, by the metric's name (without the prefix) and its help text."""

    at: datetime
    tree: Info
    census: Census | None
    policies: int
    agents: int
    chat: Mapping[str, Any] | None = None
    own: Mapping[tuple[str, str], float] = {}


class Moment(Collector):
    """Collects the `Present` in `now`; yields nothing until the first one."""

    now: Present | None = None

    def collect(self) -> Iterator[Metric]:
        if self.now is not None:
            yield from families(self.now)


def families(now: Present) -> Iterator[Metric]:
    """Yield all gauges of a moment."""
    yield from _actors(now.tree)
    yield _gauge("store_up", "Whether the database could be read just now.", float(now.census is not None))
    if now.census is not None:
        yield from _waiting(now.census, now.policies, now.at)
        yield from _standing(now.census)
    yield _gauge("agents_connected", "Agents that are connected, or were a moment ago.", now.agents)
    yield from _channels(now)
    for (name, words), value in now.own.items():
        yield _gauge(name, words, value)


def _actors(tree: Info) -> Iterator[Metric]:
    states: Counter[tuple[str, ...]] = Counter()
    waiting: defaultdict[tuple[str, ...], float] = defaultdict(float)
    longest: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for each in _all(tree):
        sort = family(each.name)
        states[sort, each.state] += 1
        waiting[(sort,)] += each.mailbox
        longest[(sort,)] = max(longest[(sort,)], each.mailbox)
    yield _labelled("actors", "Actors, by sort and state.", ("actor", "state"), states.items())
    yield _labelled(
        "mailbox_messages", "Messages that wait in mailboxes, of all of a sort.", ("actor",), waiting.items()
    )
    yield _labelled(
        "mailbox_longest", "Messages that wait in the longest mailbox of a sort.", ("actor",), longest.items()
    )


def _all(info: Info) -> Iterator[Info]:
    yield info
    for child in info.children:
        yield from _all(child)


def _waiting(census: Census, policies: int, at: datetime) -> Iterator[Metric]:
    counts = {(kind.value,): float(found.count) for kind, found in census.pending.items()}
    counts[("policy",)] = float(policies)
    yield _labelled("pending", "What waits for a person, by kind.", ("kind",), counts.items())
    ages = {(kind.value,): _age(found.oldest, at) for kind, found in census.pending.items() if found.oldest is not None}
    yield _labelled("pending_oldest_seconds", "How long the oldest of a kind has waited.", ("kind",), ages.items())


def _standing(census: Census) -> Iterator[Metric]:
    words = {(kind.value,): float(found.count) for kind, found in census.queued.items()}
    yield _labelled("queued", "Words and tasks that no agent has been told yet.", ("kind",), words.items())
    children = {(state.value,): float(number) for state, number in census.children.items()}
    yield _labelled("children", "Agents that people started, by how each fares.", ("state",), children.items())
    sessions = {(status.value,): float(number) for status, number in census.sessions.items()}
    yield _labelled("sessions", "Sessions in the database, by status.", ("status",), sessions.items())


def _channels(now: Present) -> Iterator[Metric]:
    up = {(each.name,): float(each.state == "running") for each in _all(now.tree) if each.name == "ctl"}
    connection = outbox = None
    if now.chat is not None:
        connection, outbox = now.chat["connection"], now.chat["outbox"]
        up[("slack",)] = float(connection is not None and connection.state.value == "up")
    yield _labelled("channel_up", "Whether a channel can reach people.", ("channel",), up.items())
    if connection is not None:
        yield _counter("slack_reconnects", "Sockets to Slack opened after the first.", connection.reconnects)
        yield _gauge("slack_in_hand", "What came from Slack and is being handled.", connection.in_hand)
    if outbox is not None:
        waiting = {(urgency,): float(number) for urgency, number in outbox.waiting.items()}
        yield _labelled(
            "outbox_waiting", "Messages not posted to Slack yet, by urgency.", ("urgency",), waiting.items()
        )
        yield _gauge("outbox_outdated", "Messages that do not show what they should.", outbox.updates)
        oldest = 0.0 if outbox.oldest is None else _age(outbox.oldest, now.at)
        yield _gauge("outbox_oldest_seconds", "How long the oldest message has waited to be posted.", oldest)
        yield _gauge("outbox_troubled", "Slack channels that fare badly now.", len(outbox.troubles))


def _age(since: datetime, at: datetime) -> float:
    return max(0.0, (at - since).total_seconds())


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"intercom_{name}", words, value=value)


def _counter(name: str, words: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"intercom_{name}", words, value=value)


def _labelled(
    name: str, words: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(f"intercom_{name}", words, labels=labels)
    for label, value in values:
        found.add_metric(label, value)
    return found
