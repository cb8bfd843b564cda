"""Recorded processes of agents. A server, and every later one on the same database, recognises agents by them."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class Role(StrEnum):
    """Why a process is recorded. CLIENT connects to us: a relay, an HTTP client, a hook. DRIVER holds the other end of
    a client's standard streams. ANCESTOR is above one of these in the same POSIX session. STARTED was started for a
    person, and we supervise it."""

    CLIENT = "client"
    DRIVER = "driver"
    ANCESTOR = "ancestor"
    STARTED = "started"


@frozen
class AgentProcess:
    """A recorded process, identified by `pid`, `started` (clock ticks since boot) and `boot` (the kernel's boot id).
    `leader` is the pid of its POSIX session's leader. `leader_started` is that one's start, 0 if it was gone.
    `session_id` is the Intercom session it belongs to, empty if unknown."""

    pid: int
    started: int
    boot: str
    leader: int
    leader_started: int
    role: Role
    session_id: str = ""
