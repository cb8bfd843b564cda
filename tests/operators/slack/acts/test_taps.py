"""Taps: one tap is one verdict, and when nothing comes of it the person hears why and the buttons come back."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import attrs
import pytest
import trio

from actors import Busy, Down, NotRunning
from intercom.model.card import Card, CardKind, CardState
from intercom.model.errors import DatabaseError, InvalidState
from intercom.model.verdict import Decided, Decision, Verdict
from intercom.operators.slack.envelopes import BUTTONS
from intercom.operators.slack.means import NotRecorded
from tests.operators.desk import START, card
from tests.operators.slack.acts import payloads
from tests.operators.slack.acts.house import CARD, OTHER, open_house
from tests.operators.slack.acts.payloads import ANNA, BERT, CHANNEL, ROOT
from tests.support.trio_case import trio_test


def decided(by: str, decision: Decision = Decision.REJECT, channel: str = "ctl") -> Card:
    """An approval that somebody answered before."""
    first = Decided("v-1", decision.value, by, channel, START)
    return attrs.evolve(card(CARD), state=CardState.REJECTED, decided=first)


@trio_test
async def test_a_tap_is_a_verdict_under_the_acts_id(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        assert await house.tap(payloads.tap("approve_accept", CARD)) is None
        assert house.desk.acts == [("decide", CARD, "approve", None, f"anna ({ANNA})", "slack")]
        assert house.desk.verdicts == [f"slack/{ANNA}/1700000100.000001"]
        assert house.desk.cards[CARD].state is CardState.APPROVED
        assert await house.whispered() == []
        assert await house.redraws() == []


@pytest.mark.parametrize("action", [name for name, button in BUTTONS.items() if button.form is None])
@trio_test
async def test_every_button_without_a_form_gives_its_decision(tmp_path: Path, action: str) -> None:
    button = BUTTONS[action]
    async with open_house(tmp_path, card(CARD, button.kind)) as house:
        await house.tap(payloads.tap(action, CARD))
        assert house.decided == [(CARD, button.decision.value, None)]
        assert house.web.calls == []


@trio_test
async def test_the_buttons_give_way_to_processing_while_the_desk_works(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.slow = 5.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.tap, payloads.tap("approve_accept", CARD))
            await trio.sleep(0.01)
            row = await house.row(f"card/{CARD}")
            assert row is not None
            assert row.interim == "⏳ Processing… (anna)"
            assert row.shown == 0
            assert await house.wakes() > 0
            assert house.desk.verdicts == []
        assert len(house.desk.verdicts) == 1


@trio_test
async def test_the_line_does_not_go_ahead_of_the_verdict(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        decide, lines = house.desk.decide, []

        async def look_and_decide(prefix: str, verdict: Verdict) -> Card:
            for _ in range(10):
                row = await house.row(f"card/{CARD}")
                assert row is not None
                lines.append(row.interim)
            return await decide(prefix, verdict)

        with patch.object(house.desk, "decide", look_and_decide):
            await house.tap(payloads.tap("approve_accept", CARD))
        assert lines[0] is None
        assert lines[-1] == "⏳ Processing… (anna)"


@trio_test
async def test_a_name_can_not_break_out_of_the_line(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.slow = 1.0
        payload = payloads.tap("approve_accept", CARD)
        payload["user"]["name"] = "<!channel> & co"
        await house.tap(payload)
        row = await house.row(f"card/{CARD}")
        assert row is not None
        assert row.interim is not None
        assert "<" not in row.interim
        assert "&lt;!channel&gt; &amp; co" in row.interim


@trio_test
async def test_a_tap_delivered_again_is_the_same_act(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        for _ in range(3):
            await house.tap(payloads.tap("approve_accept", CARD))
        assert len(house.decided) == 1
        # Also of another server, which has to ask the desk to know.
        assert await house.again().handle("interactive", payloads.tap("approve_accept", CARD)) is None
        assert len(house.decided) == 2
        assert set(house.desk.verdicts) == {f"slack/{ANNA}/1700000100.000001"}
        assert await house.whispered() == []


@trio_test
async def test_the_same_tap_by_two_sockets_at_once_is_one(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD, CardKind.STALL)) as house:
        house.desk.slow = 1.0
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(house.tap, payloads.tap("stall_nudge", CARD))
        assert house.decided == [(CARD, "nudge", None)]


@trio_test
async def test_a_nudge_delivered_again_after_a_restart_nudges_once(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD, CardKind.STALL)) as house:
        await house.tap(payloads.tap("stall_nudge", CARD))
        await house.again().handle("interactive", payloads.tap("stall_nudge", CARD))
        assert house.decided == [(CARD, "nudge", None)]
        await house.tap(payloads.tap("stall_nudge", CARD, at="1700000300.000001"))
        assert len(house.decided) == 2


@trio_test
async def test_who_comes_too_late_hears_who_was_first_and_the_card_is_put_right(tmp_path: Path) -> None:
    async with open_house(tmp_path, decided("bert")) as house:
        assert await house.tap(payloads.tap("approve_accept", CARD)) is None
        [told] = await house.whispered()
        assert told == "too late: bert rejected it at 2026-11-21 12:00 UTC (ctl); nothing was changed"
        [params] = house.web.made("chat.postEphemeral")
        assert (params["channel"], params["user"], params["thread_ts"]) == (CHANNEL, ANNA, ROOT)
        assert await house.redraws() == [CARD]
        row = await house.row(f"card/{CARD}")
        assert row is not None
        assert row.interim is None


@trio_test
async def test_who_taps_twice_in_haste_is_not_told_off(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_accept", CARD))
        await house.tap(payloads.tap("approve_accept", CARD, at="1700000100.500000"))
        assert await house.whispered() == []
        assert house.desk.cards[CARD].decided is not None
        assert len(house.desk.verdicts) == 1


@trio_test
async def test_of_two_people_the_first_wins(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_accept", CARD, BERT))
        await house.tap(payloads.tap("approve_accept", CARD, ANNA))
        [told] = await house.whispered()
        assert f"bert ({BERT}) approved it" in told


@pytest.mark.parametrize(
    "fault",
    [
        Down("session/s-1", RuntimeError("x"), begun=True),
        NotRunning("x"),
        Busy("x"),
        trio.TooSlowError(),
        DatabaseError("the disk is full"),
        RuntimeError("a mistake of ours"),
    ],
)
@trio_test
async def test_a_verdict_that_was_not_recorded_is_not_acknowledged_and_the_next_delivery_gives_it(
    tmp_path: Path, fault: Exception
) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.down = [fault]
        with pytest.raises(NotRecorded):
            await house.tap(payloads.tap("approve_accept", CARD))
        row = await house.row(f"card/{CARD}")
        assert row is not None
        assert row.interim is None
        assert await house.redraws() == [CARD]
        assert await house.whispered() == []
        assert await house.tap(payloads.tap("approve_accept", CARD)) is None
        assert house.desk.cards[CARD].state is CardState.APPROVED


@trio_test
async def test_a_refusal_is_told_and_acknowledged(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.down = [InvalidState("the session <s-1> is over")]
        assert await house.tap(payloads.tap("approve_accept", CARD)) is None
        assert await house.whispered() == ["the session &lt;s-1&gt; is over"]
        assert await house.redraws() == [CARD]


@trio_test
async def test_a_tap_given_up_by_its_connection_leaves_no_processing_behind(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.slow = 100.0
        with trio.move_on_after(30) as waited:
            await house.tap(payloads.tap("approve_accept", CARD))
        assert waited.cancelled_caught
        assert await house.redraws() == [CARD]
        house.desk.slow = 0.0
        await house.tap(payloads.tap("approve_accept", CARD))
        assert house.desk.cards[CARD].state is CardState.APPROVED


@trio_test
async def test_a_button_with_the_beginning_of_an_id_decides_nothing(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_accept", CARD[:8]))
        assert house.decided == []
        assert len(await house.whispered()) == 1


@trio_test
async def test_a_button_of_another_kind_of_card_decides_nothing(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD, CardKind.PROMPT)) as house:
        await house.tap(payloads.tap("wait_stop", CARD))
        await house.tap(payloads.tap("approve_reject", CARD, at="1700000100.000002"))
        assert house.decided == []
        assert len(await house.whispered()) == 2
        assert house.web.made("views.open") == []


@trio_test
async def test_a_tap_on_a_card_that_is_gone_is_told(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_accept", OTHER))
        assert len(await house.whispered()) == 1
        assert await house.redraws() == [OTHER]


@trio_test
async def test_whispers_never_keep_an_act_waiting(tmp_path: Path) -> None:
    async with open_house(tmp_path, decided("bert")) as house:
        house.web.slow["chat.postEphemeral"] = 50.0
        with trio.fail_after(1):
            await house.tap(payloads.tap("approve_accept", CARD))


@trio_test
async def test_a_store_that_is_down_does_not_keep_a_verdict_from_the_desk(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        assert await house.without_store().handle("interactive", payloads.tap("approve_accept", CARD)) is None
        assert house.desk.cards[CARD].state is CardState.APPROVED
