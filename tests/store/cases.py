"""Values to store: a valid one of each kind, with what a test wants different."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import evolve

from intercom.model.checkpoint import (
    Checkpoint,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Files,
    Restore,
    RestoreState,
)
from intercom.model.decision import Decided
from intercom.model.process import Origin
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ChangeKind,
    ContinuationPrompt,
    FileChange,
    InstructionWait,
    PromptType,
    RiskLevel,
    WaitStatus,
)
from intercom.model.session import Instruction, Kind, Session, SessionMode, SessionStatus, StallAlert, StallStatus
from intercom.store import sessions
from intercom.store.apply_journal import Entry, JournalState
from intercom.store.database import Database, open_database
from tests.support.database import new_database

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@contextmanager
def database() -> Iterator[Database]:
    """A new database with the session "s1" in it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "intercom.db"
        new_database(file)
        db = open_database(file).db
        try:
            sessions.insert(db, session("s1"))
            yield db
        finally:
            db.close()


def session(id: str, **changes: Any) -> Session:
    plain = Session(
        id=id,
        owner_user_id="",
        workspace_root="/project",
        status=SessionStatus.ACTIVE,
        mode=SessionMode.LOCAL,
        created_at=NOW,
        updated_at=NOW,
        client_name="codex",
    )
    return evolve(plain, **changes)


def approval(id: str, **changes: Any) -> ApprovalRequest:
    plain = ApprovalRequest(
        id=id,
        session_id="s1",
        title="Say hello",
        diff_content="hello\n",
        file_path="hello.txt",
        risk_level=RiskLevel.LOW,
        status=ApprovalStatus.PENDING,
        original_hash="new_file",
        created_at=NOW,
        key=f"key of {id}",
        files=(FileChange("hello.txt", ChangeKind.CREATE, "new_file", "ab" * 32, added=1),),
    )
    return evolve(plain, **changes)


def prompt(id: str, **changes: Any) -> ContinuationPrompt:
    plain = ContinuationPrompt(
        id=id,
        session_id="s1",
        prompt_text="Go on?",
        prompt_type=PromptType.CONTINUATION,
        status=WaitStatus.PENDING,
        created_at=NOW,
    )
    return evolve(plain, **changes)


def wait(id: str, **changes: Any) -> InstructionWait:
    plain = InstructionWait(
        id=id, session_id="s1", message="Done; what next?", status=WaitStatus.PENDING, created_at=NOW
    )
    return evolve(plain, **changes)


def alert(id: str, **changes: Any) -> StallAlert:
    plain = StallAlert(
        id=id,
        session_id="s1",
        last_activity_at=NOW,
        idle_seconds=300,
        status=StallStatus.PENDING,
        created_at=NOW,
    )
    return evolve(plain, **changes)


def checkpoint(id: str, **changes: Any) -> Checkpoint:
    plain = Checkpoint(
        id=id,
        session_id="s1",
        session_state={"status": "active"},
        file_hashes={"a.txt": "ab" * 32},
        workspace_root="/project",
        created_at=NOW,
    )
    return evolve(plain, **changes)


def entry(request_id: str, **changes: Any) -> Entry:
    plain = Entry(
        request_id=request_id,
        session_id="s1",
        workspace_root="/project",
        state=JournalState.STAGING,
        steps='[{"path":"hello.txt"}]',
        at=NOW,
    )
    return evolve(plain, **changes)


def verdict(id: str, decision: str, at: datetime = NOW, text: str | None = None) -> Decided:
    origin = Origin("ctl", 12, 3456, "boot", "/dev/pts/3", 11, 3400, "/usr/bin/python3", 11, "/usr/bin/bash")
    return Decided(verdict_id=id, decision=decision, by="ada", channel="ctl", at=at, text=text, origin=origin)


def word(id: str, **changes: Any) -> Instruction:
    return evolve(Instruction(id, Kind.NUDGE, "go on", "ada", "ctl", NOW, "s1"), **changes)


def restore(**changes: Any) -> Restore:
    plain = Restore(
        id="r1",
        checkpoint_id="c1",
        session_id="s1",
        successor_id="s2",
        safety_id="c2",
        workspace_root="/project",
        state=RestoreState.ASKED,
        files=Files.BACK,
        asked_by="ada",
        asked_via="ctl",
        created_at=NOW,
        updated_at=NOW,
        label="before",
        divergence=DivergenceSummary(1, 0, 2, (Divergence("a\n.txt", DivergenceKind.MODIFIED),), ("a remark",)),
        digest="ab",
        expires_at=after(60),
    )
    return evolve(plain, **changes)
