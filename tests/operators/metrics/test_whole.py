"""The figures of a server at work: each thing that was done shows, in the right place, once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from intercom.model.card import CardKind
from intercom.model.config import ClientSettings, Config
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided
from tests.agents.in_process import TAKES_TASKS, spoken_to
from tests.support.virtual_server import AgentClient, VirtualServer

#: Any port: the figures are asked for where they are made.
COUNTING = Config(http_port=0)

pytestmark = pytest.mark.server(COUNTING)


async def figures(server: VirtualServer) -> dict[tuple[str, ...], float]:
    (served,) = [each for each in server.app.pages() if each.path == "/metrics"]
    assert not served.open
    page = await served.answer()
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
    }


async def test_a_clearance_leaves_its_marks_from_the_call_to_the_delivery(server: VirtualServer, root: Path) -> None:
    async with spoken_to(server.app, "agent", str(root)) as agent:
        asked = server.begin(partial(agent.call, "check_clearance", title="a", diff="a\n", file_path="a.txt"))
        card = await server.operator.card(kind=CardKind.APPROVAL, away=False)
        await server.later(40)
        before = await figures(server)
        assert before[("intercom_pending", "kind=approval")] == 1
        assert before[("intercom_pending_oldest_seconds", "kind=approval")] == 40
        await server.decide(card.id, Decision.APPROVE, verdict_id="v")
        await server.decide(card.id, Decision.APPROVE, verdict_id="v")
        with pytest.raises(AlreadyDecided):
            await server.decide(card.id, Decision.REJECT)
        assert (await asked())["status"] == "approved"
        await server.later(3)
        await agent.call("check_diff", request_id=card.id)
        await agent.call("check_diff", request_id="none")
        await agent.ask("tools/call", name="format_disk", arguments={})
        after = await figures(server)
    expected = {
        ("intercom_pending", "kind=approval"): 0,
        ("intercom_verdicts_total", "channel=ctl", "decision=approve", "kind=approval"): 1,
        ("intercom_decision_seconds_sum", "kind=approval"): 40,
        ("intercom_decision_seconds_count", "kind=approval"): 1,
        ("intercom_tool_calls_total", "outcome=ok", "tool=check_clearance"): 1,
        ("intercom_tool_calls_total", "outcome=ok", "tool=check_diff"): 1,
        ("intercom_tool_calls_total", "outcome=request_not_found", "tool=check_diff"): 1,
        ("intercom_tool_calls_total", "outcome=unknown_tool", "tool=unknown"): 1,
        ("intercom_sessions", "status=active"): 1,
        ("intercom_agents_connected",): 1,
        ("intercom_actors", "actor=session", "state=running"): 1,
        ("intercom_store_up",): 1,
    }
    assert {key: after.get(key) for key in expected} == expected
    assert after[("intercom_store_commit_changes_count",)] > before[("intercom_store_commit_changes_count",)]


async def test_a_call_that_is_cancelled_and_one_that_is_to_be_asked_again_are_told_apart(
    server: VirtualServer, root: Path
) -> None:
    async with spoken_to(server.app, "agent", str(root)) as agent:
        asked = server.begin(partial(agent.call, "transmit", prompt_text="go on?"))
        await server.operator.card(kind=CardKind.PROMPT, away=False)
        asked.scope.cancel()
        await server.operator.card(kind=CardKind.PROMPT, away=True)
        found = await figures(server)
    assert found[("intercom_tool_calls_total", "outcome=cancelled", "tool=transmit")] == 1


@pytest.mark.server(evolve(COUNTING, clients={"claude-code": ClientSettings(call_wait_seconds=5)}))
async def test_a_task_and_a_call_of_a_paused_session_are_told_apart(server: VirtualServer, root: Path) -> None:
    async with spoken_to(server.app, "agent", str(root)) as agent:
        await agent.ask("tools/call", name="transmit", arguments={"prompt_text": "go on?"}, _meta=TAKES_TASKS)
        (session,) = await server.app.service.sessions()
        await server.app.service.steering.pause(session.id, "kim", "ctl")
        held = server.begin(partial(agent.call, "check_diff", request_id="x"))
        await server.later(5)
        assert (await held())["status"] == "paused"
        found = await figures(server)
    assert found[("intercom_tool_calls_total", "outcome=task", "tool=transmit")] == 1
    assert found[("intercom_tool_calls_total", "outcome=paused", "tool=check_diff")] == 1
    assert found[("intercom_sessions", "status=paused")] == 1


async def test_a_question_that_runs_out_of_time_is_counted_as_that(server: VirtualServer, agent: AgentClient) -> None:
    await agent.propose()
    await server.later(COUNTING.timeouts.approval_seconds)
    await agent.settled()
    found = await figures(server)
    assert found[("intercom_verdicts_total", "channel=none", "decision=expired", "kind=approval")] == 1
    assert ("intercom_decision_seconds_count", "kind=approval") not in found


async def test_a_decision_that_was_taken_back_counts_as_such(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    for _ in range(2):
        await server.app.service.steering.take_back(id, "lee", "ctl", "act")
    await server.decide(id, Decision.REJECT)
    found = await figures(server)
    for name, decision in (("verdicts", "approve"), ("verdicts", "reject"), ("verdicts_taken_back", "approve")):
        assert found[(f"intercom_{name}_total", "channel=ctl", f"decision={decision}", "kind=approval")] == 1
    assert ("intercom_verdicts_taken_back_total", "channel=ctl", "decision=reject", "kind=approval") not in found


async def test_a_word_on_an_alert_and_on_a_policy_are_verdicts_too(server: VirtualServer, root: Path) -> None:
    policy = root / ".intercom/settings.json"
    policy.parent.mkdir()
    policy.write_text('{"enabled": true}')
    async with spoken_to(server.app, "agent", str(root)) as agent:
        await agent.call("auto_check", tool_name="write", context={"file_path": "a"})
        await server.later(COUNTING.stall.inactivity_threshold_seconds)
        alert = await server.operator.card(kind=CardKind.STALL)
        await server.later(7)
        for _ in range(2):
            await server.decide(alert.id, Decision.DISMISS, verdict_id="v")
        policy.write_text('{"enabled": true, "file_patterns": {"write": ["**"]}}')
        await agent.call("auto_check", tool_name="write", context={"file_path": "a"})
        await server.operator.card(kind=CardKind.POLICY)
        assert (await figures(server))[("intercom_pending", "kind=policy")] == 1
        await server.app.service.decide_policy(None, server.verdict(Decision.ACCEPT))
        found = await figures(server)
    assert found[("intercom_verdicts_total", "channel=ctl", "decision=dismiss", "kind=stall")] == 1
    assert found[("intercom_decision_seconds_sum", "kind=stall")] == 7
    assert found[("intercom_verdicts_total", "channel=ctl", "decision=accept", "kind=policy")] == 1
    assert found[("intercom_pending", "kind=policy")] == 0


async def test_what_the_policy_lets_pass_is_counted_as_its_own(server: VirtualServer, root: Path) -> None:
    policy = root / ".intercom/settings.json"
    policy.parent.mkdir()
    policy.write_text('{"enabled": true, "file_patterns": {"write": ["**"]}, "tools": ["transmit"]}')
    async with spoken_to(server.app, "agent", str(root)) as agent:
        await server.accept(root)
        asked = await agent.call("check_clearance", title="a", diff="a\n", file_path="a.txt")
        assert asked["auto_approved"]
        assert (await agent.call("transmit", prompt_text="go on?"))["decision"] == "continue"
        found = await figures(server)
    assert found[("intercom_verdicts_total", "channel=policy", "decision=approve", "kind=approval")] == 1
    assert found[("intercom_verdicts_total", "channel=policy", "decision=continue", "kind=prompt")] == 1
    assert ("intercom_decision_seconds_count", "kind=approval") not in found


async def test_the_health_page_is_open_and_well(server: VirtualServer) -> None:
    (served,) = [each for each in server.app.pages() if each.path == "/healthz"]
    assert served.open
    page = await served.answer()
    assert page.status == 200
    assert json.loads(page.body)["life"] == server.app.life


@pytest.mark.server
async def test_without_http_there_are_no_pages_and_nothing_is_counted(server: VirtualServer) -> None:
    assert server.app.pages() == ()
    assert server.app.metrics is None
