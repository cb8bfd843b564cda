"""The other ways into a session: permission hooks and MCP tasks wait for the end of a pause as tools do."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from intercom.agents.call import Call
from intercom.agents.hook_server import PERMISSION_PROMPT
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.model.errors import Paused
from intercom.model.request import Operation, OperationKind, TaskStatus
from intercom.sessions.messages import Answered, AskPermission, AwaitTask, FindTask, OpenTask
from intercom.sessions.tools.transmit import Transmit
from tests.sessions.house import Guest, House, partial_ask


async def pause(at: House, guest: Guest) -> None:
    await at.app.service.steering.pause(guest.session_id, "kim", "ctl")


async def unpause(at: House, guest: Guest) -> None:
    await at.app.service.steering.unpause(guest.session_id, "kim", "ctl")


async def test_a_hook_asks_nobody_while_the_session_is_paused_and_then_does(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    operation = Operation(OperationKind.COMMAND, "Bash", "Bash: make", "make", cwd=str(root))
    asked = AskPermission("hook/1", "claude-code", operation, "claude-code/PreToolUse")
    told: list[str | None] = []

    async def tell(request_id: str | None) -> None:
        told.append(request_id)

    session = at.app.system.named(f"session/{guest.session_id}")
    call = partial(Call, "hook/1", PERMISSION_PROMPT, guest.session_id, session, told=tell)
    await pause(at, guest)
    waiting = at.begin(partial(call(5.0).permission, asked))
    await at.later(5)
    with pytest.raises(Paused):
        await waiting()
    waiting = at.begin(partial(call(None).permission, asked))
    await at.later(3600)
    assert (await at.app.service.pending(), waiting.outcome, told) == ((), None, [None, None])
    await unpause(at, guest)
    card = await at.people.card(kind=CardKind.APPROVAL)
    assert told[2:] == [card.id]
    # A pause that comes while it waits holds the answer back.
    await pause(at, guest)
    await at.decide(card.id, Decision.APPROVE)
    await at.later(1)
    assert waiting.outcome is None
    await unpause(at, guest)
    assert (await waiting()).status == "allowed"


async def test_a_task_is_at_work_for_its_client_until_it_may_be_told_the_verdict(at: House, root: Path) -> None:
    guest = await at.arrive(root)
    id = (await guest.ask(Transmit("well?", call="c-1"))).request_id
    task = await guest.ask(OpenTask("c-1", "transmit", id))
    await pause(at, guest)
    await at.decide(id, Decision.STOP)
    assert (await guest.ask(FindTask(task.id))).status is TaskStatus.WORKING
    waiting = at.begin(partial_ask(guest, AwaitTask("c-2", task.id)))
    await at.later(1)
    assert waiting.outcome is None
    await unpause(at, guest)
    answered = await waiting()
    assert isinstance(answered, Answered)
    assert answered.answer.decision == "stop"
    assert (await guest.ask(FindTask(task.id))).status is TaskStatus.COMPLETED
