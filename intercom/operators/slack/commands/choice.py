"""The session and the workspace that a command applies to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from intercom.model.card import Card, CardKind
from intercom.model.errors import Ambiguous, InvalidState, NotFound, Unauthorized
from intercom.model.session import Session, SessionStatus
from intercom.operators.slack.commands.typed import Arguments

#: The shortest id prefix that is accepted if other text could stand in its place.
SHORTEST_ID = 4

ChannelOf = Callable[[Session], str | None]

_RUNNING = frozenset({SessionStatus.CREATED, SessionStatus.ACTIVE, SessionStatus.PAUSED})


@frozen
class Workspace:
    """A workspace. `session` is the session it comes from; None for the default workspace."""

    root: Path
    session: Session | None


def named(sessions: Sequence[Session], prefix: str) -> Session:
    """Return the session with this id, or the only one with this id prefix. Raises NotFound and Ambiguous."""
    found = [each for each in sessions if each.id == prefix] or [
        each for each in sessions if each.id.startswith(prefix)
    ]
    if not prefix or not found:
        raise NotFound(f"no session has an id that begins with {prefix[:40]!r}; see /intercom sessions")
    if len(found) > 1:
        raise Ambiguous(f"{prefix!r} fits {len(found)} sessions ({listed(found)}); give more of the id")
    return found[0]


def looks_like_id(word: str) -> bool:
    """Return whether a word is almost certainly a session id."""
    return len(word) >= 8 and any(char.isdecimal() for char in word) and set(word) <= set("0123456789abcdef-")


def may_control(session: Session, person: str) -> bool:
    """Return whether a person may end or resume a session: its owner may; anybody authorized may if it has none."""
    return session.owner_user_id in ("", person)


def require_control(session: Session, person: str) -> Session:
    """Return the session if the person may control it; otherwise raise Unauthorized."""
    if not may_control(session, person):
        raise Unauthorized(f"session {short(session)} belongs to {session.owner_user_id}, who alone may do that")
    return session


def workspace(
    live: Sequence[Session], chosen: Session | None, channel: str, channel_of: ChannelOf, default: Path | None
) -> Workspace:
    """Return the workspace of `chosen`, of the sessions shown in `channel`, or the default one, in this order.

    Interrupted sessions count only if the channel shows no other. Raises Ambiguous if the channel has several
    workspaces, NotFound if there is no workspace at all.
    """
    if chosen is not None:
        return Workspace(Path(chosen.workspace_root), chosen)
    here = [each for each in live if channel_of(each) == channel]
    here = [each for each in here if each.status in _RUNNING] or here
    roots = {each.workspace_root for each in here}
    if len(roots) == 1:
        return Workspace(Path(roots.pop()), latest(here))
    if roots:
        raise Ambiguous(f"this channel has sessions in {len(roots)} workspaces; add --session ID: {listed(here)}")
    if default is not None:
        return Workspace(default, None)
    raise NotFound("no session is shown in this channel and there is no default_workspace_root; add --session ID")


def to_resume(
    live: Sequence[Session], open_cards: Sequence[Card], person: str, *, has_instruction: bool = False
) -> Session:
    """Return the paused or standby session that began to wait last, of those the person may control. With an
    instruction it must be the only one. Raises InvalidState if none waits, and Ambiguous."""
    standing_by = {card.session_id: card.created_at for card in open_cards if card.kind is CardKind.STANDBY}
    waiting = [
        (standing_by.get(each.id, each.paused_at or each.updated_at), each)
        for each in live
        if (each.id in standing_by or each.is_paused) and may_control(each, person)
    ]
    if not waiting:
        raise InvalidState("no session of yours is paused or stands by; see /intercom sessions")
    if has_instruction:
        # An instruction for another agent must not reach this one.
        return only([each for _, each in waiting], "wait")
    return max(waiting, key=lambda pair: pair[0])[1]


def to_clear(live: Sequence[Session], person: str) -> Session:
    """Return the only session that a person may end. Raises NotFound if there is none, and Ambiguous."""
    own = [each for each in live if may_control(each, person)]
    if not own:
        raise NotFound("there is no session of yours to clear; see /intercom sessions")
    return only(own, "could be ended")


def to_checkpoint(live: Sequence[Session], person: str) -> Session:
    """Return the only running session that a person may control; if none runs, the only one. Raises NotFound and
    Ambiguous."""
    own = [each for each in live if may_control(each, person)]
    if not own:
        raise NotFound("there is no session of yours to take a checkpoint of; see /intercom sessions")
    return only([each for each in own if each.status in _RUNNING] or own, "are there")


def to_pause(live: Sequence[Session], person: str) -> Session:
    """Return the only session that a person may pause. Raises NotFound if there is none, and Ambiguous."""
    own = [each for each in live if each.status is SessionStatus.ACTIVE and may_control(each, person)]
    if not own:
        raise NotFound("there is no session of yours that runs; see /intercom sessions")
    return only(own, "could be paused")


def only(sessions: Sequence[Session], what: str) -> Session:
    """Return the session if there is exactly one; otherwise raise Ambiguous with the list. It never guesses."""
    if len(sessions) > 1:
        raise Ambiguous(f"{len(sessions)} sessions {what}; give the id of the one you mean: {listed(sessions)}")
    return sessions[0]


def to_steer(live: Sequence[Session], channel: str, channel_of: ChannelOf) -> Session:
    """Return the only session that runs in `channel`; if none runs there, the only running one. Raises NotFound and
    Ambiguous, so the wrong agent never gets the instruction."""
    running = [each for each in live if each.status in _RUNNING]
    found = [each for each in running if channel_of(each) == channel] or running
    if not found:
        raise NotFound("no session runs; see /intercom sessions")
    return only(found, "run here")


def session_and_text(live: Sequence[Session], given: Arguments) -> tuple[Session | None, str | None]:
    """Split the arguments into the named session (None if none is named) and the remaining text (None if empty)."""
    text = given.text
    if "--session" in given.options:
        return named(live, given.options["--session"]), text or None
    first = text.split(None, 1)[0] if text else ""
    if len(first) >= SHORTEST_ID:
        try:
            return named(live, first), text[len(first) :].strip() or None
        except NotFound:
            if looks_like_id(first):
                raise
    return None, text or None


def latest(sessions: Sequence[Session]) -> Session:
    """Return the session with the latest activity."""
    return max(sessions, key=lambda each: each.updated_at)


def listed(sessions: Sequence[Session]) -> str:
    """List up to five sessions within a sentence."""
    shown = [f"{short(each)} in {each.workspace_root}" for each in sessions[:5]]
    return ", ".join(shown) + (", ..." if len(sessions) > 5 else "")


def short(session: Session) -> str:
    """Return the first eight characters of a session id, enough to type it."""
    return session.id[:8]
