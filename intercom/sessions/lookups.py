"""What people look up, by the beginning of an id or by what they mean; and a question to a session that may be idle."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import outcome
import trio
from attrs import asdict, define, evolve, field

from actors import (
    AlreadyStarted,
    Busy,
    ChildSpec,
    Down,
    Name,
    NotRunning,
    Request,
    StartChild,
    StopChild,
    System,
    UnknownChild,
    ask,
)
from intercom.model.audit import LogEntry
from intercom.model.card import Card, CardKind, CardState
from intercom.model.errors import Ambiguous, IntercomError, NotFound
from intercom.model.request import ApprovalRequest
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions import request_kinds
from intercom.sessions.checkpoints.restore import of_restore
from intercom.sessions.messages import Unattended, Wanted
from intercom.store import audit, idempotency, instructions, requests, sessions
from intercom.store.apply_journal import JournalState, journal
from intercom.store.checkpoints import restores
from intercom.store.idempotency import Scope
from intercom.store.requests import waits
from intercom.store.sessions import stalls
from intercom.store.store_and_reader import Reader, StoreUnavailable
from intercom.store.writer_messages import Database

R = TypeVar("R")

#: The errors of an actor or a store that does not answer: it restarts, has too much to do, or is too slow. It may do
#: later.
UNANSWERED = (Busy, Down, NotRunning, StoreUnavailable, trio.TooSlowError)

#: Time limit of an operator's request, in seconds. A component that restarts is back well within it.
ACT_SECONDS = 30.0


async def ask_session(system: System, session_id: str, message: Request[R]) -> R:
    """Ask a session by its whole id, and wake it if it is idle. Must not be called inside a handler: the session or the
    registry may be waiting for that actor."""
    session = system.named(f"session/{session_id}")
    try:
        return await ask(session, message, timeout=ACT_SECONDS)
    except (Down, NotRunning):
        # The session restarts, is idle, or was not started yet by a server that has just started. In the last case the
        # session runs sooner than the registry answers, because the registry starts all other sessions first.
        return await _ask_awake(system, session_id, message)


async def _ask_awake(system: System, session_id: str, message: Request[R]) -> R:
    """Wake a session, and ask it as soon as it runs."""
    found: list[outcome.Outcome[R]] = []
    async with trio.open_nursery() as nursery:

        async def wake() -> None:
            try:
                await ask(system.named("registry"), Wanted(session_id), timeout=ACT_SECONDS, retry=True)
            except IntercomError as refused:
                found.append(outcome.Error(refused))
                nursery.cancel_scope.cancel()
            except UNANSWERED:
                # The session may start all the same. If it does not, the question times out.
                pass

        nursery.start_soon(wake)
        try:
            session = system.named(f"session/{session_id}")
            found.append(outcome.Value(await ask(session, message, timeout=ACT_SECONDS, retry=True)))
        except Exception as failed:
            found.append(outcome.Error(failed))
        nursery.cancel_scope.cancel()
    return found[0].unwrap()


#: Time limit of a supervisor's answer, in seconds: it may be restarting.
_SECONDS = 30.0


async def ensure(supervisor: Name, spec: ChildSpec) -> None:
    """Start this child, unless it runs."""
    try:
        await ask(supervisor, StartChild(spec), timeout=_SECONDS, retry=True)
    except AlreadyStarted:
        return


async def stop(supervisor: Name, id: str) -> None:
    """Stop the child of this id, if it runs."""
    try:
        await ask(supervisor, StopChild(id), timeout=_SECONDS, retry=True)
    except UnknownChild:
        return


T = TypeVar("T")


async def session_id(reader: Reader, prefix: str) -> str:
    """Return the whole id of the only session whose id is or begins with `prefix`. Raises NotFound and Ambiguous."""
    found = await reader.read(partial(sessions.with_prefix, prefix=prefix))
    return only([prefix] if prefix in found else list(found), prefix, "session")


#: The command that lists what has such an id.
_LISTED = {
    "session": "agent-intercom-ctl list",
    "request": "agent-intercom-ctl pending",
    "checkpoint": "agent-intercom-ctl checkpoints",
    "grant": "agent-intercom-ctl grants",
    "message or task": "agent-intercom-ctl tasks",
}


def only(found: list[T], prefix: str, what: str) -> T:
    """Return the only element of `found`. Raises NotFound and Ambiguous, whose messages name `what`."""
    if not found:
        code = "request_not_found" if what == "request" else None
        seen = f"; {_LISTED[what]} shows those that there are" if what in _LISTED else ""
        raise NotFound(f"no {what} has an id that begins with {prefix!r}{seen}", code=code)
    if len(found) > 1:
        shown = ", ".join(str(entry[1] if isinstance(entry, tuple) else entry) for entry in found[:5])
        raise Ambiguous(f"{prefix!r} fits {len(found)} {what}s ({shown}); give more of the id")
    return found[0]


def single(ids: list[str], what: str) -> str:
    """Return the only id. Raises NotFound and Ambiguous."""
    if not ids:
        raise NotFound(f"there is no {what}")
    if len(ids) > 1:
        raise Ambiguous(f"there are {len(ids)} {what}s ({', '.join(ids[:8])}); name one with --session")
    return ids[0]


def only_waiting(db: Database) -> str:
    """Return the id of the only session whose agent stands by or is paused. Raises NotFound and Ambiguous."""
    paused = {session.id for session in sessions.live(db) if session.is_paused}
    return single(sorted({wait.session_id for wait in waits.pending(db)} | paused), "waiting session")


def open_cards(db: Database, session_id: str | None = None) -> tuple[Card, ...]:
    """Return the cards of everything that waits, oldest first, from the store. They do not say whether a call waits:
    that is added by `with_away`."""
    roots = {session.id: session.workspace_root for session in sessions.live(db)}
    shown = [
        request_kinds.card_of(request, roots.get(request.session_id, ""))
        for request in requests.pending(db, session_id)
    ]
    for id, root in roots.items():
        if session_id in (None, id) and (alert := stalls.active(db, id)) is not None:
            shown.append(request_kinds.card_of_alert(alert, root))
    shown += [
        request_kinds.card_of_stuck(entry, request)
        for entry in journal.unfinished(db)
        if entry.state is JournalState.STUCK
        and session_id in (None, entry.session_id)
        and isinstance(request := requests.find(db, entry.request_id), ApprovalRequest)
    ]
    shown += [of_restore(each) for each in restores.waiting(db) if session_id in (None, each.session_id)]
    return tuple(sorted(shown, key=lambda card: card.created_at))


def waiting(db: Database) -> Counter[str]:
    """Return how many requests of each session wait for people, by its id."""
    return Counter(card.session_id for card in open_cards(db))


def log(
    db: Database,
    limit: int,
    session_id: str | None = None,
    *,
    before_id: int | None = None,
    words: Sequence[str] = (),
) -> tuple[LogEntry, ...]:
    """Return the newest audit entries, oldest first, with the titles of the requests that they are about; as
    `audit.recent` finds them."""
    entries = audit.recent(db, limit, session_id, before_id=before_id, words=words)
    ids = [str((entry.data or {}).get("request_id", "")) for entry in entries]
    titles = {id: _title(db, id) for id in set(ids) if id}
    return tuple(
        LogEntry(**asdict(entry, recurse=False), title=titles.get(id)) for entry, id in zip(entries, ids, strict=True)
    )


def _title(db: Database, id: str) -> str | None:
    request = requests.find(db, id)
    return None if request is None else request_kinds.of(request).title(request)


def past_cards(
    db: Database, *, words: Sequence[str], session_id: str | None, limit: int, start: int
) -> tuple[Card, ...]:
    """Return the cards of requests that do not wait any more, as `requests.past` finds them."""
    found = requests.past(db, words=words, session_id=session_id, limit=limit, start=start)
    return tuple(request_kinds.card_of(request, _root(db, request.session_id)) for request in found)


#: How long a busy session is asked which of its requests no call waits for, in seconds.
_AWAY_SECONDS = 0.5


async def with_away(system: System, cards: Sequence[Card]) -> tuple[Card, ...]:
    """Return these cards with `away`, which only their sessions know. Cards of a session that does not answer now stay
    as they are: it has just been restarted, and shows them again if no call comes back."""
    away: set[str] = set()

    async def ask_one(session_id: str) -> None:
        try:
            away.update(await ask(system.named(f"session/{session_id}"), Unattended(), timeout=_AWAY_SECONDS))
        except UNANSWERED:
            return

    async with trio.open_nursery() as nursery:
        for session_id in {card.session_id for card in cards if card.state is CardState.PENDING}:
            nursery.start_soon(ask_one, session_id)
    return tuple(evolve(card, away=True) if card.id in away else card for card in cards)


async def mode_of(reader: Reader, session_id: str) -> SessionMode | None:
    """Return the mode of a session; None if there is no such session."""
    session = await reader.read(partial(sessions.get, id=session_id))
    return None if session is None else session.mode


def _named(db: Database, prefix: str) -> tuple[CardKind, str]:
    found = _with_prefix(db, prefix)
    exact = [entry for entry in found if entry[1] == prefix]
    # What waits counts first: a person who types a few letters means a card that they see.
    waiting = [entry for entry in found if _is_pending(db, *entry)] if len(found) > 1 and not exact else []
    return only(exact or waiting or list(found), prefix, "request")


def _is_pending(db: Database, kind: CardKind, id: str) -> bool:
    card = _card(db, kind, id)
    return card is not None and card.state is CardState.PENDING


def named_card(db: Database, prefix: str) -> Card:
    """Return any current or past card, without `away`, as in `open_cards`. Raises NotFound and Ambiguous."""
    kind, id = _named(db, prefix)
    card = _card(db, kind, id)
    if card is None:
        raise NotFound(f"{id} is gone", code="request_not_found")
    return card


def approval(db: Database, id: str) -> tuple[ApprovalRequest, str]:
    """Return an approval request by its whole id, and its workspace. Raises NotFound."""
    request = requests.find(db, id)
    if not isinstance(request, ApprovalRequest):
        raise NotFound(f"no proposal has the id {id[:100]!r}", code="request_not_found")
    return request, _root(db, request.session_id)


def _card(db: Database, kind: CardKind, id: str) -> Card | None:
    if kind is CardKind.STALL:
        alert = stalls.get(db, id)
        return None if alert is None else request_kinds.card_of_alert(alert, _root(db, alert.session_id))
    if kind in (CardKind.STEER, CardKind.TASK):
        instruction = instructions.get(db, id)
        return (
            None
            if instruction is None
            else request_kinds.card_of_instruction(instruction, _root(db, instruction.session_id or ""))
        )
    if kind is CardKind.APPLY:
        return next((card for card in open_cards(db) if card.id == id), None)
    if kind is CardKind.RESTORE:
        restore = restores.get(db, id)
        return None if restore is None else of_restore(restore)
    request = requests.find(db, id)
    return None if request is None else request_kinds.card_of(request, _root(db, request.session_id))


def _root(db: Database, session_id: str) -> str:
    session = sessions.get(db, session_id)
    return "" if session is None else session.workspace_root


def all_sessions(db: Database) -> tuple[Session, ...]:
    """Return all sessions in the database, oldest first."""
    return tuple(
        sorted(
            (session for status in SessionStatus for session in sessions.by_status(db, status)),
            key=lambda session: session.created_at,
        )
    )


def _with_prefix(db: Database, prefix: str) -> tuple[tuple[CardKind, str], ...]:
    stuck = [
        (CardKind.APPLY, id)
        for entry in journal.unfinished(db)
        if (id := request_kinds.stuck_id(entry.request_id)).startswith(prefix)
    ]
    alerts = [(CardKind.STALL, id) for id in stalls.with_prefix(db, prefix)]
    messages = [(CardKind.STEER, id) for id in instructions.with_prefix(db, prefix)]
    going_back = [(CardKind.RESTORE, id) for id in restores.with_prefix(db, prefix)]
    return (*requests.with_prefix(db, prefix), *alerts, *stuck, *messages, *going_back)


def nudged(db: Database, prefix: str) -> tuple[str, str]:
    """Return `alert` or `session`, and the whole id that begins with `prefix`. Raises NotFound and Ambiguous."""
    found = [("alert", id) for id in stalls.with_prefix(db, prefix)]
    found += [("session", id) for id in sessions.with_prefix(db, prefix)]
    exact = [entry for entry in found if entry[1] == prefix]
    return only(exact or found, prefix, "session or stall alert")


def by_act(db: Database, act_id: str, find: Callable[[Database], str], at: datetime) -> str:
    """Return the session's id: the first time as `find` returns it, then as recorded. Raises what `find` raises."""
    known = idempotency.answer(db, Scope.SESSION, act_id)
    if known is not None:
        return str(known["session_id"])
    id = find(db)
    idempotency.record(db, Scope.SESSION, act_id, {"session_id": id}, at, session_id=id)
    return id


#: How many cards are remembered, the last shown ones. Others are looked up in the store.
_REMEMBERED_CARDS = 500


@define
class ShownCards:
    """The kind and the session of each card, by its id. They never change."""

    _shown: dict[str, tuple[CardKind, str]] = field(factory=dict, init=False)

    def remember(self, card: Card) -> None:
        """Remember this card."""
        # Each card holds a string of its own for its session's id.
        self._shown[card.id] = card.kind, sys.intern(card.session_id)
        if len(self._shown) > _REMEMBERED_CARDS:
            del self._shown[next(iter(self._shown))]

    def find(self, id: str) -> tuple[CardKind, str] | None:
        """Return the kind and the session of the card with this id, if it is remembered."""
        return self._shown.get(id)
