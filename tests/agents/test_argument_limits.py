"""How long agents' texts may be: over the limit they are refused with a sentence, never cut."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.agents import arguments
from intercom.agents.tools import inputs
from intercom.model import text_limits as limits
from intercom.model.errors import InvalidArguments

PROPOSAL = {"title": "t", "diff": "x\n", "file_path": "f"}
CASES: list[tuple[type[Any], dict[str, Any], str, int]] = [
    (inputs.CheckClearance, PROPOSAL, "title", limits.TITLE),
    (inputs.CheckClearance, PROPOSAL, "description", limits.TEXT),
    (inputs.CheckClearance, PROPOSAL, "file_path", limits.PATH),
    (inputs.CheckClearance, {}, "request_id", limits.NAME),
    (inputs.CheckDiff, {}, "request_id", limits.NAME),
    (inputs.AutoCheck, {}, "tool_name", limits.COMMAND),
    (inputs.Transmit, {}, "prompt_text", limits.TEXT),
    (inputs.Transmit, {}, "request_id", limits.NAME),
    (inputs.Broadcast, {}, "message", limits.TEXT),
    (inputs.Broadcast, {"message": "m"}, "thread_ts", limits.NAME),
    (inputs.Reboot, {}, "session_id", limits.NAME),
    (inputs.Standby, {}, "message", limits.TEXT),
    (inputs.Ping, {}, "status_message", limits.STATUS),
    (inputs.PermissionPrompt, {"input": {}}, "tool_name", limits.NAME),
    (inputs.PermissionPrompt, {"input": {}, "tool_name": "t"}, "tool_use_id", limits.NAME),
]


@pytest.mark.parametrize(("kind", "others", "name", "most"), CASES)
def test_a_text_has_a_limit_and_one_over_it_is_refused(
    kind: type[Any], others: dict[str, Any], name: str, most: int
) -> None:
    read = arguments.read(kind, {**others, name: "x" * most})
    assert getattr(read, name) == "x" * most
    with pytest.raises(InvalidArguments, match=rf"{name}: must have at most {most} characters, and has {most + 1}"):
        arguments.read(kind, {**others, name: "x" * (most + 1)})


def test_every_text_of_every_tool_has_a_limit_but_a_change_and_what_is_the_clients_own() -> None:
    covered = {(kind, name) for kind, _, name, _ in CASES}
    for kind in vars(inputs).values():
        if not isinstance(kind, type) or not hasattr(kind, "__attrs_attrs__"):
            continue
        for each in kind.__attrs_attrs__:
            if each.type in ("str", "str | None") and (kind, each.name) not in covered:
                assert each.name in ("diff", "content") or kind in (inputs.Item, inputs.CheckContext), (kind, each.name)


def test_what_lies_deeper_is_measured_too() -> None:
    item = {"label": "l", "status": "done"}
    cases: list[tuple[type[Any], dict[str, Any], str]] = [
        (inputs.Ping, {"progress_snapshot": [item, {**item, "label": "x" * 501}]}, r"progress_snapshot\.1\.label"),
        (inputs.Ping, {"progress_snapshot": [item] * 201}, "at most 200 entries"),
        (inputs.AutoCheck, {"tool_name": "t", "context": {"file_path": "x" * 5000}}, r"context\.file_path"),
        (inputs.AutoCheck, {"tool_name": "t", "context": {"args": ["a", "x" * 100_001]}}, r"context\.args"),
        (inputs.AutoCheck, {"tool_name": "t", "context": {"args": "x" * 100_001}}, r"context\.args"),
    ]
    for kind, given, told in cases:
        with pytest.raises(InvalidArguments, match=told):
            arguments.read(kind, given)


def test_a_change_may_be_long() -> None:
    assert arguments.read(inputs.CheckClearance, {**PROPOSAL, "diff": "x" * 1_000_000}).diff is not None
