"""One verb stands for one act, whether it is typed, pressed or called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from intercom.cli import ctl
from intercom.cli.inbox.board import SESSION_KEYS
from intercom.embedding import EmbeddedOperator
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.operators.commands.command import OperatorCommand
from intercom.operators.commands.command_table import ANSWERS, COMMANDS
from intercom.operators.slack.buttons import BUTTONS
from intercom.operators.slack.commands import runner
from intercom.operators.slack.commands.slash_command_table import Table

#: The acts about a session, with the name of the row where it is another one.
ABOUT_SESSIONS = {"pause": "pause", "resume": "resume", "end": "clear", "steer": "steer", "restore": "restore"}
DECISIONS = {"approve": Decision.APPROVE, "reject": Decision.REJECT}


def typed(*words: str) -> OperatorCommand:
    """The row of a line that somebody types on ctl."""
    return ctl.row_of(ctl.parser().parse_args(words))


@pytest.fixture
def slack() -> Table:
    runs: Any = SimpleNamespace(handle=None)
    return runner.build({}, runs)


@pytest.mark.parametrize(("verb", "row"), ABOUT_SESSIONS.items())
def test_an_act_about_a_session_has_one_verb_on_every_surface(verb: str, row: str, slack: Table) -> None:
    assert typed(verb, "3f2a", *(["mind it"] if verb == "steer" else [])) is COMMANDS[row]
    assert slack.find(verb if verb == "steer" else f"session-{verb}").summary == COMMANDS[row].help
    assert callable(getattr(EmbeddedOperator, verb))


def test_the_keys_of_the_inbox_are_called_as_the_acts_about_a_session() -> None:
    assert {key.shown for key in SESSION_KEYS} == ABOUT_SESSIONS.keys() - {"restore"}


@pytest.mark.parametrize(("verb", "decision"), DECISIONS.items())
def test_a_decision_has_one_verb_on_every_surface(verb: str, decision: Decision) -> None:
    assert typed(verb, "7c41") is COMMANDS[verb]
    assert COMMANDS[verb].decision == decision
    shown = [each.label for each in BUTTONS if each.kind is CardKind.APPROVAL and each.decision is decision]
    assert shown[0] == verb.title()
    assert callable(getattr(EmbeddedOperator, verb))


@pytest.mark.parametrize("word", ANSWERS)
def test_an_answer_has_one_word_on_every_surface(word: str) -> None:
    assert typed("answer", "7c41", word) is COMMANDS["answer"]
    assert word in {each.label.lower() for each in BUTTONS if each.decision is Decision(word)}
    assert callable(EmbeddedOperator.answer)


def test_the_names_of_the_specification_stand_for_the_same_acts(slack: Table) -> None:
    assert typed("clear", "3f2a") is typed("end", "3f2a")
    assert slack.find("session-clear") is slack.find("session-end")
    specified = ("start", "clear", "pause", "resume", "checkpoint", "restore", "checkpoints")
    for name in specified:
        assert slack.find(f"session-{name}").summary == COMMANDS[name].help
