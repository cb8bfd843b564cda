"""What clients' own converters make of our tools' arguments is what the model providers' APIs take."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import intercom.agents
from intercom.agents.argument_schemas import of, portable
from intercom.agents.gateway.search_tools import SearchTools
from intercom.agents.rooms import mcp as rooms
from tests.agents.portable_schemas import Schema, faults_for_gemini, faults_in_strict_mode, parts
from tests.clients import npm, pypi

SHIPPED = json.loads(Path(intercom.agents.__file__).with_name("handshake_and_lists.json").read_text())
NINE: list[dict[str, Any]] = SHIPPED["2025-11-25"]["tools/list"]["tools"]
TOOLS = [
    *NINE,
    *(
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in rooms.listed()
    ),
    {"name": "search_tools", "description": "Search.", "inputSchema": portable(of(SearchTools))},
]

#: The converters of Python, and what may be wrong with what they make.
IN_PYTHON: dict[str, Callable[[Schema], list[str]]] = {
    "by_google_genai": faults_for_gemini,
    "by_pydantic_ai_for_gemini": faults_for_gemini,
    "by_openai_agents": faults_in_strict_mode,
    "by_pydantic_ai_for_openai": faults_in_strict_mode,
}


def run(*command: str) -> Any:
    """What a converter made of the tools."""
    ended = subprocess.run(command, input=json.dumps(TOOLS), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    # openai-agents sends a tool without strict mode if its schema cannot be converted, and only logs that.
    assert "strict" not in ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def in_python() -> Any:
    return run(pypi.frameworks_python(), str(Path(__file__).with_name("convert_schemas.py")))


@pytest.mark.parametrize("converter", IN_PYTHON)
def test_what_python_frameworks_send_is_taken(in_python: Any, converter: str) -> None:
    made = in_python[converter]
    assert made.keys() == {tool["name"] for tool in TOOLS}
    assert {name: found for name, schema in made.items() if (found := IN_PYTHON[converter](schema))} == {}


def test_what_the_ai_sdk_sends_to_gemini_is_taken() -> None:
    made = run("node", str(npm.directory() / "convert_schemas.mjs"))
    assert made.keys() == {tool["name"] for tool in TOOLS}
    assert {name: found for name, schema in made.items() if (found := faults_for_gemini(schema))} == {}


def test_no_argument_is_lost_on_the_way(in_python: Any) -> None:
    for tool in TOOLS:
        for converter in IN_PYTHON:
            made = in_python[converter][tool["name"]]
            assert made["properties"].keys() == tool["inputSchema"]["properties"].keys(), (converter, tool["name"])
            members = [each["enum"] for _, each in parts(made) if "enum" in each]
            assert members == [each["enum"] for _, each in parts(tool["inputSchema"]) if "enum" in each]
