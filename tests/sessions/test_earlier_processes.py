"""A client that starts a process for each call is one agent; and nobody gets what another agent was told."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import evolve

from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.app import App
from intercom.local import shim_process
from intercom.model.amendment import Amendment
from intercom.model.audit import AuditEntry
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, InvalidState, NotFound, Paused
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.request import Operation, OperationKind, RiskLevel
from intercom.model.session import SessionStatus
from intercom.sessions import agent_keys
from intercom.sessions.messages import Adopt, Agent, Answered, AskPermission, FindEarlier, RecordedRequest, key_of
from intercom.sessions.registry import GRACE_SECONDS, RETURN_SECONDS, START_GRACE_SECONDS
from intercom.sessions.request_kinds import APPROVED
from intercom.sessions.tools import check_clearance, check_diff, ping, reboot, transmit
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.transmit import Transmit
from intercom.store.processes import agent_processes
from intercom.store.writer_messages import Transact
from intercom.workspace.files import WorkspaceGone
from tests.agents.in_process import TAKES_TASKS, spoken_to
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock

TOOLS: dict[type[Any], Any] = {
    CheckClearance: check_clearance.TOOL,
    CheckDiff: check_diff.TOOL,
    Ping: ping.TOOL,
    Reboot: reboot.TOOL,
    Transmit: transmit.TOOL,
}
CHANGE = CheckClearance("Add a", "a\n", "a.txt")


async def no_roots() -> list[str]:
    return []


class Process:
    """One process of a client, as its shim connects it. `key` is the shim's id."""

    def __init__(
        self,
        server: VirtualServer,
        root: Path,
        *,
        client: str | None = "mcp",
        key: str | None = None,
        thread: str | None = None,
        **identity: Any,
    ) -> None:
        self.server, self.caller = server, Caller(client, thread, None, no_roots, None)
        self.connection = AgentConnection(
            server.app.system,
            server.app.config,
            server.app.connected_agents,
            key or uuid.uuid4().hex,
            str(root),
            None,
            **identity,
        )
        self.connection.opened()

    async def ask(self, given: Any) -> Any:
        """What the session answers to one call: a request that was opened, or an answer. Nothing waits."""
        async with self.connection.answering(TOOLS[type(given)], given, self.caller, 1, None) as call:
            reply = await call.ask(evolve(call.given, call=call.name))
            if isinstance(reply, RecordedRequest):
                call.request_id = reply.request_id
                return reply
            assert isinstance(reply, Answered)
            return call.finish(reply).answer

    async def session(self) -> str:
        return await self.connection.session(self.caller)

    async def end(self) -> None:
        self.connection.closed(for_good=True)
        await self.server.later(1)


async def applied(process: Process, id: str) -> str:
    """What becomes of an approved change."""
    said = await process.ask(CheckDiff(id))
    return str((said.answered.answer if isinstance(said, RecordedRequest) else said).status)


async def asked_and_ended(server: VirtualServer, root: Path, **process: Any) -> str:
    """The id of a request of a process that is over."""
    first = Process(server, root, **process)
    id: str = (await first.ask(CHANGE)).request_id
    await first.end()
    return id


async def entries(server: VirtualServer, kind: str) -> list[AuditEntry]:
    return [each for each in await server.app.service.audit(100) if each.kind == kind]


# --- what a later process finds --------------------------------------------------------------------------------------


async def test_each_step_of_an_approval_may_come_from_another_process(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    await server.decide(id, Decision.APPROVE)
    second = Process(server, root)
    again = await second.ask(CheckClearance(request_id=id))
    assert again.answered.answer.status == "approved"
    await second.end()
    third = Process(server, root)
    assert await applied(third, id) == "applied"
    assert (root / "a.txt").read_text() == "a\n"
    await third.end()
    (session,) = await server.app.service.sessions(everything=True)
    assert session.status is SessionStatus.INTERRUPTED
    assert len(await entries(server, "session_continued")) == 2


async def test_the_same_change_from_two_processes_is_one_card(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    second = Process(server, root)
    assert (await second.ask(CHANGE)).request_id == id
    # A different one is a request of its own.
    other = await second.ask(CheckClearance("Add b", "b\n", "b.txt"))
    assert other.request_id != id
    assert {card.id for card in await server.app.service.pending()} == {id, other.request_id}


async def test_a_question_is_waited_for_by_its_id(server: VirtualServer, root: Path) -> None:
    first = Process(server, root)
    id = (await first.ask(Transmit("Go on?"))).request_id
    await first.end()
    assert (await Process(server, root).ask(Transmit(request_id=id))).request_id == id


async def test_a_process_with_a_session_of_its_own_still_finds_an_earlier_ones_request(
    server: VirtualServer, root: Path
) -> None:
    id = await asked_and_ended(server, root)
    second = Process(server, root)
    await second.ask(Ping())
    assert (await second.ask(CheckClearance(request_id=id))).request_id == id
    # And its own stay where they are.
    own = (await second.ask(CheckClearance("Add b", "b\n", "b.txt"))).request_id
    assert (await second.ask(CheckClearance(request_id=own))).request_id == own
    assert await second.session() != (await first_session(server, id))


async def first_session(server: VirtualServer, id: str) -> str:
    (card,) = [each for each in await server.app.service.pending() if each.id == id]
    return card.session_id


async def test_it_is_found_after_the_server_has_restarted(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        id = await asked_and_ended(server, root)
    async with virtual_server(root.parent, clock) as server:
        assert (await Process(server, root).ask(CheckClearance(request_id=id))).request_id == id


async def test_a_process_that_continues_another_finds_it_again_when_the_server_has_died(
    clock: Clock, root: Path
) -> None:
    key = uuid.uuid4().hex
    async with virtual_server(root.parent, clock) as server:
        id = await asked_and_ended(server, root)
        second = Process(server, root, key=key)
        assert (await second.ask(CHANGE)).request_id == id
        agents = second.connection.news_of_agents()
        assert agents
    async with virtual_server(root.parent, clock) as server:
        back = Process(server, root, key=key)
        back.connection.opened(agents)
        assert (await back.ask(CHANGE)).request_id == id
        assert (await back.ask(CheckClearance(request_id=id))).request_id == id


async def test_while_a_later_process_continues_a_session_nobody_takes_it_over(
    server: VirtualServer, root: Path
) -> None:
    dead = dead_shim()
    id = await asked_and_ended(server, root, key=dead)
    session = await first_session(server, id)
    second = Process(server, root)
    await second.ask(CheckClearance(request_id=id))
    third = await server.arrive(root, uuid.uuid4().hex, "mcp")
    assert await server.ask("registry", Adopt(third.identity)) == third.session_id
    await second.end()
    await server.later(GRACE_SECONDS + 1)
    assert await server.ask("registry", Adopt(third.identity)) == session


async def test_the_process_that_continues_a_session_may_take_it_over(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root, key=dead_shim())
    session = await first_session(server, id)
    second = Process(server, root)
    await second.ask(CheckClearance(request_id=id))
    assert await second.session() != session
    recovered = await second.ask(Reboot())
    assert (recovered.session_id, [each.request_id for each in recovered.pending_requests]) == (session, [id])
    assert (await second.ask(CheckClearance(request_id=id))).request_id == id


async def test_a_paused_process_does_not_work_in_another_session(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    await server.decide(id, Decision.APPROVE)
    second = Process(server, root)
    await server.app.service.steering.pause(await second.session(), "kim", "ctl")
    waiting = server.begin(partial(second.ask, CheckDiff(id)))
    await server.later(60)
    with pytest.raises(Paused):
        await waiting()
    assert not (root / "a.txt").exists()


async def test_a_paused_session_stays_paused_for_a_later_process(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    await server.app.service.steering.pause(await first_session(server, id), "kim", "ctl")
    second = Process(server, root)
    waiting = server.begin(partial(second.ask, CHANGE))
    await server.later(60)
    with pytest.raises(Paused):
        await waiting()


# --- while others live -----------------------------------------------------------------------------------------------


async def test_the_request_of_a_process_that_continues_another_is_its_own_while_it_lives(
    server: VirtualServer, root: Path
) -> None:
    first = await asked_and_ended(server, root, key=dead_shim())
    second = Process(server, root)
    assert (await second.ask(CHANGE)).request_id == first
    # The same text on another base is another request; it is in the session of the dead one too.
    (root / "a.txt").write_text("base\n")
    id = (await second.ask(CHANGE)).request_id
    await server.decide(id, Decision.APPROVE)
    third = Process(server, root)
    await refused(third, id)
    assert (await third.ask(CHANGE)).request_id not in (first, id)
    assert (root / "a.txt").read_text() == "base\n"
    await second.end()
    assert await applied(third, id) == "applied"


async def test_of_processes_that_want_one_approval_at_once_one_gets_it(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root, key=dead_shim())
    await server.decide(id, Decision.APPROVE)
    asking = [server.begin(partial(applied, Process(server, root), id)) for _ in range(3)]
    while any(each.outcome is None for each in asking):
        # Each asks the store more often than one round waits for.
        await server.later(0.1)
    said = [each.outcome for each in asking]
    assert sorted(type(each).__name__ for each in said) == ["Error", "Error", "Value"]


async def test_a_process_that_is_stopped_and_lost_its_connection_keeps_its_requests(clock: Clock, root: Path) -> None:
    key = shim_process.make_id()
    async with virtual_server(root.parent, clock) as server:
        first = Process(server, root, key=key)
        id, session = (await first.ask(CHANGE)).request_id, await first.session()
        await server.decide(id, Decision.APPROVE)
        first.connection.closed()
        await server.later(GRACE_SECONDS + 1)
        await refused(Process(server, root), id)
    async with virtual_server(root.parent, clock) as server:
        await server.later(RETURN_SECONDS + START_GRACE_SECONDS)
        await refused(Process(server, root), id)
        other = await server.arrive(root, uuid.uuid4().hex, "mcp")
        with pytest.raises(InvalidState, match="live agent"):
            await server.ask("registry", Adopt(other.identity, session))
        assert await applied(Process(server, root, key=key), id) == "applied"


async def test_a_process_that_continues_another_keeps_that_while_it_is_stopped(clock: Clock, root: Path) -> None:
    key = shim_process.make_id()
    async with virtual_server(root.parent, clock) as server:
        id = await asked_and_ended(server, root, key=dead_shim())
        session = await first_session(server, id)
        second = Process(server, root, key=key)
        assert (await second.ask(CHANGE)).request_id == id
        second.connection.closed()
        await server.later(GRACE_SECONDS + 1)
        await refused(Process(server, root), id)
    async with virtual_server(root.parent, clock) as server:
        await server.later(RETURN_SECONDS + START_GRACE_SECONDS)
        await refused(Process(server, root), id)
        other = await server.arrive(root, uuid.uuid4().hex, "mcp")
        with pytest.raises(InvalidState, match="live agent"):
            await server.ask("registry", Adopt(other.identity, session))
        assert (await Process(server, root, key=key).ask(CheckClearance(request_id=id))).request_id == id


async def test_a_process_that_said_goodbye_is_over_although_it_still_ends(server: VirtualServer, root: Path) -> None:
    key = shim_process.make_id()
    id = await asked_and_ended(server, root, key=key)
    second = Process(server, root)
    assert (await second.ask(CHANGE)).request_id == id
    await second.end()
    # It was none, and is back.
    Process(server, root, key=key).connection.closed()
    await server.later(GRACE_SECONDS + 1)
    await refused(Process(server, root), id)


async def test_a_session_that_is_continued_is_not_taken_over_after_a_restart_either(clock: Clock, root: Path) -> None:
    key = uuid.uuid4().hex
    async with virtual_server(root.parent, clock) as server:
        id = await asked_and_ended(server, root, key=dead_shim())
        second = Process(server, root, key=key)
        await second.ask(CHANGE)
        agents = second.connection.news_of_agents()
        assert agents
    async with virtual_server(root.parent, clock) as server:
        early = Process(server, root)
        assert (await early.ask(CheckClearance(request_id=id))).request_id == id
        back = Process(server, root, key=key)
        back.connection.opened(agents)
        # Neither shuts the other out.
        for process in (back, early):
            assert (await process.ask(CheckClearance(request_id=id))).request_id == id
        await early.end()
        other = await server.arrive(root, uuid.uuid4().hex, "mcp")
        assert await server.ask("registry", Adopt(other.identity)) == other.session_id
        assert (await back.ask(CheckClearance(request_id=id))).request_id == id


async def test_a_process_that_works_in_its_own_session_is_not_quiet_in_the_one_it_continues(
    server: VirtualServer, root: Path
) -> None:
    id = await asked_and_ended(server, root)
    second = Process(server, root)
    await second.ask(CHANGE)
    await server.decide(id, Decision.APPROVE)
    for _ in range(4):
        await server.later(server.app.config.stall.inactivity_threshold_seconds / 2)
        await second.ask(Ping())
    assert not [card for card in server.operator.cards if card.kind is CardKind.STALL]
    await server.later(server.app.config.stall.inactivity_threshold_seconds + 1)
    assert [card for card in server.operator.cards if card.kind is CardKind.STALL]


async def test_a_call_that_is_cancelled_while_it_looks_leaves_nobody_in_the_session(
    server: VirtualServer, root: Path
) -> None:
    id = await asked_and_ended(server, root)
    second = Process(server, root)
    identity = await second.connection._agent(second.caller)
    # Its answer never came to the connection.
    assert await server.ask("registry", FindEarlier(identity, second.connection.name, id))
    await refused(Process(server, root), id)
    await second.end()
    await server.later(GRACE_SECONDS + 1)
    assert (await Process(server, root).ask(CheckClearance(request_id=id))).request_id == id
    # And who is gone is not let in.
    identity = await second.connection._agent(second.caller)
    assert await server.ask("registry", FindEarlier(identity, second.connection.name, id)) is None


async def test_a_process_that_has_only_a_paused_session_gets_no_other(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    second = Process(server, root)
    await second.ask(CHANGE)
    session = await first_session(server, id)
    await server.app.service.steering.pause(session, "kim", "ctl")
    other = CheckClearance("Add b", "b\n", "b.txt")
    for given in (other, Reboot()):
        with pytest.raises(Paused):
            await second.ask(given)
    await server.app.service.steering.unpause(session, "kim", "ctl")
    assert (await second.ask(other)).request_id != id


async def test_a_proposal_that_a_person_amended_is_found_as_it_was_made(server: VirtualServer, root: Path) -> None:
    (root / "a.txt").write_text("".join(f"{line}\n" for line in range(40)))
    diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-0\n+x\n 1\n@@ -30,2 +30,2 @@\n 29\n-30\n+y\n"
    change = CheckClearance("Change a", diff, "a.txt")
    first = Process(server, root)
    id = (await first.ask(change)).request_id
    await first.end()
    shown = (await server.app.service.amended_card(id, None)).card.proposal_hash
    verdict = evolve(server.verdict(Decision.APPROVE), amendment=Amendment(shown or "", (1,)))
    await server.app.service.decide(id, verdict)
    second = Process(server, root)
    again = await second.ask(change)
    assert (again.request_id, again.answered.answer.status) == (id, "approved")
    assert await applied(second, id) == "applied"
    assert (root / "a.txt").read_text() == "x\n" + "".join(f"{line}\n" for line in range(1, 40))


def make_anew(root: Path) -> None:
    """Put another directory in place of this one, which is `before` from then on."""
    root.rename(root.parent / "before")
    root.mkdir()


async def test_a_workspace_that_was_made_anew_gets_an_approval_of_its_own(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    await server.decide(id, Decision.APPROVE)
    make_anew(root)
    second = Process(server, root)
    with pytest.raises(WorkspaceGone, match="propose again"):
        await second.ask(CheckDiff(id))
    await second.end()
    third = Process(server, root)
    anew = (await third.ask(CHANGE)).request_id
    assert anew != id
    await server.decide(anew, Decision.APPROVE)
    assert await applied(third, anew) == "applied"
    assert not (root.parent / "before" / "a.txt").exists()


async def test_a_permission_for_a_tool_of_the_client_is_no_proposal(server: VirtualServer, root: Path) -> None:
    first = Process(server, root)
    session = await first.session()
    run = Operation(OperationKind.COMMAND, "Bash", "run it", "run it", "x" * 2000, str(root))
    await server.ask(f"session/{session}", AskPermission("call", "claude-code", run, "slot"))
    await first.end()
    (card,) = await server.app.service.pending()
    # It has these on record, as a proposal has.
    same = CheckClearance("Add x", "x" * 2000, str(root), risk_level=card.risk or RiskLevel.LOW)
    with pytest.raises(IntercomError):
        await Process(server, root).ask(same)
    assert not await entries(server, "session_continued")


async def test_a_task_is_polled_in_the_session_of_the_earlier_process(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root, client="codex")
    takes = TAKES_TASKS
    change = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}
    async with spoken_to(server.app, uuid.uuid4().hex, str(root)) as second:
        begun = await second.ask("tools/call", name="check_clearance", arguments=change, _meta=takes)
        task = begun["result"]["taskId"]
        assert (await second.ask("tasks/get", taskId=task, _meta=takes))["result"]["status"] == "working"
        async with spoken_to(server.app, uuid.uuid4().hex, str(root)) as third:
            assert "error" in await third.ask("tasks/get", taskId=task, _meta=takes)
        await server.decide(id, Decision.APPROVE)
        done = await second.ask("tasks/get", taskId=task, _meta=takes)
        assert done["result"]["result"]["structuredContent"] == {
            "status": "approved",
            "request_id": id,
            "message": APPROVED,
        }


# --- what it does not ------------------------------------------------------------------------------------------------


def dead_shim() -> str:
    """The id of a shim whose process is no more."""
    chance, namespace, *_ = [*shim_process.make_id().split("-"), "1"]
    return f"{chance}-{namespace}-{2**22 + 1}-1"


async def refused(process: Process, id: str) -> str:
    """How each tool refuses a request of another agent, which all do alike."""
    said = []
    for given in (CheckClearance(request_id=id), CheckDiff(id), Transmit(request_id=id)):
        with pytest.raises(NotFound) as refusal:
            await process.ask(given)
        assert refusal.value.error_code == "request_not_found"
        said.append(refusal.value.message)
    return said[0]


async def test_the_refusal_names_the_remedy(server: VirtualServer, root: Path) -> None:
    said = await refused(Process(server, root), str(uuid.uuid4()))
    assert "--agent KEY or INTERCOM_AGENT" in said
    assert "reboot" in said


@pytest.mark.parametrize("is_decided", [False, True], ids=["undecided", "decided"])
async def test_the_request_of_a_process_that_lives_is_its_own(
    server: VirtualServer, root: Path, is_decided: bool
) -> None:
    first = Process(server, root, key=shim_process.make_id())
    id = (await first.ask(CHANGE)).request_id
    if is_decided:
        await server.decide(id, Decision.APPROVE)
    await refused(Process(server, root), id)
    assert (await Process(server, root).ask(CHANGE)).request_id != id
    assert not (root / "a.txt").exists()


async def test_the_request_of_a_process_that_may_come_back_is_its_own(clock: Clock, root: Path) -> None:
    key = shim_process.make_id()
    async with virtual_server(root.parent, clock) as server:
        first = Process(server, root, key=key)
        id = (await first.ask(CHANGE)).request_id
        first.connection.closed()
        await server.later(GRACE_SECONDS / 2)
        await refused(Process(server, root), id)
        first.connection.opened()
        assert (await first.ask(CHANGE)).request_id == id
    async with virtual_server(root.parent, clock) as server:
        # The server was killed, and the process lives on.
        await refused(Process(server, root), id)
        assert (await Process(server, root, key=key).ask(CHANGE)).request_id == id


async def test_another_clients_or_workspaces_request_is_not_found(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    for process in (
        Process(server, elsewhere),
        Process(server, root, client="other"),
        Process(server, root, client=None),
        Process(server, root, thread="t1"),
        Process(server, root, agent="key"),
        Process(server, root, key=f"{agent_keys.PASSING}1"),
        Process(server, root, key=f"{agent_keys.NAMED}key"),
    ):
        await refused(process, id)
        assert (await process.ask(CHANGE)).request_id != id


async def test_an_agent_with_a_name_a_conversation_or_a_process_of_peoples_keeps_its_requests(
    server: VirtualServer, root: Path
) -> None:
    for owner in (
        {"agent": "key"},
        {"thread": "t1"},
        {"key": f"{agent_keys.NAMED}key"},
        {"key": f"{agent_keys.PASSING}1"},
    ):
        id = await asked_and_ended(server, root, **owner)
        await refused(Process(server, root), id)
    id = await asked_and_ended(server, root, key=uuid.uuid4().hex)
    started = AgentProcess(await first_session(server, id), AgentProcessState.RUNNING, server.now(), "kim")
    await server.ask("store", Transact(partial(agent_processes.insert, value=started)))
    await refused(Process(server, root), id)


async def test_a_session_that_is_over_is_not_continued(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    await server.app.service.end(await first_session(server, id), "kim", "ctl", "done")
    await refused(Process(server, root), id)
    assert (await Process(server, root).ask(CHANGE)).request_id != id


async def test_an_id_is_looked_up_whole(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root)
    guesses = [
        "%",
        "_" * len(id),
        id[:8],
        f"{id[:8]}%",
        "*",
        id.upper() if id.upper() != id else f"{id} ",
        f" {id}",
        "",
    ]
    process = Process(server, root)
    for guess in guesses:
        await refused(process, guess)


async def test_a_session_with_a_role_of_its_own_is_not_continued(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "_has_role", lambda _app, _session_id: True)
    async with virtual_server(root.parent, clock) as server:
        id = await asked_and_ended(server, root)
        await refused(Process(server, root), id)


# --- a permanent name ------------------------------------------------------------------------------------------------


async def test_all_processes_with_one_name_are_one_agent_in_a_workspace(server: VirtualServer, root: Path) -> None:
    one, two = Process(server, root, agent="ci"), Process(server, root, agent="ci")
    first = await one.ask(CHANGE)
    # Both live, and ask for the same: one card.
    assert (await two.ask(CHANGE)).request_id == first.request_id
    assert await one.session() == await two.session()
    await one.end()
    (session,) = await server.app.service.sessions()
    assert session.status is SessionStatus.ACTIVE
    await two.end()
    await server.decide(first.request_id, Decision.APPROVE)
    three = Process(server, root, agent="ci", client="another name")
    assert await applied(three, first.request_id) == "applied"


async def test_the_same_name_in_another_workspace_is_another_agent(server: VirtualServer, root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    here, there = Process(server, root, agent="ci"), Process(server, elsewhere, agent="ci")
    id = (await here.ask(CHANGE)).request_id
    await refused(there, id)
    assert (await there.ask(CHANGE)).request_id != id
    assert not (elsewhere / "a.txt").exists()


async def test_an_agent_with_a_name_keeps_its_session(server: VirtualServer, root: Path) -> None:
    id = await asked_and_ended(server, root, agent="ci")
    await server.later(GRACE_SECONDS + 1)
    other = await server.arrive(root, uuid.uuid4().hex, "mcp")
    assert await server.ask("registry", Adopt(other.identity)) == other.session_id
    assert (await Process(server, root, agent="ci").ask(CheckClearance(request_id=id))).request_id == id


async def test_a_session_that_a_person_started_counts_before_the_name(server: VirtualServer, root: Path) -> None:
    process = Process(server, root, agent="ci", session_id="s-1")
    agent = await process.connection._agent(process.caller)
    assert agent == Agent(key_of("s-1"), "mcp", "", None, "s-1")
