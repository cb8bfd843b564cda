"""The operator service: what operators' channels, and programs that embed us, can see and do. Stateless calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from actors import Info, Request, System, ask
from intercom._version import __version__
from intercom.local.operator_keys import PublicKey
from intercom.model.card import Card, CardKind, Notice
from intercom.model.errors import SignatureRefused
from intercom.model.origin import Origin
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.steering import Kind, id_of_act
from intercom.model.verdict import Decision, Signature, SignedCommand, Verdict
from intercom.sessions import finding, lookups, meant, measures
from intercom.sessions.asking import ACT_SECONDS, ask_session
from intercom.sessions.checkpoint_calls import CheckpointCalls
from intercom.sessions.children import Children
from intercom.sessions.context import Context
from intercom.sessions.finding import single
from intercom.sessions.messages import Decide, End, Resume, SwitchMode
from intercom.sessions.policies import PolicyBoard, PolicyStatus
from intercom.sessions.shown_cards import ShownCards
from intercom.sessions.signatures import Signatures
from intercom.sessions.steering_desk import Steering
from intercom.sessions.steering_messages import Steer
from intercom.store import agent_processes, audit, sessions
from intercom.store.audit import AuditEntry
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader

R = TypeVar("R")

#: How long a repeated refusal is not reported again, and how many refusals are remembered.
_AGAIN = timedelta(minutes=1)
_REMEMBERED = 1000


@define
class Told:
    """Recently reported refusals, so that a process that retries again and again does not flood every channel."""

    _at: OrderedDict[str, datetime] = field(factory=OrderedDict)

    def is_new(self, text: str, now: datetime) -> bool:
        """Return whether this was not reported within the last minute."""
        last = self._at.get(text)
        if last is not None and abs(now - last) < _AGAIN:
            return False
        self._at[text] = now
        self._at.move_to_end(text)
        while len(self._at) > _REMEMBERED:
            self._at.popitem(last=False)
        return True


@frozen
class Desk:
    """`chat` returns the chat channel's status; None if there is no chat channel. `children` are the agents that people
    start."""

    system: System
    context: Context
    reader: Reader
    board: PolicyBoard
    children: Children
    chat: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    _shown: ShownCards = field(factory=ShownCards, init=False, repr=False)
    _told: Told = field(factory=lambda: Told(), init=False, repr=False)

    @property
    def checkpoints(self) -> CheckpointCalls:
        """The calls that take, list and restore checkpoints."""
        return CheckpointCalls(self.system.named("checkpoints"), self.reader, self._named_or_only)

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        """Return the sessions that are not over, oldest first; with `everything`, all sessions in the database."""
        if not everything:
            return await self.reader.read(sessions.live)
        return await self.reader.read(lookups.all_sessions)

    async def pending(self, session_id: str | None = None) -> tuple[Card, ...]:
        """Return the cards that wait for a person, oldest first; of one session, by the prefix of its id. Raises
        NotFound and Ambiguous."""
        if session_id is not None:
            session_id = await self.session_id(session_id)
        found = await self.reader.read(partial(lookups.open_cards, session_id=session_id, away=self.context.unattended))
        for card in found:
            self.seen(card)
        proposed = () if session_id is not None else self.board.cards()
        return tuple(sorted((*found, *proposed), key=lambda card: card.created_at))

    async def card(self, prefix: str) -> Card:
        """Return any current or past card, by a unique prefix of its id. Raises NotFound and Ambiguous."""
        proposed = await self.board.find(prefix)
        if proposed is not None:
            return proposed
        card = await self.reader.read(partial(lookups.named_card, prefix=prefix, away=self.context.unattended))
        self.seen(card)
        return card

    async def identify(self, prefix: str) -> tuple[str, CardKind]:
        """Return the whole id of a card, and its kind, which never changes. Raises NotFound and Ambiguous."""
        id, kind, _ = await self._whose(prefix)
        return id, kind

    async def _whose(self, prefix: str) -> tuple[str, CardKind, str]:
        # As a rule the operator was shown the card just before.
        shown = self._shown.find(prefix)
        if shown is not None:
            return prefix, *shown
        card = await self.card(prefix)
        return card.id, card.kind, card.session_id

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        """Answer a card. The first verdict wins: raises AlreadyDecided for a later one, which changes nothing. The same
        verdict (by its id) again is answered like the first time. If an operator key exists, raises SignatureRefused
        for a missing or wrong signature, and tells people."""
        try:
            return await self._decide(prefix, verdict)
        except SignatureRefused as refused:
            await self._tell_refused(prefix, verdict, refused)
            raise

    async def _tell_refused(self, prefix: str, verdict: Verdict, refused: SignatureRefused) -> None:
        who = f"{verdict.by} ({verdict.channel})"
        summary = f"refused to {verdict.decision.value} {prefix} for {who}: {refused.message}"
        data = {"request_id": prefix, "decision": verdict.decision.value, "channel": verdict.channel}
        await self.security_event(summary, {**data, "origin": verdict.origin_data})
        if self._told.is_new(f"{prefix} {refused.message}", self.context.now()):
            self.context.operators.tell(Notice(summary, "error", self.context.now()))

    async def _decide(self, prefix: str, verdict: Verdict) -> Card:
        proposed = await self.board.find(prefix)
        if proposed is not None:
            return self._count(await self.board.decide(proposed, verdict), verdict)
        id, kind, session_id = await self._whose(prefix)
        if kind is CardKind.RESTORE:
            return self._count(await self.checkpoints.answer(id, verdict), verdict)
        return self._count(await self.ask_session(session_id, Decide(id, verdict)), verdict)

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session:
        """Resume a waiting agent; without `session`, the only one that waits. Raises NotFound and Ambiguous."""
        id = (
            await self.session_id(session)
            if session is not None
            else await self._meant(verdict.id, lookups.only_waiting)
        )
        given = evolve(verdict, decision=Decision.RESUME, text=instruction)
        return await self.ask_session(id, Resume(given))

    async def switch_mode(
        self, session: str | None, mode: SessionMode, by: str, channel: str
    ) -> tuple[SessionMode, SessionMode]:
        """Change who is notified of a session's cards; default: the only session. Returns the old and the new mode."""
        id = await self.named_session(session, lambda each: each.status is not SessionStatus.INTERRUPTED, "session")
        answered = await self.ask_session(id, SwitchMode(f"desk/{self.context.new_id()}", mode, by, channel))
        return SessionMode(answered.answer.previous_mode), SessionMode(answered.answer.current_mode)

    def nudge_text(self) -> str:
        """Return the default message of a nudge."""
        return self.context.config.stall.default_nudge_message

    async def nudge(
        self,
        prefix: str,
        text: str | None,
        by: str,
        channel: str,
        origin: Origin | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card | Session:
        """Send an agent a message with its next result, by the id of a stall alert or a session. `act_id` names the
        action, `signed` is the command that a person signed."""
        what, id = await self.reader.read(partial(lookups.nudged, prefix=prefix))
        word_id = self.context.new_id() if act_id is None else id_of_act(act_id)
        if what == "alert":
            verdict = Verdict(word_id, Decision.NUDGE, by, channel, self.context.now(), text, origin, command=signed)
            return await self.decide(id, verdict)
        words = text or self.nudge_text()
        await self.ask_session(id, Steer(word_id, Kind.NUDGE, words, by, channel, signed))
        session = await self.reader.read(partial(sessions.get, id=id))
        assert session is not None, "it has answered just now"
        return session

    async def end(self, session: str, by: str, channel: str, why: str) -> Session:
        """End a session; its pending requests are interrupted."""
        return await self.ask_session(await self.session_id(session), End(by, channel, why))

    async def decide_policy(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        """Accept or reject a policy, by its card's id or its workspace; without a name, the only one that waits.
        `shown` is the hash of the content that the person was shown."""
        return self._count(await self.board.decide_named(prefix_or_path, verdict, shown), verdict)

    async def policies(self) -> tuple[PolicyStatus, ...]:
        """Return the status of the policies of all known workspaces."""
        return await self.board.all()

    async def policy(self, prefix_or_path: str) -> PolicyStatus:
        """Return the status of one policy, by its card's id or its workspace."""
        return await self.board.status(prefix_or_path)

    def _count(self, card: Card, verdict: Verdict) -> Card:
        told = measures.answered(card, verdict, self.context.now())
        if told is not None:
            self.context.measured(told)
        return card

    async def audit(self, limit: int, session: str | None = None) -> tuple[AuditEntry, ...]:
        """Return the newest audit entries, oldest first."""
        id = await self.session_id(session) if session is not None else None
        return await self.reader.read(partial(audit.recent, limit=limit, session_id=id))

    async def security_event(self, summary: str, data: dict[str, Any]) -> None:
        """Record a forbidden attempt in the audit log."""
        await ask(
            self.context.store,
            Transact(
                partial(
                    audit.record,
                    at=self.context.now(),
                    kind="security",
                    session_id=None,
                    who="intercom",
                    summary=summary,
                    data=data,
                )
            ),
            timeout=ACT_SECONDS,
            retry=True,
        )

    async def is_new_terminal(self, origin: Origin) -> bool:
        """Record that a person decides from this terminal. Returns whether it was never used before."""
        work = partial(agent_processes.is_new_terminal, origin=origin, at=self.context.now())
        return await ask(self.context.store, Transact(work), timeout=ACT_SECONDS, retry=True)

    def tree(self) -> Info:
        return self.system.inspect()

    async def chat_standing(self) -> Mapping[str, Any] | None:
        """Return the chat channel's status: its connection, its queue and its errors; None without a chat channel."""
        return None if self.chat is None else await self.chat()

    def version(self) -> dict[str, Any]:
        return {"version": __version__}

    def seen(self, card: Card) -> None:
        """Remember the card's session: a card that was shown may be answered next."""
        self._shown.remember(card)

    @property
    def steering(self) -> Steering:
        """The calls that pause agents and send them messages."""
        return Steering(self)

    # --- operator keys -----------------------------------------------------------------------------------------------

    @property
    def signatures(self) -> Signatures:
        """Which decisions count."""
        return self.context.signatures

    async def admit_command(self, command: str, act_id: str | None, subject: str, signature: Signature | None) -> None:
        """Check the signature of a command that answers no card. Does nothing if there is no operator key. Raises
        SignatureRefused."""
        if self.signatures.required:
            await self._transact(
                partial(
                    self.signatures.admit_command,
                    command=command,
                    act_id=act_id,
                    subject=subject,
                    signature=signature,
                    now=self.context.now(),
                )
            )

    async def add_key(self, key: PublicKey, at: str, by: str, signature: str) -> bool:
        """Enrol an operator key; False if it is enrolled already. Raises SignatureRefused."""
        added = await self._transact(partial(self._add_key, key=key, at=at, by=by, signature=signature))
        if added:
            text = f"operator key {key.id} ({key.name}) counts from now on: decisions have to be signed"
            self.context.operators.tell(Notice(text, "warning", self.context.now()))
            if (unsigned := self.signatures.unsigned_settings()) is not None:
                self.context.operators.tell(Notice(unsigned, "warning", self.context.now()))
        return added

    async def note_settings(self) -> None:
        """Record which settings a person has signed, if they are new."""
        if self.signatures.has_new_settings:
            await self._transact(partial(self.signatures.note_settings, now=self.context.now()))

    async def revoke_key(self, id: str, at: str, by: str, signature: str) -> PublicKey:
        """Revoke an operator key, and return it. Raises SignatureRefused and NotFound."""
        key = await self._transact(partial(self._revoke_key, id=id, at=at, by=by, signature=signature))
        rest = "" if self.signatures.required else ": no operator key is left, and decisions need no signature"
        text = f"operator key {key.id} ({key.name}) was revoked{rest}"
        self.context.operators.tell(Notice(text, "warning", self.context.now()))
        return key

    def _add_key(self, db: Database, key: PublicKey, at: str, by: str, signature: str) -> bool:
        added = self.signatures.add(db, key, at, by, signature, self.context.now())
        if added:
            self.signatures.note_settings(db, self.context.now())
            data = {"key_id": key.id, "public": key.public, "by": by, "at": at, "signature": signature}
            self._record_key(db, "operator_key_added", key, data)
        return added

    def _revoke_key(self, db: Database, id: str, at: str, by: str, signature: str) -> PublicKey:
        key = self.signatures.revoke(db, id, at, by, signature, self.context.now())
        data = {"key_id": key.id, "public": key.public, "by": by, "at": at, "signature": signature}
        self._record_key(db, "operator_key_revoked", key, data)
        return key

    def _record_key(self, db: Database, kind: str, key: PublicKey, data: dict[str, Any]) -> None:
        audit.record(db, self.context.now(), kind, None, key.name or key.id, f"operator key {key.id}", data)

    async def _transact(self, work: Callable[[Database], R]) -> R:
        return await ask(self.context.store, Transact(work), timeout=ACT_SECONDS)

    # --- finding -----------------------------------------------------------------------------------------------------

    async def ask_session(self, session_id: str, message: Request[R]) -> R:
        """Ask a session by its whole id, and wake it if it is idle."""
        return await ask_session(self.system, session_id, message)

    async def session_id(self, prefix: str) -> str:
        """Return the whole id of a session. Raises NotFound and Ambiguous."""
        return await finding.session_id(self.reader, prefix)

    async def named_session(
        self, prefix: str | None, fits: Callable[[Session], bool], what: str, act_id: str | None = None
    ) -> str:
        """Return the whole id of a session; without a name, of the only live session that fits. A repeated `act_id`
        gets the session of the first time. Raises NotFound and Ambiguous."""
        if prefix is not None:
            return await self.session_id(prefix)
        return await self._meant(act_id, lambda db: single([one.id for one in sessions.live(db) if fits(one)], what))

    async def _meant(self, act_id: str | None, find: Callable[[Database], str]) -> str:
        if act_id is None:
            return await self.reader.read(find)
        work = partial(meant.by_act, act_id=act_id, find=find, at=self.context.now())
        return await ask(self.context.store, Transact(work), timeout=ACT_SECONDS, retry=True)

    async def _named_or_only(self, prefix: str | None) -> str:
        return await self.named_session(prefix, lambda each: each.status is not SessionStatus.INTERRUPTED, "session")
