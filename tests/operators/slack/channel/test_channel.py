"""What Slack is to show: the rows that the channel's actor writes, whatever it was told, and in whatever order."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import attrs
import pytest

from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.outbox import Urgency
from intercom.model.session import SessionMode
from intercom.model.verdict import Decided
from intercom.operators.slack import channel
from intercom.operators.slack.channel import Look
from intercom.operators.slack.drawing import CardDrawn, Drawing
from intercom.operators.slack.messages import Redraw
from intercom.operators.slack.placing import card_key
from intercom.store import outbox
from tests.operators.desk import START, card, session
from tests.support.trio_case import trio_test

from .house import CHANNEL, ELSEWHERE, open_house

S1 = session("s-1", mode=SessionMode.HYBRID)


def decided(given: Card) -> Card:
    by = Decided("v-1", "approve", "kim", "ctl", START, None)
    return attrs.evolve(given, state=CardState.APPROVED, decided=by)


@trio_test(real_time=True)
async def test_a_list_of_open_cards_that_comes_late_opens_no_card_again(tmp_path: Path) -> None:
    waits = card("r-1")
    async with open_house(tmp_path, S1, cards=(waits,)) as house:
        house.tell(waits)
        assert (await house.row("card/r-1")).open
        over = decided(waits)
        house.desk.cards["r-1"] = attrs.evolve(over, state=CardState.APPLIED)
        house.tell(house.desk.cards["r-1"])
        # The router made this list before it was told the decision, and it arrives after that.
        house.told = (waits,)
        before = house.subscribed
        house.tell(Look())
        await house.until(lambda: house.subscribed > before)
        house.tell(Notice("after all", "info", START, "s-1"))
        await house.told_line()
        row = await house.row("card/r-1")
        assert not row.open
        assert "actions" not in [block["type"] for block in row.content["blocks"]]


@trio_test(real_time=True)
async def test_it_looks_again_and_again_whatever_becomes_of_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "LOOK_SECONDS", 0.02)
    # As when the list of open cards is dropped, for there was too much else.
    monkeypatch.setattr(channel.SlackChannel, "_compare", lambda *_: _nothing())
    async with open_house(tmp_path, S1) as house:
        await house.until(lambda: house.subscribed > 3)


async def _nothing() -> None:
    return


@trio_test(real_time=True)
async def test_a_session_stays_in_the_channel_of_its_thread_when_another_is_configured(tmp_path: Path) -> None:
    async with open_house(tmp_path, S1) as house:
        put = partial(outbox.put, key="thread/s-1", content={"text": "top"}, at=START, urgency=Urgency.LOG)
        await house.store(partial(put, channel=ELSEWHERE, session_id="s-1"))
        house.tell(card("r-1"))
        assert (await house.row(card_key("r-1"))).channel == ELSEWHERE
        house.tell(card("r-2", CardKind.POLICY, session_id=""))
        assert (await house.row(card_key("r-2"))).channel == CHANNEL


@trio_test(real_time=True)
async def test_an_alert_that_called_everybody_when_it_was_posted_calls_nobody_again(tmp_path: Path) -> None:
    alert = card("a-1", CardKind.STALL, escalated=True)
    async with open_house(tmp_path, S1) as house:
        house.tell(alert)
        house.tell(attrs.evolve(alert, note="still quiet"))
        house.tell(card("r-1"))
        await house.row(card_key("r-1"))
        assert await house.store(partial(outbox.by_key, key="call/a-1")) is None
        quiet = card("a-2", CardKind.STALL)
        house.tell(quiet)
        await house.row(card_key("a-2"))
        house.tell(attrs.evolve(quiet, escalated=True))
        await house.row("call/a-2")


@trio_test(real_time=True)
async def test_of_the_states_that_a_card_goes_through_while_others_are_drawn_the_last_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, drawn, draw = threading.Event(), list[str](), Drawing.card

    def slowly(drawing: Drawing, each: Card) -> CardDrawn:
        drawn.append(each.title)
        goes_on.wait(20)
        return draw(drawing, each)

    monkeypatch.setattr(Drawing, "card", slowly)
    async with open_house(tmp_path, S1, cards=(card("r-3", title="as the desk has it"),)) as house:
        house.tell(card("r-1", title="first"))
        await house.until(lambda: drawn == ["first"])
        for number in range(100):
            house.tell(card("r-1", title=f"again {number}"))
            house.tell(card("r-2", title=f"another {number}"))
            house.tell(Redraw("r-3"))
        house.tell(Notice("a line", "info", START, S1.id))
        goes_on.set()
        await house.told_line()
    assert drawn == ["first", "again 99", "another 99", "as the desk has it"]
