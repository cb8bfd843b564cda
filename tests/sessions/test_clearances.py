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
from tests.sessions.house import Guest, House, house

Clock = trio.testing.MockClock


async def test_the_same_proposal_asked_again_joins_the_request_that_waits(at: House, guest: Guest) -> None:
    first = await guest.propose()
    again = await guest.propose()
    assert again.request_id == first.request_id
    waiting = [await at.wait(guest, first.request_id) for _ in range(3)]
    await at.decide(first.request_id, Decision.APPROVE)
    assert {(await each()).answer.status for each in waiting} == {"approved"}
    assert {card.id for card in at.people.cards} == {first.request_id}
    other = await guest.propose(diff="b\n")
    assert other.request_id != first.request_id


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=100)))
async def test_a_request_expires_at_its_second_and_not_before(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id)
    await at.later(99)
    await guest.settled()
    assert waiting.outcome is None
    await at.later(1)
    assert (await waiting()).answer.status == "timeout"
    await at.people.card(id=id, state=CardState.EXPIRED)
    with pytest.raises(AlreadyDecided, match="no longer open"):
        await at.decide(id, Decision.APPROVE)


async def test_a_decision_is_on_record_with_where_it_came_from(clock: Clock, root: Path) -> None:
    origin = Origin("ctl", 12, 3456, "boot", "/dev/pts/3", 11, 3400, "/usr/bin/python3", 11, "/usr/bin/bash")
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        await at.app.service.decide(id, evolve(at.verdict(Decision.APPROVE), origin=origin))
        decided = (await at.app.service.card(id)).decided
        assert decided is not None
        assert decided.origin == origin
        [entry] = [each for each in await at.app.service.audit(10) if each.kind == "decided"]
        assert entry.data is not None
        assert entry.data["origin"] == origin.to_data()


async def test_the_first_verdict_wins_and_every_later_one_is_told_so(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id)
    await at.decide(id, Decision.REJECT, "no", verdict_id="first")
    with pytest.raises(AlreadyDecided, match="reject by kim"):
        await at.decide(id, Decision.APPROVE, verdict_id="second")
    # The one that won may be repeated: its sender did not hear the answer.
    repeated = await at.decide(id, Decision.REJECT, "no", verdict_id="first")
    assert repeated.state is CardState.REJECTED
    answer = (await waiting()).answer
    assert (answer.status, answer.reason) == ("rejected", "no")
    assert sum(entry.kind == "decided" for entry in await at.app.service.audit(50)) == 1


async def test_of_many_verdicts_at_once_one_wins(at: House, guest: Guest) -> None:
    for n in range(10):
        id = (await guest.propose(f"{n}.txt")).request_id
        waiting = await at.wait(guest, id)
        tried = [
            at.begin(partial(at.decide, id, choice, None, f"{n}-{i}"))
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
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        await at.decide(id, Decision.APPROVE)
        first = await guest.ask(Ping(call="c1"))
        assert [late.request_id for late in first.late_verdicts] == [id]
        # It is on its way with that result; no other carries it too.
        assert (await guest.ask(Ping(call="c2"))).late_verdicts == ()
        guest.tell(Undeliver(("c1",)))
        assert [late.request_id for late in (await guest.ask(Ping(call="c3"))).late_verdicts] == [id]
        await guest.ask(Deliver((Delivery("c3", (id,)),)))
        assert (await guest.ask(Ping(call="c4"))).late_verdicts == ()
        await at.people.card(id=id, state=CardState.DELIVERED)
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert (await guest.ask(Ping(call="c5"))).late_verdicts == ()


async def test_a_call_that_gives_up_leaves_the_request_open_and_the_card_says_away(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id, "c1")
    await at.people.card(id=id, away=False)
    waiting.scope.cancel()
    assert (await guest.ask(Detach("c1", id))).late_verdicts == ()
    await at.people.card(id=id, away=True)
    again = await at.wait(guest, id, "c2")
    await at.people.card(id=id, away=False)
    await at.decide(id, Decision.APPROVE)
    assert (await again()).answer.status == "approved"


async def test_a_verdict_that_crosses_with_giving_up_rides_on_that_very_result(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id, "c1")
    await at.decide(id, Decision.APPROVE)
    await waiting()
    pending = await guest.ask(Detach("c1", id))
    assert [late.request_id for late in pending.late_verdicts] == [id]


async def test_a_request_is_shown_even_if_its_call_never_comes_to_wait(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    assert at.people.cards == []
    await at.later(SHOW_SECONDS)
    shown = await at.people.card(id=id)
    assert (shown.state, shown.away) == (CardState.PENDING, True)


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=1000)))
async def test_a_session_that_falls_while_calls_wait_is_not_noticed(at: House, guest: Guest) -> None:
    ids = [(await guest.propose(f"{n}.txt")).request_id for n in range(3)]
    waiting = [await at.wait(guest, id) for id in ids]
    for _ in range(3):
        inject(at.app.system, f"session/{guest.session_id}", ValueError("boom"), "now")
        await at.later(5)
    await at.decide(ids[0], Decision.APPROVE)
    await at.decide(ids[1], Decision.REJECT)
    assert [(await each()).answer.status for each in waiting[:2]] == ["approved", "rejected"]
    # Its clock runs on as well.
    await at.later(1000 - 15)
    assert (await waiting[2]()).answer.status == "timeout"


@pytest.mark.parametrize("victim", ["store", "operators", "registry"])
async def test_any_other_part_may_fall_while_calls_wait(at: House, guest: Guest, victim: str) -> None:
    id = (await guest.propose()).request_id
    waiting = await at.wait(guest, id)
    async with at.restarting():
        inject(at.app.system, victim, ValueError("boom"), "now")
        await at.decide(id, Decision.APPROVE)
        assert (await waiting()).answer.status == "approved"


async def test_the_end_of_a_session_ends_what_waits_and_lapses_what_was_approved(
    at: House, guest: Guest, root: Path
) -> None:
    approved = (await guest.propose("a.txt")).request_id
    await at.decide(approved, Decision.APPROVE)
    open_one = (await guest.propose("b.txt")).request_id
    waiting = await at.wait(guest, open_one)
    await at.app.service.end(guest.session_id, "kim", "ctl", "enough")
    with pytest.raises(InvalidState, match="ended with its session"):
        await waiting()
    await at.people.card(id=open_one, state=CardState.INTERRUPTED)
    with pytest.raises(InvalidState):
        await guest.ask(CheckDiff(approved, call="c"))
    with pytest.raises(InvalidState, match="ended by an operator"):
        await guest.propose("c.txt")
    with pytest.raises(InvalidState, match="ended by an operator"):
        await guest.ask(Ping(call="still here"))
    assert await at.app.service.pending() == ()
    assert os.listdir(root) == []


async def test_a_lost_answer_of_an_apply_is_given_again_under_its_name(at: House, guest: Guest, root: Path) -> None:
    id = (await guest.propose()).request_id
    await at.decide(id, Decision.APPROVE)
    first = (await guest.ask(CheckDiff(id, call="the call"))).answered.answer
    (root / "a.txt").unlink()
    assert (await guest.ask(CheckDiff(id, call="the call"))).answered.answer == first
    assert not (root / "a.txt").exists(), "said again, not done again"
    with pytest.raises(AlreadyConsumed):
        await guest.ask(CheckDiff(id, call="another call"))


async def test_a_broadcast_asked_twice_under_one_name_is_told_once(at: House, guest: Guest) -> None:
    for _ in range(2):
        await guest.ask(Broadcast("built", call="the call"))
    await at.people.notice("built")
    await at.later(0)
    assert [notice.text for notice in at.people.notices] == ["built"]


async def test_an_apply_that_was_committed_is_carried_through_after_a_crash(
    at: House, guest: Guest, root: Path
) -> None:
    id = (await guest.propose()).request_id
    await at.decide(id, Decision.APPROVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_diff.transaction, "roll_forward", falls_once(check_diff.transaction.roll_forward))
        async with at.restarting():
            answer = (await guest.ask(CheckDiff(id, call="the call"))).answered.answer
    assert [one.path for one in answer.files_written] == ["a.txt"]
    assert (root / "a.txt").read_text() == "a\n"
    await at.people.card(id=id, state=CardState.APPLIED)


def falls_once(work: Callable[..., Any]) -> Callable[..., Any]:
    fallen: list[bool] = []

    def falls(*args: Any) -> Any:
        if not fallen:
            fallen.append(True)
            raise RuntimeError("boom")
        return work(*args)

    return falls


async def test_the_same_change_after_it_was_applied_or_rejected_is_a_new_request(
    at: House, guest: Guest, root: Path
) -> None:
    first = (await guest.propose()).request_id
    await at.decide(first, Decision.APPROVE)
    # Approved and not applied: asking again joins it.
    again = await guest.propose()
    assert again.request_id == first
    assert again.answered is not None
    await guest.ask(CheckDiff(first, call="c"))
    (root / "a.txt").unlink()
    second = (await guest.propose()).request_id
    assert second != first
    await at.decide(second, Decision.REJECT)
    told = await guest.propose()
    assert told.answered is not None, "the rejection has not reached the agent"
    await guest.ask(Deliver((Delivery("d", (second,)),)))
    assert (await guest.propose()).request_id not in (first, second)


async def test_an_approval_holds_only_for_the_base_it_was_given_on(at: House, guest: Guest, root: Path) -> None:
    id = (await guest.propose(diff="new\n")).request_id
    await at.decide(id, Decision.APPROVE)
    (root / "a.txt").write_text("somebody else's\n")
    with pytest.raises(PatchConflict, match=r"a\.txt"):
        await guest.ask(CheckDiff(id, call="c1"))
    assert (root / "a.txt").read_text() == "somebody else's\n"
    (root / "a.txt").unlink()
    assert (await guest.ask(CheckDiff(id, call="c2"))).answered.answer.status == "applied"
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


async def test_content_is_written_literally_whatever_it_looks_like(clock: Clock, root: Path) -> None:
    texts = [
        "",
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n",
        "diff of opinions\n",
        "```diff\n-a\n```\n",
        "\ufeff\r\n",
    ]
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        for number, text in enumerate(texts):
            opened = await guest.ask(CheckClearance("t", None, f"{number}.txt", content=text))
            await at.decide(opened.request_id, Decision.APPROVE)
            await guest.ask(CheckDiff(opened.request_id))
            assert (root / f"{number}.txt").read_bytes() == text.encode()


async def test_a_proposal_has_a_diff_or_content_and_not_both(at: House, guest: Guest) -> None:
    with pytest.raises(InvalidArguments, match="send one of them"):
        await guest.ask(CheckClearance("t", "a\n", "a.txt", content="a\n", call="c1"))
    with pytest.raises(InvalidArguments, match="one of diff and content"):
        await guest.ask(CheckClearance("t", None, "a.txt", call="c2"))
    same = await guest.ask(CheckClearance("t", "a\n", "a.txt", call="c3"))
    again = await guest.ask(CheckClearance("t", None, "a.txt", content="a\n", call="c4"))
    assert again.request_id == same.request_id


async def test_what_looks_like_a_patch_and_is_none_is_refused_and_leaves_no_card(at: House, guest: Guest) -> None:
    for text in ("```diff\n-a\n+b\n```\n", "@@ -1 +1 @@\n-a\n+b\n", "Index: a.txt\n=====\n", "\n--- a\n+++ b\n"):
        with pytest.raises(DiffError, match=r"the diff looks like .*; send a patch .* as content"):
            await guest.ask(CheckClearance("t", text, "a.txt"))
    assert await at.app.service.pending() == ()
