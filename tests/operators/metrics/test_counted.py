"""What has happened is counted, once, under labels of ours."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from actors import events
from intercom.gateway.messages import InvocationStatus
from intercom.model.card import CardKind
from intercom.model.metrics import (
    Committed,
    DecisionTakenBack,
    Delivered,
    DownstreamCalled,
    HttpFailed,
    Measure,
    Settled,
    ToolCalled,
)
from intercom.operators.metrics import REMEMBERED, Counted, family


class Counting:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counted = Counted(self.registry)

    def measured(self, *measures: Measure) -> Counting:
        for each in measures:
            self.counted.measured(each)
        return self

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"intercom_{name}", labels)


def settled(id: str, outcome: str = "approve", channel: str = "ctl", seconds: float = 7) -> Settled:
    return Settled(id, CardKind.APPROVAL, outcome, channel, seconds)


@pytest.mark.parametrize(
    ("tool", "outcome", "labels"),
    [
        ("ping", "ok", {"tool": "ping", "outcome": "ok"}),
        ("standby", "pending", {"tool": "standby", "outcome": "pending"}),
        ("check_diff", "patch_conflict", {"tool": "check_diff", "outcome": "patch_conflict"}),
        (None, "unknown_tool", {"tool": "unknown", "outcome": "unknown_tool"}),
        ("ping", "of its own invention", {"tool": "ping", "outcome": "other"}),
    ],
)
def test_a_tool_call_counts_by_its_tool_and_how_it_ended(
    tool: str | None, outcome: str, labels: dict[str, str]
) -> None:
    at = Counting().measured(ToolCalled(tool, outcome, 0.3), ToolCalled(tool, outcome, 0.3))
    assert at.value("tool_calls_total", **labels) == 2
    assert at.value("tool_call_seconds_sum", tool=labels["tool"]) == 0.6


def test_a_decision_counts_by_what_it_was_and_where_it_came_from() -> None:
    at = Counting().measured(settled("1"), settled("2", "reject", "slack", 50), settled("3", "expired", "none", 3600))
    assert at.value("verdicts_total", kind="approval", decision="approve", channel="ctl") == 1
    assert at.value("verdicts_total", kind="approval", decision="reject", channel="slack") == 1
    assert at.value("verdicts_total", kind="approval", decision="expired", channel="none") == 1
    assert at.value("decision_seconds_count", kind="approval") == 2
    assert at.value("decision_seconds_bucket", kind="approval", le="15.0") == 1


@pytest.mark.parametrize(
    ("status", "label"), [(401, "401"), (413, "413"), (500, "500"), (499, "other"), (200, "other")]
)
def test_an_error_over_http_counts_by_its_status(status: int, label: str) -> None:
    at = Counting().measured(HttpFailed(status), HttpFailed(status))
    assert at.value("http_errors_total", status=label) == 2


@pytest.mark.parametrize("channel", ["elicitation", "policy", "grant", "force", "timeout", "steer", "inbox", "none"])
def test_what_no_person_decided_is_a_verdict_that_says_nothing_of_how_long_people_take(channel: str) -> None:
    at = Counting().measured(settled("1", channel=channel, seconds=3600))
    assert at.value("verdicts_total", kind="approval", decision="approve", channel=channel) == 1
    assert at.value("decision_seconds_count", kind="approval") is None


def test_a_channel_or_decision_of_nobodys_knowing_is_other() -> None:
    at = Counting().measured(settled("1", "<script>", "C0123456"))
    assert at.value("verdicts_total", kind="approval", decision="other", channel="other") == 1


def test_a_request_that_is_told_of_twice_counts_once() -> None:
    told = [settled("1"), Delivered("1", CardKind.APPROVAL, 0.2)]
    at = Counting().measured(*told, *told)
    assert at.value("verdicts_total", kind="approval", decision="approve", channel="ctl") == 1
    assert at.value("delivery_seconds_count", kind="approval") == 1


def test_the_decisions_that_count_are_those_given_without_those_taken_back() -> None:
    back = DecisionTakenBack("1", "v-1", CardKind.APPROVAL, "approve", "ctl")
    at = Counting().measured(settled("1"), settled("1"), back, back, settled("1", "reject", "web"), back)
    labels = ({"decision": "approve", "channel": "ctl"}, {"decision": "reject", "channel": "web"})
    given = [at.value("verdicts_total", kind="approval", **each) for each in labels]
    taken_back = [at.value("verdicts_taken_back_total", kind="approval", **each) for each in labels]
    assert (given, taken_back) == ([1, 1], [1, None])


def test_what_is_remembered_for_that_is_bounded() -> None:
    at = Counting().measured(*(settled(str(number)) for number in range(REMEMBERED + 1)), settled("0"))
    assert at.value("verdicts_total", kind="approval", decision="approve", channel="ctl") == REMEMBERED + 2
    assert len(at.counted._seen) == REMEMBERED


def test_commits_count_by_size_and_time() -> None:
    at = Counting().measured(Committed(1, 0.002), Committed(40, 0.004))
    assert at.value("store_commit_changes_sum") == 41
    assert at.value("store_commit_changes_bucket", le="32.0") == 1
    assert at.value("store_commit_seconds_count") == 2


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (events.ActorCrashed("session/1", ValueError()), "actor_crashes_total"),
        (events.ActorRestarted("session/2", 1), "actor_restarts_total"),
        (events.SupervisorGaveUp("session/3", "x", None), "supervisor_gave_up_total"),
        (events.MailboxOverflowed("session/4", "x"), "mailbox_overflows_total"),
        (events.DeadLettered("session/5", "x"), "dead_letters_total"),
        (events.StopOverran("session/6", 5, False), "actor_stops_overran_total"),
        (events.StepTooLong("session/7", 0.2), "loop_blocked_total"),
    ],
)
def test_what_becomes_of_actors_counts_by_their_sort(event: events.Event, name: str) -> None:
    at = Counting()
    at.counted.happened(event)
    assert at.value(name, actor="session") == 1
    others = {sample.name for metric in at.registry.collect() for sample in metric.samples if sample.value == 1}
    assert others == {f"intercom_{name}"}


def test_what_is_of_no_concern_counts_nowhere() -> None:
    at = Counting()
    at.counted.happened(events.ActorStarted("session/1", object))
    assert not [sample for metric in at.registry.collect() for sample in metric.samples if sample.value == 1]


@pytest.mark.parametrize(
    ("name", "sort"),
    [
        ("store", "store"),
        ("session/3f2a-1", "session"),
        ("policy//home/me/project", "policy"),
        ("link/140-3", "link"),
        ("slack/outbox", "slack/outbox"),
        ("slack/C0123", "slack"),
        ("slack/", "slack"),
        ("urn:uuid:4711", "other"),
        ("intercom.agents.shim_connection.ShimConnection._mcp", "other"),
        ("/home/me", "other"),
        ("", "other"),
    ],
)
def test_an_actor_is_told_by_its_sort(name: str, sort: str) -> None:
    assert family(name) == sort


@given(st.text(alphabet=string.ascii_letters + string.digits + "/-_:. é", max_size=60))
def test_no_label_holds_a_path_an_id_or_an_upper_case_name(name: str) -> None:
    label = family(name)
    assert label.count("/") <= 1
    assert set(label) <= set(string.ascii_lowercase + "_/")
    assert len(label) <= 62


def test_a_call_of_a_downstream_counts_by_how_it_ended_and_is_timed_if_it_was_sent() -> None:
    at = Counting().measured(
        DownstreamCalled("github", "success", 0.3),
        DownstreamCalled("github", "success", 0.0, is_cached=True),
        DownstreamCalled("github", "rate_limited", 0.0),
        DownstreamCalled("github", "timeout", 30.0),
        DownstreamCalled("github", "of its own invention", 1.0),
    )
    for status in ("success", "cached", "rate_limited", "timeout", "other"):
        assert at.value("gateway_calls_total", downstream="github", status=status) == 1
    assert at.value("gateway_call_seconds_count", downstream="github") == 2
    assert at.value("gateway_call_seconds_sum", downstream="github") == 30.3


def test_every_status_of_a_downstreams_call_is_known() -> None:
    at = Counting().measured(*(DownstreamCalled("github", status.value, 0.0) for status in InvocationStatus))
    assert at.value("gateway_calls_total", downstream="github", status="other") is None
