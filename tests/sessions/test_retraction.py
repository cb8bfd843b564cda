"""A person takes a decision back that the agent cannot know: the request waits again, and only the last decision that
was not taken back reaches the agent."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import typing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.testing import inject
from intercom.model import crash_points
from intercom.model.amendment import Amendment, Comment
from intercom.model.card import Card, CardState
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, IntercomError, InvalidState, NotFound
from intercom.model.request import TaskStatus
from intercom.operators.router_messages import Channel
from intercom.sessions.messages import (
    AwaitDecision,
    Deliver,
    Delivery,
    FindTask,
    OpenTask,
    ToolRequest,
    Undeliver,
)
from intercom.sessions.registry import GRACE_SECONDS, SWEEP_SECONDS
from intercom.sessions.session.actor import WITHOUT_RESULT
from intercom.sessions.session.message_handlers import HANDLERS
from intercom.sessions.session.retraction import PEOPLES
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store.audit_chain import verify
from intercom.store.requests import approvals
from intercom.store.writer_messages import Transact
from tests.sessions.signed.test_decisions import ask_leave
from tests.sessions.test_amendments import DIFF, NEW, OLD
from tests.sessions.test_policy_trust import POLICY, waiting, write
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


async def take_back(server: VirtualServer, id: str, act: str | None = None, by: str = "lee") -> Card:
    return await server.app.service.steering.take_back(id, by, "ctl", act)


async def told(agent: AgentClient) -> list[dict[str, Any]]:
    """The decisions that one ping is told, and the agent has."""
    call = agent.call()
    late = (await agent.ask(Ping(call=call))).late_verdicts
    await agent.ask(Deliver((Delivery(call, tuple(each.request_id for each in late)),)))
    return [each.answer for each in late]


async def kinds(server: VirtualServer) -> list[str]:
    return [entry.kind for entry in await server.app.service.audit(100)]


def faults(server: VirtualServer) -> list[Any]:
    with contextlib.closing(sqlite3.connect(server.app.database)) as db:
        return verify(db, []).faults


ASKED = {
    "approval": (CheckClearance("change a.txt", "a\n", "a.txt"), Decision.APPROVE, Decision.REJECT),
    "rejection": (CheckClearance("change a.txt", "a\n", "a.txt"), Decision.REJECT, Decision.APPROVE),
    "prompt": (Transmit("go on?"), Decision.REFINE, Decision.STOP),
    "standby": (Standby("idle"), Decision.STOP, Decision.RESUME),
}


@pytest.mark.parametrize("kind", ASKED)
async def test_the_request_waits_again_and_the_next_decision_is_the_only_one_told(
    server: VirtualServer, agent: AgentClient, kind: str
) -> None:
    asked, first, second = ASKED[kind]
    id = (await agent.ask(asked)).request_id
    before = await server.app.service.card(id)
    await server.decide(id, first, "first")
    assert (await server.operator.card(id=id)).state is not CardState.PENDING
    card = await take_back(server, id[:20])
    assert card.note is not None
    assert card.note.startswith("lee took back a decision: ")
    assert evolve(card, note=None) == evolve(before, away=True)
    assert (await server.operator.card(id=id, state=CardState.PENDING, note=card.note)).away
    assert [each.id for each in await server.app.service.pending()] == [id]
    await server.operator.notice(f"{card.note}; ")
    assert await told(agent) == []
    await server.decide(id, second, "second")
    [answer] = await told(agent)
    assert "second" in str(answer)
    assert "first" not in str(answer)
    assert await told(agent) == []
    assert faults(server) == []


async def test_the_log_says_who_took_what_back(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE, verdict_id="v-1")
    await take_back(server, id)
    entry = (await server.app.service.audit(10))[-1]
    assert (entry.kind, entry.who, entry.summary) == ("decision_taken_back", "lee", "approve")
    named = {name: entry.data[name] for name in ("request_id", "verdict_id", "channel", "decided_by")}
    assert named == {"request_id": id, "verdict_id": "v-1", "channel": "ctl", "decided_by": "kim"}


async def test_calls_that_wait_in_a_paused_session_go_on_waiting_for_the_next_decision(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    call = await server.wait(agent, id)
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    await server.decide(id, Decision.APPROVE)
    assert (await take_back(server, id)).away is False
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
    await server.later(0)
    assert call.outcome is None
    await server.decide(id, Decision.REJECT, "no")
    assert ((await call()).answer.status, await told(agent)) == ("rejected", [])


async def test_an_agent_that_comes_back_asks_and_waits(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    """Its session's actor is stopped meanwhile, because nothing waits in it."""
    id = (await agent.propose()).request_id
    server.gone("agent")
    await server.later(GRACE_SECONDS)
    await server.decide(id, Decision.APPROVE)
    for _ in range(3):
        await server.later(SWEEP_SECONDS)
    assert server.app.system.ref(f"session/{agent.session_id}") is None
    assert (await take_back(server, id)).state is CardState.PENDING
    agent = await server.arrive(root)
    with pytest.raises(InvalidState, match="is pending, not approved"):
        await agent.ask(CheckDiff(id))
    call = await server.wait(agent, id)
    await server.decide(id, Decision.REJECT)
    assert (await call()).answer.status == "rejected"


async def test_a_permission_that_was_taken_back_is_none(server: VirtualServer, agent: AgentClient) -> None:
    asked = await ask_leave(agent, "make", "hook")
    await server.decide(asked.request_id, Decision.APPROVE)
    await take_back(server, asked.request_id)
    again = await ask_leave(agent, "make", "hook")
    assert (again.request_id, again.answered) == (asked.request_id, None)
    await server.decide(asked.request_id, Decision.APPROVE)
    assert (await ask_leave(agent, "make", "hook")).answered.answer.status == "allowed"
    with pytest.raises(AlreadyDecided, match="has used"):
        await take_back(server, asked.request_id)


async def test_the_deadline_counts_again(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    until = (await server.app.service.card(id)).expires_at
    assert until is not None
    left = (until - server.now()).total_seconds()
    await server.decide(id, Decision.APPROVE)
    await server.later(left - 1)
    await take_back(server, id)
    await server.later(2)
    assert (await server.app.service.card(id)).state is CardState.EXPIRED
    with pytest.raises(InvalidState, match="nobody decided"):
        await take_back(server, id)
    assert [each["status"] for each in await told(agent)] == ["timeout"]


def test_every_channel_of_people_is_known() -> None:
    # Nobody decides by a push message.
    assert {each.value for each in Channel} - {"push"} == PEOPLES


@pytest.mark.parametrize("channel", sorted(PEOPLES))
async def test_what_was_decided_on_any_channel_is_taken_back_on_any(
    server: VirtualServer, agent: AgentClient, channel: str
) -> None:
    id = (await agent.propose()).request_id
    await server.app.service.decide(id, evolve(server.verdict(Decision.APPROVE), channel=channel))
    await server.app.service.steering.take_back(id, "lee", channel)
    assert [card.id for card in await server.app.service.pending()] == [id]


# --- amendments ------------------------------------------------------------------------------------------------------


async def test_what_a_person_amended_is_again_what_the_agent_proposed(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    (root / "a.txt").write_text(OLD)
    id = (await agent.ask(CheckClearance("Shout", DIFF, "a.txt"))).request_id
    read = Transact(lambda db: approvals.get(db, id))
    before = await server.ask("store", read)
    for part in ((1, 3), (2,)):
        card = await server.app.service.card(id)
        verdict = server.verdict(Decision.APPROVE, "a part")
        await server.app.service.decide(id, evolve(verdict, amendment=Amendment(card.proposal_hash or "", part)))
        assert await server.ask("store", read) != before
        await take_back(server, id)
        assert await server.ask("store", read) == before
        assert (await server.ask("store", Transact(lambda db: db.execute("select * from amendment").fetchall()))) == []
    await server.app.service.decide(
        id, evolve(server.verdict(Decision.REJECT), comments=(Comment("a.txt", "why?", 2),))
    )
    await take_back(server, id)
    assert await server.ask("store", read) == before
    await server.decide(id, Decision.APPROVE)
    await agent.ask(CheckDiff(id))
    assert (root / "a.txt").read_text() == NEW
    assert faults(server) == []


# --- what cannot be taken back ---------------------------------------------------------------------------------------


async def carried(server: VirtualServer, agent: AgentClient, id: str) -> str:
    call = agent.call()
    assert (await agent.ask(Ping(call=call))).late_verdicts
    return call


async def on_its_way(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await carried(server, agent, id)


async def lost(server: VirtualServer, agent: AgentClient, id: str) -> None:
    agent.tell(Undeliver((await carried(server, agent, id),)))
    await agent.settled()


async def sent_again(server: VirtualServer, agent: AgentClient, id: str) -> None:
    """The person's client has lost the answer, and repeats the decision, after a result with it was lost."""
    await lost(server, agent, id)
    await server.decide(id, Decision.APPROVE, verdict_id="v-1")


async def delivered(server: VirtualServer, agent: AgentClient, id: str) -> None:
    assert await told(agent)


async def applied(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await agent.ask(CheckDiff(id))


async def tried_in_vain(server: VirtualServer, agent: AgentClient, id: str) -> None:
    file = Path(agent.identity.workspace, "a.txt")
    await trio.to_thread.run_sync(file.write_text, "meanwhile\n")
    with pytest.raises(IntercomError):
        await agent.ask(CheckDiff(id))


async def polled(server: VirtualServer, agent: AgentClient, id: str) -> None:
    task = await agent.ask(OpenTask(agent.call(), "check_clearance", id))
    assert (await agent.ask(FindTask(task.id))).status is TaskStatus.COMPLETED


async def ended(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")


async def crashed(server: VirtualServer, agent: AgentClient, id: str) -> None:
    """A result that carries it was sent before, and the actor that knew of it is gone."""
    await carried(server, agent, id)
    inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
    async with server.restarting():
        await agent.settled()


KNOWN = {
    on_its_way: "on its way",
    lost: "may know",
    sent_again: "may know",
    delivered: "has the answer",
    applied: "has used",
    tried_in_vain: "may know",
    polled: "may know",
    ended: "has ended",
    crashed: "may know",
}


@pytest.mark.parametrize(("known", "why"), KNOWN.items(), ids=[each.__name__ for each in KNOWN])
async def test_what_the_agent_may_know_is_not_taken_back(
    server: VirtualServer, agent: AgentClient, known: Any, why: str
) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE, verdict_id="v-1")
    await known(server, agent, id)
    before = await server.app.service.card(id)
    with pytest.raises(IntercomError, match=f"{why}.*nothing was changed"):
        await take_back(server, id)
    assert await server.app.service.card(id) == before
    assert "decision_taken_back" not in await kinds(server)


async def test_a_call_that_waited_was_told_at_once(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    call = await server.wait(agent, id)
    await server.decide(id, Decision.APPROVE)
    with pytest.raises(AlreadyDecided, match="on its way"):
        await take_back(server, id)
    assert (await call()).answer.status == "approved"


async def test_only_a_decision_of_a_person_is_taken_back(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    id = (await agent.propose()).request_id
    with pytest.raises(InvalidState, match="is not decided"):
        await take_back(server, id)
    with pytest.raises(NotFound):
        await take_back(server, "zz")
    write(root, POLICY)
    await server.later(5)
    proposed = await waiting(server, root)
    with pytest.raises(InvalidState, match="policy card took effect at once"):
        await take_back(server, proposed.id)
    await server.accept(root)
    passed = (await agent.propose("docs/a.md")).request_id
    with pytest.raises(InvalidState, match="no person decided"):
        await take_back(server, passed)


# --- repeated, crossed and cut off -----------------------------------------------------------------------------------


async def test_a_decision_that_was_taken_back_decides_nothing_if_it_is_sent_again(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await server.decide(id, Decision.APPROVE, verdict_id="v-old")
        await take_back(server, id)
        with pytest.raises(AlreadyDecided, match="was taken back"):
            await server.decide(id, Decision.APPROVE, verdict_id="v-old")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        with pytest.raises(AlreadyDecided, match="was taken back"):
            await server.decide(id, Decision.APPROVE, verdict_id="v-old")
        assert [card.id for card in await server.app.service.pending()] == [id]
        await server.decide(id, Decision.REJECT)
        with pytest.raises(AlreadyDecided, match="was taken back"):
            await server.decide(id, Decision.APPROVE, verdict_id="v-old")
        assert [each["status"] for each in await told(agent)] == ["rejected"]
        assert faults(server) == []


@pytest.mark.parametrize("kind", ASKED)
async def test_a_decision_of_an_earlier_run_is_taken_back_until_the_agent_calls(
    clock: Clock, root: Path, kind: str
) -> None:
    asked, first, second = ASKED[kind]
    async with virtual_server(root.parent, clock) as server:
        id = (await (await server.arrive(root)).ask(asked)).request_id
        await server.decide(id, first, "first", verdict_id="v-first")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert (await take_back(server, id)).state is CardState.PENDING
        assert await told(agent) == []
        await server.decide(id, second, "second", verdict_id="v-second")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        [answer] = await told(agent)
        assert "second" in str(answer)
        assert faults(server) == []
        with pytest.raises(AlreadyDecided, match="has the answer"):
            await take_back(server, id)


async def while_a_call_waits(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await server.wait(agent, id)
    await server.decide(id, Decision.APPROVE)


async def while_a_call_for_another_waits(server: VirtualServer, agent: AgentClient, id: str) -> None:
    other = (await agent.propose("b.txt")).request_id
    call = await server.wait(agent, other)
    await server.decide(id, Decision.APPROVE)
    await server.decide(other, Decision.APPROVE)
    assert len((await call()).late_verdicts) == 1


async def and_sent_in_vain(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await server.decide(id, Decision.APPROVE)
    await lost(server, agent, id)


async def and_sent_in_vain_by_another_run(server: VirtualServer, agent: AgentClient, id: str) -> None:
    await server.decide(id, Decision.APPROVE)
    # What a server knows only in its own run.
    server.app.session_deps.unsent.clear()
    inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
    async with server.restarting():
        await lost(server, agent, id)


async def in_a_pause(server: VirtualServer, agent: AgentClient, id: str) -> None:
    """The waiting call gets it at the end of the pause, without another call of the agent."""
    call = await server.wait(agent, id)
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    await server.decide(id, Decision.APPROVE)
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
    assert (await call()).answer.status == "approved"


@pytest.mark.parametrize(
    "decided",
    [
        while_a_call_waits,
        while_a_call_for_another_waits,
        and_sent_in_vain,
        and_sent_in_vain_by_another_run,
        in_a_pause,
    ],
)
async def test_a_decision_of_an_earlier_run_that_a_result_may_have_carried_is_not_taken_back(
    clock: Clock, root: Path, decided: Any
) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await decided(server, agent, id)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        with pytest.raises(AlreadyDecided, match=r"may have been before the server started again.*pause it"):
            await take_back(server, id)
        assert "approved" in [each["status"] for each in await told(agent)]


def test_only_messages_that_answer_no_agent_leave_a_decision_unsent() -> None:
    """The result of any other may carry it."""
    for message, handler in HANDLERS.items():
        answers = " ".join(map(str, (typing.get_type_hints(handler).get("return"), *_bases(message))))
        is_for_agents = issubclass(message, ToolRequest) or re.search("Answered|Opened|TaskState|Asked", answers)
        assert not (is_for_agents and message in WITHOUT_RESULT), message


def _bases(message: type) -> tuple[Any, ...]:
    return tuple(getattr(message, "__orig_bases__", ()))


async def test_the_same_act_again_takes_nothing_more_back(server: VirtualServer, agent: AgentClient) -> None:
    id, other = [(await agent.propose(path)).request_id for path in ("a.txt", "b.txt")]
    await server.decide(id, Decision.APPROVE)
    first = await take_back(server, id, "act")
    assert await take_back(server, id, "act") == first
    await server.decide(id, Decision.REJECT)
    assert (await take_back(server, id, "act")).state is CardState.REJECTED
    with pytest.raises(AlreadyDecided, match="another decision"):
        await take_back(server, other, "act")
    assert (await kinds(server)).count("decision_taken_back") == 1
    assert [each["status"] for each in await told(agent)] == ["rejected"]


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit", "verdict.may_be_sent"])
async def test_what_crashes_before_a_result_is_sent_sends_it_once(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        await server.decide(id, Decision.APPROVE)
        crashes: list[str] = []

        def crash_once(name: str) -> None:
            if name == point and not crashes:
                crashes.append(name)
                raise RuntimeError("boom")

        monkeypatch.setattr(crash_points, "hook", crash_once)
        async with server.restarting():
            assert len((await agent.ask(Ping(call=agent.call()))).late_verdicts) == 1
        assert crashes == [point]
        monkeypatch.setattr(crash_points, "hook", None)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        with pytest.raises(AlreadyDecided):
            await take_back(server, id)
        assert [each["status"] for each in await told(agent)] == ["approved"]


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit", "verdict.taken_back"])
async def test_what_crashes_on_the_way_finishes(
    server: VirtualServer, agent: AgentClient, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE, verdict_id="v-old")
    crashes: list[str] = []

    def crash_once(name: str) -> None:
        if name == point and not crashes:
            crashes.append(name)
            raise RuntimeError("boom")

    monkeypatch.setattr(crash_points, "hook", crash_once)
    async with server.restarting():
        card = await take_back(server, id, "act")
        assert card.state is CardState.PENDING
        assert crashes == [point]
        assert await told(agent) == []
        with pytest.raises(AlreadyDecided):
            await server.decide(id, Decision.APPROVE, verdict_id="v-old")
        await server.decide(id, Decision.REJECT)
        assert [each["status"] for each in await told(agent)] == ["rejected"]
    assert (await kinds(server)).count("decision_taken_back") == 1


async def test_a_server_killed_after_the_commit_asks_again(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        id = (await (await server.arrive(root)).propose()).request_id
        await server.decide(id, Decision.APPROVE)
        await take_back(server, id)
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        assert await told(agent) == []
        [card] = await server.app.service.pending()
        assert (card.id, card.decided) == (id, None)
        await server.decide(id, Decision.REJECT, verdict_id="v-next")
        assert [each["status"] for each in await told(agent)] == ["rejected"]


async def test_of_two_acts_at_once_one_takes_it_back(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    acts = [server.begin(partial(take_back, server, id)) for _ in range(2)]
    outcomes = []
    for act in acts:
        try:
            outcomes.append((await act()).state.value)
        except IntercomError as refused:
            outcomes.append(refused.error_code)
    assert sorted(outcomes) == ["invalid_state", "pending"]


async def test_a_decision_made_since_is_not_the_one_that_is_taken_back(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE, verdict_id="v-kim")
    back = partial(server.app.service.steering.take_back, id, "kim", "web", decision_id="v-kim")
    await back(act_id="act-lee")
    await server.decide(id, Decision.REJECT, "no", verdict_id="v-lee")
    with pytest.raises(AlreadyDecided, match="has another decision now: rejected by kim; nothing was changed"):
        await back(act_id="act-kim")
    assert (await server.app.service.card(id)).decided.verdict_id == "v-lee"  # type: ignore[union-attr]
    assert (await back(act_id="act-lee")).state is CardState.REJECTED
    with pytest.raises(AlreadyDecided, match="this act belongs to another decision"):
        await back(act_id="act-lee", decision_id="v-lee")
    assert [each["status"] for each in await told(agent)] == ["rejected"]


# --- grants made with the approval -----------------------------------------------------------------------------------


async def test_a_grant_ends_with_the_approval_that_it_was_made_with(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    (root / "src").mkdir()
    id = (await agent.propose("src/a.txt")).request_id
    made = await server.app.service.grants.make(id, "kim", "web")
    other = await server.app.service.grants.make((await agent.propose()).request_id, "kim", "web")
    await server.decide(id, Decision.APPROVE, verdict_id="v-1")
    card = await take_back(server, id, "act-1")
    assert card.note == f"lee took back a decision: approved by kim; that ended the grant {made.grant.id[:8]} too"
    lines = {line.grant.id: line.over for line in await server.app.service.grants.listed(everything=True)}
    assert lines == {made.grant.id: "it was revoked", other.grant.id: None}
    revoked = next(entry for entry in await server.app.service.audit(10) if entry.kind == "grant_revoked")
    assert (revoked.who, revoked.data["grant_id"], revoked.data["channel"]) == ("lee", made.grant.id, "ctl")
    assert (await agent.propose("src/b.txt", "b\n")).answered is None
    again = await server.app.service.grants.make(id, "kim", "web")
    await take_back(server, id, "act-1")
    assert (await agent.propose("src/c.txt", "c\n")).answered.answer.auto_approved == again.grant.rule
    assert faults(server) == []


async def test_a_grant_stays_when_a_rejection_is_taken_back_or_nothing_is(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    made = await server.app.service.grants.make(id, "kim", "web")
    await server.decide(id, Decision.REJECT)
    assert (await take_back(server, id)).note == "lee took back a decision: rejected by kim"
    await server.decide(id, Decision.APPROVE)
    await told(agent)
    with pytest.raises(AlreadyDecided):
        await take_back(server, id)
    assert [line.grant.id for line in await server.app.service.grants.listed()] == [made.grant.id]


# --- any order -------------------------------------------------------------------------------------------------------

DECIDING = ("approve", "reject", "take back", "old again")
OTHERS = ("ask", "tell", "lose", "arrive", "pause", "resume", "crash", "restart")


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
    derandomize=True,
)
@example(steps=["approve", "ask", "lose", "take back", "reject", "arrive"])
@example(steps=["approve", "ask", "crash", "take back", "reject", "tell"])
@example(steps=["approve", "restart", "take back", "arrive", "take back"])
@example(steps=["pause", "approve", "take back", "old again", "reject", "resume", "old again"])
@given(steps=st.lists(st.sampled_from([*DECIDING, *DECIDING, *OTHERS]), min_size=4, max_size=24))
def test_the_agent_gets_the_last_decision_that_was_not_taken_back_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    root = tmp_path_factory.mktemp("any") / "ws"
    root.mkdir()
    clock = Clock()
    trio.run(_any_order, clock, root, steps, clock=clock)


async def _any_order(clock: Clock, root: Path, steps: list[str]) -> None:
    """`standing` is the decision that counts, `old` those that were taken back, `calls` the results that have not
    arrived, and `seen` what was in results. A decision that was in one is never taken back."""
    standing: tuple[str, str] | None = None
    old: list[tuple[str, str]] = []
    calls: list[str] = []
    seen: list[str] = []
    async with virtual_server(root.parent, clock) as server, server.restarting():
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        for number, step in enumerate([*steps, "resume", "ask"]):
            match step:
                case "approve" | "reject":
                    try:
                        await server.decide(id, Decision(step), verdict_id=f"v{number}")
                    except AlreadyDecided:
                        assert standing is not None
                    else:
                        assert standing is None
                        standing = f"v{number}", "approved" if step == "approve" else "rejected"
                case "take back":
                    try:
                        await take_back(server, id)
                    except IntercomError:
                        continue
                    assert standing is not None
                    # It was never sent.
                    assert not seen
                    old.append(standing)
                    standing = None
                case "old again":
                    for verdict_id, status in old:
                        with pytest.raises(AlreadyDecided):
                            await server.decide(
                                id, Decision.APPROVE if status == "approved" else Decision.REJECT, verdict_id=verdict_id
                            )
                case "ask" if standing is not None and not (await _row(server)).is_paused:
                    call = agent.call()
                    seen.append((await agent.ask(AwaitDecision(call, id))).answer.status)
                    calls.append(call)
                case "tell":
                    await agent.ask(Deliver(tuple(Delivery(call, (id,)) for call in calls)))
                    calls.clear()
                case "lose":
                    agent.tell(Undeliver(tuple(calls)))
                    calls.clear()
                case "arrive":
                    call = agent.call()
                    if not (await _row(server)).is_paused:
                        late = (await agent.ask(Ping(call=call))).late_verdicts
                        seen += [each.answer["status"] for each in late]
                        calls += [call] * bool(late)
                case "pause" if not (await _row(server)).is_paused:
                    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
                case "resume" if (await _row(server)).is_paused:
                    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
                case "crash" | "restart":
                    if step == "restart":
                        # What a server knows only in its own run.
                        server.app.session_deps.unsent.clear()
                    # The crash before may not be over.
                    await agent.settled()
                    inject(server.app.system, f"session/{agent.session_id}", ValueError("boom"), "now")
                    await agent.settled()
            assert set(seen) <= ({standing[1]} if standing is not None else set())
        card = await server.app.service.card(id)
        assert (card.decided and card.decided.verdict_id) == (standing and standing[0])
        assert bool(seen) is (standing is not None)
        assert faults(server) == []


async def _row(server: VirtualServer) -> Any:
    [session] = await server.app.service.sessions()
    return session
