"""Whatever can be written is read back equal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.approval import (
    ApprovalRequest,
    ApprovalStatus,
    ChangeKind,
    FileChange,
    ProposalForm,
    Remark,
    RiskLevel,
)
from intercom.model.checkpoint import Checkpoint
from intercom.model.policy import PolicyDecision
from intercom.model.prompt import ContinuationPrompt, PromptDecision, PromptType, Wait, WaitStatus
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionMode, SessionStatus
from intercom.model.stall import StallAlert, StallStatus
from intercom.model.verdict import Decided
from intercom.store import (
    approvals,
    audit,
    calls,
    checkpoints,
    instructions,
    journal,
    policies,
    prompts,
    requests,
    sessions,
    stalls,
    waits,
)
from intercom.store.audit import AuditEntry
from intercom.store.journal import Entry, JournalState

from . import cases

text = st.text()
name = st.text(min_size=1)
maybe = st.none() | text
number = st.integers(-(2**63), 2**63 - 1)
instant = st.datetimes(timezones=st.just(UTC))
progress = st.none() | st.lists(
    st.builds(ProgressItem, label=text, status=st.sampled_from(ProgressStatus)), max_size=3
).map(tuple)
json_value = st.recursive(
    st.none() | st.booleans() | number | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
json_object = st.dictionaries(text, json_value, max_size=4)
decided = st.none() | st.builds(Decided, verdict_id=name, decision=text, by=text, channel=text, at=instant, text=maybe)
files = st.lists(
    st.builds(
        FileChange,
        path=text,
        kind=st.sampled_from(ChangeKind),
        before_hash=text,
        after_hash=maybe,
        old_path=maybe,
        mode=st.none() | st.integers(0, 0o7777),
        added=number,
        removed=number,
    ),
    max_size=3,
).map(tuple)

VALUES: dict[type, tuple[Any, Any]] = {
    Session: (
        sessions,
        st.builds(
            Session,
            id=name,
            owner_user_id=text,
            workspace_root=text,
            status=st.sampled_from(SessionStatus),
            mode=st.sampled_from(SessionMode),
            created_at=instant,
            updated_at=instant,
            prompt=maybe,
            terminated_at=st.none() | instant,
            last_tool=maybe,
            nudge_count=number,
            stall_paused=st.booleans(),
            progress_snapshot=progress,
            agent_key=maybe,
            client_name=maybe,
            paused_by=maybe,
            paused_at=st.none() | instant,
        ),
    ),
    ApprovalRequest: (
        approvals,
        st.builds(
            ApprovalRequest,
            id=name,
            session_id=st.just("s1"),
            title=text,
            diff_content=text,
            file_path=text,
            risk_level=st.sampled_from(RiskLevel),
            status=st.sampled_from(ApprovalStatus),
            original_hash=text,
            created_at=instant,
            key=text,
            files=files,
            description=maybe,
            slack_ts=maybe,
            consumed_at=st.none() | instant,
            expires_at=st.none() | instant,
            call=maybe,
            auto_rule=maybe,
            preview=maybe,
            remarks=st.lists(st.builds(Remark, path=maybe, text=text), max_size=3).map(tuple),
            form=st.none() | st.sampled_from(ProposalForm),
            decided=decided,
            delivered_at=st.none() | instant,
            tool=maybe,
            policy_question=maybe,
        ),
    ),
    ContinuationPrompt: (
        prompts,
        st.builds(
            ContinuationPrompt,
            id=name,
            session_id=st.just("s1"),
            prompt_text=text,
            prompt_type=st.sampled_from(PromptType),
            status=st.sampled_from(WaitStatus),
            created_at=instant,
            elapsed_seconds=st.none() | number,
            actions_taken=st.none() | number,
            decision=st.none() | st.sampled_from(PromptDecision),
            instruction=maybe,
            slack_ts=maybe,
            expires_at=st.none() | instant,
            call=maybe,
            decided=decided,
            delivered_at=st.none() | instant,
        ),
    ),
    Wait: (
        waits,
        st.builds(
            Wait,
            id=name,
            session_id=st.just("s1"),
            message=text,
            status=st.sampled_from(WaitStatus),
            created_at=instant,
            instruction=maybe,
            slack_ts=maybe,
            expires_at=st.none() | instant,
            call=maybe,
            decided=decided,
            delivered_at=st.none() | instant,
        ),
    ),
    StallAlert: (
        stalls,
        st.builds(
            StallAlert,
            id=name,
            session_id=st.just("s1"),
            last_activity_at=instant,
            idle_seconds=number,
            status=st.sampled_from(StallStatus),
            created_at=instant,
            last_tool=maybe,
            nudge_count=number,
            nudge_message=maybe,
            progress_snapshot=progress,
            slack_ts=maybe,
        ),
    ),
    Checkpoint: (
        checkpoints,
        st.builds(
            Checkpoint,
            id=name,
            session_id=st.just("s1"),
            session_state=json_object,
            file_hashes=st.dictionaries(text, text, max_size=3),
            workspace_root=text,
            created_at=instant,
            label=maybe,
            progress_snapshot=progress,
        ),
    ),
}


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_is_read_back_as_it_was_written(kind: type) -> None:
    module, strategy = VALUES[kind]
    with cases.database() as db:

        @settings(max_examples=60, deadline=None)
        @given(strategy)
        def check(value: Any) -> None:
            with db.atomic():
                db.execute("delete from approval_file")
                for table in ("approval_request", "continuation_prompt", "wait", "stall_alert", "checkpoint"):
                    db.execute(f"delete from {table}")
                db.execute("delete from session where id <> 's1'")
                value = evolve(value, id=f"x{value.id}")
                assert module.insert(db, value)
                assert module.get(db, value.id) == value
                # once more changes nothing, as after an answer that was lost
                assert not module.insert(db, value)
                assert module.get(db, value.id) == value
                if kind in (ApprovalRequest, ContinuationPrompt, Wait):
                    assert requests.find(db, value.id) == value

        check()


def test_a_journal_entry_is_read_back_as_it_was_written() -> None:
    with cases.database() as db:

        @settings(max_examples=40, deadline=None)
        @given(
            st.builds(
                Entry,
                request_id=st.just("r1"),
                session_id=st.just("s1"),
                workspace_root=text,
                state=st.sampled_from(JournalState),
                steps=st.lists(json_object, max_size=3).map(tuple),
                at=instant,
                note=maybe,
                call=maybe,
            )
        )
        def check(value: Entry) -> None:
            db.execute("delete from apply_journal")
            assert journal.begin(db, value)
            assert journal.get(db, "r1") == value

        approvals.insert(db, cases.approval("r1"))
        check()


@settings(max_examples=40, deadline=None)
@given(answer=json_object, tool=text, data=st.none() | json_object, words=text, at=instant)
def test_records_are_read_back_as_they_were_written(
    answer: dict[str, Any], tool: str, data: dict[str, Any] | None, words: str, at: datetime
) -> None:
    with cases.database() as db:
        assert calls.record(db, "call", "s1", tool, answer, at)
        assert calls.answer(db, "call") == answer
        id = audit.record(db, at, "approved", "s1", words, words, data)
        [entry] = audit.recent(db, 1)
        assert entry == AuditEntry(id, at, "approved", "s1", words, words, data, hash=entry.hash)
        word = cases.word("i1", text=words, at=at)
        assert instructions.insert(db, word)
        assert instructions.queued(db, "s1") == (word,)
        said = PolicyDecision(
            "policy-1", "/project", "sha", words, True, Decided("v", "accept", words, "ctl", at, words)
        )
        assert policies.record(db, said)
        assert policies.decision(db, "policy-1") == said
