"""Every tool, with any arguments: an answer that fits, or an error that says what to do; and the server lives on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents import argument_schemas
from intercom.sessions.tools.tool_table import TOOLS
from tests.fuzz.harm import is_fair_result
from tests.fuzz.rig import CONFIG, ERAS, Agent, rig
from tests.fuzz.values import arguments, examples, garbage, texts
from tests.support.machine_speed import is_below

SCHEMAS = {tool.name: argument_schemas.of(tool.takes) for tool in TOOLS}
ANSWERS = {tool.name: argument_schemas.of_answer(tool.result) for tool in TOOLS}


#: Calls in order, one that waits and one that does not.
QUIET: dict[str, dict[str, Any]] = {"ping": {}, "transmit": {"prompt_text": "shall I?"}}
TRANSPORTS = {"behind a shim": (), "in process": ("--in-process",)}


@pytest.fixture(scope="module", params=[(era, transport) for era in ERAS for transport in TRANSPORTS], ids=" ".join)
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    era, transport = request.param
    with rig(CONFIG, era, *TRANSPORTS[transport]) as made:
        yield made.first


def fuzz(agent: Agent, tool: str, given: Any) -> None:
    began = time.monotonic()
    is_fair_result(agent.call(tool, given), ANSWERS.get(tool))
    assert is_below(5, time.monotonic() - began, time.monotonic)


@pytest.mark.parametrize("tool", SCHEMAS)
def test_any_arguments_are_answered_fairly(agent: Agent, tool: str) -> None:
    @examples(10)
    @given(arguments(SCHEMAS[tool]))
    def check(given: Any) -> None:
        fuzz(agent, tool, given)

    check()


def test_any_tool_name_is_answered_fairly(agent: Agent) -> None:
    @examples(10)
    @given(texts | garbage, garbage)
    def check(name: Any, given: Any) -> None:
        is_fair_result(agent.call(name, given), None)

    check()


def test_any_meta_is_answered_fairly(agent: Agent) -> None:
    keys = st.sampled_from(["progressToken", "threadId", "sessionId", "intercom/call", "intercom/x"]) | texts

    @examples(15)
    @given(st.sampled_from(list(QUIET)), garbage | st.dictionaries(keys, garbage, max_size=4))
    def check(tool: str, meta: Any) -> None:
        is_fair_result(agent.call(tool, QUIET[tool], meta), ANSWERS[tool])

    check()
