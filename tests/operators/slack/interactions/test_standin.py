"""What people do, over the real wire: the stand-in for Slack, connection, sender and acts, over a stand-in desk."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from actors import Actor
from intercom.masking import Masker
from intercom.model.card import Card, CardKind, CardState
from intercom.operators.slack.channel import Drawing
from intercom.operators.slack.messages import Redraw, Wake
from intercom.operators.slack.web_api import SlackTokens, WebApi
from intercom.store import outbox
from intercom.store.messages import Database
from intercom.store.outbox import Urgency
from tests.operators.desk import START, card
from tests.operators.slack.server import CARD, OTHER, Desk, SlackServer, slack_server
from tests.slack import ALICE, BOB, CHANNEL, MALLORY, buttons, serve, text_of
from tests.support.trio_case import trio_test


class Painter(Actor):
    """Draws the cards it is told of, as `slack/channel` does, but on the loop, so that time can be virtual."""

    def __init__(self, server: SlackServer) -> None:
        super().__init__()
        self._server = server

    async def on_receive(self, message: Any) -> None:
        if isinstance(message, Redraw) and message.card_id in self._server.service.cards:
            await self._server.store(partial(put, card=self._server.service.cards[message.card_id]))
            self._server.tell(Wake(), "slack/outbox")


def put(db: Database, card: Card) -> None:
    place = {"channel": CHANNEL, "session_id": card.session_id, "urgency": Urgency.CARD}
    outbox.put(db, "thread/s-1", {"text": "session s-1", "blocks": []}, START, **place)
    content, key = Drawing(Masker()).card(card).message, f"card/{card.id}"
    outbox.put(db, key, content, START, **place, thread="thread/s-1", open=card.state is CardState.PENDING)
    outbox.restore(db, key)


@contextlib.asynccontextmanager
async def wire(directory: Path, *cards: Card, **options: Any) -> AsyncIterator[SlackServer]:
    desk = Desk(*cards)
    async with (
        serve(**options, epoch=START.timestamp()) as slack,
        WebApi(SlackTokens(slack.app_token, slack.bot_token), base_url=slack.api_url) as web,
        slack_server(
            directory,
            runs=("outbox", "ephemeral", "connection"),
            instead={"channel": Painter},
            web=web,
            service=desk,
            people=(ALICE, BOB),
            team="",
            channel=CHANNEL,
        ) as server,
    ):
        server.slack, desk.tell = slack, server.tell
        for each in cards:
            server.tell(Redraw(each.id))
        await slack.connected()
        yield server


def decided(server: SlackServer) -> list[tuple[Any, ...]]:
    """Card, decision, text and person of each decision."""
    return [act[1:5] for act in server.service.acts if act[0] == "decide"]


@trio_test
async def test_a_tap_shows_processing_and_then_the_outcome(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.slack.card("approval")
        here.service.slow = 2.0
        tap = here.slack.tap(ALICE, shown["ts"], "approve_accept")
        processing = await here.slack.shows(shown["ts"], "Processing…")
        assert buttons(processing) == []
        assert here.service.verdicts == []
        assert not tap.over.is_set()
        await tap.answer()
        after = await here.slack.shows(shown["ts"], "(alice)")
        assert buttons(after) == []
        assert decided(here) == [(CARD, "approve", None, f"alice ({ALICE})")]


@trio_test
async def test_an_ack_that_was_lost_costs_no_second_verdict(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD, CardKind.STALL)) as here:
        shown = await here.slack.card("stall")
        here.slack.faults.double = 1
        tap = here.slack.tap(ALICE, shown["ts"], "stall_nudge")
        await tap.answer()
        await here.slack.redeliver(tap)
        await here.slack.acted_on()
        assert decided(here) == [(CARD, "nudge", None, f"alice ({ALICE})")]


@trio_test
async def test_the_buttons_come_back_when_the_desk_fails_and_the_next_delivery_decides(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD), redeliver=(0.0, 60.0)) as here:
        shown = await here.slack.card("approval")
        here.service.down = [trio.TooSlowError()]
        here.slack.tap(ALICE, shown["ts"], "approve_accept")
        await here.slack.wait_for(lambda: here.slack.unanswered)
        await here.slack.wait_for(lambda: buttons(here.slack.message(shown["ts"])))
        assert here.service.cards[CARD].state is CardState.PENDING
        await here.slack.wait_for(lambda: here.service.cards[CARD].state is CardState.APPROVED, 120)
        assert len(here.service.verdicts) == 1


@pytest.mark.parametrize(
    ("kind", "action", "form", "words", "decision"),
    [
        (CardKind.APPROVAL, "approve_reject", "intercom_reject", "too <wide>", "reject"),
        (CardKind.APPROVAL, "approve_reject", "intercom_reject", None, "reject"),
        (CardKind.PROMPT, "prompt_refine", "intercom_refine", None, "refine"),
        (CardKind.STALL, "stall_nudge_instruct", "intercom_nudge", "go on & on", "nudge"),
        (CardKind.STANDBY, "wait_resume_instruct", "intercom_resume", "write the docs", "resume"),
    ],
)
@trio_test
async def test_a_form_opens_and_its_words_decide(
    tmp_path: Path, kind: CardKind, action: str, form: str, words: str | None, decision: str
) -> None:
    async with wire(tmp_path, card(CARD, kind, body="Shall I go on with *this* & that?")) as here:
        shown = await here.slack.card(kind.value)
        await here.slack.tap(ALICE, shown["ts"], action).answer()
        assert len(here.slack.views(ALICE)) == 1
        filled = {} if words is None else {"text": words}
        await here.slack.submit(ALICE, form, filled).answer()
        assert here.slack.views(ALICE) == []
        # A form for new instructions begins with what was asked, as it stands.
        expected = "Shall I go on with *this* & that?" if decision == "refine" else words
        assert decided(here) == [(CARD, decision, expected, f"alice ({ALICE})")]


@trio_test
async def test_who_sends_a_form_too_late_reads_who_was_first_in_it(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.slack.card("approval")
        await here.slack.tap(ALICE, shown["ts"], "approve_reject").answer()
        await here.slack.tap(BOB, shown["ts"], "approve_accept").answer()
        await here.slack.submit(ALICE, "intercom_reject", {"text": "too wide"}).answer()
        [view] = here.slack.views(ALICE)
        assert f"bob ({BOB}) approved it" in text_of(view)
        assert here.service.cards[CARD].state is CardState.APPROVED


@trio_test
async def test_who_taps_an_old_card_is_told_alone(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.slack.card("approval")
        await here.slack.tap(BOB, shown["ts"], "approve_accept").answer()
        await here.slack.shows(shown["ts"], "by bob in Slack")
        await here.slack.tap(ALICE, shown, "approve_accept").answer()
        await here.slack.wait_for(lambda: here.slack.ephemerals(ALICE))
        [told] = here.slack.ephemerals(ALICE)
        assert f"bob ({BOB}) approved it" in told["text"]
        assert here.slack.ephemerals(BOB) == []
        await here.slack.wait_for(lambda: "Processing" not in text_of(here.slack.message(shown["ts"])))
        assert buttons(here.slack.message(shown["ts"])) == []


@pytest.mark.parametrize("fault", [("refuse", {"error": "expired_trigger_id"}), ("status", {"status": 500})])
@trio_test
async def test_where_no_form_opens_a_reply_does_the_same(tmp_path: Path, fault: tuple[str, dict[str, Any]]) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.slack.card("approval")
        here.slack.plan("views.open", fault[0], **fault[1])
        await here.slack.tap(ALICE, shown["ts"], "approve_reject").answer()
        question = await here.slack.first(lambda one: "the form could not be opened" in text_of(one))
        assert question["thread_ts"] == shown["thread_ts"]
        here.slack.say(ALICE, CHANNEL, "it is <too> wide & long", thread_ts=shown["thread_ts"])
        await here.slack.acted_on()
        assert decided(here) == [(CARD, "reject", "it is <too> wide & long", f"alice ({ALICE})")]


@trio_test
async def test_replies_are_answered_with_what_is_possible_until_one_is_understood(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD), card(OTHER, CardKind.PROMPT)) as here:
        shown = await here.slack.card("approval")
        root = shown["thread_ts"]
        here.slack.say(ALICE, CHANNEL, "approve", thread_ts=root)
        await here.slack.first(lambda one: "2 cards are open here" in text_of(one))
        here.slack.say(ALICE, CHANNEL, "3f0c6f5e aprove", thread_ts=root)
        await here.slack.first(lambda one: "not understood" in text_of(one))
        assert decided(here) == []
        here.slack.say(BOB, CHANNEL, "3f0c6f5e approve", thread_ts=root)
        await here.slack.acted_on()
        here.slack.say(BOB, CHANNEL, "refine: only auth", thread_ts=root)
        await here.slack.acted_on()
        assert decided(here) == [
            (CARD, "approve", None, f"bob ({BOB})"),
            (OTHER, "refine", "only auth", f"bob ({BOB})"),
        ]


@trio_test
async def test_strangers_are_acknowledged_and_see_nothing(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.slack.card("approval")
        for action in ("approve_accept", "approve_reject"):
            await here.slack.tap(MALLORY, shown["ts"], action).answer()
        here.slack.say(MALLORY, CHANNEL, "approve", thread_ts=shown["thread_ts"])
        await here.slack.command(MALLORY, CHANNEL, "sessions").answer()
        await here.slack.acted_on()
        assert len(here.service.events) == 4
        assert here.slack.views(MALLORY) == []
        assert here.slack.ephemerals(MALLORY) == []
        assert decided(here) == []
        assert here.commands.ran == []
        assert buttons(here.slack.message(shown["ts"])) == ["approve_accept", "approve_reject"]
