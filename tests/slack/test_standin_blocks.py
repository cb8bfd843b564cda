"""The stand-in takes the Block Kit that Slack takes, to the last character, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.slack import limits
from tests.slack.app import button, modal, section
from tests.slack.blocks import faults_of_message, faults_of_view, weight

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def actions(*elements: Json, **more: Any) -> Json:
    return {"type": "actions", "elements": list(elements), **more}


def buttons(number: int) -> list[Json]:
    return [button(f"b{index}") for index in range(number)]


# What passes, what no longer does, and the words it is refused with.
EDGES: list[tuple[str, list[Json], list[Json], str]] = [
    (
        "section text",
        [section("x" * 3000)],
        [section("x" * 3001)],
        "less than 3001 characters [json-pointer:/blocks/0/",
    ),
    ("empty text", [section("x")], [section("")], "more than 0 characters [json-pointer:/blocks/0/text/text]"),
    (
        "fields",
        [{"type": "section", "fields": [plain("x" * 2000)] * 10}],
        [{"type": "section", "fields": [plain("x")] * 11}],
        "no more than 10 items allowed [json-pointer:/blocks/0/fields]",
    ),
    (
        "field text",
        [{"type": "section", "fields": [plain("x" * 2000)]}],
        [{"type": "section", "fields": [plain("x" * 2001)]}],
        "less than 2001 characters",
    ),
    (
        "header",
        [{"type": "header", "text": plain("x" * 150)}],
        [{"type": "header", "text": plain("x" * 151)}],
        "less than 151 characters",
    ),
    (
        "header in mrkdwn",
        [{"type": "header", "text": plain("x")}],
        [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}],
        "unsupported type: mrkdwn",
    ),
    (
        "context",
        [{"type": "context", "elements": [plain("x")] * 10}],
        [{"type": "context", "elements": [plain("x")] * 11}],
        "no more than 10 items",
    ),
    ("actions", [actions(*buttons(25))], [actions(*buttons(26))], "no more than 25 items"),
    ("no actions", [actions(button())], [actions()], "no fewer than 1 items"),
    (
        "twice the same action_id",
        [actions(button("a")), actions(button("a"))],
        [actions(button("a"), button("a"))],
        "`action_id` already exists: a",
    ),
    (
        "twice the same block_id",
        [actions(button(), block_id="a"), actions(button(), block_id="b")],
        [actions(button(), block_id="a"), actions(button(), block_id="a")],
        "`block_id` already exists: a",
    ),
    ("block_id", [{"type": "divider", "block_id": "x" * 255}], [{"type": "divider", "block_id": "x" * 256}], "256"),
    ("action_id", [actions(button("x" * 255))], [actions(button("x" * 256))], "less than 256 characters"),
    ("value", [actions(button(value="x" * 2000))], [actions(button(value="x" * 2001))], "less than 2001 characters"),
    (
        "text of a button",
        [actions(button() | {"text": plain("x" * 75)})],
        [actions(button() | {"text": plain("x" * 76)})],
        "less than 76 characters",
    ),
    (
        "style of a button",
        [actions(button() | {"style": "danger"})],
        [actions(button() | {"style": "default"})],
        "must be a valid enum value",
    ),
    ("url", [actions(button() | {"url": "x" * 3000})], [actions(button() | {"url": "x" * 3001})], "3001 characters"),
    ("blocks", [section()] * 50, [section()] * 51, "no more than 50 items allowed [json-pointer:/blocks]"),
    ("unknown block", [{"type": "divider"}], [{"type": "banner"}], "unsupported type: banner"),
    ("unknown property", [section()], [section() | {"colour": "red"}], "invalid additional property: colour"),
    ("input in a button row", [actions(button())], [actions({"type": "plain_text_input"})], "unsupported type"),
    ("neither text nor fields", [section()], [{"type": "section"}], "must define either `fields` or `text`"),
    ("half of a surrogate pair", [section("\U0001f600")], [section("\ud83d")], "must be valid utf-8"),
    ("not a list", [], {"type": "divider"}, "must be an array"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("good", "bad", "words"), [edge[1:] for edge in EDGES], ids=[edge[0] for edge in EDGES])
def test_blocks_are_taken_up_to_the_limit(good: list[Json], bad: list[Json], words: str) -> None:
    assert faults_of_message(good) == []
    assert any(words in fault for fault in faults_of_message(bad)), faults_of_message(bad)


def _input(**more: Any) -> list[Json]:
    block = modal()["blocks"][0]
    return [block | {"element": block["element"] | more}]


VIEW_EDGES: list[tuple[str, Json, Json, str]] = [
    ("title", {"title": plain("x" * 24)}, {"title": plain("x" * 25)}, "25 characters [json-pointer:/view/title/text]"),
    ("submit", {"submit": plain("x" * 24)}, {"submit": plain("x" * 25)}, "json-pointer:/view/submit"),
    ("close", {"close": plain("x" * 24)}, {"close": plain("x" * 25)}, "json-pointer:/view/close"),
    ("private_metadata", {"private_metadata": "x" * 3000}, {"private_metadata": "x" * 3001}, "/view/private_metadata"),
    ("callback_id", {"callback_id": "x" * 255}, {"callback_id": "x" * 256}, "/view/callback_id"),
    ("blocks", {"blocks": [section()] * 100}, {"blocks": [section()] * 101}, "no more than 100 items"),
    (
        "initial_value",
        {"blocks": _input(initial_value="x" * 3000)},
        {"blocks": _input(initial_value="x" * 3001)},
        "3001",
    ),
    ("max_length", {"blocks": _input(max_length=3000)}, {"blocks": _input(max_length=3001)}, "between 1 and 3000"),
    (
        "initial_value over max_length",
        {"blocks": _input(max_length=5, initial_value="x" * 5)},
        {"blocks": _input(max_length=5, initial_value="x" * 6)},
        "less than 6 characters",
    ),
    (
        "placeholder",
        {"blocks": _input(placeholder=plain("x" * 150))},
        {"blocks": _input(placeholder=plain("x" * 151))},
        "less than 151 characters",
    ),
    (
        "label",
        {"blocks": [_input()[0] | {"label": plain("x" * 2000)}]},
        {"blocks": [_input()[0] | {"label": plain("x" * 2001)}]},
        "less than 2001 characters",
    ),
    ("type", {}, {"type": "home"}, "unsupported type: home"),
]


@pytest.mark.parametrize(("good", "bad", "words"), [one[1:] for one in VIEW_EDGES], ids=[one[0] for one in VIEW_EDGES])
def test_modals_are_taken_up_to_the_limit(good: Json, bad: Json, words: str) -> None:
    assert faults_of_view(modal(**good)) == []
    assert any(words in fault for fault in faults_of_view(modal(**bad))), faults_of_view(modal(**bad))


def test_a_modal_with_inputs_wants_a_button_to_submit_it() -> None:
    view = modal()
    del view["submit"]
    assert faults_of_view(view) == ["missing required field: submit [json-pointer:/view]"]


@pytest.mark.parametrize(("characters", "blocks", "passes"), [(13_297, 1, True), (13_298, 1, False), (9_597, 50, True)])
def test_blocks_weigh_together_as_users_measured_it(characters: int, blocks: int, passes: bool) -> None:
    share = [section("x" * (characters // blocks))] * (blocks - 1)
    rest = characters - sum(len(one["text"]["text"]) for one in share)
    assert (weight([*share, section("x" * rest)]) <= limits.BLOCKS_TOGETHER) is passes
