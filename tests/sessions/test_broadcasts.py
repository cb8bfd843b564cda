"""Broadcasts where a chat channel is set up: written once, waited for a little, and known again after a crash."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from actors.testing import inject
from intercom.model.card import Notice
from intercom.model.config import Config, SlackSettings
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions.chat_messages import ChatOutbox, channel_of, is_notified, notice_key, thread_key
from intercom.sessions.messages import Admit, Agent, Posted
from intercom.sessions.tools.broadcast import MOST_A_MINUTE, POST_SECONDS, Broadcast, BroadcastAnswer
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.store import outbox
from intercom.store.outbox import Row, Urgency
from intercom.store.writer_messages import Database, Transact
from tests.support.virtual_server import BEGAN, AgentClient, Pending, VirtualServer, virtual_server

Clock = trio.testing.MockClock
CONFIG = Config(slack=SlackSettings(channel_id="C11"))
QUEUED = BroadcastAnswer(posted=False, queued=True)


@frozen
class Wall:
    """A chat that says what it is to show, and is woken."""

    woken: list[None] = field(factory=list)

    def chat(self) -> ChatOutbox:
        return ChatOutbox(
            channel_for=lambda session: channel_of(CONFIG, session),
            draw_notice=lambda notice: {"text": f"{notice.level}: {notice.text}"},
            draw_root=lambda session: {"text": f"thread of {session.id}"},
            wake=lambda: self.woken.append(None),
        )


async def arrive(server: VirtualServer, root: Path) -> AgentClient:
    agent = await server.arrive(root)
    await agent.ask(SwitchFreq(SessionMode.HYBRID, by="kim", channel="ctl", from_agent=False))
    return agent


async def begin(server: VirtualServer, agent: AgentClient, call: str = "one", **given: Any) -> Pending[Any]:
    """A broadcast that is under way and has been put on record."""
    asked = server.begin(partial(agent.ask, Broadcast(given.pop("message", "built"), **given, call=call)))
    await server.later(0)
    # A busy machine may take longer to look at the policy, in a thread.
    while await row(server, notice_key(f"{agent.session_id}/{call}")) is None and asked.outcome is None:
        await server.later(0)
    return asked


async def row(server: VirtualServer, key: str) -> Row | None:
    return await server.ask("store", Transact(partial(outbox.by_key, key=key)))


async def post(server: VirtualServer, agent: AgentClient, call: str, ts: str, *, tell: bool = True) -> None:
    """What the sender does once the chat has taken the message."""

    def posted(db: Database) -> None:
        row = outbox.by_key(db, notice_key(f"{agent.session_id}/{call}"))
        assert outbox.begin_post(db, row.id, server.now()) is not None
        outbox.posted(db, row.id, ts, row.version, server.now())

    def root_posted(db: Database) -> None:
        row = outbox.by_key(db, thread_key(agent.session_id))
        assert row is not None
        if row.ts is None:
            assert outbox.begin_post(db, row.id, server.now()) is not None
            outbox.posted(db, row.id, "1.0", row.version, server.now())

    await server.ask("store", Transact(root_posted))
    await server.ask("store", Transact(posted))
    if tell:
        agent.tell(Posted(notice_key(f"{agent.session_id}/{call}"), ts))


async def test_a_broadcast_answers_with_the_ts_of_its_message(clock: Clock, root: Path) -> None:
    wall = Wall()
    async with virtual_server(root.parent, clock, CONFIG, chat=wall.chat()) as server:
        agent = await arrive(server, root)
        asked = await begin(server, agent, level="warning")
        assert asked.outcome is None
        assert wall.woken
        # The session does other things meanwhile.
        assert (await agent.ask(Ping())).answer.acknowledged
        await post(server, agent, "one", "1700000000.000100")
        assert (await asked()).answer == BroadcastAnswer(posted=True, ts="1700000000.000100")
        line, top = (
            await row(server, notice_key(f"{agent.session_id}/one")),
            await row(server, thread_key(agent.session_id)),
        )
        assert top.open, "it is redrawn when the session changes"
        assert (line.channel, line.thread, line.urgency) == ("C11", top.key, Urgency.LINE)
        assert (line.content, line.session_id) == ({"text": "warning: built"}, agent.session_id)
        assert (top.channel, top.content) == ("C11", {"text": f"thread of {agent.session_id}"})
        # Other channels are told the line, and the chat which row it is already.
        assert (await server.operator.notice("built")).key == line.key


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_a_broadcast_that_is_not_posted_in_time_is_said_to_be_queued(server: VirtualServer, root: Path) -> None:
    agent = await arrive(server, root)
    asked = await begin(server, agent)
    await server.later(POST_SECONDS - 0.1)
    assert asked.outcome is None
    await server.later(0.1)
    assert (await asked()).answer == QUEUED
    # Asked again when it stands there by now: it says so, and there is one row and one line.
    await post(server, agent, "one", "1700000000.000100")
    again = await agent.ask(Broadcast("built", call="one"))
    assert again.answer == BroadcastAnswer(posted=True, ts="1700000000.000100")
    await agent.settled()
    assert len([notice for notice in server.operator.notices if notice.text == "built"]) == 1
    line = await row(server, notice_key(f"{agent.session_id}/one"))
    assert line.urgency is Urgency.LOG


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_a_broadcast_that_the_chat_does_not_take_waits_no_more(server: VirtualServer, root: Path) -> None:
    agent = await arrive(server, root)
    asked = await begin(server, agent)
    await server.later(POST_SECONDS)
    assert (await asked()).answer == QUEUED
    top, line = (
        await row(server, thread_key(agent.session_id)),
        await row(server, notice_key(f"{agent.session_id}/one")),
    )
    assert top is not None
    assert line is not None

    def refused(db: Database) -> None:
        outbox.begin_post(db, top.id, server.now())
        outbox.posted(db, top.id, "1.0", top.version, server.now())
        assert outbox.begin_post(db, line.id, server.now()) is not None
        outbox.refused(db, line.id, "msg_too_long", line.version)

    await server.ask("store", Transact(refused))
    assert (await agent.ask(Broadcast("built", call="one"))).answer == BroadcastAnswer(posted=False)


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_verdicts_that_came_meanwhile_ride_on_a_broadcast_that_waited(server: VirtualServer, root: Path) -> None:
    agent = await arrive(server, root)
    asked = await begin(server, agent)
    await server.app.service.nudge(agent.session_id, "go on", "kim", "ctl")
    await post(server, agent, "one", "1.5")
    assert [word.text for word in (await asked()).instructions] == ["go on"]


@pytest.mark.parametrize("posted", [True, False], ids=["posted meanwhile", "not posted yet"])
async def test_a_broadcast_is_known_again_by_a_session_that_fell(clock: Clock, tmp_path: Path, posted: bool) -> None:
    (root := tmp_path / "ws").mkdir()

    async with virtual_server(tmp_path, clock, CONFIG, chat=Wall().chat()) as server:
        agent = await arrive(server, root)
        asked = await begin(server, agent)
        if posted:
            # The word of it is lost with the session.
            await post(server, agent, "one", "1.5", tell=False)
        inject(server.app.system, f"session/{agent.session_id}", RuntimeError("a fault was asked for"), "now")
        async with server.restarting():
            answer = (await asked()).answer
        assert answer == (BroadcastAnswer(posted=True, ts="1.5") if posted else QUEUED)
        assert len([notice for notice in server.operator.notices if notice.text == "built"]) == 1


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_a_broadcast_goes_to_the_thread_that_it_names(server: VirtualServer, root: Path) -> None:
    agent = await arrive(server, root)
    await begin(server, agent, thread_ts="1700000000.000100")
    line = await row(server, notice_key(f"{agent.session_id}/one"))
    assert line.thread == "1700000000.000100"
    with pytest.raises(InvalidArguments, match="thread_ts"):
        await agent.ask(Broadcast("built", thread_ts="card/x", call="two"))
    assert await row(server, notice_key(f"{agent.session_id}/two")) is None


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_an_applied_change_is_a_new_line_in_the_thread_once(server: VirtualServer, root: Path) -> None:
    agent = await arrive(server, root)
    id = (await agent.propose("a.txt", "one\n")).request_id
    await server.decide(id, Decision.APPROVE)
    for call in ("apply", "apply"):
        assert (await agent.ask(CheckDiff(id, call=call))).answered.answer.status == "applied"
    line = await row(server, f"applied/{id}")
    assert line.content == {"text": "success: applied, 4 bytes: a.txt"}
    assert line.thread == thread_key(agent.session_id)
    await server.operator.notice("applied")
    await agent.settled()
    told = [notice for notice in server.operator.notices if "applied" in notice.text]
    assert [notice.key for notice in told] == [line.key]


async def test_a_session_keeps_to_the_channel_of_its_thread(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock, CONFIG, chat=Wall().chat()) as server:
        agent = await arrive(server, root)
        await begin(server, agent)
    moved = ChatOutbox(lambda session: "C22", lambda notice: {"text": notice.text}, lambda session: {}, lambda: None)
    async with virtual_server(root.parent, clock, CONFIG, chat=moved) as server:
        agent = await server.arrive(root)
        await begin(server, agent, "two")
        line = await row(server, notice_key(f"{agent.session_id}/two"))
        assert line.channel == "C11"


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_a_line_of_a_session_that_is_not_shown_in_the_chat_waits_for_nothing(
    server: VirtualServer, agent: AgentClient
) -> None:
    await agent.ask(SwitchFreq(SessionMode.LOCAL, by="kim", channel="ctl", from_agent=False))
    assert (await agent.ask(Broadcast("built", call="one"))).answer == BroadcastAnswer(posted=False)
    assert await row(server, notice_key(f"{agent.session_id}/one")) is None
    assert (await server.operator.notice("built")).key is None


@pytest.mark.server(CONFIG)
async def test_a_session_is_shown_in_the_channel_that_its_connection_named(server: VirtualServer, root: Path) -> None:
    id = await server.ask("registry", Admit(Agent("agent", "client", str(root), "C77")))
    # It stays there, whatever a later connection of the same agent says.
    assert await server.ask("registry", Admit(Agent("agent", "client", str(root), "C88"))) == id
    (session,) = await server.app.service.sessions()
    assert channel_of(CONFIG, session) == "C77"


def session(root: str, channel_id: str | None = None) -> Session:
    return Session("s", "", root, SessionStatus.ACTIVE, SessionMode.HYBRID, BEGAN, BEGAN, channel_id=channel_id)


@pytest.mark.parametrize(
    ("root", "own", "wanted"),
    [
        ("/elsewhere", None, "C11"),
        ("/srv/project", None, "C22"),
        ("/srv/project/web/site", None, "C33"),
        ("/srv/projects", None, "C11"),
        ("/srv/project", "C99", "C99"),
        ("/elsewhere", "C99", "C99"),
    ],
)
def test_whose_channel_is_which(root: str, own: str | None, wanted: str) -> None:
    channels = {Path("/srv/project"): "C22", Path("/srv/project/web"): "C33"}
    config = Config(slack=SlackSettings(channel_id="C11", workspace_channels=channels))
    assert channel_of(config, session(root, own)) == wanted


NAMES = st.sampled_from(["a", "b", "ab"])
ROOTS = st.lists(NAMES, max_size=4).map(lambda names: Path("/", *names))


@given(st.dictionaries(ROOTS, st.sampled_from(["C0A", "C0B", "C0C"]), max_size=5), ROOTS)
def test_the_channel_is_that_of_the_nearest_directory_above(channels: dict[Path, str], root: Path) -> None:
    config = Config(slack=SlackSettings(channel_id="C0DEFAULT", workspace_channels=channels))
    here = [channels[each] for each in (root, *root.parents) if each in channels]
    assert channel_of(config, session(str(root))) == (here[0] if here else "C0DEFAULT")


def test_without_a_channel_there_is_none() -> None:
    assert channel_of(Config(), session("/srv/project")) is None
    assert [mode for mode in SessionMode if is_notified(mode)] == [SessionMode.REMOTE, SessionMode.HYBRID]


@given(st.text(), st.text())
def test_a_calls_row_is_its_own(one: str, other: str) -> None:
    assert (notice_key(one) == notice_key(other)) is (one == other)
    assert re.fullmatch(r"notice/[0-9a-f-]{36}", notice_key(one))
    assert Notice(one, "info", BEGAN).key is None


async def test_more_than_so_many_lines_a_minute_are_refused(server: VirtualServer, root: Path) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, key="other")
    first = agent.call()
    await agent.ask(Broadcast("line", call=first))
    for _ in range(MOST_A_MINUTE - 1):
        await agent.ask(Broadcast("line"))
    refused = agent.call()
    with pytest.raises(IntercomError, match="wait a minute"):
        await agent.ask(Broadcast("one more", call=refused))
    # A call whose answer was lost is no further line, and nobody else is held up.
    await agent.ask(Broadcast("line", call=first))
    await other.ask(Broadcast("line"))
    await server.later(61)
    await agent.ask(Broadcast("one more", call=refused))
    await server.operator.notice("one more")
