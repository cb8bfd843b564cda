"""How long agents' texts may be: over the limit they are refused with a sentence, never cut."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import fields

from intercom.agents import schemas
from intercom.agents.hook_server import PERMISSION_PROMPT, PermissionPrompt
from intercom.model import limits
from intercom.model.errors import InvalidArguments
from intercom.sessions.tools.auto_check import AutoCheck
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.table import TOOLS
from intercom.sessions.tools.transmit import Transmit

PROPOSAL = {"title": "t", "diff": "x\n", "file_path": "f"}
CASES: list[tuple[type[Any], dict[str, Any], str, int]] = [
    (CheckClearance, PROPOSAL, "title", limits.TITLE),
    (CheckClearance, PROPOSAL, "description", limits.TEXT),
    (CheckClearance, PROPOSAL, "file_path", limits.PATH),
    (CheckClearance, {}, "request_id", limits.NAME),
    (CheckDiff, {}, "request_id", limits.NAME),
    (AutoCheck, {}, "tool_name", limits.COMMAND),
    (Transmit, {}, "prompt_text", limits.TEXT),
    (Transmit, {}, "request_id", limits.NAME),
    (Broadcast, {}, "message", limits.TEXT),
    (Broadcast, {"message": "m"}, "thread_ts", limits.NAME),
    (Reboot, {}, "session_id", limits.NAME),
    (Standby, {}, "message", limits.TEXT),
    (Standby, {}, "request_id", limits.NAME),
    (Ping, {}, "status_message", limits.STATUS),
    (PermissionPrompt, {"input": {}}, "tool_name", limits.NAME),
    (PermissionPrompt, {"input": {}, "tool_name": "t"}, "tool_use_id", limits.NAME),
]


@pytest.mark.parametrize(("kind", "others", "name", "most"), CASES)
def test_a_text_has_a_limit_and_one_over_it_is_refused(
    kind: type[Any], others: dict[str, Any], name: str, most: int
) -> None:
    read = schemas.read(kind, {**others, name: "x" * most})
    assert getattr(read, name) == "x" * most
    with pytest.raises(InvalidArguments, match=rf"{name}: must have at most {most} characters, and has {most + 1}"):
        schemas.read(kind, {**others, name: "x" * (most + 1)})


def test_every_text_of_every_tool_has_a_limit_but_a_change_and_what_is_the_clients_own() -> None:
    covered = {(kind, name) for kind, _, name, _ in CASES}
    for tool in (*TOOLS, PERMISSION_PROMPT):
        for each in fields(tool.takes):
            if each.type in ("str", "str | None") and (tool.takes, each.name) not in covered:
                assert each.name in ("diff", "content") or each.metadata.get("internal"), (tool.name, each.name)


@pytest.mark.parametrize("tool", [*TOOLS, PERMISSION_PROMPT], ids=lambda tool: tool.name)
def test_the_model_is_told_what_every_argument_and_every_field_of_an_answer_is(tool: Any) -> None:
    def check(schema: dict[str, Any], path: str) -> None:
        for name, each in schema.get("properties", {}).items():
            assert each.get("description"), f"{path}.{name} has no description"
            check(each, f"{path}.{name}")
            check(each.get("items", {}), f"{path}.{name}[]")

    check(schemas.of(tool.takes), tool.name)
    check(schemas.of_answer(tool.result), tool.name)


@pytest.mark.parametrize("name", ["call", "by", "channel", "from_agent", "adopted"])
def test_what_the_server_sets_is_no_argument(name: str) -> None:
    for tool in TOOLS:
        assert name not in schemas.of(tool.takes)["properties"]
        with pytest.raises(InvalidArguments, match=f"{name}: no such argument"):
            schemas.read(tool.takes, {name: "x"})


def test_what_lies_deeper_is_measured_too() -> None:
    item = {"label": "l", "status": "done"}
    cases: list[tuple[type[Any], dict[str, Any], str]] = [
        (Ping, {"progress_snapshot": [item, {**item, "label": "x" * 501}]}, r"progress_snapshot\.1\.label"),
        (Ping, {"progress_snapshot": [item] * 201}, "at most 200 entries"),
        (AutoCheck, {"tool_name": "t", "context": {"file_path": "x" * 5000}}, r"context\.file_path"),
        (AutoCheck, {"tool_name": "t", "context": {"args": ["a", "x" * 100_001]}}, r"context\.args"),
        (AutoCheck, {"tool_name": "t", "context": {"args": "x" * 100_001}}, r"context\.args"),
    ]
    for kind, given, told in cases:
        with pytest.raises(InvalidArguments, match=told):
            schemas.read(kind, given)


def test_a_change_may_be_long() -> None:
    assert schemas.read(CheckClearance, {**PROPOSAL, "diff": "x" * 1_000_000}).diff is not None
