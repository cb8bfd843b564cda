"""The stand-in takes the Block Kit that Slack takes, to the last character, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.slack_standin import limits
from tests.slack_standin.app import button, modal, section
from tests.slack_standin.blocks import faults_of_message, faults_of_view, weight

Json = dict[str, Any]


def plain(length: int) -> Json:
    return {"type": "plain_text", "text": "x" * length}


def actions(*elements: Json, **more: Any) -> list[Json]:
    return [{"type": "actions", "elements": list(elements), **more}]


def block(kind: str, **more: Any) -> list[Json]:
    return [{"type": kind, **more}]


def field(**more: Any) -> Json:
    """A view whose input has this too."""
    made = modal()["blocks"][0]
    return {"blocks": [made | {"element": made["element"] | more}]}


# What there may be so many of, or so many characters of; and the words with which one more is refused.
MOST: list[tuple[Callable[[int], list[Json]], int, str]] = [
    (lambda n: [section("x" * n)], 3000, "less than 3001 characters [json-pointer:/blocks/0/"),
    (lambda n: block("section", fields=[plain(1)] * n), 10, "no more than 10 items allowed [json-pointer:/blocks/0/f"),
    (lambda n: block("section", fields=[plain(n)]), 2000, "less than 2001 characters"),
    (lambda n: block("header", text=plain(n)), 150, "less than 151 characters"),
    (lambda n: block("context", elements=[plain(1)] * n), 10, "no more than 10 items"),
    (lambda n: actions(*(button(f"b{index}") for index in range(n))), 25, "no more than 25 items"),
    (lambda n: block("divider", block_id="x" * n), 255, "256"),
    (lambda n: actions(button("x" * n)), 255, "less than 256 characters"),
    (lambda n: actions(button(value="x" * n)), 2000, "less than 2001 characters"),
    (lambda n: actions(button() | {"text": plain(n)}), 75, "less than 76 characters"),
    (lambda n: actions(button() | {"url": "x" * n}), 3000, "3001 characters"),
    (lambda n: [section()] * n, 50, "no more than 50 items allowed [json-pointer:/blocks]"),
]


@pytest.mark.parametrize(("made", "most", "words"), MOST)
def test_blocks_are_taken_up_to_the_limit(made: Callable[[int], list[Json]], most: int, words: str) -> None:
    assert faults_of_message(made(most)) == []
    assert any(words in fault for fault in faults_of_message(made(most + 1))), faults_of_message(made(most + 1))


# What passes, what does not, and the words it is refused with.
WRONG: list[tuple[Any, Any, str]] = [
    ([section("x")], [section("")], "more than 0 characters [json-pointer:/blocks/0/text/text]"),
    (block("header", text=plain(1)), block("header", text=plain(1) | {"type": "mrkdwn"}), "unsupported type: mrkdwn"),
    (actions(button()), actions(), "no fewer than 1 items"),
    (actions(button("a")) * 2, actions(button("a"), button("a")), "`action_id` already exists: a"),
    (
        [*actions(button(), block_id="a"), *actions(button(), block_id="b")],
        actions(button(), block_id="a") * 2,
        "`block_id` already exists: a",
    ),
    (actions(button() | {"style": "danger"}), actions(button() | {"style": "default"}), "must be a valid enum value"),
    (block("divider"), block("banner"), "unsupported type: banner"),
    ([section()], [section() | {"colour": "red"}], "invalid additional property: colour"),
    (actions(button()), actions({"type": "plain_text_input"}), "unsupported type"),
    ([section()], block("section"), "must define either `fields` or `text`"),
    ([section("\U0001f600")], [section("\ud83d")], "must be valid utf-8"),
    ([], {"type": "divider"}, "must be an array"),
]


@pytest.mark.parametrize(("good", "bad", "words"), WRONG)
def test_blocks_that_slack_does_not_know_are_refused(good: Any, bad: Any, words: str) -> None:
    assert faults_of_message(good) == []
    assert any(words in fault for fault in faults_of_message(bad)), faults_of_message(bad)


IN_A_VIEW: list[tuple[Callable[[int], Json], int, str]] = [
    (lambda n: {"title": plain(n)}, 24, "25 characters [json-pointer:/view/title/text]"),
    (lambda n: {"submit": plain(n)}, 24, "json-pointer:/view/submit"),
    (lambda n: {"close": plain(n)}, 24, "json-pointer:/view/close"),
    (lambda n: {"private_metadata": "x" * n}, 3000, "/view/private_metadata"),
    (lambda n: {"callback_id": "x" * n}, 255, "/view/callback_id"),
    (lambda n: {"blocks": [section()] * n}, 100, "no more than 100 items"),
    (lambda n: field(initial_value="x" * n), 3000, "3001"),
    (lambda n: field(max_length=n), 3000, "between 1 and 3000"),
    (lambda n: field(max_length=5, initial_value="x" * n), 5, "less than 6 characters"),
    (lambda n: field(placeholder=plain(n)), 150, "less than 151 characters"),
    (lambda n: {"blocks": [modal()["blocks"][0] | {"label": plain(n)}]}, 2000, "less than 2001 characters"),
]


@pytest.mark.parametrize(("made", "most", "words"), IN_A_VIEW)
def test_modals_are_taken_up_to_the_limit(made: Callable[[int], Json], most: int, words: str) -> None:
    assert faults_of_view(modal(**made(most))) == []
    found = faults_of_view(modal(**made(most + 1)))
    assert any(words in fault for fault in found), found


def test_a_view_is_a_modal_and_one_with_inputs_wants_a_button_to_submit_it() -> None:
    assert any("unsupported type: home" in fault for fault in faults_of_view(modal(type="home")))
    view = modal()
    del view["submit"]
    assert faults_of_view(view) == ["missing required field: submit [json-pointer:/view]"]


@pytest.mark.parametrize(("characters", "blocks", "passes"), [(13_297, 1, True), (13_298, 1, False), (9_597, 50, True)])
def test_blocks_weigh_together_as_users_measured_it(characters: int, blocks: int, passes: bool) -> None:
    share = [section("x" * (characters // blocks))] * (blocks - 1)
    rest = characters - sum(len(one["text"]["text"]) for one in share)
    assert (weight([*share, section("x" * rest)]) <= limits.BLOCKS_TOGETHER) is passes
