"""What Slack is to show: the rows that the outbox writer writes, whatever it was told, and in whatever order."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import attrs
import pytest

from actors import ask
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.decision import Decided
from intercom.model.errors import SlackError
from intercom.model.session import SessionMode
from intercom.operators.slack import outbox_writer
from intercom.operators.slack.outbox_writer import CardDrawn, Drawing, Look, card_key
from intercom.operators.slack.slack_messages import Redraw
from intercom.operators.slack.web_api import SlackRefused
from intercom.sessions.messages import ReadRecent
from intercom.store import outbox
from intercom.store.outbox import Urgency
from tests.operators.slack.payloads import CHANNEL
from tests.operators.slack.server import ELSEWHERE, outbox_writer_server
from tests.operators.stand_in_service import START, card, session

S1 = session("s-1", mode=SessionMode.HYBRID)


def decided(given: Card) -> Card:
    by = Decided("v-1", "approve", "kim", "ctl", START, None)
    return attrs.evolve(given, state=CardState.APPROVED, decided=by)


@pytest.mark.real_time
async def test_a_list_of_open_cards_that_comes_late_opens_no_card_again(tmp_path: Path) -> None:
    waits = card("r-1")
    async with outbox_writer_server(tmp_path, S1, waits) as server:
        server.tell(waits)
        assert (await server.row("card/r-1")).open
        over = decided(waits)
        server.service.cards["r-1"] = attrs.evolve(over, state=CardState.APPLIED)
        server.tell(server.service.cards["r-1"])
        # The router made this list before it was told the decision, and it arrives after that.
        server.open_cards = (waits,)
        before = len(server.recorded["card_router"])
        server.tell(Look())
        await server.until(lambda: len(server.recorded["card_router"]) > before)
        server.tell(Notice("after all", "info", START, "s-1"))
        await server.told_line()
        row = await server.row("card/r-1")
        assert not row.open
        assert "actions" not in [block["type"] for block in row.content["blocks"]]


@pytest.mark.real_time
@pytest.mark.parametrize("state", [CardState.APPROVED, CardState.REJECTED])
async def test_a_card_whose_decision_was_taken_back_has_its_buttons_again(tmp_path: Path, state: CardState) -> None:
    waits = card("r-1")
    async with outbox_writer_server(tmp_path, S1, waits) as server:

        async def shows(part: str) -> bool:
            return part in str((await server.row("card/r-1")).content)

        server.tell(waits)
        assert await shows("'actions'")
        server.tell(attrs.evolve(decided(waits), state=state))
        await server.wait_for(partial(shows, "kim"))
        assert not await shows("'actions'")
        server.tell(attrs.evolve(waits, note="lee took it back"))
        await server.wait_for(partial(shows, "lee took it back"))
        assert await shows("'actions'")
        assert (await server.row("card/r-1")).open


@pytest.mark.real_time
async def test_a_rejection_that_reached_its_agent_while_nobody_looked_is_drawn_later(tmp_path: Path) -> None:
    waits = card("r-1")
    async with outbox_writer_server(tmp_path, S1, waits) as server:

        async def shows(part: str) -> bool:
            return part in str((await server.row("card/r-1")).content)

        server.tell(waits)
        assert await shows("*Pending*")
        by = Decided("v-1", "reject", "kim", "ctl", START, None)
        rejected = attrs.evolve(waits, state=CardState.REJECTED, decided=by)
        server.service.cards["r-1"] = rejected
        server.tell(rejected)
        await server.wait_for(partial(shows, "*Rejected*"))
        # As after a crash between the record of the delivery and the card that says so.
        server.service.cards["r-1"] = attrs.evolve(rejected, delivered=True)
        server.tell(Look())
        await server.wait_for(partial(shows, "*Delivered*"))
        assert not (await server.row("card/r-1")).open


@pytest.mark.real_time
async def test_it_looks_again_and_again_whatever_becomes_of_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_writer, "LOOK_SECONDS", 0.02)
    # As when the list of open cards is dropped, for there was too much else.
    monkeypatch.setattr(outbox_writer.OutboxWriter, "_compare", lambda *_: _nothing())
    async with outbox_writer_server(tmp_path, S1) as server:
        await server.until(lambda: len(server.recorded["card_router"]) > 3)


async def _nothing() -> None:
    return


@pytest.mark.real_time
async def test_a_session_stays_in_the_channel_of_its_thread_when_another_is_configured(tmp_path: Path) -> None:
    async with outbox_writer_server(tmp_path, S1) as server:
        put = partial(outbox.put, key="thread/s-1", content={"text": "top"}, at=START, urgency=Urgency.LOG)
        await server.store(partial(put, channel=ELSEWHERE, session_id="s-1"))
        server.tell(card("r-1"))
        assert (await server.row(card_key("r-1"))).channel == ELSEWHERE
        server.tell(card("r-2", CardKind.POLICY, session_id=""))
        assert (await server.row(card_key("r-2"))).channel == CHANNEL


@pytest.mark.real_time
async def test_a_request_is_one_message_of_the_channel_with_its_file_in_its_thread(tmp_path: Path) -> None:
    """In the session's thread too, everybody was notified twice."""
    async with outbox_writer_server(tmp_path, S1) as server:
        server.tell(card("r-1", diff="+x\n" * 100))
        assert (await server.row("diff/r-1")).thread == card_key("r-1")
        row = await server.row(card_key("r-1"))
        assert (row.thread, row.session_id) == (None, "s-1")
        assert "reply_broadcast" not in row.content
        # The session's root message is above its first card.
        waiting = await server.store(lambda db: [each.id for each in outbox.waiting(db, CHANNEL)])
        assert waiting[:2] == [(await server.row("thread/s-1")).id, row.id]
        server.tell(card("w-1", CardKind.STEER, state=CardState.QUEUED))
        assert (await server.row(card_key("w-1"))).thread == "thread/s-1"


@pytest.mark.real_time
async def test_a_card_that_an_earlier_version_put_into_its_session_s_thread_stays_there(tmp_path: Path) -> None:
    async with outbox_writer_server(tmp_path, S1) as server:
        put = partial(outbox.put, content={"text": "old"}, at=START, urgency=Urgency.LOG, channel=CHANNEL)
        await server.store(partial(put, key="thread/s-1", session_id="s-1"))
        await server.store(partial(put, key=card_key("a-1"), session_id="s-1", thread="thread/s-1", open=True))
        server.tell(card("a-1", CardKind.STALL))
        server.tell(card("a-1", CardKind.STALL, escalated=True))
        assert (await server.row("call/a-1")).thread is None
        assert (await server.row(card_key("a-1"))).thread == "thread/s-1"


@pytest.mark.real_time
async def test_an_alert_that_called_everybody_when_it_was_posted_calls_nobody_again(tmp_path: Path) -> None:
    alert = card("a-1", CardKind.STALL, escalated=True)
    async with outbox_writer_server(tmp_path, S1) as server:
        server.tell(alert)
        server.tell(attrs.evolve(alert, note="still quiet"))
        server.tell(card("r-1"))
        await server.row(card_key("r-1"))
        assert await server.store(partial(outbox.by_key, key="call/a-1")) is None
        quiet = card("a-2", CardKind.STALL)
        server.tell(quiet)
        await server.row(card_key("a-2"))
        server.tell(attrs.evolve(quiet, escalated=True))
        assert (await server.row("call/a-2")).thread is None


@pytest.mark.real_time
async def test_of_the_states_that_a_card_goes_through_while_others_are_drawn_the_last_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, drawn, draw = threading.Event(), list[str](), Drawing.card

    def slowly(drawing: Drawing, each: Card) -> CardDrawn:
        drawn.append(each.title)
        goes_on.wait(20)
        return draw(drawing, each)

    monkeypatch.setattr(Drawing, "card", slowly)
    async with outbox_writer_server(tmp_path, S1, card("r-3", title="as the service has it")) as server:
        server.tell(card("r-1", title="first"))
        await server.until(lambda: drawn == ["first"])
        for number in range(100):
            server.tell(card("r-1", title=f"again {number}"))
            server.tell(card("r-2", title=f"another {number}"))
            server.tell(Redraw("r-3"))
        server.tell(Notice("a line", "info", START, S1.id))
        goes_on.set()
        await server.told_line()
    assert drawn == ["first", "again 99", "another 99", "as the service has it"]


async def test_a_channel_that_cannot_be_read_is_a_refusal(tmp_path: Path) -> None:
    async with outbox_writer_server(tmp_path) as server:
        server.slack.faults["conversations.history"] = [SlackRefused("conversations.history", "not_in_channel")]
        with pytest.raises(SlackError, match="not_in_channel"):
            await ask(server.system.named("slack/outbox_writer"), ReadRecent("C0X", 5))
