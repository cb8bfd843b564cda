"""What the tests draw: ready values, and any values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from intercom.model.card import Card, CardKind, CardState
from intercom.model.decision import Decided
from intercom.model.request import ChangeKind, FileChange, Remark, RiskLevel
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionMode, SessionStatus

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
DIFF = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-old\n+new\n"

#: Pieces that have broken things elsewhere.
_ODD = (
    "```", "`", "``````", "<!channel>", "<@U123>", "&", "&amp;", "<", ">", "\u202e", "\u2066", "\x00", "\x1b[31m",
    "\r\n", "\r", "\n", "\t", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "é", "e\u0301", "שלום", "مرحبا", "\ud800", "\u200b", "\u200d",
    "*", "_", "~", ":x:",
    " ", "-----BEGIN", "x" * 90, "日本語", "\U000e0041", "\ufe0f", "\u2028", "|", "a\u0301\u0302\u0303",
)  # fmt: skip

words = st.lists(st.one_of(st.sampled_from(_ODD), st.text(max_size=12)), max_size=40).map("".join)
#: Long ones are made by repetition: a generator would take minutes for a megabyte.
texts = st.one_of(
    words,
    st.builds(lambda piece, times: piece * times, st.one_of(st.sampled_from(_ODD), st.text(min_size=1, max_size=9)),
              st.sampled_from([1, 17, 200, 3_000, 20_000])),
)  # fmt: skip
instants = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
changes = st.builds(
    FileChange,
    path=texts,
    kind=st.sampled_from(ChangeKind),
    before_hash=st.just("new_file"),
    after_hash=st.none(),
    old_path=st.none() | words,
    added=st.integers(0, 10**9),
    removed=st.integers(0, 10**9),
)
decided = st.builds(
    Decided,
    verdict_id=st.just("v"),
    decision=st.sampled_from(["approve", "reject", "continue", "refine", "stop", "resume", "nudge", "dismiss", "x"]),
    by=texts,
    channel=st.sampled_from(["ctl", "slack", "embed", "elicitation", "policy", "timeout"]),
    at=instants,
    text=st.none() | texts,
)
# Ours, and so no half characters, which the value of a button could not hold.
ids = st.one_of(st.just(ID), words.map(lambda text: text.encode(errors="ignore").decode()))
cards = st.builds(
    Card,
    id=ids,
    kind=st.sampled_from(CardKind),
    session_id=words,
    workspace_root=texts,
    title=texts,
    created_at=instants,
    state=st.sampled_from(CardState),
    body=st.none() | texts,
    detail=st.none() | texts,
    risk=st.none() | st.sampled_from(RiskLevel),
    files=st.lists(changes, max_size=14).map(tuple),
    diff=st.none() | texts | texts.map("--- a\n+++ b\n".__add__),
    expires_at=st.none() | instants,
    decided=st.none() | decided,
    away=st.booleans(),
    note=st.none() | texts,
    escalated=st.booleans(),
    diff_from_agent=st.booleans(),
    remarks=st.lists(st.builds(Remark, path=st.none() | texts, text=texts), max_size=9).map(tuple),
)
sessions = st.builds(
    Session,
    id=ids,
    owner_user_id=words,
    workspace_root=texts,
    status=st.sampled_from(SessionStatus),
    mode=st.sampled_from(SessionMode),
    created_at=instants,
    updated_at=instants,
    prompt=st.none() | texts,
    terminated_at=st.none() | instants,
    last_tool=st.none() | words,
    client_name=st.none() | texts,
    progress_snapshot=st.none()
    | st.lists(st.builds(ProgressItem, texts, st.sampled_from(ProgressStatus)), max_size=30).map(tuple),
)


def card(**changes: Any) -> Card:
    """An approval as an agent asks for it, or what `changes` make of it."""
    return Card(
        **{
            "id": ID,
            "kind": CardKind.APPROVAL,
            "session_id": SESSION,
            "workspace_root": "/home/ann/shop",
            "title": "Use the new parser",
            "created_at": NOW,
            "body": "The old one is slow.",
            "risk": RiskLevel.LOW,
            "files": (FileChange("app.py", ChangeKind.WRITE, "a", "b", added=1, removed=1),),
            "diff": DIFF,
            "expires_at": NOW + timedelta(hours=1),
            **changes,
        }
    )


def by_ann(decision: str = "approve", text: str | None = None, channel: str = "slack") -> Decided:
    return Decided("v1", decision, "Ann (U0123)", channel, NOW, text)
