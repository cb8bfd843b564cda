"""The API as it is described, and the forms of its answers."""

from __future__ import annotations

import inspect
import json
import re
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from intercom.model.errors import ERROR_CODES, IntercomError, InvalidArguments, IpcError
from intercom.model.web_role import WebRole
from intercom.operators.commands.command_table import COMMANDS, FIELDS, MAX_REQUEST
from intercom.operators.web import api, site
from intercom.operators.web.sign_in import may_use
from intercom.web_server import http_request


def test_the_document_has_every_command_with_its_fields_and_no_other() -> None:
    paths: dict[str, Any] = api.openapi()["paths"]  # type: ignore[assignment]
    described = {path.removeprefix(api.COMMANDS_PATH) for path in paths if path.startswith(api.COMMANDS_PATH)}
    assert described == {name for name, row in COMMANDS.items() if may_use(WebRole.ADMIN, row)}
    for name in described:
        schema = paths[api.COMMANDS_PATH + name]["post"]["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        sent = {each.wire for each in COMMANDS[name].arguments if each.wire in FIELDS}
        assert schema["properties"].keys() - {"verdict_id", "signature"} == sent
        assert ("verdict_id" in schema["properties"]) is COMMANDS[name].acts
        answer = paths[api.COMMANDS_PATH + name]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer["required"] == ["data"]
        assert answer["properties"]["data"].keys() & {"$ref", "type"}, name
    viewers: dict[str, Any] = api.openapi(WebRole.VIEWER)["paths"]  # type: ignore[assignment]
    assert api.COMMANDS_PATH + "approve" not in viewers
    assert api.COMMANDS_PATH + "pending" in viewers


def test_programs_that_are_made_from_the_document_have_one_name_for_each_call() -> None:
    document: Any = api.openapi()
    calls = [call["operationId"] for path in document["paths"].values() for call in path.values()]
    assert len(calls) == len(set(calls))
    text = json.dumps(document)
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in document["components"]["schemas"]
    used = {
        name
        for path in document["paths"].values()
        for call in path.values()
        for way in call["security"]
        for name in way
    }
    assert used == document["components"]["securitySchemes"].keys()


def test_the_list_says_what_must_be_given() -> None:
    entries: list[Any] = api.command_entries(WebRole.ADMIN)["commands"]  # type: ignore[assignment]
    (answer,) = [each for each in entries if each["name"] == "answer"]
    assert [(each["field"], each["kind"], each["required"]) for each in answer["arguments"]] == [
        ("id", "id", True),
        ("decision", "text", True),
        ("text", "text", False),
    ]
    assert "refine" in answer["arguments"][1]["choices"]
    json.dumps(entries)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("invalid_arguments", 400),
        ("unauthorized", 403),
        ("signature_required", 403),
        ("not_found", 404),
        ("already_decided", 409),
        ("invalid_state", 409),
        ("ambiguous", 409),
        ("busy", 429),
        ("unavailable", 503),
        ("spawn_failed", 422),
    ],
)
def test_the_status_of_a_refusal(code: str, status: int) -> None:
    assert api.status_of(IntercomError("no", code=code)) == status


def test_every_code_has_a_status_that_the_document_describes() -> None:
    assert {int(api.status_of(IntercomError("no", code=code))) for code in ERROR_CODES} <= api.FAILURES.keys()


def test_every_status_of_the_web_server_is_one_that_the_document_describes() -> None:
    sources = "".join(map(inspect.getsource, (site, http_request)))
    statuses = {int(HTTPStatus[name]) for name in re.findall(r"HTTPStatus\.(\w+)", sources)}
    assert {each for each in statuses if each >= 400} <= api.FAILURES.keys()


def test_a_refusal_says_when_to_try_again_and_what_else_programs_need() -> None:
    error = IpcError("later", code="unavailable", retry_after=1.5, ids=("a", "b"))
    assert api.error_entry(error) == {
        "error": {"code": "unavailable", "message": "later", "retry_after": 1.5, "details": {"ids": ["a", "b"]}}
    }
    assert api.error_entry(IntercomError("no", code="busy")) == {"error": {"code": "busy", "message": "no"}}


@given(st.binary(max_size=300))
def test_whatever_is_sent_is_an_object_or_refused(data: bytes) -> None:
    try:
        assert isinstance(api.read_object(data), dict)
    except InvalidArguments:
        pass


@pytest.mark.parametrize(
    "data",
    [b"[]", b"1", b"null", b'"x"', b"{", b"\xff{}", b"[" * 100_000, b'{"id": 5}', b'{"id": ""}', b'{"limit": true}'],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArguments):
        api.read_command("show", data)


ANYTHING = st.none() | st.text() | st.integers() | st.lists(st.none())


@given(st.dictionaries(st.sampled_from([*FIELDS, "verdict_id", "signature", "more"]), ANYTHING))
def test_whatever_the_fields_hold_is_read_or_refused(fields: dict[str, Any]) -> None:
    data = json.dumps(fields).encode()
    assert len(data) < MAX_REQUEST
    try:
        read = api.read_command("approve", data)
    except InvalidArguments:
        pass
    else:
        assert read.fields.keys() <= FIELDS.keys()
