"""Finds a hook's agent by process ancestry: the hook's client also started the agent's shim."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from intercom.local.launchers import is_launcher


def nearest(pid: int, doors: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
    """Return the names of the connections whose client is the nearest ancestor of process `pid`; empty if there is
    none. `doors` maps each name to the processes of its shim and client."""
    above = [process.pid for process in _line(pid)[1:]]
    # Over HTTP one client may have many connections.
    known = {pids: _with_hosts(pids) for pids in set(doors.values())}
    hosts = {name: known[pids] for name, pids in doors.items()}
    for ancestor in above:
        found = tuple(name for name, pids in hosts.items() if ancestor in pids)
        if found:
            return found
    return ()


def _with_hosts(pids: frozenset[int]) -> frozenset[int]:
    """Return `pids` and, for each mere launcher, the processes above it up to the first real program."""
    found = set(pids)
    for pid in pids:
        for process in _line(pid):
            if not is_launcher(_command(process)):
                found.add(process.pid)
                break
            found.add(process.pid)
    return frozenset(pid for pid in found if pid > 1)


def _line(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.parents()]
    except (psutil.Error, ValueError):
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
