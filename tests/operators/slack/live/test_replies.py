"""Replies in a thread: understood they decide, not understood they are answered, and nothing is guessed."""

from __future__ import annotations

import pytest

from tests.operators.slack.live.server import Work, at_work
from tests.slack import ALICE, BOB, CHANNEL, buttons, text_of

pytestmark = pytest.mark.real_time


async def words_decide_as_buttons_do(work: Work) -> None:

    def say(card: dict[str, object], text: str, user: str = ALICE) -> None:
        work.slack.say(user, CHANNEL, text, thread_ts=str(card["thread_ts"]))

    asked, card = await work.propose("Words")
    say(card, "Yes, please!")
    assert (await asked())["status"] == "approved"
    assert "Approved by alice in Slack" in text_of(await work.slack.shows(card["ts"], "*Delivered*"))

    asked, card = await work.propose("More words")
    say(card, "reject: not on a Friday", BOB)
    assert (await asked())["reason"] == "not on a Friday"

    asked, card = await work.asked("transmit", "Which?", prompt_text="Which?")
    say(card, "refine the left one, & quickly")
    answer = await asked()
    assert (answer["decision"], answer["instruction"]) == ("refine", "the left one, & quickly")

    asked, card = await work.asked("standby", "Done.", message="Done.")
    say(card, "resume: tidy up, then https://example.com/x")
    assert (await asked())["instruction"] == "tidy up, then https://example.com/x"


async def what_is_not_understood_is_answered_and_the_request_stays_open(work: Work) -> None:
    asked, card = await work.propose("Doubtful")
    thread = card["thread_ts"]
    for doubtful in ("aprove", "approve?", "don't approve", "yes if the tests pass"):
        said = len(work.slack.thread(CHANNEL, thread))
        work.slack.say(ALICE, CHANNEL, doubtful, thread_ts=thread)
        # The reply itself, and ours.
        await work.slack.wait_for(lambda said=said: len(work.slack.thread(CHANNEL, thread)) >= said + 2)
    answers = [one for one in work.slack.thread(CHANNEL, thread) if "not understood" in text_of(one)]
    assert len(answers) == 4
    assert all("`approve`" in text_of(one) for one in answers)
    assert not asked.done
    assert buttons(work.slack.message(card["ts"])) == buttons(card)
    work.slack.say(ALICE, CHANNEL, "approve", thread_ts=thread)
    assert (await asked())["status"] == "approved"
    # Nothing waits any more: who decides all the same is told so, and other words are for the agent.
    work.slack.say(ALICE, CHANNEL, "nice work", thread_ts=thread)
    queued = await work.slack.first(lambda one: "nice work" in text_of(one) and "Queued" in text_of(one))
    assert queued["thread_ts"] == thread
    (told,) = (await work.call("ping"))["instructions"]
    assert (told["kind"], told["text"]) == ("steer", "nice work")
    await work.slack.shows(queued["ts"], "✅ Delivered")
    work.slack.say(ALICE, CHANNEL, "approve", thread_ts=thread)
    await work.slack.answered(thread, "nothing waits for an answer")
    await work.slack.acted_on()
    assert [one for one in work.slack.thread(CHANNEL, thread) if "not understood" in text_of(one)] == answers


async def test_of_several_open_cards_the_reply_names_one() -> None:
    async with at_work() as work, work.server.home.person(work.workspace) as person:
        first, card = await work.propose("One", file_path="one.txt")
        second, _ = await work.propose("Two", file_path="two.txt")
        two = await person.card(title="Two")
        work.slack.say(ALICE, CHANNEL, "approve", thread_ts=card["thread_ts"])
        answer = await work.slack.answered(card["thread_ts"], "2 cards are open here")
        assert f"`{two['request_id'][:8]}`" in text_of(answer)
        assert [first.done, second.done] == [False, False]
        work.slack.say(ALICE, CHANNEL, f"{two['request_id'][:8]} approve", thread_ts=card["thread_ts"])
        assert (await second())["status"] == "approved"
        assert not first.done
        work.slack.say(ALICE, CHANNEL, "no", thread_ts=card["thread_ts"])
        assert (await first())["status"] == "rejected"


async def what_is_said_elsewhere_decides_nothing(work: Work) -> None:
    asked, card = await work.propose("Stay")
    lines = [
        work.slack.say(ALICE, CHANNEL, "approve"),
        work.slack.say(ALICE, CHANNEL, "Lunch?"),
    ]
    work.slack.say(BOB, CHANNEL, "yes", thread_ts=lines[1]["ts"])
    edited = work.slack.say(ALICE, CHANNEL, "hm", thread_ts=card["thread_ts"])
    await work.slack.answered(card["thread_ts"], "not understood")
    work.slack.edit(ALICE, edited["ts"], "approve")
    await work.slack.acted_on()
    assert not asked.done
    assert buttons(work.slack.message(card["ts"])) == buttons(card)
    await work.tap(card, "approve_accept")
    await asked()


async def test_replies_decide_where_they_are_beyond_doubt() -> None:
    async with at_work() as work:
        for step in (
            words_decide_as_buttons_do,
            what_is_not_understood_is_answered_and_the_request_stays_open,
            what_is_said_elsewhere_decides_nothing,
        ):
            await step(work)
