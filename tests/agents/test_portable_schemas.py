"""What we list is in the subset of JSON Schema that Gemini's API and OpenAI's strict mode take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import intercom.agents
from intercom.agents import argument_schemas, mcp_server
from intercom.agents.gateway.search_tools import CallTool, SearchTools
from intercom.agents.hook_server import PERMISSION_PROMPT
from intercom.agents.rooms import mcp as rooms
from intercom.model.config import Config
from intercom.model.errors import InvalidArguments
from tests.agents.portable_schemas import (
    faults,
    faults_for_gemini,
    faults_in_strict_mode,
    faults_of_arguments,
)
from tests.agents.test_quick_check import TAKEN, Everything, values

SHIPPED = json.loads(Path(intercom.agents.__file__).with_name("handshake_and_lists.json").read_text())
LISTED = {tool.name: tool for tool in (*mcp_server.listed(mcp_server.offer(Config())), *rooms.listed())}


@pytest.mark.parametrize("name", LISTED)
def test_what_a_tool_takes_and_answers_is_in_the_subset(name: str) -> None:
    tool = LISTED[name]
    assert faults_of_arguments(tool.input_schema) == []
    assert tool.output_schema is not None
    assert faults(tool.output_schema) == []


@pytest.mark.parametrize("version", SHIPPED)
def test_what_the_shim_answers_by_itself_is_in_the_subset(version: str) -> None:
    tools = SHIPPED[version]["tools/list"]["tools"]
    assert len(tools) == 9
    for tool in tools:
        assert faults_of_arguments(tool["inputSchema"]) == []
        assert faults(tool["outputSchema"]) == []


def test_the_tools_of_search_are_in_the_subset_but_for_anothers_arguments() -> None:
    assert faults_of_arguments(argument_schemas.portable(argument_schemas.of(SearchTools))) == []
    assert faults_of_arguments(argument_schemas.portable(argument_schemas.of(CallTool))) == [
        ".arguments|0: an object of unknown form"
    ]


def test_only_the_tool_of_one_client_has_arguments_of_unknown_form() -> None:
    # Claude Code calls it itself, with what it likes: no model provider sees it.
    found = faults_of_arguments(argument_schemas.portable(argument_schemas.of(PERMISSION_PROMPT.takes)))
    assert ".input: an object of unknown form" in found


def test_a_default_is_told_in_words() -> None:
    told = argument_schemas.portable(argument_schemas.of(Everything))["properties"]
    assert told["count"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "Default: 1."}
    risk = LISTED["check_clearance"].input_schema["properties"]["risk_level"]
    assert risk["description"].endswith('Default: "low".')


@pytest.mark.parametrize("name", TAKEN)
@settings(max_examples=30)
@given(data=st.data())
def test_what_is_listed_accepts_whatever_is_accepted(name: str, data: st.DataObject) -> None:
    schema = argument_schemas.of(TAKEN[name])
    value = data.draw(values(schema))
    if Draft202012Validator(schema).is_valid(value):
        assert Draft202012Validator(argument_schemas.portable(schema)).is_valid(value)


@given(values(argument_schemas.of(Everything)))
def test_a_union_accepts_whatever_is_accepted(value: Any) -> None:
    schema = argument_schemas.of(Everything)
    if Draft202012Validator(schema).is_valid(value):
        assert Draft202012Validator(argument_schemas.portable(schema)).is_valid(value)


@pytest.mark.parametrize("name", TAKEN)
def test_what_strict_mode_sends_for_an_argument_that_is_left_out_counts_as_left_out(name: str) -> None:
    kind = TAKEN[name]
    listed = argument_schemas.portable(argument_schemas.of(kind))
    needed = dict.fromkeys(listed.get("required", ()), "1")
    sent = {each: None for each in listed["properties"] if each not in needed}
    assert read(kind, {**needed, **sent}) == read(kind, needed)


def read(kind: Any, arguments: dict[str, Any]) -> object:
    """What the server makes of arguments: the value, or the refusal."""
    try:
        return argument_schemas.read(kind, arguments)
    except InvalidArguments as refused:
        return refused.message


# --- the rules themselves can fail ----------------------------------------------------------------------------------

# A schema -> the fault of the subset
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": ["string", "null"]}, ".a: type is ['string', 'null']"),
    ({"type": "string", "minLength": 1}, ".a: minLength is not taken"),
    ({"type": "string", "default": "x"}, ".a: default is not taken"),
    ({"anyOf": [{"type": "array"}], "items": {"type": "string"}}, ".a: items beside anyOf"),
    ({"type": "array"}, ".a: a list without items"),
    ({"type": "string", "enum": ["x", None]}, ".a: the member None"),
]


@pytest.mark.parametrize(("schema", "fault"), REFUSED)
def test_what_is_outside_of_the_subset_is_a_fault(schema: dict[str, Any], fault: str) -> None:
    assert fault in faults({"type": "object", "properties": {"a": schema}})


def test_what_was_listed_before_was_refused() -> None:
    before = argument_schemas.of(TAKEN["ping"])
    assert faults(before)
    assert faults_in_strict_mode(before)
    assert faults_for_gemini(before)
