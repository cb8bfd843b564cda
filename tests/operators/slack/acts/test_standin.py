"""What people do, over the real wire: the stand-in for Slack, connection, sender and acts, over a stand-in desk."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from actors import Actor, ChildSpec, Name, System, ask
from intercom.masking import Masker
from intercom.model.card import Card, CardKind, CardState
from intercom.model.outbox import Urgency
from intercom.model.verdict import Verdict
from intercom.operators.slack.acts import Acts
from intercom.operators.slack.connection import Connection
from intercom.operators.slack.drawing import Drawing
from intercom.operators.slack.forms import DrawnForms
from intercom.operators.slack.means import Means
from intercom.operators.slack.messages import Redraw, Wake
from intercom.operators.slack.outbox import Sender
from intercom.operators.slack.people import People
from intercom.operators.slack.security import Gate
from intercom.operators.slack.web import SlackTokens, WebApi
from intercom.operators.slack.whispers import Whispers
from intercom.store import outbox
from intercom.store.messages import Database, Transact
from tests.operators.desk import START, card
from tests.operators.slack.acts.house import CARD, OTHER, Commands, Desk, TaskWriter
from tests.operators.slack.live.house import buttons, text_of
from tests.slack import ALICE, BOB, CHANNEL, MALLORY, Standin, serve
from tests.support.trio_case import trio_test

ROOT_KEY = "thread/s-1"


class Painter(Actor):
    """Draws the cards it is told of, as `slack/channel` does."""

    def __init__(self, desk: Desk, store: Name, sender: Name) -> None:
        super().__init__()
        self._desk, self._store, self._sender = desk, store, sender

    async def on_receive(self, message: Any) -> None:
        if isinstance(message, Redraw) and message.card_id in self._desk.cards:
            card = self._desk.cards[message.card_id]
            await ask(self._store, Transact(partial(put, card=card)))
            self._sender.tell(Wake())


def put(db: Database, card: Card) -> None:
    place = {"channel": CHANNEL, "session_id": card.session_id, "urgency": Urgency.CARD}
    outbox.put(db, ROOT_KEY, {"text": "session s-1", "blocks": []}, START, **place)
    open = card.state is CardState.PENDING
    content = Drawing(Masker()).card(card).message
    key = f"card/{card.id}"
    outbox.put(db, key, content, START, **place, thread=ROOT_KEY, open=open)
    outbox.restore(db, key)


class ShownDesk(Desk):
    """Tells of what was decided, as the router does."""

    def __init__(self, *cards: Card) -> None:
        super().__init__(*cards)
        self.tell: Callable[[Redraw], None] = lambda _: None

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        decided = await super().decide(prefix, verdict)
        self.tell(Redraw(decided.id))
        return decided


@frozen
class Wire:
    slack: Standin
    desk: ShownDesk
    commands: Commands

    async def card(self, words: str = "approval") -> dict[str, Any]:
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [one for one in self.slack.messages(CHANNEL) if words in text_of(one) and buttons(one)]
        )
        return found[0]

    async def becomes(self, message: dict[str, Any], words: str) -> dict[str, Any]:
        await self.slack.wait_for(lambda: words in text_of(self.slack.message(message["ts"])))
        return self.slack.message(message["ts"])

    async def reply(self, words: str) -> dict[str, Any]:
        """The app's own message in which these words stand."""
        found: list[dict[str, Any]] = await self.slack.wait_for(
            lambda: [one for one in self.slack.messages(CHANNEL) if words in text_of(one)]
        )
        return found[0]

    @property
    def decided(self) -> list[tuple[Any, ...]]:
        return [act[1:5] for act in self.desk.acts if act[0] == "decide"]


@contextlib.asynccontextmanager
async def wire(directory: Path, *cards: Card, **options: Any) -> AsyncIterator[Wire]:
    desk, commands, masker = ShownDesk(*cards), Commands(), Masker()
    began = trio.current_time()

    def now() -> Any:
        return START + timedelta(seconds=trio.current_time() - began)

    async with serve(**options) as slack:
        tokens = SlackTokens(slack.app_token, slack.bot_token)
        async with WebApi(tokens, base_url=slack.api_url) as web:
            system = System(
                [
                    ChildSpec("store", lambda: TaskWriter(directory / "intercom.db")),
                    ChildSpec("slack/outbox", lambda: Sender(means.store, web, now)),
                    ChildSpec("slack/channel", lambda: Painter(desk, means.store, means.outbox)),
                    ChildSpec("slack/whispers", lambda: Whispers(web, now)),
                    ChildSpec("slack/connection", lambda: Connection(web, acts.handle, now=now)),
                ]
            )
            means = Means(
                desk=desk,
                store=system.named("store"),
                outbox=system.named("slack/outbox"),
                channel=system.named("slack/channel"),
                whispers=system.named("slack/whispers"),
                web=web,
                people=People(web),
                forms=DrawnForms(masker),
                now=now,
            )
            acts = Acts(means, Gate(desk, frozenset({ALICE, BOB})), commands)
            async with system:
                desk.tell = means.channel.tell
                for each in cards:
                    desk.tell(Redraw(each.id))
                await slack.connected()
                yield Wire(slack, desk, commands)


@trio_test
async def test_a_tap_shows_processing_and_then_the_outcome(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.card()
        here.desk.slow = 2.0
        tap = here.slack.tap(ALICE, shown["ts"], "approve_accept")
        processing = await here.becomes(shown, "Processing…")
        assert buttons(processing) == []
        assert here.desk.verdicts == []
        assert not tap.over.is_set()
        await tap.answer()
        after = await here.becomes(shown, "(alice)")
        assert buttons(after) == []
        assert here.decided == [(CARD, "approve", None, f"alice ({ALICE})")]


@trio_test
async def test_an_ack_that_was_lost_costs_no_second_verdict(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD, CardKind.STALL)) as here:
        shown = await here.card("stall")
        here.slack.faults.double = 1
        tap = here.slack.tap(ALICE, shown["ts"], "stall_nudge")
        await tap.answer()
        await here.slack.redeliver(tap)
        await here.slack.acted_on()
        assert here.decided == [(CARD, "nudge", None, f"alice ({ALICE})")]


@trio_test
async def test_the_buttons_come_back_when_the_desk_fails_and_the_next_delivery_decides(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD), redeliver=(0.0, 60.0)) as here:
        shown = await here.card()
        here.desk.down = [trio.TooSlowError()]
        here.slack.tap(ALICE, shown["ts"], "approve_accept")
        await here.slack.wait_for(lambda: here.slack.unanswered)
        await here.slack.wait_for(lambda: buttons(here.slack.message(shown["ts"])))
        assert here.desk.cards[CARD].state is CardState.PENDING
        await here.slack.wait_for(lambda: here.desk.cards[CARD].state is CardState.APPROVED, 120)
        assert len(here.desk.verdicts) == 1


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
        shown = await here.card(kind.value)
        await here.slack.tap(ALICE, shown["ts"], action).answer()
        assert len(here.slack.views(ALICE)) == 1
        filled = {} if words is None else {"text": words}
        await here.slack.submit(ALICE, form, filled).answer()
        assert here.slack.views(ALICE) == []
        # A form for new instructions begins with what was asked, as it stands.
        expected = "Shall I go on with *this* & that?" if decision == "refine" else words
        assert here.decided == [(CARD, decision, expected, f"alice ({ALICE})")]


@trio_test
async def test_who_sends_a_form_too_late_reads_who_was_first_in_it(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.card()
        await here.slack.tap(ALICE, shown["ts"], "approve_reject").answer()
        await here.slack.tap(BOB, shown["ts"], "approve_accept").answer()
        await here.slack.submit(ALICE, "intercom_reject", {"text": "too wide"}).answer()
        [view] = here.slack.views(ALICE)
        assert f"bob ({BOB}) approved it" in text_of(view)
        assert here.desk.cards[CARD].state is CardState.APPROVED


@trio_test
async def test_who_taps_an_old_card_is_told_alone(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.card()
        await here.slack.tap(BOB, shown["ts"], "approve_accept").answer()
        await here.becomes(shown, "by bob in Slack")
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
        shown = await here.card()
        here.slack.plan("views.open", fault[0], **fault[1])
        await here.slack.tap(ALICE, shown["ts"], "approve_reject").answer()
        question = await here.reply("the form could not be opened")
        assert question["thread_ts"] == shown["thread_ts"]
        here.slack.say(ALICE, CHANNEL, "it is <too> wide & long", thread_ts=shown["thread_ts"])
        await here.slack.acted_on()
        assert here.decided == [(CARD, "reject", "it is <too> wide & long", f"alice ({ALICE})")]


@trio_test
async def test_replies_are_answered_with_what_is_possible_until_one_is_understood(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD), card(OTHER, CardKind.PROMPT)) as here:
        shown = await here.card()
        root = shown["thread_ts"]
        here.slack.say(ALICE, CHANNEL, "approve", thread_ts=root)
        await here.reply("2 cards are open here")
        here.slack.say(ALICE, CHANNEL, "3f0c6f5e aprove", thread_ts=root)
        await here.reply("not understood")
        assert here.decided == []
        here.slack.say(BOB, CHANNEL, "3f0c6f5e approve", thread_ts=root)
        await here.slack.acted_on()
        here.slack.say(BOB, CHANNEL, "refine: only auth", thread_ts=root)
        await here.slack.acted_on()
        assert here.decided == [
            (CARD, "approve", None, f"bob ({BOB})"),
            (OTHER, "refine", "only auth", f"bob ({BOB})"),
        ]


@trio_test
async def test_strangers_are_acknowledged_and_see_nothing(tmp_path: Path) -> None:
    async with wire(tmp_path, card(CARD)) as here:
        shown = await here.card()
        for action in ("approve_accept", "approve_reject"):
            await here.slack.tap(MALLORY, shown["ts"], action).answer()
        here.slack.say(MALLORY, CHANNEL, "approve", thread_ts=shown["thread_ts"])
        await here.slack.command(MALLORY, CHANNEL, "sessions").answer()
        await here.slack.acted_on()
        assert len(here.desk.events) == 4
        assert here.slack.views(MALLORY) == []
        assert here.slack.ephemerals(MALLORY) == []
        assert here.decided == []
        assert here.commands.ran == []
        assert buttons(here.slack.message(shown["ts"])) == ["approve_accept", "approve_reject"]
