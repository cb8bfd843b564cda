"""An agent's force never writes over what a person wrote since: a person is asked, who is shown both."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.local import operator_keys
from intercom.model.card import CardState
from intercom.model.config import ApplySettings, Config, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyConsumed, InvalidState, PatchConflict, RecordMismatch, SignatureRefused
from intercom.model.request import ApprovalStatus
from intercom.sessions.messages import AwaitDecision, RecordedRequest
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store import rows
from intercom.store.requests import approvals
from intercom.store.writer_messages import Transact
from tests.support.keys import Key
from tests.support.server_process import TRUSTING, Home, begin, call, user_home
from tests.support.virtual_server import AgentClient, VirtualServer

pytestmark = pytest.mark.real_time

MINE = "the person's own work\n"
WHOLE: dict[str, Any] = {"title": "Change a", "diff": "the agent's\n", "file_path": "a.txt"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text("old\n")
    return made


@pytest.fixture(scope="module")
def served() -> Iterator[Home]:
    with user_home(TRUSTING + "[clients.hasty]\ncall_wait_seconds = 0.2\n") as made, made.serving():
        yield made


async def diverged(server: VirtualServer, root: Path, diff: str = "the agent's\n") -> tuple[AgentClient, str]:
    """An agent with an approved change of a file that a person has changed since."""
    agent = await server.arrive(root)
    id = (await agent.propose("a.txt", diff)).request_id
    await server.decide(id, Decision.APPROVE)
    (root / "a.txt").write_text(MINE)
    return agent, id


async def forced(agent: AgentClient, id: str, call: str | None = None) -> str:
    """The request that asks whether to write over the changed file."""
    opened = await agent.ask(CheckDiff(id, force=True, call=call or agent.call()))
    assert opened.answered is None
    assert opened.request_id != id
    return opened.request_id


async def test_force_on_a_changed_file_is_a_new_card_that_shows_both(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    assert (root / "a.txt").read_text() == MINE
    waiting = await server.wait(agent, over)
    card = await server.operator.card(id=over)
    assert card.title == "Write over a changed file: change a.txt"
    assert "-the person's own work\n+the agent's\n" in (card.diff or ""), "what would become of it now"
    assert "| -old\n| +the agent's" in (card.diff or ""), "what was approved"
    assert card.remarks[0].text.startswith("has changed since this was approved by kim")
    assert card.proposal_hash not in (None, (await server.app.service.card(id)).proposal_hash)
    await server.decide(over, Decision.APPROVE)
    assert (await waiting()).answer.status == "approved"
    await agent.ask(CheckDiff(over))
    assert (root / "a.txt").read_text() == "the agent's\n"
    # Both are spent: the first one cannot be applied to a file that is put back.
    (root / "a.txt").write_text("old\n")
    for each in (id, over):
        with pytest.raises(AlreadyConsumed):
            await agent.ask(CheckDiff(each, force=True))


async def test_a_person_who_says_no_keeps_the_file(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    await server.decide(over, Decision.REJECT, "mine")
    answer = (await agent.ask(AwaitDecision(agent.call(), over))).answer
    assert (answer.status, answer.reason) == ("rejected", "mine")
    with pytest.raises(InvalidState, match="rejected"):
        await agent.ask(CheckDiff(over, force=True))
    assert (root / "a.txt").read_text() == MINE


async def test_force_asked_again_is_the_same_card_and_on_a_newer_edit_another(
    server: VirtualServer, root: Path
) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    assert await forced(agent, id) == over
    assert await agent.ask(CheckDiff(over)) == RecordedRequest(over), "it goes on waiting"
    await server.decide(over, Decision.APPROVE)
    (root / "a.txt").write_text("and more of it\n")
    with pytest.raises(PatchConflict, match=r"a\.txt changed since"):
        await agent.ask(CheckDiff(over))
    newer = await forced(agent, over)
    assert newer not in (id, over)
    assert (await server.app.service.card(newer)).title == "Write over a changed file: change a.txt"
    await server.decide(newer, Decision.APPROVE)
    await agent.ask(CheckDiff(newer))
    for each in (id, over, newer):
        row = await server.app.reader.read(lambda db, each=each: approvals.get(db, each))
        assert row.status is ApprovalStatus.CONSUMED


async def test_a_question_that_is_needed_no_more_is_closed(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    waiting = await server.wait(agent, over)
    (root / "a.txt").write_text("old\n")
    await agent.ask(CheckDiff(id))
    assert (await waiting()).answer.status == "timeout"
    await server.operator.card(id=over, state=CardState.EXPIRED)


async def test_a_policy_does_not_answer_for_the_person(server: VirtualServer, root: Path) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text('{"enabled": true, "file_patterns": {"write": ["*.txt"]}}')
    await server.accept(root)
    agent = await server.arrive(root)
    opened = await agent.propose("a.txt", "the agent's\n")
    assert opened.answered is not None
    (root / "a.txt").write_text(MINE)
    over = await forced(agent, opened.request_id)
    assert (await server.app.service.card(over)).state is CardState.PENDING
    assert (root / "a.txt").read_text() == MINE


async def test_a_patch_can_not_be_forced(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n")
    with pytest.raises(PatchConflict):
        await agent.ask(CheckDiff(id, force=True))
    assert (root / "a.txt").read_text() == MINE


async def test_force_on_a_file_that_has_not_changed_asks_nobody(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose("a.txt", "new\n")).request_id
    await server.decide(id, Decision.APPROVE)
    assert (await agent.ask(CheckDiff(id, force=True))).answered.answer.status == "applied"


@pytest.mark.server(Config(apply=ApplySettings(agent_may_force=True)))
async def test_the_servers_configuration_may_leave_it_to_the_agent(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    assert (await agent.ask(CheckDiff(id, force=True, call="c"))).answered.answer.status == "applied"
    assert (root / "a.txt").read_text() == "the agent's\n"
    assert "force" in (await server.operator.notice("had changed")).text
    again = await agent.ask(CheckDiff(id, force=True, call="c"))
    assert again.answered.answer.status == "applied", "the same call again"
    assert not [card for card in server.operator.cards if card.id != id]


async def test_a_force_that_was_put_into_the_database_decides_nothing(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    text = (
        "update approval_request set status = 'approved', verdict = 'approve', verdict_id = 'v',"
        " decided_by = 'agent', decided_via = 'force', decided_at = created_at where id = ?"
    )
    assert await server.ask("store", Transact(lambda db: rows.changed(db, text, (over,))))
    with pytest.raises(InvalidState, match="agent_may_force does not allow"):
        await agent.ask(CheckDiff(over))
    assert (root / "a.txt").read_text() == MINE


@pytest.mark.parametrize("again", ["the question itself", "the first request, by force"])
@pytest.mark.server(Config(apply=ApplySettings(agent_may_force=True)))
async def test_with_a_key_an_approval_that_sql_gave_writes_over_nothing(
    server: VirtualServer, root: Path, again: str
) -> None:
    key = Key()
    operator_keys.add_public(server.app.places, key.public)
    await server.app.service.add_key(key.public, *key.for_key("add", key.public, server.now()))
    agent = await server.arrive(root)
    id = (await agent.propose("a.txt", "the agent's\n")).request_id
    await server.app.service.decide(id, key.verdict(await server.app.service.card(id), Decision.APPROVE, server.now()))
    (root / "a.txt").write_text(MINE)
    over = await forced(agent, id)
    text = (
        "update approval_request set status = 'approved', verdict = 'approve', verdict_id = 'v',"
        " decided_by = 'kim', decided_via = 'ctl', decided_at = created_at where id = ?"
    )
    assert await server.ask("store", Transact(lambda db: rows.changed(db, text, (over,))))
    with pytest.raises(SignatureRefused):
        await agent.ask(CheckDiff(*((over, False) if again == "the question itself" else (id, True))))
    assert (root / "a.txt").read_text() == MINE


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=60)))
async def test_the_question_expires_like_any_other(server: VirtualServer, root: Path) -> None:
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    waiting = await server.wait(agent, over)
    await server.later(61)
    assert (await waiting()).answer.status == "timeout"
    assert (root / "a.txt").read_text() == MINE


# --- the tool --------------------------------------------------------------------------------------------------------


async def approved_and_edited(at: Home, agent: Any, root: Path) -> str:
    """An approved change, as a client has it, and a person's edit since."""
    (root / "a.txt").write_text("old\n")
    await call(agent, "ping")
    async with at.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, agent, "check_clearance", **WHOLE)
        id = str((await person.card(away=False))["request_id"])
        await person.do("approve", id=id)
        assert (await asked())["status"] == "approved"
    (root / "a.txt").write_text(MINE)
    return id


async def is_delivered(at: Home, id: str) -> None:
    """Wait until the server knows that the agent has the answer. A rejected request that is asked again before is
    answered once more, and nobody is shown a new card."""
    with closing(sqlite3.connect(f"file:{at.places.database}?mode=ro", uri=True)) as db:
        asked = "select delivered_at from approval_request where id = ?"
        while db.execute(asked, (id,)).fetchone() == (None,):  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.01)


async def test_the_call_waits_for_the_decision_and_then_writes(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root) as agent, trio.open_nursery() as nursery:
        id = await approved_and_edited(served, agent, root)
        for decision, status in (("reject", "rejected"), ("approve", "applied")):
            applying = begin(nursery, agent, "check_diff", request_id=id, force=True)
            async with served.person(root) as person:
                card = await person.card(lambda card: card["request_id"] != id and card["status"] == "pending")
                assert (root / "a.txt").read_text() == MINE
                await person.do(decision, id=card["request_id"], **({"reason": "no"} if decision == "reject" else {}))
                answer = await applying()
            assert answer["status"] == status
            assert "late_verdicts" not in answer
            await is_delivered(served, card["request_id"])
        assert (root / "a.txt").read_text() == "the agent's\n"


async def test_a_client_that_waits_no_longer_goes_on_with_the_id(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root, name="hasty") as agent, served.person(root) as person:
        (root / "a.txt").write_text("old\n")
        id = (await call(agent, "check_clearance", **WHOLE))["request_id"]
        await person.do("approve", id=id)
        (root / "a.txt").write_text(MINE)
        pending = await call(agent, "check_diff", request_id=id, force=True)
        over = pending["request_id"]
        assert (pending["status"], over != id) == ("pending", True)
        assert "nothing is written" in pending["message"]
        await person.card(request_id=over, away=True)
        again = await call(agent, "check_diff", request_id=over)
        assert (again["status"], again["request_id"]) == ("pending", over)
        await person.do("approve", id=over)
        assert (await call(agent, "check_diff", request_id=over))["status"] == "applied"
        assert (root / "a.txt").read_text() == "the agent's\n"
        # Two questions were asked, and no third.
        assert {card["request_id"] for card in person.cards} == {id, over}


@pytest.mark.parametrize("decided", ["before", "after"], ids=["decided while it was down", "decided after"])
async def test_a_call_that_waits_writes_once_though_its_server_dies(decided: str) -> None:
    with user_home(TRUSTING) as at:
        root = at.workspace()
        async with at.agent(root) as agent, trio.open_nursery() as nursery:
            id = await approved_and_edited(at, agent, root)
            applying = begin(nursery, agent, "check_diff", request_id=id, force=True)
            async with at.person(root) as person:
                over = (await person.card(lambda card: card["request_id"] != id, away=False))["request_id"]
                if decided == "before":
                    # The answer is on its way, or on record: either way it is carried through.
                    await person.do("approve", id=over)
            at.kill()
            if decided == "after":
                await call(agent, "ping")
                async with at.person(root) as person:
                    assert (await person.card(lambda card: card["request_id"] != id))["request_id"] == over
                    await person.do("approve", id=over)
            assert (await applying())["status"] == "applied"
            assert (root / "a.txt").read_text() == "the agent's\n"
            (root / "a.txt").write_text(MINE)
            for each in (id, over):
                again = await call(agent, "check_diff", request_id=each, force=True)
                assert again["error_code"] == "already_consumed"
            assert (root / "a.txt").read_text() == MINE


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("masked", '[[5, "+harmless"]]'),
        ("remarks", '[["a.txt", "only white space changes"]]'),
        ("preview", "What was approved, for the file as it was then:\n| +harmless\n"),
    ],
)
async def test_a_card_over_a_changed_file_that_was_edited_writes_nothing(
    server: VirtualServer, root: Path, column: str, value: str
) -> None:
    """Failed before for the lines that Slack shows: those below the diff were not looked at, and could name any."""
    agent, id = await diverged(server, root)
    over = await forced(agent, id)
    edit = f"update approval_request set {column} = ? where id = ?"
    assert await server.ask("store", Transact(lambda db: rows.affected(db, edit, (value, over))))
    await server.decide(over, Decision.APPROVE)
    with pytest.raises(RecordMismatch, match="were shown"):
        await agent.ask(CheckDiff(over))
    assert (root / "a.txt").read_text() == MINE
