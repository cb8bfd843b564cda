"""Replies in a thread: beyond doubt they decide; otherwise all stays open, and the thread says what is possible."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.card import ANSWERED, CHOICES, Card, CardKind, CardState
from intercom.model.decision import Decided, Decision
from intercom.model.errors import DatabaseError
from intercom.model.session import SessionMode
from intercom.operators.slack.button_actions import NotRecorded
from intercom.operators.slack.interaction_handler import Answered, Decides, to_cards, to_question
from intercom.operators.slack.web_api import Unreachable
from intercom.store.store_and_reader import StoreUnavailable
from tests.operators.slack import payloads
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL, MESSAGE
from tests.operators.slack.server import CARD, OTHER, slack_server
from tests.operators.stand_in_service import START, card, session

LATER = "1700000300.000001"


async def test_a_reply_decides_the_only_open_card(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        assert await server.say(payloads.said("approve")) is None
        assert server.service.acts == [("decide", CARD, "approve", None, f"anna ({ANNA})", "slack")]
        assert server.service.verdicts == [f"slack/{CHANNEL}/1700000200.000300"]
        assert await server.answers() == []


async def test_a_reply_that_is_not_understood_leaves_the_request_open(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.say(payloads.said("aprove"))
        assert server.decided == []
        assert await server.answers() == [
            "not understood, so nothing was decided. You can say `approve`, `reject` or `reject: why`"
        ]
        assert await server.wakes() > 0
        await server.say(payloads.said("approve", ts=LATER))
        assert server.decided == [(CARD, "approve", None)]


async def test_a_reply_that_is_not_understood_is_told_what_its_card_takes(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD, CardKind.PROMPT)) as server:
        await server.say(payloads.said("yes, but only the orders table"))
        assert server.decided == []
        assert await server.answers() == [
            "not understood, so nothing was decided. You can say `continue`, `refine: what to do instead` or `stop`"
        ]


async def test_a_reply_delivered_again_never_decides_the_next_card(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.say(payloads.said("approve"))
        server.service.cards[OTHER] = card(OTHER)
        await server.say(payloads.said("approve"))
        await server.again().handle("events_api", payloads.said("approve"))
        assert {decided[0] for decided in server.decided} == {CARD}
        assert server.service.cards[OTHER].state is CardState.PENDING


async def test_a_reply_that_was_settled_but_not_decided_is_decided_when_it_comes_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.down = [DatabaseError("the disk is full")]
        with pytest.raises(NotRecorded):
            await server.say(payloads.said("reject: too wide"))
        server.service.cards[OTHER] = card(OTHER)
        await server.again().handle("events_api", payloads.said("reject: too wide"))
        assert server.decided == [(CARD, "reject", "too wide")]


async def test_an_answer_is_given_once_however_often_the_reply_comes(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        for _ in range(3):
            await server.again().handle("events_api", payloads.said("hm"))
        assert len(await server.answers()) == 1


async def test_of_several_open_cards_the_reply_names_one(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), card(OTHER, CardKind.PROMPT)) as server:
        await server.say(payloads.said("approve"))
        [answer] = await server.answers()
        assert answer.startswith("2 cards are open here: begin with the id of the one you mean")
        assert "`3f0c6f5e` (approval)" in answer
        assert "`3f0c7777` (prompt)" in answer
        await server.say(payloads.said("3f0c approve", ts=LATER))
        assert server.decided == []
        await server.say(payloads.said("3f0c6f5e approve", ts="1700000300.000002"))
        assert server.decided == [(CARD, "approve", None)]
        await server.say(payloads.said("3f0c7777: refine only auth", ts="1700000300.000003"))
        assert server.decided[1:] == [(OTHER, "refine", "only auth")]


async def test_a_reply_below_a_card_of_the_channel_is_about_that_card(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), card(OTHER, CardKind.PROMPT)) as server:
        server.service.all_sessions["s-1"] = session("s-1", mode=SessionMode.HYBRID)
        top = "1700000100.000900"
        move = "update outbox set thread = null, ts = ? where key = ?"
        await server.store(lambda db: db.execute(move, (top, f"card/{OTHER}")).rowcount)
        await server.say(payloads.said("continue", root=top))
        assert server.decided == [(OTHER, "continue", None)]
        # Another card of its session is not decided by what is said below this one.
        await server.say(payloads.said("approve", root=top, ts=LATER))
        assert await server.answers() == ["nothing waits for an answer in this thread"]
        await server.say(payloads.said("use tabs", root=top, ts="1700000300.000002"))
        assert [told[:3] for told in server.service.acts if told[0] == "steer"] == [("steer", "s-1", "use tabs")]
        assert server.decided == [(OTHER, "continue", None)]


async def test_words_where_nothing_waits_are_an_instruction_to_the_agent(tmp_path: Path) -> None:
    """They vanished, and nobody was told so."""
    first = Decided("v-1", "approve", "bert", "ctl", START)
    done = attrs.evolve(card(CARD), state=CardState.APPROVED, decided=first)
    async with slack_server(tmp_path, done) as server:
        server.service.all_sessions["s-1"] = session("s-1", mode=SessionMode.HYBRID)
        act = f"slack/{CHANNEL}/1700000200.000300"
        await server.say(payloads.said("use tabs, &lt;please&gt;"))
        assert server.service.acts == [("steer", "s-1", "use tabs, <please>", f"anna ({ANNA})", "slack", act)]
        # The card of the words says that they are queued, and then that they are delivered.
        assert await server.answers() == []
        await server.again().handle("events_api", payloads.said("use tabs, &lt;please&gt;"))
        assert {told[5] for told in server.service.acts} == {act}, "delivered again it is the same act"
        # A decision that comes too late is no instruction: "approve" must not be told to an agent.
        await server.say(payloads.said("approve", ts=LATER))
        assert await server.answers() == ["nothing waits for an answer in this thread"]
        assert {told[0] for told in server.service.acts} == {"steer"}


async def test_words_to_an_agent_whose_cards_are_not_shown_here_are_confirmed_all_the_same(tmp_path: Path) -> None:
    async with slack_server(tmp_path, attrs.evolve(card(CARD), state=CardState.EXPIRED)) as server:
        await server.say(payloads.said("use tabs"))
        [answer] = await server.answers()
        assert answer.startswith("queued for the agent as `w-1`: it is delivered with its next result")
        assert "`agent-intercom-ctl steering s-1` says when it has it" in answer


async def test_words_that_reach_no_agent_are_answered(tmp_path: Path) -> None:
    gone = card(CARD, CardKind.POLICY, session_id="", state=CardState.CLOSED)
    ended = card(OTHER, state=CardState.EXPIRED, session_id="s-gone")
    async with slack_server(tmp_path / "one", gone) as server:
        await server.say(payloads.said("use tabs", root=MESSAGE))
        assert await server.answers() == [
            "nothing waits here, and this thread belongs to no session, so no agent was told this"
        ]
    async with slack_server(tmp_path / "two", ended) as server:
        await server.say(payloads.said("use tabs"))
        assert await server.answers() == ["the agent was not told this: no session s-gone"]
        assert server.service.acts == []


async def test_words_that_could_not_be_queued_come_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, attrs.evolve(card(CARD), state=CardState.EXPIRED)) as server:
        server.service.crash = DatabaseError("the disk is full")
        with pytest.raises(NotRecorded):
            await server.say(payloads.said("use tabs"))
        server.service.crash = None
        await server.again().handle("events_api", payloads.said("use tabs"))
        assert len({told[5] for told in server.service.acts}) == 1


async def test_a_thread_of_others_is_not_ours(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        for user in (ANNA, payloads.MALLORY):
            await server.say(payloads.said("approve", user, root="1600000000.000001"))
        assert server.decided == []
        assert server.service.events == []
        assert await server.answers() == []


async def test_a_reply_below_a_card_without_a_session_is_about_that_card(tmp_path: Path) -> None:
    policy = card(CARD, CardKind.POLICY, session_id="")
    async with slack_server(tmp_path, policy, card(OTHER)) as server:
        await server.say(payloads.said("accept", root=MESSAGE))
        assert server.decided == [(CARD, "accept", None)]


async def test_a_card_that_nobody_can_have_seen_is_not_decided_by_a_word_for_another(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.tap(payloads.tap("approve_accept", CARD, BERT))
        server.service.cards[OTHER] = card(OTHER)
        await server.say(payloads.said("approve"))
        assert [decided[0] for decided in server.decided] == [CARD]
        [answer] = await server.answers()
        assert f"`{OTHER[:8]}` (approval), was not here yet when you wrote this" in answer
        # By name it is meant; and so it is once it was there to be seen.
        await server.say(payloads.said(f"{OTHER[:8]} reject: too wide", ts=LATER))
        assert server.decided[-1] == (OTHER, "reject", "too wide")


async def test_the_words_for_a_card_that_is_closed_decide_no_other(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), card(OTHER)) as server:
        server.slack.faults["views.open"] = [Unreachable("no network", maybe_done=False)]
        await server.tap(payloads.tap("approve_reject", CARD))
        await server.tap(payloads.tap("approve_accept", CARD, BERT))
        await server.say(payloads.said("no"))
        assert [decided[:2] for decided in server.decided] == [(CARD, "approve")]
        assert "no longer open" in (await server.answers())[-1]
        await server.say(payloads.said("approve", ts=LATER))
        assert server.decided[-1][:2] == (OTHER, "approve")


async def test_who_replies_too_late_is_told_in_the_thread(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.slow = 1.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.say, payloads.said("reject", BERT))
            await trio.sleep(0.5)
            nursery.start_soon(server.say, payloads.said("approve", ts=LATER))
        [answer] = await server.answers()
        assert f"bert ({BERT}) rejected it" in answer
        assert server.service.cards[CARD].state is CardState.REJECTED


async def test_a_name_that_slack_does_not_tell_soon_costs_nothing_but_the_name(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), card(OTHER)) as server:
        server.slack.slow["users.info"] = 100.0
        with trio.fail_after(1.5):
            await server.say(payloads.said("3f0c6f5e approve"))
        assert server.service.acts[0][4] == ANNA
        server.slack.slow.clear()
        server.slack.faults["users.info"] = [Unreachable("no network", maybe_done=False)]
        await server.say(payloads.said("3f0c7777 approve", BERT, ts=LATER))
        assert server.service.acts[1][4] == BERT


async def test_a_name_is_asked_for_once_and_learned_from_taps(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD), card(OTHER)) as server:
        await server.tap(payloads.tap("approve_accept", CARD))
        await server.say(payloads.said("approve"))
        await server.say(payloads.said("hm", BERT, ts=LATER))
        await server.say(payloads.said("approve", BERT, ts="1700000300.000002"))
        # Bert's is asked for with the first thing he says to somebody.
        assert server.slack.made("users.info") == [{"user": BERT}]
        assert [act[4] for act in server.service.acts if act[0] == "decide"] == [f"anna ({ANNA})", f"anna ({ANNA})"]


async def test_without_the_store_a_reply_comes_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        with pytest.raises(StoreUnavailable):
            await server.without_store().handle("events_api", payloads.said("approve"))
        assert server.decided == []


async def test_a_plain_reply_to_a_standby_is_the_instruction(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD, CardKind.STANDBY)) as server:
        await server.say(payloads.said("Write the tests &amp; run them."))
        assert server.decided == [(CARD, "resume", "Write the tests & run them.")]
        assert await server.answers() == []


@pytest.mark.parametrize(
    ("text", "decision", "instruction"),
    [
        ("which file did you change?", Decision.RESUME, "which file did you change?"),
        ("write the docs, then stop", Decision.RESUME, "write the docs, then stop"),
        ("0000 write the docs", Decision.RESUME, "write the docs"),
        ("resume: write the docs", Decision.RESUME, "write the docs"),
        ("go on", Decision.RESUME, None),
        ("stop.", Decision.STOP, None),
    ],
)
def test_what_is_said_to_a_standby(text: str, decision: Decision, instruction: str | None) -> None:
    [waits] = cards(CardKind.STANDBY)
    assert to_cards(text, (waits,)) == Decides(waits.id, waits.kind, decision, instruction)


@pytest.mark.parametrize(
    "text",
    [
        *("approve", "yes", "no", "reject: too wide", "👍", "dismiss", "never mind", "-", "?!"),
        *("stop?", "don't resume yet", "please stop", "resume if the tests pass", "0000", "stop, then write the docs"),
    ],
)
def test_what_may_be_a_decision_is_no_instruction_to_a_standby(text: str) -> None:
    meaning = to_cards(text, cards(CardKind.STANDBY))
    assert isinstance(meaning, Answered)
    assert "`resume: what to do next`" in meaning.text


def test_words_to_a_standby_that_was_not_here_yet_and_to_one_of_two_are_asked_about() -> None:
    [waits] = cards(CardKind.STANDBY)
    assert isinstance(to_cards("write the docs", (waits,), frozenset({waits.id})), Answered)
    assert isinstance(to_cards("write the docs", cards(CardKind.STANDBY, CardKind.PROMPT)), Answered)
    assert isinstance(to_cards("write the docs", cards(CardKind.PROMPT)), Answered)


def cards(*kinds: CardKind) -> tuple[Card, ...]:
    return tuple(card(f"{number:04x}aaaa-1111", kind) for number, kind in enumerate(kinds))


@given(text=st.text(), kinds=st.lists(st.sampled_from(ANSWERED), max_size=4))
def test_whatever_is_said_about_whatever_is_open_is_settled(text: str, kinds: list[CardKind]) -> None:
    meaning = to_cards(text, cards(*kinds))
    if isinstance(meaning, Decides):
        assert len(kinds) == 1 or text.strip().lstrip("#`").casefold().startswith(meaning.card_id[:4])
        assert meaning.decision in CHOICES[meaning.kind]
    else:
        assert meaning is None or 0 < len(meaning.text) < 3000
        assert (meaning is not None) or not kinds


@given(text=st.text(), kind=st.sampled_from(ANSWERED), data=st.data())
def test_whatever_is_said_to_a_question_it_gives_the_decision_asked_for_or_none(
    text: str, kind: CardKind, data: st.DataObject
) -> None:
    decision: Decision = data.draw(st.sampled_from(CHOICES[kind]))
    meaning = to_question(text, card(CARD, kind), decision)
    assert isinstance(meaning, Answered) or meaning.decision is decision
