"""The session supervisor: it runs a session's actor and its stall detector."""

from __future__ import annotations

from actors import Actor, Backoff, ChildSpec, Name, Restart, Strategy, Supervisor
from intercom.sessions.actor import POLICY_SECONDS
from intercom.sessions.context import Context
from intercom.sessions.detector import StallDetector
from intercom.sessions.handlers import session_actor
from intercom.sessions.stall import Rules

#: A session that keeps crashing is restarted ever more slowly, and for long, because its agent waits for an answer.
_BACKOFF = Backoff(initial=0.05, factor=2.0, max=5.0)
#: A session that is to stop may first wait for its policy.
_SHUTDOWN_SECONDS = POLICY_SECONDS + 5.0


def spec(session_id: str, context: Context, detector_of: Name) -> ChildSpec:
    """Return the spec of a session's supervisor, to be started under the `sessions` supervisor."""

    def start() -> Actor:
        settings = context.config.stall
        rules = Rules(
            settings.inactivity_threshold_seconds, settings.escalation_threshold_seconds, settings.max_retries
        )
        return Supervisor(
            [
                ChildSpec(
                    f"session/{session_id}", lambda: session_actor(session_id, context), shutdown=_SHUTDOWN_SECONDS
                ),
                ChildSpec(f"stall/{session_id}", lambda: StallDetector(detector_of, rules)),
            ],
            strategy=Strategy.REST_FOR_ONE,
            max_restarts=50,
            within=60.0,
            backoff=_BACKOFF,
        )

    return ChildSpec(f"unit/{session_id}", start, restart=Restart.PERMANENT, shutdown=None)
