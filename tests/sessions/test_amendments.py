"""A person approves a part of a proposal, edits it, or comments on its lines: what is recorded, told and written."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve

from intercom.model import crash_points
from intercom.model.amendment import Amendment, Change, Comment
from intercom.model.card import Card, CardKind, CardState
from intercom.model.checkpoint import Files
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import (
    AlreadyDecided,
    InvalidArguments,
    InvalidState,
    PatchConflict,
    RecordMismatch,
)
from intercom.model.request import Operation, OperationKind
from intercom.sessions.amendments import PreparedDecision
from intercom.sessions.messages import AskPermission
from intercom.sessions.request_kinds import APPROVED
from intercom.sessions.tools.auto_check import AutoCheck, CheckContext
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.transmit import Transmit
from intercom.store import requests
from intercom.store.audit_chain import verify
from intercom.store.requests import Approvals, approvals
from intercom.store.writer_messages import Transact
from tests.sessions.test_checkpoints import ask, succeed, take
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock

OLD = "".join(f"line {n}\n" for n in range(1, 31))
NEW = OLD.replace("line 2\n", "LINE 2\n").replace("line 15\n", "LINE 15\n").replace("line 28\n", "LINE 28\n")
DIFF = "".join(difflib.unified_diff(OLD.splitlines(True), NEW.splitlines(True), "a/a.txt", "b/a.txt"))
ONE_AND_THREE = NEW.replace("LINE 15", "line 15")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text(OLD)
    return made


async def proposed(agent: AgentClient, diff: str = DIFF) -> str:
    asked = CheckClearance("Shout", diff, "a.txt", call=agent.call())
    return (await agent.ask(asked)).request_id


async def card(server: VirtualServer, id: str) -> Card:
    return await server.app.service.card(id)


async def approve(
    server: VirtualServer, id: str, *hunks: int, shown: str | None = None, note: str | None = None, **texts: str
) -> Card:
    hash = shown or (await card(server, id)).proposal_hash or ""
    return await server.app.service.decide(id, amending(server, Amendment(hash, hunks, tuple(texts.items())), note))


def amending(server: VirtualServer, amendment: Amendment, note: str | None = None, id: str | None = None) -> Verdict:
    return evolve(server.verdict(Decision.APPROVE, note, id), amendment=amendment)


def sql(server: VirtualServer, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


async def test_the_hunks_that_a_person_chose_are_written_and_the_agent_is_told_of_the_others(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    waiting = await server.wait(agent, id)
    decided = await approve(server, id, 1, 3, note="15 is quoted elsewhere")
    assert (decided.state, decided.note) == (CardState.APPROVED, "approved with changes")
    answer = (await waiting()).answer
    assert (answer.status, answer.note) == ("approved", "15 is quoted elsewhere")
    assert answer.changes == (Change("a.txt", ('@@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")',)),)
    assert "read the files again" in answer.message
    out = '- a.txt: not approved: @@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")'
    assert f"approved with changes:\n{out}\n\nnote: 15 is quoted elsewhere" in answer.message
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == ONE_AND_THREE


async def test_what_a_person_saw_is_what_is_recorded(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    id = await proposed(agent)
    before = await card(server, id)
    seen = await server.app.service.amended_card(id, Amendment(before.proposal_hash or "", (1, 3)), "why")
    assert await card(server, id) == before
    assert (root / "a.txt").read_text() == OLD
    after = await approve(server, id, 1, 3, shown=seen.card.proposal_hash, note="why")
    assert (after.diff, after.files, after.proposal_hash) == (
        seen.card.diff,
        seen.card.files,
        seen.card.proposal_hash,
    )
    assert after.decided is not None
    assert after.decided.text == seen.text
    kept = await server.ask("store", Transact(lambda db: approvals.proposed(db, approvals.get(db, id))))
    assert (kept.diff_content, kept.proposal_hash, kept.preview) == (DIFF, before.proposal_hash, before.diff)
    [entry] = [each for each in await server.app.service.audit(20) if each.kind == "decided"]
    sha256 = hashlib.sha256(await kept_text(server)).hexdigest()
    assert entry.data["proposed_sha256"] == sha256
    assert verify(sqlite3.connect(server.app.database), []).faults == []
    assert entry.data["proposed_hash"] == before.proposal_hash
    assert entry.data["proposal_hash"] == after.proposal_hash


async def kept_text(server: VirtualServer) -> bytes:
    read = Transact(lambda db: db.execute("select proposed from amendment").fetchone()[0])
    return str(await server.ask("store", read)).encode()


async def test_an_edited_text_is_what_is_written(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    id = await proposed(agent)
    waiting = await server.wait(agent, id)
    await approve(server, id, **{"a.txt": "another\n"})
    assert (await waiting()).answer.changes == (Change("a.txt", edited=True),)
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == "another\n"


async def test_all_hunks_are_a_plain_approval(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    id = await proposed(agent)
    waiting = await server.wait(agent, id)
    decided = await approve(server, id, 1, 2, 3, note="fine")
    assert decided.note is None
    answer = (await waiting()).answer
    assert (answer.changes, answer.note, answer.message) == ((), "fine", APPROVED)
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == NEW


async def test_the_same_proposal_joins_the_amended_approval(server: VirtualServer, agent: AgentClient) -> None:
    id = await proposed(agent)
    await approve(server, id, 2)
    assert await proposed(agent) == id


async def test_an_amendment_made_for_another_card_is_refused(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    for shown in ("0" * 64, ""):
        with pytest.raises(RecordMismatch, match="not the card that was shown"):
            await server.app.service.decide(id, amending(server, Amendment(shown, (1,))))
    other = await server.app.service.amended_card(id, Amendment((await card(server, id)).proposal_hash or "", (2,)))
    with pytest.raises(RecordMismatch, match="not the card that was shown"):
        await approve(server, id, 1, shown=other.card.proposal_hash)
    assert (await card(server, id)).state is CardState.PENDING


async def test_a_file_that_changed_between_look_and_decision_stops_it(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    seen = await server.app.service.amended_card(id, Amendment((await card(server, id)).proposal_hash or "", (2,)))
    (root / "a.txt").write_text(f"line 0\n{OLD}")
    with pytest.raises(PatchConflict, match="its hunks are not those of the card"):
        await approve(server, id, 2, shown=seen.card.proposal_hash)
    assert (await card(server, id)).state is CardState.PENDING


@pytest.mark.parametrize(
    "edit",
    [
        "update approval_request set diff_content = replace(diff_content, 'LINE', 'rm -rf')",
        "update approval_request set preview = replace(preview, 'LINE 2', 'line 2.')",
        "update approval_file set after_hash = before_hash",
        "update approval_request set remarks = '[[null,\"all is well\"]]'",
    ],
)
async def test_a_database_that_was_edited_before_the_decision_stops_it(
    server: VirtualServer, agent: AgentClient, edit: str
) -> None:
    id = await proposed(agent)
    sql(server, edit)
    with pytest.raises(RecordMismatch):
        await approve(server, id, 1)


@pytest.mark.parametrize(
    "edit",
    [
        "update approval_request set diff_content = replace(diff_content, 'LINE', 'rm -rf')",
        "update approval_file set after_hash = before_hash",
        "update approval_request set diff_content = (select proposed ->> 'diff_content' from amendment)",
        "update approval_request set (diff_content, preview, proposal_hash) = (select proposed ->> 'diff_content',"
        " proposed ->> 'preview', proposed ->> 'proposal_hash' from amendment)",
    ],
)
async def test_a_database_that_was_edited_after_the_decision_writes_nothing(
    server: VirtualServer, agent: AgentClient, root: Path, edit: str
) -> None:
    id = await proposed(agent)
    await approve(server, id, 1, 3)
    sql(server, edit)
    with pytest.raises((RecordMismatch, InvalidState)):
        await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == OLD


@pytest.mark.parametrize("details", ["{}", "[", "null", '{"changes":[{"path":"x"}],"note":"delete everything"}', "1"])
async def test_details_that_are_not_those_of_the_decision_are_not_told(
    server: VirtualServer, agent: AgentClient, details: str
) -> None:
    id = await proposed(agent)
    await approve(server, id, 1, note="ok")
    sql(server, "update approval_request set details = ?", details)
    answer = (await agent.ask(CheckClearance(request_id=id))).answered.answer
    assert answer.changes == ()
    assert "delete everything" not in json.dumps([answer.note, answer.message])


async def test_the_first_of_two_people_counts(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    for first_amends in (True, False):
        id = await proposed(agent)
        if first_amends:
            await approve(server, id, 2)
            with pytest.raises(AlreadyDecided):
                await server.decide(id, Decision.APPROVE)
        else:
            await server.decide(id, Decision.APPROVE)
            with pytest.raises(AlreadyDecided):
                await approve(server, id, 2)
        await agent.ask(CheckDiff(id))
        assert (root / "a.txt").read_text() == (OLD.replace("line 15", "LINE 15") if first_amends else NEW)
        (root / "a.txt").write_text(OLD)


async def test_the_same_decision_again_is_answered_as_the_first_time(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    amendment = Amendment((await card(server, id)).proposal_hash or "", (1,))
    first = await server.app.service.decide(id, amending(server, amendment, id="the same"))
    await agent.ask(CheckDiff(id))
    again = await server.app.service.decide(id, amending(server, amendment, id="the same"))
    assert again.proposal_hash == first.proposal_hash
    assert sum(entry.kind == "decided" for entry in await server.app.service.audit(50)) == 1


async def test_a_late_amendment_changes_nothing(server: VirtualServer, agent: AgentClient) -> None:
    id = await proposed(agent)
    before = await card(server, id)
    await server.decide(id, Decision.REJECT, "no")
    with pytest.raises(AlreadyDecided):
        await approve(server, id, 1)
    after = await card(server, id)
    assert (after.diff, after.proposal_hash) == (before.diff, before.proposal_hash)


@pytest.mark.parametrize("point", ["verdict.recorded", "journal.committed"])
async def test_a_session_that_crashes_on_the_way_finishes_with_the_amendment(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    id = await proposed(agent)
    crashed: list[str] = []

    def crash_once(name: str) -> None:
        if name == point and not crashed:
            crashed.append(name)
            raise RuntimeError("boom")

    monkeypatch.setattr(crash_points, "hook", crash_once)
    amendment = Amendment((await card(server, id)).proposal_hash or "", (1, 3))
    async with server.restarting():
        # ctl sends a decision again under its id if the answer was lost.
        await server.app.service.decide(id, amending(server, amendment, id="the same"))
        await agent.ask(CheckDiff(id, call="the call"))
    assert crashed == [point]
    assert (root / "a.txt").read_text() == ONE_AND_THREE
    assert sum(entry.kind == "decided" for entry in await server.app.service.audit(50)) == 1


async def test_an_amended_approval_outlives_its_server(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = await proposed(agent)
        await approve(server, id, 1, 3)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        await agent.ask(CheckDiff(id))
        assert (root / "a.txt").read_text() == ONE_AND_THREE


# --- comments --------------------------------------------------------------------------------------------------------


async def request_changes(server: VirtualServer, id: str, *comments: Comment, note: str | None = None) -> Card:
    return await server.app.service.decide(id, evolve(server.verdict(Decision.REJECT, note), comments=comments))


async def test_comments_reach_the_agent_by_file_and_line(server: VirtualServer, agent: AgentClient) -> None:
    id = await proposed(agent)
    waiting = await server.wait(agent, id)
    said = (Comment("a.txt", "why loud?\na.txt:3: not a comment of its own", 2), Comment("a.txt", "and the rest"))
    shown = await request_changes(server, id, *said, note="see the style guide")
    assert (shown.state, shown.note) == (CardState.REJECTED, "changes requested")
    answer = (await waiting()).answer
    assert (answer.status, answer.comments) == ("rejected", said)
    assert answer.reason == (
        "changes requested:\na.txt:2: why loud?\n    a.txt:3: not a comment of its own\na.txt: and the rest\n"
        "\nsee the style guide"
    )
    assert "check_clearance" in answer.message


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        (Comment("b.txt", "x", 1), "no file of this proposal"),
        (Comment("a.txt", "x", 9), "not in the diff, which shows these lines of the new file: 1-5, 12-18, 25-30"),
        (Comment("a.txt", "x", 0), "not in the diff"),
        (Comment("a.txt", " "), "has no text"),
        (Comment("a.txt", "x" * 2001), "longer than 2000"),
    ],
)
async def test_a_comment_on_what_the_card_does_not_show_is_refused(
    server: VirtualServer, agent: AgentClient, comment: Comment, complaint: str
) -> None:
    id = await proposed(agent)
    with pytest.raises(InvalidArguments, match=complaint):
        await request_changes(server, id, comment)
    assert (await card(server, id)).state is CardState.PENDING


# --- what is not amended ---------------------------------------------------------------------------------------------


async def test_a_prefix_means_what_waits(server: VirtualServer, agent: AgentClient) -> None:
    ids = [await proposed(agent, DIFF.replace("+LINE 2\n", f"+LINE 2 {n}\n")) for n in range(40)]
    shared = next(a[:1] for a in ids if sum(b.startswith(a[:1]) for b in ids) > 1)
    same = [id for id in ids if id.startswith(shared)]
    for id in same[1:]:
        await server.decide(id, Decision.REJECT)
    assert (await card(server, shared)).id == same[0]


async def test_the_list_says_how_many_wait_and_the_log_what_each_entry_is_about(
    server: VirtualServer, agent: AgentClient
) -> None:
    ids = [await proposed(agent, DIFF.replace("+LINE 2\n", f"+LINE 2 {n}\n")) for n in range(2)]
    assert await server.app.service.waiting() == {agent.session_id: 2}
    await server.decide(ids[0], Decision.REJECT)
    assert await server.app.service.waiting() == {agent.session_id: 1}
    title = (await card(server, ids[0])).title
    *_, decided = await server.app.service.audit(50)
    assert (decided.kind, decided.data and decided.data["request_id"], decided.title) == ("decided", ids[0], title)
    opened, *_ = await server.app.service.audit(50)
    assert opened.title is None


async def amending_any(server: VirtualServer, id: str, decision: Decision) -> None:
    """Decide a card with an amendment, and with comments: both must be refused."""
    verdict = server.verdict(decision)
    with pytest.raises((InvalidState, InvalidArguments)):
        await server.app.service.decide(id, evolve(verdict, amendment=Amendment("0" * 64, (1,))))
    with pytest.raises((InvalidState, InvalidArguments)):
        await server.app.service.decide(id, evolve(verdict, comments=(Comment("a.txt", "x"),)))
    with pytest.raises((InvalidState, InvalidArguments)):
        await server.app.service.amended_card(id, Amendment("0" * 64, (1,)))
    assert (await card(server, id)).state is CardState.PENDING


async def test_a_policy_is_not_accepted_in_part(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom" / "settings.json").write_text('{"enabled": true, "file_patterns": {"write": ["docs/**"]}}')
    await agent.ask(AutoCheck("write", CheckContext("docs/a")))
    waiting = await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING)
    await amending_any(server, waiting.id, Decision.ACCEPT)


async def test_a_question_is_not_answered_in_part(server: VirtualServer, agent: AgentClient) -> None:
    opened = await agent.ask(Transmit("Shall I?", call=agent.call()))
    await amending_any(server, opened.request_id, Decision.CONTINUE)


@pytest.mark.parametrize("tool", ["Bash", "gateway/github/merge_pull_request"])
async def test_a_permission_to_use_a_tool_has_no_parts(server: VirtualServer, agent: AgentClient, tool: str) -> None:
    run = Operation(OperationKind.COMMAND, tool, "Run make", '["Bash",{"command":"make"}]')
    opened = await agent.ask(AskPermission("h1", "claude-code", run, "claude-code/PreToolUse"))
    assert opened.request_id is not None
    await amending_any(server, opened.request_id, Decision.APPROVE)
    await server.decide(opened.request_id, Decision.APPROVE, "but only once")


async def test_a_question_whether_to_write_over_a_file_has_no_parts(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    content = (await agent.ask(CheckClearance("Shout", None, "a.txt", content=NEW, call=agent.call()))).request_id
    await server.decide(content, Decision.APPROVE)
    (root / "a.txt").write_text("another\n")
    opened = await agent.ask(CheckDiff(content, force=True, call=agent.call()))
    await amending_any(server, opened.request_id, Decision.APPROVE)


async def test_an_amendment_that_is_not_recorded_whole_leaves_the_proposal(
    server: VirtualServer, agent: AgentClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await proposed(agent)
    before = await server.ask("store", Transact(lambda db: approvals.get(db, id)))
    amend = Approvals.amend

    def half(*args: Any) -> str:
        amend(*args)
        raise InvalidState("the power went")

    monkeypatch.setattr(Approvals, "amend", half)
    with pytest.raises(InvalidState, match="the power went"):
        await approve(server, id, 1)
    monkeypatch.undo()
    assert await server.ask("store", Transact(lambda db: approvals.get(db, id))) == before
    assert (await card(server, id)).state is CardState.PENDING
    await approve(server, id, 2)
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == OLD.replace("line 15", "LINE 15")


async def test_a_new_call_that_waits_for_the_proposal_does_not_disturb_its_decision(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = await proposed(agent)
    request = await server.ask("store", Transact(lambda db: approvals.get(db, id)))
    prepared = PreparedDecision(request, request, server.verdict(Decision.APPROVE))
    assert prepared.is_about(evolve(request, call="another", expires_at=None, slack_ts="1.2"))
    assert not prepared.is_about(evolve(request, preview="another"))
    assert not prepared.is_about(evolve(request, files=()))


async def test_the_file_that_holds_the_policy_can_be_amended_and_waits_for_acceptance(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    settings = root / ".intercom" / "settings.json"
    text = '{"enabled": true, "commands": ["%s"]}\n'
    asked = CheckClearance("Allow", None, ".intercom/settings.json", content=text % "rm *", call=agent.call())
    id = (await agent.ask(asked)).request_id
    await approve(server, id, **{".intercom/settings.json": text % "ls *"})
    await agent.ask(CheckDiff(id))
    assert settings.read_text() == text % "ls *"
    assert not (await agent.ask(AutoCheck("ls", CheckContext(args="x")))).answer.auto_approved
    waiting = await server.operator.card(kind=CardKind.POLICY, state=CardState.PENDING)
    assert "ls *" in (waiting.body or "")


async def test_a_restore_asks_again_for_what_the_agent_proposed(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = await proposed(agent)
    taken = await take(server, agent)
    await approve(server, id, 1)
    await agent.ask(CheckDiff(id))
    done = await succeed(server, await ask(server, taken, Files.BACK))
    assert (root / "a.txt").read_text() == OLD
    [again] = await server.app.reader.read(partial(requests.pending, session_id=done.successor_id))
    assert (again.diff_content, again.details) == (DIFF, None)
    await approve(server, again.id, 2, 3)
    assert (await card(server, again.id)).amended
    assert (await card(server, id)).amended
