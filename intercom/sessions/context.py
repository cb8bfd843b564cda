"""What every session is given: its surroundings, as values and names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import trio
from attrs import field, frozen

from actors import Name
from intercom.model.config import Config
from intercom.model.measure import Measured, unmeasured
from intercom.model.policy import WorkspacePolicy
from intercom.sessions.chat import Chat
from intercom.sessions.signatures import Signatures, without_keys

#: One lock a workspace: two sessions may change the same files, and a base must not move between check and write.
Locks = dict[str, trio.Lock]


@frozen
class Context:
    """`now` is wall time; `policy` the policy in force for a workspace root (deny-all where none is
    known), `watcher` the actor that judges by it; `present` whether the agent of this key is connected; `chat` what is
    known of the chat channel, None where none is set up; `measured` is told what is worth counting. `unattended` are
    pending requests that no call waits for, as far as their sessions know; their cards say so.
    `signatures` says which decisions count."""

    config: Config
    store: Name
    operators: Name
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    policy: Callable[[str], WorkspacePolicy]
    watcher: Callable[[str], Name]
    present: Callable[[str | None], bool]
    chat: Chat | None = None
    measured: Measured = unmeasured
    signatures: Signatures = field(factory=without_keys)
    locks: Locks = field(factory=dict)
    unattended: set[str] = field(factory=set)

    def lock(self, workspace_root: str) -> trio.Lock:
        """The lock that applies to files under this root are done under."""
        return self.locks.setdefault(workspace_root, trio.Lock())
