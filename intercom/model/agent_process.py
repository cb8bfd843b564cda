"""Processes on record as agents': what a server, and every later one on the same database, knows agents by."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class Role(StrEnum):
    """How a process came on record. CLIENT speaks to us: a relay, an HTTP client, a hook. DRIVER holds the other end of
    its standard streams. ANCESTOR stands above one of these in the same POSIX session. STARTED was started for a
    person, and is kept by us."""

    CLIENT = "client"
    DRIVER = "driver"
    ANCESTOR = "ancestor"
    STARTED = "started"


@frozen
class AgentProcess:
    """`pid`, `started` (clock ticks since the system started) and `boot` (the kernel's boot id) name the process for
    good. `leader` is the pid of its POSIX session's leader, and `leader_started` when that started; 0 where it was gone
    already. `session_id` is the Intercom session it is known to belong to, empty where none is known."""

    pid: int
    started: int
    boot: str
    leader: int
    leader_started: int
    role: Role
    session_id: str = ""
