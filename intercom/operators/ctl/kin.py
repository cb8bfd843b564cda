"""Whether a command comes from an agent's own processes, which may not answer for it.

An agent has a shell under the operator's uid: uid and token prove nothing about it, but where its processes come from
does. What a process that hides on purpose can still do is told in the security notes.
"""

from __future__ import annotations

import functools
import os

import psutil

from intercom.local.launchers import is_launcher
from intercom.local.peers import descends_from


def is_agents_own(pid: int, clients: frozenset[int]) -> bool:
    """Say whether process `pid` belongs to one of the agents whose client and shim processes are `clients`.

    It does when it descends from one (or from what launched it by way of a launcher), when it can not be examined, or
    when it was left behind (its parent has exited) in a session of the terminal's sense that one of them leads or
    started: a command put in the background by a shell that is gone is still the agent's.
    """
    if not clients:
        return False
    hosts = with_hosts(clients)
    return descends_from(pid, hosts) or _left_behind_by(pid, hosts)


@functools.lru_cache(maxsize=8)
def with_hosts(clients: frozenset[int]) -> frozenset[int]:
    """`clients`, and for each that is a mere launcher the process above it, up to the first that is none."""
    hosts = set(clients)
    for pid in clients:
        try:
            process = psutil.Process(pid)
            while is_launcher(process.cmdline()) and (parent := process.parent()) is not None and parent.pid > 1:
                hosts.add(parent.pid)
                process = parent
        except psutil.Error:
            continue
    return frozenset(hosts)


def _left_behind_by(pid: int, hosts: frozenset[int]) -> bool:
    try:
        leader = os.getsid(pid)
    except OSError:
        return True
    # A living leader above the process in its line was looked at already; one beside it was not.
    if leader in (0, pid) or descends_from(pid, (leader,)):
        return False
    sessions = {_session(host) for host in hosts}
    return leader in sessions or (psutil.pid_exists(leader) and descends_from(leader, hosts))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
