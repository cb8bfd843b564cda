"""The SDK's spans say whose they are: the session, and the request that a call is about."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from intercom.agents import tool_call
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.sessions.messages import SHOW_SECONDS
from tests.agents.in_process import TAKES_TASKS, spoken_to
from tests.support.virtual_server import virtual_server

Clock = trio.testing.MockClock


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the SDK's server traces, as a program that has set up OpenTelemetry would see it; in this test alone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("test"))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def of(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> tuple[Any, Any]:
    attributes = span.attributes or {}
    return attributes.get(tool_call.SESSION_ID), attributes.get(tool_call.REQUEST_ID)


async def test_a_span_names_its_session_and_the_request_it_is_about(
    clock: Clock, root: Path, spans: InMemorySpanExporter
) -> None:
    async with virtual_server(root.parent, clock) as server, spoken_to(server.app, "agent", str(root)) as agent:
        session_id = (await agent.call("ping"))["session_id"]
        asked = server.begin(partial(agent.call, "check_clearance", title="a", diff="a\n", file_path="a.txt"))
        card = await server.operator.card(kind=CardKind.APPROVAL, away=False)
        await server.decide(card.id, Decision.APPROVE)
        await asked()
        await agent.call("check_diff", request_id=card.id)
    (ping,) = of(spans, "tools/call ping")
    assert ids(ping) == (session_id, None)
    (clearance,) = of(spans, "tools/call check_clearance")
    assert ids(clearance) == (session_id, card.id)
    (applied,) = of(spans, "tools/call check_diff")
    assert ids(applied) == (session_id, card.id)


async def test_a_wait_that_is_cancelled_has_told_what_it_waited_for(
    clock: Clock, root: Path, spans: InMemorySpanExporter
) -> None:
    async with virtual_server(root.parent, clock) as server, spoken_to(server.app, "agent", str(root)) as agent:
        asked = server.begin(partial(agent.call, "transmit", prompt_text="go on?"))
        card = await server.operator.card(kind=CardKind.PROMPT, away=False)
        asked.scope.cancel()
        await server.operator.card(kind=CardKind.PROMPT, away=True)
        while not of(spans, "tools/call transmit"):
            await trio.testing.wait_all_tasks_blocked()
    (span,) = of(spans, "tools/call transmit")
    assert ids(span) == (card.session_id, card.id)


async def test_what_an_agent_gives_for_an_id_is_cut(clock: Clock, root: Path, spans: InMemorySpanExporter) -> None:
    async with virtual_server(root.parent, clock) as server, spoken_to(server.app, "agent", str(root)) as agent:
        assert (await agent.call("check_diff", request_id="x" * 128))["status"] == "error"
    (span,) = of(spans, "tools/call check_diff")
    assert len(ids(span)[1]) == 100


async def test_a_task_and_who_asks_after_it_are_about_the_same_request(
    clock: Clock, root: Path, spans: InMemorySpanExporter
) -> None:
    async with virtual_server(root.parent, clock) as server, spoken_to(server.app, "agent", str(root)) as agent:
        arguments = {"prompt_text": "go on?"}
        begun = await agent.ask("tools/call", name="transmit", arguments=arguments, _meta=TAKES_TASKS)
        await server.later(SHOW_SECONDS)
        card = await server.operator.card(kind=CardKind.PROMPT)
        await agent.ask("tasks/get", taskId=begun["result"]["taskId"], _meta=TAKES_TASKS)
    for name in ("tools/call transmit", "tasks/get"):
        (span,) = of(spans, name)
        assert ids(span) == (card.session_id, card.id)


def test_without_a_tracer_nothing_is_noted_and_nothing_fails() -> None:
    tool_call.note("s", "r")
