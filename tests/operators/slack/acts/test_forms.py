"""Forms: opened while the tap still allows it, asked for in the thread otherwise, and decided with their words."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import trio

from intercom.model.card import CardKind, CardState
from intercom.model.errors import DatabaseError
from intercom.model.verdict import Decided
from intercom.operators.slack.errors import RateLimited, SlackRefused, Unreachable
from intercom.operators.slack.forms import DrawnForms
from intercom.operators.slack.means import NotRecorded
from tests.operators.desk import START, card
from tests.operators.slack.acts import payloads
from tests.operators.slack.acts.house import CARD, House, open_house
from tests.operators.slack.acts.payloads import ANNA, BERT, CHANNEL, ROOT
from tests.support.trio_case import trio_test

FAULTS = [
    SlackRefused("views.open", "expired_trigger_id"),
    SlackRefused("views.open", "invalid_arguments"),
    RateLimited("views.open", 30),
    Unreachable("no network", maybe_done=False),
    Unreachable("no answer", maybe_done=True),
    RuntimeError("a mistake of ours"),
]


@pytest.mark.parametrize(
    ("action", "kind", "form"),
    [
        ("approve_reject", CardKind.APPROVAL, "reject"),
        ("prompt_refine", CardKind.PROMPT, "refine"),
        ("stall_nudge_instruct", CardKind.STALL, "nudge"),
        ("wait_resume_instruct", CardKind.STANDBY, "resume"),
    ],
)
@trio_test
async def test_a_button_that_needs_words_opens_its_form(tmp_path: Path, action: str, kind: CardKind, form: str) -> None:
    async with open_house(tmp_path, card(CARD, kind, body="the prompt")) as house:
        assert await house.tap(payloads.tap(action, CARD)) is None
        [opened] = house.web.made("views.open")
        assert opened["trigger_id"] == "12321423423.333649436676.1700000100.000001"
        assert opened["view"]["callback_id"] == f"intercom_{form}"
        assert opened["view"]["initial"] == "the prompt"
        about = json.loads(opened["view"]["private_metadata"])
        assert about == {"card": CARD, "channel": CHANNEL, "thread": ROOT}
        assert house.decided == []
        assert await house.answers() == []


@trio_test
async def test_a_redelivered_tap_opens_no_second_form(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        for _ in range(2):
            await house.tap(payloads.tap("approve_reject", CARD))
        assert len(house.web.made("views.open")) == 1
        house.web.faults["views.open"] = [SlackRefused("views.open", "exchanged_trigger_id")]
        await house.again().handle("interactive", payloads.tap("approve_reject", CARD))
        assert await house.answers() == []


@trio_test
async def test_a_slow_look_at_the_card_does_not_cost_the_form(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:

        async def never(prefix: str) -> None:
            await trio.sleep_forever()

        house.desk.card = never  # type: ignore[method-assign, assignment]
        with trio.fail_after(1):
            await house.tap(payloads.tap("approve_reject", CARD))
        assert len(house.web.made("views.open")) == 1


@trio_test
async def test_no_form_opens_for_a_card_that_was_decided(tmp_path: Path) -> None:
    first = Decided("v-1", "approve", "bert", "ctl", START)
    done = attrs.evolve(card(CARD), state=CardState.APPROVED, decided=first)
    async with open_house(tmp_path, done) as house:
        await house.tap(payloads.tap("approve_reject", CARD))
        assert house.web.made("views.open") == []
        assert await house.whispered() == [
            "too late: bert approved it at 2026-11-21 12:00 UTC (ctl); nothing was changed"
        ]
        assert await house.redraws() == [CARD]


@pytest.mark.parametrize("fault", FAULTS)
@trio_test
async def test_where_no_form_opens_the_thread_is_asked_and_the_reply_decides(tmp_path: Path, fault: Exception) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.web.faults["views.open"] = [fault]
        assert await house.tap(payloads.tap("approve_reject", CARD)) is None
        [asked] = await house.answers()
        assert asked.startswith(f"<@{ANNA}> the form could not be opened. Reply here with why it is rejected")
        row = await house.row(f"question/slack/{ANNA}/1700000100.000001")
        assert row is not None
        assert (row.thread, row.channel) == (ROOT, CHANNEL)
        assert house.decided == []
        await house.again().handle("events_api", payloads.said("it is &lt;too&gt; wide"))
        assert house.decided == [(CARD, "reject", "it is <too> wide")]
        assert house.desk.acts[0][4] == f"anna ({ANNA})"


@trio_test
async def test_a_form_that_does_not_open_in_time_is_asked_for_in_the_thread(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.web.slow["views.open"] = 60.0
        with trio.fail_after(3):
            await house.tap(payloads.tap("approve_reject", CARD))
        assert len(await house.answers()) == 1


@trio_test
async def test_a_question_is_asked_once_and_not_again_when_it_was_answered(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.web.faults["views.open"] = [FAULTS[0], FAULTS[0]]
        await house.tap(payloads.tap("approve_reject", CARD))
        await house.say(payloads.said("never mind"))
        await house.again().handle("interactive", payloads.tap("approve_reject", CARD))
        assert len(await house.answers()) == 2
        assert await house.again().handle("events_api", payloads.said("too wide", ts="1700000300.000001")) is None
        assert house.decided == []


@trio_test
async def test_with_neither_form_nor_store_the_tap_comes_again(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.web.faults["views.open"] = [FAULTS[0]]
        with pytest.raises(NotRecorded):
            await house.without_store().handle("interactive", payloads.tap("approve_reject", CARD))


@trio_test
async def test_a_button_with_the_beginning_of_an_id_opens_no_form(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_reject", CARD[:8]))
        assert house.web.made("views.open") == []
        assert len(await house.whispered()) == 1


async def question(house: House, action: str) -> None:
    house.web.faults["views.open"] = [FAULTS[0]]
    await house.tap(payloads.tap(action, CARD))


@pytest.mark.parametrize(
    ("action", "kind", "reply", "expected"),
    [
        ("approve_reject", CardKind.APPROVAL, "-", ("reject", None)),
        ("approve_reject", CardKind.APPROVAL, "no reason", ("reject", None)),
        ("approve_reject", CardKind.APPROVAL, "reject: too wide", ("reject", "too wide")),
        ("approve_reject", CardKind.APPROVAL, "stop using globals", ("reject", "stop using globals")),
        ("approve_reject", CardKind.APPROVAL, "approve", None),
        ("prompt_refine", CardKind.PROMPT, "only auth", ("refine", "only auth")),
        ("prompt_refine", CardKind.PROMPT, "-", None),
        ("prompt_refine", CardKind.PROMPT, "stop", None),
        ("prompt_refine", CardKind.PROMPT, "x" * 3001, None),
        ("wait_resume_instruct", CardKind.STANDBY, "write the docs", ("resume", "write the docs")),
        ("stall_nudge_instruct", CardKind.STALL, "go on?", ("nudge", "go on?")),
    ],
)
@trio_test
async def test_the_reply_of_whoever_was_asked_is_the_text(
    tmp_path: Path, action: str, kind: CardKind, reply: str, expected: tuple[str, str | None] | None
) -> None:
    async with open_house(tmp_path, card(CARD, kind)) as house:
        await question(house, action)
        await house.say(payloads.said(reply))
        assert house.decided == ([] if expected is None else [(CARD, *expected)])
        assert len(await house.answers()) == (2 if expected is None else 1)
        if expected is None:
            # What was not taken leaves the question open.
            await house.say(payloads.said("words: these", ts="1700000300.000001"))
            assert [decided[2] for decided in house.decided] == ["words: these"]


@trio_test
async def test_the_reply_of_somebody_else_is_not_the_text(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await question(house, "approve_reject")
        await house.say(payloads.said("looks good to me", BERT))
        assert house.decided == []
        await house.say(payloads.said("approve", BERT, ts="1700000300.000001"))
        assert house.decided == [(CARD, "approve", None)]


@trio_test
async def test_a_question_ends_with_its_card(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await question(house, "approve_reject")
        await house.tap(payloads.tap("approve_accept", CARD, BERT))
        await house.say(payloads.said("let us talk about lunch"))
        assert len(house.decided) == 1


@pytest.mark.parametrize(
    ("form", "kind", "text", "decision"),
    [
        ("reject", CardKind.APPROVAL, "too wide", "reject"),
        ("reject", CardKind.APPROVAL, None, "reject"),
        ("refine", CardKind.PROMPT, " only auth\n", "refine"),
        ("nudge", CardKind.STALL, "go on", "nudge"),
        ("resume", CardKind.STANDBY, "write the docs", "resume"),
    ],
)
@trio_test
async def test_a_form_decides_with_its_words(
    tmp_path: Path, form: str, kind: CardKind, text: str | None, decision: str
) -> None:
    async with open_house(tmp_path, card(CARD, kind)) as house:
        for _ in range(2):
            assert await house.tap(payloads.submitted(form, CARD, text)) is None
        await house.again().handle("interactive", payloads.submitted(form, CARD, text))
        assert set(house.decided) == {(CARD, decision, text.strip() if text else None)}
        assert len(set(house.desk.verdicts)) <= 1
        if kind is CardKind.STALL:
            assert len(house.decided) == 1


@pytest.mark.parametrize(("form", "text"), [("refine", "  "), ("refine", None), ("reject", "x" * 3001)])
@trio_test
async def test_words_that_do_not_do_are_complained_of_in_the_form(tmp_path: Path, form: str, text: str | None) -> None:
    kind = CardKind.PROMPT if form == "refine" else CardKind.APPROVAL
    async with open_house(tmp_path, card(CARD, kind)) as house:
        answer = await house.tap(payloads.submitted(form, CARD, text))
        assert answer is not None
        assert answer["response_action"] == "errors"
        assert list(answer["errors"]) == ["text"]
        assert house.decided == []
        assert await house.tap(payloads.submitted(form, CARD, "better")) is None
        assert len(house.decided) == 1


@trio_test
async def test_a_form_sent_too_late_says_who_was_first(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        await house.tap(payloads.tap("approve_accept", CARD, BERT))
        answer = await house.tap(payloads.submitted("reject", CARD, "too wide"))
        assert answer is not None
        assert answer["response_action"] == "update"
        assert answer["view"]["title"] == "Too late"
        assert f"bert ({BERT}) approved it" in answer["view"]["text"]
        assert house.desk.cards[CARD].state is CardState.APPROVED


@trio_test
async def test_a_form_that_could_not_be_recorded_is_not_acknowledged(tmp_path: Path) -> None:
    async with open_house(tmp_path, card(CARD)) as house:
        house.desk.down = [DatabaseError("the disk is full")]
        with pytest.raises(NotRecorded):
            await house.tap(payloads.submitted("reject", CARD, "too wide"))
        assert await house.tap(payloads.submitted("reject", CARD, "too wide")) is None
        assert house.decided == [(CARD, "reject", "too wide")]


class _Unmasked:
    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds = ()


class _Masker:
    def mask(self, text: str, /) -> _Unmasked:
        return _Unmasked(text.replace("hunter2", "*******"))


def test_drawn_forms_are_masked_and_say_what_they_are_about() -> None:
    forms = DrawnForms(_Masker())
    view = forms.form("refine", card(CARD, CardKind.PROMPT, body="use hunter2"), "{}")
    assert view["callback_id"] == "intercom_refine"
    assert view["private_metadata"] == "{}"
    assert "use *******" in json.dumps(view)
    notice = forms.notice("Too late", "bert &amp; co")
    assert notice["blocks"][0]["text"]["text"] == "bert &amp; co"
    assert "submit" not in notice
