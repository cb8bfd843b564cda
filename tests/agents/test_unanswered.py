"""A question that nobody answers: the agent is told so on every path, and people get a message of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio.testing
from attrs import evolve

from intercom.agents.tool_call import ToolCall
from intercom.embedding import Switchboard
from intercom.model.card import CardState
from intercom.model.config import Config, McpSettings, OnTimeout, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.request import PromptType
from intercom.model.session import SessionMode
from intercom.sessions.messages import AwaitDecision
from intercom.sessions.request_kinds import NOBODY_ANSWERED
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.sessions.tools.tool_table import BY_NAME
from intercom.sessions.tools.transmit import Transmit
from intercom.store import outbox
from intercom.store.writer_messages import Transact
from tests.agents.http.rig import call as call_http
from tests.agents.http.rig import place
from tests.agents.test_tasks import MODERN, said, wire
from tests.sessions.test_broadcasts import CONFIG, Wall
from tests.support.server_process import TRUSTING, call, user_home
from tests.support.virtual_server import AgentClient, VirtualServer, partial_ask, virtual_server

pytestmark = pytest.mark.real_time

Clock = trio.testing.MockClock

BY_TYPE = """
[timeouts]
prompt_seconds = 0.3
[timeouts.prompt_by_type]
clarification = "stop"
"""
CONTINUE = {"decision": "continue", "timed_out": True, "message": NOBODY_ANSWERED["continue"]}
STOP = {"decision": "stop", "timed_out": True, "message": NOBODY_ANSWERED["stop"]}


def test_the_words_say_that_nobody_answered_and_nobody_consented() -> None:
    for words in NOBODY_ANSWERED.values():
        assert words.startswith("nobody answered in time")
    assert "nobody consented to anything" in NOBODY_ANSWERED["continue"]
    assert "no person has decided this" in NOBODY_ANSWERED["stop"]
    assert '"timed_out": true' in BY_NAME["transmit"].description


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_stdio_a_default_does_not_look_like_a_persons_answer(mode: str) -> None:
    """It was `{"decision": "continue"}`, to the letter what a person's yes is."""
    with user_home(TRUSTING + "[mcp]\nlegacy_tool_names = true\n" + BY_TYPE) as at, at.serving():
        root = at.workspace()
        async with at.agent(root, mode=mode) as agent, at.person(root) as person:
            answer = await call(agent, "transmit", prompt_text="Delete it?")
            assert answer == CONTINUE
            schemas = {tool.name: tool.output_schema for tool in (await agent.list_tools()).tools}
            jsonschema.validate(answer, schemas["transmit"] or {})
            assert await call(agent, "transmit", prompt_text="Which?", prompt_type="clarification") == STOP
            assert await call(agent, "forward_prompt", prompt_text="And?") == CONTINUE
            text = 'nobody answered "Delete it?" in time: the agent is told to continue, and that nobody consented'
            assert (await person.notice(text=text))["level"] == "warning"
            await person.notice(text='nobody answered "Which?" in time: the agent is told to stop')


@pytest.mark.parametrize("transport", ["client", "classic"])
async def test_over_http_and_sse_it_does_not_either(tmp_path: Path, transport: str) -> None:
    timeouts = TimeoutSettings(prompt_seconds=0.3)
    mcp = McpSettings(legacy_tool_names=True)
    async with place(tmp_path, timeouts=timeouts, mcp=mcp) as at, getattr(at, transport)() as client:
        assert await call_http(client, "transmit", prompt_text="Go on?") == CONTINUE
        assert await call_http(client, "forward_prompt", prompt_text="Go on?") == CONTINUE


async def test_a_task_does_not_either() -> None:
    with user_home(TRUSTING + "[clients.hasty]\ncall_wait_seconds = 0.05\n" + BY_TYPE) as at, at.serving():
        async with wire(at, MODERN) as (client, person):
            task = await client.call("transmit", {"prompt_text": "Well?"})
            await person.card(status="expired")
            done = await client.ask("tasks/get", taskId=task["taskId"])
            assert said(done["result"]) == CONTINUE


@pytest.mark.server(Config(timeouts=TimeoutSettings(prompt_seconds=60)))
async def test_embedded_and_late_and_at_the_end_of_a_turn_it_does_not_either(server: VirtualServer, root: Path) -> None:
    bot = Switchboard(server.app, str(root)).agent("bot")
    waiting = server.begin(partial(bot.transmit, "Go on?"))
    await server.operator.card(body="Go on?")
    await server.later(61)
    answer = (await waiting()).answer
    assert (answer.decision, answer.timed_out) == ("continue", True)
    assert "nobody consented" in (answer.message or "")
    agent = await server.arrive(root, "other")
    await agent.ask(Transmit("And now?"))
    await server.later(61)
    (late,) = (await agent.ask(Ping())).late_verdicts
    assert late.answer == CONTINUE


@pytest.mark.parametrize("choice", OnTimeout)
async def test_people_are_told_of_each_default_once_and_of_no_answer_of_theirs(
    clock: Clock, root: Path, choice: OnTimeout
) -> None:
    config = Config(timeouts=TimeoutSettings(prompt_seconds=60, prompt_on_timeout=choice))
    async with virtual_server(root.parent, clock, config) as server:
        agent = await server.arrive(root)
        for kind in PromptType:
            await agent.ask(Transmit(f"{kind.value}?", kind))
        await server.later(61)
        await server.later(86400)
        told = [notice.text for notice in server.operator.notices if "nobody answered" in notice.text]
        held = [PromptType.ERROR_RECOVERY, PromptType.RESOURCE_WARNING]
        wanted = [kind for kind in PromptType if kind not in held and choice is not OnTimeout.HOLD]
        assert len(told) == len(wanted)
        for kind, text in zip(wanted, told, strict=True):
            assert text.startswith(f'nobody answered "{kind.value}?" in time: the agent is told to {choice.value}')


async def test_in_the_chat_it_is_a_new_message_that_a_crash_neither_loses_nor_repeats(clock: Clock, root: Path) -> None:
    config = CONFIG.__class__(slack=CONFIG.slack, timeouts=TimeoutSettings(prompt_seconds=60))
    wall = Wall()
    async with virtual_server(root.parent, clock, config, chat=wall.chat()) as server:
        agent = await server.arrive(root)
        await agent.ask(SwitchFreq(SessionMode.HYBRID, by="kim", channel="ctl", from_agent=False))
        id = (await agent.ask(Transmit("Go on?"))).request_id
        await server.later(30)
    # The server is gone while the time runs out.
    clock.jump(60)
    async with virtual_server(root.parent, clock, config, chat=wall.chat()) as server:
        server.back("agent")
        await server.operator.card(id=id, state=CardState.EXPIRED)
        row = await server.ask("store", Transact(partial(outbox.by_key, key=f"unanswered/{id}")))
        text = 'nobody answered "Go on?" in time: the agent is told to continue, and that nobody consented'
        assert row.content == {"text": f"warning: {text}"}
        assert row.thread == f"thread/{agent.session_id}"
        assert (await server.operator.notice("nobody answered")).key == row.key


async def test_of_a_change_and_a_standby_too_people_are_told_in_a_new_message(clock: Clock, root: Path) -> None:
    """Their cards were only edited, which notifies nobody."""
    timeouts = TimeoutSettings(approval_seconds=60, wait_seconds=60)
    async with virtual_server(root.parent, clock, evolve(CONFIG, timeouts=timeouts), chat=Wall().chat()) as server:
        agent = await server.arrive(root)
        await agent.ask(SwitchFreq(SessionMode.HYBRID, by="kim", channel="ctl", from_agent=False))
        asked = {
            (await agent.propose()).request_id: '"change a.txt" in time: it is not approved, and the agent is told so',
            (await agent.ask(Standby("What next?"))).request_id: (
                '"What next?" in time: the agent is told that no instruction came'
            ),
        }
        await server.later(61)
        for id, text in asked.items():
            row = await server.ask("store", Transact(partial(outbox.by_key, key=f"unanswered/{id}")))
            assert row.content == {"text": f"warning: nobody answered {text}"}
            assert row.thread == f"thread/{agent.session_id}"
            assert (await server.operator.notice(text)).key == row.key
        # One that was answered in time is not told of.
        await server.decide((await agent.propose("b.txt")).request_id, Decision.APPROVE)
        await server.later(120)
        assert len([each for each in server.operator.notices if "nobody answered" in each.text]) == 2


async def test_a_question_that_was_asked_before_the_setting_became_hold_is_held(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock, Config(timeouts=TimeoutSettings(prompt_seconds=60))) as server:
        agent = await server.arrive(root)
        id = (await agent.ask(Transmit("Go on?"))).request_id
    held = Config(timeouts=TimeoutSettings(prompt_seconds=60, prompt_on_timeout=OnTimeout.HOLD))
    async with virtual_server(root.parent, clock, held) as server:
        agent = await server.arrive(root)
        waiting = server.begin(partial_ask(agent, AwaitDecision(agent.call(), id)))
        await server.later(120)
        await agent.settled()
        assert waiting.outcome is None
        assert (await _card(server, id)).state is CardState.PENDING


async def _card(server: VirtualServer, id: str) -> Any:
    return await server.app.service.card(id)


@pytest.mark.parametrize(("seconds", "status"), [(50, "pending"), (59.5, "timeout"), (60, "timeout"), (61, "timeout")])
async def test_a_standby_whose_time_ends_with_its_call_is_not_asked_again(
    server: VirtualServer, agent: AgentClient, seconds: float, status: str
) -> None:
    """It was told to call again for a standby that ended at that moment."""
    session = server.app.system.named(f"session/{agent.session_id}")
    given = Standby(timeout_seconds=60)
    call = ToolCall(agent.call(), BY_NAME["standby"], agent.session_id, session, seconds, given=given)
    waiting = server.begin(call.run)
    await server.later(0)
    await server.later(60)
    assert (await waiting()).answer.status == status
