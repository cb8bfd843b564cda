"""Which processes are agents': the shims that are connected and the clients that started them."""

from __future__ import annotations

from attrs import define, field


@define
class AgentProcesses:
    """`connected` maps a shim's id to its pid and its client's."""

    connected: dict[str, frozenset[int]] = field(factory=dict)

    def came(self, shim: str, pids: frozenset[int]) -> None:
        self.connected[shim] = pids

    def left(self, shim: str) -> None:
        self.connected.pop(shim, None)

    def pids(self) -> frozenset[int]:
        return frozenset().union(*self.connected.values())
