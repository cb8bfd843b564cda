"""The desk: what every operators' channel, and a program that embeds us, can see and do. Calls, no state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import outcome
import trio
from attrs import field, frozen

from actors import Busy, Down, Info, NotRunning, Request, System, ask
from intercom._version import __version__
from intercom.model.card import Card, CardKind
from intercom.model.errors import IntercomError
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.steering import Kind
from intercom.model.verdict import Decision, Verdict
from intercom.sessions import finding, lookups, meant, measures
from intercom.sessions.checkpoint_calls import CheckpointCalls
from intercom.sessions.children import Children
from intercom.sessions.context import Context
from intercom.sessions.finding import single
from intercom.sessions.messages import Decide, End, Resume, SwitchMode
from intercom.sessions.policies import PolicyBoard
from intercom.sessions.reception_messages import Wanted
from intercom.sessions.shown_cards import ShownCards
from intercom.sessions.steering_desk import Steering
from intercom.sessions.steering_messages import Steer
from intercom.store import audit, sessions
from intercom.store.audit import AuditEntry
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader

R = TypeVar("R")

#: How long an operator's act may take, in seconds; a part that restarts is back well within it.
ACT_SECONDS = 30.0


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
    _shown: ShownCards = field(factory=ShownCards, init=False, repr=False)

    @property
    def checkpoints(self) -> CheckpointCalls:
        """Checkpoints: taken, listed, and restored."""
        return CheckpointCalls(self.system.named("checkpoints"), self.reader, self._named_or_only)

    async def sessions(self, *, everything: bool = False) -> tuple[Session, ...]:
        """Sessions that are not over, oldest first; all that the database holds with `everything`."""
        if not everything:
            return await self.reader.read(sessions.live)
        return await self.reader.read(lookups.all_sessions)

    async def pending(self, session_id: str | None = None) -> tuple[Card, ...]:
        """What waits for a person, oldest first."""
        found = await self.reader.read(partial(lookups.open_cards, session_id=session_id, away=self.context.unattended))
        for card in found:
            self.seen(card)
        proposed = () if session_id is not None else self.board.cards()
        return tuple(sorted((*found, *proposed), key=lambda card: card.created_at))

    async def card(self, prefix: str) -> Card:
        """Anything that waits or waited, by id or unique prefix. Raises NotFound and Ambiguous."""
        proposed = self.board.find(prefix)
        if proposed is not None:
            return proposed
        card = await self.reader.read(partial(lookups.named_card, prefix=prefix, away=self.context.unattended))
        self.seen(card)
        return card

    async def identify(self, prefix: str) -> tuple[str, CardKind]:
        """The whole id of what waits or waited, and its kind, which never changes. Raises NotFound and Ambiguous."""
        id, kind, _ = await self._whose(prefix)
        return id, kind

    async def _whose(self, prefix: str) -> tuple[str, CardKind, str]:
        # Whoever decides has as a rule looked just before.
        shown = self._shown.find(prefix)
        if shown is not None:
            return prefix, *shown
        card = await self.card(prefix)
        return card.id, card.kind, card.session_id

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        """Answer what waits. The first verdict wins: raises AlreadyDecided for a later one, which changes nothing; the
        same verdict (by its id) given again is answered as the first time."""
        proposed = self.board.find(prefix)
        if proposed is not None:
            return self._count(await self.board.decide(proposed, verdict), verdict)
        id, kind, session_id = await self._whose(prefix)
        if kind is CardKind.RESTORE:
            return self._count(await self.checkpoints.answer(id, verdict), verdict)
        return self._count(await self.ask_session(session_id, Decide(id, verdict)), verdict)

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session:
        """Give a waiting agent word to go on; without `session`, to the only one that waits, else raises Ambiguous."""
        id = (
            await self.session_id(session)
            if session is not None
            else await self._meant(verdict.id, lookups.only_waiting)
        )
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
        what, id = await self.reader.read(partial(lookups.nudged, prefix=prefix))
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
        self._shown.remember(card)

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
