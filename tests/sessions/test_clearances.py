"""Clearances in a session: asked once, answered by the first verdict, ended at the second."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from actors.testing import inject
from intercom.model.card import CardState
from intercom.model.config import Config, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import (
    AlreadyConsumed,
    AlreadyDecided,
    DiffError,
    InvalidArguments,
    InvalidState,
    PatchConflict,
)
from intercom.model.process import Origin
from intercom.model.request import ChangeKind, FileChange, ProposalForm, RiskLevel
from intercom.sessions.messages import SHOW_SECONDS, Deliver, Delivery, Detach, Undeliver
from intercom.sessions.tools import check_diff
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance, proposal_key
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def test_the_same_proposal_asked_again_joins_the_request_that_waits(
    server: VirtualServer, agent: AgentClient
) -> None:
    first = await agent.propose()
    again = await agent.propose()
    assert again.request_id == first.request_id
    waiting = [await server.wait(agent, first.request_id) for _ in range(3)]
    await server.decide(first.request_id, Decision.APPROVE)
    assert {(await each()).answer.status for each in waiting} == {"approved"}
    assert {card.id for card in server.operator.cards} == {first.request_id}
    other = await agent.propose(diff="b\n")
    assert other.request_id != first.request_id


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=100)))
async def test_a_request_expires_at_its_second_and_not_before(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    await server.later(99)
    await agent.settled()
    assert waiting.outcome is None
    await server.later(1)
    assert (await waiting()).answer.status == "timeout"
    await server.operator.card(id=id, state=CardState.EXPIRED)
    with pytest.raises(AlreadyDecided, match="no longer open"):
        await server.decide(id, Decision.APPROVE)


async def test_a_decision_is_on_record_with_where_it_came_from(server: VirtualServer, root: Path) -> None:
    origin = Origin("ctl", 12, 3456, "boot", "/dev/pts/3", 11, 3400, "/usr/bin/python3", 11, "/usr/bin/bash")
    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    await server.app.service.decide(id, evolve(server.verdict(Decision.APPROVE), origin=origin))
    decided = (await server.app.service.card(id)).decided
    assert decided.origin == origin
    [entry] = [each for each in await server.app.service.audit(10) if each.kind == "decided"]
    assert entry.data["origin"] == origin.to_data()


async def test_without_a_key_nothing_changes(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    card = await server.decide(id, Decision.APPROVE)
    assert card.decided.signature is None
    await agent.ask(CheckDiff(id))


async def test_the_first_verdict_wins_and_every_later_one_is_told_so(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    await server.decide(id, Decision.REJECT, "no", verdict_id="first")
    with pytest.raises(AlreadyDecided, match="reject by kim"):
        await server.decide(id, Decision.APPROVE, verdict_id="second")
    # The one that won may be repeated: its sender did not hear the answer.
    repeated = await server.decide(id, Decision.REJECT, "no", verdict_id="first")
    assert repeated.state is CardState.REJECTED
    answer = (await waiting()).answer
    assert (answer.status, answer.reason) == ("rejected", "no")
    assert sum(entry.kind == "decided" for entry in await server.app.service.audit(50)) == 1


async def test_of_many_verdicts_at_once_one_wins(server: VirtualServer, agent: AgentClient) -> None:
    for n in range(10):
        id = (await agent.propose(f"{n}.txt")).request_id
        waiting = await server.wait(agent, id)
        tried = [
            server.begin(partial(server.decide, id, choice, None, f"{n}-{i}"))
            for i, choice in enumerate([Decision.APPROVE, Decision.REJECT] * 4)
        ]
        answer = (await waiting()).answer
        won = []
        for each in tried:
            try:
                won.append((await each()).state)
            except AlreadyDecided:
                continue
        assert len(won) == 1
        assert won[0].value == answer.status


async def test_a_late_verdict_is_told_once_and_again_only_if_its_result_was_lost(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await server.decide(id, Decision.APPROVE)
        first = await agent.ask(Ping(call="c1"))
        assert [late.request_id for late in first.late_verdicts] == [id]
        # It is on its way with that result; no other carries it too.
        assert (await agent.ask(Ping(call="c2"))).late_verdicts == ()
        agent.tell(Undeliver(("c1",)))
        assert [late.request_id for late in (await agent.ask(Ping(call="c3"))).late_verdicts] == [id]
        await agent.ask(Deliver((Delivery("c3", (id,)),)))
        assert (await agent.ask(Ping(call="c4"))).late_verdicts == ()
        await server.operator.card(id=id, state=CardState.DELIVERED)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert (await agent.ask(Ping(call="c5"))).late_verdicts == ()


async def test_a_call_that_gives_up_leaves_the_request_open_and_the_card_says_away(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id, "c1")
    await server.operator.card(id=id, away=False)
    waiting.scope.cancel()
    assert (await agent.ask(Detach("c1", id))).late_verdicts == ()
    await server.operator.card(id=id, away=True)
    again = await server.wait(agent, id, "c2")
    await server.operator.card(id=id, away=False)
    await server.decide(id, Decision.APPROVE)
    assert (await again()).answer.status == "approved"


async def test_a_verdict_that_crosses_with_giving_up_rides_on_that_very_result(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id, "c1")
    await server.decide(id, Decision.APPROVE)
    await waiting()
    pending = await agent.ask(Detach("c1", id))
    assert [late.request_id for late in pending.late_verdicts] == [id]


async def test_a_request_is_shown_even_if_its_call_never_comes_to_wait(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    assert server.operator.cards == []
    await server.later(SHOW_SECONDS)
    shown = await server.operator.card(id=id)
    assert (shown.state, shown.away) == (CardState.PENDING, True)


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=1000)))
async def test_a_session_that_falls_while_calls_wait_is_not_noticed(server: VirtualServer, agent: AgentClient) -> None:
    ids = [(await agent.propose(f"{n}.txt")).request_id for n in range(3)]
    waiting = [await server.wait(agent, id) for id in ids]
    for _ in range(3):
        inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
        await server.later(5)
    await server.decide(ids[0], Decision.APPROVE)
    await server.decide(ids[1], Decision.REJECT)
    assert [(await each()).answer.status for each in waiting[:2]] == ["approved", "rejected"]
    # Its clock runs on as well.
    await server.later(1000 - 15)
    assert (await waiting[2]()).answer.status == "timeout"


@pytest.mark.parametrize("victim", ["store", "card_router", "registry"])
async def test_any_other_part_may_fall_while_calls_wait(server: VirtualServer, agent: AgentClient, victim: str) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    async with server.restarting():
        inject(server.app.system, victim, ValueError("boom"), "now")
        await server.decide(id, Decision.APPROVE)
        assert (await waiting()).answer.status == "approved"


async def test_the_end_of_a_session_ends_what_waits_and_lapses_what_was_approved(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    approved = (await agent.propose("a.txt")).request_id
    await server.decide(approved, Decision.APPROVE)
    open_one = (await agent.propose("b.txt")).request_id
    waiting = await server.wait(agent, open_one)
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    with pytest.raises(InvalidState, match="ended with its session"):
        await waiting()
    await server.operator.card(id=open_one, state=CardState.INTERRUPTED)
    with pytest.raises(InvalidState):
        await agent.ask(CheckDiff(approved, call="c"))
    with pytest.raises(InvalidState, match="ended by an operator"):
        await agent.propose("c.txt")
    with pytest.raises(InvalidState, match="ended by an operator"):
        await agent.ask(Ping(call="still here"))
    assert await server.app.service.pending() == ()
    assert os.listdir(root) == []


async def test_a_lost_answer_of_an_apply_is_given_again_under_its_name(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    first = (await agent.ask(CheckDiff(id, call="the call"))).answered.answer
    (root / "a.txt").unlink()
    assert (await agent.ask(CheckDiff(id, call="the call"))).answered.answer == first
    assert not (root / "a.txt").exists(), "said again, not done again"
    with pytest.raises(AlreadyConsumed):
        await agent.ask(CheckDiff(id, call="another call"))


async def test_a_broadcast_asked_twice_under_one_name_is_told_once(server: VirtualServer, agent: AgentClient) -> None:
    for _ in range(2):
        await agent.ask(Broadcast("built", call="the call"))
    await server.operator.notice("built")
    await server.later(0)
    assert [notice.text for notice in server.operator.notices] == ["built"]


async def test_an_apply_that_was_committed_is_carried_through_after_a_crash(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_diff.transaction, "roll_forward", falls_once(check_diff.transaction.roll_forward))
        async with server.restarting():
            answer = (await agent.ask(CheckDiff(id, call="the call"))).answered.answer
    assert [one.path for one in answer.files_written] == ["a.txt"]
    assert (root / "a.txt").read_text() == "a\n"
    await server.operator.card(id=id, state=CardState.APPLIED)


def falls_once(work: Callable[..., Any]) -> Callable[..., Any]:
    fallen: list[bool] = []

    def falls(*args: Any) -> Any:
        if not fallen:
            fallen.append(True)
            raise RuntimeError("boom")
        return work(*args)

    return falls


async def test_the_same_change_after_it_was_applied_or_rejected_is_a_new_request(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    first = (await agent.propose()).request_id
    await server.decide(first, Decision.APPROVE)
    # Approved and not applied: asking again joins it.
    again = await agent.propose()
    assert again.request_id == first
    assert again.answered is not None
    await agent.ask(CheckDiff(first, call="c"))
    (root / "a.txt").unlink()
    second = (await agent.propose()).request_id
    assert second != first
    await server.decide(second, Decision.REJECT)
    told = await agent.propose()
    assert told.answered is not None, "the rejection has not reached the agent"
    await agent.ask(Deliver((Delivery("d", (second,)),)))
    assert (await agent.propose()).request_id not in (first, second)


async def test_an_approval_holds_only_for_the_base_it_was_given_on(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose(diff="new\n")).request_id
    await server.decide(id, Decision.APPROVE)
    (root / "a.txt").write_text("somebody else's\n")
    with pytest.raises(PatchConflict, match=r"a\.txt"):
        await agent.ask(CheckDiff(id, call="c1"))
    assert (root / "a.txt").read_text() == "somebody else's\n"
    (root / "a.txt").unlink()
    assert (await agent.ask(CheckDiff(id, call="c2"))).answered.answer.status == "applied"
    assert (root / "a.txt").read_text() == "new\n"


@given(
    st.tuples(st.text(), st.sampled_from(RiskLevel), st.lists(st.tuples(st.text(min_size=1), st.text()))),
    st.tuples(st.text(), st.sampled_from(RiskLevel), st.lists(st.tuples(st.text(min_size=1), st.text()))),
)
def test_a_proposals_key_is_its_paths_bases_diff_and_risk(one: Any, other: Any) -> None:
    assert (key_of("s", *one) == key_of("s", *other)) is (one == other)
    assert key_of("s", *one) != key_of("t", *one)


def key_of(session: str, text: str, risk: RiskLevel, files: list[tuple[str, str]]) -> str:
    changes = tuple(FileChange(path, ChangeKind.WRITE, base, "after") for path, base in files)
    return proposal_key(session, changes, risk, text, ProposalForm.PATCH)


def test_a_text_that_is_a_patch_is_another_proposal_as_a_files_content() -> None:
    text, changes = "--- a/f\n+++ b/f\n", (FileChange("f", ChangeKind.WRITE, "a", "b"),)
    as_patch, as_content = (proposal_key("s", changes, RiskLevel.LOW, text, form) for form in ProposalForm)
    assert as_patch != as_content
    # Text that no patch begins with is one proposal, whichever argument carried it.
    keys = {proposal_key("s", changes, RiskLevel.LOW, "x\n", form) for form in (*ProposalForm, None)}
    assert len(keys) == 1


async def test_content_is_written_literally_whatever_it_looks_like(server: VirtualServer, root: Path) -> None:
    texts = [
        "",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n",
        "diff of opinions\n",
        "```diff\n-a\n```\n",
        "\ufeff\r\n",
    ]
    agent = await server.arrive(root)
    for number, text in enumerate(texts):
        opened = await agent.ask(CheckClearance("t", None, f"{number}.txt", content=text))
        await server.decide(opened.request_id, Decision.APPROVE)
        await agent.ask(CheckDiff(opened.request_id))
        assert (root / f"{number}.txt").read_bytes() == text.encode()


async def test_a_proposal_has_a_diff_or_content_and_not_both(server: VirtualServer, agent: AgentClient) -> None:
    with pytest.raises(InvalidArguments, match="send one of them"):
        await agent.ask(CheckClearance("t", "a\n", "a.txt", content="a\n", call="c1"))
    with pytest.raises(InvalidArguments, match="one of diff and content"):
        await agent.ask(CheckClearance("t", None, "a.txt", call="c2"))
    same = await agent.ask(CheckClearance("t", "a\n", "a.txt", call="c3"))
    again = await agent.ask(CheckClearance("t", None, "a.txt", content="a\n", call="c4"))
    assert again.request_id == same.request_id


async def test_what_looks_like_a_patch_and_is_none_is_refused_and_leaves_no_card(
    server: VirtualServer, agent: AgentClient
) -> None:
    for text in ("```diff\n-a\n+b\n```\n", "@@ -1 +1 @@\n-a\n+b\n", "Index: a.txt\n=====\n", "\n--- a\n+++ b\n"):
        with pytest.raises(DiffError, match=r"the diff looks like .*; send a patch .* as content"):
            await agent.ask(CheckClearance("t", text, "a.txt"))
    assert await server.app.service.pending() == ()
