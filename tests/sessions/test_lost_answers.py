"""What stands when an answer was lost on the way: to a client whose server died, and to a session whose store did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio.testing

from actors.testing import inject
from intercom.model import crash_points
from intercom.model.card import CardState
from intercom.model.config import Config, TimeoutSettings
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyConsumed, ApplyStuck, InvalidState, PatchConflict
from intercom.model.session import SessionMode
from intercom.sessions.housekeeping import LAPSE_SECONDS
from intercom.sessions.messages import Deliver, Delivery, Describe, End
from intercom.sessions.tools import check_diff
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.switch_freq import SwitchFreq
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock


class StoreFell(Exception):
    pass


@contextmanager
def the_store_falls_after_its_next_commit() -> Iterator[None]:
    """What it wrote is on disk, and whoever asked for it is not told."""
    left = [1]

    def hook(point: str) -> None:
        if point == "store.after_commit" and left:
            left.pop()
            raise StoreFell

    crash_points.hook = hook
    try:
        yield
    finally:
        crash_points.hook = None
    assert not left


async def test_a_call_asked_again_keeps_its_request_although_the_file_has_changed(clock: Clock, root: Path) -> None:
    (root / "a.txt").write_text("one\n")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        first = await agent.propose(diff="two\n", call="c1")
    (root / "a.txt").write_text("somebody else's\n")
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        again = await agent.propose(diff="two\n", call="c1")
        assert again.request_id == first.request_id
        assert len(await server.app.service.pending()) == 1
        # Another call means the file as it is now.
        assert (await agent.propose(diff="two\n", call="c2")).request_id != first.request_id


async def test_a_call_asked_again_is_told_of_its_verdict_although_its_patch_fits_no_more(
    clock: Clock, root: Path
) -> None:
    (root / "a.txt").write_text("one\n")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        id = (await agent.propose(diff=patch, call="c1")).request_id
        await server.decide(id, Decision.REJECT, "no")
        (root / "a.txt").write_text("other\n")
        again = await agent.propose(diff=patch, call="c1")
        assert again.answered.answer.reason == "no"
        with pytest.raises(PatchConflict):
            await agent.propose(diff=patch, call="c2")


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=10)))
async def test_a_call_asked_again_after_its_time_ran_out_is_told_so_and_asks_nobody_anew(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose(call="c1")).request_id
    await server.later(10)
    again = await agent.propose(call="c1")
    assert again.request_id == id
    assert again.answered.answer.status == "timeout"
    assert again.answered.late_verdicts == ()


@pytest.mark.server(Config(timeouts=TimeoutSettings(approval_seconds=10)))
async def test_who_waits_is_told_that_time_ran_out_although_the_store_fell_over_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    async with server.restarting():
        with the_store_falls_after_its_next_commit():
            server.clock.jump(10)
            await server.operator.card(id=id, state=CardState.EXPIRED)
        assert (await waiting()).answer.status == "timeout"


async def test_who_waits_in_a_session_that_is_ended_is_told_although_the_store_fell_over_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    async with server.restarting():
        with the_store_falls_after_its_next_commit():
            await agent.ask(End("kim", "ctl", "enough"))
        with pytest.raises(InvalidState, match="ended with its session"):
            await waiting()
        await server.operator.card(id=id, state=CardState.INTERRUPTED)


async def test_an_approval_of_the_policy_that_was_told_is_not_told_again_after_a_crash(
    server: VirtualServer, root: Path
) -> None:
    (root / ".intercom").mkdir()
    (root / ".intercom/settings.json").write_text('{"enabled": true, "file_patterns": {"write": ["*.txt"]}}')
    await server.accept(root)
    agent = await server.arrive(root)
    told = await agent.propose(call="c1")
    assert told.answered.answer.status == "approved"
    await agent.ask(Deliver((Delivery("c1", (told.request_id,)),)))
    async with server.restarting():
        inject(server.app.system, f"session/{agent.session_id}", StoreFell())
        assert (await agent.ask(Ping(call="c2"))).late_verdicts == ()


async def test_an_apply_that_another_call_carried_through_is_answered_alike_when_that_is_asked_again(
    server: VirtualServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_given: object) -> None:
        raise ApplyStuck("half-way")

    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    with monkeypatch.context() as patched:
        patched.setattr(check_diff.transaction, "roll_forward", stop)
        with pytest.raises(ApplyStuck):
            await agent.ask(CheckDiff(id, call="first"))
    done = (await agent.ask(CheckDiff(id, call="second"))).answered.answer
    assert done.status == "applied"
    assert (await agent.ask(CheckDiff(id, call="second"))).answered.answer == done
    assert (await agent.ask(CheckDiff(id, call="first"))).answered.answer == done
    with pytest.raises(AlreadyConsumed):
        await agent.ask(CheckDiff(id, call="third"))


@pytest.mark.server(Config(timeouts=TimeoutSettings(approved_valid_seconds=100)))
async def test_an_approval_that_lapsed_is_not_told_as_one(server: VirtualServer, agent: AgentClient) -> None:
    id = (await agent.propose()).request_id
    await server.decide(id, Decision.APPROVE)
    await server.later(LAPSE_SECONDS)
    await server.later(LAPSE_SECONDS)
    card = await server.operator.card(id=id, state=CardState.EXPIRED)
    assert "not applied in time" in str(card.note)
    (late,) = (await agent.ask(Ping(call="c1"))).late_verdicts
    assert late.answer["status"] == "timeout"


async def test_a_call_is_not_answered_as_one_of_another_session(server: VirtualServer, root: Path) -> None:
    one, other = await server.arrive(root, "one"), await server.arrive(root, "other")
    for agent, mode in ((one, SessionMode.LOCAL), (other, SessionMode.HYBRID)):
        answered = await agent.ask(SwitchFreq(mode, call="c1"))
        assert answered.answer.current_mode == mode
        assert (await agent.ask(Describe())).mode is mode


async def test_without_a_key_an_act_changes_the_mode_once_too(server: VirtualServer, root: Path) -> None:
    await server.arrive(root)
    switch = server.app.service.switch_mode
    first = await switch(None, SessionMode.HYBRID, "kim", "ctl", "ctl/act-0001")
    await switch(None, SessionMode.LOCAL, "kim", "ctl", "ctl/act-0002")
    assert await switch(None, SessionMode.HYBRID, "kim", "ctl", "ctl/act-0001") == first
    [session] = await server.app.service.sessions()
    assert session.mode is SessionMode.LOCAL
