"""Forms: opened while the tap still allows it, asked for in the thread otherwise, and decided with their words."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import trio

from intercom.model.card import CardKind, CardState
from intercom.model.decision import Decided
from intercom.model.errors import DatabaseError
from intercom.operators.slack.button_actions import NotRecorded, draw_form, draw_notice
from intercom.operators.slack.buttons import BY_FORM
from intercom.operators.slack.web_api import RateLimited, SlackRefused, Unreachable
from intercom.store.store_and_reader import StoreUnavailable
from tests.operators.slack import payloads
from tests.operators.slack.draw.valid import Words, check_view
from tests.operators.slack.payloads import ANNA, BERT, CHANNEL, ROOT
from tests.operators.slack.server import CARD, SlackServer, slack_server
from tests.operators.stand_in_service import START, card

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
async def test_a_button_that_needs_words_opens_its_form(tmp_path: Path, action: str, kind: CardKind, form: str) -> None:
    async with slack_server(tmp_path, card(CARD, kind, body="the prompt")) as server:
        assert await server.tap(payloads.tap(action, CARD)) is None
        [opened] = server.slack.made("views.open")
        assert opened["trigger_id"] == "12321423423.333649436676.1700000100.000001"
        assert opened["view"]["callback_id"] == f"intercom_{form}"
        asked = opened["view"]["blocks"][-1]
        assert asked["element"].get("initial_value") == ("the prompt" if form == "refine" else None)
        assert ("the agent's question" in str(asked.get("hint"))) is (form == "refine")
        about = json.loads(opened["view"]["private_metadata"])
        assert about == {"card": CARD, "channel": CHANNEL, "thread": ROOT}
        assert server.decided == []
        assert await server.answers() == []


async def test_a_redelivered_tap_opens_no_second_form(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        for _ in range(2):
            await server.tap(payloads.tap("approve_reject", CARD))
        assert len(server.slack.made("views.open")) == 1
        server.slack.faults["views.open"] = [SlackRefused("views.open", "exchanged_trigger_id")]
        await server.again().handle("interactive", payloads.tap("approve_reject", CARD))
        assert await server.answers() == []


async def test_a_slow_look_at_the_card_does_not_cost_the_form(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:

        async def never(prefix: str) -> None:
            await trio.sleep_forever()

        server.service.card = never  # type: ignore[method-assign, assignment]
        with trio.fail_after(1):
            await server.tap(payloads.tap("approve_reject", CARD))
        assert len(server.slack.made("views.open")) == 1


async def test_no_form_opens_for_a_card_that_was_decided(tmp_path: Path) -> None:
    first = Decided("v-1", "approve", "bert", "ctl", START)
    done = attrs.evolve(card(CARD), state=CardState.APPROVED, decided=first)
    async with slack_server(tmp_path, done) as server:
        await server.tap(payloads.tap("approve_reject", CARD))
        assert server.slack.made("views.open") == []
        assert await server.ephemerals() == [
            "too late: bert approved it at 2026-11-21 12:00 UTC (ctl); nothing was changed"
        ]
        assert await server.redraws() == [CARD]


@pytest.mark.parametrize("fault", FAULTS)
async def test_where_no_form_opens_the_thread_is_asked_and_the_reply_decides(tmp_path: Path, fault: Exception) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.slack.faults["views.open"] = [fault]
        assert await server.tap(payloads.tap("approve_reject", CARD)) is None
        [asked] = await server.answers()
        assert asked.startswith(f"<@{ANNA}> the form could not be opened. Reply here with why it is rejected")
        row = await server.row(f"question/slack/{ANNA}/1700000100.000001")
        assert (row.thread, row.channel) == (ROOT, CHANNEL)
        assert server.decided == []
        await server.again().handle("events_api", payloads.said("it is &lt;too&gt; wide"))
        assert server.decided == [(CARD, "reject", "it is <too> wide")]
        assert server.service.acts[0][4] == f"anna ({ANNA})"


async def test_a_form_that_does_not_open_in_time_is_asked_for_in_the_thread(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.slack.slow["views.open"] = 60.0
        with trio.fail_after(3):
            await server.tap(payloads.tap("approve_reject", CARD))
        assert len(await server.answers()) == 1


async def test_a_question_is_asked_once_and_not_again_when_it_was_answered(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.slack.faults["views.open"] = [FAULTS[0], FAULTS[0]]
        await server.tap(payloads.tap("approve_reject", CARD))
        await server.say(payloads.said("never mind"))
        await server.again().handle("interactive", payloads.tap("approve_reject", CARD))
        assert len(await server.answers()) == 2
        assert await server.again().handle("events_api", payloads.said("too wide", ts="1700000300.000001")) is None
        assert server.decided == []


async def test_with_neither_form_nor_store_the_tap_comes_again(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.slack.faults["views.open"] = [FAULTS[0]]
        with pytest.raises(StoreUnavailable):
            await server.without_store().handle("interactive", payloads.tap("approve_reject", CARD))


async def question(server: SlackServer, action: str) -> None:
    server.slack.faults["views.open"] = [FAULTS[0]]
    await server.tap(payloads.tap(action, CARD))


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
async def test_the_reply_of_whoever_was_asked_is_the_text(
    tmp_path: Path, action: str, kind: CardKind, reply: str, expected: tuple[str, str | None] | None
) -> None:
    async with slack_server(tmp_path, card(CARD, kind)) as server:
        await question(server, action)
        await server.say(payloads.said(reply))
        assert server.decided == ([] if expected is None else [(CARD, *expected)])
        assert len(await server.answers()) == (2 if expected is None else 1)
        if expected is None:
            # What was not taken leaves the question open.
            await server.say(payloads.said("words: these", ts="1700000300.000001"))
            assert [decided[2] for decided in server.decided] == ["words: these"]


async def test_the_reply_of_somebody_else_is_not_the_text(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await question(server, "approve_reject")
        await server.say(payloads.said("looks good to me", BERT))
        assert server.decided == []
        await server.say(payloads.said("approve", BERT, ts="1700000300.000001"))
        assert server.decided == [(CARD, "approve", None)]


async def test_a_question_ends_with_its_card(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await question(server, "approve_reject")
        await server.tap(payloads.tap("approve_accept", CARD, BERT))
        await server.say(payloads.said("let us talk about lunch"))
        assert len(server.decided) == 1


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
async def test_a_form_decides_with_its_words(
    tmp_path: Path, form: str, kind: CardKind, text: str | None, decision: str
) -> None:
    async with slack_server(tmp_path, card(CARD, kind)) as server:
        for _ in range(2):
            assert await server.tap(payloads.submitted(form, CARD, text)) is None
        await server.again().handle("interactive", payloads.submitted(form, CARD, text))
        assert set(server.decided) == {(CARD, decision, text.strip() if text else None)}
        assert len(set(server.service.verdicts)) <= 1
        if kind is CardKind.STALL:
            assert len(server.decided) == 1


@pytest.mark.parametrize(("form", "text"), [("refine", "  "), ("refine", None), ("reject", "x" * 3001)])
async def test_words_that_do_not_do_are_complained_of_in_the_form(tmp_path: Path, form: str, text: str | None) -> None:
    kind = CardKind.PROMPT if form == "refine" else CardKind.APPROVAL
    async with slack_server(tmp_path, card(CARD, kind)) as server:
        answer = await server.tap(payloads.submitted(form, CARD, text))
        assert answer is not None
        assert answer["response_action"] == "errors"
        assert list(answer["errors"]) == ["text"]
        assert server.decided == []
        assert await server.tap(payloads.submitted(form, CARD, "better")) is None
        assert len(server.decided) == 1


async def test_a_form_that_still_holds_the_agents_own_question_is_complained_of(tmp_path: Path) -> None:
    question = "Shall I go on with <b> & c?"
    async with slack_server(tmp_path, card(CARD, CardKind.PROMPT, body=question)) as server:
        answered = await server.tap(payloads.submitted("refine", CARD, f" {question}\n"))
        assert "change it into what the agent should do" in json.dumps(answered)
        assert server.decided == []
        assert await server.tap(payloads.submitted("refine", CARD, f"{question} Yes.")) is None
        assert server.decided == [(CARD, "refine", f"{question} Yes.")]


async def test_a_form_sent_too_late_says_who_was_first(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        await server.tap(payloads.tap("approve_accept", CARD, BERT))
        answer = await server.tap(payloads.submitted("reject", CARD, "too wide"))
        assert answer is not None
        assert answer["response_action"] == "update"
        assert answer["view"]["title"]["text"] == "Too late"
        assert f"bert ({BERT}) approved it" in answer["view"]["blocks"][0]["text"]["text"]
        assert server.service.cards[CARD].state is CardState.APPROVED


async def test_a_form_that_could_not_be_recorded_is_not_acknowledged(tmp_path: Path) -> None:
    async with slack_server(tmp_path, card(CARD)) as server:
        server.service.down = [DatabaseError("the disk is full")]
        with pytest.raises(NotRecorded):
            await server.tap(payloads.submitted("reject", CARD, "too wide"))
        assert await server.tap(payloads.submitted("reject", CARD, "too wide")) is None
        assert server.decided == [(CARD, "reject", "too wide")]


def test_drawn_forms_are_masked_and_say_what_they_are_about() -> None:
    form = BY_FORM["refine"].form
    assert form is not None
    view = draw_form(form, card(CARD, CardKind.PROMPT, body="use hunter2"), "{}", Words("hunter2"))
    assert view["callback_id"] == "intercom_refine"
    assert view["private_metadata"] == "{}"
    assert "use [masked: test secret]" in json.dumps(view)
    notice = draw_notice("Too late", "bert &amp; co")
    check_view(notice)
    assert notice["blocks"][0]["text"]["text"] == "bert &amp; co"
    assert "submit" not in notice
