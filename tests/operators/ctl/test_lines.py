"""The wire: any bytes in, a request or a clear refusal out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest
from attrs import fields, frozen
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.card import ANSWERED, Card, CardKind, CardState
from intercom.model.decision import Signature
from intercom.model.errors import ERROR_CODES, IntercomError, IpcError, NotFound
from intercom.model.json_types import JsonObject
from intercom.model.session import ProgressItem, ProgressStatus, Session
from intercom.operators.commands.command_table import MAX_REQUEST
from intercom.operators.commands.json_forms import card_entries, card_entry, plain, read, session_entry
from intercom.operators.ctl.connection import CtlRequest, event, failure, read_request, success
from tests.operators.stand_in_service import card, session

FIELDS = st.sampled_from(
    ["command", "id", "reason", "mode", "limit", "everything", "verdict_id", "session", "text", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary() | st.dictionaries(FIELDS, JSON).map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_request_or_a_refusal(line: bytes) -> None:
    try:
        request = read_request(line)
    except IntercomError as refusal:
        reply = json.loads(failure(refusal))
        assert reply["error_code"] in ERROR_CODES
        assert reply["error"]
        assert reply["error"][0].islower()
        assert not reply["error"].endswith(".")
    else:
        assert request.command


def test_what_a_newer_ctl_adds_is_ignored() -> None:
    signature = {each.name: "x" for each in fields(Signature)}
    request = {"command": "approve", "id": "r-1", "signature": signature}
    newer = {**request, "color": "blue", "signature": {**signature, "color": "blue"}}
    read, as_before = (read_request(json.dumps(each).encode()) for each in (newer, request))
    assert (read.fields, read.signature) == (as_before.fields, Signature(**signature))


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (b"\xff", "ipc", "UTF-8"),
        (b"{", "ipc", "not JSON"),
        (b"[" * 100_000, "ipc", "not JSON"),
        (b"[1]", "ipc", "not a JSON object"),
        (b"{}", "invalid_arguments", "names no command"),
        (b'{"command": 1}', "invalid_arguments", "names no command"),
        (b'{"command": ""}', "invalid_arguments", "names no command"),
        (b'{"command": "x", "id": 1}', "invalid_arguments", "id must be a string"),
        (b'{"command": "x", "id": ""}', "invalid_arguments", "1 to 200"),
        (b'{"command": "x", "id": "%s"}' % (b"a" * 201), "invalid_arguments", "1 to 200"),
        (b'{"command": "x", "reason": "\\ud800"}', "invalid_arguments", "not valid Unicode"),
        (b'{"command": "x", "limit": 0}', "invalid_arguments", "from 1 to 10000"),
        (b'{"command": "x", "limit": true}', "invalid_arguments", "from 1 to 10000"),
        (b'{"command": "x", "limit": %s}' % (b"9" * 5000), "ipc", "not JSON"),
        (b'{"command": "x", "everything": 1}', "invalid_arguments", "true or false"),
        (b'{"command": "x", "verdict_id": "short"}', "invalid_arguments", "8 to 64"),
        (b'{"command": "%s"}' % (b"a" * MAX_REQUEST), "ipc", "longer than"),
    ],
)
def test_what_is_wrong_is_said(line: bytes, code: str, says: str) -> None:
    with pytest.raises(IntercomError) as caught:
        read_request(line)
    assert caught.value.error_code == code
    assert says in caught.value.message


def test_null_is_absent_and_an_unknown_field_is_ignored() -> None:
    line = b'{"command": "approve", "id": "r", "reason": null, "limit": null, "everything": null, "news": 1}'
    assert read_request(line) == CtlRequest("approve", {"id": "r"})


def test_a_request_in_a_log_shows_no_token() -> None:
    assert "secret" not in repr(CtlRequest("list", auth_token="secret"))


def test_a_reply_is_one_ascii_line_whatever_is_in_it() -> None:
    for line in (
        success({"t": "a\nb\u2028\ud800é"}),
        event("card", {"t": "\n"}),
        failure(NotFound("no\nno", ids=["a"])),
    ):
        assert line.isascii()
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        json.loads(line)


def test_a_refusal_carries_its_code_and_details() -> None:
    assert json.loads(failure(NotFound("no such request", near="abc"))) == {
        "ok": False,
        "error": "no such request",
        "error_code": "not_found",
        "details": {"near": "abc"},
    }


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_pending_card_lists_what_may_be_answered_and_an_ended_one_nothing(kind: CardKind) -> None:
    assert card_entry(card("a", kind))["choices"]
    assert card_entry(card("a", kind, state=CardState.CLOSED))["choices"] == []


def test_the_entry_of_a_session_has_the_progress_that_its_agent_reports() -> None:
    steps = (ProgressItem("build", ProgressStatus.DONE), ProgressItem("test", ProgressStatus.PENDING))
    entry = session_entry(session("s", progress_snapshot=steps))
    assert entry["progress_snapshot"] == [
        {"label": "build", "status": "done"},
        {"label": "test", "status": "pending"},
    ]
    assert read(Session, entry).progress_snapshot == steps


def test_an_entry_of_pending_has_the_names_of_the_reference() -> None:
    names = {
        "request_id",
        "kind",
        "title",
        "session_id",
        "created_at",
        "risk_level",
        "file_path",
        "files",
        "expires_at",
    }
    entry = card_entry(card("a"))
    assert names <= entry.keys()
    assert entry["file_path"] == "src/app.py"
    assert entry["files"][0]["kind"] == "write"
    assert json.loads(json.dumps(entry)) == entry


@pytest.mark.parametrize("entry", [{**card_entry(card("a")), "kind": "of a newer server"}, {}])
def test_an_entry_that_is_no_card_of_this_version_is_refused(entry: JsonObject) -> None:
    with pytest.raises(IpcError, match="the same version"):
        read(Card, entry)


def test_a_listing_carries_diffs_up_to_its_budget_and_says_what_it_left_out() -> None:
    entries = card_entries([card("a", diff="x" * 60), card("b", diff="x" * 60), card("c", diff="x" * 30)], budget=100)
    assert [(entry["diff"] is not None, entry["diff_omitted"]) for entry in entries] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@frozen
class Nest:
    inside: Any


def test_plain_takes_what_has_no_json_form() -> None:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    value = {"a": Nest((CardKind.STALL, at)), 1: frozenset({PurePosixPath("/x")}), "e": ValueError("bad"), "t": int}
    assert plain(value) == {
        "a": {"inside": ["stall", "2026-11-21T00:00:00.000000+00:00"]},
        "1": ["/x"],
        "e": "bad",
        "t": "int",
    }


def test_plain_stops_at_a_depth() -> None:
    nest: Any = Nest(1)
    for _ in range(5000):
        nest = Nest(nest)
    assert json.dumps(plain(nest)).count("inside") < 50
    assert "..." in json.dumps(plain(nest))


def test_plain_knows_that_json_has_no_infinity() -> None:
    assert plain([float("inf"), 1.5]) == ["inf", 1.5]
