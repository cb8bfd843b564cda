"""The operations on grants by people: they make one from a card, after a preview, list them, and revoke one."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import trio
from attrs import evolve, frozen

from intercom.model.card import CardKind, Notice
from intercom.model.decision import SignedCommand, signature_data
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.grant import MOST_GRANTS, Grant, GrantLine, GrantPreview, GrantScope, risk_of, seconds_of, uses_of
from intercom.model.process import Origin
from intercom.model.request import ApprovalRequest
from intercom.model.session import Session, SessionStatus, id_of_act
from intercom.sessions.grants import is_about, question_of, scope_of, why_over
from intercom.sessions.lookups import only
from intercom.sessions.policy_trial import Question, limits_of, past_question, try_policy
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, requests, sessions
from intercom.store.grants import MADE, REVOKED, all_made, entry_of, grants, history, record_end
from intercom.store.requests import AnyRequest, approvals
from intercom.store.store_and_reader import Reader
from intercom.store.trust import PastRequest
from intercom.store.writer_messages import Database
from intercom.workspace.policy_watcher import answer_of

#: The length of a listing, and how many of the oldest cards that wait are looked at.
LISTED = 200
_WAITING = 50
#: The refusal of a grant that would never count, with what does instead.
_ENDED = (
    "its session has ended, and a grant ends with its session; allow makes a rule of the card, for every agent of the"
    " workspace"
)
_ID_CHARS = 8


@frozen
class GrantOperations:
    """The calls about grants. `session_id` finds a session by the prefix of its id."""

    deps: SessionDeps
    reader: Reader
    session_id: Callable[[str], Awaitable[str]]

    async def preview(
        self,
        prefix: str,
        *,
        pattern: str | None = None,
        risk: str | None = None,
        duration: str | None = None,
        uses: str | None = None,
    ) -> GrantPreview:
        """Return what a grant from this card would cover, and what it would have let through of the recorded requests
        of its session. Raises NotFound, Ambiguous, InvalidArguments, and InvalidState if it may not be granted."""
        request, session = await self.reader.read(partial(card_of_request, prefix=prefix))
        scope = scope_of(request, pattern, risk_of(risk))
        await self._require_covered(request, session, scope)
        return GrantPreview(
            request.id,
            session.id,
            request.title,
            scope.to_text(),
            scope.sentence(),
            seconds_of(duration),
            uses_of(uses),
            await self._try(scope, session, request),
            await self._waiting(scope, session),
            session.status in sessions.WITHOUT_AGENT,
        )

    async def make(
        self,
        prefix: str,
        by: str,
        channel: str,
        *,
        pattern: str | None = None,
        risk: str | None = None,
        duration: str | None = None,
        uses: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
        origin: Origin | None = None,
    ) -> GrantLine:
        """Make a grant from a card. `scope` and `session` are those that the person was shown, and signed: others are
        refused. One `act_id` makes one grant. Raises as `preview`, and SignatureRefused."""
        request, owner = await self.reader.read(partial(card_of_request, prefix=prefix))
        covered = scope_of(request, pattern, risk_of(risk))
        if scope is not None and scope != covered.to_text():
            # A pattern that was given before the preview is in its scope.
            covered = GrantScope.from_text(scope)
            if not is_about(covered, question_of(request), request.tool):
                raise InvalidArguments("this grant is not for what the card asks; look at the card again")
        if session is not None and session != owner.id:
            raise InvalidArguments(f"the card is of session {owner.id}, not of {session[:80]}")
        await self._require_covered(request, owner, covered)
        now = self.deps.now()
        grant = Grant(
            id=self.deps.new_id() if act_id is None else id_of_act(act_id),
            session_id=owner.id,
            scope=covered,
            seconds=seconds_of(duration),
            uses=uses_of(uses),
            at=now,
            by=by,
            channel=channel,
            request_id=request.id,
            title=request.title,
        )
        grant = self.deps.signatures.admit_grant(grant, signed, now)
        line, is_new = await self.deps.store.transact(partial(_make, grant=grant, deps=self.deps, origin=origin))
        if is_new:
            text = (
                f"{by} permitted in advance: {covered.sentence()}; uses: {grant.uses}, until"
                f" {grant.until:%H:%M} UTC; agent-intercom-ctl revoke {grant.id[:_ID_CHARS]} ends it"
            )
            self.deps.card_router.tell(Notice(text, "warning", now, owner.id, event=MADE, grant_id=grant.id, by=by))
        return line

    async def listed(self, session: str | None = None, *, everything: bool = False) -> tuple[GrantLine, ...]:
        """Return the grants that are in force, oldest first; with `everything` also those that are over."""
        id = None if session is None else await self.session_id(session)
        found = await self.reader.read(partial(_lines, session_id=id, deps=self.deps))
        return tuple(each for each in found if everything or each.over is None)

    async def revoke(self, prefix: str, by: str, channel: str, origin: Origin | None = None) -> GrantLine:
        """End a grant. One that was revoked stays so. What it let pass and is not applied yet is not applied any more.
        Raises NotFound and Ambiguous."""
        line, is_new = await self.deps.store.transact(
            partial(_revoke, prefix=prefix, by=by, channel=channel, origin=origin, deps=self.deps)
        )
        self.deps.signatures.note_grant_end(line.grant.id)
        if is_new:
            text = f"{by} revoked the grant {line.grant.id[:_ID_CHARS]}: {line.grant.scope.sentence()}"
            about = line.grant
            notice = Notice(text, "info", self.deps.now(), about.session_id, event=REVOKED, grant_id=about.id, by=by)
            self.deps.card_router.tell(notice)
        return line

    async def _require_covered(self, request: ApprovalRequest, session: Session, scope: GrantScope) -> None:
        """Raise InvalidState unless the grant would let the card's own request pass: what may never pass without a
        person is refused here, and so is a pattern that was mistyped."""
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState(_ENDED)
        root, limits = Path(session.workspace_root), limits_of(self.deps.config)
        answer = await trio.to_thread.run_sync(answer_of, root, scope.policy, question_of(request), limits)
        if not answer.auto_approved:
            why = (answer.why or "").replace("the workspace policy", "the grant")
            raise InvalidState(f"a grant would not let this card itself pass: {why}")

    async def _try(self, scope: GrantScope, session: Session, shown: ApprovalRequest) -> str:
        def counts(past: PastRequest) -> bool:
            # The card that the grant is made from is not past.
            if past.session_id != session.id or past.id == shown.id:
                return False
            question = past_question(past)
            return question is not None and is_about(scope, question, past.tool)

        limits = limits_of(self.deps.config)
        tried = await try_policy(self.reader, session.workspace_root, scope.policy, limits, counts)
        if not tried.tried:
            return "has nothing to be tried on: this is the first request of its kind in this session"
        return tried.sentence()

    async def _waiting(self, scope: GrantScope, session: Session) -> tuple[str, ...]:
        limits = limits_of(self.deps.config)

        def fits(request: ApprovalRequest, question: Question) -> bool:
            root = Path(session.workspace_root)
            is_for = is_about(scope, question, request.tool)
            return is_for and answer_of(root, scope.policy, question, limits).auto_approved

        found = await self.reader.read(partial(requests.pending, session_id=session.id))
        return await trio.to_thread.run_sync(still_waiting, found, fits)


def still_waiting(found: Iterable[AnyRequest], fits: Callable[[ApprovalRequest, Question], bool]) -> tuple[str, ...]:
    """Return the ids of the oldest approval requests among `found` that fit, unless only a person may allow them."""
    asked = [each for each in found if isinstance(each, ApprovalRequest)][:_WAITING]
    ids = []
    for each in asked:
        with contextlib.suppress(InvalidState):
            if fits(each, question_of(each)):
                ids.append(each.id)
    return tuple(ids)


def card_of_request(db: Database, prefix: str) -> tuple[ApprovalRequest, Session]:
    """Return the approval request with this id or unique prefix, and its session. Raises NotFound, Ambiguous, and
    InvalidState for a request of another kind."""
    found = requests.with_prefix(db, prefix)
    ids = [id for kind, id in found if kind is CardKind.APPROVAL]
    if found and not ids:
        kind, id = found[0]
        raise InvalidState(
            f"{id[:_ID_CHARS]} is a {kind.value}: only a change of files or the use of a tool can be permitted before"
        )
    request = approvals.get(db, prefix if prefix in ids else only(ids, prefix, "request"))
    session = None if request is None else sessions.get(db, request.session_id)
    assert request is not None and session is not None, "read in one transaction"  # noqa: PT018
    return request, session


def _make(db: Database, grant: Grant, deps: SessionDeps, origin: Origin | None) -> tuple[GrantLine, bool]:
    """Record a grant once. Returns it as it is recorded, and whether it is new."""
    known = grants.get(db, grant.id)
    if known is not None:
        return _line(db, known, deps), False
    session = sessions.get(db, grant.session_id)
    if session is None or session.status is SessionStatus.TERMINATED:
        raise InvalidState("its session has ended, and a grant ends with its session")
    in_force = [each for each in grants.of_session(db, grant.session_id) if deps.now() < each.until]
    if len(in_force) >= MOST_GRANTS:
        raise InvalidState(f"{len(in_force)} grants of this session are in force, which is the limit: revoke one first")
    grants.insert(db, grant)
    signature = None if grant.signed is None else grant.signed.signature
    about = {
        **entry_of(grant),
        "origin": None if origin is None else origin.to_data(),
        "signature": signature_data(signature),
    }
    audit.record(db, deps.now(), MADE, grant.session_id, grant.by, grant.scope.sentence(), about)
    return _line(db, grant, deps), True


def _revoke(
    db: Database, prefix: str, by: str, channel: str, origin: Origin | None, deps: SessionDeps
) -> tuple[GrantLine, bool]:
    # Of several entries about a grant the first counts: the server wrote it.
    logged = {each.id: each for each in reversed(all_made(db)) if each.id.startswith(prefix)} if prefix else {}
    ids = {*grants.with_prefix(db, prefix), *logged} if prefix else set()
    id = prefix if prefix in ids else only(sorted(ids), prefix, "grant")
    grant = logged.get(id) or grants.get(db, id)
    assert grant is not None, "read in the same transaction"
    is_new = record_end(db, grant, by, channel, None if origin is None else origin.to_data(), deps.now())
    after = grants.get(db, id) or grant
    return _line(db, evolve(after, session_id=grant.session_id), deps), is_new


def _lines(db: Database, session_id: str | None, deps: SessionDeps) -> tuple[GrantLine, ...]:
    return tuple(_line(db, each, deps) for each in grants.listed(db, session_id, LISTED))


def _line(db: Database, grant: Grant, deps: SessionDeps) -> GrantLine:
    past, session = history(db, grant), sessions.get(db, grant.session_id)
    used = len(past.names | deps.signatures.grant_uses(grant.id))
    over = why_over(deps.signatures, grant, past, deps.now())
    if over is None and (session is None or session.status is SessionStatus.TERMINATED):
        over = "its session has ended"
    is_away = session is not None and session.status is SessionStatus.INTERRUPTED
    return GrantLine(grant, used, over or ("its uses are spent" if used >= grant.uses else None), is_away)
