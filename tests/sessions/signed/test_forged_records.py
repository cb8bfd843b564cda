"""With an operator key, what SQL makes of genuine signatures and of states without one: nothing counts."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.model import crash_points
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import RestoreState
from intercom.model.config import Config
from intercom.model.decision import Decision
from intercom.model.errors import ApplyStuck, SignatureRefused
from intercom.model.request import PromptType
from intercom.sessions.messages import AwaitDecision
from intercom.sessions.session import hook_permissions
from intercom.sessions.signatures import Signatures, without_keys
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.transmit import Transmit
from intercom.sessions.trusted_keys import Keyring
from intercom.store.database import Database, open_database
from tests.sessions.signed.keyed_server import approve, enrol, keyed, sql
from tests.sessions.signed.test_decisions import ask_leave
from tests.sessions.test_checkpoints import ask, ended, spoil, take
from tests.sessions.test_policy_trust import OTHER, POLICY, TRUSTING, content, passes, waiting, write
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one\n")
    (made / "sub/b.txt").write_text("two\n")
    return made


def between_runs(root: Path, statement: str, *values: str) -> None:
    """SQL while no server runs."""
    with contextlib.closing(sqlite3.connect(root.parent / "intercom.db")) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


async def say(server: VirtualServer, key: Key, id: str, decision: Decision) -> None:
    await server.app.service.decide(id, key.verdict(await server.app.service.card(id), decision, server.now()))


async def test_a_policy_that_a_person_rejected_is_not_made_an_accepted_one(clock: Clock, root: Path) -> None:
    key = Key()
    write(root, POLICY)
    async with keyed(root, clock, key) as server:
        await server.arrive(root)
        await say(server, key, (await waiting(server, root)).id, Decision.REJECT)
    between_runs(root, "update policy_decision set accepted = 1")
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        assert not await passes(agent)
        assert "does not count" in (await server.operator.notice("recorded as accepted")).text


async def test_a_policy_that_a_person_accepted_counts_after_a_restart(clock: Clock, root: Path) -> None:
    key = Key()
    write(root, POLICY)
    async with keyed(root, clock, key) as server:
        await server.arrive(root)
        await say(server, key, (await waiting(server, root)).id, Decision.ACCEPT)
    async with keyed(root, clock, key) as server:
        assert await passes(await server.arrive(root))


async def test_a_policy_that_was_accepted_before_there_was_a_key_is_accepted_again(clock: Clock, root: Path) -> None:
    key = Key()
    write(root, POLICY)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await server.accept(root)
        assert server.app.service.unsigned_policies() is None
        await enrol(server, key)
        told = f"the policy of {root} was accepted without a signature: the next server asks you to accept it again"
        assert (await server.operator.notice(told)).level == "warning"
        assert told in (server.app.service.unsigned_policies() or "")
        assert await passes(agent)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent)
        await say(server, key, (await waiting(server, root)).id, Decision.ACCEPT)
        assert await passes(agent)
        assert server.app.service.unsigned_policies() is None


async def test_an_older_acceptance_does_not_come_back_when_the_later_one_is_removed(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        await server.arrive(root)
        for policy in (POLICY, OTHER):
            write(root, policy)
            await server.later(5)
            card = await server.operator.card(detail=content(policy), state=CardState.PENDING)
            await say(server, key, card.id, Decision.ACCEPT)
    write(root, POLICY)
    between_runs(root, "delete from policy_decision where sha = ?", content(OTHER))
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        assert not await passes(agent)
        assert "later decision" in (await server.operator.notice("recorded as accepted")).text


#: What grants all that POLICY and OTHER do.
BOTH = {"enabled": True, "file_patterns": {"write": ["docs/**", "src/**"]}}


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("delete from policy_narrowing", ()),
        ("update policy_narrowing set text = ?", (json.dumps(BOTH),)),
        ("update policy_narrowing set text = ?", (json.dumps(OTHER),)),
    ],
    ids=["deleted", "widened", "exchanged"],
)
async def test_what_a_policy_was_narrowed_to_is_not_widened_by_sql(
    clock: Clock, root: Path, statement: str, values: tuple[str, ...]
) -> None:
    async with virtual_server(root.parent, clock) as server:
        write(root, BOTH)
        await server.accept(root)
        agent = await server.arrive(root)
        write(root, POLICY)
        assert not await passes(agent, "src/a")
        await server.later(0)
    between_runs(root, statement, *values)
    write(root, BOTH)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert not await passes(agent, "src/a")
        assert "its file removed" in (await server.operator.notice("does not count")).text
        await server.accept(root)
        assert await passes(agent, "src/a")
    async with virtual_server(root.parent, clock) as server:
        assert await passes(await server.arrive(root), "src/a")


async def test_a_policy_that_was_narrowed_counts_after_a_restart_and_after_nobody_was_asked(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        write(root, BOTH)
        await server.accept(root)
        agent = await server.arrive(root)
        write(root, POLICY)
        assert not await passes(agent, "src/a")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert (await passes(agent), await passes(agent, "src/a")) == (True, False)
    write(root, BOTH)
    async with virtual_server(root.parent, clock, TRUSTING) as server:
        assert await passes(await server.arrive(root), "src/a")
        await server.later(0)
        assert [each.kind for each in await server.app.service.audit(20)].count("policy_widened") == 1
    async with virtual_server(root.parent, clock) as server:
        assert await passes(await server.arrive(root), "src/a")
        assert not [notice for notice in server.operator.notices if "does not count" in notice.text]


@pytest.mark.parametrize("state", ["accepted", "committed", "handed_over"])
async def test_a_restore_that_a_person_cancelled_is_not_carried_out(clock: Clock, root: Path, state: str) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        taken = await take(server, await server.arrive(root))
        spoil(root)
        asked = await ask(server, taken)
        await say(server, key, asked.id, Decision.CANCEL)
    between_runs(root, f"update restore set state = '{state}' where id = ?", asked.id)
    async with keyed(root, clock, key) as server:
        refused = await ended(server, asked.id)
        assert refused.state is not RestoreState.DONE
        assert "contradicts itself" in (await server.operator.notice("refused to restore")).text
        assert (root / "a.txt").read_text() == "spoiled\n"
        assert (root / "new.txt").exists()


async def test_a_restore_is_of_the_checkpoint_that_was_shown(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    shown = await take(server, agent)
    (root / "sub/b.txt").write_text("of the agent\n")
    other = await take(server, agent)
    spoil(root)
    asked = await ask(server, shown)
    card = await server.app.service.card(asked.id)
    signed = key.verdict(card, Decision.PROCEED, server.now())
    sql(server, "update restore set checkpoint_id = ? where id = ?", other.checkpoint.id, asked.id)
    with pytest.raises(SignatureRefused, match="not what the request says now"):
        await server.app.service.decide(asked.id, signed)


async def test_a_restore_whose_card_sql_changed_before_it_was_signed_changes_no_file(
    server: VirtualServer, key: Key, root: Path
) -> None:
    taken = await take(server, await server.arrive(root))
    spoil(root)
    asked = await ask(server, taken)
    nothing = '{"modified": 0, "deleted": 0, "added": 0, "first": [], "remarks": []}'
    sql(server, "update restore set divergence = ? where id = ?", nothing, asked.id)
    assert "No file has changed since." in ((await server.app.service.card(asked.id)).body or "")
    await say(server, key, asked.id, Decision.PROCEED)
    anew = await server.operator.card(lambda card: card.id != asked.id, kind=CardKind.RESTORE, state=CardState.PENDING)
    assert "1 modified, 1 deleted, 1 added" in (anew.body or "")
    assert (root / "a.txt").read_text() == "spoiled\n"
    assert (root / "new.txt").exists()


async def test_a_signed_restore_is_carried_out(server: VirtualServer, key: Key, root: Path) -> None:
    taken = await take(server, await server.arrive(root))
    spoil(root)
    asked = await ask(server, taken)
    await say(server, key, asked.id, Decision.PROCEED)
    done = await ended(server, asked.id)
    assert done.state is RestoreState.DONE, done.note
    assert (root / "a.txt").read_text() == "one\n"


async def test_entries_that_are_no_json_stop_neither_an_apply_nor_a_restore(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    taken = await take(server, agent)
    id = (await agent.propose("new.txt")).request_id
    await approve(server, key, id)
    entry = "insert into audit (at, kind, session_id, who, summary, data) values ('', ?, ?, 'x', 'x', 'no json')"
    for kind in ("applied", "permission_used", "restore"):
        sql(server, entry, kind, agent.session_id)
    await agent.ask(CheckDiff(id))
    assert (root / "new.txt").exists()
    asked = await ask(server, taken)
    await say(server, key, asked.id, Decision.PROCEED)
    assert (await ended(server, asked.id)).state is RestoreState.DONE
    assert not (root / "new.txt").exists()


@pytest.mark.parametrize("status", ["decided", "expired"])
async def test_an_answer_that_nobody_gave_says_so(server: VirtualServer, agent: AgentClient, status: str) -> None:
    id = (await agent.ask(Transmit("go on?", PromptType.CONTINUATION))).request_id
    sql(
        server,
        f"update continuation_prompt set status = '{status}', decision = 'continue', verdict_id = 'x',"
        " verdict = 'continue', decided_by = 'kim', decided_via = 'timeout',"
        " decided_at = '2026-01-01T00:00:01.000000+00:00' where id = ?",
        id,
    )
    if status == "decided":
        with pytest.raises(SignatureRefused):
            await agent.ask(AwaitDecision(agent.call(), id))
    else:
        answered = await agent.ask(AwaitDecision(agent.call(), id))
        assert answered.answer.timed_out


async def test_an_apply_that_is_stuck_is_given_up_by_a_signed_word_only(
    server: VirtualServer, key: Key, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(point: str) -> None:
        if point == "journal.committed":
            (root / "new.txt").write_text("meddled\n")

    agent = await server.arrive(root)
    id = (await agent.propose("new.txt")).request_id
    await approve(server, key, id)
    monkeypatch.setattr(crash_points, "hook", meddle)
    with pytest.raises(ApplyStuck):
        await agent.ask(CheckDiff(id))
    card = await server.app.service.card(f"apply-{id}")
    used = (await server.app.service.card(id)).decided
    assert used is not None
    for signature in (None, used.signature):
        with pytest.raises(SignatureRefused):
            await server.app.service.decide(card.id, evolve(server.verdict(Decision.DISMISS), signature=signature))
    assert (await server.app.service.card(card.id)).state is CardState.PENDING
    await say(server, key, card.id, Decision.DISMISS)


LATER = "2027-01-01T00:00:00.000000+00:00"
UNUSE = "update approval_request set status = 'approved', consumed_at = null where id = ?"


@pytest.mark.parametrize("restarted", [False, True])
async def test_leave_that_was_used_is_not_used_again(clock: Clock, root: Path, restarted: bool) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        asked = await ask_leave(agent, "make", "one")
        await approve(server, key, asked.request_id)
        assert (await ask_leave(agent, "make", "one")).answered.answer.status == "allowed"
        if not restarted:
            sql(server, UNUSE, asked.request_id)
            with pytest.raises(SignatureRefused, match="used before"):
                await ask_leave(agent, "make", "two")
    if restarted:
        between_runs(root, UNUSE, asked.request_id)
        async with keyed(root, clock, key) as server:
            agent = await server.arrive(root)
            with pytest.raises(SignatureRefused, match="used before"):
                await ask_leave(agent, "make", "two")


async def test_leave_that_was_used_long_ago_covers_nothing(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    asked = await ask_leave(agent, "make", "one")
    await approve(server, key, asked.request_id)
    assert (await ask_leave(agent, "make", "one")).answered.answer.status == "allowed"
    await server.later(2 * hook_permissions.COVERED.total_seconds())
    sql(server, "update permission_use set used_at = ? where request_id = ?", LATER, asked.request_id)
    again = await ask_leave(agent, "make", "two")
    assert again.answered is None
    assert again.request_id != asked.request_id


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_change_that_was_applied_is_not_applied_again(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, forgotten: bool
) -> None:
    id = (await agent.propose("new.txt")).request_id
    await approve(server, key, id)
    await agent.ask(CheckDiff(id))
    (root / "new.txt").unlink()
    sql(server, UNUSE, id)
    sql(server, "delete from apply_journal where request_id = ?", id)
    if forgotten:
        with contextlib.closing(sqlite3.connect(server.app.database)) as db:
            db.execute("delete from audit where kind = 'applied'")
            db.commit()
    with pytest.raises(SignatureRefused, match="used before"):
        await agent.ask(CheckDiff(id))
    assert not (root / "new.txt").exists()


@pytest.mark.parametrize(
    ("statement", "said", "on_card"),
    [
        ("update approval_request set session_id = 'other'", "may be half written", False),
        ("delete from approval_request", "may be half written", False),
        ("update apply_journal set steps = 'no json'", "cannot be read", True),
    ],
    ids=["moved", "deleted", "unreadable"],
)
async def test_an_apply_that_sql_spoiled_is_told_of_once_and_its_session_goes_on(
    clock: Clock, root: Path, statement: str, said: str, on_card: bool
) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose("new.txt")).request_id
        await server.decide(id, Decision.APPROVE)
        await agent.ask(CheckDiff(id))
        sql(server, UNUSE, id)
    (root / "new.txt").unlink()
    between_runs(root, "update apply_journal set state = 'committed'")
    between_runs(root, statement)
    for is_told in (True, False):
        async with virtual_server(root.parent, clock) as server:
            agent = await server.arrive(root)
            await agent.settled()
            if is_told and on_card:
                await server.operator.card(lambda card: said in (card.body or ""))
            elif is_told:
                await server.operator.notice(said)
            else:
                await trio.testing.wait_all_tasks_blocked()
                told = (each.text for each in server.operator.notices)
                assert not any(said in text for text in told)
                assert server.operator.cards == []
            assert not (root / "new.txt").exists()


@pytest.mark.parametrize("has_key", [False, True])
def test_what_was_used_is_kept_in_mind_only_where_there_are_keys(tmp_path: Path, has_key: bool) -> None:
    """A server without one must not grow with every change that it applies."""
    signatures = without_keys() if not has_key else Signatures(Keyring(without_keys().keyring.places, Config()))
    at = datetime.now(UTC)
    for number in range(1000):
        signatures.note_use(f"r{number}", at)
    with contextlib.closing(open_database(tmp_path / "a.db").db.conn) as connection:
        kept = [signatures.first_use(Database(connection), "s", f"r{number}") for number in range(1000)]
    assert kept == [at if has_key else None] * 1000
