"""Every verb of ctl, over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from intercom.model.card import CardKind
from intercom.operators.ctl.verbs import DEFAULT_REASON
from tests.operators.desk import StandInDesk, card
from tests.operators.house import open_house
from tests.support.trio_case import trio_test

ME = {"by": "anyone"}


def desk() -> StandInDesk:
    return StandInDesk(
        card("abc-1"),
        card("abd-2"),
        card("pro-1", CardKind.PROMPT),
        card("sta-1", CardKind.STANDBY),
        card("ala-1", CardKind.STALL),
        card("pol-1", CardKind.POLICY),
        card("app-1", CardKind.APPLY),
    )


# verb, fields -> parts of the data, what the desk was asked to do
TABLE: list[tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...] | None]] = [
    ("approve", {"id": "abc"}, {"request_id": "abc-1", "status": "approved"}, ("decide", "abc-1", "approve", None)),
    ("reject", {"id": "abc"}, {"status": "rejected"}, ("decide", "abc-1", "reject", DEFAULT_REASON)),
    ("reject", {"id": "abc", "reason": "no"}, {"status": "rejected"}, ("decide", "abc-1", "reject", "no")),
    ("reject", {"id": "pol-1"}, {"status": "rejected"}, ("decide", "pol-1", "reject", DEFAULT_REASON)),
    ("answer", {"id": "pro", "decision": "continue"}, {"status": "continued"}, ("decide", "pro-1", "continue", None)),
    (
        "answer",
        {"id": "pro", "decision": "refine", "text": "x"},
        {"status": "refined"},
        ("decide", "pro-1", "refine", "x"),
    ),
    ("answer", {"id": "pro", "decision": "stop"}, {"status": "stopped"}, ("decide", "pro-1", "stop", None)),
    ("answer", {"id": "sta", "decision": "continue"}, {"status": "resumed"}, ("decide", "sta-1", "resume", None)),
    (
        "answer",
        {"id": "sta", "decision": "refine", "text": "x"},
        {"status": "resumed"},
        ("decide", "sta-1", "resume", "x"),
    ),
    ("answer", {"id": "sta", "decision": "stop"}, {"status": "stopped"}, ("decide", "sta-1", "stop", None)),
    ("answer", {"id": "ala", "decision": "dismiss"}, {"status": "dismissed"}, ("decide", "ala-1", "dismiss", None)),
    ("answer", {"id": "app-1", "decision": "dismiss"}, {"status": "dismissed"}, ("decide", "app-1", "dismiss", None)),
    ("resume", {}, {"session_id": "s-1", "status": "resumed"}, ("resume", None, None, "resume")),
    ("resume", {"instruction": "go"}, {"status": "resumed"}, ("resume", None, "go", "resume")),
    ("resume", {"session": "s-1"}, {"session_id": "s-1"}, ("resume", "s-1", None, "resume")),
    ("resume", {"id": "s-1"}, {"session_id": "s-1"}, ("resume", "s-1", None, "resume")),
    ("mode", {"mode": "remote"}, {"previous_mode": "local", "current_mode": "remote"}, ("mode", "s-1", "remote")),
    ("nudge", {"id": "ala-1", "text": "hey"}, {"request_id": "ala-1", "status": "nudged"}, ("nudge", "ala-1", "hey")),
    ("nudge", {"id": "s-1"}, {"session_id": "s-1", "status": "nudged"}, ("nudge", "s-1", None)),
    ("policy-accept", {}, {"request_id": "pol-1", "status": "accepted"}, ("policy", None)),
    ("policy-accept", {"id": "pol-1"}, {"status": "accepted"}, ("policy", "pol-1")),
    ("show", {"id": "abc"}, {"request_id": "abc-1", "kind": "approval", "risk_level": "high"}, None),
    ("version", {}, {"version": "0.1.0"}, None),
]


@pytest.mark.parametrize(("verb", "fields", "data", "act"), TABLE)
@trio_test(real_time=True)
async def test_a_verb_does_what_its_row_says(
    tmp_path: Path, verb: str, fields: dict[str, Any], data: dict[str, Any], act: tuple[Any, ...] | None
) -> None:
    async with open_house(tmp_path, desk()) as house:
        reply = await (await house.dial()).ask(verb, **fields)
        assert reply["ok"] is True
        assert data.items() <= reply["data"].items()
        assert [done[: len(act or ())] for done in house.desk.acts] == ([act] if act else [])
