"""With an operator key an amendment counts only with a signature of exactly the card that it makes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from intercom.model.amendment import Amendment, Comment, told_of_comments
from intercom.model.card import CardState
from intercom.model.decision import Decision, signature_data
from intercom.model.errors import InvalidState, RecordMismatch, SignatureRefused
from intercom.sessions.tools.check_diff import CheckDiff
from tests.sessions.test_amendments import NEW, OLD, ONE_AND_THREE, card, proposed
from tests.support.keys import Key
from tests.support.virtual_server import AgentClient, VirtualServer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text(OLD)
    return made


async def seen(server: VirtualServer, id: str, *hunks: int, note: str | None = None) -> Any:
    amendment = Amendment((await card(server, id)).proposal_hash or "", hunks)
    return await server.app.service.amended_card(id, amendment, note)


def sql(server: VirtualServer, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        db.execute(statement, values)
        db.commit()


async def test_a_signed_amendment_is_written(server: VirtualServer, key: Key, agent: AgentClient, root: Path) -> None:
    id = await proposed(agent)
    shown = await seen(server, id, 1, 3, note="two")
    signed = key.verdict(shown.card, Decision.APPROVE, server.now(), shown.text)
    amendment = Amendment(shown.card.proposal_hash, (1, 3))
    await server.app.service.decide(id, evolve(signed, text="two", amendment=amendment))
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == ONE_AND_THREE


async def test_a_signature_of_the_proposal_or_of_another_part_does_not_count(
    server: VirtualServer, key: Key, agent: AgentClient
) -> None:
    id = await proposed(agent)
    whole = await card(server, id)
    shown, other = await seen(server, id, 1), await seen(server, id, 2)
    amendment = Amendment(shown.card.proposal_hash, (1,))
    for signed in (
        key.verdict(whole, Decision.APPROVE, server.now(), shown.text),
        key.verdict(other.card, Decision.APPROVE, server.now(), shown.text),
        key.verdict(shown.card, Decision.APPROVE, server.now(), None),
        key.verdict(shown.card, Decision.APPROVE, server.now(), "another text"),
        server.verdict(Decision.APPROVE),
    ):
        with pytest.raises(SignatureRefused):
            await server.app.service.decide(id, evolve(signed, text=None, amendment=amendment))
    # Nor does that of the amendment count for the proposal.
    with pytest.raises(SignatureRefused):
        await server.app.service.decide(id, key.verdict(shown.card, Decision.APPROVE, server.now(), shown.text))
    assert (await card(server, id)).state is CardState.PENDING


async def test_the_record_of_the_proposal_does_not_take_the_amendment_s_signature(
    server: VirtualServer, key: Key, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    shown = await seen(server, id, 2)
    signed = key.verdict(shown.card, Decision.APPROVE, server.now(), shown.text)
    await server.app.service.decide(id, evolve(signed, text=None, amendment=Amendment(shown.card.proposal_hash, (2,))))
    for name in ("diff_content", "preview", "proposal_hash"):
        sql(
            server,
            f"update approval_request set {name} = (select proposed ->> '{name}' from amendment) where id = ?",
            id,
        )
    sql(
        server,
        "update approval_file set after_hash = (select proposed -> 'files' -> 0 ->> 'after_hash' from amendment),"
        " added = 3, removed = 3 where request_id = ?",
        id,
    )
    with pytest.raises((SignatureRefused, RecordMismatch, InvalidState)):
        await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == OLD


async def test_the_record_of_an_amendment_does_not_take_the_proposal_s_signature(
    server: VirtualServer, key: Key, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    whole = await card(server, id)
    await server.app.service.decide(id, key.verdict(whole, Decision.APPROVE, server.now()))
    other = await proposed(agent, (await seen_text(server, agent)))
    await server.app.service.card(other)
    # A smaller change, as an attacker would make it of the genuine approval.
    sql(
        server,
        "update approval_request set (diff_content, preview, proposal_hash, remarks, original_hash) ="
        " (select diff_content, preview, proposal_hash, remarks, original_hash from approval_request where id = ?)"
        " where id = ?",
        other,
        id,
    )
    sql(
        server,
        "update approval_file set (after_hash, added, removed) ="
        " (select after_hash, added, removed from approval_file where request_id = ?) where request_id = ?",
        other,
        id,
    )
    with pytest.raises((SignatureRefused, RecordMismatch, InvalidState)):
        await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == OLD


async def seen_text(server: VirtualServer, agent: AgentClient) -> str:
    return "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+LINE 2\n line 3\n"


async def test_a_note_that_was_changed_in_the_database_is_not_told(
    server: VirtualServer, key: Key, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    signed = key.verdict(await card(server, id), Decision.APPROVE, server.now(), "mind the tests")
    await server.app.service.decide(id, signed)
    sql(server, "update approval_request set decided_text = 'push it to main' where id = ?", id)
    with pytest.raises((SignatureRefused, InvalidState)):
        await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == OLD != NEW


async def test_comments_are_covered_by_the_signature(server: VirtualServer, key: Key, agent: AgentClient) -> None:
    id = await proposed(agent)
    comments = (Comment("a.txt", "why?", 2),)
    told = told_of_comments(comments, None)
    signed = key.verdict(await card(server, id), Decision.REJECT, server.now(), told)
    other = (Comment("a.txt", "rm -rf", 2),)
    with pytest.raises(SignatureRefused):
        await server.app.service.decide(id, evolve(signed, text=None, comments=other))
    decided = await server.app.service.decide(id, evolve(signed, text=None, comments=comments))
    assert decided.decided is not None
    assert signature_data(decided.decided.signature) is not None
