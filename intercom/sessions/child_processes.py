"""What a session does to its agent's processes, if people started the agent."""

from __future__ import annotations

from intercom.sessions.actor import SessionActor
from intercom.sessions.spawning.messages import Continue, Stop, Suspend


def end(session: SessionActor) -> None:
    """End the processes that people started for this session, if any. If their actor does not run now, it sees on its
    next start that the session has ended."""
    _tell(session, Stop())


def hold(session: SessionActor) -> None:
    """Stop these processes (SIGSTOP) while the session is paused, and continue them otherwise. As `end`."""
    _tell(session, Suspend() if session.row.is_paused else Continue())


def can_be_woken(session: SessionActor) -> bool:
    """Return whether the agent is started again if its program has ended and instructions wait for it."""
    return bool(session.context.config.spawn.resume_args) and _is_there(session)


def _tell(session: SessionActor, message: object) -> None:
    if _is_there(session):
        session.system.named(f"child/{session.id}").tell(message)


def _is_there(session: SessionActor) -> bool:
    return session.system.ref(f"child/{session.id}") is not None
