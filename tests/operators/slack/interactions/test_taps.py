"""Taps: one tap is one verdict, and when nothing comes of it the person hears why and the buttons come back."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import attrs
import pytest
import trio

from actors import Busy, Down, NotRunning
from intercom.model.card import Card, CardKind, CardState
from intercom.model.decision import Decided, Decision, Verdict
from intercom.model.errors import DatabaseError, InvalidState
from intercom.operators.slack.button_actions import NotRecorded
from intercom.operators.slack.buttons import BUTTONS, Button
from tests.operators.slack import payloads
from tests.operators.slack.payloads import ANNA, CHANNEL, ROOT
from tests.operators.slack.server import CARD, OTHER, slack_server
from tests.operators.stand_in_service import START, card, session


def decided(by: str, decision: Decision = Decision.REJECT, channel: str = "ctl") -> Card:
    """An approval that somebody answered before."""
    first = Decided("v-1", decision.value, by, channel, START)
    return attrs.evolve(card(CARD), state=CardState.REJECTED, decided=first)


async def test_a_tap_is_a_verdict_under_the_acts_id(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        assert await server.tap(payloads.tap("approve_accept", CARD)) is None
        assert server.service.acts == [("decide", CARD, "approve", None, f"anna ({ANNA})", "slack")]
        assert server.service.verdicts == [f"slack/{ANNA}/1700000100.000001"]
        assert server.service.cards[CARD].state is CardState.APPROVED
        assert await server.ephemerals() == []
        assert await server.redraws() == []


@pytest.mark.parametrize("button", [button for button in BUTTONS if button.form is button.dialog is None])
async def test_every_button_without_a_form_gives_its_decision(tmp_path: Path, button: Button) -> None:
    async with slack_server(tmp_path, card(CARD, button.kind)) as server:
        await server.tap(payloads.tap(button.action_id, CARD))
        assert server.decided == [(CARD, button.decision.value, None)]
        assert server.slack.calls == []


async def test_the_stop_button_of_a_session_ends_it_for_its_owner_alone(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.all_sessions = {
            "s-1": session("s-1", owner_user_id=ANNA),
            "s-2": session("s-2", owner_user_id="U0BOSS"),
        }
        assert await server.tap(payloads.tap("session_stop", "s-2", root=None)) is None
        [told] = await server.ephemerals()
        assert told == "the session belongs to <@U0BOSS>, who alone may do that; nothing was changed"
        assert server.service.acts == []
        for _ in range(2):
            await server.tap(payloads.tap("session_stop", "s-1", at="1700000100.000002", root=None))
        assert server.service.acts == [("end", "s-1", f"anna ({ANNA})", "slack", "stopped from its thread")]
        await server.tap(payloads.tap("session_stop", "s-9", at="1700000100.000003", root=None))
        assert "s-9" in (await server.ephemerals())[-1]


async def test_a_stop_that_could_not_be_recorded_comes_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.crash = DatabaseError("the disk is full")
        with pytest.raises(NotRecorded):
            await server.tap(payloads.tap("session_stop", "s-1", root=None))
        server.service.crash = None
        await server.tap(payloads.tap("session_stop", "s-1", root=None))
        assert [act[:2] for act in server.service.acts] == [("end", "s-1")]


async def test_the_buttons_give_way_to_processing_while_the_service_works(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.slow = 5.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.tap, payloads.tap("approve_accept", CARD))
            await trio.sleep(0.01)
            row = await server.row(f"card/{CARD}")
            assert row.interim == "⏳ Processing… (anna)"
            assert row.shown == 0
            assert await server.wakes() > 0
            assert server.service.verdicts == []
        assert len(server.service.verdicts) == 1


async def test_the_line_does_not_go_ahead_of_the_verdict(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        decide, lines = server.service.decide, []

        async def look_and_decide(prefix: str, verdict: Verdict) -> Card:
            for _ in range(10):
                row = await server.row(f"card/{CARD}")
                lines.append(row.interim)
            return await decide(prefix, verdict)

        with patch.object(server.service, "decide", look_and_decide):
            await server.tap(payloads.tap("approve_accept", CARD))
        assert lines[0] is None
        assert lines[-1] == "⏳ Processing… (anna)"


async def test_a_name_can_not_break_out_of_the_line(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.slow = 1.0
        payload = payloads.tap("approve_accept", CARD)
        payload["user"]["name"] = "<!channel> & co"
        await server.tap(payload)
        row = await server.row(f"card/{CARD}")
        assert row.interim is not None
        assert "<" not in row.interim
        assert "&lt;!channel&gt; &amp; co" in row.interim


async def test_a_tap_delivered_again_is_the_same_act(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        for _ in range(3):
            await server.tap(payloads.tap("approve_accept", CARD))
        assert len(server.decided) == 1
        # Also of another server, which has to ask the operator service to know.
        assert await server.again().handle("interactive", payloads.tap("approve_accept", CARD)) is None
        assert len(server.decided) == 2
        assert set(server.service.verdicts) == {f"slack/{ANNA}/1700000100.000001"}
        assert await server.ephemerals() == []


async def test_the_same_tap_by_two_sockets_at_once_is_one(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD, CardKind.STALL)) as server:
        server.service.slow = 1.0
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(server.tap, payloads.tap("stall_nudge", CARD))
        assert server.decided == [(CARD, "nudge", None)]


async def test_a_nudge_delivered_again_after_a_restart_nudges_once(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD, CardKind.STALL)) as server:
        await server.tap(payloads.tap("stall_nudge", CARD))
        await server.again().handle("interactive", payloads.tap("stall_nudge", CARD))
        assert server.decided == [(CARD, "nudge", None)]
        await server.tap(payloads.tap("stall_nudge", CARD, at="1700000300.000001"))
        assert len(server.decided) == 2


async def test_who_comes_too_late_hears_who_was_first_and_the_card_is_put_right(tmp_path: Path) -> None:
    async with slack_server(tmp_path, decided("bert")) as server:
        assert await server.tap(payloads.tap("approve_accept", CARD)) is None
        [told] = await server.ephemerals()
        assert told == "too late: bert rejected it at 2026-11-21 12:00 UTC (ctl); nothing was changed"
        [params] = server.slack.made("chat.postEphemeral")
        assert (params["channel"], params["user"], params["thread_ts"]) == (CHANNEL, ANNA, ROOT)
        assert await server.redraws() == [CARD]
        row = await server.row(f"card/{CARD}")
        assert row.interim is None


async def test_who_taps_twice_in_haste_is_not_told_off(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.tap(payloads.tap("approve_accept", CARD))
        await server.tap(payloads.tap("approve_accept", CARD, at="1700000100.500000"))
        assert await server.ephemerals() == []
        assert server.service.cards[CARD].decided is not None
        assert len(server.service.verdicts) == 1


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
async def test_a_verdict_that_was_not_recorded_is_not_acknowledged_and_the_next_delivery_gives_it(
    tmp_path: Path, fault: Exception
) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.down = [fault]
        with pytest.raises(NotRecorded):
            await server.tap(payloads.tap("approve_accept", CARD))
        row = await server.row(f"card/{CARD}")
        assert row.interim is None
        assert await server.redraws() == [CARD]
        assert await server.ephemerals() == []
        assert await server.tap(payloads.tap("approve_accept", CARD)) is None
        assert server.service.cards[CARD].state is CardState.APPROVED


async def test_a_refusal_is_told_and_acknowledged(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.down = [InvalidState("the session <s-1> is over")]
        assert await server.tap(payloads.tap("approve_accept", CARD)) is None
        assert await server.ephemerals() == ["the session &lt;s-1&gt; is over"]
        assert await server.redraws() == [CARD]


async def test_a_tap_given_up_by_its_connection_leaves_no_processing_behind(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.slow = 100.0
        with trio.move_on_after(30) as waited:
            await server.tap(payloads.tap("approve_accept", CARD))
        assert waited.cancelled_caught
        assert await server.redraws() == [CARD]
        server.service.slow = 0.0
        await server.tap(payloads.tap("approve_accept", CARD))
        assert server.service.cards[CARD].state is CardState.APPROVED


async def test_a_button_with_the_beginning_of_an_id_decides_nothing(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.tap(payloads.tap("approve_accept", CARD[:8]))
        await server.tap(payloads.tap("approve_reject", CARD[:8], at="1700000100.000002"))
        assert server.decided == []
        assert server.slack.made("views.open") == []
        assert len(await server.ephemerals()) == 2


async def test_a_button_of_another_kind_of_card_decides_nothing(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD, CardKind.PROMPT)) as server:
        await server.tap(payloads.tap("wait_stop", CARD))
        await server.tap(payloads.tap("approve_reject", CARD, at="1700000100.000002"))
        assert server.decided == []
        assert len(await server.ephemerals()) == 2
        assert server.slack.made("views.open") == []


async def test_a_tap_on_a_card_that_is_gone_is_told(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.tap(payloads.tap("approve_accept", OTHER))
        assert len(await server.ephemerals()) == 1
        assert await server.redraws() == [OTHER]


async def test_ephemeral_messages_never_keep_an_act_waiting(tmp_path: Path) -> None:
    async with slack_server(tmp_path, decided("bert")) as server:
        server.slack.slow["chat.postEphemeral"] = 50.0
        with trio.fail_after(1):
            await server.tap(payloads.tap("approve_accept", CARD))


async def test_a_store_that_is_down_does_not_keep_a_verdict_from_the_service(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        assert await server.without_store().handle("interactive", payloads.tap("approve_accept", CARD)) is None
        assert server.service.cards[CARD].state is CardState.APPROVED
