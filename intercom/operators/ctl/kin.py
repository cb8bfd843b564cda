"""Whether a command comes from an agent's own processes, which may not answer for it.

An agent has a shell under the operator's uid: uid and token prove nothing about it, but where its processes come from
does. What a process that hides on purpose can still do is told in the security notes.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from intercom.local.peers import descends_from


def is_agents_own(pid: int, clients: Collection[int]) -> bool:
    """Say whether process `pid` belongs to one of the agents whose client and shim processes are `clients`.

    It does when it descends from one, when it can not be examined, or when it was left behind (its parent has exited)
    in a session of the terminal's sense that one of them leads or started: a command put in the background by a shell
    that is gone is still the agent's.
    """
    if not clients:
        return False
    return descends_from(pid, clients) or _left_behind_by(pid, clients)


def _left_behind_by(pid: int, clients: Collection[int]) -> bool:
    try:
        leader = os.getsid(pid)
    except OSError:
        return True
    # A living leader above the process in its line was looked at already; one beside it was not.
    if leader in (0, pid) or descends_from(pid, (leader,)):
        return False
    sessions = {_session(client) for client in clients}
    return leader in sessions or (_alive(leader) and descends_from(leader, clients))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
