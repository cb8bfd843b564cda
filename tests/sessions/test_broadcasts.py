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
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions.context import Chat, channel_of, is_notified, notice_key, thread_key
from intercom.sessions.messages import Admit, Agent, Posted
from intercom.sessions.tools.broadcast import MOST_A_MINUTE, POST_SECONDS, Broadcast, BroadcastAnswer
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.switch_freq import SwitchFreq
from intercom.store import outbox
from intercom.store.messages import Database, Transact
from intercom.store.outbox import Row, Urgency
from tests.sessions.house import BEGAN, Guest, House, Pending, house

Clock = trio.testing.MockClock
CONFIG = Config(slack=SlackSettings(channel_id="C11"))
QUEUED = BroadcastAnswer(posted=False, queued=True)


@frozen
class Wall:
    """A chat that says what it is to show, and is woken."""

    woken: list[None] = field(factory=list)

    def chat(self) -> Chat:
        return Chat(
            channel_for=lambda session: channel_of(CONFIG, session),
            draw_notice=lambda notice: {"text": f"{notice.level}: {notice.text}"},
            draw_root=lambda session: {"text": f"thread of {session.id}"},
            wake=lambda: self.woken.append(None),
        )


async def arrive(at: House, root: Path) -> Guest:
    guest = await at.arrive(root)
    await guest.ask(SwitchFreq(SessionMode.HYBRID, by="kim", channel="ctl", from_agent=False))
    return guest


async def begin(at: House, guest: Guest, call: str = "one", **given: Any) -> Pending[Any]:
    """A broadcast that is under way and has been put on record."""
    asked = at.begin(partial(guest.ask, Broadcast(given.pop("message", "built"), **given, call=call)))
    await at.later(0)
    # A busy machine may take longer to look at the policy, in a thread.
    while await row(at, notice_key(f"{guest.session_id}/{call}")) is None and asked.outcome is None:
        await at.later(0)
    return asked


async def row(at: House, key: str) -> Row | None:
    return await at.ask("store", Transact(partial(outbox.by_key, key=key)))


async def post(at: House, guest: Guest, call: str, ts: str, *, tell: bool = True) -> None:
    """What the sender does once the chat has taken the message."""

    def posted(db: Database) -> None:
        row = outbox.by_key(db, notice_key(f"{guest.session_id}/{call}"))
        assert row is not None
        assert outbox.begin_post(db, row.id, at.now()) is not None
        outbox.posted(db, row.id, ts, row.version, at.now())

    def root_posted(db: Database) -> None:
        row = outbox.by_key(db, thread_key(guest.session_id))
        assert row is not None
        if row.ts is None:
            assert outbox.begin_post(db, row.id, at.now()) is not None
            outbox.posted(db, row.id, "1.0", row.version, at.now())

    await at.ask("store", Transact(root_posted))
    await at.ask("store", Transact(posted))
    if tell:
        guest.tell(Posted(notice_key(f"{guest.session_id}/{call}"), ts))


async def test_a_broadcast_answers_with_the_ts_of_its_message(clock: Clock, root: Path) -> None:
    wall = Wall()
    async with house(root.parent, clock, CONFIG, chat=wall.chat()) as at:
        guest = await arrive(at, root)
        asked = await begin(at, guest, level="warning")
        assert asked.outcome is None
        assert wall.woken
        # The session does other things meanwhile.
        assert (await guest.ask(Ping())).answer.acknowledged
        await post(at, guest, "one", "1700000000.000100")
        assert (await asked()).answer == BroadcastAnswer(posted=True, ts="1700000000.000100")
        line, top = await row(at, notice_key(f"{guest.session_id}/one")), await row(at, thread_key(guest.session_id))
        assert line is not None
        assert top is not None
        assert top.open, "it is redrawn when the session changes"
        assert (line.channel, line.thread, line.urgency) == ("C11", top.key, Urgency.LINE)
        assert (line.content, line.session_id) == ({"text": "warning: built"}, guest.session_id)
        assert (top.channel, top.content) == ("C11", {"text": f"thread of {guest.session_id}"})
        # Other channels are told the line, and the chat which row it is already.
        assert (await at.people.notice("built")).key == line.key


async def test_a_broadcast_that_is_not_posted_in_time_is_said_to_be_queued(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        asked = await begin(at, guest)
        await at.later(POST_SECONDS - 0.1)
        assert asked.outcome is None
        await at.later(0.1)
        assert (await asked()).answer == QUEUED
        # Asked again when it stands there by now: it says so, and there is one row and one line.
        await post(at, guest, "one", "1700000000.000100")
        again = await guest.ask(Broadcast("built", call="one"))
        assert again.answer == BroadcastAnswer(posted=True, ts="1700000000.000100")
        await guest.settled()
        assert len([notice for notice in at.people.notices if notice.text == "built"]) == 1
        line = await row(at, notice_key(f"{guest.session_id}/one"))
        assert line is not None
        assert line.urgency is Urgency.LOG


async def test_a_broadcast_that_the_chat_does_not_take_waits_no_more(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        asked = await begin(at, guest)
        await at.later(POST_SECONDS)
        assert (await asked()).answer == QUEUED
        top, line = await row(at, thread_key(guest.session_id)), await row(at, notice_key(f"{guest.session_id}/one"))
        assert top is not None
        assert line is not None

        def refused(db: Database) -> None:
            outbox.begin_post(db, top.id, at.now())
            outbox.posted(db, top.id, "1.0", top.version, at.now())
            assert outbox.begin_post(db, line.id, at.now()) is not None
            outbox.refused(db, line.id, "msg_too_long", line.version)

        await at.ask("store", Transact(refused))
        assert (await guest.ask(Broadcast("built", call="one"))).answer == BroadcastAnswer(posted=False)


async def test_verdicts_that_came_meanwhile_ride_on_a_broadcast_that_waited(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        asked = await begin(at, guest)
        await at.app.service.nudge(guest.session_id, "go on", "kim", "ctl")
        await post(at, guest, "one", "1.5")
        assert [word.text for word in (await asked()).instructions] == ["go on"]


@pytest.mark.parametrize("posted", [True, False], ids=["posted meanwhile", "not posted yet"])
async def test_a_broadcast_is_known_again_by_a_session_that_fell(clock: Clock, tmp_path: Path, posted: bool) -> None:
    (root := tmp_path / "ws").mkdir()

    async with house(tmp_path, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        asked = await begin(at, guest)
        if posted:
            # The word of it is lost with the session.
            await post(at, guest, "one", "1.5", tell=False)
        inject(at.app.system, f"session/{guest.session_id}", RuntimeError("a fault was asked for"), "now")
        async with at.restarting():
            answer = (await asked()).answer
        assert answer == (BroadcastAnswer(posted=True, ts="1.5") if posted else QUEUED)
        assert len([notice for notice in at.people.notices if notice.text == "built"]) == 1


async def test_a_broadcast_goes_to_the_thread_that_it_names(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        await begin(at, guest, thread_ts="1700000000.000100")
        line = await row(at, notice_key(f"{guest.session_id}/one"))
        assert line is not None
        assert line.thread == "1700000000.000100"
        with pytest.raises(InvalidArguments, match="thread_ts"):
            await guest.ask(Broadcast("built", thread_ts="card/x", call="two"))
        assert await row(at, notice_key(f"{guest.session_id}/two")) is None


async def test_a_session_keeps_to_the_channel_of_its_thread(clock: Clock, root: Path) -> None:
    async with house(root.parent, clock, CONFIG, chat=Wall().chat()) as at:
        guest = await arrive(at, root)
        await begin(at, guest)
    moved = Chat(lambda session: "C22", lambda notice: {"text": notice.text}, lambda session: {}, lambda: None)
    async with house(root.parent, clock, CONFIG, chat=moved) as at:
        guest = await at.arrive(root)
        await begin(at, guest, "two")
        line = await row(at, notice_key(f"{guest.session_id}/two"))
        assert line is not None
        assert line.channel == "C11"


@pytest.mark.server(CONFIG, chat=Wall().chat())
async def test_a_line_of_a_session_that_is_not_shown_in_the_chat_waits_for_nothing(at: House, guest: Guest) -> None:
    await guest.ask(SwitchFreq(SessionMode.LOCAL, by="kim", channel="ctl", from_agent=False))
    assert (await guest.ask(Broadcast("built", call="one"))).answer == BroadcastAnswer(posted=False)
    assert await row(at, notice_key(f"{guest.session_id}/one")) is None
    assert (await at.people.notice("built")).key is None


@pytest.mark.server(CONFIG)
async def test_a_session_is_shown_in_the_channel_that_its_connection_named(at: House, root: Path) -> None:
    id = await at.ask("registry", Admit(Agent("agent", "client", str(root), "C77")))
    # It stays there, whatever a later connection of the same agent says.
    assert await at.ask("registry", Admit(Agent("agent", "client", str(root), "C88"))) == id
    (session,) = await at.app.service.sessions()
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


async def test_more_than_so_many_lines_a_minute_are_refused(at: House, root: Path) -> None:
    """Failed before: one agent could fill every channel."""
    guest, other = await at.arrive(root), await at.arrive(root, key="other")
    first = guest.call()
    await guest.ask(Broadcast("line", call=first))
    for _ in range(MOST_A_MINUTE - 1):
        await guest.ask(Broadcast("line"))
    refused = guest.call()
    with pytest.raises(IntercomError, match="wait a minute"):
        await guest.ask(Broadcast("one more", call=refused))
    # A call whose answer was lost is no further line, and nobody else is held up.
    await guest.ask(Broadcast("line", call=first))
    await other.ask(Broadcast("line"))
    await at.later(61)
    await guest.ask(Broadcast("one more", call=refused))
    await at.people.notice("one more")
