"""The other ways into a session: permission hooks and MCP tasks wait for the end of a pause as tools do."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from intercom.agents.hook_server import PERMISSION_PROMPT
from intercom.agents.tool_call import ToolCall
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.model.errors import Paused
from intercom.model.request import Operation, OperationKind, TaskStatus
from intercom.sessions.messages import Answered, AskPermission, AwaitTask, FindTask, OpenTask
from intercom.sessions.tools.transmit import Transmit
from tests.support.virtual_server import AgentClient, VirtualServer, partial_ask


async def pause(server: VirtualServer, agent: AgentClient) -> None:
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")


async def unpause(server: VirtualServer, agent: AgentClient) -> None:
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")


async def test_a_hook_asks_nobody_while_the_session_is_paused_and_then_does(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    operation = Operation(OperationKind.COMMAND, "Bash", "Bash: make", "make", cwd=str(root))
    asked = AskPermission("hook/1", "claude-code", operation, "claude-code/PreToolUse")
    told: list[str | None] = []

    async def tell(request_id: str | None) -> None:
        told.append(request_id)

    session = server.app.system.named(f"session/{agent.session_id}")
    call = partial(ToolCall, "hook/1", PERMISSION_PROMPT, agent.session_id, session, told=tell)
    await pause(server, agent)
    waiting = server.begin(partial(call(5.0).permission, asked))
    await server.later(5)
    with pytest.raises(Paused):
        await waiting()
    waiting = server.begin(partial(call(None).permission, asked))
    await server.later(3600)
    assert (await server.app.service.pending(), waiting.outcome, told) == ((), None, [None, None])
    await unpause(server, agent)
    card = await server.operator.card(kind=CardKind.APPROVAL)
    assert told[2:] == [card.id]
    # A pause that comes while it waits holds the answer back.
    await pause(server, agent)
    await server.decide(card.id, Decision.APPROVE)
    await server.later(1)
    assert waiting.outcome is None
    await unpause(server, agent)
    assert (await waiting()).status == "allowed"


async def test_a_task_is_at_work_for_its_client_until_it_may_be_told_the_verdict(
    server: VirtualServer, root: Path
) -> None:
    agent = await server.arrive(root)
    id = (await agent.ask(Transmit("well?", call="c-1"))).request_id
    task = await agent.ask(OpenTask("c-1", "transmit", id))
    await pause(server, agent)
    await server.decide(id, Decision.STOP)
    assert (await agent.ask(FindTask(task.id))).status is TaskStatus.WORKING
    waiting = server.begin(partial_ask(agent, AwaitTask("c-2", task.id)))
    await server.later(1)
    assert waiting.outcome is None
    await unpause(server, agent)
    answered = await waiting()
    assert isinstance(answered, Answered)
    assert answered.answer.decision == "stop"
    assert (await agent.ask(FindTask(task.id))).status is TaskStatus.COMPLETED
