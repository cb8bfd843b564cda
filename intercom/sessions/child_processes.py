"""What a session does to the processes of its agent, where people started that."""

from __future__ import annotations

from intercom.sessions.actor import SessionActor
from intercom.sessions.spawning.messages import Continue, Stop, Suspend


def end(session: SessionActor) -> None:
    """Have the processes ended that people started for this session, if it has any. One whose actor is not there just
    now finds the session over when it is."""
    _tell(session, Stop())


def hold(session: SessionActor) -> None:
    """Let these processes stand still while the session is paused, and go on when it is not; as `end`."""
    _tell(session, Suspend() if session.row.is_paused else Continue())


def can_be_woken(session: SessionActor) -> bool:
    """Whether the agent is started again once its program has ended and words wait for it."""
    return bool(session.context.config.spawn.resume_args) and _is_there(session)


def _tell(session: SessionActor, message: object) -> None:
    if _is_there(session):
        session.system.named(f"child/{session.id}").tell(message)


def _is_there(session: SessionActor) -> bool:
    return session.system.ref(f"child/{session.id}") is not None
