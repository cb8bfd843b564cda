"""A decision that an agent knows is not taken back, and of one that was, nothing reaches an agent or stays on show."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, IntercomError, InvalidState
from intercom.sessions.messages import CancelTask, OpenTask
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.standby import Standby
from intercom.store import outbox
from intercom.store.outbox import Urgency
from intercom.store.writer_messages import Transact
from intercom.workspace import transaction
from tests.sessions.test_outcomes import AT
from tests.sessions.test_retraction import take_back, told
from tests.support.virtual_server import AgentClient, VirtualServer


async def test_a_decision_that_a_refusal_told_is_not_taken_back(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.REJECT)
    with pytest.raises(InvalidState, match="is rejected"):
        await agent.ask(CheckDiff(id))
    with pytest.raises(AlreadyDecided, match="may know"):
        await take_back(server, id)


async def test_a_task_that_was_called_over_does_not_go_on(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    task = await agent.ask(OpenTask(agent.call(), "check_clearance", id))
    await server.decide(id, Decision.APPROVE)
    with pytest.raises(InvalidState, match="completed"):
        await agent.ask(CancelTask(agent.call(), task.id))
    with pytest.raises(AlreadyDecided, match="may know"):
        await take_back(server, id)


def _disk_full(*_args: object) -> None:
    raise OSError("the disk is full")


async def test_an_answer_about_a_changed_file_that_was_tried_is_not_taken_back(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("old\n")
    id = (await agent.ask(CheckClearance("change", content="new\n", file_path="a.txt"))).request_id
    await server.decide(id, Decision.APPROVE)
    (root / "a.txt").write_text("meanwhile\n")
    over = (await agent.ask(CheckDiff(id, force=True))).request_id
    assert over != id
    await server.decide(over, Decision.APPROVE)
    monkeypatch.setattr(transaction, "stage", _disk_full)
    with pytest.raises(IntercomError, match="disk is full"):
        await agent.ask(CheckDiff(id, force=True))
    with pytest.raises(AlreadyDecided, match="may know"):
        await take_back(server, over)


async def test_words_of_a_decision_that_was_taken_back_are_told_to_nobody(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.ask(Standby("idle"))).request_id
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    verdict = evolve(server.verdict(Decision.RESUME), id="v-old")
    await server.app.service.resume(None, "do this", verdict)
    await take_back(server, id)
    await server.decide(id, Decision.STOP, "do nothing")
    with pytest.raises(AlreadyDecided, match="was taken back"):
        await server.app.service.resume(None, "do this", verdict)
    assert [each["instruction"] for each in await told(agent)] == ["stop: do nothing"]


async def test_a_chat_that_is_not_told_looks_at_the_card_again(server: VirtualServer, agent: AgentClient) -> None:
    """Its message is over with a rejection. The server may be killed before it tells the chat, or the session's mode
    may not notify it any more."""
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.REJECT)
    put = partial(outbox.put, key=f"card/{id}", content={}, at=AT, channel="C1", urgency=Urgency.CARD)
    await server.ask("store", Transact(put))
    assert await server.ask("store", Transact(outbox.open_rows)) == ()
    await take_back(server, id)
    assert [row.key for row in await server.ask("store", Transact(outbox.open_rows))] == [f"card/{id}"]
