"""Reading what Slack delivers: acts with ids that last, and nothing from what is broken, foreign or hostile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.card import CHOICES
from intercom.operators.slack.buttons import BUTTONS, BY_ACTION, BY_FORM
from intercom.operators.slack.envelope_parser import (
    TEXT_LIMIT,
    AmendmentSubmission,
    ButtonAction,
    Command,
    CommandsShown,
    FormSubmission,
    Ignored,
    Person,
    Step,
    ThreadReply,
    form_metadata,
    person_name,
    read,
)
from tests.operators.slack import payloads
from tests.operators.slack.payloads import ANNA, BOT, CHANNEL, MESSAGE, ROOT, TEAM

CARD = "3f0c6f5e-7a9b-4a53-9a51-0d0a2f9c1b11"

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


def test_a_tap_is_read() -> None:
    act = read("interactive", payloads.tap("approve_accept", CARD))
    assert act == ButtonAction(
        act_id=f"slack/{ANNA}/1700000100.000001",
        person=Person(ANNA, "anna"),
        team=TEAM,
        action_id="approve_accept",
        card_id=CARD,
        channel=CHANNEL,
        message=MESSAGE,
        thread=ROOT,
        trigger="12321423423.333649436676.1700000100.000001",
    )
    assert str(act.person) == f"anna ({ANNA})"
    assert act.within == ROOT


def test_a_tap_outside_of_threads_has_its_message_as_thread() -> None:
    act = read("interactive", payloads.tap("policy_accept", CARD, root=None))
    assert isinstance(act, ButtonAction)
    assert (act.thread, act.within) == (MESSAGE, None)


def test_a_tap_that_shows_commands_is_read() -> None:
    act = read("interactive", payloads.tap("approve_permit", CARD))
    assert act == CommandsShown(
        act_id=f"slack/{ANNA}/1700000100.000001",
        person=Person(ANNA, "anna"),
        team=TEAM,
        channel=CHANNEL,
        action_id="approve_permit",
        card_id=CARD,
        within=ROOT,
        response_url="https://hooks.slack.com/actions/T0TEAM/1/x",
    )
    assert isinstance(read("interactive", payloads.tap("approve_permit", "grant x --sha y")), Ignored)


def test_two_taps_are_two_acts_and_one_delivered_twice_is_one() -> None:
    first = read("interactive", payloads.tap("approve_accept", CARD))
    again = read("interactive", payloads.tap("approve_accept", CARD))
    later = read("interactive", payloads.tap("approve_accept", CARD, at="1700000100.000002"))
    other = read("interactive", payloads.tap("approve_accept", CARD, payloads.BERT))
    assert isinstance(first, ButtonAction)
    assert isinstance(later, ButtonAction)
    assert isinstance(other, ButtonAction)
    assert first == again
    assert len({first.act_id, later.act_id, other.act_id}) == 3


def test_a_form_is_read() -> None:
    act = read("interactive", payloads.submitted("reject", CARD, "too wide"))
    assert isinstance(act, FormSubmission)
    assert (act.form, act.card_id, act.channel) == ("reject", CARD, CHANNEL)
    assert (act.block, act.text, act.person) == ("text", "too wide", Person(ANNA, "anna"))


def test_a_form_left_empty_has_an_empty_text() -> None:
    act = read("interactive", payloads.submitted("reject", CARD, None))
    assert isinstance(act, FormSubmission)
    assert act.text == ""


def test_a_form_sent_again_with_other_words_is_another_act() -> None:
    ids = [
        act.act_id
        for text, view in (("a", "V1"), ("a", "V1"), ("b", "V1"), ("a", "V2"))
        if isinstance(act := read("interactive", payloads.submitted("refine", CARD, text, view=view)), FormSubmission)
    ]
    assert len(ids) == 4
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_a_command_is_read() -> None:
    act = read("slash_commands", payloads.command("list-files src"))
    assert act == Command(
        act_id="slack/1.2.3",
        person=Person(ANNA, "anna"),
        team=TEAM,
        channel=CHANNEL,
        command="/intercom",
        text="list-files src",
        response_url="https://hooks.slack.com/commands/T0TEAM/1/x",
    )


def test_a_reply_is_read_without_the_mention_of_the_app() -> None:
    act = read("events_api", payloads.said(f"<@{BOT}>, approve"))
    assert act == ThreadReply(
        act_id=f"slack/{CHANNEL}/1700000200.000300",
        person=Person(ANNA),
        team=TEAM,
        channel=CHANNEL,
        ts="1700000200.000300",
        thread=ROOT,
        text="approve",
    )
    assert str(act.person) == ANNA


def test_a_mention_of_somebody_else_stays() -> None:
    act = read("events_api", payloads.said("<@U0BERT> approve"))
    assert isinstance(act, ThreadReply)
    assert act.text == "<@U0BERT> approve"


@pytest.mark.parametrize(
    "payload",
    [
        payloads.said("approve", root=None),
        payloads.said("approve", ts=ROOT),
        payloads.said("approve", user=BOT),
        payloads.said("approve", bot_id="B0BOT"),
        payloads.said("approve", bot_profile={"id": "B0BOT"}),
        payloads.said("approve", subtype="bot_message"),
        payloads.said("approve", subtype="message_changed"),
        payloads.said("approve", subtype="message_deleted"),
        payloads.said("approve", subtype="file_share"),
        payloads.said("approve", edited={"user": ANNA, "ts": ROOT}),
        payloads.said("approve", type="reaction_added"),
    ],
)
def test_messages_that_are_no_persons_new_reply_are_ignored(payload: dict[str, Any]) -> None:
    assert isinstance(read("events_api", payload), Ignored)


def test_a_reply_also_sent_to_the_channel_is_a_reply() -> None:
    assert isinstance(read("events_api", payloads.said("approve", subtype="thread_broadcast")), ThreadReply)


@pytest.mark.parametrize("card", ["", "../../etc", "a b", "x" * 200, "<!channel>", "a/b", 7, None, [], "a\n", "-a"])
def test_a_button_with_an_impossible_card_id_is_ignored(card: Any) -> None:
    assert isinstance(read("interactive", payloads.tap("approve_accept", card)), Ignored)


@pytest.mark.parametrize("action", ["approve", "", "APPROVE_ACCEPT", None, 3, {}, "link"])
def test_a_tap_on_something_else_is_ignored(action: Any) -> None:
    assert isinstance(read("interactive", payloads.tap(action, CARD)), Ignored)


@pytest.mark.parametrize("metadata", ["", "{", "[]", "null", '{"card": 1}', "[" * 5000, None, {}])
def test_a_form_that_does_not_say_what_it_is_about_is_ignored(metadata: Any) -> None:
    payload = payloads.submitted("reject", CARD, "x")
    payload["view"]["private_metadata"] = metadata
    assert isinstance(read("interactive", payload), Ignored)


def test_a_name_is_one_short_printable_line() -> None:
    payload = payloads.tap("approve_accept", CARD)
    payload["user"]["name"] = " an\nna\x00\u202e\ud800 " + "x" * 10_000
    act = read("interactive", payload)
    assert isinstance(act, ButtonAction)
    assert act.person.name.startswith("an na x")
    assert act.person.name.isprintable()
    assert len(act.person.name) <= 80


def test_long_and_broken_texts_can_be_stored() -> None:
    act = read("events_api", payloads.said("a\x00\ud800" + "b" * 10**6))
    assert isinstance(act, ThreadReply)
    assert act.text.startswith("a?b")
    assert len(act.text) <= TEXT_LIMIT
    act.text.encode("utf-8")


def amending(step: str, metadata: str, **inputs: Any) -> dict[str, Any]:
    """A submission of a form about a part of a proposal."""
    sent = payloads.submitted(step, CARD, None)
    values = {
        block: {
            "x": {"type": "checkboxes", "selected_options": [{"value": each} for each in value]}
            if isinstance(value, list)
            else {"type": "plain_text_input", "value": value}
        }
        for block, value in inputs.items()
    }
    sent["view"] |= {"private_metadata": metadata, "state": {"values": values}}
    return sent


def test_the_forms_about_a_part_of_a_proposal_are_read() -> None:
    about = form_metadata(CARD, CHANNEL, ROOT, shown="ab")
    first = read("interactive", amending("hunks", about, hunks0=["3", "1"], hunks1=["12"]))
    assert isinstance(first, AmendmentSubmission)
    assert (first.step, first.card_id, first.shown, first.hunks) == (Step.HUNKS, CARD, "ab", (1, 3, 12))
    about = form_metadata(CARD, CHANNEL, "", shown="cd", hunks=(12, 1, 3))
    second = read("interactive", amending("approve_hunks", about, note="why", hunks0=["5"]))
    assert isinstance(second, AmendmentSubmission)
    assert (second.step, second.shown, second.hunks, second.note) == (Step.APPROVE, "cd", (1, 3, 12), "why")
    assert first.act_id != second.act_id
    again = read("interactive", amending("approve_hunks", about, note="why", hunks0=["5"]))
    assert again == second


@pytest.mark.parametrize(
    "hostile",
    [
        amending("hunks", form_metadata(CARD, CHANNEL, ROOT), hunks0=["x"]),
        amending("hunks", form_metadata(CARD, CHANNEL, ROOT), hunks0=["-1"]),
        amending("hunks", '{"card": ["x"]}', hunks0=["1"]),
        amending("hunks", "[" * 3000),
        amending("changes", "null", comments="x"),
        amending("approve_hunks", '{"card": "abcdefgh", "hunks": "1;2"}'),
        amending("approve", form_metadata(CARD, CHANNEL, ROOT)),
    ],
)
def test_forms_about_a_part_that_are_not_ours_are_nothing(hostile: dict[str, Any]) -> None:
    assert isinstance(read("interactive", hostile), Ignored)


@given(json, json, st.sampled_from(list(Step)))
def test_any_form_about_a_part_is_read_or_ignored(values: Any, metadata: Any, step: Step) -> None:
    sent = payloads.submitted(step.value, CARD, None)
    sent["view"] |= {"private_metadata": str(metadata), "state": {"values": values}}
    assert isinstance(read("interactive", sent), Ignored)
    sent["view"] |= {"private_metadata": form_metadata(CARD, CHANNEL, ROOT), "state": {"values": {"hunks0": values}}}
    assert isinstance(read("interactive", sent), Ignored | AmendmentSubmission)


def test_every_button_gives_a_decision_that_its_card_takes() -> None:
    assert all(button.decision in CHOICES[button.kind] for button in BUTTONS)
    assert len(BY_ACTION) == len(BUTTONS)
    assert set(BY_FORM) == {"reject", "refine", "nudge", "resume"}
    offered = {(button.kind, button.decision) for button in BUTTONS}
    assert offered == {(kind, decision) for kind, decisions in CHOICES.items() for decision in decisions}


def test_a_name_is_found_in_the_answer_about_a_user() -> None:
    assert person_name({"ok": True, "user": {"id": ANNA, "name": "anna"}}) == "anna"
    assert person_name({"ok": True}) == ""


@given(kind=st.sampled_from(["interactive", "slash_commands", "events_api", "hello", ""]), payload=json)
def test_nothing_is_read_from_noise(kind: str, payload: Any) -> None:
    assert isinstance(read(kind, payload), Ignored)


WHOLE = [
    ("interactive", payloads.tap("approve_accept", CARD)),
    ("interactive", payloads.tap("approve_permit", CARD)),
    ("interactive", payloads.submitted("refine", CARD, "words")),
    ("slash_commands", payloads.command("help")),
    ("events_api", payloads.said("approve")),
]


@given(which=st.sampled_from(WHOLE), data=st.data())
def test_a_payload_with_any_part_replaced_is_read_or_ignored(which: tuple[str, Any], data: st.DataObject) -> None:
    kind, payload = which[0], copy.deepcopy(which[1])
    place: Any = payload
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    if isinstance(place, dict) and data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(json)
    act = read(kind, payload)
    assert isinstance(act, Ignored) or len(act.act_id) < 600
