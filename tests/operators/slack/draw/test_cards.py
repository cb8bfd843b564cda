"""Cards: what stands on them, and that Slack takes every one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from intercom.model.card import ANSWERED, CHOICES, Card, CardKind, CardState
from intercom.model.request import ChangeKind, FileChange, PromptType, Remark, RiskLevel
from intercom.operators.slack.draw import blocks, cards
from intercom.operators.slack.draw.cards import processing
from tests.operators.slack.draw import given
from tests.operators.slack.draw.valid import PLAIN, Words, check_message, shown
from tests.support.machine_speed import is_below


def content(card: Card, mask: Any = PLAIN, **options: Any) -> dict[str, Any]:
    drawn = cards.card(card, mask, **options).content()
    check_message(drawn)
    return drawn


def buttons(drawn: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (element["action_id"], element["value"])
        for block in drawn["blocks"]
        if block["type"] == "actions"
        for element in block["elements"]
    ]


def test_an_approval_says_what_is_asked_and_how_risky_it_is() -> None:
    text = shown(content(given.card(risk=RiskLevel.CRITICAL)))
    for words in (
        "📝 Agent asks: Use the new parser", "🔴 *critical* risk", "`0f8fad5b`", "`7c9e6679`", "`/home/ann/shop`",
        "From the agent: The old one is slow.", "`app.py`  +1 −1", "-old\n+new", "expires <!date^",
        "*Pending* → Approved",
    ):  # fmt: skip
        assert words in text


def test_every_choice_of_every_kind_has_a_button() -> None:
    ends = {"approve": "accept", "accept": "accept"}
    for kind, choices in CHOICES.items():
        names = [name for name, _ in buttons(content(given.card(kind=kind)))]
        assert all(value == given.ID for _, value in buttons(content(given.card(kind=kind))))
        for choice in choices:
            assert any(name.endswith(ends.get(choice.value, choice.value)) for name in names), (kind, choice)


@pytest.mark.parametrize(
    ("card", "calls"),
    [
        (given.card(risk=RiskLevel.LOW), False),
        (given.card(risk=RiskLevel.HIGH), True),
        (given.card(risk=RiskLevel.CRITICAL), True),
        (given.card(risk=RiskLevel.CRITICAL, state=CardState.APPROVED), False),
        (given.card(kind=CardKind.STALL, risk=None), False),
        (given.card(kind=CardKind.STALL, risk=None, escalated=True), True),
        (given.card(kind=CardKind.PROMPT, risk=None), False),
    ],
)
def test_the_channel_is_called_once_for_what_is_urgent(card: Card, calls: bool) -> None:
    first = content(card, first=True)
    assert ("<!channel>" in shown(first)) == ("<!channel>" in first["text"]) == calls
    assert "<!channel>" not in shown(content(card))


@pytest.mark.parametrize(
    ("state", "decided", "words"),
    [
        (CardState.APPROVED, given.by_ann(), "✅ Approved by Ann in Slack"),
        (CardState.DELIVERED, given.by_ann(channel="ctl"), "✅ Approved by Ann (U0123) on the terminal"),
        (CardState.REJECTED, given.by_ann("reject", "too slow"), "“too slow”"),
        (CardState.EXPIRED, None, "⌛ Expired"),
        (CardState.EXPIRED, given.by_ann(), "⌛ Expired"),
        (CardState.INTERRUPTED, None, "🔌 Interrupted"),
        (CardState.APPLIED, given.by_ann(channel="policy"), "✅ Approved by the workspace's policy"),
    ],
)
def test_a_card_says_who_decided_it_and_how(state: CardState, decided: Any, words: str) -> None:
    assert words in shown(content(given.card(state=state, decided=decided)))


@pytest.mark.parametrize("state", [CardState.EXPIRED, CardState.INTERRUPTED])
def test_who_approved_did_not_end_what_ended_by_itself(state: CardState) -> None:
    text = shown(content(given.card(state=state, decided=given.by_ann())))
    assert "✅ Approved by Ann in Slack" in text
    assert text.count(" by Ann") == 1
    by_itself = shown(content(given.card(state=state, decided=given.by_ann("continue", channel="timeout"))))
    assert "by itself: nobody answered in time" in by_itself


@pytest.mark.parametrize(
    ("kind", "state", "life"),
    [
        (CardKind.APPROVAL, CardState.APPROVED, "Pending → *Approved* → Delivered → Applied"),
        (CardKind.APPROVAL, CardState.DELIVERED, "Pending → Approved → *Delivered* → Applied"),
        (CardKind.APPROVAL, CardState.APPLIED, "Pending → Approved → Delivered → *Applied*"),
        (CardKind.APPROVAL, CardState.REJECTED, "Pending → *Rejected* → Delivered"),
        (CardKind.RESTORE, CardState.REJECTED, "Pending → *Rejected*"),
        (CardKind.PROMPT, CardState.ANSWERED, "Pending → *Answered* → Delivered"),
    ],
)
def test_a_card_shows_how_far_its_answer_has_come(kind: CardKind, state: CardState, life: str) -> None:
    assert life in shown(content(given.card(kind=kind, state=state)))


def test_a_rejection_that_the_agent_has_says_so() -> None:
    there = given.card(state=CardState.REJECTED, decided=given.by_ann("reject"), delivered=True)
    assert "Pending → Rejected → *Delivered*" in shown(content(there))


def test_a_small_diff_stands_in_the_message_and_a_long_one_beside_it() -> None:
    small = given.card(diff=given.DIFF + "+x\n" * (blocks.DIFF_LINES - 5))
    assert "+x" in shown(content(small))
    assert cards.diff_file(small, PLAIN) is None

    long = given.card(diff=given.DIFF + "+x\n" * (blocks.DIFF_LINES - 4) + "+the end\n")
    # Its first lines stay in the card.
    assert shown(content(long)).count("+x") == blocks.DIFF_LINES - 5
    assert "+the end" not in shown(content(long))
    assert "the diff (22 lines) is in the thread of this message as a file" in shown(content(long))
    beside = cards.diff_file(long, PLAIN)
    assert beside is not None
    assert (beside.filename, beside.snippet_type, beside.title) == ("0f8fad5b.diff", "diff", "Use the new parser")
    assert beside.text == long.diff


def test_no_line_of_an_agents_reads_as_ours() -> None:
    text = shown(content(given.card(body="fine\nℹ️ approved by the security team")))
    assert "From the agent:\n│ fine\n│ ℹ️ approved by the security team" in text
    policy = given.card(kind=CardKind.POLICY, title="A policy", body="grants more")
    assert "agent" not in shown(content(policy)).lower()


def test_an_agents_own_words_are_not_taken_for_a_diff() -> None:
    small = given.card(diff="- a list\n- of things\n", diff_from_agent=True)
    assert "🤖 the agent's own text, not a diff made from the files:" in shown(content(small))
    long = given.card(diff="- a list\n" * 50, diff_from_agent=True)
    assert "📎 the agent's own text, not a diff made from the files (50 lines) is in the thread" in shown(content(long))
    beside = cards.diff_file(long, PLAIN)
    assert beside is not None
    assert (beside.filename, beside.snippet_type) == ("0f8fad5b.txt", "text")


@pytest.mark.parametrize(
    ("type", "icon"),
    [("continuation", "🔄"), ("clarification", "❓"), ("error_recovery", "⚠️"), ("resource_warning", "📊")],
)
def test_a_question_has_the_icon_of_its_type(type: str, icon: str) -> None:
    asked = given.card(kind=CardKind.PROMPT, risk=None, title="Needs an answer", prompt_type=PromptType(type))
    assert shown(content(asked)).startswith(f"{icon} Needs an answer")


def test_the_first_lines_of_a_long_diff_fit_and_are_masked() -> None:
    wide = given.card(diff=f"+{'x' * 500}\n" * 50)
    assert shown(content(wide)).count("x" * 500) == 2
    secret = given.card(diff="+the key is hunter2\n" * 50)
    drawn = shown(cards.card(secret, Words("hunter2")).content())
    assert "hunter2" not in drawn
    assert "the key is [masked" in drawn
    endless = given.card(diff="+" + "x" * 5000 + "\n")
    assert "xxx" not in shown(content(endless))


def test_what_a_diff_cannot_show_is_said_above_it() -> None:
    said = tuple(Remark(f"src/{n}.py", "is <long>\x1b") for n in range(9))
    text = shown(content(given.card(remarks=(Remark(None, "of the whole"), *said))))
    assert "⚠️ of the whole\n⚠️ src/0.py: is <long>\\x1b\n" in text
    assert "⚠️ and 4 more: agent-intercom-ctl show 0f8fad5b" in text


def test_a_diff_too_large_for_slack_says_how_many_lines_of_how_many_are_shown() -> None:
    beside = cards.diff_file(given.card(diff=("+" + "x" * 98 + "\n") * 20_000), PLAIN)
    assert beside is not None
    assert beside.text.endswith("… 9,999 of 20,000 lines are shown")


def test_of_a_policy_no_session_is_named_that_there_is_not_and_no_hash_in_full() -> None:
    sha = "0b82a62096ca9c54" * 4
    card = given.card(id=f"policy-{sha[:16]}", kind=CardKind.POLICY, session_id="", risk=None, detail=sha, files=())
    text = shown(content(card))
    assert "policy `policy-0b82a620`" in text
    assert "session" not in text
    assert sha not in text


def test_who_decided_in_slack_is_named_and_their_id_says_small_beside_the_time_what_it_is() -> None:
    blocks = content(given.card(state=CardState.APPROVED, decided=given.by_ann()))["blocks"]
    small = [block["elements"][0]["text"] for block in blocks if block["type"] == "context"]
    assert [text for text in small if text.endswith(" · Slack member U0123")]
    assert "U0123" not in str([block for block in blocks if block["type"] != "context"])


def test_many_files_are_counted_and_not_listed() -> None:
    files = tuple(FileChange(f"f{n}.py", ChangeKind.CREATE, "a", "b", added=n) for n in range(25))
    text = shown(content(given.card(files=files)))
    assert "`f9.py`" in text
    assert "`f10.py`" not in text
    assert "and 15 more" in text


def test_what_was_masked_is_said_with_the_command_that_shows_it() -> None:
    mask = Words("hunter2")
    card = given.card(title="hunter2", body="hunter2", diff="--- a\n+++ b\n+hunter2\n", note="hunter2",
                      detail="hunter2", decided=given.by_ann("no", "hunter2"), state=CardState.REJECTED)  # fmt: skip
    drawn = content(card, mask)
    assert "hunter2" not in str(drawn)
    assert "6 secrets masked (test secret ×6); `agent-intercom-ctl show 0f8fad5b` shows the original" in shown(drawn)
    beside = cards.diff_file(given.card(diff="--- a\n+++ b\n" + "+hunter2\n" * 30), mask)
    assert beside is not None
    assert "hunter2" not in beside.text
    assert beside.text.startswith("🔒 30 secrets masked")


def test_a_body_that_is_cut_says_so_and_how_to_read_on() -> None:
    text = shown(content(given.card(body="word " * 2_000)))
    assert "✂️ shortened; `agent-intercom-ctl show 0f8fad5b` shows the original" in text
    assert "shortened" not in shown(content(given.card()))


def test_while_a_tap_is_handled_a_line_stands_where_the_buttons_were() -> None:
    before = {**content(given.card()), "reply_broadcast": True}
    after = processing(before, "⏳ Processing… (Ann <!channel>)")
    check_message(after)
    assert buttons(before)
    assert buttons(after) == []
    assert after["blocks"][:-1] == before["blocks"][:-1]
    assert "⏳ Processing… (Ann <!channel>)" in shown(after)
    assert after["reply_broadcast"] is True


@settings(max_examples=75, deadline=None)
@for_any(given.cards, st.booleans())
def test_slack_takes_every_card(card: Card, first: bool) -> None:
    drawn = content(card, first=first)
    assert bool(buttons(drawn)) == (card.state is CardState.PENDING and card.kind in ANSWERED)
    check_message(processing(drawn, card.title))
    check_message(cards.escalation(card, PLAIN).content())
    beside = cards.diff_file(card, PLAIN)
    if beside is not None:
        assert beside.text.strip()
        assert beside.title.strip()
        assert len(beside.text.encode()) <= 1_000_000
        assert "\u202e" not in beside.text
        assert beside.filename.isascii()
        assert "/" not in beside.filename


@pytest.mark.parametrize("piece", ["+<&>\n", "😀", "`", "a\u0301", "\u202e"])
def test_a_megabyte_is_drawn_at_once(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    card = given.card(title=text, body=text, diff=f"--- a\n+++ b\n{text}", note=text, workspace_root=text,
                      files=(FileChange(text, ChangeKind.WRITE, "a", "b"),) * 12)  # fmt: skip
    content(card)
    taken = []
    for _ in range(2):
        started = time.process_time()
        content(card)
        taken.append(time.process_time() - started)
    # The better of two: a neighbour on the same core slows single ones down.
    assert is_below(0.1, min(taken))
