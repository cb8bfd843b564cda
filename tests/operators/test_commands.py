"""The table of operator commands: whole, and the same as its handlers, its drawing and the service."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from intercom.cli import ctl, ctl_draw
from intercom.model import signing
from intercom.model.decision import Decision
from intercom.model.session import Session
from intercom.operators.commands.caller_and_handler import handles
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_handlers import HANDLERS
from intercom.operators.commands.command_table import ANSWERS, COMMANDS, FIELDS, decisions_of
from intercom.operators.commands.json_forms import form
from intercom.sessions.operator_service import CheckpointCalls, OperatorService, Steering
from intercom.sessions.processes.spawner import AgentProcesses
from tests.operators.stand_in_service import StandInCheckpoints, StandInChildren, StandInService, StandInSteering


def test_every_row_has_its_handler_and_every_drawn_answer_its_drawing() -> None:
    assert HANDLERS.keys() == COMMANDS.keys()
    assert all(callable(ctl_draw.drawing(row.draws)) for row in COMMANDS.values() if row.draws)


def test_requests_have_exactly_the_fields_of_the_rows() -> None:
    sent = {argument.wire for row in COMMANDS.values() for argument in row.arguments if argument.field}
    assert sent == FIELDS.keys()


@pytest.mark.parametrize("name", ["pending", "tree"])
def test_a_handler_with_other_arguments_than_its_row_is_refused(name: str) -> None:
    async def handler(service: Any, caller: Any, id: str) -> str:
        return id

    with pytest.raises(TypeError, match=f"are not the arguments of {name}"):
        handles(name, str)(handler)


def test_the_form_of_an_answer_names_attributes_that_there_are() -> None:
    with pytest.raises(TypeError, match="Session has no colour"):
        form(Session, "session_id=id", "colour")


def test_a_signature_covers_every_argument_of_the_command_that_it_is_for() -> None:
    signed = [row for row in COMMANDS.values() if row.access is Access.SIGNED]
    sent = {name for row in signed for each in row.arguments if each.field for name in (each.field, each.wire)}
    assert sent <= set(signing.EFFECT_FIELDS)


def test_only_commands_that_change_nothing_are_open_to_everybody() -> None:
    open_to_all = {name for name, row in COMMANDS.items() if row.access is Access.ANYONE}
    lists = {"checkpoints", "grants", "keys", "list", "pending", "policy-list", "steering", "tasks"}
    details = {
        "grant-preview",
        "nudge-text",
        "policy-show",
        "restoring",
        "clients",
        "server",
        "show",
        "slack",
        "task-workspace",
        "tree",
        "version",
    }
    in_rooms = {"list", "show", "tail", "search", "export", "doc", "versions", "instructions", "url-show"}
    rooms = {f"rooms-{act}" for act in in_rooms}
    gateway = {f"gateway-{act}" for act in ("list", "show", "explain", "budgets", "lint", "check")}
    records = {"audit-verify", "history", "log", "logs"}
    assert open_to_all == lists | details | rooms | gateway | records | {"allow-preview", "grant-preview"}


def test_every_command_about_a_card_says_which_decisions_it_makes() -> None:
    about_cards = [row for row in COMMANDS.values() if row.access is Access.SIGNED_CARD]
    made = {each for row in about_cards for word in (None, *ANSWERS) for each in decisions_of(row, word)}
    assert made == {each.value for each in Decision} - {"nudge"}
    assert decisions_of(COMMANDS["answer"], "approve") == decisions_of(COMMANDS["answer"], None) == set()
    assert decisions_of(COMMANDS["approve"], "stop") == {"approve"}


def test_what_needs_no_signature_only_pauses_ends_asks_tests_shows_or_is_about_a_room() -> None:
    unsigned = {name for name, row in COMMANDS.items() if row.access is Access.OPERATOR}
    in_rooms = {"create", "post", "pin", "unpin", "pause", "resume", "conclude", "reopen", "token", "url"}
    others = {"pause", "clear", "checkpoint", "restore", "key-add", "key-revoke", "gateway-test", "gateway-disable"}
    others |= {"amend", "gateway-evidence", "gateway-tail", "revoke", "allow", "web", "passkeys"}
    others |= {"token-add", "token-list", "token-revoke"}
    others |= {"people-list", "people-sign-out"}
    others |= {f"push-{act}" for act in ("key", "subscribe", "list", "remove")}
    assert unsigned == others | {f"rooms-{act}" for act in in_rooms}


def test_what_only_programs_send_cannot_be_typed() -> None:
    typed = {row.name for row in ctl.TYPED.values()}
    assert typed == {name for name, row in COMMANDS.items() if row.is_typed} | ctl.LOCAL.keys()


def _calls(stand_in: type, real: type) -> Iterator[tuple[str, Any, Any]]:
    for name, call in vars(stand_in).items():
        if inspect.isfunction(call) and not name.startswith("_") and hasattr(real, name):
            yield name, call, getattr(real, name)


@pytest.mark.parametrize(
    ("stand_in", "real"),
    [
        (StandInService, OperatorService),
        (StandInSteering, Steering),
        (StandInCheckpoints, CheckpointCalls),
        (StandInChildren, AgentProcesses),
    ],
)
def test_the_stand_in_of_the_tests_is_called_as_the_service_is(stand_in: type, real: type) -> None:
    for name, call, its_own in _calls(stand_in, real):
        taken, wanted = inspect.signature(call).parameters, inspect.signature(its_own).parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
            continue
        assert list(taken) == list(wanted)[: len(taken)], name
        assert inspect.iscoroutinefunction(call) is inspect.iscoroutinefunction(its_own), name
