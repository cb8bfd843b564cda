"""What people may decide about each kind of card is offered on every channel, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.cli import ctl
from intercom.cli.inbox.board import KEYS, Act, request_of
from intercom.model.card import ANSWERED, CHOICES, CardKind
from intercom.operators.commands.command_table import COMMANDS, HOW_TO_ANSWER, decision_about
from intercom.operators.slack.buttons import BY_KIND
from tests.operators.stand_in_service import card


def decided_with(kind: CardKind, command: str, fields: dict[str, Any]) -> str:
    """The decision that a request of ctl makes about a card of this kind."""
    if command == "nudge":
        return "nudge"
    return COMMANDS[command].decision or decision_about(kind, fields["decision"])


def by_commands(kind: CardKind) -> set[str]:
    """The decisions that can be made with the commands of `HOW_TO_ANSWER`, as ctl reads them."""
    found = set()
    for line in HOW_TO_ANSWER[kind]:
        first, *others = line.format(id="x").split(" | ")
        # The words before the bar: `answer x`.
        begin = first.rpartition(" ")[0]
        for each in (first, *(f"{begin} {other}" for other in others)):
            options = ctl.parser().parse_args(each.replace("[", "").replace("]", "").split())
            found.add(decided_with(kind, *ctl.fields_of(options)))
    return found


def by_keys(kind: CardKind) -> set[str]:
    """The decisions that can be made with the keys of watch."""
    return {decided_with(kind, *request_of(Act(row.word, card("x", kind)), "text")) for row in KEYS[kind]}


def by_buttons(kind: CardKind) -> set[str]:
    """The decisions that can be made with the buttons in Slack."""
    return {button.decision.value for button in BY_KIND[kind]}


@pytest.mark.parametrize("offered", [by_commands, by_keys, by_buttons])
@pytest.mark.parametrize("kind", ANSWERED)
def test_each_decision_about_a_card_can_be_made_on_every_channel(kind: CardKind, offered: Any) -> None:
    assert offered(kind) == {choice.value for choice in CHOICES[kind]}


def test_no_channel_offers_to_answer_what_takes_no_answer() -> None:
    assert set(HOW_TO_ANSWER) == set(KEYS) == {*ANSWERED} == {kind for kind in CardKind if BY_KIND[kind]}
