"""Grants: what a card's kind is, as the scope of a grant, and whether a grant counts.

`session.grant_checks` uses grants, `grant_operations` makes, lists and revokes them. Both judge a grant by `why_over`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.grant import MOST_PATTERNS, Grant, GrantKind, GrantScope
from intercom.model.request import ApprovalRequest, RiskLevel
from intercom.sessions import policy_trial
from intercom.sessions.policy_trial import Question, from_text, is_command
from intercom.sessions.signatures import Signatures
from intercom.store.grants import GrantHistory
from intercom.workspace.policy_rules import directory_patterns, literal_command
from intercom.workspace.policy_watcher import Evaluate, EvaluateFiles

#: How far the clock may run behind the audit log before a grant counts as over.
BEHIND = timedelta(minutes=1)


# --- what a grant is about -------------------------------------------------------------------------------------------


def is_about(scope: GrantScope, question: Question, tool: str | None) -> bool:
    """Whether a grant is for this kind of operation and for this tool. Its paths and its risk are judged apart."""
    return (scope.kind, scope.tool) == (kind_of(question, tool), tool)


def kind_of(question: Question, tool: str | None) -> GrantKind:
    """Return what kind of grant an operation needs. `tool` is the client's own; None for a proposed change."""
    if isinstance(question, EvaluateFiles):
        return GrantKind.CHANGE if tool is None else GrantKind.WRITE
    if is_command(question):
        return GrantKind.COMMAND
    return GrantKind.TOOL if question.query.file_path is None else GrantKind.READ


def question_of(request: ApprovalRequest) -> Question:
    """Return what the policy was asked about a request. Raises InvalidState if nothing but a person may allow it."""
    if request.replaces is not None:
        raise InvalidState("this asks whether to write over a file that has changed since: only a person decides that")
    if request.tool is None:
        return policy_trial.question_of(request.files, request.risk_level)
    question = from_text(request.policy_question)
    if question is None:
        raise InvalidState(
            "only a person may allow this each time: it leaves the workspace or the client's sandbox, or it is input"
            " for a running command"
        )
    return question


def scope_of(request: ApprovalRequest, pattern: str | None, risk: RiskLevel | None) -> GrantScope:
    """Return what a grant from this card covers: by default files in the same directories, the same command, the same
    tool, up to the card's risk. Raises InvalidState and InvalidArguments."""
    question = question_of(request)
    kind = kind_of(question, request.tool)
    if kind is GrantKind.TOOL and pattern is not None:
        raise InvalidArguments("a pattern is for files and commands; this is a use of a tool")
    patterns = _patterns(question, kind) if pattern is None else (pattern,)
    if len(patterns) > MOST_PATTERNS:
        raise InvalidArguments(f"the card names files in {len(patterns)} directories: say which you mean, as a pattern")
    return GrantScope(kind, request.tool, patterns, request.risk_level if risk is None else risk)


def _patterns(question: Question, kind: GrantKind) -> tuple[str, ...]:
    match question:
        case EvaluateFiles(paths):
            return directory_patterns(paths)
        case Evaluate(query) if kind is GrantKind.COMMAND:
            return (literal_command(query.tool_name),)
        case Evaluate(query):
            return () if query.file_path is None else directory_patterns((query.file_path,))


# --- whether a grant counts ------------------------------------------------------------------------------------------


def why_ended(signatures: Signatures, grant: Grant, past: GrantHistory) -> str | None:
    """Return why a grant does not count whatever the time is, as half a sentence; None if it may count."""
    if grant.revoked_at is not None or past.is_revoked or signatures.is_grant_ended(grant.id):
        return "it was revoked"
    if past.made is None:
        return "the audit log does not say that anybody made it"
    if past.is_changed:
        return "its record was changed after it was made"
    if past.is_adopted:
        return "another agent has taken the session over since"
    fault = signatures.fault_of_grant(grant)
    return None if fault is None else f"it does not count: {fault}"


def why_over(signatures: Signatures, grant: Grant, past: GrantHistory, now: datetime) -> str | None:
    """Return why a grant lets nothing new pass, except that its uses may be spent; None otherwise."""
    ended = why_ended(signatures, grant, past)
    if ended is not None:
        return ended
    # The audit log remembers later times, if the clock was set back.
    latest = now if past.latest is None else max(now, past.latest)
    if latest >= grant.until:
        return "its time is over"
    return "the clock was set back since" if latest - now > BEHIND else None
