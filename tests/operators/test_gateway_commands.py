"""The operator commands about the gateway: what each asks of the service, and the form of its answer."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from intercom.gateway.operations import GatewayPeople
from intercom.model import signing
from intercom.model.errors import IntercomError, InvalidArguments, InvalidState, NotFound
from intercom.model.gateway_view import GatewayOperations
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_execution import carry_out
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl.connection import CtlRequest, success
from tests.operators.stand_in_gateway import StandInGateway, call_line, evidence_export
from tests.operators.stand_in_service import StandInService

GATEWAY = [name for name in COMMANDS if name.startswith("gateway-")]


def with_gateway() -> StandInService:
    service = StandInService()
    service.gateway = StandInGateway()
    return service


async def ask(service: StandInService, command: str, **fields: Any) -> Any:
    request = CtlRequest(command, fields, verdict_id="12345678")
    data = await carry_out(service, request, "kim", None)  # type: ignore[arg-type]
    # Whatever is answered crosses the socket.
    return json.loads(success(data))["data"]


@pytest.mark.parametrize("implementation", [StandInGateway, GatewayPeople])
def test_what_people_do_is_called_as_the_protocol_says(implementation: type) -> None:
    for name, call in vars(GatewayOperations).items():
        if inspect.isfunction(call) and not name.startswith("_"):
            its_own = getattr(implementation, name)
            assert list(inspect.signature(its_own).parameters) == list(inspect.signature(call).parameters), name
            assert inspect.iscoroutinefunction(its_own), name


def test_what_gives_agents_more_or_acts_without_their_roles_is_signed() -> None:
    """A disabled downstream stays so until a person enables it, and nobody calls a tool in a person's name."""
    assert {name for name in GATEWAY if COMMANDS[name].access is Access.SIGNED} == {"gateway-enable", "gateway-call"}
    persons = {name for name in GATEWAY if COMMANDS[name].access is Access.OPERATOR}
    assert persons == {"gateway-disable", "gateway-evidence", "gateway-tail", "gateway-test"}


@pytest.mark.parametrize("command", GATEWAY)
async def test_a_server_without_a_gateway_says_how_to_have_one(command: str) -> None:
    fields = {"id": "github", "text": "{}", "tool": "search", "role": "dev"}
    with pytest.raises(InvalidState, match="set enabled under") as refused:
        await ask(StandInService(), command, **fields)
    assert refused.value.error_code == "no_gateway"


async def test_a_server_that_does_not_use_its_gateway_says_why() -> None:
    service = StandInService()
    service.no_gateway_reason = "the server was started by an agent's client"
    with pytest.raises(InvalidState, match="has no gateway: the server was started by an agent's client"):
        await ask(service, "gateway-list")


@pytest.mark.parametrize(
    ("command", "fields", "act", "answer"),
    [
        (
            "gateway-call",
            {"id": "github", "tool": "search", "text": '{"q": 1}'},
            ("call", "github", "search", {"q": 1}, "kim", "ctl/12345678"),
            {"downstream": "github", "is_error": False, "redacted": ["token"]},
        ),
        (
            "gateway-call",
            {"id": "github", "tool": "search"},
            ("call", "github", "search", {}, "kim", "ctl/12345678"),
            {"tool": "search"},
        ),
        (
            "gateway-disable",
            {"id": "github"},
            ("set_enabled", "github", False, "kim"),
            {"name": "github", "status": "disabled"},
        ),
        (
            "gateway-enable",
            {"id": "github"},
            ("set_enabled", "github", True, "kim"),
            {"name": "github", "status": "enabled"},
        ),
    ],
)
async def test_an_act_reaches_the_service_once_with_who_does_it(
    command: str, fields: dict[str, Any], act: tuple[Any, ...], answer: dict[str, Any]
) -> None:
    service = with_gateway()
    said = await ask(service, command, **fields)
    assert service.gateway.acts == [act]
    assert answer.items() <= said.items()


@pytest.mark.parametrize(
    ("command", "fields", "missing"),
    [
        ("gateway-show", {}, "the name of a downstream"),
        ("gateway-call", {"id": "github"}, "the name of a tool"),
        ("gateway-explain", {}, "the name of a role"),
    ],
)
async def test_what_is_missing_is_said(command: str, fields: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidArguments, match=missing):
        await ask(with_gateway(), command, **fields)


async def test_a_name_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    for command in ("gateway-show", "gateway-test", "gateway-call", "gateway-enable"):
        with pytest.raises(NotFound, match="there are: files, github"):
            await ask(with_gateway(), command, id="nosuch", tool="x")


async def test_the_tail_goes_on_after_an_entry() -> None:
    service = with_gateway()
    service.gateway.calls = [call_line(entry) for entry in (3, 5, 8)]
    assert [each["entry"] for each in (await ask(service, "gateway-tail", limit=2))["calls"]] == [5, 8]
    after = await ask(service, "gateway-tail", start=3, limit=1)
    assert ([each["entry"] for each in after["calls"]], after["end"]) == ([5], 5)
    assert await ask(service, "gateway-tail", start=8) == {"calls": [], "end": 8}


async def test_lists_have_their_values_under_a_name() -> None:
    service = with_gateway()
    assert [each["name"] for each in (await ask(service, "gateway-list"))["downstreams"]] == ["files", "github"]
    assert [each["downstream"] for each in (await ask(service, "gateway-budgets"))["budgets"]] == ["files", "github"]
    assert [each["level"] for each in (await ask(service, "gateway-lint"))["findings"]] == ["fault", "warning"]


async def test_evidence_is_listed_with_filters_or_shown_whole_by_its_ids() -> None:
    service = with_gateway()
    listed = await ask(service, "gateway-evidence", session="s-1", name="github", tool="search", limit=3)
    assert ([each["id"] for each in listed["lines"]], listed["exports"]) == (["e1d2c3b4-0"], [])
    shown = await ask(service, "gateway-evidence", text=" e2  e1 e2 ")
    # As deep as it is: nothing of a record is left out.
    assert shown == {"lines": [], "exports": [evidence_export("e2"), evidence_export("e1")]}
    assert service.gateway.acts == [
        ("evidence", (), "s-1", "github", "search", 3),
        ("evidence", ("e2", "e1"), "", "", "", 50),
    ]
    with pytest.raises(NotFound, match="nosuch"):
        await ask(service, "gateway-evidence", text="nosuch")


async def test_arguments_that_are_no_json_are_refused() -> None:
    with pytest.raises(IntercomError, match="not JSON"):
        await ask(with_gateway(), "gateway-call", id="github", tool="search", text="{")


def test_the_signature_of_a_call_is_for_this_tool_with_these_arguments() -> None:
    signed = {"id": "github", "tool": "search", "text": "{}"}
    others = [{**signed, "tool": "delete_repo"}, {**signed, "text": '{"all": true}'}, {**signed, "id": "files"}]
    subjects = {signing.command_subject("gateway-call", fields) for fields in (signed, *others)}
    assert len(subjects) == 4
