"""A program that embeds Intercom sends the same commands as ctl, by name or as methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from intercom.embedding import EmbeddedOperator
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import Files
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments
from intercom.model.session import SessionMode
from intercom.operators.commands.command_execution import carry_out
from intercom.operators.ctl.connection import CtlRequest
from tests.operators.stand_in_service import START, StandInService, card

#: What an act says of the channel that it came by: on ctl, and from a program.
AS_EMBEDDED = {"ctl": "embed", "ended with agent-intercom-ctl end": "ended by the program"}


def with_cards() -> StandInService:
    return StandInService(card("abc-1"), card("ala-1", CardKind.STALL), card("pol-1", CardKind.POLICY))


def embedding(service: StandInService) -> EmbeddedOperator:
    app: Any = SimpleNamespace(service=service, session_deps=SimpleNamespace(now=lambda: START))
    return EmbeddedOperator(app, "kim")


@pytest.mark.parametrize(
    ("command", "fields", "method"),
    [
        ("approve", {"id": "abc-1"}, lambda kim: kim.approve("abc-1")),
        ("reject", {"id": "abc-1", "reason": "no"}, lambda kim: kim.reject("abc-1", "no")),
        ("answer", {"id": "ala-1", "decision": "dismiss"}, lambda kim: kim.answer("ala-1", Decision.DISMISS)),
        ("pause", {"session": "s-1"}, lambda kim: kim.pause("s-1")),
        ("clear", {"session": "s-1"}, lambda kim: kim.end("s-1")),
        ("resume", {"instruction": "go"}, lambda kim: kim.resume("go")),
        ("mode", {"mode": "remote"}, lambda kim: kim.mode(SessionMode.REMOTE)),
        ("nudge", {"id": "ala-1", "text": "hey"}, lambda kim: kim.nudge("ala-1", "hey")),
        ("steer", {"session": "s-1", "text": "mind it"}, lambda kim: kim.steer("s-1", "mind it")),
        ("task", {"workspace": "/ws", "text": "do it"}, lambda kim: kim.add_task("do it", workspace="/ws")),
        ("restore", {"id": "c-1", "files": "back"}, lambda kim: kim.ask_restore("c-1", Files.BACK)),
        ("policy-accept", {}, lambda kim: kim.accept_policy()),
        ("policy-reject", {"id": "pol-1"}, lambda kim: kim.reject_policy("pol-1")),
    ],
)
async def test_a_command_does_the_same_on_ctl_by_its_name_and_as_a_method(
    command: str, fields: dict[str, Any], method: Callable[[EmbeddedOperator], Awaitable[Any]]
) -> None:
    ways: list[Callable[[StandInService], Awaitable[Any]]] = [
        lambda service: carry_out(service, CtlRequest(command, fields), "kim", None),  # type: ignore[arg-type]
        lambda service: embedding(service).command(command, **fields),
        lambda service: method(embedding(service)),
    ]
    done = []
    for way in ways:
        service = with_cards()
        await service.checkpoints.take("s-1", "before", "kim", "ctl")
        service.acts.clear()
        await way(service)
        done.append([tuple(AS_EMBEDDED.get(part, part) for part in act) for act in service.acts])
    assert done[0]
    assert done == [done[0]] * 3


async def test_a_command_by_its_name_returns_what_its_handler_returns_and_counts_once() -> None:
    service = with_cards()
    kim = embedding(service)
    assert (await kim.command("approve", id="abc")).card.state is CardState.APPROVED
    await kim.command("pause", session="s-1", act="at-night")
    assert service.acts[-1] == ("pause", "s-1", "kim", "embed", "embed/kim/at-night")
    with pytest.raises(InvalidArguments, match="unknown command"):
        await kim.command("frobnicate")
    with pytest.raises(TypeError):
        await kim.command("pause", label="s-1")
