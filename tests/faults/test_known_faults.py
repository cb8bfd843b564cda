"""Faults that an earlier implementation had. Each test is named after the fault it shows we do not have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, StallSettings
from intercom.model.decision import Decision
from intercom.model.errors import SlackError
from intercom.model.session import SessionMode
from intercom.operators.router_messages import Channel, Subscribe
from intercom.sessions.messages import Decide
from intercom.sessions.tools.switch_freq import SwitchFreq
from tests.faults.hosted import ctl, hosted
from tests.support.server_process import TRUSTING, Home, begin, call, user_home
from tests.support.virtual_server import SILENT_CHAT, Operator, VirtualServer, virtual_server

pytestmark = pytest.mark.real_time

Clock = trio.testing.MockClock
CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}


# --- local mode cannot approve; the local socket is never started and ctl sends no token ----------


async def test_local_mode_can_approve_and_ctl_finds_socket_and_token_by_itself() -> None:
    with user_home("") as at:
        root = at.workspace()
        async with hosted(at, root) as agent:
            # Nothing was configured and nothing started by hand: the shim starts the server.
            assert (await agent.call("ping"))["acknowledged"]
            asked = await agent.ask("check_clearance", **CHANGE)
            async with at.person(root) as person:
                await person.card(away=False)
            code, (card,) = await ctl(at, "pending")
            assert (code, card["title"]) == (0, "Add a")
            code, done = await ctl(at, "approve", card["request_id"][:8])
            assert (code, done["status"]) == (0, "approved")
            assert (await agent.answer(asked))["status"] == "approved"
            assert (await agent.call("check_diff", request_id=card["request_id"]))["status"] == "applied"
            assert os.stat(at.places.ctl_socket).st_mode & 0o777 == 0o600
            assert os.stat(at.places.token_file).st_mode & 0o777 == 0o600
        assert (root / "a.txt").read_text() == "a\n"


# --- modes are cosmetic ---------------------------------------------------------------------------


@pytest.mark.server(chat=SILENT_CHAT)
async def test_the_mode_decides_who_is_notified_and_never_who_may_answer(server: VirtualServer, root: Path) -> None:
    chat = Operator()
    server.app.system.adopt(chat, "chat")
    await server.ask("card_router", Subscribe("chat", Channel.SLACK))
    agent = await server.arrive(root)
    for mode, told, untold in (
        (SessionMode.LOCAL, [server.operator], [chat]),
        (SessionMode.REMOTE, [chat], [server.operator]),
        (SessionMode.HYBRID, [chat, server.operator], []),
    ):
        await server.app.service.switch_mode(agent.session_id, mode, "kim", "ctl")
        id = (await agent.propose(diff=f"{mode}\n")).request_id
        await server.wait(agent, id)
        for channel in told:
            await channel.card(id=id)
        assert not [card for channel in untold for card in channel.cards if card.id == id]
        # Whoever was not notified may answer all the same.
        assert (await server.decide(id, Decision.APPROVE)).state is CardState.APPROVED


async def test_without_slack_mode_remote_is_refused_as_nobody_would_be_told(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    with pytest.raises(SlackError, match="slack is not set up") as refused:
        await server.app.service.switch_mode(agent.session_id, SessionMode.REMOTE, "kim", "ctl")
    assert refused.value.error_code == "slack"
    with pytest.raises(SlackError):
        await agent.ask(SwitchFreq(SessionMode.REMOTE, by="agent", channel="mcp", from_agent=False))
    before, _ = await server.app.service.switch_mode(agent.session_id, SessionMode.HYBRID, "kim", "ctl")
    assert before is SessionMode.LOCAL, "nothing has changed"


async def test_a_session_left_in_mode_remote_is_told_of_here_once_slack_is_gone(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock, chat=SILENT_CHAT) as server:
        agent = await server.arrive(root)
        await server.app.service.switch_mode(agent.session_id, SessionMode.REMOTE, "kim", "ctl")
        id = (await agent.propose()).request_id
        assert not server.operator.cards
    async with virtual_server(root.parent, clock) as server:
        assert [card.id for card in await server.ask("card_router", Subscribe("operator", Channel.CTL))] == [id]


async def test_what_waited_before_slack_was_set_up_is_shown_there_unless_somebody_chose_local(
    clock: Clock, root: Path
) -> None:
    async with virtual_server(root.parent, clock) as server:
        agent = await server.arrive(root)
        waiting, decided = (await agent.propose()).request_id, (await agent.propose(diff="other\n")).request_id
        chosen = await server.arrive(root, "chosen")
        await server.app.service.switch_mode(chosen.session_id, SessionMode.LOCAL, "kim", "ctl")
        quiet = (await chosen.propose(diff="quiet\n")).request_id
        await server.decide(decided, Decision.APPROVE)
    for _ in range(2):
        async with virtual_server(root.parent, clock, chat=SILENT_CHAT) as server:
            chat, here = (
                await server.ask("card_router", Subscribe("chat", Channel.SLACK)),
                await server.app.service.pending(),
            )
            assert [card.id for card in chat] == [waiting]
            assert {card.id for card in here} == {waiting, quiet}
            entries = await server.app.service.audit(50, agent.session_id)
            assert [entry.summary for entry in entries if entry.kind == "mode"] == ["local to hybrid"]


# --- a fast tap is lost ---------------------------------------------------------------------------


async def test_a_tap_at_the_instant_the_card_appears_finds_its_waiter(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)

    def tap(card: Card) -> None:
        if card.state is CardState.PENDING:
            session = server.app.system.named(f"session/{card.session_id}")
            session.tell(Decide(card.id, server.verdict(Decision.APPROVE, id="tap")))

    server.operator.on_card = tap
    for n in range(20):
        opened = await agent.propose(path=f"{n}.txt")
        waiting = await server.wait(agent, opened.request_id)
        assert (await waiting()).answer.status == "approved"


# --- waiters live only in memory ------------------------------------------------------------------


# --- a late tap revives an expired request --------------------------------------------------------


# --- a change is applied twice when marking it consumed fails -------------------------------------


@pytest.mark.parametrize(
    "point",
    ["files.staged:1", "journal.committed:1", "files.placed_one:1", "files.placed_one:2"],
)
async def test_a_change_is_applied_once_though_the_server_dies_while_it_is_applied(point: str) -> None:
    with user_home(TRUSTING) as at:
        root, faults = at.workspace(), at.root / "faults"
        (root / "a.txt").write_text("old\n")
        diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n old\n+more\n--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+new\n"
        async with at.agent(root) as agent, trio.open_nursery() as nursery:
            await call(agent, "ping")
            asked = begin(nursery, agent, "check_clearance", title="both", diff=diff, file_path="a.txt")
            async with at.person(root) as person:
                id = (await person.card(away=False))["request_id"]
                await person.do("approve", id=id)
                await asked()
                await person.card(request_id=id, status="delivered")
        # The server of the next shim falls at the point, once; the one after it does not.
        at.kill()
        faults.write_text(f"kill:{point}\n")
        async with at.agent(root, INTERCOM_FAULT=f"queue:{faults}") as agent:
            await call(agent, "reboot")
            said = await call(agent, "check_diff", request_id=id)
            assert said["status"] == "applied", said
            again = await call(agent, "check_diff", request_id=id)
            assert again["error_code"] == "already_consumed"
        assert faults.with_name("faults.done").read_text() == f"kill:{point}\n", "the server fell"
        assert (root / "a.txt").read_text() == "old\nmore\n"
        assert (root / "b.txt").read_text() == "new\n"
        assert sorted(each.name for each in root.iterdir()) == ["a.txt", "b.txt"]


async def test_two_calls_that_race_apply_a_change_once(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = (await person.card(away=False))["request_id"]
        await person.do("approve", id=id)
        await asked()
        calls = [begin(nursery, agent, "check_diff", request_id=id) for _ in range(5)]
        said = sorted([(await each())["status"] for each in calls])
        assert said == ["applied", "error", "error", "error", "error"]


# --- the first agent is killed by the second ------------------------------------------------------


async def test_a_second_agent_leaves_the_first_alone(served: Home) -> None:
    root = served.workspace()
    async with served.agent(root) as first, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, first, "check_clearance", **CHANGE)
        id = (await person.card(away=False))["request_id"]
        async with served.agent(root) as second:
            assert await call(second, "reboot") == {"status": "clean"}
            assert (await call(second, "ping"))["session_id"] != (await call(first, "ping"))["session_id"]
        await person.do("approve", id=id)
        assert (await asked())["status"] == "approved"
        listed = {each["session_id"]: each["status"] for each in (await person.do("list"))["sessions"]}
        assert listed[(await call(first, "ping"))["session_id"]] == "active"


# --- workspaces leak between connections ----------------------------------------------------------


async def test_each_connection_writes_to_its_own_workspace(served: Home) -> None:
    roots = [served.workspace() for _ in range(3)]
    ready: list[tuple[Any, str]] = []

    async def change(root: Path, n: int, done: trio.Event) -> None:
        async with served.agent(root) as agent, served.person(root) as person, trio.open_nursery() as nursery:
            asked = begin(nursery, agent, "check_clearance", title=str(n), diff=f"{n}\n", file_path="same.txt")
            card = await person.card(away=False)
            assert card["workspace_root"] == str(root)
            assert len({each["request_id"] for each in person.cards}) == 1
            ready.append((root, card["request_id"]))
            if len(ready) == len(roots):
                done.set()
            await done.wait()
            await person.do("approve", id=card["request_id"])
            await asked()
            assert (await call(agent, "check_diff", request_id=card["request_id"]))["status"] == "applied"

    all_wait = trio.Event()
    async with trio.open_nursery() as nursery:
        for n, root in enumerate(roots):
            nursery.start_soon(change, root, n, all_wait)
    assert [(root / "same.txt").read_text() for root in roots] == ["0\n", "1\n", "2\n"]


# --- request bodies are capped at 64 KiB ----------------------------------------------------------


async def test_a_change_of_a_mebibyte_goes_through_whole(served: Home) -> None:
    root = served.workspace()
    text = "".join(f"line {n} of a file that is rather long\n" for n in range(30_000))
    assert len(text) > 2**20
    async with served.agent(root) as agent, served.person(root) as person, trio.open_nursery() as nursery:
        asked = begin(nursery, agent, "check_clearance", title="big", diff=text, file_path="big.txt")
        card = await person.card(away=False)
        shown = (await person.do("show", id=card["request_id"]))["diff"]
        assert shown.splitlines()[4:] == [f"+{line}" for line in text.splitlines()]
        await person.do("approve", id=card["request_id"])
        await asked()
        said = await call(agent, "check_diff", request_id=card["request_id"])
        assert said["files_written"] == [{"path": "big.txt", "bytes": len(text)}]
    assert (root / "big.txt").read_text() == text


# --- no progress, no cancellation -----------------------------------------------------------------


# --- stall alarms while the agent waits for the operator ------------------------------------------

QUICK = Config(stall=StallSettings(inactivity_threshold_seconds=300, escalation_threshold_seconds=120, max_retries=3))


@pytest.mark.server(QUICK)
async def test_waiting_for_a_person_is_no_stall(server: VirtualServer, root: Path) -> None:
    agent = await server.arrive(root)
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    for _ in range(10):
        await server.later(300)
    await server.decide(id, Decision.APPROVE)
    await waiting()
    assert [card for card in server.operator.cards if card.kind is CardKind.STALL] == []
    # From the answer on, silence counts again.
    await server.later(299)
    assert [card for card in server.operator.cards if card.kind is CardKind.STALL] == []
    await server.later(1)
    await server.operator.card(kind=CardKind.STALL)


# --- nudges are never delivered -------------------------------------------------------------------


# --- CRLF files break patches ---------------------------------------------------------------------


# --- sessions end with the server -----------------------------------------------------------------
