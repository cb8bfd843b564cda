"""The desk: what every operators' channel, and a program that embeds us, can see and do. Calls, no state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from functools import partial
from typing import Any, TypeVar

import outcome
import trio
from attrs import field, frozen

from actors import Busy, Down, Info, NotRunning, Request, System, ask
from intercom._version import __version__
from intercom.model.approval import ApprovalRequest
from intercom.model.card import Card, CardKind
from intercom.model.errors import IntercomError, NotFound
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.steering import Kind
from intercom.model.verdict import Decision, Verdict
from intercom.sessions import cards, finding, meant, measures
from intercom.sessions.checkpoint_calls import CheckpointCalls
from intercom.sessions.children import Children
from intercom.sessions.context import Context
from intercom.sessions.finding import only, single
from intercom.sessions.messages import Decide, End, Resume, SwitchMode
from intercom.sessions.policies import PolicyBoard
from intercom.sessions.reception_messages import Wanted
from intercom.sessions.restore_cards import of_restore
from intercom.sessions.steering_desk import Steering
from intercom.sessions.steering_messages import Steer
from intercom.store import audit, instructions, journal, requests, restores, sessions, stalls, waits
from intercom.store.audit import AuditEntry
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader

R = TypeVar("R")

#: How long an operator's act may take, in seconds; a part that restarts is back well within it.
ACT_SECONDS = 30.0
#: How many cards' sessions are remembered between a look and an act.
_REMEMBERED = 2_000


@frozen
class Desk:
    """`clients` gives the pids of connected agents' clients and shims, `chat` how the chat channel fares; None where
    there is no such channel. `children` are the agents that people start."""

    system: System
    context: Context
    reader: Reader
    board: PolicyBoard
    clients: Callable[[], frozenset[int]]
    children: Children
    chat: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    _seen: dict[str, tuple[CardKind, str]] = field(factory=dict, init=False, repr=False)

    @property
    def checkpoints(self) -> CheckpointCalls:
        """Checkpoints: taken, listed, and restored."""
        return CheckpointCalls(self.system.named("checkpoints"), self.reader, self._named_or_only)

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        """Sessions that are not over, oldest first; all that the database holds with `everything`."""
        if not everything:
            return await self.reader.read(sessions.live)
        return await self.reader.read(_all_sessions)

    async def pending(self, session_id: str | None = None) -> tuple[Card, ...]:
        """What waits for a person, oldest first."""
        found = await self.reader.read(partial(open_cards, session_id=session_id, away=self.context.unattended))
        for card in found:
            self.seen(card)
        proposed = () if session_id is not None else self.board.cards()
        return tuple(sorted((*found, *proposed), key=lambda card: card.created_at))

    async def card(self, prefix: str) -> Card:
        """Anything that waits or waited, by id or unique prefix. Raises NotFound and Ambiguous."""
        proposed = self.board.find(prefix)
        if proposed is not None:
            return proposed
        card = await self.reader.read(partial(_named_card, prefix=prefix, away=self.context.unattended))
        self.seen(card)
        return card

    async def identify(self, prefix: str) -> tuple[str, CardKind]:
        """The whole id of what waits or waited, and its kind, which never changes. Raises NotFound and Ambiguous."""
        seen = self._seen.get(prefix)
        if seen is not None:
            return prefix, seen[0]
        card = await self.card(prefix)
        return card.id, card.kind

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        """Answer what waits. The first verdict wins: raises AlreadyDecided for a later one, which changes nothing; the
        same verdict (by its id) given again is answered as the first time."""
        proposed = self.board.find(prefix)
        if proposed is not None:
            return self._count(await self.board.decide(proposed, verdict), verdict)
        # Whoever decides has as a rule looked just before: what was looked at belongs to its session for good.
        id, kind = await self.identify(prefix)
        if kind is CardKind.RESTORE:
            return self._count(await self.checkpoints.answer(id, verdict), verdict)
        return self._count(await self.ask_session(self._seen[id][1], Decide(id, verdict)), verdict)

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session:
        """Give a waiting agent word to go on; without `session`, to the only one that waits, else raises Ambiguous."""
        id = await self.session_id(session) if session is not None else await self._meant(verdict.id, _only_waiting)
        given = Verdict(verdict.id, Decision.RESUME, verdict.by, verdict.channel, verdict.at, instruction)
        return await self.ask_session(id, Resume(given))

    async def switch_mode(
        self, session: str | None, mode: SessionMode, by: str, channel: str
    ) -> tuple[SessionMode, SessionMode]:
        """Change who is notified of a session's cards; without `session`, of the only one there is."""
        id = await self.named_session(session, lambda each: each.status is not SessionStatus.INTERRUPTED, "session")
        answered = await self.ask_session(id, SwitchMode(f"desk/{self.context.new_id()}", mode, by, channel))
        return SessionMode(answered.answer.previous_mode), SessionMode(answered.answer.current_mode)

    async def nudge(self, prefix: str, text: str | None, by: str, channel: str) -> Card | Session:
        """Give an agent words that ride on its next result: by a stall alert's id, or a session's."""
        what, id = await self.reader.read(partial(_nudged, prefix=prefix))
        if what == "alert":
            verdict = Verdict(self.context.new_id(), Decision.NUDGE, by, channel, self.context.now(), text)
            return await self.decide(id, verdict)
        words = text or self.context.config.stall.default_nudge_message
        await self.ask_session(id, Steer(self.context.new_id(), Kind.NUDGE, words, by, channel))
        session = await self.reader.read(partial(sessions.get, id=id))
        assert session is not None, "it has answered just now"
        return session

    async def end(self, session: str, by: str, channel: str, why: str) -> Session:
        """Terminate a session; what waits in it is interrupted."""
        return await self.ask_session(await self.session_id(session), End(by, channel, why))

    async def accept_policy(self, prefix_or_path: str | None, by: str, channel: str) -> Card:
        """Let a policy change that was held back take effect; without a name, the only one there is."""
        verdict = Verdict(self.context.new_id(), Decision.ACCEPT, by, channel, self.context.now())
        return self._count(await self.board.decide(self.board.named(prefix_or_path), verdict), verdict)

    def _count(self, card: Card, verdict: Verdict) -> Card:
        told = measures.answered(card, verdict, self.context.now())
        if told is not None:
            self.context.measured(told)
        return card

    async def audit(self, limit: int, session: str | None = None) -> tuple[AuditEntry, ...]:
        """The newest entries of the audit trail, oldest first."""
        id = await self.session_id(session) if session is not None else None
        return await self.reader.read(partial(audit.recent, limit=limit, session_id=id))

    async def security_event(self, summary: str, data: dict[str, Any]) -> None:
        """Put on record that somebody tried what they may not."""
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

    def tree(self) -> Info:
        return self.system.inspect()

    async def chat_standing(self) -> Mapping[str, Any] | None:
        """How the chat channel fares: its connection, what waits to be sent, what is wrong; None without one."""
        return None if self.chat is None else await self.chat()

    def client_pids(self) -> frozenset[int]:
        return self.clients()

    def version(self) -> dict[str, Any]:
        return {"version": __version__}

    def seen(self, card: Card) -> None:
        """Remember whose card this is: who has been shown it may answer it next."""
        self._seen[card.id] = card.kind, card.session_id
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]

    @property
    def steering(self) -> Steering:
        """To pause agents, and to tell them something."""
        return Steering(self)

    # --- finding -----------------------------------------------------------------------------------------------------

    async def ask_session(self, session_id: str, message: Request[R]) -> R:
        """Ask a session, by its whole id; one that rests is woken."""
        session = self.system.named(f"session/{session_id}")
        try:
            return await ask(session, message, timeout=ACT_SECONDS)
        except (Down, NotRunning):
            # It is restarting, or rests because nothing waits in it; or a server that has just started has not come to
            # it yet. Then it is there before the reception, which brings back all others as well, has time for us.
            return await self._ask_awake(session_id, message)

    async def _ask_awake(self, session_id: str, message: Request[R]) -> R:
        """Have a session woken, and ask it as soon as it is there."""
        found: list[outcome.Outcome[R]] = []
        async with trio.open_nursery() as nursery:

            async def wake() -> None:
                try:
                    await ask(self.system.named("reception"), Wanted(session_id), timeout=ACT_SECONDS, retry=True)
                except IntercomError as refused:
                    found.append(outcome.Error(refused))
                    nursery.cancel_scope.cancel()
                except (Busy, Down, NotRunning, trio.TooSlowError):
                    # The session may come up all the same, and else does not answer in time.
                    pass

            nursery.start_soon(wake)
            try:
                session = self.system.named(f"session/{session_id}")
                found.append(outcome.Value(await ask(session, message, timeout=ACT_SECONDS, retry=True)))
            except Exception as failed:
                found.append(outcome.Error(failed))
            nursery.cancel_scope.cancel()
        return found[0].unwrap()

    async def session_id(self, prefix: str) -> str:
        """The whole id of a session. Raises NotFound and Ambiguous."""
        return await finding.session_id(self.reader, prefix)

    async def named_session(
        self, prefix: str | None, fits: Callable[[Session], bool], what: str, act_id: str | None = None
    ) -> str:
        """The whole id of a session; without a name, of the only live one that fits (or fitted, when this act was first
        heard of). Raises NotFound and Ambiguous."""
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


def _only_waiting(db: Database) -> str:
    paused = {session.id for session in sessions.live(db) if session.is_paused}
    return single(sorted({wait.session_id for wait in waits.pending(db)} | paused), "waiting session")


def open_cards(db: Database, session_id: str | None = None, away: Container[str] = ()) -> tuple[Card, ...]:
    """The cards of everything that waits, oldest first, as the store knows them; `away` names the requests that no
    call waits for."""
    roots = {session.id: session.workspace_root for session in sessions.live(db)}
    shown = [
        cards.of_request(request, roots.get(request.session_id, ""), away=request.id in away)
        for request in requests.pending(db, session_id)
    ]
    for id, root in roots.items():
        if session_id in (None, id) and (alert := stalls.active(db, id)) is not None:
            shown.append(cards.of_stall(alert, root))
    shown += [
        cards.of_stuck(entry, request)
        for entry in journal.open(db)
        if entry.state is journal.JournalState.STUCK
        and session_id in (None, entry.session_id)
        and isinstance(request := requests.find(db, entry.request_id), ApprovalRequest)
    ]
    shown += [of_restore(each) for each in restores.waiting(db) if session_id in (None, each.session_id)]
    return tuple(sorted(shown, key=lambda card: card.created_at))


async def mode_of(reader: Reader, session_id: str) -> SessionMode | None:
    """The mode of a session, None where there is no such session."""
    session = await reader.read(partial(sessions.get, id=session_id))
    return None if session is None else session.mode


def _named(db: Database, prefix: str) -> tuple[CardKind, str]:
    found = _with_prefix(db, prefix)
    exact = [entry for entry in found if entry[1] == prefix]
    return only(exact or list(found), prefix, "request")


def _named_card(db: Database, prefix: str, away: Container[str]) -> Card:
    kind, id = _named(db, prefix)
    card = _card(db, kind, id, away)
    if card is None:
        raise NotFound(f"{id} is gone", code="request_not_found")
    return card


def _card(db: Database, kind: CardKind, id: str, away: Container[str]) -> Card | None:
    if kind is CardKind.STALL:
        alert = stalls.get(db, id)
        return None if alert is None else cards.of_stall(alert, _root(db, alert.session_id))
    if kind in (CardKind.STEER, CardKind.TASK):
        word = instructions.get(db, id)
        return None if word is None else cards.of_words(word, _root(db, word.session_id or ""))
    if kind is CardKind.APPLY:
        return next((card for card in open_cards(db) if card.id == id), None)
    if kind is CardKind.RESTORE:
        restore = restores.get(db, id)
        return None if restore is None else of_restore(restore)
    request = requests.find(db, id)
    if request is None:
        return None
    waits_alone = request.status.value == "pending" and request.id in away
    return cards.of_request(request, _root(db, request.session_id), away=waits_alone)


def _root(db: Database, session_id: str) -> str:
    session = sessions.get(db, session_id)
    return "" if session is None else session.workspace_root


def _all_sessions(db: Database) -> tuple[Session, ...]:
    return tuple(
        sorted(
            (session for status in SessionStatus for session in sessions.by_status(db, status)),
            key=lambda session: session.created_at,
        )
    )


def _with_prefix(db: Database, prefix: str) -> tuple[tuple[CardKind, str], ...]:
    stuck = [
        (CardKind.APPLY, id)
        for entry in journal.open(db)
        if (id := cards.stuck_id(entry.request_id)).startswith(prefix)
    ]
    alerts = [(CardKind.STALL, id) for id in stalls.with_prefix(db, prefix)]
    words = [(CardKind.STEER, id) for id in instructions.with_prefix(db, prefix)]
    going_back = [(CardKind.RESTORE, id) for id in restores.with_prefix(db, prefix)]
    return (*requests.with_prefix(db, prefix), *alerts, *stuck, *words, *going_back)


def _nudged(db: Database, prefix: str) -> tuple[str, str]:
    found = [("alert", id) for id in stalls.with_prefix(db, prefix)]
    found += [("session", id) for id in sessions.with_prefix(db, prefix)]
    exact = [entry for entry in found if entry[1] == prefix]
    return only(exact or found, prefix, "session or stall alert")
