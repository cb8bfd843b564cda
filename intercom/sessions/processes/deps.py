"""What the spawner and the agent processes are given, as values and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from actors import Name
from intercom.model.process import AgentProcess, Process
from intercom.model.session import SessionMode
from intercom.sessions.context import Context
from intercom.sessions.processes import membership


@frozen
class ProcessDeps:
    """`root` is the directory of the output, one directory per session. `environ` is the server's environment. `http`
    returns the variables with which an agent reaches the server. `came` and `left` record agents' processes. `stays` is
    true if another server will take the agents over. `registry` runs sessions' actors."""

    context: Context
    root: Path
    environ: Mapping[str, str]
    children: Name
    registry: Name
    default_mode: SessionMode
    http: Callable[[str], Mapping[str, str]] = lambda _session_id: {}
    came: Callable[[str, str, frozenset[int]], None] = lambda _door, _session_id, _pids: None
    left: Callable[[str], None] = lambda _door: None
    stays: Callable[[], bool] = lambda: False
    #: The monitors of all sessions. None of them belongs to another agent.
    keepers: dict[str, Process] = field(factory=dict, init=False)
    _noted: set[str] = field(factory=set, init=False)

    def note(self, child: AgentProcess) -> None:
        """Record the living processes in this row as an agent's."""
        if child.keeper is not None:
            self.keepers[child.session_id] = child.keeper
        living = (each.pid for each in (child.keeper, child.process) if each is not None and membership.is_alive(each))
        self._noted.add(child.session_id)
        self.came(_door(child.session_id), child.session_id, frozenset(living))

    def note_first(self, child: AgentProcess) -> None:
        """Note the row as `note` does, unless the session was noted before: its own actor has newer information."""
        if child.session_id not in self._noted:
            self.note(child)

    def forget(self, session_id: str) -> None:
        """Record that nothing of this session's agent runs any more."""
        self._noted.discard(session_id)
        self.keepers.pop(session_id, None)
        self.left(_door(session_id))


def _door(session_id: str) -> str:
    return f"child/{session_id}"
