"""The page for Prometheus, as a scraper reads it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from actors import Info
from intercom.model.chat_status import ChatStatus
from intercom.model.errors import DatabaseError
from intercom.model.metrics import ToolCalled
from intercom.operators.metrics import Metrics, Sources
from intercom.store.requests import Counts
from tests.operators.metrics.moment import SOURCES, TREE


async def scrape(sources: Sources = SOURCES, metrics: Metrics | None = None) -> dict[tuple[str, ...], float]:
    """Every sample by its name and labels' values."""
    page = await (metrics or Metrics()).answer(sources)
    assert page.status == 200
    found = {}
    for each in text_string_to_metric_families(page.body.decode()):
        for sample in each.samples:
            found[(sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items())))] = sample.value
    return found


async def test_it_tells_how_things_stand() -> None:
    found = await scrape()
    expected = {
        ("intercom_actors", "actor=session", "state=running"): 3,
        ("intercom_actors", "actor=ctl", "state=down"): 1,
        ("intercom_mailbox_messages", "actor=session"): 3,
        ("intercom_mailbox_longest", "actor=session"): 2,
        ("intercom_mailbox_messages", "actor=store"): 7,
        ("intercom_pending", "kind=approval"): 2,
        ("intercom_pending", "kind=prompt"): 0,
        ("intercom_pending", "kind=policy"): 1,
        ("intercom_pending_oldest_seconds", "kind=approval"): 300,
        ("intercom_queued", "kind=steer"): 4,
        ("intercom_children", "state=running"): 2,
        ("intercom_sessions", "status=active"): 3,
        ("intercom_sessions", "status=paused"): 0,
        ("intercom_agents_connected",): 5,
        ("intercom_store_up",): 1,
        ("intercom_channel_up", "channel=slack"): 1,
        ("intercom_channel_up", "channel=ctl"): 0,
        ("intercom_slack_reconnects_total",): 4,
        ("intercom_slack_in_hand",): 1,
        ("intercom_outbox_waiting", "urgency=card"): 2,
        ("intercom_outbox_outdated",): 1,
        ("intercom_outbox_oldest_seconds",): 9,
        ("intercom_outbox_faults",): 1,
        ("intercom_http_sessions",): 12,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert ("intercom_pending_oldest_seconds", "kind=prompt") not in found


async def test_it_tells_of_the_process_too() -> None:
    names = {key[0] for key in await scrape()}
    assert {"process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds", "intercom_info"} <= names


async def test_a_channel_that_does_not_answer_is_down_and_tells_nothing_more() -> None:
    async def silent() -> ChatStatus | None:
        return ChatStatus("C0", None, None)

    found = await scrape(attrs.evolve(SOURCES, chat=silent))
    assert found[("intercom_channel_up", "channel=slack")] == 0
    assert not [key for key in found if key[0].startswith(("intercom_outbox", "intercom_slack"))]


async def test_without_slack_it_is_no_channel() -> None:
    async def none() -> ChatStatus | None:
        return None

    found = await scrape(attrs.evolve(SOURCES, chat=none))
    assert ("intercom_channel_up", "channel=slack") not in found
    assert ("intercom_channel_up", "channel=ctl") in found


async def _refuses() -> Counts:
    raise DatabaseError("the database is locked")


async def _hangs() -> Counts:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("counts", [_refuses, _hangs])
async def test_a_database_that_can_not_be_read_is_told_and_the_rest_stands(counts: Any) -> None:
    found = await scrape(attrs.evolve(SOURCES, counts=counts))
    assert found[("intercom_store_up",)] == 0
    assert found[("intercom_agents_connected",)] == 5
    assert ("intercom_pending", "kind=approval") not in found


async def test_what_was_counted_stands_beside_and_stays() -> None:
    metrics = Metrics()
    metrics.counted.measured(ToolCalled("ping", "ok", 0.01))
    for _ in range(2):
        found = await scrape(metrics=metrics)
        assert found[("intercom_tool_calls_total", "outcome=ok", "tool=ping")] == 1


async def test_it_says_which_format_it_is_in() -> None:
    assert (await Metrics().answer(SOURCES)).media_type == "text/plain; version=0.0.4; charset=utf-8"


async def test_nothing_in_it_tells_two_of_a_sort_apart() -> None:
    many = tuple(Info(f"session/{n}", f"session/{n}", "SessionActor", "running") for n in range(500))
    few = await scrape()
    lots = await scrape(attrs.evolve(SOURCES, tree=lambda: attrs.evolve(TREE, children=(*TREE.children, *many))))
    assert lots.keys() == few.keys()
