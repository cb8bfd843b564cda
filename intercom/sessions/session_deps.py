"""The dependencies of every session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import field, frozen

from actors import Name
from intercom.model.config import Config
from intercom.model.metrics import Measured, unmeasured
from intercom.model.policy import WorkspacePolicy
from intercom.sessions.chat_messages import ChatOutbox
from intercom.sessions.signatures import Signatures, without_keys
from intercom.sessions.workspace_locks import WorkspaceLocks
from intercom.store.store_and_reader import Store


@frozen
class SessionDeps:
    """What every session is given.

    `now` is wall time. `policy` returns the policy in force for a workspace root (deny-all if none is known),
    `watcher` the actor that evaluates it. `present` says whether the agent of a key is connected. `chat` is None if no
    chat is set up. `measured` receives metrics. `signatures` says which decisions count. Files are changed under
    `locks`.

    `unsent` has the verdict ids of people's decisions that were recorded in this server run and that the agent cannot
    know, by request: no result has carried them. It outlives the sessions' actors, which are stopped when they are
    idle. What is known of a decision from before the run is in the store (`requests.is_unsent`).
    """

    config: Config
    store: Store
    card_router: Name
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    policy: Callable[[str], WorkspacePolicy]
    watcher: Callable[[str], Name]
    present: Callable[[str | None], bool]
    chat: ChatOutbox | None = None
    measured: Measured = unmeasured
    signatures: Signatures = field(factory=without_keys)
    locks: WorkspaceLocks = field(factory=WorkspaceLocks)
    unsent: dict[str, str] = field(factory=dict)
