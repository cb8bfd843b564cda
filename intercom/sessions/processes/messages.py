"""The protocol of the spawner and of the agent process actors."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.session import Session, SessionMode


@frozen
class Start(Request[Session]):
    """To `spawner`: start an agent. `session_id` also names the action: if the session has an agent already, it is
    returned and nothing is started. A session with this id but without an agent (a restored one) is used. Otherwise one
    is opened in `workspace_root`, which the caller has checked.

    Answered with the session once the process runs. Refused with `config` (no program), `invalid_arguments` (the
    prompt), `too_many_sessions` or `invalid_state` (the session is over); then nothing has changed. Refused with
    `spawn_failed` if the program could not be run; then the session exists, and is over.
    """

    session_id: str
    prompt: str
    workspace_root: str
    by: str
    channel: str
    owner_user_id: str = ""
    mode: SessionMode | None = None
    channel_id: str | None = None
    label: str | None = None


@frozen
class AwaitStart(Request[None]):
    """To `child/<session>`: answered when its process runs, or has run. Refused with `spawn_failed`."""


@frozen
class Stop:
    """To `child/<session>`: the session was cleared. End all its processes, and do not start it again."""


@frozen
class Suspend(Request[int]):
    """To `child/<session>`: stop all its processes (SIGSTOP). Answered with their number."""


@frozen
class Continue(Request[int]):
    """To `child/<session>`: continue all its processes (SIGCONT). Answered with their number."""
