"""Each button a card can have, tapped by a person, and what the agent, the card and everybody else come to know."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from intercom.model.card import CardKind
from intercom.operators.slack.buttons import BY_KIND
from tests.operators.slack.live.server import CONFIG, Work, at_work, server_in_slack
from tests.slack import ALICE, BOB, CHANNEL, MALLORY, buttons, text_of

pytestmark = pytest.mark.real_time

#: An agent counts as stalled after a second, is nudged a second later, and given up after that.
STALLING = f"{CONFIG}[stall]\ninactivity_threshold_seconds = 1\n"
SLOW_TO_ESCALATE = f"{STALLING}escalation_threshold_seconds = 600\n"
QUICK_TO_ESCALATE = f'{STALLING}escalation_threshold_seconds = 0.3\nmax_retries = 1\ndefault_nudge_message = "go on"\n'


def of(kind: CardKind) -> list[str]:
    """The buttons of this kind of card."""
    return sorted(button.action_id for button in BY_KIND[kind])


async def every_button_without_a_form_of_what_an_agent_asks(work: Work) -> None:
    asked, card = await work.propose("Yes, this")
    assert sorted(buttons(card)) == of(CardKind.APPROVAL)
    await work.tap(card, "approve_accept")
    assert (await asked())["status"] == "approved"

    for action, decision, headline in (
        ("prompt_continue", "continue", "Continued by alice"),
        ("prompt_stop", "stop", "Stopped by alice"),
    ):
        asked, card = await work.asked("transmit", f"How about {action}?", prompt_text=f"How about {action}?")
        assert sorted(buttons(card)) == of(CardKind.PROMPT)
        await work.tap(card, action)
        assert (await asked())["decision"] == decision
        shown = await work.slack.shows(card["ts"], "*Delivered*")
        assert headline in text_of(shown)
        assert buttons(shown) == []

    for action, instruction, headline in (
        ("wait_resume", None, "Resumed by bob"),
        ("wait_stop", "stop", "Stopped by bob"),
    ):
        asked, card = await work.asked("standby", f"Idle before {action}", message=f"Idle before {action}")
        assert sorted(buttons(card)) == of(CardKind.STANDBY)
        await work.tap(card, action, BOB)
        answer = await asked()
        assert (answer["status"], answer.get("instruction")) == ("resumed", instruction)
        shown = await work.slack.shows(card["ts"], "*Delivered*")
        assert headline in text_of(shown)


async def _stalled(work: Work, seen: set[str]) -> dict[str, Any]:
    """The card of an alert that was not seen before, waited for."""
    found = await work.slack.first(lambda one: "stall_nudge" in buttons(one) and one["ts"] not in seen)
    seen.add(found["ts"])
    return found


async def test_every_button_of_an_alert() -> None:
    async with at_work(SLOW_TO_ESCALATE) as work:
        seen: set[str] = set()
        await work.call("ping")
        alert = await _stalled(work, seen)
        assert sorted(buttons(alert)) == of(CardKind.STALL)
        assert "Quiet for" in text_of(alert)
        await work.tap(alert, "stall_nudge")
        await work.slack.shows(alert["ts"], "goes with the agent's next call")
        answer = await work.call("ping")
        assert answer["instructions"][0]["kind"] == "nudge"
        assert "Pick up where you left off" in answer["instructions"][0]["text"]
        closed = await work.slack.shows(alert["ts"], "the agent is back")
        assert buttons(closed) == []

        alert = await _stalled(work, seen)
        await work.fill(alert, "stall_nudge_instruct", "look at the log")
        await work.slack.shows(alert["ts"], "goes with the agent's next call")
        answer = await work.call("ping")
        assert answer["instructions"] == [{"kind": "nudge", "text": "look at the log"}]

        alert = await _stalled(work, seen)
        await work.tap(alert, "stall_dismiss")
        dismissed = await work.slack.shows(alert["ts"], "dismissed")
        assert buttons(dismissed) == []

        await work.call("ping")
        alert = await _stalled(work, seen)
        await work.tap(alert, "stall_stop")
        await work.slack.shows(alert["ts"], "dismissed")
        await work.slack.shows(alert["thread_ts"], "ended")
        assert (await work.call("transmit", prompt_text="Hello?"))["error_code"] == "invalid_state"


async def test_an_alert_that_nobody_answers_calls_everybody_in_the_end() -> None:
    async with at_work(QUICK_TO_ESCALATE) as work:
        await work.call("ping")
        alert = await _stalled(work, set())
        await work.slack.shows(alert["ts"], "Still quiet after 1 nudge")
        call_ = await work.slack.first(lambda one: "<!channel> 📣 *escalated*" in text_of(one))
        assert call_["thread_ts"] == alert["thread_ts"]
        answer = await work.call("ping")
        assert answer["instructions"] == [{"kind": "nudge", "text": "go on"}]
        await work.slack.shows(alert["ts"], "the agent is back")


async def a_policy_that_grants_more_is_accepted_and_refused_in_slack(work: Work) -> None:
    file = work.workspace / ".intercom" / "settings.json"
    file.parent.mkdir()
    await work.call("ping")
    file.write_text(json.dumps({"enabled": True, "commands": ["make *"]}))
    assert not (await work.call("auto_check", tool_name="make", context={"args": "test"}))["auto_approved"]
    card = await work.slack.card("Nobody has accepted this policy here")
    assert sorted(buttons(card)) == of(CardKind.POLICY)
    assert "thread_ts" not in card
    assert "make *" in text_of(card)
    await work.tap(card, "policy_accept")
    accepted = await work.slack.shows(card["ts"], "Accepted by alice")
    assert buttons(accepted) == []
    assert (await work.call("auto_check", tool_name="make", context={"args": "test"}))["auto_approved"]

    file.write_text(json.dumps({"enabled": True, "commands": ["make *", "rm *"]}))
    assert not (await work.call("auto_check", tool_name="rm", context={"args": "x"}))["auto_approved"]
    card = await work.slack.card("rm *")
    # Two people at once: the first wins, the other hears who it was.
    first = work.slack.tap(BOB, card["ts"], "policy_reject")
    second = work.slack.tap(ALICE, card["ts"], "policy_accept")
    await first.answer()
    await second.answer()
    shown = await work.slack.first(
        lambda one: one["ts"] == card["ts"] and "in Slack" in text_of(one) and not buttons(one)
    )
    rejected = "Rejected by bob" in text_of(shown)
    told = await work.slack.told(ALICE if rejected else BOB, "too late")
    assert ("bob" if rejected else "alice") in told["text"]
    granted = (await work.call("auto_check", tool_name="rm", context={"args": "x"}))["auto_approved"]
    assert granted is not rejected


async def test_an_apply_that_stopped_half_way_is_given_up_in_slack() -> None:
    async with server_in_slack() as server, trio.open_nursery() as nursery:
        with server.alone():
            workspace = server.home.workspace()
            (workspace / "a.txt").write_text("old\n")
            with server.serving(INTERCOM_FAULT="kill:journal.committed:1") as process:
                async with server.home.agent(workspace) as agent:
                    work = Work(server, agent, workspace, nursery)
                    asked, card = await work.propose("Renew", diff="new\n", file_path="a.txt")
                    await work.tap(card, "approve_accept")
                    answer = await asked()
                    applied = work.ask("check_diff", request_id=answer["request_id"])
                    await trio.to_thread.run_sync(process.wait)
                    (workspace / "a.txt").write_text("neither\n")
                    with server.serving():
                        # The agent's call comes again, and the card is closed and opened for it once more.
                        assert (await applied())["error_code"] == "apply_stuck"
                        stuck = await server.slack.card("Stopped half-way: Renew")
                        assert buttons(stuck) == of(CardKind.APPLY)
                        await work.tap(stuck, "apply_dismiss")
                        assert buttons(await server.slack.shows(stuck["ts"], "Closed")) == []
                        assert (workspace / "a.txt").read_text() == "neither\n"
                        assert len([one for one in server.slack.messages() if "Stopped half-way" in text_of(one)]) == 1
                        nursery.cancel_scope.cancel()


async def of_two_people_at_once_one_decides_and_the_other_is_told_who(work: Work) -> None:
    asked, card = await work.asked("transmit", "Which of you?", prompt_text="Which of you?")
    taps = {ALICE: "prompt_continue", BOB: "prompt_stop"}
    acts = [work.slack.tap(user, card["ts"], action) for user, action in taps.items()]
    for act in acts:
        await act.answer()
    decision = (await asked())["decision"]
    winner, loser = (ALICE, BOB) if decision == "continue" else (BOB, ALICE)
    told = await work.slack.told(loser, "too late")
    assert winner in told["text"]
    shown = await work.slack.shows(card["ts"], "*Delivered*")
    assert winner in text_of(shown)
    assert work.slack.ephemerals(winner) == []


async def test_a_card_decided_on_the_terminal_closes_in_slack_and_the_other_way_round() -> None:
    async with at_work() as work, work.server.home.person(work.workspace) as person:
        asked, card = await work.propose("On the terminal")
        there = await person.card(kind="approval")
        await person.do("reject", id=there["request_id"], reason="not this way")
        assert (await asked())["reason"] == "not this way"
        closed = await work.slack.shows(card["ts"], "Rejected by")
        assert "on the terminal" in text_of(closed)
        assert "not this way" in text_of(closed)
        assert buttons(closed) == []
        # Somebody's phone still shows the buttons.
        await work.slack.tap(BOB, card, "approve_accept").answer()
        told = await work.slack.told(BOB, "too late")
        assert "rejected it" in told["text"]

        asked, card = await work.asked("transmit", "In Slack?", prompt_text="In Slack?")
        await work.tap(card, "prompt_continue")
        await asked()
        ended = await person.card(lambda one: one["status"] != "pending", kind="prompt")
        assert ended["decided"]["by"] == f"alice ({ALICE})"
        late = await person.say("answer", id=ended["request_id"], decision="stop")
        assert late["error_code"] == "already_decided"


async def test_who_is_not_authorized_is_not_answered_and_goes_on_record() -> None:
    async with at_work() as work, work.server.home.person(work.workspace) as person:
        asked, card = await work.propose("Mine alone")
        for action in ("approve_accept", "approve_reject"):
            await work.tap(card, action, MALLORY)
        work.slack.say(MALLORY, CHANNEL, "approve", thread_ts=card["thread_ts"])
        assert not await work.slack.command(MALLORY, CHANNEL, "sessions").answer()
        await work.slack.acted_on()
        assert not asked.done
        assert work.slack.views(MALLORY) == []
        assert work.slack.ephemerals(MALLORY) == []
        assert buttons(work.slack.message(card["ts"])) == buttons(card)
        entries = (await person.do("log", limit=50))["entries"]
        security = [entry["summary"] for entry in entries if entry["kind"] == "security"]
        assert sorted(one.split(" in Slack")[0] for one in security) == [
            "ignored a click",
            "ignored a click",
            "ignored a command",
            "ignored a reply",
        ]
        assert all(MALLORY in one and "not authorized" in one for one in security)
        await work.tap(card, "approve_accept")
        assert (await asked())["status"] == "approved"


async def test_what_is_tapped_is_done() -> None:
    async with at_work() as work:
        for step in (
            every_button_without_a_form_of_what_an_agent_asks,
            of_two_people_at_once_one_decides_and_the_other_is_told_who,
            a_policy_that_grants_more_is_accepted_and_refused_in_slack,
        ):
            await step(work)
