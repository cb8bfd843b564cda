"""Whether a grant lets a request of this session pass, and the use of a grant that does.

The files are looked at before the transaction that records the request. The rest is checked in it, and the use is
recorded with what it lets pass. So two requests never share the last use, and a crash loses neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import trio
from attrs import evolve

from intercom.model.decision import Decided, Decision
from intercom.model.grant import Grant, grant_of_rule
from intercom.model.request import ApprovalRequest
from intercom.model.session import SessionMode
from intercom.sessions import request_kinds
from intercom.sessions.grants import is_about, why_ended, why_over
from intercom.sessions.policy_trial import Question, limits_of, question_of
from intercom.sessions.session.actor import SessionActor
from intercom.store.grants import USED, GrantHistory, GrantUse, grants, history, record_use
from intercom.store.writer_messages import Database
from intercom.workspace.policy import Limits
from intercom.workspace.policy_watcher import answer_of

#: How long after one hook event another one may follow for the same use of a tool.
COVERED = timedelta(minutes=5)


def asks_always(session: SessionActor) -> bool:
    """Return whether a person is asked now whatever a policy or a grant says."""
    return session.deps.config.policy.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE


async def covering(session: SessionActor, question: Question | None, tool: str | None) -> tuple[Grant, ...]:
    """Return the grants of this session whose scope covers an operation, oldest first. Whether one counts, `take`
    decides. `tool` is the client's own tool; None for a proposed change."""
    if question is None or asks_always(session):
        return ()
    found = await session.transact(grants.of_session, session_id=session.id)
    fitting = [grant for grant in found if is_about(grant.scope, question, tool) and session.now() < grant.until]
    if not fitting:
        return ()
    root, limits = Path(session.row.workspace_root), limits_of(session.deps.config)
    return await trio.to_thread.run_sync(_covering, root, fitting, question, limits)


def _covering(root: Path, found: Sequence[Grant], question: Question, limits: Limits) -> tuple[Grant, ...]:
    return tuple(grant for grant in found if answer_of(root, grant.scope.policy, question, limits).auto_approved)


def take(db: Database, session: SessionActor, candidates: Sequence[Grant], use: GrantUse, title: str) -> Grant | None:
    """Use the first of these grants that counts, and return it; None if none does. Call it in the transaction of what
    the use lets pass. A use that is recorded already is not counted again."""
    if asks_always(session):
        return None
    signatures, now = session.deps.signatures, session.now()
    for candidate in candidates:
        grant = grants.get(db, candidate.id)
        if grant != candidate:
            # Revoked meanwhile, or changed by another program.
            continue
        past = history(db, grant)
        if why_over(signatures, grant, past, now) is not None:
            continue
        joined = _joined(past, use, now)
        if joined is None and len(past.names | signatures.grant_uses(grant.id)) >= grant.uses:
            continue
        if joined != use:
            record_use(db, grant, joined or use, title, now)
        return grant
    return None


def _joined(past: GrantHistory, use: GrantUse, now: datetime) -> GrantUse | None:
    """Return the use that this one is a part of: the same, or one that another hook made in the same turn of the same
    operation. None for a new use."""
    if use.use in past.names:
        return use
    mine = {each.use for each, _ in past.uses if each.slot == use.slot}
    for each, at in reversed(past.uses):
        same = use.turn and (each.key, each.turn) == (use.key, use.turn)
        if same and each.use not in mine and now - at <= COVERED:
            return evolve(each, slot=use.slot)
    return None


def approve(
    db: Database, session: SessionActor, candidates: Sequence[Grant], request: ApprovalRequest
) -> tuple[ApprovalRequest, Decided] | None:
    """Use one of these grants for a new proposal. Returns the proposal and its decision; None if no grant counts."""
    grant = take(db, session, candidates, GrantUse(request.id), request.title)
    if grant is None:
        return None
    decided = Decided(
        f"grant/{request.id}",
        Decision.APPROVE.value,
        request_kinds.GRANTED,
        request_kinds.GRANTED,
        session.now(),
        grant.rule,
    )
    return evolve(request, auto_rule=grant.rule), decided


async def passed(session: SessionActor, rule: str, title: str) -> None:
    """Tell people of a use of a grant, after its commit. `title` is that of what passed."""
    id = grant_of_rule(rule)
    if id is None:
        return
    grant, past = await session.transact(_read, id)
    if grant is None or past is None:
        return
    session.deps.signatures.note_grant_uses(id, past.names)
    left = f"use {len(past.names)} of {grant.uses}, until {grant.until:%H:%M} UTC"
    how_to_end = f"agent-intercom-ctl revoke {id[:8]} ends it"
    text = f"a grant let pass: {request_kinds.headline(title)} ({left}; {how_to_end})"
    session.notify(text, event=USED, grant_id=id)


def was_used(db: Database, session: SessionActor, rule: str | None, use: str) -> bool:
    """Return whether this use of a grant is on record, and the grant genuine and not revoked: then the answer of the
    hook that it let pass may be repeated."""
    grant, past = _read(db, grant_of_rule(rule) or "")
    if grant is None or past is None or grant.session_id != session.id:
        return False
    is_ended = why_ended(session.deps.signatures, grant, past) is not None
    return not is_ended and use in past.names


async def refusal(session: SessionActor, request: ApprovalRequest) -> str | None:
    """Return why the grant that let a proposal pass does not let it be applied, as half a sentence; None if it does.
    A grant that is over or used up since lets it: the use was made in time."""
    grant, past = await session.transact(_read, grant_of_rule(request.auto_rule) or "")
    if grant is None or past is None or grant.session_id != session.id:
        return "no grant of this session is recorded that let it pass"
    fault = why_ended(session.deps.signatures, grant, past)
    if fault is not None:
        return f"the grant does not let it pass any more: {fault}"
    if request.id not in past.names:
        return "the audit log has no use of a grant for it"
    question = question_of(request.files, request.risk_level)
    root, limits = Path(session.row.workspace_root), limits_of(session.deps.config)
    if not is_about(grant.scope, question, None):
        return "the grant is for something else"
    answer = await trio.to_thread.run_sync(answer_of, root, grant.scope.policy, question, limits)
    return None if answer.auto_approved else f"the grant does not cover it: {answer.why}"


def _read(db: Database, id: str) -> tuple[Grant | None, GrantHistory | None]:
    grant = grants.get(db, id)
    return grant, None if grant is None else history(db, grant)
