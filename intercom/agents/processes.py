"""Which processes are agents': the shims that are connected and the clients that started them."""

from __future__ import annotations

from attrs import define, field

from intercom.local.peers import started_at


@define
class AgentProcesses:
    """`connected` maps the name of each shim's connection to the shim's pid and its client's.

    A client whose shim vanished without a word stays an agent for as long as it lives: else an agent could kill its own
    shim and then answer for itself. `departed` maps the pid of such a process to when it started.
    """

    connected: dict[str, frozenset[int]] = field(factory=dict)
    departed: dict[int, float] = field(factory=dict)

    def came(self, door: str, pids: frozenset[int]) -> None:
        self.connected[door] = pids

    def left(self, door: str, *, said: bool) -> None:
        """The connection is gone; `said` when the client closed it in good order."""
        pids = self.connected.pop(door, frozenset())
        if not said:
            found = {pid: started_at(pid) for pid in pids}
            self.departed.update({pid: started for pid, started in found.items() if started is not None})
            self._forget_the_dead()

    def pids(self) -> frozenset[int]:
        """The processes whose descendants may not answer."""
        self._forget_the_dead()
        return frozenset(self.departed).union(*self.connected.values())

    def _forget_the_dead(self) -> None:
        self.departed = {pid: started for pid, started in self.departed.items() if started_at(pid) == started}
