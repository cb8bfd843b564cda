"""An apply that was begun and not finished: it ends whole or not at all, and people and agents are told which."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model.card import CardKind, CardState
from intercom.model.decision import Decision
from intercom.model.errors import ApplyStuck, DatabaseError, FileError, InvalidState
from intercom.sessions.request_kinds import stuck_id
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store.apply_journal import Entry, JournalState, journal
from intercom.store.writer_messages import Database, Transact
from intercom.workspace import transaction
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def approved(server: VirtualServer, agent: AgentClient, path: str = "a.txt") -> str:
    """The id of a change that a person has approved."""
    id = (await agent.propose(path)).request_id
    await server.decide(id, Decision.APPROVE)
    return id


async def apply(agent: AgentClient, id: str) -> str:
    """How a call of check_diff is answered."""
    answered = (await agent.ask(CheckDiff(id))).answered
    assert answered is not None
    status: str = answered.answer.status
    return status


async def state_of(server: VirtualServer, id: str) -> JournalState | None:
    entry = await server.ask("store", Transact(lambda db: journal.get(db, id)))
    return None if entry is None else entry.state


async def cut_short(server: VirtualServer, agent: AgentClient, root: Path, id: str) -> None:
    """Leave what a call leaves that ended before it staged anything."""
    step = transaction.Step("a.txt", "none", "file:0:0")
    steps = transaction.to_text(transaction.prepare(root, id, [step], None))
    entry = Entry(id, agent.session_id, str(root), JournalState.STAGING, steps, server.now())
    await server.ask("store", Transact(lambda db: journal.begin(db, entry)))


async def test_an_apply_that_was_cut_short_before_its_commit_is_begun_again(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await approved(server, agent)
    await cut_short(server, agent, root, id)
    assert await apply(agent, id) == "applied"
    assert (root / "a.txt").read_text() == "a\n"
    assert await state_of(server, id) is JournalState.DONE
    assert not [card for card in server.operator.cards if card.kind is CardKind.APPLY]


@pytest.mark.parametrize("to", [JournalState.COMMITTED, JournalState.DONE])
async def test_a_database_that_cannot_be_written_does_not_refuse_an_apply_that_was_begun(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch, to: JournalState
) -> None:
    """The agent was told that nothing was written, whatever was."""
    advance = journal.advance
    # The end is tried again by the session that starts again, and before the commit nothing is left to do.
    left = [to] if to is JournalState.COMMITTED else [to, to]

    def advance_once_there_is_space(db: Database, id: str, now: Any, then: JournalState, **columns: object) -> bool:
        if then is to and left:
            left.pop()
            raise DatabaseError("the disk is full, nothing was written")
        return advance(db, id, now, then, **columns)

    id = await approved(server, agent)
    monkeypatch.setattr(journal, "advance", advance_once_there_is_space)
    async with server.restarting():
        assert await apply(agent, id) == "applied"
    assert not left
    assert (root / "a.txt").read_text() == "a\n"
    assert await state_of(server, id) is JournalState.DONE
    assert [entry.kind for entry in await server.app.service.audit(50)].count("applied") == 1


async def test_an_apply_is_undone_although_its_files_cannot_be_removed(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session did not start, and no other one either."""

    def read_only(*_given: object) -> None:
        raise FileError("read-only file system")

    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = await approved(server, agent)
        await cut_short(server, agent, root, id)
    monkeypatch.setattr(transaction, "discard", read_only)
    async with virtual_server(root.parent, clock) as server:
        await server.arrive(root)
        assert await state_of(server, id) is JournalState.ABANDONED
        assert not [notice for notice in server.operator.notices if notice.level == "error"]


async def test_an_apply_that_its_session_has_not_outlived_is_finished_by_the_next_server(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = await approved(server, agent)
        assert await apply(agent, id) == "applied"
    with contextlib.closing(sqlite3.connect(root.parent / "intercom.db")) as db:
        db.execute("update approval_request set status = 'approved', consumed_at = null")
        db.execute("update apply_journal set state = 'committed'")
        db.execute("update session set status = 'terminated', terminated_at = created_at")
        db.commit()
    async with virtual_server(root.parent, clock) as server:
        await server.later(0)
        assert await state_of(server, id) is JournalState.DONE


def _stopped(*_given: object) -> None:
    raise ApplyStuck("a.txt changed in between")


async def stuck(server: VirtualServer, agent: AgentClient, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this apply stop half-way."""
    with monkeypatch.context() as patched:
        patched.setattr(transaction, "roll_forward", _stopped)
        with pytest.raises(ApplyStuck):
            await apply(agent, id)
    await server.operator.card(id=stuck_id(id))


async def test_a_change_that_a_person_gave_up_is_not_written_afterwards(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await approved(server, agent)
    await stuck(server, agent, id, monkeypatch)
    for _ in range(2):
        assert (await server.decide(stuck_id(id), Decision.DISMISS, verdict_id="v")).state is CardState.CLOSED
    with pytest.raises(InvalidState, match="propose the change again") as refused:
        await apply(agent, id)
    assert refused.value.error_code == "not_approved"
    assert not (root / "a.txt").exists()
    assert (await server.operator.card(id=id, state=CardState.EXPIRED)).note == "given up by kim"
    # Wanted after all, it is a change like any other.
    again = (await agent.propose()).request_id
    assert again != id
    await server.decide(again, Decision.APPROVE)
    assert await apply(agent, again) == "applied"


async def test_what_a_change_that_was_given_up_replaced_is_not_written_either(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("old\n")
    first = (await agent.ask(CheckClearance("change", content="new\n", file_path="a.txt"))).request_id
    await server.decide(first, Decision.APPROVE)
    (root / "a.txt").write_text("meanwhile\n")
    over = (await agent.ask(CheckDiff(first, force=True))).request_id
    await server.decide(over, Decision.APPROVE)
    await stuck(server, agent, over, monkeypatch)
    await server.decide(stuck_id(over), Decision.DISMISS)
    (root / "a.txt").write_text("old\n")
    for id in (first, over):
        with pytest.raises(InvalidState, match="propose the change again"):
            await apply(agent, id)
    assert (root / "a.txt").read_text() == "old\n"


async def test_an_approval_that_lapses_while_its_change_is_planned_is_not_begun(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as an apply that stopped half-way."""
    prepare = transaction.prepare

    def prepare_when_it_lapses(*given: Any) -> Any:
        with contextlib.closing(sqlite3.connect(server.app.database)) as db:
            db.execute("update approval_request set status = 'expired'")
            db.commit()
        return prepare(*given)

    id = await approved(server, agent)
    monkeypatch.setattr(transaction, "prepare", prepare_when_it_lapses)
    with pytest.raises(InvalidState, match="is expired, not approved"):
        await apply(agent, id)
    assert await state_of(server, id) is None
    assert os.listdir(root) == []
    assert not [card for card in server.operator.cards if card.kind is CardKind.APPLY]
