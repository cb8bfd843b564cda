"""The protocol of the spawner and of the child actors, whole."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.session import Session, SessionMode


@frozen
class Start(Request[Session]):
    """To `spawner`: start an agent. `session_id` names the act as well: a session that has an agent already is answered
    as it is, and none is started. A session with this id that has none (one that was restored) is used; otherwise it is
    opened, in `workspace_root` (checked by the caller).

    Answered with the session once the process runs. Refused, and nothing is left behind: `config` (no program),
    `invalid_arguments` (the prompt), `too_many_sessions`, `invalid_state` (the session is over). Refused as
    `spawn_failed` when the program could not be run: then the session is there, and over.
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
    """To `child/<session>`: answered when its process runs, or has run; refused (`spawn_failed`) when it could not."""


@frozen
class Stop:
    """To `child/<session>`: the session was cleared. End all its processes, and do not start it again."""


@frozen
class Suspend(Request[int]):
    """To `child/<session>`: let all its processes stand still. Answered with how many there were."""


@frozen
class Continue(Request[int]):
    """To `child/<session>`: let them go on. Answered with how many there were."""
