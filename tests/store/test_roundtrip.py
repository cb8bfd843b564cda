"""Whatever can be written is read back equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin

import attrs
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.audit import AuditEntry
from intercom.model.checkpoint import Checkpoint, Restore
from intercom.model.grant import Grant, GrantScope
from intercom.model.policy import PolicyDecision
from intercom.model.process import AgentProcess, Process, ProcessRecord
from intercom.model.request import ApprovalRequest, ContinuationPrompt, InstructionWait, RiskLevel, Task
from intercom.model.session import Instruction, Session, StallAlert
from intercom.model.web import ApiToken
from intercom.model.web_role import WebRole
from intercom.store import audit, checkpoints, idempotency, instructions, requests, sessions
from intercom.store import processes as known_processes
from intercom.store.apply_journal import Entry, journal
from intercom.store.audit_chain import GENESIS
from intercom.store.checkpoints import restores
from intercom.store.database import Database
from intercom.store.grants import grants
from intercom.store.idempotency import Scope
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals, prompts, tasks, waits
from intercom.store.sessions import stalls
from intercom.store.trust import EnrolledKey, api_tokens, operator_keys, policies
from tests.store import cases

text = st.text()
number = st.integers(-(2**63), 2**63 - 1)
json_value = st.recursive(
    st.none() | st.booleans() | number | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
json_object = st.dictionaries(text, json_value, max_size=4)
# No path or hash has a null character, where SQLite ends a text of JSON.
whole = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
paths = st.dictionaries(whole, whole, max_size=3)

PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: text,
    int: number,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    datetime: st.datetimes(timezones=st.just(UTC)),
    Any: json_value,
    # No process has the pid 0.
    Process: st.builds(Process, pid=st.integers(1, 2**31), began=st.floats(0, 1e9)),
}


@functools.cache
def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that a field has."""
    inner = [each for each in get_args(kind) if each is not NoneType]
    if kind in PLAIN:
        return PLAIN[kind]
    if NoneType in get_args(kind):
        return st.none() | of(inner[0])
    if get_origin(kind) is tuple:
        return st.lists(of(inner[0]), max_size=3).map(tuple) if ... in inner else st.tuples(*map(of, inner))
    if get_origin(kind) in (dict, Mapping):
        return st.dictionaries(of(inner[0]), of(inner[1]), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    return built(kind)


def built(kind: type[Any], **fixed: object) -> st.SearchStrategy[Any]:
    """Values of an attrs class, with some fields fixed, or of a strategy of their own."""
    own = {name: each if isinstance(each, st.SearchStrategy) else st.just(each) for name, each in fixed.items()}
    fields = attrs.fields(attrs.resolve_types(kind))
    return st.builds(kind, **{each.name: own[each.name] if each.name in own else of(each.type) for each in fields})


@frozen
class Aggregate:
    """How values of a class are written (True if that is new) and read back by their id."""

    kind: type[Any]
    write: Callable[[Database, Any], object]
    read: Callable[[Database, str], object]
    fixed: Mapping[str, object] = {"session_id": "s1"}
    id: str = "id"


def only(values: tuple[Any, ...]) -> Any:
    [value] = values
    return value


AGGREGATES = (
    Aggregate(Session, sessions.insert, sessions.get, {}),
    Aggregate(ApprovalRequest, approvals.insert, approvals.get),
    Aggregate(ContinuationPrompt, prompts.insert, prompts.get),
    Aggregate(InstructionWait, waits.insert, waits.get),
    Aggregate(StallAlert, stalls.insert, stalls.get),
    Aggregate(
        Checkpoint, checkpoints.insert, checkpoints.get, {"session_id": "s1", "file_facts": {}, "file_hashes": paths}
    ),
    Aggregate(Restore, restores.insert, restores.get),
    Aggregate(Instruction, instructions.insert, instructions.get),
    Aggregate(PolicyDecision, policies.record, policies.get, {"decided": cases.verdict("v", "accept")}),
    Aggregate(Task, tasks.insert_or_get, tasks.get),
    # A critical risk is never granted.
    Aggregate(
        Grant,
        grants.insert,
        grants.get,
        {"session_id": "s1", "scope": built(GrantScope, risk=st.sampled_from([RiskLevel.LOW, RiskLevel.HIGH]))},
    ),
    Aggregate(AgentProcess, agent_processes.insert, agent_processes.get, {"session_id": "s1"}, "session_id"),
    Aggregate(Entry, journal.begin, journal.get, {"request_id": "r1", "session_id": "s1"}, "request_id"),
    Aggregate(
        ApiToken,
        api_tokens.insert,
        api_tokens.get,
        {"role": st.sampled_from([WebRole.VIEWER, WebRole.OPERATOR])},
    ),
    Aggregate(EnrolledKey, operator_keys.insert, lambda db, _id: only(operator_keys.every(db))),
    Aggregate(
        ProcessRecord,
        lambda db, value: known_processes.record(db, [value], cases.NOW),
        lambda db, _id: only(known_processes.recorded(db)),
        {},
        "boot",
    ),
)


@pytest.mark.parametrize("about", AGGREGATES, ids=lambda about: about.kind.__name__)
def test_a_value_is_read_back_as_it_was_written(about: Aggregate) -> None:
    with cases.database() as db:
        if about.kind is Entry:
            approvals.insert(db, cases.approval("r1"))

        def check_one(db: Database, value: Any, id: str) -> None:
            written = about.write(db, value)
            assert about.read(db, id) == value
            # Once more changes nothing, as after an answer that was lost. An abandoned apply may begin again.
            again = about.write(db, value)
            assert (written, again) in ((True, False), (None, None), (value, value)) or about.kind is Entry
            assert about.read(db, id) == value
            if about.kind in (ApprovalRequest, ContinuationPrompt, InstructionWait):
                assert requests.find(db, id) == value

        @settings(max_examples=60, deadline=None)
        @given(built(about.kind, **about.fixed))
        def check(value: Any) -> None:
            if about.id not in about.fixed:
                value = evolve(value, **{about.id: f"x{getattr(value, about.id)}"})
            id = getattr(value, about.id)
            db.execute("begin")
            try:
                check_one(db, value, id)
            finally:
                db.rollback()

        check()


@settings(max_examples=40, deadline=None)
@given(answer=json_object, tool=text, data=st.none() | json_object, words=text, at=PLAIN[datetime])
def test_records_are_read_back_as_they_were_written(
    answer: dict[str, Any], tool: str, data: dict[str, Any] | None, words: str, at: datetime
) -> None:
    with cases.database() as db:
        assert idempotency.record(db, Scope.CALL, "call", answer, at, session_id="s1", tool=tool)
        assert idempotency.answer(db, Scope.CALL, "call") == answer
        id = audit.record(db, at, "approved", "s1", words, words, data)
        [entry] = audit.recent(db, 1)
        assert entry == AuditEntry(id, at, "approved", "s1", words, words, data, GENESIS, entry.hash)
