"""The forms: filled in, left, left empty, sent too late; and the thread that is asked where none can be opened."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.slack.live.server import Work, at_work
from tests.slack import ALICE, BOB, CHANNEL, CannotDo, buttons, text_of


def field_of(view: dict[str, Any]) -> dict[str, Any]:
    """The field of a form."""
    (found,) = (block["element"] for block in view["blocks"] if block["type"] == "input")
    return dict(found)


async def a_rejection_with_its_reason_and_one_without(work: Work) -> None:
    asked, card = await work.propose("With a reason")
    assert await work.fill(card, "approve_reject", "wrong <file> & place") == {}
    answer = await asked()
    assert (answer["status"], answer["reason"]) == ("rejected", "wrong <file> & place")
    shown = await work.slack.shows(card["ts"], "Rejected by alice")
    assert "wrong &lt;file&gt; &amp; place" in text_of(shown) or "wrong <file> & place" in text_of(shown)
    assert buttons(shown) == []
    assert work.slack.views(ALICE) == []

    asked, card = await work.propose("Without a reason")
    await work.fill(card, "approve_reject", None)
    answer = await asked()
    assert answer["status"] == "rejected"


async def a_refinement_begins_with_the_question_and_needs_words(work: Work) -> None:
    asked, card = await work.asked("transmit", "everything?", prompt_text="All & everything?")
    await work.tap(card, "prompt_refine")
    [view] = work.slack.views(ALICE)
    assert field_of(view)["initial_value"] == "All & everything?"
    with pytest.raises(CannotDo, match="required"):
        work.slack.submit(ALICE, view, {"text": ""})
    refused = await work.slack.submit(ALICE, view, {"text": "   "}).answer()
    assert refused is not None
    assert refused["response_action"] == "errors"
    await work.slack.wait_for(lambda: work.slack.view_errors(ALICE))
    assert not asked.done
    assert buttons(work.slack.message(card["ts"])) == buttons(card)
    await work.slack.submit(ALICE, view, {"text": "only the tests"}).answer()
    answer = await asked()
    assert (answer["decision"], answer["instruction"]) == ("refine", "only the tests")
    shown = await work.slack.shows(card["ts"], "Refined by alice")
    assert "only the tests" in text_of(shown)


async def a_form_that_is_left_changes_nothing(work: Work) -> None:
    asked, card = await work.asked("standby", "And now?", message="And now?")
    await work.tap(card, "wait_resume_instruct")
    [view] = work.slack.views(ALICE)
    work.slack.close_view(ALICE, view)
    # Whoever looked first has no claim: the next to come may answer.
    assert buttons(work.slack.message(card["ts"])) == buttons(card)
    assert await work.fill(card, "wait_resume_instruct", "tidy up", BOB) == {}
    answer = await asked()
    assert (answer["status"], answer["instruction"]) == ("resumed", "tidy up")
    assert "Resumed by bob" in text_of(await work.slack.shows(card["ts"], "*Delivered*"))


async def a_form_that_is_sent_too_late_says_who_was_first(work: Work) -> None:
    asked, card = await work.propose("Slow writer")
    await work.tap(card, "approve_reject", BOB)
    [view] = work.slack.views(BOB)
    await work.tap(card, "approve_accept", ALICE)
    assert (await asked())["status"] == "approved"
    late = await work.slack.submit(BOB, view, {"text": "no!"}).answer()
    assert late is not None
    assert late["response_action"] == "update"
    [told] = await work.slack.wait_for(lambda: [one for one in work.slack.views(BOB) if "too late" in text_of(one)])
    assert "alice" in text_of(told)
    # And a form is not opened any more.
    await work.slack.tap(BOB, card, "approve_reject").answer()
    await work.slack.told(BOB, "too late")
    assert "Approved by alice" in text_of(await work.slack.shows(card["ts"], "*Delivered*"))


async def where_no_form_can_be_opened_the_thread_is_asked_and_its_reply_taken(work: Work) -> None:
    # An expired trigger: Slack opens no form for it.
    work.slack.plan("views.open", "refuse", error="expired_trigger_id", times=3)
    asked, card = await work.propose("Ask in the thread")
    await work.tap(card, "approve_reject")
    question = await work.slack.answered(card["thread_ts"], "the form could not be opened")
    assert f"<@{ALICE}>" in text_of(question)
    assert buttons(work.slack.message(card["ts"])) == buttons(card)
    # Somebody else's words are no answer to it, and not understood as anything else either.
    work.slack.say(BOB, CHANNEL, "perhaps later", thread_ts=card["thread_ts"])
    await work.slack.answered(card["thread_ts"], "not understood")
    assert not asked.done
    work.slack.say(ALICE, CHANNEL, "it is in the wrong <place>", thread_ts=card["thread_ts"])
    answer = await asked()
    assert (answer["status"], answer["reason"]) == ("rejected", "it is in the wrong <place>")
    assert "Rejected by alice" in text_of(await work.slack.shows(card["ts"], "Rejected by alice"))

    asked, card = await work.asked("transmit", "Which way?", prompt_text="Which way?")
    await work.tap(card, "prompt_refine")
    await work.slack.wait_for(lambda: _questions(work.slack.thread(CHANNEL, card["thread_ts"])) == 2)
    work.slack.say(ALICE, CHANNEL, "never mind", thread_ts=card["thread_ts"])
    await work.slack.answered(card["thread_ts"], "cancelled")
    assert not asked.done
    await work.tap(card, "prompt_refine")
    await work.slack.wait_for(lambda: _questions(work.slack.thread(CHANNEL, card["thread_ts"])) == 3)
    work.slack.say(ALICE, CHANNEL, "the short one", thread_ts=card["thread_ts"])
    assert (await asked())["instruction"] == "the short one"


def _questions(thread: list[dict[str, Any]]) -> int:
    return sum("the form could not be opened" in text_of(one) for one in thread)


@pytest.mark.real_time
async def test_forms_decide_as_buttons_do() -> None:
    async with at_work() as work:
        for step in (
            a_rejection_with_its_reason_and_one_without,
            a_refinement_begins_with_the_question_and_needs_words,
            a_form_that_is_left_changes_nothing,
            a_form_that_is_sent_too_late_says_who_was_first,
            where_no_form_can_be_opened_the_thread_is_asked_and_its_reply_taken,
        ):
            await step(work)
