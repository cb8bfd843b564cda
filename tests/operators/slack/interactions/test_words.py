"""What a reply decides: a few plain sentences, and nothing that could mean something else."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intercom.model.card import ANSWERED, CHOICES, CardKind
from intercom.model.decision import PAST, Decision
from intercom.operators.slack.buttons import (
    BUTTONS,
    BY_KIND,
    OUTCOMES,
    Understood,
    addressed,
    is_never_mind,
    is_nothing,
    possible,
    understand,
    unescape,
)
from intercom.operators.slack.draw.blocks import escaped

APPROVAL, PROMPT, STANDBY = CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY
STALL, POLICY, APPLY = CardKind.STALL, CardKind.POLICY, CardKind.APPLY


@pytest.mark.parametrize(
    ("kind", "text", "decision", "words"),
    [
        (APPROVAL, "approve", Decision.APPROVE, None),
        (APPROVAL, "  APPROVED!! ", Decision.APPROVE, None),
        (APPROVAL, "Yes.", Decision.APPROVE, None),
        (APPROVAL, "ok, please", Decision.APPROVE, None),
        (APPROVAL, "`approve`", Decision.APPROVE, None),
        (APPROVAL, "*Approve*", Decision.APPROVE, None),
        (APPROVAL, ":+1:", Decision.APPROVE, None),
        (APPROVAL, ":+1::skin-tone-3:", Decision.APPROVE, None),
        (APPROVAL, "👍🏽", Decision.APPROVE, None),
        (APPROVAL, "✅", Decision.APPROVE, None),
        (APPROVAL, "Ship  it", Decision.APPROVE, None),
        (APPROVAL, "no", Decision.REJECT, None),
        (APPROVAL, ":-1:", Decision.REJECT, None),
        (APPROVAL, "reject", Decision.REJECT, None),
        (APPROVAL, "reject: why so wide?", Decision.REJECT, "why so wide?"),
        (APPROVAL, "Reject, too wide.", Decision.REJECT, "too wide."),
        (APPROVAL, "reject - use Path\nand test it", Decision.REJECT, "use Path\nand test it"),
        (APPROVAL, "reject it breaks the build", Decision.REJECT, "it breaks the build"),
        (PROMPT, "continue", Decision.CONTINUE, None),
        (PROMPT, "Go ahead!", Decision.CONTINUE, None),
        (PROMPT, "stop", Decision.STOP, None),
        (PROMPT, "stop, please", Decision.STOP, None),
        (PROMPT, "refine only the auth module", Decision.REFINE, "only the auth module"),
        (PROMPT, "Refine: Only _this_", Decision.REFINE, "Only _this_"),
        (STANDBY, "resume", Decision.RESUME, None),
        (STANDBY, "resume: write the docs", Decision.RESUME, "write the docs"),
        (STANDBY, "continue", Decision.RESUME, None),
        (STANDBY, "stop.", Decision.STOP, None),
        (STALL, "nudge", Decision.NUDGE, None),
        (STALL, "nudge are you stuck on the tests", Decision.NUDGE, "are you stuck on the tests"),
        (STALL, "dismiss", Decision.DISMISS, None),
        (STALL, "stop", Decision.STOP, None),
        (POLICY, "accept", Decision.ACCEPT, None),
        (POLICY, "reject", Decision.REJECT, None),
        (APPLY, "dismiss", Decision.DISMISS, None),
    ],
)
def test_plain_words_are_understood(kind: CardKind, text: str, decision: Decision, words: str | None) -> None:
    assert understand(text, kind) == Understood(decision, words)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (APPROVAL, "don't approve"),
        (APPROVAL, "don\u2019t approve"),
        (APPROVAL, "do not approve"),
        (APPROVAL, "not approved"),
        (APPROVAL, "approve?"),
        (APPROVAL, "ok?"),
        (APPROVAL, "👍?"),
        (APPROVAL, "approve if the tests pass"),
        (APPROVAL, "yes but rename it"),
        (APPROVAL, "yes, and no"),
        (APPROVAL, "ok thanks"),
        (APPROVAL, "aprove"),
        (APPROVAL, "~approve~"),
        (APPROVAL, "> approve"),
        (APPROVAL, "<@U0BERT> approve"),
        (APPROVAL, "approve 👎"),
        (APPROVAL, "👍👎"),
        (APPROVAL, "approve or reject"),
        (APPROVAL, "reject or approve?"),
        (APPROVAL, "reject it?"),
        (APPROVAL, "reject:"),
        (APPROVAL, "don't reject"),
        (APPROVAL, "no problem"),
        (APPROVAL, "continue"),
        (APPROVAL, ""),
        (APPROVAL, "..."),
        (PROMPT, "yes"),
        (PROMPT, "👍"),
        (PROMPT, "approve"),
        (PROMPT, "refine"),
        (PROMPT, "refine:   "),
        (PROMPT, "stop doing that and go on"),
        (PROMPT, "don't stop"),
        (PROMPT, "can you continue with the tests"),
        (STANDBY, "resume?"),
        (STALL, "nudge?"),
        (STALL, "stop?"),
        (POLICY, "yes"),
        (POLICY, "👍"),
        (APPLY, "stop"),
    ],
)
def test_anything_else_decides_nothing(kind: CardKind, text: str) -> None:
    assert understand(text, kind) is None


kinds = st.sampled_from(ANSWERED)


def test_a_button_is_called_after_its_decision_as_on_every_other_surface() -> None:
    for button in BUTTONS:
        if button.dialog is not None:
            # ctl has options and a command of its own for these: `approve --hunks`, `approve --edit` and `changes`.
            assert button.label in ("Approve a part", "Edit and approve", "Request changes")
            continue
        assert button.label.lower().partition(" with ")[0] == button.decision.value


SENTENCES = [one for button in BUTTONS for one in button.says]
GRANTS = {Decision.APPROVE, Decision.ACCEPT, Decision.CONTINUE}


@given(kind=kinds, text=st.text())
def test_whatever_is_said_the_answer_fits_the_card(kind: CardKind, text: str) -> None:
    found = understand(text, kind)
    assert found is None or found.decision in CHOICES[kind]


@given(
    kind=kinds,
    before=st.sampled_from(["don't ", "do not ", "never ", "not ", "should I ", "un", "Bert, ", "> ", "I'd "]),
    sentence=st.sampled_from(SENTENCES),
)
def test_nothing_is_granted_by_a_sentence_with_something_before_it(kind: CardKind, before: str, sentence: str) -> None:
    found = understand(before + sentence, kind)
    assert found is None or found.decision not in GRANTS


@given(
    kind=kinds, sentence=st.sampled_from(SENTENCES), after=st.text(alphabet=string.ascii_letters + "?&<>", min_size=1)
)
@example(kind=APPROVAL, sentence="y", after="es")
def test_nothing_is_granted_by_a_sentence_with_more_after_it(kind: CardKind, sentence: str, after: str) -> None:
    known = {one for button in BY_KIND[kind] for one in button.says}
    for text in (f"{sentence} {after}", f"{sentence}{after}"):
        found = understand(text, kind)
        whole = text.casefold() in known or after.casefold() in {"please", "pls"}
        assert whole or found is None or found.decision not in GRANTS


@given(kind=kinds, data=st.data())
def test_case_spaces_and_full_stops_make_no_difference(kind: CardKind, data: st.DataObject) -> None:
    button = data.draw(st.sampled_from([each for each in BY_KIND[kind] if each.says]))
    sentence = data.draw(st.sampled_from(button.says))
    cased = "".join(data.draw(st.sampled_from([char.upper(), char.lower()])) for char in sentence)
    dressed = data.draw(st.sampled_from(["{}", " {} ", "{}.", "{}!", "\n{}\n", "*{}*", "`{}`"])).format(cased)
    assert understand(dressed, kind) == Understood(button.decision)


def test_every_decision_can_be_said() -> None:
    for kind, decisions in CHOICES.items():
        assert {button.decision for button in BY_KIND[kind] if button.says or button.opens} == set(decisions)
    assert set(PAST) == set(Decision) == set(OUTCOMES)


def test_what_is_possible_is_understood() -> None:
    for kind in ANSWERED:
        offered = possible(kind).split("`")[1::2]
        assert offered
        assert all(understand(each, kind) is not None for each in offered)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3f0c6f5e approve", ("3f0c6f5e", "approve")),
        ("#3F0C: reject: no\nreally", ("3f0c", "reject: no\nreally")),
        ("`3f0c6f5e`, approve", ("3f0c6f5e", "approve")),
        ("3f0c6f5e", ("3f0c6f5e", "")),
        ("3f0", ("", "")),
        ("approve", ("approve", "")),
        ("don't", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_first_word_may_be_an_id(text: str, found: tuple[str, str]) -> None:
    assert addressed(text) == found


@pytest.mark.parametrize(
    ("sent", "typed"),
    [
        ("a &lt;b&gt; &amp; c", "a <b> & c"),
        ("&amp;lt;", "&lt;"),
        ("see <https://example.com/a?b=c>", "see https://example.com/a?b=c"),
        ("see <http://example.com|example.com>", "see example.com"),
        ("see <https://example.com/x|the page>", "see the page (https://example.com/x)"),
        ("mail <mailto:a@example.com|a@example.com>", "mail a@example.com"),
        ("<@U0BERT|bert> in <#C0X|general>", "@bert in #general"),
        ("<!subteam^S0X|@team>", "@team"),
    ],
)
def test_text_is_read_as_it_was_typed(sent: str, typed: str) -> None:
    assert unescape(sent) == typed


@given(st.text())
def test_escaping_is_undone_by_unescaping(text: str) -> None:
    assert unescape(escaped(text)) == text


def test_having_nothing_to_say_and_taking_it_back() -> None:
    assert is_nothing("-")
    assert is_nothing("No reason.")
    assert not is_nothing("no tests")
    assert is_never_mind("Never mind!")
    assert is_never_mind("cancel")
    assert not is_never_mind("cancel the cache")
