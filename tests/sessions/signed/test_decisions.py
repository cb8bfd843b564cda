"""With an operator key an unsigned decision decides nothing: not from ctl, not in the database, not after a restart."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve
from sqlite_utils import Database

from intercom.local import operator_keys, own_files, places
from intercom.local.operator_keys import Allowed, SignedSettings
from intercom.model import signing
from intercom.model.card import Card, CardKind, CardState, subject
from intercom.model.clock import to_text
from intercom.model.config import Config, DecisionsSettings, HighestRisk, PolicySettings, SlackSettings
from intercom.model.decision import Decision, Signature, Verdict, signature_data, signature_from_data
from intercom.model.errors import InvalidState, NotFound, RecordMismatch, SignatureRefused
from intercom.model.request import Operation, OperationKind, PromptType, RiskLevel
from intercom.operators.commands import command_execution as requests
from intercom.operators.commands.json_forms import card_entry, read
from intercom.operators.ctl.connection import CtlRequest
from intercom.sessions.messages import AskPermission, AwaitDecision
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.sessions.trusted_keys import Keyring, SystemKeys
from tests.sessions.signed.keyed_server import approve, enrol, keyed, sign_allowed, sql
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


def files(root: Path) -> list[str]:
    return [each.name for each in root.iterdir()]


async def test_a_typed_pin_lets_any_process_bring_the_act_that_it_was_typed_for_and_no_other(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    signed = [
        key.verdict(
            await server.app.service.card((await agent.propose(path)).request_id), Decision.APPROVE, server.now()
        )
        for path in ("a.txt", "b.txt")
    ]
    one, other = (verdict.signature for verdict in signed)
    assert one is not None
    assert other is not None

    def is_proven(command: str, signature: Signature, **fields: Any) -> bool:
        given = {"id": one.request_id, **fields}
        verdict_id = given.pop("verdict_id", "v-signed")
        return requests.is_proven(server.app.service, CtlRequest(command, given, verdict_id, signature))

    assert is_proven("approve", one)
    assert not is_proven("approve", other)
    assert not is_proven("approve", one, id=None)
    assert not is_proven("approve", one, verdict_id="another act")
    assert not is_proven("approve", evolve(one, request_id="another", text="changed"), id="another")
    assert not any(is_proven(verb, one) for verb in ("reject", "policy-accept", "policy-reject", "pause", "clear"))
    assert not is_proven("answer", one, decision="continue")

    nudge = {"id": "s-1", "text": "go on"}
    said = evolve(one, request_id="", subject=signing.command_subject("nudge", nudge), risk=None, decision="nudge")
    assert is_proven("nudge", key.sign(said), **nudge)
    assert not is_proven("nudge", key.sign(said), id="s-2", text="go on")
    assert not is_proven("steer", key.sign(said), **nudge)
    assert not is_proven("nudge", key.sign(evolve(said, method=signing.TICKET)), **nudge)


async def test_a_signed_approval_decides_and_is_applied(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    card = await approve(server, key, id)
    assert card.decided.signature.key_id == key.public.id
    assert (await waiting()).answer.status == "approved"
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == "a\n"
    (entry,) = [each for each in await server.app.service.audit(50) if each.kind == "decided"]
    assert entry.data["signature"]["key_id"] == key.public.id


async def test_an_unsigned_approval_decides_nothing_and_everybody_is_told(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    with pytest.raises(SignatureRefused, match="takes only decisions signed with an operator key"):
        await server.decide(id, Decision.APPROVE)
    told = await server.operator.notice("refused to approve")
    assert (told.session_id, told.level) == (None, "error")
    assert waiting.outcome is None
    assert (await server.app.service.card(id)).decided is None
    assert "security" in [each.kind for each in await server.app.service.audit(50)]


Change = Callable[[Key, Verdict], Verdict]


def signed_anew(**changes: Any) -> Change:
    def change(key: Key, verdict: Verdict) -> Verdict:
        assert verdict.signature is not None
        return evolve(verdict, signature=key.sign(evolve(verdict.signature, **changes)))

    return change


def altered(**changes: Any) -> Change:
    def change(_key: Key, verdict: Verdict) -> Verdict:
        return evolve(verdict, signature=evolve(verdict.signature, **changes))

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (signed_anew(request_id="another"), "another decision"),
        (signed_anew(subject="00" * 32), "not what the request says now"),
        (signed_anew(risk="low"), "not what the request says now"),
        (signed_anew(decision="reject"), "another decision"),
        (signed_anew(text="more"), "another decision"),
        (signed_anew(decision_id="another"), "another decision"),
        (signed_anew(method="ticket"), "has to be signed with the PIN itself"),
        (signed_anew(method="channel"), "not of the channel"),
        (signed_anew(method="none"), "of no kind that counts"),
        (signed_anew(key_id="0123456789abcdef"), "does not count"),
        (signed_anew(at="2025-12-31T23:00:00.000000+00:00"), "too long ago"),
        (signed_anew(at="2026-01-01T01:00:00.000000+00:00"), "too long ago"),
        (signed_anew(at="whenever"), "too long ago"),
        (altered(at="2026-01-01T00:00:01.000000+00:00"), "not genuine"),
        (altered(value="00" * 64), "not genuine"),
        (altered(value=""), "not genuine"),
    ],
)
async def test_a_signature_for_anything_else_decides_nothing(
    server: VirtualServer, agent: AgentClient, key: Key, change: Change, why: str
) -> None:
    id = (await agent.propose(risk=RiskLevel.CRITICAL)).request_id
    card = await server.app.service.card(id)
    verdict = change(key, key.verdict(card, Decision.APPROVE, server.now()))
    with pytest.raises(SignatureRefused, match=why):
        await server.app.service.decide(id, verdict)
    assert (await server.app.service.card(id)).decided is None


async def test_a_key_that_nobody_enrolled_decides_nothing(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    with pytest.raises(SignatureRefused, match="does not count"):
        await approve(server, Key(), id)


FLIP = (
    "update approval_request set status = 'approved', verdict_id = 'x', verdict = 'approve', decided_by = 'kim',"
    " decided_via = ?, decided_at = '2026-01-01T00:00:01.000000+00:00', signature = ? where id = ?"
)


@pytest.mark.parametrize("channel", ["ctl", "slack", "embed", "elicitation", "policy", "timeout"])
@pytest.mark.parametrize("signature", [None, "{}", "not json", "forged"])
async def test_a_row_that_sql_approved_writes_nothing(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, channel: str, signature: str | None
) -> None:
    id = (await agent.propose()).request_id
    if signature == "forged":
        forged = Key().verdict(await server.app.service.card(id), Decision.APPROVE, server.now(), id="x").signature
        assert forged is not None
        forged = evolve(forged, key_id=key.public.id)
        signature = json.dumps({name: getattr(forged, name) for name in (*signing.STATED, "value")})
    sql(server, FLIP, channel, signature, id)
    with pytest.raises(SignatureRefused, match="does not count"):
        await agent.ask(AwaitDecision(agent.call(), id))
    await server.operator.notice("refused the recorded decision about")
    with pytest.raises(InvalidState):
        await agent.ask(CheckDiff(id))
    assert files(root) == []
    # The agent may propose it again, and then a person is asked.
    assert (await agent.propose()).request_id != id


async def test_check_diff_alone_refuses_a_row_that_sql_approved(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    sql(server, FLIP, "ctl", None, id)
    with pytest.raises(SignatureRefused, match="no operator's signature is recorded"):
        await agent.ask(CheckDiff(id))
    told = await server.operator.notice("nothing is written")
    assert told.session_id is None
    assert files(root) == []


@pytest.mark.parametrize(
    "edit",
    [
        "update approval_request set diff_content = 'evil' where id = ?",
        "update approval_request set title = 'another' where id = ?",
        "update approval_request set preview = 'another' where id = ?",
        "update approval_request set risk_level = 'critical' where id = ?",
        "update approval_request set proposal_hash = 'another' where id = ?",
        "update approval_file set path = 'CLAUDE.md' where request_id = ?",
        "update approval_file set after_hash = 'ee' where request_id = ?",
        "update approval_file set kind = 'delete' where request_id = ?",
        "update approval_request set verdict = 'reject' where id = ?",
        "update approval_request set verdict_id = 'another' where id = ?",
        "update approval_request set decided_text = 'more' where id = ?",
        "update approval_request set decided_via = 'slack' where id = ?",
        "update approval_request set signature = null where id = ?",
    ],
)
async def test_a_proposal_edited_after_its_approval_is_not_written(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, edit: str
) -> None:
    id = (await agent.propose()).request_id
    await approve(server, key, id)
    sql(server, edit, id)
    with pytest.raises((SignatureRefused, RecordMismatch)):
        await agent.ask(CheckDiff(id))
    await server.operator.notice(id)
    assert files(root) == []


HARMLESS = "diff --git a/a.txt b/a.txt\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+harmless\n"


@pytest.mark.parametrize(
    ("edit", "value"),
    [
        ("update approval_request set preview = ? where id = ?", HARMLESS),
        ("update approval_request set remarks = ? where id = ?", '[["a.txt", "only white space changes"]]'),
        ("update approval_request set masked = ? where id = ?", '[[4, "+harmless"]]'),
        ("update approval_file set added = ? where request_id = ?", 0),
    ],
)
async def test_a_card_that_sql_changed_before_it_was_signed_writes_nothing(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path, edit: str, value: Any
) -> None:
    id = (await agent.propose()).request_id
    sql(server, edit, value, id)
    await approve(server, key, id)
    with pytest.raises(RecordMismatch, match="shown"):
        await agent.ask(CheckDiff(id))
    await server.operator.notice("refused when it was to be applied")
    assert files(root) == []


async def test_a_command_that_sql_renamed_before_it_was_signed_is_not_let_pass(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    asked = await ask_leave(agent, "rm -rf .", "one")
    sql(server, "update approval_request set title = 'Run: ls', description = 'ls' where id = ?", asked.request_id)
    await approve(server, key, asked.request_id)
    again = await ask_leave(agent, "rm -rf .", "one")
    assert again.answered is None or again.answered.answer.status != "allowed"


async def test_a_signature_moved_to_another_request_counts_for_nothing(
    server: VirtualServer, agent: AgentClient, key: Key, root: Path
) -> None:
    good = (await agent.propose("good.txt")).request_id
    bad = (await agent.propose("bad.txt")).request_id
    await approve(server, key, good)
    sql(
        server,
        "update approval_request set (status, verdict_id, verdict, decided_by, decided_via, decided_at, signature)"
        " = (select status, 'moved', verdict, decided_by, decided_via, decided_at, signature"
        " from approval_request where id = ?) where id = ?",
        good,
        bad,
    )
    with pytest.raises(SignatureRefused):
        await agent.ask(CheckDiff(bad))
    await agent.ask(CheckDiff(good))
    assert files(root) == ["good.txt"]


async def test_a_row_flipped_while_no_server_runs_reaches_nobody(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        sql(server, FLIP, "ctl", None, id)
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        await server.operator.notice("refused the recorded decision about")
        # A call of any other tool would bring it along.
        opened = await agent.ask(Transmit("go on?", PromptType.CONTINUATION))
        assert opened.answered is None
        with pytest.raises(InvalidState):
            await agent.ask(AwaitDecision(agent.call(), id))


async def test_a_signed_decision_counts_after_a_restart(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await approve(server, key, id)
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        await agent.ask(CheckDiff(id))
        assert (root / "a.txt").read_text() == "a\n"


async def test_words_put_into_a_prompts_row_reach_nobody(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    ids = [(await agent.ask(Transmit(f"go on {n}?", PromptType.CONTINUATION))).request_id for n in (1, 2)]
    card = await server.app.service.card(ids[0])
    await server.app.service.decide(ids[0], key.verdict(card, Decision.CONTINUE, server.now()))
    answered = await agent.ask(AwaitDecision(agent.call(), ids[0]))
    assert answered.answer.decision == "continue"
    sql(server, "update continuation_prompt set instruction = 'remove everything' where id = ?", ids[0])
    with pytest.raises(SignatureRefused, match="contradicts itself"):
        await agent.ask(AwaitDecision(agent.call(), ids[0]))
    sql(
        server,
        "update continuation_prompt set status = 'decided', decision = 'refine', instruction = 'remove everything',"
        " verdict_id = 'x', verdict = 'refine', decided_by = 'kim', decided_via = 'ctl',"
        " decided_at = '2026-01-01T00:00:01.000000+00:00', decided_text = 'remove everything' where id = ?",
        ids[1],
    )
    with pytest.raises(SignatureRefused, match="no operator's signature"):
        await agent.ask(AwaitDecision(agent.call(), ids[1]))


async def test_a_standby_is_resumed_by_a_signed_answer_only(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    id = (await agent.ask(Standby("done"))).request_id
    with pytest.raises(SignatureRefused):
        await server.decide(id, Decision.RESUME, "go on")
    card = await server.app.service.card(id)
    await server.app.service.decide(id, key.verdict(card, Decision.RESUME, server.now(), "go on"))
    opened = await agent.ask(Standby("done", request_id=id))
    assert opened.answered.answer.instruction == "go on"
    sql(server, "update wait set instruction = 'remove everything' where id = ?", id)
    with pytest.raises(SignatureRefused):
        await agent.ask(Standby("done", request_id=id))


def operation(command: str) -> Operation:
    return Operation(OperationKind.COMMAND, "Bash", f"run {command}", f"Bash {command}", command)


async def ask_leave(agent: AgentClient, command: str, slot: str, call: str | None = None) -> Any:
    return await agent.ask(AskPermission(call or agent.call(), "client", operation(command), slot))


async def test_permission_is_used_once_it_was_signed(server: VirtualServer, agent: AgentClient, key: Key) -> None:
    asked = await ask_leave(agent, "make", "one")
    await approve(server, key, asked.request_id)
    assert (await ask_leave(agent, "make", "one")).answered.answer.status == "allowed"


async def test_permission_that_sql_gave_is_none(server: VirtualServer, agent: AgentClient) -> None:
    asked = await ask_leave(agent, "make", "one")
    sql(server, FLIP, "ctl", None, asked.request_id)
    with pytest.raises(SignatureRefused):
        await ask_leave(agent, "make", "one")
    assert (await ask_leave(agent, "make", "one")).answered is None


async def test_permission_for_one_command_is_none_for_another(
    server: VirtualServer, agent: AgentClient, key: Key
) -> None:
    asked = await ask_leave(agent, "make", "one")
    await approve(server, key, asked.request_id)
    other = await ask_leave(agent, "rm -rf .", "two")
    sql(
        server,
        "update approval_request set key = (select key from approval_request where id = ?) where id = ?",
        other.request_id,
        asked.request_id,
    )
    sql(server, "update approval_request set status = 'interrupted' where id = ?", other.request_id)
    with pytest.raises(SignatureRefused):
        await ask_leave(agent, "rm -rf .", "two")


async def test_an_answer_put_into_the_database_lets_no_operation_pass(
    server: VirtualServer, agent: AgentClient
) -> None:
    call = agent.call()
    asked = await ask_leave(agent, "make", "one", call)
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        (found,) = db.execute("select key from approval_request where id = ?", (asked.request_id,)).fetchone()
        for suffix, answer in (
            ("", {"status": "allowed", "rule": "command:make"}),
            ("x", {"status": "allowed", "request_id": asked.request_id}),
        ):
            db.execute(
                "insert into answered_call (name, session_id, tool, answer, created_at) values (?, ?, 'Bash', ?, ?)",
                (
                    f"call/{agent.session_id}/{call}{suffix}#{found[:32]}",
                    agent.session_id,
                    json.dumps(answer),
                    "2026-01-01T00:00:01.000000+00:00",
                ),
            )
        db.commit()
    assert (await ask_leave(agent, "make", "one", call)).answered.answer.status == "denied"
    later = await ask_leave(agent, "make", "one", f"{call}x")
    assert later.answered is None or later.answered.answer.status != "allowed"


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_second_key_needs_the_signature_of_the_first(server: VirtualServer, key: Key, root: Path) -> None:
    second = Key()
    with pytest.raises(SignatureRefused, match="needs the signature of an operator key that counts"):
        await enrol(server, second)
    await enrol(server, second, by=key)
    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    await approve(server, second, id)


async def test_a_key_is_revoked_by_the_signature_of_a_present_one(clock: Clock, root: Path) -> None:
    first, second = Key(), Key()
    async with keyed(root, clock, first) as server:
        await enrol(server, second, by=first)
        with pytest.raises(SignatureRefused):
            await server.app.service.revoke_key(first.public.id, *Key().for_key("revoke", first.public, server.now()))
        await server.app.service.revoke_key(first.public.id, *second.for_key("revoke", first.public, server.now()))
        await server.operator.notice("was revoked")
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        with pytest.raises(SignatureRefused, match="does not count"):
            await approve(server, first, id)
        await approve(server, second, id)
        with pytest.raises(NotFound):
            await server.app.service.revoke_key("0123", *second.for_key("revoke", first.public, server.now()))
    async with keyed(root, clock, second) as server:
        assert {each.key_id for each in server.app.signatures.keyring.status() if each.counts} == {second.public.id}


async def test_a_signature_to_add_a_key_is_taken_while_it_is_fresh(server: VirtualServer, key: Key) -> None:
    second = Key()
    old = key.for_key("add", second.public, server.now() - timedelta(hours=1))
    with pytest.raises(SignatureRefused, match="not in order"):
        await server.app.service.add_key(second.public, *old)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "now", ""])
async def test_a_signature_without_a_time_is_refused(
    server: VirtualServer, agent: AgentClient, key: Key, at: str
) -> None:
    id = (await agent.propose()).request_id
    verdict = key.verdict(await server.app.service.card(id), Decision.APPROVE, server.now())
    assert verdict.signature is not None
    with pytest.raises(SignatureRefused, match="signed too long ago"):
        await server.app.service.decide(id, evolve(verdict, signature=evolve(verdict.signature, at=at)))
    stored = signature_data(verdict.signature)
    assert signature_from_data(stored) == verdict.signature
    assert signature_from_data({**(stored or {}), "at": None}) is None


async def test_a_removed_file_does_not_switch_the_protection_off(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        os.unlink(server.app.places.operator_keys_file)
        for attempt in (server.decide(id, Decision.APPROVE), approve(server, key, id)):
            with pytest.raises(SignatureRefused):
                await attempt
    async with keyed(root, clock, key) as server:
        await server.operator.notice("does not list it")
        with pytest.raises(SignatureRefused):
            await server.decide(id, Decision.APPROVE)


async def test_rows_removed_from_the_database_do_not_switch_the_protection_off(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        sql(server, "delete from operator_key")
        with pytest.raises(SignatureRefused):
            await server.decide(id, Decision.APPROVE)
        await approve(server, key, id)
    async with virtual_server(root.parent, clock) as server:
        await server.operator.notice("not enrolled")
        agent = await server.arrive(root)
        id = (await agent.propose("b.txt", call="agent/later")).request_id
        with pytest.raises(SignatureRefused):
            await server.decide(id, Decision.APPROVE)


def replace_text(file: Path, text: str) -> str:
    """Write another text into a file; the one that was there."""
    before = file.read_text()
    file.write_text(text)
    return before


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_no_key_comes_before_one_that_was_listed_at_the_start(clock: Clock, root: Path, is_damaged: bool) -> None:
    key, evil = Key(), Key()
    async with virtual_server(root.parent, clock) as server:
        operator_keys.add_public(server.app.places, key.public)
        list_file = Path(server.app.places.operator_keys_file)
    listed = replace_text(list_file, "nonsense\n") if is_damaged else None
    async with virtual_server(root.parent, clock) as server:
        if listed is not None:
            replace_text(list_file, listed)
        with pytest.raises(SignatureRefused, match="was not listed when the server started"):
            await enrol(server, evil)
        assert not server.app.signatures.keyring.trusted()
        if is_damaged:
            return
        await enrol(server, key)
        await enrol(server, evil, by=key)


async def test_after_the_last_key_was_revoked_any_may_be_the_first(clock: Clock, root: Path) -> None:
    key, other = Key(), Key()
    async with keyed(root, clock, key):
        pass
    async with virtual_server(root.parent, clock) as server:
        await server.app.service.revoke_key(key.public.id, *key.for_key("revoke", key.public, server.now()))
        await enrol(server, other)


def able(server: VirtualServer) -> set[str]:
    """The keys that the server would take as the first one."""
    return {each.key_id for each in server.app.signatures.keyring.status() if each.can_be_first}


def reasons(server: VirtualServer) -> dict[str, str]:
    return {each.key_id: each.why for each in server.app.signatures.keyring.status() if not each.counts}


async def test_every_listed_key_may_be_the_first_until_one_is(clock: Clock, root: Path) -> None:
    key, other = Key(), Key()
    async with virtual_server(root.parent, clock) as server:
        for each in (key, other):
            operator_keys.add_public(server.app.places, each.public)
        assert able(server) == {key.public.id, other.public.id}
        await enrol(server, key)
        assert able(server) == set()


async def test_a_key_that_was_enrolled_before_its_list_was_emptied_is_not_said_to_be_able_to_enrol_itself(
    clock: Clock, root: Path
) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        list_file = Path(server.app.places.operator_keys_file)
    listed = replace_text(list_file, "")
    async with virtual_server(root.parent, clock) as server:
        replace_text(list_file, listed)
        assert reasons(server) == {key.public.id: "pinned at the next start"}
        assert able(server) == set()


async def test_a_revoked_key_that_is_listed_again_never_counts_and_says_what_to_do(clock: Clock, root: Path) -> None:
    key, other = Key(), Key()
    async with keyed(root, clock, key) as server:
        await server.later(1)
        await server.app.service.revoke_key(key.public.id, *key.for_key("revoke", key.public, server.now()))
        assert able(server) == set()
        assert "cannot be enrolled again" in reasons(server)[key.public.id]
    async with virtual_server(root.parent, clock) as server:
        await server.operator.notice("cannot be enrolled again: remove its line")
        assert able(server) == set()
        assert "remove its line from the list, then run agent-intercom stop" in reasons(server)[key.public.id]
        with pytest.raises(SignatureRefused):
            await enrol(server, key)
        operator_keys.forget(server.app.places, key.public.id)
    async with virtual_server(root.parent, clock) as server:
        await enrol(server, other)
        assert set(server.app.signatures.keyring.trusted()) == {other.public.id}


async def test_a_key_that_the_server_did_not_see_at_its_start_is_not_said_to_be_able_to_enrol_itself(
    clock: Clock, root: Path
) -> None:
    key = Key()
    async with virtual_server(root.parent, clock) as server:
        operator_keys.add_public(server.app.places, key.public)
        list_file = Path(server.app.places.operator_keys_file)
    listed = replace_text(list_file, "nonsense\n")
    async with virtual_server(root.parent, clock) as server:
        replace_text(list_file, listed)
        assert able(server) == set()
        assert reasons(server) == {
            key.public.id: "not listed when the server started: if it is yours, run agent-intercom stop"
        }


async def test_the_first_key_after_the_last_one_was_revoked_counts_after_a_restart_too(
    clock: Clock, root: Path
) -> None:
    """Failed before: it counted until the next start, and then no decision could be signed any more."""
    key, again, thief = Key(), Key(), Key()
    async with keyed(root, clock, key) as server:
        await server.later(1)
        await server.app.service.revoke_key(key.public.id, *key.for_key("revoke", key.public, server.now()))
        operator_keys.forget(server.app.places, key.public.id)
        await server.later(1)
        await enrol(server, again)
    async with virtual_server(root.parent, clock) as server:
        assert set(server.app.signatures.keyring.trusted()) == {again.public.id}
        # No other one comes first while it counts.
        at, by, signature = thief.for_key("add", thief.public, server.now())
        sql(
            server,
            "insert into operator_key (id, public, name, added_at, added_by, added_signature)"
            " values (?, ?, ?, ?, ?, ?)",
            *(thief.public.id, thief.public.public, "kim", at, by, signature),
        )
        operator_keys.add_public(server.app.places, thief.public)
    async with virtual_server(root.parent, clock) as server:
        assert set(server.app.signatures.keyring.trusted()) == {again.public.id}


async def test_the_users_own_key_protects_a_server_that_a_client_gave_other_directories(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, evil = Key(), Key()
    monkeypatch.setattr(places, "STAND_IN_HOME", str(root.parent / "me"))
    users = own_files.default_places()
    assert users is not None
    operator_keys.add_public(users, key.public)
    async with virtual_server(root.parent, clock) as server:
        foreign = Keyring(server.app.places, server.app.config, is_foreign=True)
        with contextlib.closing(sqlite3.connect(server.app.database)) as connection:
            db = Database(connection)
            foreign.load(db, server.now())
            assert foreign.required
            assert not foreign.trusted()
            with pytest.raises(SignatureRefused):
                foreign.add(db, evil.public, *evil.for_key("add", evil.public, server.now()), server.now())
            operator_keys.add_public(server.app.places, key.public)
            assert foreign.add(db, key.public, *key.for_key("add", key.public, server.now()), server.now())
        assert not server.app.signatures.required


@pytest.mark.parametrize(
    "tamper",
    [
        "update operator_key set public = ?",
        "insert into operator_key select ?, public, name, added_at, added_by, added_signature, null, null, null"
        " from operator_key",
    ],
)
async def test_a_key_that_sql_enrolled_does_not_count(clock: Clock, root: Path, tamper: str) -> None:
    key, evil = Key(), Key()
    async with keyed(root, clock, key) as server:
        operator_keys.add_public(server.app.places, evil.public)
        sql(server, tamper, evil.public.public if "update" in tamper else evil.public.id)
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        with pytest.raises(SignatureRefused):
            await approve(server, evil, id)
    async with keyed(root, clock, key) as server:
        with pytest.raises(SignatureRefused):
            await approve(server, evil, id)
        with pytest.raises(SignatureRefused):
            await server.decide(id, Decision.APPROVE)


async def test_a_key_that_sql_revoked_still_counts(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as server:
        sql(server, "update operator_key set revoked_at = '2026', revoked_by = 'x', revoked_signature = ''")
    async with keyed(root, clock, key) as server:
        await server.operator.notice("without a signature: it still counts")
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        with pytest.raises(SignatureRefused):
            await server.decide(id, Decision.APPROVE)
        await approve(server, key, id)


def test_ctl_and_the_server_sign_the_same_card() -> None:
    from tests.operators.stand_in_service import card

    for kind in CardKind:
        shown = card("one", kind, body="words \ud83d\ude00 \ud800", detail="x", proposal_hash="hash")
        entry = json.loads(json.dumps(card_entry(shown)))
        assert signing.card_subject(entry) == subject(shown)
        assert read(Card, entry) == shown
        assert card_entry(read(Card, entry)) == entry


def test_what_was_left_out_can_not_be_signed_for() -> None:
    from tests.operators.stand_in_service import card

    with pytest.raises(ValueError, match="left out"):
        signing.card_subject(card_entry(card("one").without_diff()))


@pytest.mark.parametrize("decision", [Decision.ACCEPT, Decision.APPROVE])
async def test_a_policy_needs_the_pin_by_whatever_word(
    server: VirtualServer, key: Key, root: Path, decision: Decision
) -> None:
    file = root / ".intercom" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"enabled": True, "file_patterns": {"write": ["**/*"]}}))
    await server.arrive(root)
    card = await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING)
    with pytest.raises(SignatureRefused, match="with the PIN itself"):
        await server.app.service.decide(card.id, key.verdict(card, decision, server.now(), method=signing.TICKET))
    await server.app.service.decide(card.id, key.verdict(card, decision, server.now()))


# --- channels --------------------------------------------------------------------------------------------------------

SLACK = SlackSettings(channel_id="C0123456789")


def allowing(**channels: HighestRisk) -> Config:
    return Config(slack=SLACK, decisions=DecisionsSettings(**channels))


def by(server: VirtualServer, channel: str, id: str = "v-chat") -> Verdict:
    return Verdict(id, Decision.APPROVE, "kim (U1)", channel, server.now())


@pytest.mark.parametrize(
    ("channel", "config", "risk", "decides"),
    [
        ("slack", Config(slack=SLACK), RiskLevel.LOW, True),
        ("slack", Config(slack=SLACK), RiskLevel.HIGH, True),
        ("slack", Config(slack=SLACK), RiskLevel.CRITICAL, False),
        ("slack", allowing(slack=HighestRisk.CRITICAL), RiskLevel.CRITICAL, True),
        ("slack", allowing(slack=HighestRisk.LOW), RiskLevel.HIGH, False),
        ("slack", allowing(slack=HighestRisk.NONE), RiskLevel.LOW, False),
        ("slack", Config(), RiskLevel.LOW, False),
        ("embed", Config(), RiskLevel.LOW, False),
        ("embed", allowing(embed=HighestRisk.HIGH), RiskLevel.HIGH, True),
        ("embed", allowing(embed=HighestRisk.HIGH), RiskLevel.CRITICAL, False),
        ("unknown", Config(), RiskLevel.LOW, False),
    ],
)
async def test_what_a_channel_may_decide_is_a_setting(
    clock: Clock, root: Path, channel: str, config: Config, risk: RiskLevel, decides: bool
) -> None:
    async with keyed(root, clock, Key(), config) as server:
        agent = await server.arrive(root)
        id = (await agent.propose(risk=risk)).request_id
        if not decides:
            with pytest.raises(SignatureRefused):
                await server.app.service.decide(id, by(server, channel))
            return
        card = await server.app.service.decide(id, by(server, channel))
        assert card.decided.signature.key_id.startswith(f"{channel}:")
        assert card.decided.signature.method == "channel"
        await agent.ask(CheckDiff(id))
        assert (root / "a.txt").exists()


async def test_a_channel_that_may_no_more_decided_nothing(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key, Config(slack=SLACK)) as server:
        agent = await server.arrive(root)
        id = (await agent.propose(risk=RiskLevel.HIGH)).request_id
        await server.app.service.decide(id, by(server, "slack"))
    async with keyed(root, clock, key, allowing(slack=HighestRisk.LOW)) as server:
        agent = await server.arrive(root)
        with pytest.raises(InvalidState):
            await agent.ask(CheckDiff(id))
        assert files(root) == []


def spoil_settings(server: VirtualServer, key: Key, config: Config, how: str) -> None:
    """Leave something else where the signed settings stand."""
    file = Path(server.app.places.signed_settings_file)
    match how:
        case "signed by another key":
            sign_allowed(server, Key(), Allowed.by(config))
        case "changed":
            sign_allowed(server, key, Allowed())
            file.write_text(file.read_text().replace('"none"', '"critical"'))
        case "damaged":
            file.write_text("{")
        case "signed for less":
            sign_allowed(server, key, Allowed(HighestRisk.LOW, HighestRisk.LOW))


@pytest.mark.parametrize("channel", ["slack", "embed"])
@pytest.mark.parametrize("settings", ["unsigned", "signed by another key", "changed", "damaged", "signed for less"])
async def test_a_setting_that_nobody_signed_lets_no_channel_decide(
    clock: Clock, root: Path, channel: str, settings: str
) -> None:
    key, config = Key(), allowing(slack=HighestRisk.CRITICAL, embed=HighestRisk.CRITICAL)
    async with keyed(root, clock, key, config, sign_settings=False) as server:
        spoil_settings(server, key, config, settings)
        agent = await server.arrive(root)
        id = (await agent.propose(risk=RiskLevel.HIGH)).request_id
        with pytest.raises(SignatureRefused, match="key settings"):
            await server.app.service.decide(id, by(server, channel))
        sign_allowed(server, key, Allowed.by(config))
        await server.app.service.decide(id, by(server, channel))


async def test_people_are_told_of_settings_that_nobody_signed(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key):
        pass
    async with keyed(root, clock, key, allowing(embed=HighestRisk.HIGH), sign_settings=False) as server:
        told = await server.operator.notice("[decisions] embed")
        assert told.text == (
            "in Slack and in programs that embed Intercom, nothing can be decided yet: your operator key has not signed"
            ' [decisions] slack = "high", [decisions] embed = "high" (defaults have to be signed too); if you want it,'
            " run agent-intercom-ctl key settings"
        )
        await server.later(60)
        sign_allowed(server, key, Allowed.by(server.app.config))
        await server.app.service.note_settings()
        assert '[decisions] embed = "high"' in (await server.operator.notice("has signed the settings")).text


def _unsigned(server: VirtualServer) -> str:
    unsigned = server.app.signatures.keyring.unsigned_settings()
    return "" if unsigned is None else unsigned.sentence()


async def test_people_are_told_what_may_still_be_decided(clock: Clock, root: Path) -> None:
    key = Key()
    config = allowing(slack=HighestRisk.HIGH, embed=HighestRisk.NONE)
    async with keyed(root, clock, key, config, sign_settings=False) as server:
        sign_allowed(server, key, Allowed(HighestRisk.LOW))
        told = _unsigned(server)
        assert told.startswith("in Slack, only requests of low risk can be decided: ")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_older_signed_settings_that_are_put_back_count_for_nothing(
    clock: Clock, root: Path, is_restarted: bool
) -> None:
    key, config = Key(), allowing(embed=HighestRisk.HIGH)
    async with keyed(root, clock, key, config) as server:
        older = operator_keys.read(Path(server.app.places.signed_settings_file))
        assert older is not None
        await server.app.service.note_settings()
        assert server.app.signatures.keyring.unsigned_settings() is None
        await server.later(60)
        sign_allowed(server, key, Allowed())
        await server.app.service.note_settings()
        if not is_restarted:
            await check_put_back(server, key, root, older)
    if is_restarted:
        operator_keys.write(server.app.places, older)
        async with virtual_server(root.parent, clock, config) as server:
            await server.operator.notice("sign your settings again")
            await check_put_back(server, key, root, older)


async def check_put_back(server: VirtualServer, key: Key, root: Path, older: SignedSettings) -> None:
    operator_keys.write(server.app.places, older)
    agent = await server.arrive(root)
    id = (await agent.propose(risk=RiskLevel.HIGH)).request_id
    with pytest.raises(SignatureRefused):
        await server.app.service.decide(id, by(server, "embed"))
    assert "sign your settings again" in _unsigned(server)
    await server.later(60)
    sign_allowed(server, key, Allowed.by(server.app.config))
    await server.app.service.decide(id, by(server, "embed"))


async def test_settings_that_were_signed_are_in_the_audit_log_once(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key):
        pass
    for _ in range(2):
        async with virtual_server(root.parent, clock) as server:
            await server.app.service.note_settings()
            found = [each for each in await server.app.service.audit(50) if each.kind == "settings_signed"]
            assert [(each.who, (each.data or {})["settings"]) for each in found] == [
                (key.public.id, Allowed.by(server.app.config).settings())
            ]


async def test_settings_signed_by_a_clock_that_is_ahead_lock_out_no_later_ones(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key, allowing(embed=HighestRisk.HIGH), sign_settings=False) as server:
        asked = Allowed.by(server.app.config)
        ahead = to_text(server.now() + timedelta(hours=1))
        operator_keys.write(server.app.places, operator_keys.sign(asked, ahead, key.public.id, key.private.sign))
        await server.app.service.note_settings()
        sign_allowed(server, key, asked)
        await server.app.service.note_settings()
        assert server.app.signatures.keyring.unsigned_settings() is None


async def test_a_setting_that_nobody_signed_lets_no_policy_count(clock: Clock, root: Path) -> None:
    key, config = Key(), Config(policy=PolicySettings(trust_changes=True))
    async with keyed(root, clock, key):
        pass
    file = root / ".intercom" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"enabled": True, "file_patterns": {"write": ["**/*"]}}))
    async with keyed(root, clock, key, config, sign_settings=False) as server:
        agent = await server.arrive(root)
        assert not (await agent.ask(AutoCheck("write", CheckContext("a.txt")))).answer.auto_approved
    async with keyed(root, clock, key, config) as server:
        pass
    async with keyed(root, clock, key, config) as server:
        agent = await server.arrive(root)
        assert (await agent.ask(AutoCheck("write", CheckContext("a.txt")))).answer.auto_approved


async def test_trust_in_policies_that_nobody_signed_ends_with_the_first_key(clock: Clock, root: Path) -> None:
    key, config = Key(), Config(policy=PolicySettings(trust_changes=True))
    file = root / ".intercom" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"enabled": True, "file_patterns": {"write": ["**/*"]}}))
    async with virtual_server(root.parent, clock, config) as server:
        agent = await server.arrive(root)
        assert (await agent.ask(AutoCheck("write", CheckContext("a.txt")))).answer.auto_approved
        await enrol(server, key)
        assert not (await agent.ask(AutoCheck("write", CheckContext("a.txt")))).answer.auto_approved
        await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING)
        sign_allowed(server, key, Allowed.by(config))
        assert (await agent.ask(AutoCheck("write", CheckContext("a.txt")))).answer.auto_approved


@pytest.mark.server(Config(slack=SLACK))
async def test_a_channels_key_is_its_users_alone(server: VirtualServer, agent: AgentClient) -> None:
    await server.app.service.decide((await agent.propose()).request_id, by(server, "slack"))
    kept = Path(server.app.places.state_dir) / "keys" / "slack.key"
    assert kept.stat().st_mode & 0o777 == 0o600


# --- root's own list -------------------------------------------------------------------------------------------------


def of_root(root: Path, *keys: Key, mode: int = 0o644) -> SystemKeys:
    file = root.parent / "etc" / "operator-keys"
    file.parent.mkdir(exist_ok=True, mode=0o755)
    file.write_text("".join(f"{each.public.line()}\n" for each in keys))
    file.chmod(mode)
    return SystemKeys(file, owner=os.geteuid())


async def test_where_root_lists_keys_no_others_count(clock: Clock, root: Path) -> None:
    mine, roots = Key(), Key()
    async with virtual_server(root.parent, clock, system_keys=of_root(root, roots)) as server:
        with pytest.raises(SignatureRefused, match="only root says"):
            await enrol(server, mine)
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        for attempt in (server.decide(id, Decision.APPROVE), approve(server, mine, id)):
            with pytest.raises(SignatureRefused):
                await attempt
        await approve(server, roots, id)
        with pytest.raises(SignatureRefused, match="only root says"):
            await server.app.service.revoke_key(roots.public.id, *roots.for_key("revoke", roots.public, server.now()))


async def test_where_root_lists_none_no_key_of_the_users_list_may_be_the_first(clock: Clock, root: Path) -> None:
    mine, system = Key(), of_root(root)
    async with virtual_server(root.parent, clock, system_keys=system) as server:
        operator_keys.add_public(server.app.places, mine.public)
        assert server.app.signatures.required
        assert able(server) == set()
        assert reasons(server) == {mine.public.id: f"not listed in {system.file}"}


@pytest.mark.parametrize("mode", [0o664, 0o646])
async def test_a_list_that_others_may_write_makes_no_key_count(clock: Clock, root: Path, mode: int) -> None:
    key = Key()
    async with virtual_server(root.parent, clock, system_keys=of_root(root, key, mode=mode)) as server:
        await server.operator.notice("must be root's")
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        for attempt in (server.decide(id, Decision.APPROVE), approve(server, key, id)):
            with pytest.raises(SignatureRefused):
                await attempt


async def test_a_use_put_into_the_database_covers_no_operation(server: VirtualServer, agent: AgentClient) -> None:
    asked = await ask_leave(agent, "make", "before")
    use = "insert into permission_use (request_id, slot, turn, call, used_at) values (?, 'before', '', 'x', ?)"
    sql(server, use, asked.request_id, "2026-01-01T00:00:00.000000+00:00")
    sql(server, "update approval_request set status = 'consumed' where id = ?", asked.request_id)
    with pytest.raises(SignatureRefused, match="no operator's signature"):
        await ask_leave(agent, "make", "after")
