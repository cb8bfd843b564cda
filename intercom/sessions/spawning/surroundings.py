"""What the spawner and its children are given: their surroundings, as values and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from actors import Name
from intercom.model.child import Child, Process
from intercom.model.session import SessionMode
from intercom.sessions.context import Context
from intercom.sessions.spawning import processes


@frozen
class Surroundings:
    """`root` is where output is kept, one directory a session; `environ` the server's environment. `http` says what an
    agent needs to reach the server over HTTP, as variables. `came` and `left` note whose processes are agents'; `stays`
    is true when this server makes room for another that will take its agents over. `reception` lets sessions run."""

    context: Context
    root: Path
    environ: Mapping[str, str]
    children: Name
    reception: Name
    default_mode: SessionMode
    http: Callable[[str], Mapping[str, str]] = lambda _session_id: {}
    came: Callable[[str, str, frozenset[int]], None] = lambda _door, _session_id, _pids: None
    left: Callable[[str], None] = lambda _door: None
    stays: Callable[[], bool] = lambda: False
    #: All keepers that this server knows: none of them is another's descendant.
    keepers: dict[str, Process] = field(factory=dict, init=False)
    _noted: set[str] = field(factory=set, init=False)

    def note(self, child: Child) -> None:
        """What its row names, and is alive, are an agent's processes from now on."""
        if child.keeper is not None:
            self.keepers[child.session_id] = child.keeper
        living = (each.pid for each in (child.keeper, child.process) if each is not None and processes.is_alive(each))
        self._noted.add(child.session_id)
        self.came(_door(child.session_id), child.session_id, frozenset(living))

    def note_first(self, child: Child) -> None:
        """The same, unless something was noted for this session already: its own actor knows that better."""
        if child.session_id not in self._noted:
            self.note(child)

    def forget(self, session_id: str) -> None:
        """Nothing of it runs any more."""
        self._noted.discard(session_id)
        self.keepers.pop(session_id, None)
        self.left(_door(session_id))


def _door(session_id: str) -> str:
    return f"child/{session_id}"
